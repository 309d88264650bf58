! Calls of programs that say more to Isonomia than a file system can: see isonomia.h, which has the same for C.
!
! There is nothing to link but the C library. Without the preload client the functions do nothing and return 0.
module isonomia
    use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_f_procpointer, c_funptr, c_int, c_int64_t, &
        c_null_char, c_null_ptr, c_ptr
    implicit none
    private
    public :: isonomia_phase_begin, isonomia_phase_end

    abstract interface
        function begin_in_c(bytes, remaining_s) bind(c) result(failed)
            import :: c_double, c_int, c_int64_t
            integer(c_int64_t), value :: bytes
            real(c_double), value :: remaining_s
            integer(c_int) :: failed
        end function
        function end_in_c() bind(c) result(failed)
            import :: c_int
            integer(c_int) :: failed
        end function
    end interface

    interface
        function dlsym(of_process, name) bind(c, name="dlsym") result(address)
            import :: c_char, c_funptr, c_ptr
            type(c_ptr), value :: of_process
            character(kind=c_char), intent(in) :: name(*)
            type(c_funptr) :: address
        end function
    end interface

contains

    ! An I/O phase of the job begins, which is going to read and write `bytes` (0: not known); alone, the program would still
    ! take `remaining_s` seconds, this phase included (0: not known). 0, or -1 if the server cannot be told.
    function isonomia_phase_begin(bytes, remaining_s) result(failed)
        integer(c_int64_t), intent(in), optional :: bytes
        real(c_double), intent(in), optional :: remaining_s
        integer(c_int) :: failed
        procedure(begin_in_c), pointer :: begin
        type(c_funptr) :: address
        integer(c_int64_t) :: known_bytes
        real(c_double) :: known_s
        known_bytes = 0
        known_s = 0
        if (present(bytes)) known_bytes = bytes
        if (present(remaining_s)) known_s = remaining_s
        failed = 0
        address = dlsym(c_null_ptr, "isonomia_phase_begin" // c_null_char)
        if (c_associated(address)) then
            call c_f_procpointer(address, begin)
            failed = begin(known_bytes, known_s)
        end if
    end function

    ! The phase is over that was begun last. Nothing happens if none was.
    function isonomia_phase_end() result(failed)
        integer(c_int) :: failed
        procedure(end_in_c), pointer :: end_of_phase
        type(c_funptr) :: address
        failed = 0
        address = dlsym(c_null_ptr, "isonomia_phase_end" // c_null_char)
        if (c_associated(address)) then
            call c_f_procpointer(address, end_of_phase)
            failed = end_of_phase()
        end if
    end function

end module
