//! The environment variables of the preload client, read once, when they are first needed.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ISONOMIA_PREFIX` | directory under which files are served | `/isonomia` |
//! | `ISONOMIA_SERVER` | a server's address, or several parted by commas | the client library's |
//! | `ISONOMIA_SERVER_USER` | who may run the server, besides this user and root: number or name | nobody |
//! | `ISONOMIA_QUIET` | if set, nothing is said of waiting for a server | |
//! | `ISONOMIA_SQLITE_WAL` | if set, sqlite may begin with its WAL mode where it cannot share memory: [`crate::sqlite`] | |
//! | `ISONOMIA_TIMEOUT_S` | seconds that an operation may wait for the server | 30 |
//! | `ISONOMIA_KEY_FILE` | file with the key that a server on TCP asks for | none |
//! | `ISONOMIA_SERVER_NAME` | name of the server on TCP | any |
//! | `ISONOMIA_INTEGRITY` | `none`, `mac`, `encrypted`: what becomes of frames on TCP at least | `mac` off this host |
//! | `ISONOMIA_MUNGE_SOCKET` | where this host's munge daemon listens | `/run/munge/munge.socket.2` |
//! | `ISONOMIA_WRITERS`, `ISONOMIA_FILE_SIZE` | what files are going to be like | see [`isonomia_client::expected`] |
//! | `ISONOMIA_JOB`, `_USER`, `_GROUP`, `_NODES`, `_PRIORITY` | who the job is | see [`isonomia_client::identity`] |
//!
//! A variable that cannot be understood is reported in one line on standard error. With a bad prefix nothing is
//! served; with a bad address, key file or integrity operations under the prefix fail with EINVAL.

use crate::exec::environment_list;
use crate::route::Prefix;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where files are served when `ISONOMIA_PREFIX` is not set.
pub const PREFIX_DEFAULT: &str = "/isonomia";
/// How long an operation may wait for the server when `ISONOMIA_TIMEOUT_S` is not set.
pub const TIMEOUT_S_DEFAULT: u64 = 30;

static PREFIX: AtomicPtr<Option<Prefix>> = AtomicPtr::new(std::ptr::null_mut());

/// The prefix, if there is a usable one.
#[inline]
pub fn prefix() -> Option<&'static Prefix> {
    let known = PREFIX.load(Ordering::Acquire);
    let known = if known.is_null() { read_prefix() } else { known };
    // SAFETY: the pointer is null or comes from `Box::into_raw` and is never freed.
    unsafe { known.as_ref() }?.as_ref()
}

/// Null while the C library has not been started and knows no environment: nothing is served to who calls as early as that.
#[cold]
fn read_prefix() -> *mut Option<Prefix> {
    if environment_list().is_null() {
        return std::ptr::null_mut();
    }
    let text = variable("ISONOMIA_PREFIX").unwrap_or_else(|| PREFIX_DEFAULT.to_owned());
    let prefix = Prefix::new(text.as_bytes());
    if prefix.is_none() {
        complain(&format!("ISONOMIA_PREFIX={text}: must be an absolute path below /, without . and .."));
    }
    let fresh = Box::into_raw(Box::new(prefix));
    match PREFIX.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(first) => {
            // SAFETY: `fresh` was just made from a box and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            first
        }
    }
}

/// The server's address, if set.
pub fn server() -> Option<String> {
    variable("ISONOMIA_SERVER")
}

/// Who else may run the server, if set.
pub fn server_user() -> Option<String> {
    variable("ISONOMIA_SERVER_USER").filter(|text| !text.is_empty())
}

/// Whether nothing is to be said of waiting for a server.
pub fn is_quiet() -> bool {
    variable("ISONOMIA_QUIET").is_some_and(|value| !value.is_empty())
}

/// Whether sqlite may begin with a log where its processes cannot share memory.
pub fn may_use_sqlite_log() -> bool {
    variable("ISONOMIA_SQLITE_WAL").is_some_and(|value| !value.is_empty())
}

/// How long an operation may wait for the server, in seconds, at least 1.
pub fn timeout_s() -> u64 {
    let Some(text) = variable("ISONOMIA_TIMEOUT_S") else { return TIMEOUT_S_DEFAULT };
    text.parse().ok().filter(|seconds| *seconds > 0).unwrap_or_else(|| {
        complain(&format!("ISONOMIA_TIMEOUT_S={text}: must be a positive number of seconds"));
        TIMEOUT_S_DEFAULT
    })
}

/// The key file, if set.
pub fn key_file() -> Option<String> {
    variable("ISONOMIA_KEY_FILE")
}

/// A variable's value. libc's `getenv` and not `std::env`, whose lock a fork may leave taken.
pub fn variable(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is NUL-terminated; the value is copied at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returned a NUL-terminated string.
    Some(String::from_utf8_lossy(unsafe { CStr::from_ptr(value) }.to_bytes()).into_owned())
}

/// One line on standard error. An error in writing it has nowhere to go.
pub fn complain(what: &str) {
    let line = format!("isonomia: {what}\n");
    // SAFETY: descriptor 2 is borrowed for one call; if it is closed the call fails.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let _ = rustix::io::write(stderr, line.as_bytes());
}
