! A file of MPI opened by the binding of Fortran 2008, and a file of HDF5, both of all ranks together.
program hints_f08
  use mpi_f08
  use hdf5
  implicit none
  integer :: rank, failure
  type(MPI_File) :: file
  type(MPI_Info) :: info
  integer(hid_t) :: how, data
  character(len=256) :: path
  character(len=8) :: part
  integer(kind=MPI_OFFSET_KIND) :: at
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call get_command_argument(1, path)
  call MPI_Info_create(info)
  call MPI_Info_set(info, 'fileSize', '16')
  call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_WRONLY, info, file, failure)
  if (failure /= MPI_SUCCESS) error stop 'cannot open the file'
  part = repeat(char(ichar('a') + rank), 8)
  at = 8 * rank
  call MPI_File_write_at_all(file, at, part, 8, MPI_CHARACTER, MPI_STATUS_IGNORE, failure)
  if (failure /= MPI_SUCCESS) error stop 'cannot write'
  call MPI_File_close(file)
  call h5open_f(failure)
  call h5pcreate_f(H5P_FILE_ACCESS_F, how, failure)
  call h5pset_fapl_mpio_f(how, MPI_COMM_WORLD%MPI_VAL, MPI_INFO_NULL%MPI_VAL, failure)
  call h5fcreate_f(trim(path)//'.h5', H5F_ACC_TRUNC_F, data, failure, access_prp=how)
  if (failure /= 0) error stop 'cannot create the file of HDF5'
  call h5fclose_f(data, failure)
  call h5close_f(failure)
  call MPI_Finalize()
end program hints_f08
