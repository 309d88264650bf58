//! Volumes that come and go: what [`isonomia_cluster::volumes::hosted`] wants of the store for that, each on a thread of its
//! own, because it takes as long as copying takes.
//!
//! The server that gets a volume asks for one piece after the other ([`isonomia_store::Piece`]), and again for each until it has an
//! answer. From time to time it notes on stable storage which piece is next. The server that has the volume gives pieces of it only
//! while no client is served in it.

use super::Driver;
use super::links::{LinkError, Reach};
use super::membership::{Cluster, Event};
use super::moves::{Coming, note_key};
use super::wire::{Verdict, WantedPiece};
use crate::clock;
use crate::connection::Pending;
use crate::core::Core;
use isonomia_cluster::node::Input;
use isonomia_cluster::request::Request;
use isonomia_cluster::volumes::hosted::Work;
use isonomia_cluster::volumes::{Phase, Version, VolumeName};
use isonomia_proto::control::ControlReply;
use isonomia_proto::request::ReplyHeader;
use isonomia_store::{PIECE_BYTES_MAX, Piece, PieceCursor, Store, StoreError, root_of};
use isonomia_units::{Ino, Nanos, ServerId, VolumeId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Operations that have begun in a volume that is to go have this long to end.
const DRAINED_WITHIN: Nanos = Nanos::from_secs(5);
/// Between two attempts to reach the server that has a volume.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// After so many pieces it is remembered with which to go on.
const PIECES_BETWEEN_NOTES: u32 = 64;
/// How long the server that has a volume may take for a piece.
const PIECE_WITHIN: Nanos = Nanos::from_secs(10);
/// An operator who asks for a move is told within this time whether it is done: other operators wait meanwhile.
const TOLD_WITHIN: Duration = Duration::from_millis(200);
/// An operator's program that does not ask for its answer for this long has ended.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(10);
/// Questions of operators without an answer at most.
const ASKED_MAX: usize = 64;
/// Room for a piece: a record or an attribute may come on top of what fits.
const REPLY_LEN_MAX: usize = PIECE_BYTES_MAX + (96 << 10);

/// What is remembered of a volume that comes, and under which keys: none of the node's, which are lower-case letters.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    instruction: u64,
    cursor: PieceCursor,
}

/// A piece as it is sent.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    piece: Piece,
    next: PieceCursor,
    /// Numbers from here on were never given out by the sender.
    next_number: u64,
    /// The record of the volume's directory, with the last piece.
    directory: Option<Vec<u8>>,
}

impl Cluster {
    /// Has a volume moved to the server of number `to`, and waits for a moment; whether it is there.
    ///
    /// # Errors
    /// With the reason why it does not move.
    pub fn move_volume(&self, name: &str, to: u16, id: u64) -> Result<ControlReply, String> {
        let volume = VolumeName::try_from(name.as_bytes()).map_err(|error| error.to_string())?;
        let mut asked = self.moves.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|_, (looked_at, _)| clock::now().since(*looked_at) < FORGOTTEN_AFTER);
        let answered = match asked.remove(&id) {
            Some((_, answered)) => answered,
            None if asked.len() >= ASKED_MAX => return Err("too many volumes are asked to move: ask again".to_owned()),
            None => {
                let (answer, answered) = sync_channel(1);
                let event = Event::Decide(Request::Move { name: volume, found: None, to: ServerId(to) }, answer);
                self.events.try_send(event).map_err(|_| "the server is overloaded: ask again")?;
                answered
            }
        };
        let errno = match answered.recv_timeout(TOLD_WITHIN) {
            Ok(Verdict::Failed(errno)) => Errno::from_raw_os_error(i32::try_from(errno).unwrap_or(0)),
            Ok(_) => return Ok(ControlReply::VolumeMoved { is_done: true }),
            // The root server could not be asked, or has no time.
            Err(RecvTimeoutError::Disconnected) => Errno::TIMEDOUT,
            Err(RecvTimeoutError::Timeout) => {
                asked.insert(id, (clock::now(), answered));
                Errno::TIMEDOUT
            }
        };
        Err(match errno {
            // It has begun, or is about to.
            Errno::TIMEDOUT | Errno::AGAIN => return Ok(ControlReply::VolumeMoved { is_done: false }),
            Errno::NOENT => format!("there is no volume {name:?}"),
            Errno::NODEV => format!("the cluster has no server {to}"),
            Errno::BUSY => format!("volume {name:?} is in use: close the files in it"),
            Errno::CANCELED => format!("the move of volume {name:?} was given up"),
            errno => format!("volume {name:?} stays where it was: {errno}"),
        })
    }
}

impl Driver {
    /// Begins what takes long; what came of it, if it cannot begin.
    pub(super) fn begin_move(&mut self, work: Work) -> Option<Input> {
        let number = work.key().number;
        let (core, links) = (self.core.clone(), self.links.reach());
        if matches!(work, Work::Freeze { .. }) && core.holders.awaits_claims() {
            // Who comes for a lock must not find the volume closed. Whoever wants the move asks again.
            return Some(Input::Worked { number, result: Err(Errno::AGAIN.raw_os_error()) });
        }
        let coming = match &work {
            Work::Fetch { from, instruction, .. } => {
                let coming = Arc::new(Coming {
                    instruction: *instruction,
                    from: *from,
                    is_wanted: AtomicBool::new(true),
                    inodes: AtomicU64::new(0),
                    bytes: AtomicU64::new(0),
                });
                core.cluster.get()?.moves.coming().insert(number, coming.clone());
                Some(coming)
            }
            _ => None,
        };
        // The store has to know that nothing is to begin in it.
        if let Err(error) = self.tell_store() {
            return Some(Input::Worked { number, result: Err(error.errno() as i32) });
        }
        let spawned = std::thread::Builder::new().name(format!("move {number}")).spawn(move || {
            let result = match (&work, coming) {
                (Work::Fetch { .. }, Some(coming)) => fetch(&core, &links, number, &coming),
                (Work::Drop { .. }, _) => core.store.drop_volume(number),
                _ => freeze(&core, number),
            };
            let result = result.map_err(|error| {
                tracing::warn!(volume = number.0, %error, "a volume does not move");
                error.errno() as i32
            });
            // What is interrupted here is continued at the next start.
            if core.is_stopping.load(Ordering::Relaxed) {
                return;
            }
            if let Some(cluster) = core.cluster.get() {
                cluster.moves.coming().remove(&number);
                // It fails only when the server stops.
                let _ = cluster.events.send(Event::Worked(number, result));
            }
        });
        if spawned.is_ok() {
            return None;
        }
        self.core.cluster.get()?.moves.coming().remove(&number);
        Some(Input::Worked { number, result: Err(Errno::AGAIN.raw_os_error()) })
    }

    /// Notes which volumes are on their way, and which are not to come any more.
    pub(super) fn note_moves(&self) {
        let Some(cluster) = self.core.cluster.get() else { return };
        let mut all = HashMap::new();
        for slot in self.node.table().slots() {
            let Some(volume) = &slot.volume else { continue };
            match volume.phase {
                Phase::Leaving { to } => _ = all.insert(slot.key.number, (volume.server, to)),
                Phase::Arriving { from } => _ = all.insert(slot.key.number, (from, volume.server)),
                _ => {}
            }
        }
        for (volume, coming) in cluster.moves.coming().iter() {
            let slot = self.node.table().slot(*volume);
            let is_wanted = slot.is_some_and(|slot| slot.changed == coming.instruction);
            coming.is_wanted.store(is_wanted, Ordering::Relaxed);
        }
        *cluster.moves.all.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Lets a volume rest. The store knows already that nothing is to begin in it.
pub(super) fn freeze(core: &Core, volume: VolumeId) -> Result<(), StoreError> {
    let until = clock::now() + DRAINED_WITHIN;
    let goes_on = || clock::now() < until && !core.is_stopping.load(Ordering::Relaxed);
    // Objects of a file may have bytes of which their writer has not told. Who writes is known first to the table of sessions,
    // when the session ends to the release queue, and then to the store. An operation may be moving that from one to the next, so each is
    // looked at only after all operations that had begun have ended.
    let drained = || if core.store.namespace().drain(goes_on) { Ok(()) } else { Err(StoreError::Busy) };
    drained()?;
    let has_writers = core.sessions.any_writes_in(volume);
    drained()?;
    if has_writers || core.release_queue.any_wrote_in(volume) {
        return Err(StoreError::Busy);
    }
    // The other server would know nothing of locks, nor wait for those who had some when this one stopped.
    if core.holders.awaits_claims() {
        return Err(StoreError::AwaitsClaims);
    }
    if core.locks.are_there_any_in(volume) {
        return Err(StoreError::Busy);
    }
    core.store.freeze(volume, goes_on)?;
    // What programs of this host have stored to memory is not in the store yet.
    if core.segments.are_there_any_of(volume) { Err(StoreError::Busy) } else { Ok(()) }
}

/// Gets a volume, all of it or nothing.
fn fetch(core: &Core, reach: &Reach, volume: VolumeId, coming: &Coming) -> Result<(), StoreError> {
    let fetched = fetch_pieces(core, reach, volume, coming);
    let is_stopping = || core.is_stopping.load(Ordering::Relaxed);
    let mut is_told = false;
    let clean = || {
        // The note goes first: after a stop in between, the copy would be continued in the middle of what was removed.
        core.store.namespace().keep_cluster_records([(&note_key(volume)[..], None)])?;
        if fetched.is_err() { core.store.drop_volume(volume) } else { Ok(()) }
    };
    // Who says that he has nothing of it must not have anything, or would serve it as if it were his.
    while !is_stopping()
        && let Err(error) = clean()
    {
        if !std::mem::replace(&mut is_told, true) {
            tracing::error!(volume = volume.0, %error, "what came of a volume cannot be removed; it is tried again");
        }
        std::thread::park_timeout(AGAIN_AFTER);
    }
    fetched
}

fn fetch_pieces(core: &Core, reach: &Reach, volume: VolumeId, coming: &Coming) -> Result<(), StoreError> {
    let store = &core.store;
    let mut cursor = begin(store, volume, coming.instruction)?;
    let (mut line, mut reply, mut pieces) = (None, vec![0; REPLY_LEN_MAX], 0_u32);
    loop {
        if core.is_stopping.load(Ordering::Relaxed) || !coming.is_wanted.load(Ordering::Relaxed) {
            return Err(StoreError::Canceled);
        }
        let wanted = WantedPiece { volume, cursor: cursor.clone() }.encode();
        let wanted = (WantedPiece::KIND, &wanted[..]);
        let sent = match reach.exchange(&mut line, coming.from, wanted, &mut reply, PIECE_WITHIN) {
            Ok(len) => postcard::from_bytes::<Sent>(reply.get(..len).unwrap_or_default()).ok(),
            // It cannot read what it has.
            Err(LinkError::Refused(errno)) if !is_passing(errno) => return Err(StoreError::Damaged(root_of(volume))),
            Err(error) => {
                tracing::debug!(volume = volume.0, from = %coming.from, %error, "no piece of a volume that comes");
                line = None;
                None
            }
        };
        let Some(Sent { piece, next, next_number, directory }) = sent else {
            std::thread::park_timeout(AGAIN_AFTER);
            continue;
        };
        if pieces == 0 {
            store.namespace().skip_numbers(next_number)?;
        }
        store.take_piece(volume, &piece, clock::wall())?;
        coming.inodes.fetch_add(piece.inodes.len() as u64, Ordering::Relaxed);
        coming.bytes.fetch_add(piece.bytes.map_or(0, |part| part.bytes.len() as u64), Ordering::Relaxed);
        if let Some(directory) = directory {
            return store.finish_volume(volume, &directory);
        }
        cursor = next;
        pieces += 1;
        if pieces.is_multiple_of(PIECES_BETWEEN_NOTES) {
            // A file's bytes are not in the database, which is all that a note puts on stable storage.
            if let PieceCursor::Bytes(ino, 1..) = cursor {
                store.fsync(Ino(ino), false)?;
            }
            note(store, volume, &Note { instruction: coming.instruction.0, cursor: cursor.clone() })?;
        }
    }
}

/// Whether this errno of a server that has a volume may be another one in a moment.
fn is_passing(errno: u32) -> bool {
    let passing = [Errno::CANCELED, Errno::AGAIN, Errno::TIMEDOUT, Errno::NOMEM];
    passing.iter().any(|passing| passing.raw_os_error().unsigned_abs() == errno)
}

/// Where to go on. What lies here of another time goes first.
fn begin(store: &Store, volume: VolumeId, instruction: Version) -> Result<PieceCursor, StoreError> {
    let key = note_key(volume);
    let noted = store.namespace().cluster_records()?.into_iter().find(|(noted, _)| *noted == key);
    let noted = noted.and_then(|(_, value)| postcard::from_bytes::<Note>(&value).ok());
    if let Some(noted) = noted.filter(|noted| noted.instruction == instruction.0) {
        return Ok(noted.cursor);
    }
    store.drop_volume(volume)?;
    let cursor = PieceCursor::BEGIN;
    note(store, volume, &Note { instruction: instruction.0, cursor: cursor.clone() })?;
    Ok(cursor)
}

/// On stable storage, and with it what was taken in before.
fn note(store: &Store, volume: VolumeId, note: &Note) -> Result<(), StoreError> {
    let value = postcard::to_stdvec(note).unwrap_or_default();
    store.namespace().keep_cluster_records([(&note_key(volume)[..], Some(&value[..]))])
}

/// Answers a server that gets a volume of this one.
pub fn give_piece(core: &Core, pending: &Pending, bytes: &[u8]) {
    let sent = WantedPiece::decode(bytes).ok_or(StoreError::Invalid).and_then(|WantedPiece { volume, cursor }| {
        let store = &core.store;
        if !store.namespace().is_closed(volume) {
            return Err(StoreError::Canceled);
        }
        let (piece, next) = store.piece(volume, &cursor)?;
        let directory = if next == PieceCursor::End { Some(store.namespace().volume_record(volume)?) } else { None };
        let sent = Sent { piece, next, next_number: store.namespace().next_number(), directory };
        Ok(postcard::to_stdvec(&sent).unwrap_or_default())
    });
    let seq = pending.header.seq;
    match sent {
        Ok(payload) => core.answer_late(pending, &ReplyHeader::ok(seq, 0, payload.len()), &payload),
        Err(error) => {
            if !is_passing(error.errno()) {
                tracing::error!(%error, "a volume that is to move cannot be read");
            }
            core.answer_late(pending, &ReplyHeader::error(seq, error.errno()), &[]);
        }
    }
}
