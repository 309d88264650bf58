//! Objects of spread files: what this server, as the server of their volume, has data servers do with them; and what it does itself,
//! as a data server, for others.
//!
//! [`isonomia_cluster::objects`] decides which server is told what. All of it waits for the storage, so a thread of its own,
//! `objects`, does it ([`Worker`]) and tells the thread that has the node ([`super::Driver`]) what came of it. Tasks beyond
//! [`TASKS_MAX`] are dropped: whoever gave them gives them again.

use super::capabilities::{now_secs, valid_until_secs};
use super::inspection::{Inspector, id_of};
use super::membership::{Done, Event};
use crate::clock;
use crate::core::Core;
use isonomia_cluster::counting::{self, Act, Places, Report, Wanted};
use isonomia_cluster::node::{Effect, Input};
use isonomia_cluster::objects::{Intent, ObjectsId, Order, PARTS_MAX, Part, What};
use isonomia_cluster::request::RequestId;
use isonomia_proto::object::server_of;
use isonomia_store::checksum::ObjectId;
use isonomia_store::{Cut, ObjectPlace, SpreadObjects, StoreError};
use isonomia_units::{Ino, Nanos, ServerId, TargetId};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// What waits for the thread at most.
const TASKS_MAX: usize = 1_024;
/// How often it looks for what is to be removed, and for cuts that are not done.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);
/// The longest wait for a task, so that the end of the server is noticed.
const WAIT_MAX: Nanos = Nanos::from_millis(200);
/// Files whose objects are looked for at once, of those that are to be removed.
const REMOVED_AT_ONCE_MAX: usize = 256;
/// Files that are begun to be cut at once, of those that have lost writers.
const LOOSE_AT_ONCE_MAX: usize = 256;
/// Between two cuts of files that have lost writers: any writer may say so of a file as often as he likes.
const LOOSE_EVERY: Nanos = Nanos::from_millis(20);
/// Between the end of one pass over this server's objects and the beginning of the next.
const PASS_EVERY: Nanos = Nanos::from_secs(5);
/// Objects of which a pass asks every [`LOOK_EVERY`] whether anybody wants them.
const ASKED_AT_ONCE_MAX: usize = 64;

/// What the thread is to do.
pub(super) enum Task {
    /// Do this for a volume server.
    Serve { from: ServerId, order: Order },
    /// Begin to cut a file for a request.
    Cut { id: RequestId, ino: Ino, size_bytes: u64 },
    /// All data servers have done this.
    Close { objects: ObjectsId, what: What, highest: u64 },
    /// Which of these does nobody want?
    Look { asker: ServerId, objects: Vec<ObjectsId> },
    /// Nobody wants these.
    Remove { objects: Vec<ObjectsId> },
    /// Begin to cut files that have lost writers.
    CutLoose,
    /// Count what files take, or keep what was counted.
    Counting(Act),
}

/// What the driver has of it.
pub struct Objects {
    pub(super) tasks: SyncSender<Task>,
    /// Requests that wait for a cut.
    pub(super) waiting: HashSet<RequestId>,
    pub(super) worker: Option<Worker>,
}

/// The thread.
pub struct Worker {
    core: Arc<Core>,
    targets_per_server: u16,
    tasks: Receiver<Task>,
    events: SyncSender<Event>,
    /// Up to where this server's objects have been asked about, in this pass.
    asked: Option<ObjectPlace>,
    /// When the next pass begins.
    pass_at: Nanos,
    /// Up to where those of removed files have been looked for.
    removed: Option<SpreadObjects>,
    /// Files have lost writers since it was looked for them.
    is_loose: bool,
    /// When they may be cut.
    loose_at: Nanos,
    inspector: Inspector,
}

impl Objects {
    /// What a driver has, and within it the thread's part until that is taken.
    pub(super) fn new(core: Arc<Core>, targets_per_server: u16, events: SyncSender<Event>) -> Self {
        let (sender, tasks) = sync_channel(TASKS_MAX);
        let inspector = Inspector::default();
        let (asked, pass_at, removed) = (None, Nanos::ZERO, None);
        let (is_loose, loose_at) = (false, Nanos::ZERO);
        let worker =
            Worker { core, targets_per_server, tasks, events, asked, pass_at, removed, is_loose, loose_at, inspector };
        Self { tasks: sender, waiting: HashSet::new(), worker: Some(worker) }
    }

    /// Does what the node wants of objects.
    pub(super) fn act(&self, effect: Effect) {
        let task = match effect {
            Effect::CloseIntent { objects, what, highest } => Task::Close { objects, what, highest },
            Effect::Serve { from, order } => Task::Serve { from, order },
            Effect::LookWanted { asker, objects } => Task::Look { asker, objects },
            Effect::RemoveUnwanted { objects } => Task::Remove { objects },
            _ => return,
        };
        // The node says again what there is no room for.
        let _ = self.tasks.try_send(task);
    }

    /// Counts what files take.
    pub(super) fn count(&self, act: Act) {
        // What there is no room for is asked for again.
        let _ = self.tasks.try_send(Task::Counting(act));
    }

    /// Has files cut that have lost writers.
    pub(super) fn cut_loose(&self) {
        // Without room they are found when the thread looks.
        let _ = self.tasks.try_send(Task::CutLoose);
    }
}

impl Worker {
    /// Works until the server stops.
    pub fn run(&mut self) {
        let mut look_at = clock::now();
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let now = clock::now();
            let inspect_in = self.inspector.rests_until().since(now);
            let loose_in = if self.is_loose { self.loose_at.since(now) } else { WAIT_MAX };
            let inspect_in = if inspect_in > Nanos::ZERO { inspect_in } else { WAIT_MAX };
            let wait = look_at.since(now).min(inspect_in).min(loose_in).min(WAIT_MAX);
            let done = match self.tasks.recv_timeout(Duration::from_nanos(wait.0)) {
                Ok(task) => self.work(task),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.tell(done);
            if self.is_loose && clock::now() >= self.loose_at {
                let done = self.cut_loose();
                self.tell(done);
            }
            let core = &self.core;
            let looked = core.cluster.get().map(|cluster| self.inspector.step(&cluster.inspection, &core.store));
            match looked.transpose() {
                Ok(input) => self.tell(input.flatten().map(Done::Heard).into_iter().collect()),
                Err(error) => tracing::error!(%error, "objects cannot be looked at"),
            }
            if clock::now() >= look_at {
                let done = self.look();
                self.tell(done);
                look_at = clock::now() + LOOK_EVERY;
            }
        }
    }

    fn tell(&self, done: Vec<Done>) {
        for done in done {
            // It fails only when the server stops.
            let _ = self.events.send(Event::Objects(done));
        }
    }

    fn work(&mut self, task: Task) -> Vec<Done> {
        let now = clock::wall();
        match task {
            Task::Serve { from, order } => {
                let (objects, what) = (order.objects, order.what);
                let result = self.serve(&order).map_err(|error| error.errno() as i32);
                vec![Done::Heard(Input::Served { from, objects, what, result })]
            }
            Task::Cut { id, ino, size_bytes } => {
                let store = &self.core.store;
                // The volume may have begun to move since the request was looked at.
                let _passage = store.namespace().passage();
                vec![match store.namespace().check_is_here(ino).and_then(|()| store.begin_cut(ino, size_bytes, now)) {
                    Ok(cut) => Done::Intended(id, self.intent_to_cut(&cut)),
                    // Another one was quicker, and the file is not that long any more; or it is elsewhere, as whoever asks
                    // again is told.
                    Err(StoreError::Invalid | StoreError::Elsewhere { .. }) => Done::Nothing(id),
                    Err(error) => Done::Failed(id, error),
                }]
            }
            Task::Close { objects, what, highest } => self.close(objects, what, highest).into_iter().collect(),
            Task::Look { asker, mut objects } => {
                let is_unwanted = |objects: &ObjectsId| {
                    let wanted = self.core.store.namespace().is_wanted(objects.number, objects.generation);
                    wanted.is_ok_and(|is_wanted| !is_wanted)
                };
                objects.retain(is_unwanted);
                vec![Done::Heard(Input::NotWanted { asker, objects })]
            }
            Task::Remove { objects } => {
                if let Err(error) = self.remove_unwanted(&objects) {
                    tracing::warn!(%error, "objects of no file cannot be removed");
                }
                Vec::new()
            }
            Task::CutLoose => {
                self.is_loose = true;
                Vec::new()
            }
            Task::Counting(act) => self.count(act).into_iter().collect(),
        }
    }

    /// Begins to cut files that have lost writers.
    fn cut_loose(&mut self) -> Vec<Done> {
        self.is_loose = false;
        self.loose_at = clock::now() + LOOSE_EVERY;
        let store = &self.core.store;
        let _passage = store.namespace().passage();
        let cuts = store.cut_loose(LOOSE_AT_ONCE_MAX).unwrap_or_else(|error| {
            tracing::error!(%error, "files that have lost writers cannot be cut");
            Vec::new()
        });
        cuts.iter().map(|cut| Done::Heard(Input::Intent { intent: self.intent_to_cut(cut), request: None })).collect()
    }

    /// Does what a volume server wants.
    fn serve(&self, order: &Order) -> Result<u64, StoreError> {
        let Order { objects, what, parts } = order;
        match what {
            What::Cut { number } => parts.iter().try_fold(0, |highest, part| {
                let last = self.core.store.objects().cut_object(place_of(*objects, part), *number, part.size_bytes)?;
                Ok(highest.max(last))
            }),
            What::Remove { until_secs } => {
                let places: Vec<ObjectPlace> = parts.iter().map(|part| place_of(*objects, part)).collect();
                self.core.store.objects().remove_detached(&places, *until_secs, now_secs())?;
                Ok(0)
            }
        }
    }

    /// Closes an intent, or has another one instead.
    fn close(&self, objects: ObjectsId, what: What, highest: u64) -> Option<Done> {
        let (store, now) = (&self.core.store, clock::wall());
        let closed = match what {
            What::Cut { number } => {
                let is_its = store.namespace().is_wanted(objects.number, objects.generation);
                let cut = match is_its {
                    Ok(true) => store.finish_cut(Ino(objects.number), number, highest, now),
                    // It is gone.
                    is_its => is_its.map(|_| None),
                };
                match cut {
                    Ok(Some(cut)) => {
                        let intent = self.intent_to_cut(&cut);
                        return Some(Done::Heard(Input::Intent { intent, request: None }));
                    }
                    Ok(None) | Err(StoreError::Stale) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            What::Remove { .. } => store.namespace().objects_removed((objects.number, objects.generation)),
        };
        match closed {
            Ok(()) => Some(Done::Heard(Input::IntentClosed { objects, what })),
            Err(error) => {
                tracing::error!(%error, "what was done with objects cannot be noted");
                None
            }
        }
    }

    fn remove_unwanted(&self, objects: &[ObjectsId]) -> Result<(), StoreError> {
        let store = &self.core.store;
        for wanted in objects {
            let mut places = store.objects().detached_objects(Some(last_before(*wanted)), PARTS_MAX)?;
            places.retain(|place| id_of(place.object) == *wanted);
            if !places.is_empty() {
                tracing::info!(number = wanted.number, objects = places.len(), "objects of no file are removed");
                store.objects().remove_detached(&places, valid_until_secs(), now_secs())?;
                self.core.cluster.get().iter().for_each(|cluster| cluster.inspection.removed(places.len()));
            }
        }
        Ok(())
    }

    /// Looks for what is still to be done, as after a start.
    fn look(&mut self) -> Vec<Done> {
        let mut done = self.cut_loose();
        if let Err(error) = self.look_for(&mut done) {
            tracing::error!(%error, "what is to be done with objects cannot be read");
        }
        done
    }

    fn look_for(&mut self, done: &mut Vec<Done>) -> Result<(), StoreError> {
        let store = &self.core.store;
        let intended = |intent| Done::Heard(Input::Intent { intent, request: None });
        done.extend(store.cuts_to_redo()?.iter().map(|cut| intended(self.intent_to_cut(cut))));
        let gone = store.objects_to_remove(self.removed.as_ref(), REMOVED_AT_ONCE_MAX)?;
        let what = What::Remove { until_secs: valid_until_secs() };
        done.extend(gone.iter().map(|objects| intended(self.intent(objects, what, |_| 0))));
        self.removed = (gone.len() == REMOVED_AT_ONCE_MAX).then(|| gone.last().cloned()).flatten();
        done.extend(self.look_for_uncounted());
        if self.asked.is_some() || clock::now() >= self.pass_at {
            done.extend(self.ask()?);
        }
        Ok(())
    }

    /// Has files counted that rest.
    fn look_for_uncounted(&self) -> Option<Done> {
        let (round, files) = self.core.store.files_to_count(counting::FILES_MAX);
        let wanted = files.iter().map(|objects| {
            let id = ObjectsId { number: objects.number, generation: objects.generation };
            let mut places: BTreeMap<ServerId, Vec<(u32, TargetId)>> = BTreeMap::new();
            for (index, target) in objects.layout.targets.iter().enumerate() {
                let Some(server) = server_of(*target, self.targets_per_server) else { continue };
                places.entry(server).or_default().push((index as u32, *target));
            }
            Wanted { objects: id, places }
        });
        let files: Vec<Wanted> = wanted.collect();
        (!files.is_empty()).then_some(Done::Heard(Input::Counting(Report::Want { round, files })))
    }

    /// Counts what is here of files, or keeps what was counted.
    fn count(&self, act: Act) -> Option<Done> {
        let store = &self.core.store;
        match act {
            Act::Count { asker, ask, files } => {
                let blocks_of = |places: &Places| {
                    let Places { objects: ObjectsId { number, generation }, places } = places;
                    places.iter().try_fold(0, |blocks, (index, target)| {
                        let object = ObjectId { number: *number, generation: *generation, index: *index };
                        let found = store.objects().object_blocks(ObjectPlace { object, target: *target })?;
                        Ok::<u64, StoreError>(blocks + found)
                    })
                };
                // What cannot be counted is asked for again, unless it is gone.
                let counted =
                    files.iter().filter_map(|places| Some((places.objects, blocks_of(places).ok()?))).collect();
                Some(Done::Heard(Input::Counting(Report::Counted { asker, ask, counted })))
            }
            Act::Keep { round, counted } => {
                let counted: Vec<_> =
                    counted.iter().map(|(id, blocks)| ((id.number, id.generation), *blocks)).collect();
                let _passage = store.namespace().passage();
                if let Err(error) = store.keep_blocks(round, &counted) {
                    tracing::warn!(%error, "what files take cannot be noted");
                }
                None
            }
        }
    }

    /// Goes on with the pass over this server's objects.
    fn ask(&mut self) -> Result<Option<Done>, StoreError> {
        let found = self.core.store.objects().detached_objects(self.asked, ASKED_AT_ONCE_MAX)?;
        self.asked = (found.len() == ASKED_AT_ONCE_MAX).then(|| found.last().copied()).flatten();
        if self.asked.is_none() {
            self.pass_at = clock::now() + PASS_EVERY;
            self.core.store.objects().forget_removed(now_secs())?;
        }
        let mut objects: Vec<ObjectsId> = found.iter().map(|place| id_of(place.object)).collect();
        objects.dedup();
        Ok((!objects.is_empty()).then_some(Done::Heard(Input::AskWanted { objects })))
    }

    fn intent_to_cut(&self, cut: &Cut) -> Intent {
        let sizes: Vec<u64> = cut.parts().map(|(_, size_bytes)| size_bytes).collect();
        self.intent(&cut.objects, What::Cut { number: cut.number }, |index| sizes.get(index).copied().unwrap_or(0))
    }

    fn intent(&self, objects: &SpreadObjects, what: What, size_bytes: impl Fn(usize) -> u64) -> Intent {
        let mut parts: BTreeMap<ServerId, Vec<Part>> = BTreeMap::new();
        for (index, target) in objects.layout.targets.iter().enumerate() {
            let Some(server) = server_of(*target, self.targets_per_server) else { continue };
            let part = Part { index: index as u32, target: *target, size_bytes: size_bytes(index) };
            parts.entry(server).or_default().push(part);
        }
        let objects = ObjectsId { number: objects.number, generation: objects.generation };
        Intent { objects, what, parts }
    }
}

fn place_of(objects: ObjectsId, part: &Part) -> ObjectPlace {
    let object = ObjectId { number: objects.number, generation: objects.generation, index: part.index };
    ObjectPlace { object, target: part.target }
}

/// The last place that objects of any file before this one can have.
fn last_before(objects: ObjectsId) -> ObjectPlace {
    let (number, generation) = match objects.generation.checked_sub(1) {
        Some(generation) => (objects.number, generation),
        None => (objects.number.saturating_sub(1), u32::MAX),
    };
    ObjectPlace { object: ObjectId { number, generation, index: u32::MAX }, target: TargetId(u16::MAX) }
}
