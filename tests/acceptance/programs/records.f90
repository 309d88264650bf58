! Fortran's ways to files: formatted, unformatted, direct, stream, namelist; moving in them, and removing them.
program records
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64, iostat_end
  implicit none
  integer, parameter :: n = 2000
  integer :: i, k, unit, status
  integer(int64) :: place, bytes
  real(real64) :: x, row(16)
  character(len=40) :: line
  character :: letter
  logical :: there
  real(real64) :: a = 1.5_real64
  integer :: b = 7
  namelist /settings/ a, b

  ! Formatted: written, read back, gone back in, added to.
  open(newunit=unit, file='formatted', status='new', action='readwrite', form='formatted')
  do i = 1, n
    write(unit, '(i6,1x,es23.15)') i, sqrt(real(i, real64))
  end do
  rewind(unit)
  do i = 1, n
    read(unit, *) k, x
    call check(k == i .and. abs(x * x - i) < 1e-9_real64 * i, 'a formatted line')
  end do
  read(unit, *, iostat=status) k
  call check(status == iostat_end, 'the end')
  backspace(unit)
  backspace(unit)
  read(unit, *) k
  call check(k == n, 'the last line')
  close(unit)
  open(newunit=unit, file='formatted', status='old', position='append')
  write(unit, '(a)') 'added'
  close(unit)
  open(newunit=unit, file='formatted', status='old', action='read')
  do i = 1, n
    read(unit, '(a)') line
  end do
  read(unit, '(a)') line
  call check(line == 'added', 'the line that was added')
  close(unit)
  open(newunit=unit, file='formatted', status='new', iostat=status)
  call check(status /= 0, 'a file that is there is not new')
  open(newunit=unit, file='missing', status='old', iostat=status)
  call check(status /= 0, 'a file that is not there is not old')

  ! Unformatted records of different lengths, one after the other.
  open(newunit=unit, file='unformatted', form='unformatted')
  do i = 1, 200
    write(unit) i, [(real(i * k, real64), k = 1, mod(i, 16) + 1)]
  end do
  rewind(unit)
  do i = 1, 200
    read(unit) k, row(1:mod(i, 16) + 1)
    call check(k == i .and. row(mod(i, 16) + 1) == real(i * (mod(i, 16) + 1), real64), 'a record')
  end do
  close(unit)

  ! Records of one length, in any order.
  open(newunit=unit, file='direct', access='direct', form='unformatted', recl=storage_size(row) / 8 * 16)
  do i = 100, 1, -1
    row = real(i, real64)
    write(unit, rec=i) row
  end do
  do i = 3, 100, 7
    read(unit, rec=i) row
    call check(all(row == real(i, real64)), 'a direct record')
  end do
  close(unit)

  ! Bytes at places.
  open(newunit=unit, file='stream', access='stream', form='unformatted')
  write(unit) 'abcdefghij', 42_int32
  write(unit, pos=3) 'XY'
  inquire(unit, pos=place, size=bytes)
  call check(place == 5 .and. bytes == 14, 'place and size')
  read(unit, pos=4) letter
  call check(letter == 'Y', 'a byte')
  read(unit, pos=11) k
  call check(k == 42, 'a number')
  close(unit)
  open(newunit=unit, file='lines', access='stream', form='formatted')
  write(unit, '(a,/,a)') 'one', 'two'
  read(unit, '(a)', pos=5) line
  call check(line == 'two', 'a line of a stream')
  flush(unit)
  close(unit)

  open(newunit=unit, file='settings')
  write(unit, nml=settings)
  a = 0
  b = 0
  rewind(unit)
  read(unit, nml=settings)
  call check(a == 1.5_real64 .and. b == 7, 'a namelist')
  close(unit)

  open(newunit=unit, status='scratch', form='unformatted')
  write(unit) n
  rewind(unit)
  read(unit) k
  call check(k == n, 'a file without a name')
  close(unit)
  inquire(file='direct', exist=there, size=bytes)
  call check(there .and. bytes == 100 * 128, 'the size of a file by its name')
  open(newunit=unit, file='direct')
  close(unit, status='delete')
  inquire(file='direct', exist=there)
  call check(.not. there, 'a file that was deleted')
  print '(a)', 'good'

contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    print '(2a)', 'failed: ', what
    stop 1
  end subroutine check

end program records
