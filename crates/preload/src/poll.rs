//! Waiting for descriptors. Files are always ready, so a wait that includes one of ours does not wait.

use crate::calls::real;
use crate::foreign::{In, Out};
use crate::table::is_ours;
use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::ffi::{c_int, c_short};

/// What a regular file is ready for, as in the kernel.
const READY: c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;

/// Calls `real` without our descriptors in `fds`, and adds them to its result.
fn with_ours(fds: *mut pollfd, count: nfds_t, real: impl FnOnce(bool) -> c_int) -> c_int {
    if fds.is_null() || count == 0 {
        return real(false);
    }
    // SAFETY: the caller vouches for `count` entries.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    if !fds.iter().any(|entry| is_ours(entry.fd)) {
        return real(false);
    }
    // Entries with a negative number are skipped by the kernel.
    let ours: Vec<(usize, c_int)> =
        fds.iter().enumerate().filter(|(_, entry)| is_ours(entry.fd)).map(|(i, entry)| (i, entry.fd)).collect();
    ours.iter().for_each(|(i, _)| fds[*i].fd = -1);
    let ready = real(true);
    let mut ready_ours = 0;
    for (i, fd) in ours {
        fds[i].fd = fd;
        fds[i].revents = fds[i].events & READY;
        ready_ours += c_int::from(fds[i].revents != 0);
    }
    if ready < 0 { ready } else { ready + ready_ours }
}

pub fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    with_ours(fds, count, |at_once| real::poll(fds, count, if at_once { 0 } else { timeout_ms }))
}

pub fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: usize) -> c_int {
    with_ours(fds, count, |at_once| real::__poll_chk(fds, count, if at_once { 0 } else { timeout_ms }, room))
}

pub fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: In<sigset_t>) -> c_int {
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    with_ours(fds, count, |at_once| real::ppoll(fds, count, if at_once { &raw const zero } else { timeout }, mask))
}

pub fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: In<sigset_t>,
    room: usize,
) -> c_int {
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    with_ours(fds, count, |at_once| {
        real::__ppoll_chk(fds, count, if at_once { &raw const zero } else { timeout }, mask, room)
    })
}

/// Calls `real` without our descriptors in the sets, and adds them to its result: ready to read and to write.
fn select_with_ours(count: c_int, sets: [Out<fd_set>; 3], real: impl FnOnce(bool) -> c_int) -> c_int {
    let has = |set: Out<fd_set>, fd| {
        // SAFETY: the caller vouches for a set of `FD_SETSIZE` bits, and `fd` is below that.
        !set.is_null() && unsafe { libc::FD_ISSET(fd, set.as_ptr()) }
    };
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    let ours = |fd: &c_int| is_ours(*fd) && sets.iter().any(|set| has(*set, *fd));
    if !(0..count).any(|fd| ours(&fd)) {
        return real(false);
    }
    // SAFETY: zeros are an empty set, and a null pointer is one.
    let asked = sets.map(|set| if set.is_null() { unsafe { std::mem::zeroed() } } else { unsafe { *set.as_ptr() } });
    for fd in (0..count).filter(|fd| is_ours(*fd)) {
        for set in sets.iter().filter(|set| has(**set, fd)) {
            // SAFETY: as in `has`.
            unsafe { libc::FD_CLR(fd, set.as_ptr()) };
        }
    }
    let ready = real(true);
    if ready < 0 {
        return ready;
    }
    let mut ready_ours = 0;
    for fd in (0..count).filter(|fd| is_ours(*fd)) {
        // Never exceptional: the third set stays clear.
        for (set, asked) in sets.iter().zip(&asked).take(2) {
            // SAFETY: a set of `FD_SETSIZE` bits, and another where something is asked for.
            unsafe {
                if libc::FD_ISSET(fd, asked) {
                    libc::FD_SET(fd, set.as_ptr());
                    ready_ours += 1;
                }
            }
        }
    }
    ready + ready_ours
}

pub fn select(
    count: c_int,
    read: Out<fd_set>,
    write: Out<fd_set>,
    except: Out<fd_set>,
    timeout: *mut timeval,
) -> c_int {
    let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
    select_with_ours(count, [read, write, except], |at_once| {
        real::select(count, read, write, except, if at_once { &raw mut zero } else { timeout })
    })
}

pub fn pselect(
    count: c_int,
    read: Out<fd_set>,
    write: Out<fd_set>,
    except: Out<fd_set>,
    timeout: *const timespec,
    mask: In<sigset_t>,
) -> c_int {
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    select_with_ours(count, [read, write, except], |at_once| {
        real::pselect(count, read, write, except, if at_once { &raw const zero } else { timeout }, mask)
    })
}
