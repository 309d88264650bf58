//! Every function of the C library that takes a path or a descriptor: its signature, and what becomes of it.
//!
//! From this one table come the functions that the library exports ([`mod@entry`]), the way to the functions that they
//! stand before ([`mod@real`]), and the page `docs/reference/calls.md`. A row of a function that is served or refused reads
//!
//! ```text
//! name other_names [names] (argument: Type, …) -> Type = what;
//! ```
//!
//! * The names are one function of the C library; the first stands for all on the way to the real one.
//! * Names in brackets are those of old programs and of other libraries: static programs need no hooks for them, and
//!   calls from inside the C library, which is part of such programs, must stay as they are.
//! * Types are those of C, wrapped as in [`crate::foreign`]. `...` as the last argument stands for any number of arguments,
//!   which the function behind gets as one [`Arguments`].
//! * `| SYS_name(argument, …)` at the end is the system call that the function is, for calls that come before the functions
//!   were looked up: allocators make such calls when they are first used ([`crate::hook::are_resolved`]). `by_number` stands
//!   for the one that its first argument names.
//! * `; caller` after the arguments is for a function that looks at its caller: see [`mod@crate::onward`].
//! * `what` is `family::function`, which does the call; or an errno: a call on a descriptor of ours, the first argument,
//!   fails with it, and every other call goes on to the real function.
//!
//! Functions that are passed through have no hooks; their names stand here for the page.

use crate::foreign::{Buffer, CPath, Data, In, Opaque, Out};
use crate::variadic::Arguments;
use crate::{aio, exec, fts, glob, process, spawn, walk};
use libc::{
    DIR, FILE, c_long, c_ulong, dev_t, dirent64, fd_set, gid_t, iocb, iovec, key_t, mode_t, nfds_t, off64_t, pid_t,
    pollfd, sigset_t, size_t, sockaddr, ssize_t, timespec, timeval, uid_t,
};
use std::ffi::{c_char, c_int, c_uint, c_void};

calls! {
    served "Opening" {
        open open64 [__open __open64] (path: CPath, flags: c_int, mode: mode_t) -> c_int = open::open
            | SYS_openat(libc::AT_FDCWD, path, flags, mode);
        openat openat64 (dir: c_int, path: CPath, flags: c_int, mode: mode_t) -> c_int = open::openat
            | SYS_openat(dir, path, flags, mode);
        __open_2(path: CPath, flags: c_int) -> c_int = open::__open_2
            | SYS_openat(libc::AT_FDCWD, path, flags);
        __open64_2(path: CPath, flags: c_int) -> c_int = open::__open64_2
            | SYS_openat(libc::AT_FDCWD, path, flags);
        __openat_2(dir: c_int, path: CPath, flags: c_int) -> c_int = open::__openat_2;
        __openat64_2(dir: c_int, path: CPath, flags: c_int) -> c_int = open::__openat64_2;
        creat creat64 (path: CPath, mode: mode_t) -> c_int = open::creat;
    }
    served "Reading and writing" {
        read [__read] (fd: c_int, buffer: Buffer, len: size_t) -> ssize_t = rw::read
            | SYS_read(fd, buffer, len);
        __read_chk(fd: c_int, buffer: Buffer, len: size_t, room: size_t) -> ssize_t = rw::__read_chk;
        write [__write] (fd: c_int, data: Data, len: size_t) -> ssize_t = rw::write
            | SYS_write(fd, data, len);
        readv(fd: c_int, iov: In<iovec>, count: c_int) -> ssize_t = rw::readv;
        writev(fd: c_int, iov: In<iovec>, count: c_int) -> ssize_t = rw::writev;
        pread pread64 [__pread64] (fd: c_int, buffer: Buffer, len: size_t, offset: off64_t) -> ssize_t = rw::pread
            | SYS_pread64(fd, buffer, len, offset);
        __pread_chk(fd: c_int, buffer: Buffer, len: size_t, offset: off64_t, room: size_t) -> ssize_t = rw::__pread_chk;
        __pread64_chk(
            fd: c_int, buffer: Buffer, len: size_t, offset: off64_t, room: size_t
        ) -> ssize_t = rw::__pread64_chk;
        pwrite pwrite64 [__pwrite64] (fd: c_int, data: Data, len: size_t, offset: off64_t) -> ssize_t = rw::pwrite;
        preadv preadv64 (fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t) -> ssize_t = rw::preadv;
        pwritev pwritev64 (fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t) -> ssize_t = rw::pwritev;
        preadv2 preadv64v2 (
            fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t, flags: c_int
        ) -> ssize_t = rw::preadv2;
        pwritev2 pwritev64v2 (
            fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t, flags: c_int
        ) -> ssize_t = rw::pwritev2;
    }
    served "Offset and length" {
        lseek lseek64 [__lseek llseek] (fd: c_int, offset: off64_t, whence: c_int) -> off64_t = seek::lseek
            | SYS_lseek(fd, offset, whence);
        ftruncate ftruncate64 (fd: c_int, size: off64_t) -> c_int = seek::ftruncate;
        truncate truncate64 (path: CPath, size: off64_t) -> c_int = seek::truncate;
        fallocate fallocate64 (fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int = seek::fallocate;
        posix_fallocate(fd: c_int, offset: off64_t, len: off64_t) -> c_int = seek::posix_fallocate;
        posix_fallocate64(fd: c_int, offset: off64_t, len: off64_t) -> c_int = seek::posix_fallocate64;
        posix_fadvise posix_fadvise64 (
            fd: c_int, offset: off64_t, len: off64_t, advice: c_int
        ) -> c_int = seek::posix_fadvise;
        readahead(fd: c_int, offset: off64_t, count: usize) -> ssize_t = seek::readahead;
    }
    served "Attributes" {
        stat stat64 (path: CPath, out: Out<libc::stat>) -> c_int = stat::stat
            | SYS_newfstatat(libc::AT_FDCWD, path, out, 0);
        lstat lstat64 (path: CPath, out: Out<libc::stat>) -> c_int = stat::lstat
            | SYS_newfstatat(libc::AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW);
        fstat fstat64 (fd: c_int, out: Out<libc::stat>) -> c_int = stat::fstat
            | SYS_fstat(fd, out);
        fstatat fstatat64 (dir: c_int, path: CPath, out: Out<libc::stat>, flags: c_int) -> c_int = stat::fstatat
            | SYS_newfstatat(dir, path, out, flags);
        __xstat __xstat64 (version: c_int, path: CPath, out: Out<libc::stat>) -> c_int = stat::__xstat;
        __lxstat __lxstat64 (version: c_int, path: CPath, out: Out<libc::stat>) -> c_int = stat::__lxstat;
        __fxstat __fxstat64 (version: c_int, fd: c_int, out: Out<libc::stat>) -> c_int = stat::__fxstat;
        __fxstatat __fxstatat64 (
            version: c_int, dir: c_int, path: CPath, out: Out<libc::stat>, flags: c_int
        ) -> c_int = stat::__fxstatat;
        statx(dir: c_int, path: CPath, flags: c_int, mask: c_uint, out: Out<libc::statx>) -> c_int = stat::statx;
        ftok(path: CPath, project: c_int) -> key_t = stat::ftok;
        isfdtype(fd: c_int, kind: c_int) -> c_int = stat::isfdtype;
    }
    served "Changing attributes, access" {
        chmod(path: CPath, mode: mode_t) -> c_int = attr::chmod;
        lchmod(path: CPath, mode: mode_t) -> c_int = attr::lchmod;
        fchmod(fd: c_int, mode: mode_t) -> c_int = attr::fchmod;
        fchmodat(dir: c_int, path: CPath, mode: mode_t, flags: c_int) -> c_int = attr::fchmodat;
        chown(path: CPath, uid: uid_t, gid: gid_t) -> c_int = attr::chown;
        lchown(path: CPath, uid: uid_t, gid: gid_t) -> c_int = attr::lchown;
        fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int = attr::fchown;
        fchownat(dir: c_int, path: CPath, uid: uid_t, gid: gid_t, flags: c_int) -> c_int = attr::fchownat;
        utime(path: CPath, times: In<libc::utimbuf>) -> c_int = attr::utime;
        utimes(path: CPath, times: In<timeval>) -> c_int = attr::utimes;
        lutimes(path: CPath, times: In<timeval>) -> c_int = attr::lutimes;
        futimes(fd: c_int, times: In<timeval>) -> c_int = attr::futimes;
        futimesat(dir: c_int, path: CPath, times: In<timeval>) -> c_int = attr::futimesat;
        futimens(fd: c_int, times: In<timespec>) -> c_int = attr::futimens;
        utimensat(dir: c_int, path: CPath, times: In<timespec>, flags: c_int) -> c_int = attr::utimensat;
        access(path: CPath, mask: c_int) -> c_int = attr::access
            | SYS_faccessat(libc::AT_FDCWD, path, mask);
        eaccess euidaccess (path: CPath, mask: c_int) -> c_int = attr::eaccess;
        faccessat(dir: c_int, path: CPath, mask: c_int, flags: c_int) -> c_int = attr::faccessat;
    }
    served "Extended attributes" {
        getxattr(path: CPath, name: CPath, value: Buffer, len: size_t) -> ssize_t = xattr::getxattr;
        lgetxattr(path: CPath, name: CPath, value: Buffer, len: size_t) -> ssize_t = xattr::lgetxattr;
        fgetxattr(fd: c_int, name: CPath, value: Buffer, len: size_t) -> ssize_t = xattr::fgetxattr;
        setxattr(path: CPath, name: CPath, value: Data, len: size_t, flags: c_int) -> c_int = xattr::setxattr;
        lsetxattr(path: CPath, name: CPath, value: Data, len: size_t, flags: c_int) -> c_int = xattr::lsetxattr;
        fsetxattr(fd: c_int, name: CPath, value: Data, len: size_t, flags: c_int) -> c_int = xattr::fsetxattr;
        listxattr(path: CPath, names: Buffer, len: size_t) -> ssize_t = xattr::listxattr;
        llistxattr(path: CPath, names: Buffer, len: size_t) -> ssize_t = xattr::llistxattr;
        flistxattr(fd: c_int, names: Buffer, len: size_t) -> ssize_t = xattr::flistxattr;
        removexattr(path: CPath, name: CPath) -> c_int = xattr::removexattr;
        lremovexattr(path: CPath, name: CPath) -> c_int = xattr::lremovexattr;
        fremovexattr(fd: c_int, name: CPath) -> c_int = xattr::fremovexattr;
    }
    served "Names" {
        mkdir(path: CPath, mode: mode_t) -> c_int = link::mkdir;
        mkdirat(dir: c_int, path: CPath, mode: mode_t) -> c_int = link::mkdirat;
        rmdir(path: CPath) -> c_int = link::rmdir;
        unlink(path: CPath) -> c_int = link::unlink;
        unlinkat(dir: c_int, path: CPath, flags: c_int) -> c_int = link::unlinkat;
        remove(path: CPath) -> c_int = link::remove;
        rename(from: CPath, to: CPath) -> c_int = link::rename;
        renameat(from_dir: c_int, from: CPath, to_dir: c_int, to: CPath) -> c_int = link::renameat;
        renameat2(from_dir: c_int, from: CPath, to_dir: c_int, to: CPath, flags: c_uint) -> c_int = link::renameat2;
        link(from: CPath, to: CPath) -> c_int = link::link;
        linkat(from_dir: c_int, from: CPath, to_dir: c_int, to: CPath, flags: c_int) -> c_int = link::linkat;
        symlink(text: CPath, path: CPath) -> c_int = link::symlink;
        symlinkat(text: CPath, dir: c_int, path: CPath) -> c_int = link::symlinkat;
        readlink(path: CPath, buffer: Buffer, len: size_t) -> ssize_t = link::readlink
            | SYS_readlinkat(libc::AT_FDCWD, path, buffer, len);
        readlinkat(dir: c_int, path: CPath, buffer: Buffer, len: size_t) -> ssize_t = link::readlinkat
            | SYS_readlinkat(dir, path, buffer, len);
        __readlink_chk(path: CPath, buffer: Buffer, len: size_t, room: size_t) -> ssize_t = link::__readlink_chk;
        __readlinkat_chk(
            dir: c_int, path: CPath, buffer: Buffer, len: size_t, room: size_t
        ) -> ssize_t = link::__readlinkat_chk;
        mknod(path: CPath, mode: mode_t, device: dev_t) -> c_int = link::mknod;
        mknodat(dir: c_int, path: CPath, mode: mode_t, device: dev_t) -> c_int = link::mknodat;
        [__xmknod] (version: c_int, path: CPath, mode: mode_t, device: Out<dev_t>) -> c_int = link::__xmknod;
        [__xmknodat] (
            version: c_int, dir: c_int, path: CPath, mode: mode_t, device: Out<dev_t>
        ) -> c_int = link::__xmknodat;
        mkfifo(path: CPath, mode: mode_t) -> c_int = link::mkfifo;
        mkfifoat(dir: c_int, path: CPath, mode: mode_t) -> c_int = link::mkfifoat;
    }
    served "Directories" {
        opendir(path: CPath) -> *mut DIR = dir::opendir;
        fdopendir(fd: c_int) -> *mut DIR = dir::fdopendir;
        closedir(dir: *mut DIR) -> c_int = dir::closedir;
        readdir readdir64 (dir: *mut DIR) -> *mut dirent64 = dir::readdir;
        readdir_r readdir64_r (
            dir: *mut DIR, entry: Out<dirent64>, result: Out<*mut dirent64>
        ) -> c_int = dir::readdir_r;
        telldir(dir: *mut DIR) -> c_long = dir::telldir;
        seekdir(dir: *mut DIR, place: c_long) -> () = dir::seekdir;
        rewinddir(dir: *mut DIR) -> () = dir::rewinddir;
        dirfd(dir: *mut DIR) -> c_int = dir::dirfd;
        getdents64(fd: c_int, buffer: Buffer, len: usize) -> isize = dir::getdents64;
        getdirentries getdirentries64 (
            fd: c_int, buffer: Buffer, len: usize, base: Out<i64>
        ) -> isize = dir::getdirentries;
    }
    served "Directories and trees" {
        scandir scandir64 (
            path: CPath, list: Out<*mut *mut dirent64>, filter: walk::Filter, compare: walk::Compare
        ) -> c_int = walk::scandir;
        scandirat scandirat64 (
            dir: c_int, path: CPath, list: Out<*mut *mut dirent64>, filter: walk::Filter, compare: walk::Compare
        ) -> c_int = walk::scandirat;
        ftw ftw64 (path: CPath, visit: walk::Visit, descriptors: c_int) -> c_int = walk::ftw;
        nftw nftw64 (path: CPath, visit: walk::VisitMore, descriptors: c_int, flags: c_int) -> c_int = walk::nftw;
    }
    served "Trees" {
        fts_open fts64_open (
            paths: *const CPath, options: c_int, compare: fts::Compare
        ) -> *mut fts::Walk = fts::fts_open;
        fts_read fts64_read (walk: *mut fts::Walk) -> *mut fts::Entry = fts::fts_read;
        fts_children fts64_children (walk: *mut fts::Walk, how: c_int) -> *mut fts::Entry = fts::fts_children;
        fts_set fts64_set (walk: *mut fts::Walk, entry: *mut fts::Entry, what: c_int) -> c_int = fts::fts_set;
        fts_close fts64_close (walk: *mut fts::Walk) -> c_int = fts::fts_close;
    }
    served "Patterns" {
        glob glob64 (
            pattern: CPath, flags: c_int, on_error: *const c_void, found: *mut glob::Glob
        ) -> c_int = glob::glob;
    }
    served "Fresh names" {
        mkstemp mkstemp64 (template: *mut c_char) -> c_int = temporary::mkstemp;
        mkostemp mkostemp64 (template: *mut c_char, flags: c_int) -> c_int = temporary::mkostemp;
        mkstemps mkstemps64 (template: *mut c_char, suffix_len: c_int) -> c_int = temporary::mkstemps;
        mkostemps mkostemps64 (template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int = temporary::mkostemps;
        mkdtemp(template: *mut c_char) -> *mut c_char = temporary::mkdtemp;
        mktemp(template: *mut c_char) -> *mut c_char = temporary::mktemp;
        tempnam(dir: CPath, prefix: CPath) -> *mut c_char = temporary::tempnam;
    }
    served "Streams" {
        fopen fopen64 [_IO_fopen] (path: CPath, mode: CPath) -> *mut FILE = stdio::fopen;
        setmntent __setmntent (path: CPath, mode: CPath) -> *mut FILE = stdio::setmntent;
        fdopen [_IO_fdopen] (fd: c_int, mode: CPath) -> *mut FILE = stdio::fdopen;
        fileno fileno_unlocked (stream: *mut FILE) -> c_int = stdio::fileno;
        freopen(path: CPath, mode: CPath, stream: *mut FILE) -> *mut FILE = stdio::freopen;
        freopen64(path: CPath, mode: CPath, stream: *mut FILE) -> *mut FILE = stdio::freopen64;
    }
    served "Printing to a descriptor" {
        vdprintf(fd: c_int, format: CPath, arguments: *mut Arguments) -> c_int = print::vdprintf;
        dprintf(fd: c_int, format: CPath, ...) -> c_int = print::vdprintf;
        __vdprintf_chk(
            fd: c_int, flag: c_int, format: CPath, arguments: *mut Arguments
        ) -> c_int = print::__vdprintf_chk;
        __dprintf_chk(fd: c_int, flag: c_int, format: CPath, ...) -> c_int = print::__vdprintf_chk;
        backtrace_symbols_fd [__backtrace_symbols_fd] (
            addresses: *const *mut c_void, count: c_int, fd: c_int
        ) -> () = print::backtrace_symbols_fd;
    }
    served "Descriptors" {
        close [__close] (fd: c_int) -> c_int = descriptors::close
            | SYS_close(fd);
        close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = descriptors::close_range;
        closefrom(first: c_int) -> () = descriptors::closefrom;
        dup(fd: c_int) -> c_int = descriptors::dup;
        dup2 [__dup2] (from: c_int, to: c_int) -> c_int = descriptors::dup2;
        dup3(from: c_int, to: c_int, flags: c_int) -> c_int = descriptors::dup3;
        socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = descriptors::socket;
        pipe [__pipe] (ends: *mut [c_int; 2]) -> c_int = descriptors::pipe;
        pipe2(ends: *mut [c_int; 2], flags: c_int) -> c_int = descriptors::pipe2;
    }
    served "Descriptor flags, locks of bytes" {
        fcntl fcntl64 [__fcntl] (fd: c_int, command: c_int, argument: c_long) -> c_int = fcntl::fcntl
            | SYS_fcntl(fd, command, argument);
    }
    served "Locks" {
        flock(fd: c_int, operation: c_int) -> c_int = lock::flock;
        lockf lockf64 (fd: c_int, command: c_int, len: off64_t) -> c_int = lock::lockf;
    }
    served "Stable storage" {
        fsync(fd: c_int) -> c_int = sync::fsync;
        fdatasync(fd: c_int) -> c_int = sync::fdatasync;
        sync_file_range(fd: c_int, offset: off64_t, len: off64_t, flags: c_uint) -> c_int = sync::sync_file_range;
        syncfs(fd: c_int) -> c_int = sync::syncfs;
    }
    served "Mappings" {
        mmap mmap64 (
            address: Opaque, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t
        ) -> Opaque = mapping::mmap
            | SYS_mmap(address, len, protection, flags, fd, offset);
        munmap(address: *mut c_void, len: size_t) -> c_int = mapping::munmap
            | SYS_munmap(address, len);
        mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int = mapping::mprotect
            | SYS_mprotect(address, len, protection);
        mremap(
            address: *mut c_void, len: size_t, new_len: size_t, flags: c_int, new_address: Opaque
        ) -> Opaque = mapping::mremap
            | SYS_mremap(address, len, new_len, flags, new_address);
        msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int = mapping::msync
            | SYS_msync(address, len, flags);
    }
    served "Waiting" {
        poll [__poll] (fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = poll::poll;
        __poll_chk(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: usize) -> c_int = poll::__poll_chk;
        ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: In<sigset_t>) -> c_int = poll::ppoll;
        __ppoll_chk(
            fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: In<sigset_t>, room: usize
        ) -> c_int = poll::__ppoll_chk;
        select [__select] (
            count: c_int, read: Out<fd_set>, write: Out<fd_set>, except: Out<fd_set>, timeout: *mut timeval
        ) -> c_int = poll::select;
        pselect(
            count: c_int, read: Out<fd_set>, write: Out<fd_set>, except: Out<fd_set>, timeout: *const timespec,
            mask: In<sigset_t>
        ) -> c_int = poll::pselect;
    }
    served "The file system" {
        statfs statfs64 [__statfs] (path: CPath, out: Out<libc::statfs>) -> c_int = statfs::statfs;
        fstatfs fstatfs64 (fd: c_int, out: Out<libc::statfs>) -> c_int = statfs::fstatfs;
        statvfs statvfs64 (path: CPath, out: Out<libc::statvfs>) -> c_int = statfs::statvfs;
        fstatvfs fstatvfs64 (fd: c_int, out: Out<libc::statvfs>) -> c_int = statfs::fstatvfs;
        pathconf(path: CPath, name: c_int) -> c_long = statfs::pathconf;
        fpathconf(fd: c_int, name: c_int) -> c_long = statfs::fpathconf;
    }
    served "The working directory" {
        chdir(path: CPath) -> c_int = cwd::chdir;
        fchdir(fd: c_int) -> c_int = cwd::fchdir;
        getcwd(buffer: *mut c_char, len: usize) -> *mut c_char = cwd::getcwd;
        __getcwd_chk(buffer: *mut c_char, len: usize, room: usize) -> *mut c_char = cwd::__getcwd_chk;
        getwd(buffer: *mut c_char) -> *mut c_char = cwd::getwd;
        get_current_dir_name() -> *mut c_char = cwd::get_current_dir_name;
    }
    served "Resolved names" {
        realpath(path: CPath, buffer: *mut c_char) -> *mut c_char = realpath::realpath;
        __realpath_chk(path: CPath, buffer: *mut c_char, room: usize) -> *mut c_char = realpath::__realpath_chk;
        canonicalize_file_name(path: CPath) -> *mut c_char = realpath::canonicalize_file_name;
    }
    served "Processes" {
        daemon(keep_directory: c_int, keep_streams: c_int) -> c_int = process::daemon;
        system(command: CPath) -> c_int = process::system;
        popen [_IO_popen] (command: CPath, mode: CPath) -> *mut FILE = process::popen;
        wordexp(words: CPath, expansion: *mut c_void, flags: c_int) -> c_int = process::wordexp;
        clone(
            function: Option<extern "C" fn(*mut c_void) -> c_int>, stack: *mut c_void, flags: c_int,
            argument: *mut c_void, parent_tid: *mut c_void, tls: *mut c_void, child_tid: *mut c_void
        ) -> c_int = process::clone;
        _Fork() -> pid_t = process::fork_without_handlers;
        __register_atfork(
            before: process::Handler, in_parent: process::Handler, in_child: process::Handler, library: *mut c_void
        ) -> c_int = process::__register_atfork;
        vfork [__vfork] () -> c_int = process::vfork;
    }
    served "Other programs" {
        execve(path: CPath, arguments: exec::List, environment: exec::List) -> c_int = exec::execve;
        execv(path: CPath, arguments: exec::List) -> c_int = exec::execv;
        execvp(file: CPath, arguments: exec::List) -> c_int = exec::execvp;
        execvpe(file: CPath, arguments: exec::List, environment: exec::List) -> c_int = exec::execvpe;
        fexecve(fd: c_int, arguments: exec::List, environment: exec::List) -> c_int = exec::fexecve;
        execveat(
            dir: c_int, path: CPath, arguments: exec::List, environment: exec::List, flags: c_int
        ) -> c_int = exec::execveat;
        execl(path: CPath, ...) -> c_int = exec::execute_listed;
        execlp(file: CPath, ...) -> c_int = exec::search_listed;
        execle(path: CPath, ...) -> c_int = exec::execute_listed_in;
    }
    served "Children that are other programs" {
        posix_spawn_file_actions_addopen(
            actions: spawn::Actions, fd: c_int, path: CPath, flags: c_int, mode: mode_t
        ) -> c_int = spawn::posix_spawn_file_actions_addopen;
        posix_spawn_file_actions_addchdir_np(
            actions: spawn::Actions, path: CPath
        ) -> c_int = spawn::posix_spawn_file_actions_addchdir_np;
        posix_spawn_file_actions_addfchdir_np(
            actions: spawn::Actions, fd: c_int
        ) -> c_int = spawn::posix_spawn_file_actions_addfchdir_np;
        posix_spawn_file_actions_addclosefrom_np(
            actions: spawn::Actions, first: c_int
        ) -> c_int = spawn::posix_spawn_file_actions_addclosefrom_np;
        posix_spawn_file_actions_destroy(actions: spawn::Actions) -> c_int = spawn::posix_spawn_file_actions_destroy;
        posix_spawn(
            pid: *mut pid_t, path: CPath, actions: *const c_void, attributes: *const c_void, arguments: exec::List,
            environment: exec::List
        ) -> c_int = spawn::posix_spawn;
        posix_spawnp(
            pid: *mut pid_t, file: CPath, actions: *const c_void, attributes: *const c_void, arguments: exec::List,
            environment: exec::List
        ) -> c_int = spawn::posix_spawnp;
    }
    served "Libraries" {
        [dlopen] (path: CPath, flags: c_int; caller) -> Opaque = library::dlopen;
    }
    served "The user and the groups" {
        setuid(uid: uid_t) -> c_int = user::setuid;
        setgid(gid: gid_t) -> c_int = user::setgid;
        seteuid(uid: uid_t) -> c_int = user::seteuid;
        setegid(gid: gid_t) -> c_int = user::setegid;
        setreuid(real_uid: uid_t, effective: uid_t) -> c_int = user::setreuid;
        setregid(real_gid: gid_t, effective: gid_t) -> c_int = user::setregid;
        setresuid(real_uid: uid_t, effective: uid_t, saved: uid_t) -> c_int = user::setresuid;
        setresgid(real_gid: gid_t, effective: gid_t, saved: gid_t) -> c_int = user::setresgid;
        setgroups(count: size_t, groups: *const gid_t) -> c_int = user::setgroups;
        [initgroups] (user: *const c_char, group: gid_t) -> c_int = user::initgroups;
    }
    served "The umask" {
        umask(mask: mode_t) -> mode_t = umask::umask;
    }
    served "System calls by number" {
        syscall(
            number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
        ) -> c_long = syscall::syscall
            | by_number(number, a, b, c, d, e, f);
    }
    served "POSIX AIO" {
        aio_read aio_read64 (block: *mut aio::ControlBlock) -> c_int = aio::aio_read;
        aio_write aio_write64 (block: *mut aio::ControlBlock) -> c_int = aio::aio_write;
        aio_fsync aio_fsync64 (operation: c_int, block: *mut aio::ControlBlock) -> c_int = aio::aio_fsync;
        lio_listio lio_listio64 (
            mode: c_int, list: *const *mut aio::ControlBlock, count: c_int, event: *mut aio::Event
        ) -> c_int = aio::lio_listio;
        aio_cancel aio_cancel64 (fd: c_int, block: *mut aio::ControlBlock) -> c_int = aio::aio_cancel;
    }
    refused "ENOTTY (`isatty`: 0)" {
        ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int = NOTTY;
        isatty(fd: c_int) -> c_int = fcntl::isatty;
        ttyname_r(fd: c_int, buffer: Opaque, len: size_t) -> c_int = refuse::ttyname_r;
        __ttyname_r_chk(fd: c_int, buffer: Opaque, len: size_t, room: size_t) -> c_int = refuse::__ttyname_r_chk;
        ptsname_r(fd: c_int, buffer: Opaque, len: size_t) -> c_int = refuse::ptsname_r;
        __ptsname_r_chk(fd: c_int, buffer: Opaque, len: size_t, room: size_t) -> c_int = refuse::__ptsname_r_chk;
        tcgetattr(fd: c_int, attributes: Opaque) -> c_int = NOTTY;
        tcsetattr(fd: c_int, when: c_int, attributes: Opaque) -> c_int = NOTTY;
        tcgetpgrp(fd: c_int) -> pid_t = NOTTY;
        tcsetpgrp(fd: c_int, group: pid_t) -> c_int = NOTTY;
        tcgetsid(fd: c_int) -> pid_t = NOTTY;
        tcdrain(fd: c_int) -> c_int = NOTTY;
        tcflow(fd: c_int, action: c_int) -> c_int = NOTTY;
        tcflush(fd: c_int, queue: c_int) -> c_int = NOTTY;
        tcsendbreak(fd: c_int, duration: c_int) -> c_int = NOTTY;
        ttyname(fd: c_int) -> *mut c_char = NOTTY;
        ptsname(fd: c_int) -> *mut c_char = NOTTY;
        grantpt(fd: c_int) -> c_int = NOTTY;
        unlockpt(fd: c_int) -> c_int = NOTTY;
        login_tty(fd: c_int) -> c_int = NOTTY;
    }
    refused "ENOTSOCK on a descriptor; names under the prefix: see below" {
        accept(fd: c_int, address: Opaque, len: Opaque) -> c_int = NOTSOCK;
        accept4(fd: c_int, address: Opaque, len: Opaque, flags: c_int) -> c_int = NOTSOCK;
        listen(fd: c_int, backlog: c_int) -> c_int = NOTSOCK;
        shutdown(fd: c_int, how: c_int) -> c_int = NOTSOCK;
        sockatmark(fd: c_int) -> c_int = NOTSOCK;
        getpeername(fd: c_int, address: Opaque, len: Opaque) -> c_int = NOTSOCK;
        getsockname(fd: c_int, address: Opaque, len: Opaque) -> c_int = NOTSOCK;
        getsockopt(fd: c_int, level: c_int, option: c_int, value: Opaque, len: Opaque) -> c_int = NOTSOCK;
        setsockopt(fd: c_int, level: c_int, option: c_int, value: Opaque, len: c_uint) -> c_int = NOTSOCK;
        recv(fd: c_int, buffer: Opaque, len: size_t, flags: c_int) -> ssize_t = NOTSOCK;
        __recv_chk(fd: c_int, buffer: Opaque, len: size_t, room: size_t, flags: c_int) -> ssize_t = NOTSOCK;
        recvfrom(
            fd: c_int, buffer: Opaque, len: size_t, flags: c_int, address: Opaque, address_len: Opaque
        ) -> ssize_t = NOTSOCK;
        __recvfrom_chk(
            fd: c_int, buffer: Opaque, len: size_t, room: size_t, flags: c_int, address: Opaque, address_len: Opaque
        ) -> ssize_t = NOTSOCK;
        recvmsg(fd: c_int, message: Opaque, flags: c_int) -> ssize_t = NOTSOCK;
        recvmmsg(fd: c_int, messages: Opaque, count: c_uint, flags: c_int, timeout: Opaque) -> c_int = NOTSOCK;
        send [__send] (fd: c_int, data: Opaque, len: size_t, flags: c_int) -> ssize_t = NOTSOCK;
        sendto(
            fd: c_int, data: Opaque, len: size_t, flags: c_int, address: Opaque, address_len: c_uint
        ) -> ssize_t = NOTSOCK;
        sendmsg(fd: c_int, message: Opaque, flags: c_int) -> ssize_t = NOTSOCK;
        sendmmsg(fd: c_int, messages: Opaque, count: c_uint, flags: c_int) -> c_int = NOTSOCK;
    }
    refused "`bind`: EOPNOTSUPP, `connect`: ECONNREFUSED for a name under the prefix; ENOTSOCK on a descriptor" {
        bind(fd: c_int, address: *const sockaddr, len: c_uint) -> c_int = socket::bind;
        connect [__connect] (fd: c_int, address: *const sockaddr, len: c_uint) -> c_int = socket::connect;
    }
    refused "EINVAL" {
        tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t = refuse::tee;
        sendfile sendfile64 (to: c_int, from: c_int, offset: Out<off64_t>, len: size_t) -> ssize_t = transfer::sendfile;
        splice(
            from: c_int, from_offset: Out<off64_t>, to: c_int, to_offset: Out<off64_t>, len: size_t, flags: c_uint
        ) -> ssize_t = transfer::splice;
    }
    refused "EXDEV" {
        copy_file_range(
            from: c_int, from_offset: Out<off64_t>, to: c_int, to_offset: Out<off64_t>, len: size_t, flags: c_uint
        ) -> ssize_t = transfer::copy_file_range;
    }
    refused "EPERM" {
        epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int = transfer::epoll_ctl;
    }
    refused "EOPNOTSUPP" {
        name_to_handle_at(
            dir: c_int, path: CPath, handle: Opaque, mount: Opaque, flags: c_int
        ) -> c_int = refuse::name_to_handle_at;
        open_by_handle_at(fd: c_int, handle: Opaque, flags: c_int) -> c_int = OPNOTSUPP;
    }
    refused "ENOSPC" {
        inotify_add_watch(queue: c_int, path: CPath, mask: c_uint) -> c_int = refuse::inotify_add_watch;
    }
    refused "ENOSYS; functions of liburing and libaio" {
        [io_uring_setup] (entries: c_uint, parameters: *mut c_void) -> c_int = kernel_queue::io_uring_setup;
        [io_uring_queue_init] (
            entries: c_uint, ring: *mut c_void, flags: c_uint
        ) -> c_int = kernel_queue::io_uring_queue_init;
        [io_uring_queue_init_params] (
            entries: c_uint, ring: *mut c_void, parameters: *mut c_void
        ) -> c_int = kernel_queue::io_uring_queue_init_params;
        [io_uring_queue_init_mem] (
            entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: usize
        ) -> c_int = kernel_queue::io_uring_queue_init_mem;
        [io_submit] (context: c_ulong, count: c_long, list: *const *const iocb) -> c_int = kernel_queue::io_submit;
    }
    passed "Their results lie where the C library looks" {
        aio_error aio_error64 aio_return aio_return64 aio_suspend aio_suspend64 aio_init
    }
    passed "Actions on descriptors, which placeholders are" {
        posix_spawn_file_actions_init posix_spawn_file_actions_addclose posix_spawn_file_actions_adddup2
        posix_spawn_file_actions_addtcsetpgrp_np
    }
    passed "A library under the prefix is not found" {
        dlmopen
    }
    passed "Catalogs and tables that the system administrator names" {
        bindtextdomain catopen utmpname utmpxname updwtmp updwtmpx
    }
    passed "Names of memory objects, queues, and semaphores, which are no paths" {
        mq_open __mq_open_2 mq_unlink sem_open sem_unlink shm_open shm_unlink
    }
    passed "For the administrator: ENOENT for a path under the prefix" {
        acct chroot mount umount umount2 pivot_root swapon swapoff quotactl uselib mount_setattr move_mount open_tree
        fsconfig fsmount fsopen fspick setns fanotify_init fanotify_mark revoke
    }
    passed "All file systems of the kernel; files under the prefix: `fsync`" {
        sync
    }
    passed "Make descriptors of other kinds" {
        epoll_create epoll_create1 eventfd inotify_init inotify_init1 memfd_create signalfd timerfd_create pidfd_open
        pidfd_getfd posix_openpt getpt openpty forkpty socketpair
    }
    passed "Use descriptors of other kinds; EBADF for one of ours" {
        epoll_wait epoll_pwait epoll_pwait2 eventfd_read eventfd_write inotify_rm_watch mq_close mq_getattr mq_notify
        mq_receive mq_send mq_setattr mq_timedreceive mq_timedsend pidfd_send_signal process_madvise process_mrelease
        timerfd_gettime timerfd_settime vmsplice bindresvport getsourcefilter setsourcefilter getipv4sourcefilter
        setipv4sourcefilter svcfd_create svcunixfd_create svcunix_create clntunix_create
    }
    passed "Made in `/tmp`, which no prefix is above" {
        tmpfile tmpfile64 tmpnam tmpnam_r
    }
    passed "Insides of streams, which programs do not call" {
        _IO_file_attach _IO_file_fopen _IO_file_open _IO_proc_open
    }
    passed "ENOSYS everywhere: functions that Linux does not have" {
        chflags fchflags fattach fdetach getmsg getpmsg putmsg putpmsg isastream gtty stty
    }
    passed "In the C library of a fork's handlers: `vfork` is served as `fork`, whose handlers do what is needed" {
        fork __fork
    }
}
