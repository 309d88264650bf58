//! Requests for locks: from the header to the table, and its answers as errnos.

use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use crate::locks::{Denied, Family, Lock, Owner, Span};
use crate::proof;
use isonomia_proto::fs::access;
use isonomia_proto::request::{LockReply, ReplyHeader, RequestHeader, lock};
use isonomia_units::Ino;
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// Serves a request for a lock; `room` is for the reply's payload.
pub fn serve(core: &Core, connection: &Connection, header: &RequestHeader, room: &mut [u8]) -> ReplyHeader {
    match operate(core, connection, header) {
        Ok(None) => ReplyHeader::ok(header.seq, 0, 0),
        Ok(Some(found)) => {
            room[..size_of::<LockReply>()].copy_from_slice(found.as_bytes());
            ReplyHeader::ok(header.seq, 0, size_of::<LockReply>())
        }
        Err(errno) => ReplyHeader::error(header.seq, errno),
    }
}

fn operate(core: &Core, connection: &Connection, header: &RequestHeader) -> Result<Option<LockReply>, u32> {
    let has = |bit| header.valid & bit != 0;
    let session = &connection.session;
    let owner = if has(lock::OPEN_FILE) {
        Owner::File(header.owner)
    } else {
        Owner::Process { session: session.number, owner: header.owner }
    };
    let ino = Ino(header.ino);
    let gives_up = !has(lock::SHARED) && !has(lock::EXCLUSIVE) && !has(lock::TEST);
    let is_allowed = match has(lock::EXCLUSIVE) {
        // A session may always give up what it has locked, also if its process has become another user since.
        _ if gives_up && !has(lock::OPEN_FILE) => Ok(()),
        _ if gives_up => proof::check_access(core, connection, header, 0),
        // As on Linux, asking who has a lock, and locking a file as a whole, takes an open for reading or for writing.
        _ if has(lock::TEST) || has(lock::WHOLE) => proof::check_opened(core, connection, header),
        true => proof::check_access(core, connection, header, access::WRITE),
        false => proof::check_access(core, connection, header, access::READ),
    };
    is_allowed.map_err(|refusal| refusal.errno())?;
    let family = if has(lock::WHOLE) { Family::Whole } else { Family::Ranges };
    let last = match header.ino2 {
        0 => u64::MAX,
        len => header.offset.checked_add(len - 1).ok_or(number(Errno::OVERFLOW))?,
    };
    let span = if has(lock::WHOLE) { Span::ALL } else { Span { start: header.offset, last } };
    let wanted = Lock { owner, span, is_exclusive: has(lock::EXCLUSIVE), user: header.holder, pid: header.uid };
    if has(lock::TEST) {
        return match core.locks.conflict(ino, family, &wanted) {
            None if core.holders.awaits_claims() => Err(number(Errno::BUSY)),
            found => Ok(Some(found.map(told).unwrap_or_default())),
        };
    }
    if gives_up {
        core.locks.release(ino, family, owner, span);
        return Ok(None);
    }
    // The lock goes with the last process that has the open file, so this one must have it.
    if has(lock::OPEN_FILE) && !session.has_reference(ino, header.owner) {
        return Err(number(Errno::STALE));
    }
    let now = clock::now();
    let may_claim = has(lock::CLAIMED) && core.holders.may_claim(session, now);
    core.note_holders(connection, ino, owner);
    let acquired = match has(lock::CLAIMED) {
        true => core.locks.claim(ino, family, wanted, may_claim),
        false => core.locks.acquire(ino, family, wanted, (has(lock::WAITS), core.holders.awaits_claims()), now),
    };
    // If the owner has ended since the checks above, its locks were given up before this one was there: it is given up now.
    match owner {
        Owner::Process { .. } if session.has_ended() => core.session_ended(connection.session_key, session.clone()),
        Owner::File(number) if !session.has_reference(ino, number) => core.file_closed(ino, number),
        _ => {}
    }
    match acquired {
        Ok(()) => Ok(None),
        // Who waits asks again anyway.
        Err(Denied::Conflict) if !has(lock::WAITS) && core.is_given_up_soon(ino, family, &wanted) => {
            Err(number(Errno::BUSY))
        }
        Err(Denied::Conflict) => Err(number(Errno::AGAIN)),
        Err(Denied::Deadlock) => Err(number(Errno::DEADLK)),
        Err(Denied::TooMany) => Err(number(Errno::NOLCK)),
        Err(Denied::Early) => Err(number(Errno::BUSY)),
        Err(Denied::Late) => Err(number(Errno::STALE)),
    }
}

fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

fn told(found: Lock) -> LockReply {
    let Span { start, last } = found.span;
    LockReply {
        start,
        len: if last == u64::MAX { 0 } else { last - start + 1 },
        kind: if found.is_exclusive { lock::EXCLUSIVE } else { lock::SHARED },
        pid: found.pid,
    }
}
