! Writes a line to a file and says how long it is.
program static
  implicit none
  character(len=256) :: path
  integer :: n
  call get_command_argument(1, path)
  open(unit=10, file=trim(path), status='replace', form='formatted')
  write(10, '(a,i0)') 'from Fortran ', 42
  close(10)
  open(unit=11, file=trim(path), status='old', access='stream', form='unformatted')
  inquire(unit=11, size=n)
  print '(i0)', n
  close(11)
end program static
