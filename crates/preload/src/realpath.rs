//! `realpath`: the C library walks the links itself, where no hook sees it.

use crate::calls::real;
use crate::connection::client;
use crate::foreign::{CPath, malloc_string};
use crate::hook::{fail, returned};
use crate::route::{climbs_out, split_last, trim_start};
use crate::serve::{Routed, absolute_target, refusal, route};
use crate::{cwd, environment};
use isonomia_client::{Capability, Client, Error, FileKind};
use rustix::io::Errno;
use std::ffi::{CString, c_char};

/// Links followed in one look-up, as in the kernel.
const LINKS_MAX: usize = 40;

/// Where a path of ours leads in the end.
enum Resolved {
    /// To this absolute path under the prefix.
    Ours(Vec<u8>),
    /// To this path elsewhere, which is not resolved yet.
    Theirs(Vec<u8>),
}

fn resolve(client: &Client, mut at: Capability, path: &[u8]) -> Result<Resolved, Error> {
    let prefix = environment::prefix().ok_or(refusal(Errno::NOENT))?.path();
    let mut path = path.to_vec();
    for _ in 0..LINKS_MAX {
        let step = match client.look_up(at, &path, false) {
            Ok(node) if node.attr.kind() == FileKind::Directory => {
                return cwd::absolute(client, prefix, node.capability).map(Resolved::Ours);
            }
            Ok(node) if node.attr.kind() == FileKind::Symlink => {
                let (directory, _) = split_last(&path);
                let text = client.readlink(at, &path)?;
                let joined = [trim_start(directory), b"/", &text].concat();
                match text.first() {
                    Some(b'/') => Err(text),
                    _ if climbs_out(&joined) => Err([prefix, &client.path_of(at)?, b"/", &joined].concat()),
                    _ => Ok(joined),
                }
            }
            Ok(_) => {
                let (directory, name) = split_last(&path);
                let directory = client.look_up(at, directory, true)?.capability;
                let directory = cwd::absolute(client, prefix, directory)?;
                return Ok(Resolved::Ours([&directory, &b"/"[..], name].concat()));
            }
            Err(Error::Outside(target)) => Err(absolute_target(target)),
            Err(error) => return Err(error),
        };
        path = match step {
            Ok(below) if below.first() == Some(&b'/') => below[1..].to_vec(),
            Ok(below) => below,
            Err(absolute) => match route(libc::AT_FDCWD, &absolute)? {
                Routed::Ours { at: next, path } => {
                    at = next;
                    path.into_owned()
                }
                Routed::TheirsBy(other) => return Ok(Resolved::Theirs(other)),
                Routed::Theirs => return Ok(Resolved::Theirs(absolute)),
            },
        };
    }
    Err(refusal(Errno::LOOP))
}

/// The resolved path of a file of ours; `None` when `path` is not.
fn serve(path: CPath) -> Option<Result<Resolved, Error>> {
    match route(libc::AT_FDCWD, path.bytes()?) {
        Ok(Routed::Ours { at, path }) => Some(client().and_then(|client| resolve(client, at, &path))),
        Ok(Routed::TheirsBy(other)) => Some(Ok(Resolved::Theirs(other))),
        Ok(Routed::Theirs) => None,
        Err(error) => Some(Err(error)),
    }
}

fn store(resolved: &[u8], buffer: *mut c_char) -> *mut c_char {
    if resolved.len() >= libc::PATH_MAX as usize {
        return fail(Errno::NAMETOOLONG);
    }
    if buffer.is_null() {
        return malloc_string(resolved);
    }
    // SAFETY: the caller vouches for `PATH_MAX` bytes, and the path with its NUL is no longer.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(resolved.as_ptr(), resolved.len());
        buffer.add(resolved.len()).write(0);
    }
    buffer
}

fn real_path(path: CPath, buffer: *mut c_char, real: impl FnOnce(CPath) -> *mut c_char) -> *mut c_char {
    match serve(path) {
        None => real(path),
        Some(Ok(Resolved::Ours(resolved))) => store(&resolved, buffer),
        Some(Ok(Resolved::Theirs(other))) => match CString::new(other) {
            Ok(other) => real(CPath::new(&other)),
            Err(_) => fail(Errno::INVAL),
        },
        Some(Err(error)) => returned(Err(error)),
    }
}

pub fn realpath(path: CPath, buffer: *mut c_char) -> *mut c_char {
    real_path(path, buffer, |path| real::realpath(path, buffer))
}

pub fn __realpath_chk(path: CPath, buffer: *mut c_char, room: usize) -> *mut c_char {
    real_path(path, buffer, |path| real::__realpath_chk(path, buffer, room))
}

pub fn canonicalize_file_name(path: CPath) -> *mut c_char {
    real_path(path, std::ptr::null_mut(), real::canonicalize_file_name)
}
