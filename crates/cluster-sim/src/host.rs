//! What a simulated server runs on: its directory, with records and volumes, and the processes that have it.

use crate::doubles::Double;
use crate::files::{Names, Objects};
use crate::model::FileName;
use isonomia_cluster::lineage::{Instance, Past};
use isonomia_cluster::node::{Node, StoreId};
use isonomia_cluster::records::Change;
use isonomia_cluster::request::RequestId;
use isonomia_cluster::volumes::hosted::Work;
use isonomia_cluster::volumes::{Version, VolumeKey};
use isonomia_units::{Nanos, ServerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// errno of a full file system.
pub const ENOSPC: i32 = 28;
/// errno of a directory that is not empty.
pub const ENOTEMPTY: i32 = 39;

/// What one server keeps, whichever process and host has it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Records on stable storage.
    pub records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Volumes with their files, on stable storage.
    pub volumes: BTreeMap<VolumeKey, BTreeSet<FileName>>,
    /// What was fetched so far of a volume that comes, and for which instruction.
    pub incoming: BTreeMap<VolumeKey, (Version, BTreeSet<FileName>)>,
    /// The number of the process that owns it.
    pub instance: u64,
    /// That process's token.
    pub token: u64,
    /// The processes before it.
    pub past: Past,
    /// Other servers refused that process.
    pub is_refused: bool,
    /// When that process said so last.
    pub renewed: Nanos,
    /// The epoch of the newest cluster file that lies here.
    pub epoch: u64,
    /// Making a volume fails.
    pub is_full: bool,
    /// Files.
    pub names: Names,
    /// Objects of files.
    pub objects: Objects,
}

/// A process of a server.
pub struct Process {
    /// Its server.
    pub server: ServerId,
    /// What tells it from all other processes.
    pub token: u64,
    /// What is simulated.
    pub node: Node,
    /// Whether it runs.
    pub state: State,
    /// Stores that are not on stable storage yet.
    pub pending: VecDeque<(StoreId, Vec<Change>)>,
    /// Work that the file system was asked for and has not done yet.
    pub works: Vec<Work>,
    /// Requests without an answer: the client, its attempt, and the deadline in true time.
    pub requests: BTreeMap<RequestId, (usize, u64, Nanos)>,
    /// Those of them that are about files.
    pub file_requests: BTreeSet<RequestId>,
    /// Numbers of requests.
    pub next_request: u64,
    /// When it is going to be woken.
    pub wakes_at: Nanos,
    /// When it started.
    pub started: Nanos,
    /// The highest version of a policy that an operator had been told of then.
    pub acknowledged: u64,
    /// The version of the policy that it follows.
    pub follows: u64,
    /// What its clock shows at the beginning.
    pub clock: Nanos,
    /// How much its clock goes too fast, in millionths.
    pub drift_ppm: i64,
}

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Running,
    /// It is stopped, and will go on.
    Paused,
    /// It has ended.
    Dead,
}

impl Directory {
    /// The file system does `work`.
    pub fn work(&mut self, work: &Work) -> Result<(), i32> {
        match work {
            Work::Make { key, .. } if self.volumes.contains_key(key) => Ok(()),
            Work::Make { .. } if self.is_full => Err(ENOSPC),
            Work::Make { key, .. } => {
                self.volumes.insert(*key, BTreeSet::new());
                Ok(())
            }
            Work::Remove { key } => match self.volumes.get(key) {
                Some(files) if !files.is_empty() => Err(ENOTEMPTY),
                _ => {
                    self.volumes.remove(key);
                    Ok(())
                }
            },
            Work::Drop { key } => {
                self.volumes.remove(key);
                self.incoming.remove(key);
                Ok(())
            }
            // What it takes lies with the processes: `moves` does it.
            Work::Freeze { .. } | Work::Fetch { .. } => Ok(()),
        }
    }

    /// Brings `changes` to stable storage.
    pub fn store(&mut self, changes: &[Change], double: Double) {
        for change in changes.iter().filter(|change| double.keeps(change)) {
            match &change.value {
                Some(value) => _ = self.records.insert(change.key.clone(), value.clone()),
                None => _ = self.records.remove(&change.key),
            }
        }
    }

    /// A process with this token begins.
    pub fn claim(&mut self, token: u64) -> Instance {
        if !std::mem::take(&mut self.is_refused) {
            if self.instance > 0 {
                self.past.listed.push(Instance { number: self.instance, token: self.token });
            }
            self.instance += 1;
        }
        self.token = token;
        Instance { number: self.instance, token }
    }

    /// All records, for a process that starts.
    pub fn all_records(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.records.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// What a clock shows at `now` that began with `clock` and goes too fast by `drift_ppm` millionths.
pub fn local_time(clock: Nanos, drift_ppm: i64, now: Nanos) -> Nanos {
    let gained = i128::from(now.0) * i128::from(drift_ppm) / 1_000_000;
    let shown = i128::from(clock.0) + i128::from(now.0) + gained;
    Nanos(u64::try_from(shown).unwrap_or(u64::MAX))
}

impl Process {
    /// What its clock shows at `now`.
    pub fn local(&self, now: Nanos) -> Nanos {
        local_time(self.clock, self.drift_ppm, now)
    }

    /// When its clock shows `local`, or a moment later.
    pub fn global(&self, local: Nanos) -> Nanos {
        let since = i128::from(local.0) - i128::from(self.clock.0);
        let now = since * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm)) + 1;
        Nanos(u64::try_from(now.max(0)).unwrap_or(u64::MAX))
    }
}
