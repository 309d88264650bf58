//! Programs that take another user or other groups: the server is to know them as that ([`crate::connection`]).
//!
//! The C library changes all threads of a process, and so does this. What a thread changes for itself alone, by a system
//! call of its own or by `setfsuid`, counts for nothing here.

use crate::calls::real;
use crate::connection;
use libc::{c_char, gid_t, size_t, uid_t};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use std::ffi::c_int;

/// What the kernel tells a server of a process that connects.
fn myself() -> (Uid, Gid, Vec<Gid>) {
    (geteuid(), getegid(), getgroups().unwrap_or_default())
}

/// The shape of every hook here. Many programs become who they are, to which nothing needs to be done.
fn change(real: impl FnOnce() -> c_int) -> c_int {
    let before = myself();
    let changed = real();
    if changed == 0 && myself() != before {
        connection::user_changed();
    }
    changed
}

pub fn setuid(uid: uid_t) -> c_int {
    change(|| real::setuid(uid))
}

pub fn setgid(gid: gid_t) -> c_int {
    change(|| real::setgid(gid))
}

pub fn seteuid(uid: uid_t) -> c_int {
    change(|| real::seteuid(uid))
}

pub fn setegid(gid: gid_t) -> c_int {
    change(|| real::setegid(gid))
}

pub fn setreuid(real_uid: uid_t, effective: uid_t) -> c_int {
    change(|| real::setreuid(real_uid, effective))
}

pub fn setregid(real_gid: gid_t, effective: gid_t) -> c_int {
    change(|| real::setregid(real_gid, effective))
}

pub fn setresuid(real_uid: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    change(|| real::setresuid(real_uid, effective, saved))
}

pub fn setresgid(real_gid: gid_t, effective: gid_t, saved: gid_t) -> c_int {
    change(|| real::setresgid(real_gid, effective, saved))
}

pub fn setgroups(count: size_t, groups: *const gid_t) -> c_int {
    change(|| real::setgroups(count, groups))
}

pub fn initgroups(user: *const c_char, group: gid_t) -> c_int {
    change(|| real::initgroups(user, group))
}
