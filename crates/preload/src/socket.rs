//! Sockets of the Unix family with names under the prefix. The names can be there, but no kernel knows who listens.

use crate::calls::real;
use crate::connection::client;
use crate::hook::fail;
use crate::serve::{Routed, refusal, route};
use crate::table::is_ours;
use isonomia_client::Error;
use rustix::io::Errno;
use std::ffi::{c_int, c_uint};

/// Bytes of an address before its path.
const HEAD_LEN: usize = size_of::<libc::sa_family_t>();

/// The path of an address under the prefix.
fn path_of_ours<'a>(address: *const libc::sockaddr, len: c_uint) -> Option<Routed<'a>> {
    let len = (len as usize).min(size_of::<libc::sockaddr_un>());
    if address.is_null() || len <= HEAD_LEN {
        return None;
    }
    // SAFETY: the caller vouches for `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
    if bytes[..HEAD_LEN] != (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes() {
        return None;
    }
    let path = bytes[HEAD_LEN..].split(|b| *b == 0).next().unwrap_or(&[]);
    route(libc::AT_FDCWD, path).ok().filter(|routed| matches!(routed, Routed::Ours { .. }))
}

/// What connecting to a name says when nobody listens.
fn unanswered(routed: Routed) -> Error {
    let Routed::Ours { at, path } = routed else { return refusal(Errno::NOENT) };
    let looked = client().and_then(|client| client.get_attr(at, &path, true));
    looked.err().unwrap_or(refusal(Errno::CONNREFUSED))
}

pub fn bind(fd: c_int, address: *const libc::sockaddr, len: c_uint) -> c_int {
    if is_ours(fd) {
        return fail(Errno::NOTSOCK);
    }
    if path_of_ours(address, len).is_some() { fail(Errno::OPNOTSUPP) } else { real::bind(fd, address, len) }
}

pub fn connect(fd: c_int, address: *const libc::sockaddr, len: c_uint) -> c_int {
    if is_ours(fd) {
        return fail(Errno::NOTSOCK);
    }
    match path_of_ours(address, len) {
        Some(routed) => fail(unanswered(routed).errno()),
        None => real::connect(fd, address, len),
    }
}
