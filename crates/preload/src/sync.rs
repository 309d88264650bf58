//! Putting data on stable storage.

use crate::serve::by_fd;
use libc::off64_t;
use std::ffi::{c_int, c_uint};

hook! {
    fn fsync(fd: c_int) -> c_int, real {
        by_fd(fd, |client, held| client.sync(held.file()?, false).map(|()| 0), || real(fd))
    }
}

hook! {
    fn fdatasync(fd: c_int) -> c_int, real {
        by_fd(fd, |client, held| client.sync(held.file()?, true).map(|()| 0), || real(fd))
    }
}

hook! {
    fn sync_file_range(fd: c_int, offset: off64_t, len: off64_t, flags: c_uint) -> c_int, real {
        by_fd(fd, |client, held| client.sync(held.file()?, true).map(|()| 0), || real(fd, offset, len, flags))
    }
}

hook! {
    fn syncfs(fd: c_int) -> c_int, real {
        by_fd(fd, |client, held| client.sync(held.file()?, false).map(|()| 0), || real(fd))
    }
}
