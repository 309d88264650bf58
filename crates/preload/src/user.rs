//! Programs that take another user or other groups: the server is to know them as that ([`crate::connection`]).
//!
//! A proof of an open, or of having come to a directory, is valid for one user. So whatever is open, and the working directory,
//! is made out to the next user *before* the change, as the one who may use it: the program may execute another one right
//! after it, and nobody could ask any more.
//!
//! The C library changes all threads of a process, and so does this. What a thread changes for itself alone, by a system
//! call of its own or by `setfsuid`, counts for nothing here.

use crate::calls::real;
use crate::hook::{errno_number, set_errno_number};
use crate::{connection, cwd, table};
use isonomia_client::Capability;
use libc::{c_char, gid_t, size_t, uid_t};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use std::ffi::c_int;

/// What the kernel tells a server of a process that connects.
fn myself() -> (Uid, Gid, Vec<Gid>) {
    (geteuid(), getegid(), getgroups().unwrap_or_default())
}

/// Has the open files and the working directory made out to user `uid`; gives the capability of the working directory. If the
/// server does not answer within the time-out the rest is left out: the server will refuse `uid` those files.
fn make_out(uid: u32) -> Option<Capability> {
    let directory = cwd::current();
    let is_needed = directory.is_some() || table::ours_between(0, c_int::MAX).next().is_some();
    let client = is_needed.then(connection::client)?.ok()?;
    table::make_out(client, uid).ok()?;
    client.delegate(&directory?, uid).ok()
}

/// What every hook here does; `next` is the effective user that is asked for. Many programs ask for the user that they are
/// already: then nothing needs to be done.
fn change(next: Option<uid_t>, real: impl FnOnce() -> c_int) -> c_int {
    let before = myself();
    let errno = errno_number();
    let directory = next.filter(|uid| *uid != before.0.as_raw()).and_then(make_out);
    set_errno_number(errno);
    let changed = real();
    let now = myself();
    if changed == 0 && now != before {
        connection::user_changed();
        if now.0 != before.0 {
            table::user_changed(now.0.as_raw());
            directory.into_iter().for_each(cwd::user_changed);
        }
    }
    changed
}

/// An id that is to stay as it is.
fn given(uid: uid_t) -> Option<uid_t> {
    (uid != uid_t::MAX).then_some(uid)
}

pub fn setuid(uid: uid_t) -> c_int {
    change(Some(uid), || real::setuid(uid))
}

pub fn setgid(gid: gid_t) -> c_int {
    change(None, || real::setgid(gid))
}

pub fn seteuid(uid: uid_t) -> c_int {
    change(given(uid), || real::seteuid(uid))
}

pub fn setegid(gid: gid_t) -> c_int {
    change(None, || real::setegid(gid))
}

pub fn setreuid(real_uid: uid_t, effective: uid_t) -> c_int {
    change(given(effective), || real::setreuid(real_uid, effective))
}

pub fn setregid(real_gid: gid_t, effective: gid_t) -> c_int {
    change(None, || real::setregid(real_gid, effective))
}

pub fn setresuid(real_uid: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    change(given(effective), || real::setresuid(real_uid, effective, saved))
}

pub fn setresgid(real_gid: gid_t, effective: gid_t, saved: gid_t) -> c_int {
    change(None, || real::setresgid(real_gid, effective, saved))
}

pub fn setgroups(count: size_t, groups: *const gid_t) -> c_int {
    change(None, || real::setgroups(count, groups))
}

pub fn initgroups(user: *const c_char, group: gid_t) -> c_int {
    change(None, || real::initgroups(user, group))
}
