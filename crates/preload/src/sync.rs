//! Putting data on stable storage.

use crate::calls::real;
use crate::serve::by_fd;
use libc::off64_t;
use std::ffi::{c_int, c_uint};

pub fn fsync(fd: c_int) -> c_int {
    by_fd(fd, |client, file_ref| client.sync(file_ref.file()?, false).map(|()| 0), || real::fsync(fd))
}

pub fn fdatasync(fd: c_int) -> c_int {
    by_fd(fd, |client, file_ref| client.sync(file_ref.file()?, true).map(|()| 0), || real::fdatasync(fd))
}

pub fn sync_file_range(fd: c_int, offset: off64_t, len: off64_t, flags: c_uint) -> c_int {
    by_fd(
        fd,
        |client, file_ref| client.sync(file_ref.file()?, true).map(|()| 0),
        || real::sync_file_range(fd, offset, len, flags),
    )
}

pub fn syncfs(fd: c_int) -> c_int {
    by_fd(fd, |client, file_ref| client.sync(file_ref.file()?, false).map(|()| 0), || real::syncfs(fd))
}
