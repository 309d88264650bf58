//! Inodes in requests and replies: what a reply tells of one, and what becomes of its attributes and its size.

use super::reply::Reply;
use crate::connection::Connection;
use crate::core::Core;
use crate::refusal::Refusal;
use isonomia_proto::fs::{Attr, Capability};
use isonomia_proto::request::{Op, RequestHeader, flag, valid};
use isonomia_store::{Caller, SetAttr, Store, StoreError, TimeChange};
use isonomia_units::Ino;
use zerocopy::IntoBytes;

/// Puts an inode's attributes, and where it is asked for the proof of having come there, into the reply.
pub fn put_node(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    op: Op,
    attr: &Attr,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    reply.put(attr.as_bytes())?;
    let is_asked_for = !matches!(op, Op::GetAttr | Op::SetAttr) || header.flags & flag::PATH_ONLY != 0;
    let capability =
        if is_asked_for { start_at(&core.store, connection, Ino(attr.ino)) } else { Capability::default() };
    Ok(reply.put(capability.as_bytes())?)
}

/// The file that a path leads to, if any file is mapped.
pub fn mapped(core: &Core, caller: &Caller<'_>, at: Ino, path: &[u8], follow: bool) -> Option<Ino> {
    let found = core.segments.are_there_any().then(|| core.store.get_attr(caller, at, path, follow).ok());
    found.flatten().map(|attr| Ino(attr.ino))
}

/// Does what may make a file, most likely `expected`, as long as `size`, and says which one by `ino`.
pub fn resize<T>(
    core: &Core,
    expected: Option<Ino>,
    size: u64,
    resize: impl FnOnce() -> Result<T, StoreError>,
    ino: impl Fn(&T) -> Ino,
) -> Result<T, StoreError> {
    let done = match expected {
        Some(expected) => core.segments.resize(&core.store, expected, |_| size, resize)?,
        None => resize()?,
    };
    let ino = ino(&done);
    if expected != Some(ino) {
        // It was renamed, or mapped, meanwhile.
        core.segments.resize(&core.store, ino, |_| size, || Ok(()))?;
    }
    Ok(done)
}

/// What a request changes of an inode's attributes.
pub fn change(header: &RequestHeader) -> SetAttr {
    let has = |bit| header.valid & bit != 0;
    let time = |at, now, value| if has(now) { Some(TimeChange::Now) } else { has(at).then_some(TimeChange::At(value)) };
    SetAttr {
        mode: has(valid::MODE).then_some(header.mode),
        uid: has(valid::UID).then_some(header.uid),
        gid: has(valid::GID).then_some(header.gid),
        size: has(valid::SIZE).then_some(header.offset),
        atime: time(valid::ATIME, valid::ATIME_NOW, header.atime),
        mtime: time(valid::MTIME, valid::MTIME_NOW, header.mtime),
    }
}

/// Where the session may begin from now on, having come to `ino`.
fn start_at(store: &Store, connection: &Connection, ino: Ino) -> Capability {
    let proof =
        if connection.is_trusted { None } else { store.namespace().prove(ino, connection.credentials.uid).ok() };
    // One that is gone already needs no proof.
    proof.unwrap_or(Capability::unproven(ino))
}
