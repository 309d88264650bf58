//! Extended attributes.
//!
//! Servers keep those of the `user.` namespace. A name of another one is refused here, without asking: programs that
//! list directories ask for several of them with every file.

use crate::{Client, Error};
use isonomia_proto::fs::Capability;
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader, flag};
use isonomia_proto::{PATH_LEN_MAX, XATTR_LIST_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX};
use isonomia_units::Ino;
use rustix::io::Errno;

/// What is served.
const NAMESPACE: &[u8] = b"user.";

/// What setting an extended attribute does when it exists, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrHow {
    /// Fail if it exists: EEXIST.
    pub create: bool,
    /// Fail if it does not exist: ENODATA.
    pub replace: bool,
}

impl XattrHow {
    /// The flags of `setxattr(2)`; `None` for bits that it does not know.
    pub fn from_flags(flags: i32) -> Option<Self> {
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        (flags & !(CREATE | REPLACE) == 0)
            .then_some(Self { create: flags & CREATE != 0, replace: flags & REPLACE != 0 })
    }
}

impl Client {
    /// The value of the extended attribute `name` of `path` below `at`, into `room`; gives its length. With an empty
    /// `room` only that; ERANGE if it is longer than `room`.
    pub fn get_xattr(
        &self,
        at: impl Into<Capability>,
        path: &[u8],
        follow: bool,
        name: &[u8],
        room: &mut [u8],
    ) -> Result<usize, Error> {
        check_name(name)?;
        self.fill_room(Op::GetXattr, XATTR_VALUE_LEN_MAX, (at.into(), path, follow), name, room)
    }

    /// The names of the extended attributes of `path` below `at`, each with a NUL after it, into `room`: as
    /// [`Self::get_xattr`].
    pub fn list_xattrs(
        &self,
        at: impl Into<Capability>,
        path: &[u8],
        follow: bool,
        room: &mut [u8],
    ) -> Result<usize, Error> {
        self.fill_room(Op::ListXattrs, XATTR_LIST_LEN_MAX, (at.into(), path, follow), b"", room)
    }

    /// Sets the extended attribute `name` of `path` below `at`.
    pub fn set_xattr(
        &self,
        at: impl Into<Capability>,
        path: &[u8],
        follow: bool,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<(), Error> {
        check_name(name)?;
        if value.len() > XATTR_VALUE_LEN_MAX {
            return Err(Error::Argument(Errno::TOOBIG));
        }
        let mut request = request(Op::SetXattr, at.into(), follow);
        request.flags |= if how.create { flag::NO_REPLACE } else { 0 };
        request.flags |= if how.replace { flag::MUST_REPLACE } else { 0 };
        request.len = value.len() as u32;
        self.with_name(request, path, name, value, &mut []).map(drop)
    }

    /// Removes the extended attribute `name` of `path` below `at`.
    pub fn remove_xattr(&self, at: impl Into<Capability>, path: &[u8], follow: bool, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        self.with_name(request(Op::RemoveXattr, at.into(), follow), path, name, &[], &mut []).map(drop)
    }

    fn fill_room(
        &self,
        op: Op,
        len_max: usize,
        (at, path, follow): (Capability, &[u8], bool),
        name: &[u8],
        room: &mut [u8],
    ) -> Result<usize, Error> {
        let len = room.len().min(len_max);
        let request = RequestHeader { len: len as u32, ..request(op, at, follow) };
        let header = self.with_name(request, path, name, &[], &mut room[..len])?;
        let payload_len = if len == 0 { 0 } else { header.value };
        if u64::from(header.payload_len) != payload_len {
            return Err(self.malformed(Ino(request.ino)));
        }
        Ok(header.value as usize)
    }

    /// Sends a request with a path, a name, and a value after it.
    fn with_name(
        &self,
        mut request: RequestHeader,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        room: &mut [u8],
    ) -> Result<ReplyHeader, Error> {
        if path.len() >= PATH_LEN_MAX {
            return Err(Error::Argument(Errno::NAMETOOLONG));
        }
        request.path_len = path.len() as u16;
        request.path2_len = name.len() as u16;
        self.transact(request, [path, &[name, value].concat()], room)
    }
}

fn request(op: Op, at: Capability, follow: bool) -> RequestHeader {
    RequestHeader { flags: if follow { 0 } else { flag::NO_FOLLOW }, ..RequestHeader::with_capability(op, &at) }
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.is_empty() || name.len() > XATTR_NAME_LEN_MAX {
        return Err(Error::Argument(Errno::RANGE));
    }
    if name.starts_with(NAMESPACE) { Ok(()) } else { Err(Error::Argument(Errno::OPNOTSUPP)) }
}
