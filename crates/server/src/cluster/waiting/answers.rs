//! What becomes of a request that was left to the cluster's thread.

use super::{Requests, Waiting};
use crate::clock;
use crate::cluster::wire::Verdict;
use crate::connection::Pending;
use crate::core::Core;
use isonomia_cluster::request::RequestId;
use isonomia_cluster::volumes::Attributes;
use isonomia_proto::fs::{Attr, Capability, FileKind};
use isonomia_proto::request::ReplyHeader;
use isonomia_store::{Store, root_of};
use isonomia_units::{Nanos, VolumeId};
use rustix::io::Errno;
use zerocopy::IntoBytes;

impl Requests<Pending> {
    /// Answers a request with what became of it, if nobody has.
    pub fn answer(&self, core: &Core, id: RequestId, verdict: &Verdict) {
        let Some(Waiting { pending, is_peer, made, .. }) = self.take(id) else { return };
        forget(&core.store, made.as_ref());
        let seq = pending.header.seq;
        let payload = match (verdict, &made) {
            _ if is_peer => verdict.encode(),
            (Verdict::Volume(volume), Some((_, attributes))) => node_of(*volume, attributes),
            (Verdict::Done | Verdict::Volume(_) | Verdict::PolicySet(_), _) => Vec::new(),
            (Verdict::Failed(errno), _) => return core.answer_late(&pending, &ReplyHeader::error(seq, *errno), &[]),
        };
        core.answer_late(&pending, &ReplyHeader::ok(seq, 0, payload.len()), &payload);
    }

    /// Tells another server that its message came, if it has not been told.
    pub fn confirm(&self, core: &Core, id: RequestId) {
        if let Some(Waiting { pending, .. }) = self.take(id) {
            core.answer_late(&pending, &ReplyHeader::ok(pending.header.seq, 0, 0), &[]);
        }
    }

    /// Ends a request with an error, if it has no answer.
    pub fn fail(&self, core: &Core, id: RequestId, errno: Errno) {
        if let Some(waiting) = self.take(id) {
            refuse(core, &waiting, errno);
        }
    }

    /// Ends all whose time is over by `now`.
    pub fn expire(&self, core: &Core, now: Nanos) {
        while let Some(waiting) = self.take_late(now) {
            refuse(core, &waiting, Errno::TIMEDOUT);
        }
    }
}

/// Ends a request that is not kept any more.
pub fn refuse(core: &Core, waiting: &Waiting<Pending>, errno: Errno) {
    forget(&core.store, waiting.made.as_ref());
    let (pending, number) = (&waiting.pending, errno.raw_os_error().unsigned_abs());
    core.answer_late(pending, &ReplyHeader::error(pending.header.seq, number), &[]);
}

/// The name is a volume's by now, or it is free.
fn forget(store: &Store, made: Option<&(Box<[u8]>, Attributes)>) {
    if let Some((name, _)) = made {
        store.namespace().forget_new_name(name);
    }
}

/// What a client is told of a volume that was made.
fn node_of(volume: VolumeId, attributes: &Attributes) -> Vec<u8> {
    let (ino, now) = (root_of(volume), clock::wall());
    let attr = Attr {
        ino: ino.0,
        mode: FileKind::Directory.mode_bits() | attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        nlink: 2,
        atime: now,
        mtime: now,
        ctime: now,
        ..Attr::default()
    };
    // Its own server makes out the proof to who comes there.
    [attr.as_bytes(), Capability::unproven(ino).as_bytes()].concat()
}
