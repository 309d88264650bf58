//! Extended attributes, which nix does not know.

use crate::XattrHow;
use nix::errno::Errno;
use std::ffi::CString;

/// Room for values and for lists of names: more than the operations have.
const ROOM: usize = 1 << 16;

fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::EINVAL)
}

/// What `call` wrote into the room that it was given.
fn in_room(call: impl FnOnce(*mut u8, usize) -> libc::ssize_t) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; ROOM];
    let len = Errno::result(call(room.as_mut_ptr(), ROOM))?;
    room.truncate(len as usize);
    Ok(room)
}

pub(super) fn get(path: &str, name: &str) -> Result<Vec<u8>, Errno> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    // SAFETY: both strings end with a NUL, and the room is as long as said.
    in_room(|room, len| unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), room.cast(), len) })
}

/// Names, each of which has a NUL after it.
pub(super) fn list(path: &str) -> Result<Vec<u8>, Errno> {
    let path = c_string(path)?;
    // SAFETY: the path ends with a NUL, and the room is as long as said.
    in_room(|room, len| unsafe { libc::listxattr(path.as_ptr(), room.cast(), len) })
}

pub(super) fn set(path: &str, name: &str, value: &[u8], how: XattrHow) -> Result<(), Errno> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    let flags = match how {
        XattrHow::Either => 0,
        XattrHow::Create => libc::XATTR_CREATE,
        XattrHow::Replace => libc::XATTR_REPLACE,
    };
    // SAFETY: both strings end with a NUL, and the value is as long as said.
    let result = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    Errno::result(result).map(drop)
}

pub(super) fn remove(path: &str, name: &str) -> Result<(), Errno> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    // SAFETY: both strings end with a NUL.
    Errno::result(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}
