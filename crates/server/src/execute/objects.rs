//! Spread files: what a client is told of their objects by the server of their volume, and requests for the objects, which
//! any server has.
//!
//! Who asks for an object shows a capability that another server made out, and nobody is asked about it. What is known of the
//! file, its name, its size, its layout, is that other server's.

use super::reply::{Reply, finish};
use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use crate::pages::PagesOf;
use crate::proof;
use crate::refusal::Refusal;
use isonomia_memory::{Sink, Source};
use isonomia_proto::fs::{Capability, FileKind, access};
use isonomia_proto::object::{FileEnd, FileObjects, find, told};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_proto::striping::{Striping, XATTR};
use isonomia_store::{Cached, Caller, HostPages, MAY_WRITE, ObjectPlace, Reserved, Spread, StoreError, WriteMode};
use isonomia_units::{Bytes, Ino};
use std::borrow::Cow;
use zerocopy::IntoBytes;

/// Puts where a spread file ends into the reply to the holder of a request's capability, for whom room was made there;
/// [`StoreError::CutMeanwhile`] if that may have been cut off by now.
pub(super) fn put_reserved(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    reserved: &Reserved,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let found = core.store.namespace().spread_of(Ino(header.ino))?;
    if found.shortened > reserved.cuts {
        return Err(StoreError::CutMeanwhile.into());
    }
    put_end(core, connection, &header.capability(), &found, reply)
}

/// Puts where a spread file ends into the reply to the holder of `capability`, who has it open.
fn put_end(
    core: &Core,
    connection: &Connection,
    capability: &Capability,
    found: &Spread,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    note_writer(core, connection, capability)?;
    Ok(reply.put(end_of(found).as_bytes())?)
}

fn end_of(found: &Spread) -> FileEnd {
    FileEnd { size_bytes: found.size_bytes, cuts: found.cuts }
}

/// Whoever may write a spread file may leave something behind its end.
fn note_writer(core: &Core, connection: &Connection, capability: &Capability) -> Result<(), Refusal> {
    if capability.access & access::WRITE == 0 { Ok(()) } else { core.add_writer(connection, Ino(capability.ino)) }
}

/// Puts what the holder of `capability`, who has opened a spread file, needs for its objects into the reply.
fn put(
    core: &Core,
    connection: &Connection,
    capability: &Capability,
    found: &Spread,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let cluster = core.cluster.get().ok_or(StoreError::NotSupported)?;
    note_writer(core, connection, capability)?;
    let objects = ((found.objects.number, found.objects.generation), &found.objects.layout.targets[..]);
    let (first, codes) = cluster.sign_objects(objects, capability.access, capability.holder)?;
    let (end, count) = (end_of(found), codes.len() as u32);
    let targets_per_server = cluster.targets_per_server();
    reply.put(FileObjects { capability: first, end, targets_per_server, count }.as_bytes())?;
    Ok(reply.put(codes.as_bytes())?)
}

/// The same of what was just opened; without an answer nobody has it open.
pub(super) fn put_opened(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    capability: &Capability,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let outcome = core.store.namespace().spread_of(Ino(capability.ino)).map_err(Refusal::from);
    let outcome = outcome.and_then(|found| put(core, connection, capability, &found, reply));
    if outcome.is_err() {
        core.release(connection, Ino(capability.ino), header.owner)?;
    }
    outcome
}

/// The same on the strength of a request's capability.
pub(super) fn find_objects(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    proof::check_opened(core, connection, header)?;
    let found = core.store.namespace().spread_of(Ino(header.ino))?;
    reply.value = found.shortened;
    if header.valid & find::END_ONLY != 0 {
        return put_end(core, connection, &header.capability(), &found, reply);
    }
    put(core, connection, &header.capability(), &found, reply)
}

/// Takes a writer's word on the end of a spread file, and that there may be something behind it.
pub(super) fn tell_size(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    proof::check_access(core, connection, header, access::WRITE)?;
    let (ino, cuts) = (Ino(header.ino), header.ino2);
    let taken = match core.store.tell_size(ino, header.offset, cuts, header.len.into(), clock::wall()) {
        Err(StoreError::CutMeanwhile) => false,
        taken => taken.map(|_| true)?,
    };
    let found = core.store.namespace().spread_of(ino)?;
    reply.value = match taken {
        true => told::TAKEN,
        false if cuts < found.cuts => told::CUT,
        false => told::AGAIN,
    };
    if reply.value == told::CUT {
        reply.cuts = match core.store.namespace().was_shortened_after(ino, cuts)? {
            Some(true) => told::SHORTENED,
            Some(false) => told::KEPT,
            None => told::UNKNOWN,
        };
    }
    if header.valid & told::BEHIND != 0 {
        core.lost_writer(ino);
    } else if reply.value == told::AGAIN
        && let Some(cluster) = core.cluster.get()
    {
        cluster.has_loose();
    }
    put_end(core, connection, &header.capability(), &found, reply)
}

/// Notes that a session has adopted an open file that it may write, if that is a spread one.
pub(super) fn adopted(core: &Core, connection: &Connection, header: &RequestHeader) -> Result<(), Refusal> {
    if header.access & access::WRITE == 0 || core.cluster.get().is_none() {
        return Ok(());
    }
    match core.add_writer(connection, Ino(header.ino)) {
        Err(Refusal::Store(StoreError::Invalid)) => Ok(()),
        Err(refusal) => {
            core.release(connection, Ino(header.ino), header.owner)?;
            Err(refusal)
        }
        added => added,
    }
}

/// Sets the attribute that says how files are striped, if it is this one and of a file; else gives the value that is to be set.
/// A file that has bytes keeps its layout, so that programs can copy attributes after bytes, also those of a file of another
/// cluster, whose servers are not there.
pub(super) fn set_layout<'v>(
    core: &Core,
    caller: &Caller<'_>,
    (at, path, follow): (Ino, &[u8], bool),
    name: &[u8],
    value: &'v [u8],
) -> Result<Option<Cow<'v, [u8]>>, Refusal> {
    let Some(cluster) = core.cluster.get().filter(|_| name == XATTR) else { return Ok(Some(value.into())) };
    let attr = core.store.get_attr(caller, at, path, follow)?;
    let is_layout = || std::str::from_utf8(value).is_ok_and(|text| text.parse::<Striping>().is_ok());
    if attr.kind() == FileKind::Regular && attr.size_bytes > 0 && is_layout() {
        core.store.namespace().access(caller, at, path, MAY_WRITE)?;
        return Ok(None);
    }
    let striping = cluster.checked_striping(value)?;
    if attr.kind() == FileKind::Directory {
        return Ok(Some(striping.to_string().into_bytes().into()));
    }
    let layout = cluster.layout(&striping, (Ino(attr.ino), None));
    core.store.namespace().set_layout(caller, at, path, follow, layout)?;
    Ok(None)
}

/// The value of the attribute that says how a file is striped, if it is this one and the file is a spread one.
pub(super) fn layout_of(
    core: &Core,
    caller: &Caller<'_>,
    (at, path, follow): (Ino, &[u8], bool),
    name: &[u8],
) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(cluster) = core.cluster.get().filter(|_| name == XATTR) else { return Ok(None) };
    let attr = core.store.get_attr(caller, at, path, follow)?;
    Ok(match core.store.namespace().spread_of(Ino(attr.ino)) {
        Ok(found) => Some(cluster.described(&found.objects.layout).to_string().into_bytes()),
        Err(_) => None,
    })
}

/// Whether this attribute, which is to be removed, is the layout of a spread file, which keeps it: programs that copy attributes take away
/// what the original has not.
pub(super) fn keeps_layout(
    core: &Core,
    caller: &Caller<'_>,
    (at, path, follow): (Ino, &[u8], bool),
    name: &[u8],
) -> Result<bool, Refusal> {
    let keeps = layout_of(core, caller, (at, path, follow), name)?.is_some();
    if keeps {
        core.store.namespace().access(caller, at, path, MAY_WRITE)?;
    }
    Ok(keeps)
}

/// The names of attributes, with that of the one that a spread file has.
pub(super) fn listed_xattrs(
    core: &Core,
    caller: &Caller<'_>,
    (at, path, follow): (Ino, &[u8], bool),
) -> Result<Vec<u8>, Refusal> {
    let mut names = core.store.namespace().list_xattrs(caller, at, path, follow)?;
    if layout_of(core, caller, (at, path, follow), XATTR)?.is_some() {
        names.extend_from_slice(XATTR);
        names.push(0);
    }
    Ok(names)
}

/// Checks that a request for an object is allowed all of `needed` (bits of [`access`]); where the object is. The target is the
/// capability's, so nobody has bytes where the file's layout does not put them, or another target charged for them.
fn check(core: &Core, connection: &Connection, header: &RequestHeader, needed: u32) -> Result<ObjectPlace, Refusal> {
    let capability = header.object_capability();
    if capability.holder != connection.credentials.uid && !connection.is_trusted {
        return Err(Refusal::OfAnother);
    }
    let cluster = core.cluster.get().ok_or(StoreError::Stale)?;
    cluster.verify_objects(&capability, needed)?;
    // Of `O_PATH`.
    if capability.access & (access::READ | access::WRITE) == 0 {
        return Err(StoreError::BadAccess.into());
    }
    Ok(ObjectPlace::of(&capability))
}

fn check_read(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    sink: &Sink<'_>,
) -> Result<ObjectPlace, Refusal> {
    let place = check(core, connection, header, access::READ)?;
    if header.len as usize > sink.len() { Err(StoreError::Invalid.into()) } else { Ok(place) }
}

/// Reads; fewer bytes at the end of the object.
pub(super) fn read(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    mut sink: Sink<'_>,
) -> Result<usize, Refusal> {
    let place = check_read(core, connection, header, &sink)?;
    Ok(core.store.objects().read_object(place, header.offset, sink.part(0..header.len as usize))?)
}

/// Reads if nothing has to be waited for.
pub(super) fn read_cached(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    mut sink: Sink<'_>,
) -> Result<Cached, Refusal> {
    let place = check_read(core, connection, header, &sink)?;
    Ok(core.store.objects().read_object_cached(place, header.offset, sink.part(0..header.len as usize))?)
}

/// The pages that a read waits for.
pub(super) fn host_pages(core: &Core, connection: &Connection, header: &RequestHeader) -> Option<HostPages> {
    let place = check(core, connection, header, access::READ).ok()?;
    core.store.objects().host_pages_of_object(place, header.offset, u64::from(header.len))
}

/// Whether it is a write that may be done, to an object that rests.
pub(super) fn is_first_write(core: &Core, connection: &Connection, header: &RequestHeader) -> bool {
    let is_allowed = || check(core, connection, header, access::WRITE).is_ok();
    core.store.objects().object_rests(ObjectPlace::of(&header.object_capability())) && header.len > 0 && is_allowed()
}

/// Writes in this mode.
pub(super) fn write(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    (payload, mode): (Source<'_>, WriteMode),
) -> ReplyHeader {
    let mut reply = Reply::new(&mut []);
    let mut cuts = 0;
    let outcome = (|| {
        let place = check(core, connection, header, access::WRITE)?;
        // The number is one more than that of the last cut that the writer knows, or 0.
        let known = header.ino2.wrapping_sub(1);
        let written = core.store.objects().write_object_as(mode, known, place, header.offset, payload)?;
        core.unsynced.wrote_as(mode, Ino(header.ino), Bytes(written.len as u64));
        (reply.value, cuts) = (written.len as u64, written.cuts);
        Ok(())
    })();
    ReplyHeader { cuts, ..finish(header, Op::Write, outcome, reply) }
}

/// Serves what neither reads nor writes.
pub(super) fn serve(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    op: Op,
    room: &mut [u8],
) -> ReplyHeader {
    let mut reply = Reply::new(room);
    let mut cuts = 0;
    let outcome = (|| {
        match op {
            Op::Fsync => {
                let place = check(core, connection, header, 0)?;
                let sync = || core.store.objects().sync_object(place);
                core.with_pages_of(PagesOf::Object(place.object), Some(place.target), sync)?;
            }
            Op::Fallocate => {
                let place = check(core, connection, header, access::WRITE)?;
                let change = SpaceChange::from_mode(header.valid).ok_or(StoreError::Invalid)?;
                cuts = core.store.objects().change_object_space(place, header.offset, header.ino2, change)?;
            }
            Op::SeekData | Op::SeekHole => {
                let place = check(core, connection, header, 0)?;
                let what = if op == Op::SeekData { Extent::Data } else { Extent::Hole };
                reply.value = core.store.objects().seek_object(place, header.offset, what)?;
            }
            _ => return Err(StoreError::Invalid.into()),
        }
        Ok(())
    })();
    ReplyHeader { cuts, ..finish(header, op, outcome, reply) }
}
