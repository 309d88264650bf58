//! Streams of the C library's on files of ours: `fopen`, `fdopen`, `freopen`, `fileno`.
//!
//! The C library's streams make their system calls inside it, where no hook sees them. Ours are cookie streams
//! (`fopencookie`), whose four operations come here and go on to the hooks of `read`, `write`, `lseek`, and `close`.
//! A cookie names a descriptor, not a file: after a `dup2` over it, the stream follows, as streams do.

use crate::calls::real;
use crate::foreign::{Buffer, CPath, Data};
use crate::hook::{self, fail};
use crate::serve::{Routed, by_path, refusal, route};
use crate::spin::Spin;
use crate::{descriptors, fcntl, open, rw, seek, standard, table};
use libc::{FILE, off64_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Streams on files of ours at most; one more fails with EMFILE.
pub const STREAMS_MAX: usize = 1024;
/// Buffer of a stream: larger than the C library's own, because each of its fillings is a request.
const BUFFER_LEN: usize = 64 << 10;

#[repr(C)]
struct CookieFunctions {
    read: extern "C" fn(*mut c_void, Buffer, usize) -> ssize_t,
    write: extern "C" fn(*mut c_void, Data, usize) -> ssize_t,
    seek: extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

const FUNCTIONS: CookieFunctions =
    CookieFunctions { read: cookie_read, write: cookie_write, seek: cookie_seek, close: cookie_close };

/// The streams that exist, with their descriptors.
static STREAMS: Spin<[(usize, c_int); STREAMS_MAX]> = Spin::new([(0, -1); STREAMS_MAX]);
/// How many there are: while it is zero, `fileno` need not look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Cookie {
    fd: c_int,
    /// Address of the stream, its key among [`STREAMS`].
    stream: usize,
    /// Left to the C library by `setvbuf`; lives until the stream is closed.
    buffer: Vec<u8>,
}

/// See [`crate::process`].
pub fn lock_before_fork() {
    STREAMS.acquire();
}

/// See [`crate::process`].
pub fn unlock_after_fork() {
    STREAMS.release();
}

fn cookie<'a>(cookie: *mut c_void) -> &'a Cookie {
    // SAFETY: the C library hands back what `stream` gave it, until `cookie_close`.
    unsafe { &*cookie.cast::<Cookie>() }
}

extern "C" fn cookie_read(this: *mut c_void, buffer: Buffer, len: usize) -> ssize_t {
    rw::read(cookie(this).fd, buffer, len)
}

extern "C" fn cookie_write(this: *mut c_void, data: Data, len: usize) -> ssize_t {
    // The stream takes 0 for an error.
    rw::write(cookie(this).fd, data, len).max(0)
}

extern "C" fn cookie_seek(this: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: the C library passes memory for the offset.
    let offset = unsafe { &mut *offset };
    match seek::lseek(cookie(this).fd, *offset, whence) {
        -1 => -1,
        reached => {
            *offset = reached;
            0
        }
    }
}

extern "C" fn cookie_close(this: *mut c_void) -> c_int {
    // SAFETY: as in `cookie`; this is the last the C library says of it.
    let cookie = unsafe { Box::from_raw(this.cast::<Cookie>()) };
    forget(cookie.stream);
    standard::stream_closed(cookie.stream as *mut FILE);
    descriptors::close(cookie.fd)
}

fn remember(stream: usize, fd: c_int) -> bool {
    let mut streams = STREAMS.lock();
    let Some(entry) = streams.iter_mut().find(|(other, _)| *other == 0) else { return false };
    *entry = (stream, fd);
    COUNT.fetch_add(1, Ordering::Relaxed);
    true
}

fn forget(stream: usize) {
    let mut streams = STREAMS.lock();
    if let Some(entry) = streams.iter_mut().find(|(other, _)| *other == stream) {
        *entry = (0, -1);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The descriptor of a stream of ours.
fn descriptor_of(stream: *mut FILE) -> Option<c_int> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let key = stream as usize;
    STREAMS.lock().iter().find(|(other, _)| *other == key && key != 0).map(|(_, fd)| *fd)
}

/// A stream on descriptor `fd`, which it closes in the end; null with `errno` if there can be none.
pub fn stream(fd: c_int, mode: &Mode) -> *mut FILE {
    let cookie = Box::into_raw(Box::new(Cookie { fd, stream: 0, buffer: vec![0; BUFFER_LEN] }));
    // SAFETY: the functions have the signatures asked for, and the cookie lives until `cookie_close`.
    let stream = unsafe { fopencookie(cookie.cast(), mode.text().as_ptr(), FUNCTIONS) };
    if stream.is_null() || !remember(stream as usize, fd) {
        if !stream.is_null() {
            // SAFETY: nobody else knows the cookie or the stream; -1 is closed by nobody.
            unsafe {
                (*cookie).fd = -1;
                libc::fclose(stream);
            }
        } else {
            // SAFETY: the C library did not take the cookie.
            drop(unsafe { Box::from_raw(cookie) });
        }
        return fail(Errno::MFILE);
    }
    // SAFETY: the stream is fresh; cookie and buffer live until `cookie_close`.
    unsafe {
        (*cookie).stream = stream as usize;
        libc::setvbuf(stream, (*cookie).buffer.as_mut_ptr().cast(), libc::_IOFBF, BUFFER_LEN);
    }
    stream
}

/// How a stream is opened: the mode string of `fopen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    first: u8,
    plus: bool,
    /// Flags for `open`.
    pub flags: c_int,
}

impl Mode {
    /// Reads a mode string; `None` if it begins with none of r, w, a.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (first, rest) = text.split_first()?;
        // What follows a comma names a character set.
        let rest = rest.split(|b| *b == b',').next().unwrap_or(&[]);
        let has = |letter| rest.contains(&letter);
        let access = match (first, has(b'+')) {
            (_, true) => libc::O_RDWR,
            (b'r', false) => libc::O_RDONLY,
            _ => libc::O_WRONLY,
        };
        let creation = match first {
            b'r' => 0,
            b'w' => libc::O_CREAT | libc::O_TRUNC,
            b'a' => libc::O_CREAT | libc::O_APPEND,
            _ => return None,
        };
        let exclusive = if has(b'x') { libc::O_EXCL } else { 0 };
        let close_on_exec = if has(b'e') { libc::O_CLOEXEC } else { 0 };
        Some(Self { first: *first, plus: has(b'+'), flags: access | creation | exclusive | close_on_exec })
    }

    /// What the C library must know of it.
    fn text(self) -> &'static CStr {
        match (self.first, self.plus) {
            (b'r', false) => c"r",
            (b'r', true) => c"r+",
            (b'w', false) => c"w",
            (b'w', true) => c"w+",
            (_, false) => c"a",
            (_, true) => c"a+",
        }
    }
}

fn parsed(mode: CPath) -> Result<Mode, isonomia_client::Error> {
    mode.bytes().and_then(Mode::parse).ok_or(refusal(Errno::INVAL))
}

fn open_stream(path: CPath, mode: CPath, real: impl FnOnce(CPath) -> *mut FILE) -> *mut FILE {
    by_path(
        libc::AT_FDCWD,
        path,
        |client, at, path| {
            let mode = parsed(mode)?;
            let fd = open::open_ours(client, at, path, mode.flags, 0o666)?;
            if mode.first == b'a' {
                // As the C library does, so that `ftell` tells the end. An error leaves the start.
                seek::lseek(fd, 0, libc::SEEK_END);
            }
            let stream = stream(fd, &mode);
            if stream.is_null() {
                descriptors::close(fd);
                hook::set_errno(Errno::MFILE);
            }
            Ok(stream)
        },
        |_, path| real(path),
    )
}

pub fn fopen(path: CPath, mode: CPath) -> *mut FILE {
    open_stream(path, mode, |path| real::fopen(path, mode))
}

pub fn setmntent(path: CPath, mode: CPath) -> *mut FILE {
    open_stream(path, mode, |path| real::setmntent(path, mode))
}

pub fn fdopen(fd: c_int, mode: CPath) -> *mut FILE {
    let Some(file_ref) = table::find(fd) else { return real::fdopen(fd, mode) };
    let Ok(mode) = parsed(mode) else { return fail(Errno::INVAL) };
    let allowed = match file_ref.flags() & libc::O_ACCMODE {
        libc::O_RDONLY => mode.first == b'r' && !mode.plus,
        libc::O_WRONLY => mode.first != b'r' && !mode.plus,
        _ => true,
    };
    if !allowed {
        return fail(Errno::INVAL);
    }
    if mode.first == b'a' {
        fcntl::fcntl(fd, libc::F_SETFL, i64::from(file_ref.flags() | libc::O_APPEND));
    }
    stream(fd, &mode)
}

pub fn fileno(stream: *mut FILE) -> c_int {
    descriptor_of(stream).unwrap_or_else(|| real::fileno(stream))
}

/// Opens `path` anew under the descriptor of `stream`. A stream of ours follows its descriptor wherever it goes, and
/// the standard streams are replaced with their descriptors; any other stream of the C library's cannot come over to
/// a file of ours and is closed with ENOTSUP.
fn reopen(path: CPath, mode: CPath, stream: *mut FILE, real: impl FnOnce() -> *mut FILE) -> *mut FILE {
    let to_ours = path.bytes().is_some_and(|text| matches!(route(libc::AT_FDCWD, text), Ok(Routed::Ours { .. })));
    let own = descriptor_of(stream);
    if own.is_none() && !to_ours {
        let fd = fileno(stream);
        let reopened = real();
        if !reopened.is_null() && fd >= 0 {
            // The C library may have closed and opened under the number of a file of ours.
            table::fresh(fd);
        }
        return reopened;
    }
    // SAFETY: the caller vouches for an open stream.
    unsafe { libc::fflush(stream) };
    if path.bytes().is_none() {
        return stream;
    }
    let Some(parsed) = mode.bytes().and_then(Mode::parse) else { return fail(Errno::INVAL) };
    let fd = own.unwrap_or_else(|| fileno(stream));
    if own.is_none() && !(0..=2).contains(&fd) {
        // SAFETY: as above.
        unsafe { libc::fclose(stream) };
        return fail(Errno::NOTSUP);
    }
    let opened = open::open(path, parsed.flags, 0o666);
    if opened < 0 {
        let failure = hook::errno_number();
        // SAFETY: as above; `freopen` closes the stream when it fails.
        unsafe { libc::fclose(stream) };
        hook::set_errno_number(failure);
        return std::ptr::null_mut();
    }
    if opened != fd {
        descriptors::dup2(opened, fd);
        descriptors::close(opened);
    }
    let current = standard::current(fd).filter(|_| own.is_none()).unwrap_or(stream);
    if descriptor_of(current).is_some() {
        standard::set_direction(current, &parsed);
    }
    // SAFETY: an open stream.
    unsafe { libc::clearerr(current) };
    current
}

pub fn freopen(path: CPath, mode: CPath, stream: *mut FILE) -> *mut FILE {
    reopen(path, mode, stream, || real::freopen(path, mode, stream))
}

pub fn freopen64(path: CPath, mode: CPath, stream: *mut FILE) -> *mut FILE {
    reopen(path, mode, stream, || real::freopen64(path, mode, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_strings_become_flags() {
        let flags = |text: &str| Mode::parse(text.as_bytes()).map(|mode| mode.flags);
        assert_eq!(flags("r"), Some(libc::O_RDONLY));
        assert_eq!(flags("rb+"), Some(libc::O_RDWR));
        assert_eq!(flags("w"), Some(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
        assert_eq!(flags("a+e"), Some(libc::O_RDWR | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC));
        assert_eq!(flags("wx"), Some(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL));
        assert_eq!(flags("r,ccs=UTF-8+"), Some(libc::O_RDONLY));
        assert_eq!(flags("z"), None);
        assert_eq!(flags(""), None);
    }
}
