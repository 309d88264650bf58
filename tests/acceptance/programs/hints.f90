! The file that all ranks write together, opened by Fortran's binding.
program hints
  implicit none
  include 'mpif.h'
  integer :: rank, file, info, failure
  character(len=256) :: path
  character(len=8) :: part
  integer(kind=MPI_OFFSET_KIND) :: at
  call MPI_Init(failure)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, failure)
  call get_command_argument(1, path)
  call MPI_Info_create(info, failure)
  call MPI_Info_set(info, 'fileSize', '16', failure)
  call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_WRONLY, info, file, failure)
  if (failure /= MPI_SUCCESS) error stop 'cannot open the file'
  part = repeat(char(ichar('a') + rank), 8)
  at = 8 * rank
  call MPI_File_write_at_all(file, at, part, 8, MPI_CHARACTER, MPI_STATUS_IGNORE, failure)
  if (failure /= MPI_SUCCESS) error stop 'cannot write'
  call MPI_File_close(file, failure)
  call MPI_Finalize(failure)
end program hints
