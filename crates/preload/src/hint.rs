//! What other libraries know of files that this process is about to create.
//!
//! A library such as `libisonomia_hints.so` says by [`isonomia_hint`] who is going to use a file and how much of it. Opens
//! that may create that file carry the hint to the server; those of other files carry what the environment says of all
//! ([`isonomia_client::expected`]). It is never wrong to leave one out.

use crate::connection::client;
use crate::environment;
use crate::foreign::CPath;
use crate::hook::{errno_number, set_errno_number};
use crate::route::normalise;
use crate::serve::{Routed, route};
use crate::spin::Spin;
use isonomia_client::{Capability, Client, Error, OpenHint, expected};
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Files with a hint at a time; another one replaces the oldest.
const HINTS_MAX: usize = 64;

/// The hints by path from the root, oldest first.
static HINTS: Spin<Vec<(Vec<u8>, OpenHint)>> = Spin::new(Vec::new());
/// Of files without one: what the environment says, once it was read.
static OF_ALL: AtomicPtr<OpenHint> = AtomicPtr::new(std::ptr::null_mut());
/// How many there are: opens look no further if there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A hint for the files that this process creates under `path`: it is number `rank` of `ranks` processes, which use one
/// file together if `shared` is not 0, and the file is going to have `expected_bytes` (0: not known). With 0 `ranks` what
/// was said of `path` is forgotten. `errno` stays as it is.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub extern "C" fn isonomia_hint(path: CPath, rank: u32, ranks: u32, shared: u32, expected_bytes: u64) {
    let errno = errno_number();
    let known = COUNT.load(Ordering::Relaxed) > 0;
    if (ranks > 0 || known)
        && let Some(path) = path.bytes()
        && let Ok(Routed::Ours { at, path }) = route(libc::AT_FDCWD, path)
        && let Ok(path) = client().and_then(|client| from_root(client, at, &path))
    {
        let hint = OpenHint { rank, ranks, shared: shared != 0, expected_bytes };
        change(|hints| set(hints, path, (ranks > 0).then_some(hint)));
    }
    set_errno_number(errno);
}

/// Whether files of this path are served; 1 or 0. `errno` stays as it is.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub extern "C" fn isonomia_serves(path: CPath) -> c_int {
    let errno = errno_number();
    let is_ours = path.bytes().is_some_and(|path| matches!(route(libc::AT_FDCWD, path), Ok(Routed::Ours { .. })));
    set_errno_number(errno);
    is_ours.into()
}

/// What is known of `path` below `at`.
pub fn find(client: &Client, at: Capability, path: &[u8]) -> OpenHint {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return of_all();
    }
    let Ok(path) = from_root(client, at, path) else { return of_all() };
    let hints = HINTS.lock();
    let found = hints.iter().find(|(of, _)| *of == path).map(|(_, hint)| *hint);
    drop(hints);
    found.unwrap_or_else(of_all)
}

/// What the environment says of all files, read when it is first asked for.
fn of_all() -> OpenHint {
    let known = OF_ALL.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from `Box::into_raw` and is never freed.
    if let Some(known) = unsafe { known.as_ref() } {
        return *known;
    }
    let fresh = expected::from_environment(environment::variable, environment::complain);
    let kept = Box::into_raw(Box::new(fresh));
    if OF_ALL.compare_exchange(std::ptr::null_mut(), kept, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: it was just made from a box and nobody else has seen it.
        drop(unsafe { Box::from_raw(kept) });
    }
    fresh
}

/// `path` below `at` as a path from the root.
fn from_root(client: &Client, at: Capability, path: &[u8]) -> Result<Vec<u8>, Error> {
    let base = if at == Capability::ROOT { Vec::new() } else { client.path_of(at)? };
    Ok(normalise(&[&base, &b"/"[..], path].concat()))
}

fn change(how: impl FnOnce(&mut Vec<(Vec<u8>, OpenHint)>)) {
    let mut hints = HINTS.lock();
    how(&mut hints);
    COUNT.store(hints.len(), Ordering::Relaxed);
}

/// Replaces by `hint` what is known of `path`.
fn set(hints: &mut Vec<(Vec<u8>, OpenHint)>, path: Vec<u8>, hint: Option<OpenHint>) {
    hints.retain(|(of, _)| *of != path);
    if let Some(hint) = hint {
        if hints.len() == HINTS_MAX {
            hints.remove(0);
        }
        hints.push((path, hint));
    }
}

pub fn lock_before_fork() {
    HINTS.acquire();
}

pub fn unlock_after_fork() {
    HINTS.release();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_word_counts_and_the_oldest_path_makes_room() {
        let hint = |rank| OpenHint { rank, ranks: 100, ..OpenHint::default() };
        let path = |number: u32| format!("/{number}").into_bytes();
        let mut hints = Vec::new();
        for number in 0..HINTS_MAX as u32 {
            set(&mut hints, path(number), Some(hint(number)));
        }
        set(&mut hints, path(0), Some(hint(77)));
        assert_eq!((hints.len(), &hints[HINTS_MAX - 1]), (HINTS_MAX, &(path(0), hint(77))));
        set(&mut hints, b"/new".to_vec(), Some(hint(1)));
        assert_eq!((hints.len(), &hints[0].0), (HINTS_MAX, &path(2)), "the oldest is gone");
        set(&mut hints, path(0), None);
        set(&mut hints, b"/never".to_vec(), None);
        assert_eq!(hints.len(), HINTS_MAX - 1);
        assert!(!hints.iter().any(|(of, _)| *of == path(0)));
    }
}
