//! Simulated clients: each does one operation after the other on a few names, follows referrals, and gives up in time.

use crate::model::{Asked, FileName, Got, Name};
use isonomia_cluster::request::{Refusal, RenameHow};
use isonomia_cluster::volumes::{VolumeKey, VolumeName};
use isonomia_units::{Nanos, ServerId};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// Names that clients use at most.
pub const NAMES: Name = 4;
/// Files that clients put into a volume.
pub const FILES: FileName = 2;
/// How long a client waits for an operation.
pub const PATIENCE: Nanos = Nanos::from_secs(3);
/// How long it waits before it asks once more what may be asked twice.
pub const AGAIN_AFTER: Nanos = Nanos::from_millis(400);
/// How many referrals it follows for one operation.
pub const REFERRALS_MAX: u32 = 8;

/// A client.
#[derive(Debug, Default)]
pub struct Client {
    /// What it is doing.
    pub current: Option<Current>,
    /// Operations that it will still begin.
    pub left: u32,
    /// Attempts that it made, of all operations.
    pub attempts: u64,
    /// Volumes that it has heard of, and who had them.
    pub seen: BTreeMap<VolumeKey, ServerId>,
}

/// An operation that has not returned.
#[derive(Clone, Debug)]
pub struct Current {
    /// Its position in the history.
    pub index: usize,
    /// What is asked.
    pub asked: Asked,
    /// When the client gives up.
    pub deadline: Nanos,
    /// The last attempt.
    pub attempt: u64,
    /// Who is asked.
    pub server: ServerId,
    /// Referrals that were followed.
    pub referrals: u32,
}

/// What a server says to a client.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// The operation's result.
    Got(Got),
    /// A volume, and who has it.
    Volume(VolumeKey, ServerId),
    /// It was not done.
    Refused(Refusal),
}

/// The name in the root that `name` stands for.
pub fn volume_name(name: Name) -> VolumeName {
    VolumeName::try_from(&[b'a' + name][..]).expect("a letter is a name")
}

/// Whether asking twice does no harm.
pub fn may_repeat(asked: &Asked) -> bool {
    matches!(asked, Asked::LookUp(_) | Asked::WhereIs(_))
}

impl Client {
    /// What to do next.
    pub fn choose(&self, names: Name, rng: &mut Pcg64) -> Asked {
        let name = rng.random_range(0..names);
        let other = rng.random_range(0..names);
        let volume = match self.seen.len() {
            0 => None,
            // The latest ones are the likeliest to be there.
            count => self.seen.keys().nth(count - 1 - rng.random_range(0..count.min(3))).copied(),
        };
        let file = rng.random_range(0..FILES);
        match (rng.random_range(0..100), volume) {
            (0..28, _) => Asked::Make(name),
            (28..46, _) => Asked::Remove(name),
            (46..50, _) => Asked::Move(name),
            (50..60, _) => {
                let how = [RenameHow::Replace, RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange];
                Asked::Rename(name, other, how[rng.random_range(0..how.len())])
            }
            (60..72, Some(volume)) => Asked::Put(volume, file),
            (72..80, Some(volume)) => Asked::Delete(volume, file),
            (80..85, Some(volume)) => Asked::WhereIs(volume),
            _ => Asked::LookUp(name),
        }
    }
}
