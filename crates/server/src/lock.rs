//! Requests for locks: from the header to the table, and its answers as errnos.

use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use crate::locks::{Denied, Family, Lock, Owner, Span};
use crate::proof;
use isonomia_proto::fs::access;
use isonomia_proto::request::{LockReply, ReplyHeader, RequestHeader, lock};
use isonomia_store::StoreError;
use isonomia_units::{Ino, Nanos};
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// How long a server that starts waits for those who had locks. Clients that have something to do find it within a fraction of
/// a second, mounts within one or two.
const CLAIMED_WITHIN: Nanos = Nanos::from_secs(5);
/// The key, among what is kept of the cluster, under which stands that there were locks. The others' are another file's: those of nodes
/// are lower-case letters.
pub const HELD: &[u8] = b"LOCKS";

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
    let (uid, client) = connection.session_key;
    let owner = if has(lock::OPEN_FILE) {
        Owner::File(header.owner)
    } else {
        Owner::Process { uid, client, owner: header.owner }
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
            None if core.locks.waits_for_claims(clock::now()) => Err(number(Errno::BUSY)),
            found => Ok(Some(found.map(told).unwrap_or_default())),
        };
    }
    if gives_up {
        core.locks.release(ino, family, owner, span);
        return Ok(None);
    }
    // The lock goes with the last process that has the open file, so this one must have it.
    if has(lock::OPEN_FILE) && !connection.session.has_reference(ino, header.owner) {
        return Err(number(Errno::STALE));
    }
    let acquired = match has(lock::CLAIMED) {
        true => core.locks.claim(ino, family, wanted, clock::now()),
        false => core.locks.acquire(ino, family, wanted, has(lock::WAITS), clock::now()),
    };
    // If the owner has ended since the checks above, its locks were given up before this one was there: it is given up now.
    match owner {
        Owner::Process { .. } if connection.session.has_ended() => core.locks.release_owners(|other| other == owner),
        Owner::File(number) if !connection.session.has_reference(ino, number) => core.file_closed(ino, number),
        _ => {}
    }
    match acquired {
        Ok(()) => Ok(None),
        Err(Denied::Held) => Err(number(Errno::AGAIN)),
        Err(Denied::Deadlock) => Err(number(Errno::DEADLK)),
        Err(Denied::TooMany) => Err(number(Errno::NOLCK)),
        Err(Denied::Early) => Err(number(Errno::BUSY)),
        Err(Denied::Late) => Err(number(Errno::STALE)),
    }
}

/// To be called when this server begins to serve: if anybody may have had locks when it stopped, it waits for them.
pub fn begin(core: &Core) {
    let may_have_had = core.store.is_recovered() || had_some(core);
    let until = if may_have_had { clock::now() + CLAIMED_WITHIN } else { Nanos::ZERO };
    core.locks.wait_for_claims(until);
}

/// To be called before a stop in order ends sessions: remembers whether anybody has locks. If this process has not begun to
/// serve, those still have theirs who had them at the stop before.
pub fn end(core: &Core) -> Result<(), StoreError> {
    let has_some = match core.locks.has_begun() {
        true => core.locks.are_there_any() || core.locks.waits_for_claims(clock::now()),
        false => core.store.is_recovered() || had_some(core),
    };
    core.store.keep_cluster_records([(HELD, has_some.then_some(&[][..]))])
}

/// Whether it is noted that there were locks; so it is taken to be if that cannot be read.
fn had_some(core: &Core) -> bool {
    let records = core.store.cluster_records().inspect_err(|error| {
        tracing::error!(%error, "it cannot be read whether there were locks");
    });
    records.map_or(true, |records| records.iter().any(|(key, _)| key == HELD))
}

fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

fn told(held: Lock) -> LockReply {
    let Span { start, last } = held.span;
    LockReply {
        start,
        len: if last == u64::MAX { 0 } else { last - start + 1 },
        kind: if held.is_exclusive { lock::EXCLUSIVE } else { lock::SHARED },
        pid: held.pid,
    }
}
