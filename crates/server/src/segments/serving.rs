//! What the server does with segments: gives them to programs that ask, and looks after those that there are.

use super::Unmapped;
use crate::clock;
use crate::connection::{Connection, Way};
use crate::core::Core;
use crate::jobs::Job;
use crate::mapping;
use crate::mappings::{SessionId, TooMany};
use crate::proof;
use crate::segment::{Mapping, Segment, State};
use crate::segment_home::{names_in, parse};
use crate::usage::Permit;
use isonomia_proto::fs::access;
use isonomia_proto::mapping::STORES;
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_store::{FILE_SIZE_MAX, StoreError};
use isonomia_transport::socket::{Deadline, has_unread, send_with_descriptor};
use isonomia_units::{Bytes, Ino, Nanos, TargetId};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::AtFlags;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at which segments nobody has any more.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A segment that nobody has stays for this long after it was asked for: programs ask again while a mount has the mapping.
const STAYS_FOR: Nanos = Nanos::from_millis(300);

/// Between two attempts to write back at the end of a segment where there is no room, say, for what was stored.
const TRIES_AGAIN_AFTER: Nanos = Nanos::from_secs(5);

/// Who has the mappings of files with segments: no user is -1.
const OWN_SESSION: SessionId = (u32::MAX, 0);

impl Core {
    /// Brings what programs stored to the mapped file `ino` to the objects, for `job`.
    pub fn write_back_segment(&self, ino: Ino, job: &Job) -> Result<(), StoreError> {
        let Some(segment) = self.segments.find(ino) else { return Ok(()) };
        let mut state = segment.state();
        if segment.has_ended() {
            return Ok(());
        }
        let written = segment.write_back(&mut state, &self.store, clock::wall())?;
        drop(state);
        self.charge_write_back(ino, job, written);
        Ok(())
    }

    fn charge_write_back(&self, ino: Ino, job: &Job, written: u64) {
        let Ok(layout) = self.store.namespace().layout(ino) else { return };
        let target = self.targets.iter().find(|target| target.id == layout.targets.first().copied());
        if let Some(target) = target.filter(|_| written > 0) {
            job.owe(false, target.time_for(Bytes(written)));
        }
    }

    /// The segment of `ino`, of this generation; a new one, counted for the user of `permit`, if there is none.
    fn segment(&self, ino: Ino, generation: u32, permit: &Permit) -> Result<Arc<Segment>, Unmapped> {
        if let Some(segment) = self.segments.find(ino) {
            return Ok(segment);
        }
        let permit = permit.beside(0).map_err(|_| Unmapped::NoMemory)?;
        // It stays as long as it is mapped, with a name or without.
        self.store.namespace().acquire(ino)?;
        let entered = self.segments.begin(ino, generation, permit);
        if !matches!(entered, Ok((_, true))) {
            self.store.release(ino)?;
        }
        entered.map(|(segment, _)| segment)
    }

    /// Whether the file's mapping is with its segment, whose state this is. If not, the segment is the next to have it.
    fn has_mapping(&self, ino: Ino, state: &mut State) -> Result<bool, Unmapped> {
        state.stores_at = state.asked_at;
        if state.mapping == Mapping::Going || self.holders.awaits_claims() {
            return Ok(false);
        }
        let (is_holder, _, told) = self.mappings.take(OWN_SESSION, ino).map_err(|TooMany| Unmapped::TooMany)?;
        state.mapping = Mapping::Asked;
        told.into_iter().for_each(|told| mapping::answer(self, told));
        Ok(is_holder)
    }

    /// The segment of `ino` has the mapping no more, and waits for it no more. Nobody may have locked the segment's state: a mount
    /// that writes back what its programs stored keeps the mapping where it is until it has had that.
    fn give_mapping(&self, ino: Ino) {
        self.mappings.give(OWN_SESSION, ino).into_iter().for_each(|told| mapping::answer(self, told));
    }
}

/// Serves a request for memory that stands for a file.
pub fn serve(core: &Core, connection: &Connection, header: &RequestHeader) -> ReplyHeader {
    match map(core, connection, header) {
        Ok(read) => ReplyHeader::ok(header.seq, read, 0),
        Err(reason) => {
            if !matches!(reason, Unmapped::Again | Unmapped::None) {
                tracing::debug!(ino = header.ino, %reason, "no memory that stands for a file");
            }
            ReplyHeader::error(header.seq, reason.errno())
        }
    }
}

fn map(core: &Core, connection: &Connection, header: &RequestHeader) -> Result<u64, Unmapped> {
    let stores = header.valid & STORES != 0;
    proof::check_access(core, connection, header, access::READ | if stores { access::WRITE } else { 0 })?;
    let (ino, store) = (Ino(header.ino), &core.store);
    store.namespace().check_some_target(ino, TargetId(header.target))?;
    let end = header.offset;
    if end == 0 || end > FILE_SIZE_MAX {
        return Err(StoreError::Invalid.into());
    }
    // Descriptors go to processes of this host only.
    let Way::Shared(_) = &connection.way else { return Err(Unmapped::None) };
    // One descriptor on its way for each connection, so that nobody fills the kernel with descriptors.
    if has_unread(connection.socket.as_fd()) {
        return Err(Unmapped::Unread);
    }
    // A segment keeps mounts from having the mapping, so only a client that may write to the file can have one begun.
    let may_begin = header.access & access::WRITE != 0;
    let segment = match core.segments.find(ino) {
        None if may_begin => core.segment(ino, header.generation, &connection.permit)?,
        found => found.ok_or(Unmapped::None)?,
    };
    let mut state = segment.state();
    state.asked_at = clock::now();
    if segment.has_ended() || (stores && !core.has_mapping(ino, &mut state)?) {
        return Err(Unmapped::Again);
    }
    let mut read = 0;
    if may_begin {
        read = segment.extend(&mut state, store, end, &connection.permit)?;
        state.job = Some(connection.job.clone());
    } else if !segment.suffices(store, end)? {
        return Err(Unmapped::None);
    }
    let descriptor = segment.open(&mut state, stores)?;
    let now = Deadline::after(Nanos::ZERO);
    send_with_descriptor(connection.socket.as_fd(), &[0], descriptor.as_fd(), now).map_err(|_| Unmapped::Unread)?;
    Ok(read)
}

/// Goes on with the segments that an earlier server left. To be called before anything is served.
pub fn adopt(core: &Core) {
    let mut home = core.segments.home();
    let Some(dir) = home.find() else { return };
    for name in names_in(&dir) {
        match adopt_one(core, &dir, &name) {
            Ok(()) => tracing::info!(segment = name, "a mapped file is in memory still"),
            Err(error) => {
                // The file has gone. Programs that have it mapped share what they have.
                tracing::warn!(segment = name, %error, "the memory of a mapped file is not of use any more");
                let _ = rustix::fs::unlinkat(&*dir, &*name, AtFlags::empty());
            }
        }
    }
}

fn adopt_one(core: &Core, dir: &Arc<OwnedFd>, name: &str) -> Result<(), StoreError> {
    let (ino, generation) = parse(name).ok_or(StoreError::Invalid)?;
    if core.store.namespace().prove(ino, 0)?.generation != generation {
        return Err(StoreError::Stale);
    }
    core.store.namespace().acquire(ino)?;
    let adopted = Segment::adopt(dir.clone(), name.to_owned(), ino, &core.store, clock::now());
    if adopted.is_err() {
        core.store.release(ino)?;
    }
    let segment = adopted?;
    if segment.state().mapping == Mapping::Asked {
        // Nobody else is there to have it.
        let _ = core.mappings.take(OWN_SESSION, ino);
    }
    core.segments.enter(&mut core.segments.table_to_change(), segment);
    Ok(())
}

/// What the thread does that looks after segments until the server stops.
pub fn run(core: &Core) {
    while !core.is_stopping.load(Ordering::Relaxed) {
        std::thread::park_timeout(LOOK_EVERY);
        for segment in core.segments.all() {
            look_after(core, &segment);
        }
    }
}

/// Gives the file's mapping back if nobody can store to the segment any more, and ends it if nobody has it.
fn look_after(core: &Core, segment: &Segment) {
    // Whoever has locked it is using it.
    let Some(mut state) = segment.try_state() else { return };
    let now = clock::now();
    let is_too_soon = state.failed_at.is_some_and(|at| now.since(at) < TRIES_AGAIN_AFTER);
    if segment.has_ended() || is_too_soon || now.since(state.stores_at) < STAYS_FOR || segment.may_be_stored_to() {
        return;
    }
    if let Err(error) = write_back_at_last(core, segment, &mut state) {
        // What programs stored stays, and is tried again.
        if state.failed_at.replace(clock::now()).is_none() {
            tracing::error!(ino = segment.ino.0, %error, "cannot write back what was stored to a mapped file");
        }
        return;
    }
    let is_over = now.since(state.asked_at) >= STAYS_FOR && !segment.is_in_use();
    if is_over {
        segment.end();
    }
    if state.mapping == Mapping::Asked {
        state.mapping = Mapping::Going;
        drop(state);
        core.give_mapping(segment.ino);
        segment.state().mapping = Mapping::None;
    } else {
        drop(state);
    }
    if is_over {
        // After that another one may begin.
        core.segments.leave(segment.ino);
        if let Err(error) = core.store.release(segment.ino) {
            tracing::warn!(ino = segment.ino.0, %error, "cannot give back a reference");
        }
    }
}

fn write_back_at_last(core: &Core, segment: &Segment, state: &mut State) -> Result<(), StoreError> {
    let written = segment.write_back(state, &core.store, clock::wall())?;
    if let Some(job) = &state.job {
        core.charge_write_back(segment.ino, job, written);
    }
    segment.is_stored_to_no_more(state);
    state.failed_at = None;
    Ok(())
}

/// Writes everything back. Segments that programs have stay for the next server, unless there will be none.
pub fn stop(core: &Core, is_last: bool) {
    for segment in core.segments.all() {
        let mut state = segment.state();
        let written = segment.write_back(&mut state, &core.store, clock::wall());
        if let Err(error) = &written {
            tracing::error!(ino = segment.ino.0, %error, "cannot write back what was stored to a mapped file");
        }
        if is_last || (written.is_ok() && !segment.is_in_use()) {
            segment.unlink();
        }
        core.segments.leave(segment.ino);
        let _ = core.store.release(segment.ino);
    }
}
