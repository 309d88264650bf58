//! Places the new files of all jobs of a server, by whichever [`Placement`] is asked for.
//!
//! Each job has a [`Balancer`] of its own, which counts its files for as long as they are open: what a job wrote an hour ago is
//! no reason to write elsewhere now. Of other jobs it knows the [`Room`] that they leave.

use crate::balancer::{Balancer, Weights};
use crate::hashed::hashed_targets;
use crate::room::Room;
use crate::topology::{Path, Topology, Zone};
use crate::unbalanced::{RoundRobin, Step, random_targets, stripes_from};
use isonomia_units::{JobId, Placement, TargetId};
use rand::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Open files that are counted; of more, the oldest are not any more.
pub const FILES_MAX: usize = 1 << 16;
/// Jobs whose files are counted; of more, some are forgotten that have none, or else the one of the lowest number.
pub const JOBS_MAX: usize = 1 << 10;

/// A file that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// What it is known by, and is hashed.
    pub number: u64,
    /// Whose it is.
    pub job: JobId,
    /// On how many targets it is to lie; fewer, if there are fewer.
    pub stripes: usize,
    /// Those that it may lie on, in the order of the round, if it may not lie on all.
    pub among: Option<&'a [TargetId]>,
}

/// See the module.
#[derive(Debug)]
pub struct Placer {
    topology: Arc<Topology>,
    round: RoundRobin,
    jobs: BTreeMap<JobId, Placing>,
    /// Oldest first.
    files: VecDeque<Placed>,
}

/// A job's files.
#[derive(Debug)]
struct Placing {
    balancer: Balancer,
    /// Which knowledge of others its rooms are of.
    version: u64,
    open: usize,
}

#[derive(Debug)]
struct Placed {
    number: u64,
    job: JobId,
    paths: Vec<Path>,
    /// It was closed when that was looked at last, or not yet open.
    was_closed: bool,
}

impl Placer {
    /// One that has placed nothing, on these targets.
    pub fn new(topology: Arc<Topology>) -> Self {
        let round = RoundRobin::starting_at(0, Step::File);
        Self { topology, round, jobs: BTreeMap::new(), files: VecDeque::new() }
    }

    /// The targets and servers that it knows.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// There are other targets now. What was placed is forgotten, but not which target is next.
    pub fn replace(&mut self, topology: Arc<Topology>) {
        self.topology = topology;
        self.jobs.clear();
        self.files.clear();
    }

    /// What others leave to `job`, unless it was told in this `version` of what is known already. `room` is asked for every
    /// target.
    pub fn tell_room<F: Fn(TargetId) -> Room>(&mut self, job: JobId, version: u64, room: impl FnOnce() -> F) {
        let placing = self.placing(job);
        if placing.version != version {
            placing.version = version;
            placing.balancer.tell_room(room());
        }
    }

    /// The targets of a new file in the order of its stripes; none if it may lie on none. O(n t) for n stripes and t targets.
    pub fn place(&mut self, placement: Placement, file: &NewFile<'_>, generator: &mut impl Rng) -> Vec<TargetId> {
        let NewFile { number, job, .. } = *file;
        let topology = self.topology.clone();
        let among = file.among.unwrap_or(topology.targets());
        let stripes = file.stripes.min(among.len());
        if stripes == 0 {
            return Vec::new();
        }
        match placement {
            Placement::Volume | Placement::RoundRobin => {
                stripes_from(among, self.round.first(among.len(), stripes), stripes).collect()
            }
            Placement::Hash => hashed_targets(among, stripes, number),
            // There are enough.
            Placement::Random => random_targets(among, stripes, generator).unwrap_or_default(),
            Placement::Balanced => {
                // Where all is equal, the round says which target is the first.
                let first = among[self.round.first(among.len(), stripes)];
                let placing = self.placing(job);
                placing.balancer.begin_at(first);
                let paths = placing.balancer.place_among(&vec![Zone(0); stripes], file.among);
                placing.open += 1;
                let targets = paths.iter().map(|path| path.target).collect();
                if self.files.len() == FILES_MAX
                    && let Some(oldest) = self.files.pop_front()
                {
                    self.close(oldest.job, &oldest.paths);
                }
                self.files.push_back(Placed { number, job, paths, was_closed: false });
                targets
            }
        }
    }

    /// Stops counting files that are not open any more, the second time that they are not: a file is placed before it is opened.
    /// O(files), of which there are [`FILES_MAX`] at most.
    pub fn forget_closed(&mut self, is_open: impl Fn(u64) -> bool) {
        let mut closed = Vec::new();
        self.files.retain_mut(|file| {
            let was_closed = std::mem::replace(&mut file.was_closed, !is_open(file.number));
            let stays = !(was_closed && file.was_closed);
            if !stays {
                closed.push((file.job, std::mem::take(&mut file.paths)));
            }
            stays
        });
        closed.iter().for_each(|(job, paths)| self.close(*job, paths));
    }

    /// How many streams of `job` are counted at `target`.
    pub fn uses(&self, job: JobId, target: TargetId) -> u32 {
        self.jobs.get(&job).and_then(|placing| placing.balancer.uses(target)).unwrap_or(0)
    }

    /// How many open files are counted.
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    fn close(&mut self, job: JobId, paths: &[Path]) {
        if let Some(placing) = self.jobs.get_mut(&job) {
            placing.open = placing.open.saturating_sub(1);
            placing.balancer.release(paths);
        }
    }

    fn placing(&mut self, job: JobId) -> &mut Placing {
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(&job) {
            self.jobs.retain(|_, placing| placing.open > 0);
            if self.jobs.len() >= JOBS_MAX
                && let Some((lost, _)) = self.jobs.pop_first()
            {
                self.files.retain(|file| file.job != lost);
            }
        }
        let topology = &self.topology;
        self.jobs.entry(job).or_insert_with(|| Placing {
            balancer: Balancer::new(topology.clone(), Weights::EQUAL, 0),
            version: 0,
            open: 0,
        })
    }
}
