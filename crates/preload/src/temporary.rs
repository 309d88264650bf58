//! Files and directories with fresh names: the `mkstemp` family, whose inner opens no hook sees.

use crate::calls::real;
use crate::foreign::{CPath, malloc_string};
use crate::hook::{fail, failed_with};
use crate::serve::{Routed, route};
use crate::{environment, link, open, stat};
use rustix::io::Errno;
use std::ffi::{CString, c_char, c_int};

/// What the last six characters of a template are drawn from.
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const PLACEHOLDER: &[u8; 6] = b"XXXXXX";
/// Names tried before giving up; two clash by chance once in 10^10.
const ATTEMPTS_MAX: usize = 100;

/// The template's text if the file would be ours.
fn ours<'a>(template: *mut c_char) -> Option<&'a mut [u8]> {
    // SAFETY: `CPath` is transparent, and the caller vouches for a string.
    let path: CPath = unsafe { std::mem::transmute(template.cast_const()) };
    let text = path.bytes()?;
    matches!(route(libc::AT_FDCWD, text), Ok(Routed::Ours { .. }) | Err(_)).then(|| {
        // SAFETY: the caller vouches for a string that may be changed; `text` is not used any more.
        unsafe { std::slice::from_raw_parts_mut(template.cast(), text.len()) }
    })
}

/// Fills in fresh letters until `attempt` gives something other than EEXIST.
fn with_fresh_name(text: &mut [u8], suffix_len: c_int, mut attempt: impl FnMut() -> c_int) -> c_int {
    let end = usize::try_from(suffix_len).ok().and_then(|len| text.len().checked_sub(len));
    let letters = end.and_then(|end| text.get_mut(end.checked_sub(PLACEHOLDER.len())?..end));
    let Some(letters) = letters.filter(|letters| *letters == PLACEHOLDER) else { return fail(Errno::INVAL) };
    for _ in 0..ATTEMPTS_MAX {
        let mut random = [0; PLACEHOLDER.len()];
        if let Err(errno) = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()) {
            return fail(errno);
        }
        for (letter, random) in letters.iter_mut().zip(random) {
            *letter = LETTERS[usize::from(random) % LETTERS.len()];
        }
        let made = attempt();
        if made >= 0 || !failed_with(Errno::EXIST) {
            return made;
        }
    }
    fail(Errno::EXIST)
}

fn make_file(template: *mut c_char, text: &mut [u8], suffix_len: c_int, flags: c_int) -> c_int {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: as in `ours`.
    let path: CPath = unsafe { std::mem::transmute(template.cast_const()) };
    with_fresh_name(text, suffix_len, || open::open(path, flags, 0o600))
}

pub fn mkstemp(template: *mut c_char) -> c_int {
    match ours(template) {
        Some(text) => make_file(template, text, 0, 0),
        None => real::mkstemp(template),
    }
}

pub fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
    match ours(template) {
        Some(text) => make_file(template, text, 0, flags),
        None => real::mkostemp(template, flags),
    }
}

pub fn mkstemps(template: *mut c_char, suffix_len: c_int) -> c_int {
    match ours(template) {
        Some(text) => make_file(template, text, suffix_len, 0),
        None => real::mkstemps(template, suffix_len),
    }
}

pub fn mkostemps(template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int {
    match ours(template) {
        Some(text) => make_file(template, text, suffix_len, flags),
        None => real::mkostemps(template, suffix_len, flags),
    }
}

pub fn mkdtemp(template: *mut c_char) -> *mut c_char {
    let Some(text) = ours(template) else { return real::mkdtemp(template) };
    // SAFETY: as in `ours`.
    let path: CPath = unsafe { std::mem::transmute(template.cast_const()) };
    match with_fresh_name(text, 0, || link::mkdir(path, 0o700)) {
        0 => template,
        _ => std::ptr::null_mut(),
    }
}

pub fn mktemp(template: *mut c_char) -> *mut c_char {
    let Some(text) = ours(template) else { return real::mktemp(template) };
    // SAFETY: as in `ours`.
    let path: CPath = unsafe { std::mem::transmute(template.cast_const()) };
    // A name is fresh when nothing bears it.
    let unused = with_fresh_name(text, 0, || match stat::exists(path) {
        true => fail(Errno::EXIST),
        false => 0,
    });
    if unused != 0 {
        // SAFETY: the template is a string of at least its NUL; an empty one says failure.
        unsafe { template.write(0) };
    }
    template
}

/// Letters of the program's that a name from `tempnam` begins with, at most.
const TEMPNAM_PREFIX_LEN_MAX: usize = 5;

pub fn tempnam(dir: CPath, prefix: CPath) -> *mut c_char {
    // The first directory that is there is taken: the environment's, the program's.
    let wanted = environment::variable("TMPDIR");
    let dirs = wanted.as_ref().map(|dir| dir.as_bytes()).into_iter().chain(dir.bytes());
    for dir in dirs.filter(|dir| !dir.is_empty()) {
        let Ok(name) = CString::new(dir) else { continue };
        if !stat::is_directory(CPath::new(&name)) {
            continue;
        }
        if !matches!(route(libc::AT_FDCWD, dir), Ok(Routed::Ours { .. })) {
            break;
        }
        let prefix = prefix.bytes().filter(|prefix| !prefix.is_empty()).unwrap_or(b"file");
        let prefix = &prefix[..prefix.len().min(TEMPNAM_PREFIX_LEN_MAX)];
        let template = malloc_string(&[dir, b"/", prefix, PLACEHOLDER].concat());
        if template.is_null() {
            return template;
        }
        let made = mktemp(template);
        // SAFETY: a string from `malloc`, known here only; empty if every name was taken.
        return unsafe {
            if made.is_null() || *made == 0 {
                libc::free(template.cast());
                return std::ptr::null_mut();
            }
            made
        };
    }
    real::tempnam(dir, prefix)
}
