//! Ours or theirs: the one decision that every hook makes, by path or by descriptor.
//!
//! A path may change sides on its way: an absolute symbolic link under the prefix leads out of it (the server says
//! where to), and from there perhaps in again; a relative path climbs out of a directory of ours. [`by_path`]
//! follows until the path has arrived, and then does the operation on the side where it is.

use crate::connection::client;
use crate::cwd;
use crate::description::FileRef;
use crate::environment;
use crate::foreign::CPath;
use crate::hook::{Failure, fail, returned};
use crate::route::{Location, Prefix, climbs_out, split_last, trim_start};
use crate::{placeholder, table};
use isonomia_client::{Capability, Client, Error};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::{CString, c_int};

/// Absolute symbolic links followed in one look-up, as in the kernel.
const LINKS_MAX: usize = 40;
/// The longest path, with its NUL.
const PATH_LEN_MAX: usize = libc::PATH_MAX as usize;

/// Where a path of a program leads.
pub enum Routed<'a> {
    /// To another file system; the kernel understands it as it is.
    Theirs,
    /// To another file system, by this absolute path instead.
    TheirsBy(Vec<u8>),
    /// Ours: `path` below the directory `at`, empty for `at` itself.
    Ours { at: Capability, path: Cow<'a, [u8]> },
}

/// Where the operation with two paths happens.
type Pair<'a> = ((Capability, Cow<'a, [u8]>), (Capability, Cow<'a, [u8]>));

/// A failure that no server was asked about.
pub const fn refusal(errno: Errno) -> Error {
    Error::Argument(errno)
}

/// Where `path`, relative to `dir` unless absolute, leads.
#[inline]
pub fn route(dir: c_int, path: &[u8]) -> Result<Routed<'_>, Error> {
    let Some(prefix) = environment::prefix() else { return Ok(Routed::Theirs) };
    if path.len() >= PATH_LEN_MAX {
        // The kernel looks at no such path, wherever it leads.
        return Err(refusal(Errno::NAMETOOLONG));
    }
    if path.first() == Some(&b'/') {
        return Ok(match prefix.locate(path) {
            Location::Outside => Routed::Theirs,
            Location::Inside(rest) => Routed::Ours { at: Capability::ROOT, path: Cow::Borrowed(rest) },
            Location::Left(other) => Routed::TheirsBy(other),
        });
    }
    if path.is_empty() {
        return Ok(Routed::Theirs);
    }
    route_relative(prefix, dir, path)
}

fn route_relative<'a>(prefix: &Prefix, dir: c_int, path: &'a [u8]) -> Result<Routed<'a>, Error> {
    let at = if dir == libc::AT_FDCWD { cwd::current() } else { directory_of(dir)? };
    let Some(at) = at else {
        // From a directory of the kernel's: only a path that names the prefix can lead there.
        return if prefix.may_enter(path) {
            route_from_kernel_directory(prefix, dir, path)
        } else {
            Ok(Routed::Theirs)
        };
    };
    if climbs_out(path) {
        let base = [prefix.path(), &client()?.path_of(at)?].concat();
        return Ok(owned(route_absolute(prefix, &join(&base, path)), Vec::new()));
    }
    Ok(Routed::Ours { at, path: Cow::Borrowed(trim_start(path)) })
}

/// The directory behind a descriptor of ours.
fn directory_of(dir: c_int) -> Result<Option<Capability>, Error> {
    let Some(file_ref) = table::find(dir) else { return Ok(None) };
    if file_ref.is_directory() { file_ref.capability().map(Some) } else { Err(refusal(Errno::NOTDIR)) }
}

#[cold]
fn route_from_kernel_directory<'a>(prefix: &Prefix, dir: c_int, path: &'a [u8]) -> Result<Routed<'a>, Error> {
    // Not on the stack, which may be a small one.
    let mut buffer = Vec::with_capacity(PATH_LEN_MAX);
    let link = placeholder::proc_path(dir);
    let link = if dir == libc::AT_FDCWD { c"/proc/self/cwd" } else { link.as_c_str() };
    // If the kernel has no path for the directory, a path that begins there cannot lead under the prefix.
    let Ok((base, _)) = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, buffer.spare_capacity_mut()) else {
        return Ok(Routed::Theirs);
    };
    Ok(match route_absolute(prefix, &join(base, path)) {
        Routed::Theirs => Routed::Theirs,
        elsewhere => elsewhere,
    })
}

fn route_absolute(prefix: &Prefix, path: &[u8]) -> Routed<'static> {
    match prefix.locate(path) {
        Location::Outside => Routed::Theirs,
        Location::Inside(rest) => Routed::Ours { at: Capability::ROOT, path: Cow::Owned(rest.to_vec()) },
        Location::Left(other) => Routed::TheirsBy(other),
    }
}

/// `routed`, which says where `path` leads; if that is elsewhere, the kernel is to be given `path` and not what the program
/// gave, since `path` was put together here.
fn owned(routed: Routed<'static>, path: Vec<u8>) -> Routed<'static> {
    match routed {
        Routed::Theirs => Routed::TheirsBy(path),
        other => other,
    }
}

fn join(base: &[u8], path: &[u8]) -> Vec<u8> {
    [base, b"/", path].concat()
}

/// Where a link leads that the server could not follow, as an absolute path: one that climbs does so from the prefix.
pub fn absolute_target(target: Box<[u8]>) -> Vec<u8> {
    match environment::prefix() {
        Some(prefix) if target.first() != Some(&b'/') => join(prefix.path(), &target),
        _ => target.into_vec(),
    }
}

/// Does an operation on `path` where it leads: `ours` by the client, `real` (with the directory and the path that
/// the kernel is to see) elsewhere.
pub fn by_path<T: Failure>(
    dir: c_int,
    path: CPath,
    mut ours: impl FnMut(&'static Client, Capability, &[u8]) -> Result<T, Error>,
    real: impl FnOnce(c_int, CPath) -> T,
) -> T {
    let Some(text) = path.bytes() else { return real(dir, path) };
    let mut outside: Option<Vec<u8>> = None;
    for _ in 0..LINKS_MAX {
        let from = outside.take();
        let (here, at_dir) = match &from {
            Some(target) => (&target[..], libc::AT_FDCWD),
            None => (text, dir),
        };
        let served = match route(at_dir, here) {
            Ok(Routed::Theirs) if from.is_none() => return real(dir, path),
            Ok(Routed::Theirs) => return real_by(here, real),
            Ok(Routed::TheirsBy(other)) => return real_by(&other, real),
            Ok(Routed::Ours { at, path }) => client().and_then(|client| ours(client, at, &path)),
            Err(error) => Err(error),
        };
        match served {
            Err(Error::Outside(target)) => outside = Some(absolute_target(target)),
            served => return returned(served),
        }
    }
    fail(Errno::LOOP)
}

#[cold]
fn real_by<T: Failure>(path: &[u8], real: impl FnOnce(c_int, CPath) -> T) -> T {
    match CString::new(path) {
        Ok(path) => real(libc::AT_FDCWD, CPath::new(&path)),
        Err(_) => fail(Errno::INVAL),
    }
}

/// Does an operation on descriptor `fd` where it belongs.
#[inline]
pub fn by_fd<T: Failure>(
    fd: c_int,
    ours: impl FnOnce(&'static Client, &FileRef) -> Result<T, Error>,
    real: impl FnOnce() -> T,
) -> T {
    if !table::is_ours(fd) {
        return real();
    }
    match table::find(fd) {
        Some(file_ref) => returned(client().and_then(|client| ours(client, &file_ref))),
        None => real(),
    }
}

/// As [`by_path`], but an empty path with `AT_EMPTY_PATH` among `flags` means the descriptor `dir` itself.
pub fn by_path_or_fd<T: Failure>(
    dir: c_int,
    path: CPath,
    flags: c_int,
    mut ours: impl FnMut(&'static Client, Capability, &[u8]) -> Result<T, Error>,
    real: impl FnOnce(c_int, CPath) -> T,
) -> T {
    let is_empty = flags & libc::AT_EMPTY_PATH != 0 && path.bytes().is_none_or(<[u8]>::is_empty);
    match if is_empty { empty_path(dir) } else { Ok(None) } {
        Ok(Some(at)) => returned(client().and_then(|client| ours(client, at, b""))),
        Ok(None) => by_path(dir, path, ours, real),
        Err(error) => returned(Err(error)),
    }
}

fn empty_path(dir: c_int) -> Result<Option<Capability>, Error> {
    match dir {
        libc::AT_FDCWD => Ok(cwd::current()),
        _ => table::find(dir).map(|file_ref| file_ref.capability()).transpose(),
    }
}

/// Does an operation with two paths: by the client when both are ours, EXDEV when one is.
pub fn by_paths<T: Failure>(
    (dir1, path1): (c_int, CPath),
    (dir2, path2): (c_int, CPath),
    mut ours: impl FnMut(&'static Client, (Capability, &[u8]), (Capability, &[u8])) -> Result<T, Error>,
    real: impl FnOnce((c_int, CPath), (c_int, CPath)) -> T,
) -> T {
    let (Some(text1), Some(text2)) = (path1.bytes(), path2.bytes()) else {
        return real((dir1, path1), (dir2, path2));
    };
    let routed = (route(dir1, text1), route(dir2, text2));
    let pair: Pair = match routed {
        (Ok(Routed::Theirs), Ok(Routed::Theirs)) => return real((dir1, path1), (dir2, path2)),
        (Ok(Routed::Ours { at: at1, path: p1 }), Ok(Routed::Ours { at: at2, path: p2 })) => ((at1, p1), (at2, p2)),
        (Err(error), _) | (_, Err(error)) => return returned(Err(error)),
        (Ok(Routed::Ours { .. }), _) | (_, Ok(Routed::Ours { .. })) => return fail(Errno::XDEV),
        (first, second) => {
            let (first, second) = (rewritten(first), rewritten(second));
            let seen = |text: &Option<CString>, dir, path| match text {
                Some(text) => (libc::AT_FDCWD, CPath::new(text)),
                None => (dir, path),
            };
            return real(seen(&first, dir1, path1), seen(&second, dir2, path2));
        }
    };
    let served = client().and_then(|client| {
        let ((at1, p1), (at2, p2)) = &pair;
        match ours(client, (*at1, p1), (*at2, p2)) {
            // The error does not say which of the two paths led outside: find both directories first.
            Err(Error::Outside(_)) => {
                let (first, name1) = resolve_directory(client, *at1, p1)?;
                let (second, name2) = resolve_directory(client, *at2, p2)?;
                ours(client, (first, &name1), (second, &name2))
            }
            served => served,
        }
    });
    match served {
        Err(Error::Outside(_)) => fail(Errno::XDEV),
        served => returned(served),
    }
}

/// The text that the kernel is to see instead. A path of the program's cannot contain a NUL, so neither does this one.
fn rewritten(routed: Result<Routed, Error>) -> Option<CString> {
    match routed {
        Ok(Routed::TheirsBy(other)) => CString::new(other).ok(),
        _ => None,
    }
}

/// The directory of ours that `path` below `at` lies in, and its name there; EXDEV if it lies elsewhere.
fn resolve_directory(client: &Client, at: Capability, path: &[u8]) -> Result<(Capability, Vec<u8>), Error> {
    let (directory, name) = split_last(path);
    let (mut at, mut directory) = (at, directory.to_vec());
    for _ in 0..LINKS_MAX {
        match client.look_up(at, &directory, true) {
            Ok(node) => return Ok((node.capability, name.to_vec())),
            Err(Error::Outside(target)) => match route(libc::AT_FDCWD, &absolute_target(target))? {
                Routed::Ours { at: next, path } => {
                    directory = path.into_owned();
                    at = next;
                }
                _ => return Err(refusal(Errno::XDEV)),
            },
            Err(error) => return Err(error),
        }
    }
    Err(refusal(Errno::LOOP))
}
