! Writes a file in a phase that it declares.
program phases
    use, intrinsic :: iso_c_binding, only: c_double, c_int64_t
    use isonomia
    implicit none
    character(len=4096) :: path
    call get_command_argument(1, path)
    if (isonomia_phase_begin(bytes=4096_c_int64_t, remaining_s=2.5_c_double) /= 0) stop 1
    open(unit=10, file=trim(path), status='new')
    write(10, '(a)', advance='no') 'from Fortran'
    close(10)
    if (isonomia_phase_end() /= 0) stop 2
end program
