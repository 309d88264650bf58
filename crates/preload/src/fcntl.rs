//! Flags and device controls of descriptors; locks that are asked for by `fcntl` go to [`crate::lock`].

use crate::calls::real;
use crate::descriptors::duplicated;
use crate::serve::{by_fd, refusal};
use crate::table::is_ours;
use crate::{hook, lock};
use libc::c_long;
use rustix::io::Errno;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// Status flags that `F_SETFL` changes.
const CHANGEABLE: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

fn control(fd: c_int, command: c_int, argument: c_long, real: impl Fn() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, real()),
        libc::F_GETFD | libc::F_SETFD => real(),
        _ => by_fd(
            fd,
            |client, file_ref| {
                let flags = file_ref.mapping()?.flags();
                match command {
                    libc::F_GETFL => Ok(flags.load(Ordering::Relaxed) as c_int),
                    libc::F_SETFL => {
                        let (kept, set) = (!CHANGEABLE as u32, (argument as c_int & CHANGEABLE) as u32);
                        let change = |flags| Some(flags & kept | set);
                        // The change is never refused.
                        let _ = flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
                        Ok(0)
                    }
                    _ if lock::is_command(command) => lock::by_fcntl(client, file_ref, command, argument),
                    _ => Err(refusal(Errno::INVAL)),
                }
            },
            real,
        ),
    }
}

pub fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if is_ours(fd) {
        control(fd, command, argument, || real::fcntl(fd, command, argument))
    } else {
        real::fcntl(fd, command, argument)
    }
}

pub fn isatty(fd: c_int) -> c_int {
    if is_ours(fd) {
        hook::set_errno(Errno::NOTTY);
        0
    } else {
        real::isatty(fd)
    }
}
