//! Second names of functions, which old programs and other libraries use.

use crate::foreign::{Buffer, CPath, Data, Opaque, Out};
use crate::{descriptors, fcntl, open, poll, print, process, refuse, rw, seek, socket, statfs, stdio};
use libc::{FILE, c_long, fd_set, mode_t, nfds_t, off64_t, pollfd, size_t, ssize_t, timeval};
use std::ffi::{c_int, c_uint, c_void};

macro_rules! alias {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $function:path;)*) => {$(
        /// Exported for others; never called from here.
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code))]
        #[allow(non_snake_case)]
        pub extern "C" fn $name($($arg: $ty),*) -> $ret {
            $function($($arg),*)
        }
    )*};
}

alias! {
    __open(path: CPath, flags: c_int, mode: mode_t) -> c_int = open::open;
    __open64(path: CPath, flags: c_int, mode: mode_t) -> c_int = open::open64;
    __close(fd: c_int) -> c_int = descriptors::close;
    __read(fd: c_int, buffer: Buffer, len: size_t) -> ssize_t = rw::read;
    __write(fd: c_int, data: Data, len: size_t) -> ssize_t = rw::write;
    __pread64(fd: c_int, buffer: Buffer, len: size_t, offset: off64_t) -> ssize_t = rw::pread64;
    __pwrite64(fd: c_int, data: Data, len: size_t, offset: off64_t) -> ssize_t = rw::pwrite64;
    __lseek(fd: c_int, offset: off64_t, whence: c_int) -> off64_t = seek::lseek;
    llseek(fd: c_int, offset: off64_t, whence: c_int) -> off64_t = seek::lseek64;
    __fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int = fcntl::fcntl;
    __dup2(from: c_int, to: c_int) -> c_int = descriptors::dup2;
    __pipe(ends: *mut [c_int; 2]) -> c_int = descriptors::pipe;
    __connect(fd: c_int, address: *const libc::sockaddr, len: c_uint) -> c_int = socket::connect;
    __send(fd: c_int, data: Opaque, len: size_t, flags: c_int) -> ssize_t = refuse::send;
    __poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = poll::poll;
    __select(
        count: c_int, read: Out<fd_set>, write: Out<fd_set>, except: Out<fd_set>, timeout: *mut timeval
    ) -> c_int = poll::select;
    __backtrace_symbols_fd(addresses: *const *mut c_void, count: c_int, fd: c_int) -> () = print::backtrace_symbols_fd;
    __statfs(path: CPath, out: Out<libc::statfs>) -> c_int = statfs::statfs;
    __vfork() -> c_int = process::vfork;
    _IO_fopen(path: CPath, mode: CPath) -> *mut FILE = stdio::fopen;
    _IO_fdopen(fd: c_int, mode: CPath) -> *mut FILE = stdio::fdopen;
    _IO_popen(command: CPath, mode: CPath) -> *mut FILE = process::popen;
}
