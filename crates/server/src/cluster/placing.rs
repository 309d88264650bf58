//! Where new files of this server's volumes go: drives [`isonomia_placement::Placer`] with the cluster file, what servers tell each
//! other of their targets, and what programs say of a file that they make.
//!
//! The layout of a file is chosen while its name is made, under the lock of the namespace: nothing here waits for anything.
//! What others leave of each target is put together by the thread `exchange`, once an interval, as long as somebody wants
//! to know.

use super::striping;
use isonomia_cluster::Map;
use isonomia_cluster::map::{Epoch, Server};
use isonomia_placement::{NewFile, Placer, Room, RouterId, SharedLayout, Topology};
use isonomia_policy::exchange::Left;
use isonomia_proto::control::PlacementTarget;
use isonomia_proto::fs::Layout;
use isonomia_proto::hint::OpenHint;
use isonomia_proto::striping::Striping;
use isonomia_store::Creator;
use isonomia_units::{Bytes, Ino, JobId, JobInfo, Placement, ServerId, TargetId};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stripes of shared files of a known size are a multiple of this: no two writers of neighbouring stripes then share a page.
const STRIPE_UNIT: NonZeroU64 = NonZeroU64::new(Layout::STRIPE_ALIGN_BYTES).expect("it is not zero");

/// Nothing was said.
const UNSAID: u8 = u8::MAX;

/// See the module.
#[derive(Debug)]
pub struct Placing {
    /// What the cluster file says, by where it stands in [`Placement::ALL`].
    default: AtomicU8,
    /// The same of what an operator says; [`UNSAID`] if none does.
    said: AtomicU8,
    /// Somebody wanted to know what others leave, since that was looked at last.
    is_wanted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Of the cluster file that it was made of; nothing without any target.
    placer: Option<(Epoch, Placer)>,
    /// Of placements at random.
    generator: Pcg64Mcg,
    known: Known,
    /// Counts how often that changed.
    version: u64,
}

/// What is known of targets.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Who the jobs of this server are.
    pub jobs: HashMap<JobId, Arc<JobInfo>>,
    /// What jobs leave of them.
    pub left: Left,
    /// What is free on those of each server, in the order of its list; of those that are not there nothing is known.
    pub free_bytes: BTreeMap<ServerId, Vec<u64>>,
    /// Servers that should have been heard of by now, and were not.
    pub silent: Vec<ServerId>,
}

/// What a file is to be like, before its targets are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    stripes: usize,
    stripe_bytes: u64,
    grows: bool,
}

impl Placing {
    /// As the cluster file says, knowing nothing of others. `seed` is of placements at random.
    pub fn new(map: &Map, seed: u128) -> Self {
        let state = State { placer: None, generator: Pcg64Mcg::new(seed), known: Known::default(), version: 1 };
        Self {
            default: AtomicU8::new(code(map.placement())),
            said: AtomicU8::new(UNSAID),
            is_wanted: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How targets are chosen where no directory says otherwise.
    pub fn placement(&self) -> Placement {
        let said = Placement::ALL.get(usize::from(self.said.load(Ordering::Relaxed)));
        *said.unwrap_or(&Placement::ALL[usize::from(self.default.load(Ordering::Relaxed))])
    }

    /// Whether an operator has said so.
    pub fn is_said(&self) -> bool {
        self.said.load(Ordering::Relaxed) != UNSAID
    }

    /// An operator has them chosen like this, or as the cluster file says.
    pub fn set(&self, placement: Option<Placement>) {
        self.said.store(placement.map_or(UNSAID, code), Ordering::Relaxed);
    }

    /// The cluster file says this now.
    pub fn set_default(&self, placement: Placement) {
        self.default.store(code(placement), Ordering::Relaxed);
    }

    /// Whether what others leave is wanted. To be asked each time before it is looked at.
    pub fn wants_to_know(&self) -> bool {
        self.is_wanted.swap(false, Ordering::Relaxed) || self.placement() == Placement::Balanced
    }

    /// This is known now.
    pub fn learn(&self, known: Known) {
        let mut state = self.lock();
        state.known = known;
        state.version += 1;
    }

    /// What is known of each target, and would decide where a file of a new job goes; and how many open files are counted.
    pub fn known(&self, map: &Map) -> (Vec<PlacementTarget>, usize) {
        self.is_wanted.store(true, Ordering::Relaxed);
        let state = self.lock();
        let known = &state.known;
        let of_server = |server: &Server| {
            let name = server.name.to_string();
            let is_known = known.left.knows(server.number);
            let is_silent = known.silent.contains(&server.number);
            let free = known.free_bytes.get(&server.number).cloned().unwrap_or_default();
            let targets = server.targets.iter().enumerate().map(|(index, target)| PlacementTarget {
                target: target.id.0,
                server: name.clone(),
                left: is_known.then(|| known.left.of(server.number, index, None)),
                free_bytes: free.get(index).copied(),
                is_silent,
                is_retired: server.retired || target.retired,
            });
            targets.collect::<Vec<_>>()
        };
        let open = state.placer.as_ref().map_or(0, |(_, placer)| placer.open_files());
        (map.servers().iter().flat_map(of_server).collect(), open)
    }

    /// Stops counting files that are closed.
    pub fn forget_closed(&self, is_open: impl Fn(Ino) -> bool) {
        if let Some((_, placer)) = &mut self.lock().placer
            && placer.open_files() > 0
        {
            placer.forget_closed(|number| is_open(Ino(number)));
        }
    }

    /// The layout of a new file in a directory that says this of it, if anything; `None` for one on the server of its volume.
    pub fn layout(
        &self,
        map: &Map,
        striping: Option<&Striping>,
        (ino, creator): (Ino, Option<Creator>),
    ) -> Option<Layout> {
        let placement = striping.and_then(|striping| striping.place).unwrap_or_else(|| self.placement());
        let says_nothing = striping
            .is_none_or(|striping| striping.targets.is_empty() && striping.servers.is_empty() && striping.count == 1);
        if says_nothing && placement == Placement::Volume {
            return None;
        }
        let default = Striping::over(1);
        let striping = striping.unwrap_or(&default);
        if !striping.targets.is_empty() {
            let targets = striping::candidates(map, striping).ok()?;
            return Some(Layout { stripe_bytes: striping.stripe_bytes, targets, grows: striping.grows });
        }
        let mut state = self.lock();
        let state = &mut *state;
        if state.placer.as_ref().is_none_or(|(epoch, _)| *epoch != map.epoch()) {
            match (&mut state.placer, topology(map)) {
                (Some((epoch, placer)), Some(topology)) => {
                    *epoch = map.epoch();
                    placer.replace(Arc::new(topology));
                }
                (placer, topology) => {
                    *placer = topology.map(|topology| (map.epoch(), Placer::new(Arc::new(topology))));
                }
            }
        }
        let (_, placer) = state.placer.as_mut()?;
        let among = match striping.servers.is_empty() {
            true => None,
            // They may be fewer by now than when it was said.
            false => Some(striping::candidates(map, &Striping { count: 1, ..striping.clone() }).ok()?),
        };
        let there = among.as_ref().map_or(placer.topology().targets().len(), Vec::len);
        let hint = creator.map_or(OpenHint::default(), |creator| creator.hint);
        let Shape { stripes, stripe_bytes, grows } = shape(striping, placement, &hint, there)?;
        // Files that no job creates count as those of one job.
        let job = creator.map_or(JobId(u32::MAX), |creator| creator.job);
        if placement == Placement::Balanced {
            self.is_wanted.store(true, Ordering::Relaxed);
            placer.tell_room(job, state.version, || state.known.rooms(map, job));
        }
        let file = NewFile { number: ino.0, job, stripes, among: among.as_deref() };
        let targets = placer.place(placement, &file, &mut state.generator);
        (!targets.is_empty()).then_some(Layout { stripe_bytes, targets, grows })
    }
}

impl Known {
    /// What `job` may expect of each target.
    fn rooms<'a>(&'a self, map: &'a Map, job: JobId) -> impl Fn(TargetId) -> Room + use<'a> {
        let job = self.jobs.get(&job).map(|job| &**job);
        let free =
            |server: ServerId, index: usize| self.free_bytes.get(&server).and_then(|free| free.get(index)).copied();
        let most = self.free_bytes.values().flatten().copied().max().unwrap_or(0);
        let per_server = usize::from(map.targets_per_server());
        move |target| {
            let Some((server, _)) = map.target(target) else { return Room::NONE };
            if self.silent.contains(&server.number) {
                return Room::NONE;
            }
            let index = usize::from(target.0) % per_server;
            // What is not known is as good as the best.
            let free = free(server.number, index).unwrap_or(most.max(1));
            Room::new(self.left.of(server.number, index, job), free, most)
        }
    }
}

/// Where a placement stands in [`Placement::ALL`].
fn code(placement: Placement) -> u8 {
    Placement::ALL.iter().position(|one| *one == placement).unwrap_or(0) as u8
}

/// All targets that new files may get, with the routers to their servers. There is one zone, because it is not known where clients
/// are.
fn topology(map: &Map) -> Option<Topology> {
    let servers = || map.servers().iter().filter(|server| !server.retired);
    let targets = servers().flat_map(|server| {
        server.targets.iter().filter(|target| !target.retired).map(|target| (target.id, server.number))
    });
    let targets: Vec<(TargetId, ServerId)> = targets.collect();
    let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
    for router in servers().filter_map(|server| server.router.as_deref()) {
        let next = numbers.len() as u16;
        numbers.entry(router).or_insert(next);
    }
    if numbers.is_empty() {
        return Topology::direct(targets).ok();
    }
    // A server behind no router is as one with a router of its own.
    let mut next = numbers.len() as u16;
    let mut routers = BTreeMap::new();
    for server in servers().filter(|server| targets.iter().any(|(_, of)| *of == server.number)) {
        let number = server.router.as_deref().and_then(|router| numbers.get(router).copied()).unwrap_or_else(|| {
            next = next.saturating_add(1);
            next - 1
        });
        routers.insert(server.number, RouterId(number));
    }
    Topology::routed(targets, &[routers]).ok()
}

/// What a file is to be like: as its directory says; where that leaves a file on one target, a file that several processes write
/// together has a stripe for each of them (TAPP-IO §III.A, Algorithm 1). `None` if it says what cannot be.
fn shape(striping: &Striping, placement: Placement, hint: &OpenHint, targets: usize) -> Option<Shape> {
    let said = Shape { stripes: striping.count, stripe_bytes: striping.stripe_bytes, grows: striping.grows };
    if placement == Placement::Volume || striping.count > 1 || !hint.shared {
        return Some(said);
    }
    let (Some(writers), Ok(most)) = (NonZeroU32::new(hint.ranks), u32::try_from(targets.min(Layout::TARGETS_MAX)))
    else {
        return Some(said);
    };
    let most = NonZeroU32::new(most)?;
    if hint.expected_bytes == 0 {
        // The size of its parts is not known: the file is on one target while it is small.
        return Some(Shape { stripes: writers.min(most).get() as usize, grows: true, ..said });
    }
    let shared = SharedLayout::new(Bytes(hint.expected_bytes), writers, most, STRIPE_UNIT);
    let stripe_bytes = shared.stripe_size.0.min(isonomia_proto::striping::STRIPE_BYTES_MAX);
    Some(Shape { stripes: shared.stripe_count.get() as usize, stripe_bytes, grows: false })
}
