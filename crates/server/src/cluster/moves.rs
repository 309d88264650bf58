//! Volumes that come and go, as all threads see them: [`super::moving`] has what is done with them.

use super::wire::Verdict;
use isonomia_cluster::volumes::Version;
use isonomia_proto::control::MoveStatus;
use isonomia_units::{Nanos, ServerId, VolumeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far it is with a volume that comes.
#[derive(Debug)]
pub(super) struct Coming {
    pub instruction: Version,
    pub from: ServerId,
    /// The table still says so.
    pub is_wanted: AtomicBool,
    pub inodes: AtomicU64,
    pub bytes: AtomicU64,
}

/// The volumes that come to this server, and all that are on their way, for operators.
#[derive(Debug, Default)]
pub struct Moves {
    coming: Mutex<HashMap<VolumeId, Arc<Coming>>>,
    /// Of each volume the server that it leaves, and the one that it goes to.
    pub(super) all: Mutex<HashMap<VolumeId, (ServerId, ServerId)>>,
    /// What the root server was asked for operators, by the numbers of their wishes, and when they looked for an answer last.
    pub(super) asked: Mutex<HashMap<u64, (Nanos, Receiver<Verdict>)>>,
}

impl Moves {
    pub(super) fn coming(&self) -> MutexGuard<'_, HashMap<VolumeId, Arc<Coming>>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a volume goes that is on its way.
    pub fn of(&self, volume: VolumeId) -> Option<(ServerId, ServerId)> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(&volume).copied()
    }

    /// What operators are told of volumes that come here.
    pub fn status(&self) -> Vec<MoveStatus> {
        let of = |(volume, coming): (&VolumeId, &Arc<Coming>)| MoveStatus {
            number: volume.0,
            from: coming.from.0,
            inodes: coming.inodes.load(Ordering::Relaxed),
            bytes: coming.bytes.load(Ordering::Relaxed),
        };
        let mut moves: Vec<MoveStatus> = self.coming().iter().map(of).collect();
        moves.sort_unstable_by_key(|status| status.number);
        moves
    }
}

/// Whether a record of the cluster is one of a volume that comes.
pub fn is_note(key: &[u8]) -> bool {
    key.first() == Some(&b'M')
}

/// The key of what is remembered of a volume that comes.
pub(super) fn note_key(volume: VolumeId) -> [u8; 3] {
    let [high, low] = volume.0.to_be_bytes();
    [b'M', high, low]
}
