//! `glob`: the C library's own, made to list and look through the hooks.

use crate::calls::{entry, real};
use crate::foreign::CPath;
use crate::serve::{Routed, route};
use std::ffi::{c_char, c_int, c_void};

/// Says that the functions of [`Glob`] are to be used.
const ALTERNATE_FUNCTIONS: c_int = 1 << 9;

/// `glob_t`, part of the C library's binary interface.
#[repr(C)]
pub struct Glob {
    path_count: usize,
    paths: *mut *mut c_char,
    reserved: usize,
    flags: c_int,
    closedir: *const c_void,
    readdir: *const c_void,
    opendir: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

fn expand(pattern: CPath, flags: c_int, found: *mut Glob, real: impl FnOnce(c_int) -> c_int) -> c_int {
    let ours = pattern.bytes().is_some_and(|text| matches!(route(libc::AT_FDCWD, text), Ok(Routed::Ours { .. })));
    if !ours || flags & ALTERNATE_FUNCTIONS != 0 || found.is_null() {
        return real(flags);
    }
    // SAFETY: the caller vouches for the structure, whose functions are its to set.
    let found = unsafe { &mut *found };
    found.closedir = entry::closedir as *const c_void;
    found.readdir = entry::readdir as *const c_void;
    found.opendir = entry::opendir as *const c_void;
    found.lstat = entry::lstat as *const c_void;
    found.stat = entry::stat as *const c_void;
    real(flags | ALTERNATE_FUNCTIONS)
}

pub fn glob(pattern: CPath, flags: c_int, on_error: *const c_void, found: *mut Glob) -> c_int {
    expand(pattern, flags, found, |flags| real::glob(pattern, flags, on_error, found))
}
