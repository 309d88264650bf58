//! From a checked request to the store and back: what each operation does, and where errors become errnos.

mod nodes;
mod objects;
pub mod open;
mod reply;

use crate::clock;
use crate::cluster::Passed;
use crate::connection::Connection;
use crate::core::Core;
use crate::pages::PagesOf;
use crate::refusal::Refusal;
use crate::{declared, lock, mapping, proof, segments};
use isonomia_memory::{Sink, Source};
use isonomia_proto::fs::{Attr, access};
use isonomia_proto::object::told;
use isonomia_proto::request::{INO_LEN, NO_TARGET, Op, ReplyHeader, RequestHeader, flag, valid};
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_proto::syncing;
use isonomia_store::{Cached, Caller, HostPages, ObjectPlace, RenameHow, StoreError, WriteMode, XattrHow};
use isonomia_units::{Bytes, Ino, TargetId};
use nodes::{change, mapped, put_node, resize};
use reply::{Reply, finish};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// A read of so many bytes takes longer than to look at the size of its file.
const READ_LEN_LOOKED_AT: u32 = 16 << 10;

/// What became of a request.
pub enum Outcome {
    /// It is served: the reply.
    Served(ReplyHeader),
    /// It is for the cluster, which answers it later.
    Passed(Passed),
}

/// Serves every operation but reads and writes.
pub fn serve(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    op: Op,
    names: &[u8],
    room: &mut [u8],
) -> Outcome {
    if header.is_for_object() {
        return Outcome::Served(objects::serve(core, connection, header, op, room));
    }
    let _passage = core.store.namespace().passage();
    if op == Op::Peer && connection.is_trusted && core.cluster.get().is_some() {
        return Outcome::Passed(Passed::FromPeer(names.to_vec()));
    }
    if op == Op::Phase {
        let told = core.phases.hear((&core.bell, &core.targets), connection, header);
        declared::phase(core, connection, header);
        let reply = match told {
            Ok(has_phases) => ReplyHeader::ok(header.seq, u64::from(has_phases), 0),
            Err(errno) => ReplyHeader::error(header.seq, errno.raw_os_error().unsigned_abs()),
        };
        return Outcome::Served(reply);
    }
    let ino = Ino(header.ino);
    let is_here = if ino == Ino::ROOT && is_for_inode(op) {
        // Nobody can change anything by these but locks.
        if op == Op::Lock {
            core.store.namespace().check_root_is_here()
        } else {
            core.store.namespace().check_root_is_readable()
        }
    } else {
        core.store.namespace().check_is_here(ino)
    };
    if let Err(elsewhere) = is_here {
        return Outcome::Served(finish(header, op, Err(elsewhere.into()), Reply::new(room)));
    }
    Outcome::Served(match op {
        Op::Lock => lock::serve(core, connection, header, room),
        Op::TakeMapping | Op::GiveMapping => mapping::serve(core, connection, header, room),
        Op::MapFile => segments::serving::serve(core, connection, header),
        _ => {
            let mut reply = Reply::new(room);
            match operate(core, connection, header, op, names, &mut reply) {
                Err(Refusal::Store(StoreError::OfVolume(change))) => return Outcome::Passed(Passed::Change(change)),
                Err(Refusal::Store(StoreError::MustCut { ino, size_bytes })) if core.cluster.get().is_some() => {
                    return Outcome::Passed(Passed::Cut { ino, size_bytes });
                }
                outcome => finish(header, op, outcome, reply),
            }
        }
    })
}

/// Serves a read into `sink`, which is where the client finds the payload of the reply.
pub fn read(core: &Core, connection: &Connection, header: &RequestHeader, mut sink: Sink<'_>) -> ReplyHeader {
    if header.is_for_object() {
        return finish_read(header, objects::read(core, connection, header, sink));
    }
    let _passage = core.store.namespace().passage();
    let outcome = may_read(core, connection, header, &sink).and_then(|()| {
        let (ino, offset) = (Ino(header.ino), header.offset);
        let sink = sink.part(0..header.len as usize);
        Ok(core.segments.read(ino, offset, sink, |sink| core.store.read(ino, offset, sink))?)
    });
    finish_read(header, outcome)
}

/// What became of an attempt to serve a read without waiting.
pub enum Tried {
    /// The reply, and its payload where `sink` is not where the client finds it.
    Done(ReplyHeader, Vec<u8>),
    /// Not all is in memory.
    WouldWait,
    /// The host does not tell what is.
    Unknown,
}

/// Serves a read into `sink` if what it asks for is in memory.
pub fn read_cached(core: &Core, connection: &Connection, header: &RequestHeader, sink: Sink<'_>) -> Tried {
    let in_file = |mut sink: Sink<'_>| {
        let _passage = core.store.namespace().passage();
        may_read(core, connection, header, &sink)?;
        let (ino, offset) = (Ino(header.ino), header.offset);
        if core.segments.has(ino) {
            return Ok(Cached::WouldWait);
        }
        Ok(core.store.read_cached(ino, offset, sink.part(0..header.len as usize))?)
    };
    let outcome = match header.is_for_object() {
        true => objects::read_cached(core, connection, header, sink),
        false => in_file(sink),
    };
    let outcome = match outcome {
        Ok(Cached::Read(len)) => Ok(len),
        Ok(Cached::WouldWait) => return Tried::WouldWait,
        Ok(Cached::Unknown) => return Tried::Unknown,
        Err(refusal) => Err(refusal),
    };
    Tried::Done(finish_read(header, outcome), Vec::new())
}

/// The pages that a read waits for, if it may have them and waits for nothing else.
pub fn host_pages(core: &Core, connection: &Connection, header: &RequestHeader) -> Option<HostPages> {
    if header.is_for_object() {
        return objects::host_pages(core, connection, header);
    }
    let ino = Ino(header.ino);
    let _passage = core.store.namespace().passage();
    core.store.namespace().check_is_here(ino).ok()?;
    proof::check_access(core, connection, header, access::READ).ok()?;
    check_target(core, header).ok()?;
    let is_mapped = core.segments.has(ino);
    if is_mapped { None } else { core.store.host_pages(ino, header.offset, u64::from(header.len)) }
}

fn may_read(core: &Core, connection: &Connection, header: &RequestHeader, sink: &Sink<'_>) -> Result<(), Refusal> {
    core.store.namespace().check_is_here(Ino(header.ino))?;
    proof::check_access(core, connection, header, access::READ)?;
    check_target(core, header)?;
    if header.len as usize > sink.len() {
        return Err(StoreError::Invalid.into());
    }
    Ok(())
}

/// The bytes that a read will give, by the size that the file has now. It is what the read asks for if that is little, if the
/// size is known to another server only (of an object), or to the database only, or if the client may not read the file.
pub fn readable(core: &Core, connection: &Connection, header: &RequestHeader) -> u32 {
    let ino = Ino(header.ino);
    let is_known = header.len >= READ_LEN_LOOKED_AT
        && !header.is_for_object()
        && core.store.namespace().check_is_here(ino).is_ok()
        && proof::check_access(core, connection, header, access::READ).is_ok();
    let size = if is_known { core.store.namespace().size_in_memory(ino) } else { None };
    let there = size.map_or(u64::MAX, |size| size.saturating_sub(header.offset));
    header.len.min(u32::try_from(there).unwrap_or(u32::MAX))
}

fn finish_read(header: &RequestHeader, outcome: Result<usize, Refusal>) -> ReplyHeader {
    let mut reply = Reply::new(&mut []);
    let outcome = outcome.map(|len| reply.len = len);
    finish(header, Op::Read, outcome, reply)
}

/// Whether a write is one that may be done, to a file or an object that rests: see [`crate::first_writes`].
pub fn is_first_write(core: &Core, connection: &Connection, header: &RequestHeader) -> bool {
    if header.is_for_object() {
        return objects::is_first_write(core, connection, header);
    }
    let ino = Ino(header.ino);
    core.store.rests(ino)
        && header.len > 0
        && core.store.namespace().check_is_here(ino).is_ok()
        && proof::check_access(core, connection, header, access::WRITE).is_ok()
        && check_target(core, header).is_ok()
}

/// Whether somebody writes past the page cache to the file or the object that a write is for: the host lets no other one write
/// to it meanwhile.
pub fn is_behind_direct_write(core: &Core, header: &RequestHeader) -> bool {
    if header.is_for_object() {
        return core.store.objects().is_object_written_directly(ObjectPlace::of(&header.object_capability()));
    }
    core.store.is_written_directly(Ino(header.ino))
}

/// Serves a write of `payload` in this mode; `room` is for the payload of the reply, and may overlie nothing of `payload`.
pub fn write(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    (payload, mode): (Source<'_>, WriteMode),
    room: &mut [u8],
) -> ReplyHeader {
    if header.is_for_object() {
        return objects::write(core, connection, header, (payload, mode));
    }
    let store = &core.store;
    let _passage = store.namespace().passage();
    let mut reply = Reply::new(room);
    if let Err(elsewhere) = store.namespace().check_is_here(Ino(header.ino)) {
        return finish(header, Op::Write, Err(elsewhere.into()), reply);
    }
    // Kept to the end of the write: until then nobody else gets the mapping.
    let _pinned = match mapping::pin_to_write_back(core, header) {
        Ok(pinned) => pinned,
        Err(errno) => return ReplyHeader::error(header.seq, errno.raw_os_error().unsigned_abs()),
    };
    let outcome = (|| {
        proof::check_access(core, connection, header, access::WRITE)?;
        if header.len == 0 {
            // So the holder of a spread file's mapping asks whether it still has it.
            return Ok(());
        }
        check_target(core, header)?;
        let ino = Ino(header.ino);
        if header.flags & flag::APPEND == 0 {
            let offset = header.offset;
            let write = || Ok((offset, store.write_as(mode, ino, offset, payload, clock::wall())?));
            reply.value = core.segments.write(store, ino, Some(offset), payload, write)?.1 as u64;
            core.unsynced.wrote_as(mode, ino, Bytes(reply.value));
            return Ok(());
        }
        let append = || store.append(ino, payload, clock::wall());
        let (offset, written) = core.segments.write(store, ino, None, payload, append)?;
        core.unsynced.wrote(ino, Bytes(written as u64));
        reply.value = offset;
        Ok(reply.put(&(written as u64).to_le_bytes())?)
    })();
    finish(header, Op::Write, outcome, reply)
}

/// Checks that the target in a request for data, by which it was queued and charged, is where the data lie. A server
/// with one target for data has nothing to look up: its number was checked when the request was queued.
fn check_target(core: &Core, header: &RequestHeader) -> Result<(), StoreError> {
    if core.data_targets() == 1 && core.cluster.get().is_none() {
        return Ok(());
    }
    let (ino, target) = (Ino(header.ino), TargetId(header.target));
    if header.flags & flag::APPEND != 0 {
        // It is not known yet at which offset an append will be.
        return core.store.namespace().check_only_target(ino, target);
    }
    core.store.namespace().check_target(ino, target, header.offset, u64::from(header.len))
}

fn operate(
    core: &Core,
    connection: &Connection,
    header: &RequestHeader,
    op: Op,
    names: &[u8],
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let store = &core.store;
    let credentials = &connection.credentials;
    let caller = &Caller { uid: credentials.uid, gid: credentials.gid, groups: &credentials.groups };
    let (path, rest) = names.split_at_checked(usize::from(header.path_len)).ok_or(StoreError::Invalid)?;
    let (path2, value) = rest.split_at_checked(usize::from(header.path2_len)).ok_or(StoreError::Invalid)?;
    let (at, at2) = (Ino(header.ino), Ino(header.ino2));
    let follow = header.flags & flag::NO_FOLLOW == 0;
    let now = clock::wall();
    if begins_somewhere(op) {
        proof::check_start(core, connection, &header.capability())?;
    }
    let attr: Attr = match op {
        Op::GetAttr => store.get_attr(caller, at, path, follow)?,
        Op::SetAttr if header.flags & flag::AS_OPENED != 0 => {
            proof::check_access(core, connection, header, access::WRITE)?;
            let before = store.namespace().size(at).ok();
            let set = || store.set_size(at, header.offset, now);
            let attr = resize(core, Some(at), header.offset, set, |attr| Ino(attr.ino))?;
            declared::growth(core, connection, at, before);
            attr
        }
        Op::SetAttr if header.valid & valid::SIZE != 0 => {
            let found = mapped(core, caller, at, path, follow);
            let set = || store.set_attr(caller, at, path, follow, &change(header), now);
            resize(core, found, header.offset, set, |attr| Ino(attr.ino))?
        }
        Op::SetAttr => store.set_attr(caller, at, path, follow, &change(header), now)?,
        Op::Mkdir => store.mkdir(caller, at, path, header.mode, now)?,
        Op::Mknod => store.mknod(caller, at, path, header.mode, header.offset, now)?,
        Op::Link => {
            check_beside(core, at2)?;
            proof::check_start(core, connection, &header.second_capability())?;
            store.link(caller, at, path, follow, at2, path2, now)?
        }
        Op::Symlink => store.symlink(caller, path, at, path2, now)?,
        Op::Open => return open::open(core, connection, caller, header, path, reply),
        Op::Release => {
            if header.valid & told::BEHIND != 0 && connection.session.is_writer(at) {
                // Before the reference is given back: with the last one the inode may leave the memory.
                core.lost_writer(at);
            }
            if header.len > 0 && connection.session.is_writer(at) {
                store.tell_blocks(at, header.len.into());
            }
            return Ok(core.release(connection, at, header.owner)?);
        }
        Op::ReleaseMany => {
            let (numbers, rest) = path.as_chunks::<INO_LEN>();
            let released = numbers.iter().map(|ino| core.release(connection, Ino(u64::from_le_bytes(*ino)), 0));
            // If one of them fails, the others are given back all the same.
            let failed = released.filter_map(Result::err).last();
            let outcome = if rest.is_empty() { failed.map_or(Ok(()), Err) } else { Err(StoreError::Invalid) };
            return Ok(outcome?);
        }
        Op::Adopt => {
            proof::check_access(core, connection, header, 0)?;
            let reserved = connection.session.reserve()?;
            store.namespace().acquire(at)?;
            core.add_reference(reserved, at, header.owner)?;
            core.note_if_locked(connection, at, header.owner);
            return objects::adopted(core, connection, header);
        }
        Op::HandOver => {
            connection.session.hands_over.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Op::Fsync => return sync(core, connection, header),
        Op::Rmdir => return Ok(store.rmdir(caller, at, path, now)?),
        Op::Unlink => return Ok(store.unlink(caller, at, path, now)?),
        Op::Rename => {
            check_beside(core, at2)?;
            proof::check_start(core, connection, &header.second_capability())?;
            store.rename(caller, at, path, at2, path2, rename_how(header)?, now)?;
            core.prefixes.forget();
            return Ok(());
        }
        Op::Readlink => return Ok(reply.put(&store.namespace().readlink(caller, at, path)?)?),
        Op::ReadDir => {
            let bytes_max = (header.len as usize).min(reply.room.len());
            let mut bytes = Vec::new();
            // Permission to read was checked when the directory was opened.
            let caller = match header.flags & flag::AS_OPENED {
                0 => caller,
                _ => proof::check_access(core, connection, header, access::READ).map(|()| &Caller::ROOT)?,
            };
            store.namespace().read_dir(caller, at, header.offset, bytes_max)?.iter().for_each(|e| e.encode(&mut bytes));
            return Ok(reply.put(&bytes)?);
        }
        Op::Access => return Ok(store.namespace().access(caller, at, path, header.len)?),
        Op::StatFs => return Ok(reply.put(store.stat_fs()?.as_bytes())?),
        Op::ReserveAppend => {
            proof::check_access(core, connection, header, access::WRITE)?;
            let is_spread = match store.namespace().check_some_target(at, TargetId(header.target)) {
                Err(StoreError::Spread) => true,
                checked => checked.map(|()| false)?,
            };
            let len = u64::from(header.len);
            let reserve = || store.reserve_append(at, len, now);
            let reserved = core.segments.resize(store, at, |size| size.saturating_add(len), reserve)?;
            reply.value = reserved.offset;
            return if is_spread { objects::put_reserved(core, connection, header, &reserved, reply) } else { Ok(()) };
        }
        Op::Fallocate => {
            proof::check_access(core, connection, header, access::WRITE)?;
            check_target(core, header)?;
            let change = SpaceChange::from_mode(header.valid).ok_or(StoreError::Invalid)?;
            let (offset, len) = (header.offset, header.ino2);
            let make = || store.change_space(at, offset, len, change, now);
            let (range, grows) = (offset..offset.saturating_add(len), change.grows());
            let before = store.namespace().size(at).ok();
            core.segments.change(store, at, (range, grows), make)?;
            declared::growth(core, connection, at, before);
            return Ok(());
        }
        Op::SeekData | Op::SeekHole => {
            proof::check_opened(core, connection, header)?;
            check_target(core, header)?;
            core.write_back_segment(at, &connection.job)?;
            let what = if op == Op::SeekData { Extent::Data } else { Extent::Hole };
            reply.value = store.seek(at, header.offset, what)?;
            return Ok(());
        }
        Op::Delegate => {
            let capability = match header.capability() {
                proven if proven.is_proven() => store.namespace().delegate(&proven, header.uid),
                _ => store.namespace().prove(at, header.uid)?,
            };
            return Ok(reply.put(capability.as_bytes())?);
        }
        Op::PathOf => return Ok(reply.put(&store.namespace().path_of(at)?)?),
        Op::GetXattr => {
            let mut put = |value: &[u8]| reply.put_if_wanted(value, header.len);
            return match objects::layout_of(core, caller, (at, path, follow), path2)? {
                Some(layout) => Ok(put(&layout)?),
                None => Ok(store.namespace().get_xattr(caller, at, path, follow, path2, put)??),
            };
        }
        Op::ListXattrs => {
            let listed = objects::listed_xattrs(core, caller, (at, path, follow))?;
            return Ok(reply.put_if_wanted(&listed, header.len)?);
        }
        Op::SetXattr => {
            let how = xattr_how(header);
            let Some(value) = objects::set_layout(core, caller, (at, path, follow), path2, value)? else {
                return Ok(());
            };
            return Ok(store.set_xattr(caller, at, path, follow, path2, &value, how, now)?);
        }
        Op::RemoveXattr => {
            if !objects::keeps_layout(core, caller, (at, path, follow), path2)? {
                store.namespace().remove_xattr(caller, at, path, follow, path2, now)?;
            }
            return Ok(());
        }
        Op::FindServer => {
            let addresses = core.addresses_of(header.offset).ok_or(Refusal::NoSuchServer)?;
            return Ok(reply.put(addresses.as_bytes())?);
        }
        Op::FindObjects => return objects::find_objects(core, connection, header, reply),
        Op::TellSize => return objects::tell_size(core, connection, header, reply),
        Op::Peer => return Err(StoreError::PermissionDenied.into()),
        // These have their own functions.
        Op::Read
        | Op::Write
        | Op::Lock
        | Op::TakeMapping
        | Op::GiveMapping
        | Op::AwaitMappings
        | Op::MapFile
        | Op::Phase => {
            return Err(StoreError::Invalid.into());
        }
    };
    put_node(core, connection, header, op, &attr, reply)
}

/// Checks that the second of two paths begins at what is here: what is on another server is on another file system.
fn check_beside(core: &Core, at: Ino) -> Result<(), StoreError> {
    core.store.namespace().check_is_here(at).map_err(|error| match error {
        StoreError::Elsewhere { .. } => StoreError::CrossDevice,
        error => error,
    })
}

/// Whether the inode that a request names is where its path begins. Other operations name an open file, for which there are
/// checks of their own, or something that is looked up in what the session itself has.
const fn begins_somewhere(op: Op) -> bool {
    match op {
        Op::GetAttr
        | Op::SetAttr
        | Op::Open
        | Op::Mkdir
        | Op::Rmdir
        | Op::Unlink
        | Op::Rename
        | Op::Link
        | Op::Symlink
        | Op::Readlink
        | Op::Mknod
        | Op::ReadDir
        | Op::Access
        | Op::PathOf
        | Op::GetXattr
        | Op::SetXattr
        | Op::ListXattrs
        | Op::RemoveXattr
        | Op::Delegate => true,
        Op::Release
        | Op::ReleaseMany
        | Op::Adopt
        | Op::Read
        | Op::Write
        | Op::Fsync
        | Op::StatFs
        | Op::ReserveAppend
        | Op::Fallocate
        | Op::SeekData
        | Op::SeekHole
        | Op::Lock
        | Op::HandOver
        | Op::TakeMapping
        | Op::GiveMapping
        | Op::AwaitMappings
        | Op::MapFile
        | Op::FindServer
        | Op::FindObjects
        | Op::TellSize
        | Op::Phase
        | Op::Peer => false,
    }
}

/// Whether a request is for the very inode that it names, by a capability or by what the session has, and not for where a
/// path from there leads. Only the root server follows paths from the root directory.
const fn is_for_inode(op: Op) -> bool {
    matches!(op, Op::Release | Op::Adopt | Op::Fsync | Op::ReadDir | Op::Delegate | Op::Lock)
}

/// Of a file with several targets a client has all synced at once, and with the last one attributes and name.
fn sync(core: &Core, connection: &Connection, header: &RequestHeader) -> Result<(), Refusal> {
    let (store, ino) = (&core.store, Ino(header.ino));
    proof::check_opened(core, connection, header)?;
    core.write_back_segment(ino, &connection.job)?;
    let target = (header.target != NO_TARGET).then_some(TargetId(header.target));
    let mut heard = connection.session.heard(ino);
    let mut bytes =
        || core.with_pages_of(PagesOf::File(ino), target, || store.fsync_target_after(ino, target, &mut heard));
    let data_only = header.flags & flag::DATA_ONLY != 0;
    let synced = match (header.flags & flag::CONTINUED, header.valid & syncing::TOGETHER) {
        (0, 0) => store.fsync_with_attributes(ino, data_only, bytes).map(|()| true),
        (0, _) => store.fsync_together(ino, data_only, bytes),
        _ => bytes().map(|()| true),
    };
    heard.into_iter().for_each(|lost_writes| connection.session.hear(ino, lost_writes));
    if synced? { Ok(()) } else { Err(Refusal::TooSoon) }
}

fn rename_how(header: &RequestHeader) -> Result<RenameHow, StoreError> {
    match header.flags & (flag::NO_REPLACE | flag::EXCHANGE) {
        0 => Ok(RenameHow::Replace),
        flag::NO_REPLACE => Ok(RenameHow::NoReplace),
        flag::EXCHANGE => Ok(RenameHow::Exchange),
        _ => Err(StoreError::Invalid),
    }
}

fn xattr_how(header: &RequestHeader) -> XattrHow {
    match header.flags & (flag::NO_REPLACE | flag::MUST_REPLACE) {
        0 => XattrHow::Either,
        flag::NO_REPLACE => XattrHow::Create,
        flag::MUST_REPLACE => XattrHow::Replace,
        _ => XattrHow::Neither,
    }
}
