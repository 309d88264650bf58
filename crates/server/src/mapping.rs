//! Requests for mappings: from the header to the table, and to the sessions that are to hear of it.

use crate::clock;
use crate::connection::Connection;
use crate::connection::Pending;
use crate::core::Core;
use crate::mappings::{Delivery, NotHolder, Pinned, SessionId, TooMany};
use crate::proof;
use isonomia_proto::fs::access;
use isonomia_proto::mapping::{HAD, LeaseEvents};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader, flag};
use isonomia_units::{Ino, Nanos};
use rustix::io::Errno;

/// The longest wait for events.
const LISTEN_MAX: Nanos = Nanos::from_secs(10);

/// Serves a request to take or give back a mapping; `room` is for the reply's payload.
pub fn serve(core: &Core, connection: &Connection, header: &RequestHeader, room: &mut [u8]) -> ReplyHeader {
    let (session, ino) = (session_of(connection), Ino(header.ino));
    if header.op == Op::GiveMapping as u16 {
        core.mappings.give(session, ino).into_iter().for_each(|told| answer(core, told));
        return ReplyHeader::ok(header.seq, 0, 0);
    }
    if let Err(refusal) = proof::check_access(core, connection, header, access::WRITE) {
        return ReplyHeader::error(header.seq, refusal.errno());
    }
    let claims_it = header.valid & HAD != 0;
    match (claims_it, core.holders.awaits_claims()) {
        (false, true) => return ReplyHeader::error(header.seq, number(Errno::AGAIN)),
        // Another may have had it since, and given it back.
        (true, waits) if !waits || !core.holders.may_claim(&connection.session, clock::now()) => {
            return match core.mappings.number_of_holder(session, ino) {
                Some(session) => taken(header, true, session, room),
                None => ReplyHeader::error(header.seq, number(Errno::STALE)),
            };
        }
        _ => {}
    }
    core.holders.note(&core.store, connection.session_key, &connection.session);
    match core.mappings.take(session, ino) {
        Ok((is_holder, session, told)) => {
            told.into_iter().for_each(|told| answer(core, told));
            if connection.session.has_ended() {
                core.session_ended(connection.session_key, connection.session.clone());
            }
            taken(header, is_holder, session, room)
        }
        Err(TooMany) => ReplyHeader::error(header.seq, number(Errno::NOLCK)),
    }
}

/// A process that comes back is another session: what is still to be taken from the one before is not its own.
pub fn session_of(connection: &Connection) -> SessionId {
    (connection.session_key.0, connection.session.number)
}

fn taken(header: &RequestHeader, is_holder: bool, session: u64, room: &mut [u8]) -> ReplyHeader {
    let events = LeaseEvents { session, ..LeaseEvents::default() }.encode();
    room[..events.len()].copy_from_slice(&events);
    ReplyHeader::ok(header.seq, u64::from(is_holder), events.len())
}

fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// Holds the mapping for the write of `header` if that is a write-back, or says why it is not to be executed: whoever had
/// the mapping once would write what is old over what its holder wrote since.
pub fn pin_to_write_back<'a>(core: &'a Core, header: &RequestHeader) -> Result<Option<Pinned<'a>>, Errno> {
    if header.flags & flag::WRITE_BACK == 0 {
        return Ok(None);
    }
    match core.mappings.pin(header.ino2, Ino(header.ino)) {
        Ok(pinned) => Ok(Some(pinned)),
        Err(NotHolder::Nobody) => Err(Errno::AGAIN),
        Err(NotHolder::Elsewhere) => Err(Errno::IO),
    }
}

/// Keeps a request for lease events until there is one.
pub fn listen(core: &Core, pending: Pending) {
    let (session, header) = (session_of(&pending.connection), pending.header);
    let now = clock::now();
    let until = now + Nanos(header.ino2).min(LISTEN_MAX);
    // Whoever got nothing so far asks again then.
    let until = core.holders.opens_at(now).map_or(until, |at| until.min(at));
    core.mappings.listen(session, header.offset, until, pending).into_iter().for_each(|told| answer(core, told));
}

/// Answers a session that listens.
pub fn answer(core: &Core, told: Delivery<Pending>) {
    let seq = told.listener.header.seq;
    match told.events {
        Some(events) => {
            let (version, payload) = (events.version, events.encode());
            core.answer_late(&told.listener, &ReplyHeader::ok(seq, version, payload.len()), &payload);
        }
        None => {
            core.answer_late(&told.listener, &ReplyHeader::error(seq, number(Errno::AGAIN)), &[]);
        }
    }
}
