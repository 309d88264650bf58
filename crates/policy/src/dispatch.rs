//! One target's requests, from when they are queued until they are completed.
//!
//! ```text
//! enqueue ──▶ queued ──Serve──▶ in service ──complete──▶ gone
//!               │                   └─answer_at─▶ reply due ──Answer──▶ gone
//!               └─cancel, remove_job─▶ given back
//! ```
//!
//! A dispatcher puts an [`Arbiter`] before a device and answers one question, "what now?" ([`Dispatcher::next`]). It adds
//! to the arbiter what a device needs: no more requests are in service than its [`Depth`], an emulated device has one at a
//! time and its replies wait until it would be done, and a hold of the policy ends in a time at which to ask again.
//!
//! Every request that [`Dispatcher::enqueue`] took comes back exactly once: to be served, or from
//! [`cancel`](Dispatcher::cancel), [`remove_job`](Dispatcher::remove_job), or
//! [`replace_arbiter`](Dispatcher::replace_arbiter). Its id is its own until it is completed.
//!
//! It does no I/O, has no clock, and knows nothing of what it carries: the live server's targets and those of the
//! simulator are this type. How long a request takes is decided outside, by a real device or a model of one, except
//! where a [`CappedDevice`] is emulated. Of those that the caller says are at a device ([`Dispatcher::enter`]) it finds
//! whose time it was, and corrects the accounts: see [`attribution`](crate::device::attribution).

mod told;

use crate::exchange::Usage;
use crate::{
    Arbiter, Attribution, CappedDevice, Completion, Depth, DeviceService, Entered, Lateness, Nature, Next, Request,
    RequestId, Shadow, ShadowReport, SizeHistory, Worth,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::convert::Infallible;

/// What is told of a request that is to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Whom it is charged to.
    pub job: JobId,
    /// What it is charged.
    pub cost: Nanos,
    /// The part of the cost that settles what earlier requests turned out to cost: it takes this device no time.
    pub owed: Nanos,
    /// What it is worth whatever the device makes of it, and what it costs if memory serves it: the depth is found by how
    /// much of this the device does in a second, and what the device's time is worth. As much as the rest of the cost, unless
    /// that is a prediction; zero if it says nothing of either, as with a flush.
    pub work: Nanos,
    /// What it reads or writes; zero if it does neither. See [`Request::bytes`].
    pub bytes: Bytes,
    /// What it does: see [`Request::nature`].
    pub nature: Nature,
    /// Whether it counts as in service once its turn has come. What the device has to do for long, and does beside
    /// requests that read and write, such as a flush, does not.
    pub is_counted: bool,
}

/// A request whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch<R> {
    /// Its name until it is completed.
    pub id: RequestId,
    /// What was enqueued.
    pub request: R,
    /// When the emulated device is done with it, if there is one: nobody is answered before.
    pub finish_at: Option<Nanos>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<R, A = Infallible> {
    /// Serve this, and then call [`Dispatcher::complete`] or [`Dispatcher::answer_at`].
    Serve(Dispatch<R>),
    /// Answer this request: the emulated device is done with it, and it is completed.
    Answer(A),
    /// Nothing before this time, unless a request is enqueued or completed.
    WaitUntil(Nanos),
    /// Nothing until a request is enqueued or completed.
    Idle,
}

/// Who has served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The device, or at least somebody who would have waited for it.
    Device,
    /// Memory: it says nothing of the device.
    Memory,
    /// Memory for now: this much of the work is charged, and the rest with the request of the same job that brings the
    /// bytes to the device.
    Partly(Nanos),
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// What it is charged in the end, without what it settled.
    pub service: Nanos,
    /// What it was attributed of the device's time, if that served it.
    pub attributed: Option<Nanos>,
    /// What it was charged ahead, without what it settled.
    pub predicted: Nanos,
}

/// The requests of one target; `R` is what a request carries, `A` an answer that waits for an emulated device.
pub struct Dispatcher<R, A = Infallible> {
    arbiter: Box<dyn Arbiter>,
    device: Option<CappedDevice>,
    /// Whose the device's time is.
    attribution: Attribution,
    /// What that time is worth, by reads and writes.
    worth: Worth,
    /// The most that are in service: the queue belongs in the arbiter, where the policy decides, not in the device.
    depth: Depth,
    /// By number of the request.
    entries: Slab<Entry<R, A>>,
    /// Replies by the time they are due; the smaller number breaks ties.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Counted requests that were dispatched and are not completed.
    in_service: usize,
    /// The policy let the target idle since the last request was dispatched.
    is_held: bool,
    /// What each job had, once somebody wants to know.
    usage: Option<BTreeMap<JobId, Metered>>,
    /// The arbiter divides by other parts than the policy's.
    has_parts: bool,
    /// The arbiter was told of fair ends on other targets.
    has_ends: bool,
    /// Another policy, which decides beside the one that is followed.
    shadow: Option<Box<Shadow>>,
    /// What came of jobs' phases under the arbiters before this one.
    lateness_before: BTreeMap<JobId, Lateness>,
    /// What is known of applications while the arbiter keeps no history.
    history: SizeHistory,
    /// When it was last asked, some had to wait because enough are in service, and not because the policy wants it so.
    is_backlogged: bool,
}

struct Entry<R, A> {
    state: State<R, A>,
    cost: Nanos,
    owed: Nanos,
    work: Nanos,
    /// While it is at the device.
    entered: Option<Entered>,
    /// What it was attributed, if it was there.
    attributed: Option<Nanos>,
    enqueued_at: Nanos,
    job: JobId,
    /// What it moves and does, for a shadow.
    moves: (Bytes, Nature),
    is_counted: bool,
}

/// What a job had of a target, and what it has queued there.
#[derive(Default)]
struct Metered {
    had: Usage,
    queued: u64,
    /// The sum of the times at which those were queued, in nanoseconds.
    enqueued_ns: u128,
}

impl Metered {
    fn enter(&mut self, at: Nanos) {
        self.queued += 1;
        self.enqueued_ns += u128::from(at.0);
    }

    fn leave(&mut self, at: Nanos) {
        self.queued -= 1;
        self.enqueued_ns -= u128::from(at.0);
    }

    /// With what its queued requests have waited by now.
    fn by(&self, now: Nanos) -> Usage {
        let waiting = (u128::from(self.queued) * u128::from(now.0)).saturating_sub(self.enqueued_ns);
        Usage { waited: self.had.waited + Nanos(waiting as u64), ..self.had }
    }
}

enum State<R, A> {
    Queued(R),
    InService,
    Due(A),
}

impl<R, A> Dispatcher<R, A> {
    /// With an empty queue. `device` is there if the target is emulated.
    pub fn new(arbiter: Box<dyn Arbiter>, device: Option<CappedDevice>, depth: Depth) -> Self {
        let mut dispatcher = Self {
            arbiter,
            device,
            attribution: Attribution::new(),
            worth: Worth::default(),
            depth,
            entries: Slab::new(),
            due: BinaryHeap::new(),
            in_service: 0,
            is_held: false,
            usage: None,
            has_parts: false,
            has_ends: false,
            shadow: None,
            lateness_before: BTreeMap::new(),
            history: SizeHistory::default(),
            is_backlogged: false,
        };
        dispatcher.tell_depth();
        dispatcher
    }

    /// Queues a request, and gives its name.
    ///
    /// # Errors
    /// The request itself: its job is unknown, or [`QUEUED_MAX`](crate::QUEUED_MAX) requests wait already.
    pub fn enqueue(&mut self, now: Nanos, submission: Submission, request: R) -> Result<RequestId, R> {
        let Submission { job, cost, owed, work, bytes, nature, is_counted } = submission;
        let entry = self.entries.vacant_entry();
        let id = RequestId(entry.key() as u64);
        let asked = Request { id, job, cost, bytes, nature };
        if self.arbiter.enqueue(now, asked).is_err() {
            return Err(request);
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.came(now, &asked);
        }
        if let Some(usage) = &mut self.usage {
            usage.entry(job).or_default().enter(now);
        }
        entry.insert(Entry {
            state: State::Queued(request),
            cost,
            owed,
            work,
            entered: None,
            attributed: None,
            enqueued_at: now,
            job,
            moves: (bytes, nature),
            is_counted,
        });
        Ok(id)
    }

    /// What to do now. Whoever is told to do something asks again afterwards.
    pub fn next(&mut self, now: Nanos) -> Action<R, A> {
        let due_at = self.due.peek().map(|Reverse((at, _))| *at);
        if due_at.is_some_and(|at| at <= now) {
            return Action::Answer(self.answer_due(now));
        }
        let earliest = |at: Nanos| Action::WaitUntil(due_at.map_or(at, |due| due.min(at)));
        if let Some(device) = &self.device {
            // A busy device has nothing to be asked.
            let free_at = device.free_at();
            if free_at > now {
                return if self.arbiter.queued() == 0 && due_at.is_none() { Action::Idle } else { earliest(free_at) };
            }
        }
        if self.in_service >= self.depth.limit() {
            self.is_backlogged = self.arbiter.queued() > 0;
            // Whoever completes one asks again.
            return due_at.map_or(Action::Idle, Action::WaitUntil);
        }
        match self.arbiter.next(now) {
            Next::Dispatch(request) => Action::Serve(self.dispatch(now, request)),
            Next::WaitUntil(at) => {
                // One slot that the policy keeps for somebody is as good as taken.
                self.is_backlogged = self.in_service + 1 >= self.depth.limit() && self.arbiter.queued() > 0;
                if self.device_kept_for().is_some() {
                    self.depth.pause(now);
                }
                self.is_held = true;
                earliest(at)
            }
            Next::Idle => {
                self.is_backlogged = false;
                due_at.map_or(Action::Idle, Action::WaitUntil)
            }
        }
    }

    fn dispatch(&mut self, now: Nanos, chosen: Request) -> Dispatch<R> {
        // An arbiter names nothing that it was not given.
        let entry = &mut self.entries[chosen.id.0 as usize];
        let State::Queued(request) = std::mem::replace(&mut entry.state, State::InService) else {
            unreachable!("an arbiter gives each request once");
        };
        self.in_service += usize::from(entry.is_counted);
        self.depth.resume(now);
        if let Some(metered) = self.usage.as_mut().and_then(|usage| usage.get_mut(&entry.job)) {
            metered.leave(entry.enqueued_at);
            metered.had.waited += now.since(entry.enqueued_at);
        }
        if !entry.is_counted {
            self.arbiter.set_aside(now, chosen.id, entry.job, true);
        }
        let is_held = std::mem::take(&mut self.is_held);
        let finish_at = self.device.as_mut().map(|device| {
            // A gap is this machine's late wake-up if something was waiting, and the policy's if it held.
            let others_wait = self.arbiter.queued() > 0;
            let was_waiting = !is_held && (others_wait || entry.enqueued_at <= device.free_at());
            // What is settled here did not wait for this device.
            device.start(now, chosen.cost.since(entry.owed), was_waiting)
        });
        Dispatch { id: chosen.id, request, finish_at }
    }

    fn answer_due(&mut self, now: Nanos) -> A {
        let ended = self.due.pop().and_then(|Reverse((_, key))| self.end(now, key, ServedBy::Device));
        // What is due is completed here and nowhere else.
        let Some(Entry { state: State::Due(answer), .. }) = ended else { unreachable!("a reply is due") };
        answer
    }

    fn end(&mut self, now: Nanos, key: usize, by: ServedBy) -> Option<Entry<R, A>> {
        let mut entry = self.entries.try_remove(key)?;
        entry.leave(now, &mut self.attribution);
        if entry.is_counted {
            let in_service = self.in_service;
            self.in_service -= 1;
            if by == ServedBy::Device {
                let Entry { job, work, attributed, .. } = entry;
                let is_backlogged = self.is_backlogged;
                let before = self.depth.limit();
                self.depth.completed(now, Completion { job, work, attributed, in_service, is_backlogged });
                if self.depth.limit() != before {
                    self.tell_depth();
                }
            }
        }
        if let Some(attributed) = entry.attributed.filter(|_| by == ServedBy::Device) {
            if entry.work > Nanos::ZERO {
                self.worth.note(entry.work, attributed);
            }
            let had = DeviceService { time: attributed, worth: self.worth.of(attributed), work: entry.work };
            self.arbiter.device_served(entry.job, had);
        }
        let (charged, service) = (entry.charged(), entry.service(by, &self.worth));
        // Those who are forgotten are not remembered for what ends later.
        if let Some(metered) = self.usage.as_mut().and_then(|usage| usage.get_mut(&entry.job)) {
            metered.had.service += service;
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.ended(now, entry.job, service, entry.moves);
        }
        if charged != service {
            self.arbiter.correct(now, entry.job, charged, service);
        }
        self.arbiter.complete(now, RequestId(key as u64), entry.job);
        Some(entry)
    }

    /// The arbiter hears how many a real device is given at once.
    fn tell_depth(&mut self) {
        if let Some(depth) = self.depth.of_device() {
            self.arbiter.set_depth(depth as u32);
        }
    }

    /// Whether the policy gives each of several jobs a part of the device's time ([`PolicySpec::divides_time`](crate::PolicySpec::divides_time)):
    /// see [`DepthControl::set_divides_time`](crate::DepthControl::set_divides_time). False at first.
    pub fn set_divides_time(&mut self, divides_time: bool) {
        if let Depth::Found(control) = &mut self.depth {
            control.set_divides_time(divides_time);
        }
    }

    /// For which job, after [`Action::WaitUntil`], a device is kept free that could serve others.
    pub fn device_kept_for(&self) -> Option<JobId> {
        self.arbiter.device_kept_for()
    }

    fn is_in_service(&self, id: RequestId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|entry| matches!(entry.state, State::InService))
    }

    /// A request in service is at the device from now on. Ignored if it is not in service, or is there already, or the
    /// device is emulated: what that takes is known.
    pub fn enter(&mut self, now: Nanos, id: RequestId) {
        if self.device.is_none()
            && let Some(entry) = self.entries.get_mut(id.0 as usize)
            && matches!(entry.state, State::InService)
            && entry.entered.is_none()
        {
            if self.attribution.in_service() == 0 {
                self.depth.begun(now, entry.job);
            }
            entry.entered = Some(self.attribution.enter(now));
        }
    }

    /// A request in service was served, well or badly, and is answered now. Gives what it did cost, without what it
    /// settled; `None` if it is not in service.
    pub fn complete(&mut self, now: Nanos, id: RequestId, by: ServedBy) -> Option<Served> {
        let is_in_service = self.is_in_service(id);
        let entry = is_in_service.then(|| self.end(now, id.0 as usize, by))??;
        let service = entry.service(by, &self.worth);
        // What memory served had a slot at the device, but nothing of its time.
        let attributed = entry.attributed.filter(|_| by == ServedBy::Device);
        Some(Served { service, attributed, predicted: entry.charged() })
    }

    /// A request in service was served; [`Action::Answer`] brings `answer` back at `at`, when the emulated device is
    /// done with it. False if it is not in service: then it was answered before.
    pub fn answer_at(&mut self, at: Nanos, id: RequestId, answer: A) -> bool {
        let is_in_service = self.is_in_service(id);
        if is_in_service {
            let key = id.0 as usize;
            self.entries[key].state = State::Due(answer);
            self.due.push(Reverse((at, key)));
        }
        is_in_service
    }

    /// A request in service does not keep the device busy for now: another one may. It is completed as any other.
    pub fn set_aside(&mut self, now: Nanos, id: RequestId) {
        if self.is_in_service(id) {
            let entry = &mut self.entries[id.0 as usize];
            entry.leave(now, &mut self.attribution);
            if std::mem::take(&mut entry.is_counted) {
                self.in_service -= 1;
                self.arbiter.set_aside(now, id, entry.job, false);
            }
        }
    }

    /// Takes out of the queue what `is_gone` says, in no order. Linear in the requests that are here.
    pub fn cancel(&mut self, now: Nanos, mut is_gone: impl FnMut(&R) -> bool) -> Vec<R> {
        let mut gone = Vec::new();
        for (key, entry) in &self.entries {
            if matches!(&entry.state, State::Queued(request) if is_gone(request)) {
                gone.push((key, entry.job));
            }
        }
        gone.retain(|(key, job)| self.arbiter.cancel(now, RequestId(*key as u64), *job));
        gone.into_iter().filter_map(|(key, _)| self.give_back(now, key)).collect()
    }

    /// Announces a job, or what has changed of it.
    pub fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.arbiter.set_job(now, job, info);
        if let Some(shadow) = &mut self.shadow {
            shadow.set_job(now, job, info);
        }
    }

    /// Forgets a job, and gives back what it has queued, in arrival order. What is in service is completed as any other.
    pub fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<R> {
        if let Some(usage) = &mut self.usage {
            usage.remove(&job);
        }
        self.lateness_before.remove(&job);
        let dropped = self.arbiter.remove_job(now, job);
        if let Some(shadow) = &mut self.shadow {
            shadow.remove_job(now, job);
        }
        dropped.into_iter().filter_map(|request| self.give_back(now, request.id.0 as usize)).collect()
    }

    /// What each job had since this was first asked, of those that queued anything since then. Linear in those jobs; the first time,
    /// in all that was ever queued at once.
    pub fn usage(&mut self, now: Nanos) -> BTreeMap<JobId, Usage> {
        let entries = &self.entries;
        let usage = self.usage.get_or_insert_with(|| {
            let mut usage: BTreeMap<JobId, Metered> = BTreeMap::new();
            for (_, entry) in entries {
                let metered = usage.entry(entry.job).or_default();
                if matches!(entry.state, State::Queued(_)) {
                    metered.enter(entry.enqueued_at);
                }
            }
            usage
        });
        let mut usage: BTreeMap<JobId, Usage> = usage.iter().map(|(job, metered)| (*job, metered.by(now))).collect();
        for (job, end) in self.arbiter.fair_ends() {
            if let Some(usage) = usage.get_mut(&job) {
                usage.fair_end = end;
            }
        }
        usage
    }

    /// Changes the policy at once: `arbiter`, which knows the jobs already, gets what is queued, in its order. Gives back
    /// what it does not take: requests of jobs that it does not know.
    pub fn replace_arbiter(&mut self, now: Nanos, mut arbiter: Box<dyn Arbiter>) -> Vec<R> {
        self.hand_over_phases(now, arbiter.as_mut());
        let mut queued = std::mem::replace(&mut self.arbiter, arbiter).drain();
        (self.has_parts, self.has_ends) = (false, false);
        self.tell_depth();
        queued.retain(|request| self.arbiter.enqueue(now, *request).is_err());
        queued.into_iter().filter_map(|request| self.give_back(now, request.id.0 as usize)).collect()
    }

    /// Has another policy, whose arbiter knows the jobs, decide beside the one that is followed from now on; or none.
    pub fn set_shadow(&mut self, now: Nanos, arbiter: Option<Box<dyn Arbiter>>) {
        self.shadow = arbiter.map(|arbiter| {
            let mut shadow = Box::new(Shadow::new(now, arbiter));
            for (key, entry) in &self.entries {
                let (bytes, nature) = entry.moves;
                let request =
                    Request { id: RequestId(key as u64), job: entry.job, cost: entry.charged(), bytes, nature };
                shadow.came(now, &request);
            }
            shadow
        });
    }

    /// What each job had and would have had by the other policy of late; `None` if there is none.
    pub fn shadow(&self) -> Option<BTreeMap<JobId, ShadowReport>> {
        self.shadow.as_ref().map(|shadow| shadow.report())
    }

    /// A request that the arbiter has no more, and that was not dispatched.
    fn give_back(&mut self, now: Nanos, key: usize) -> Option<R> {
        let Entry { state, job, enqueued_at, .. } = self.entries.try_remove(key)?;
        match state {
            State::Queued(request) => {
                if let Some(shadow) = &mut self.shadow {
                    shadow.left(now, job);
                }
                if let Some(metered) = self.usage.as_mut().and_then(|usage| usage.get_mut(&job)) {
                    metered.leave(enqueued_at);
                }
                Some(request)
            }
            State::InService | State::Due(_) => None,
        }
    }

    /// Requests queued.
    pub fn queued(&self) -> usize {
        self.arbiter.queued()
    }

    /// Requests of `job` queued.
    pub fn queued_of(&self, job: JobId) -> usize {
        self.arbiter.queued_of(job)
    }

    /// Counted requests that were dispatched and are not completed, without those that were set aside.
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    /// Since when the oldest of the requests is at the device that are there; `None` if none is. Linear in the requests that are
    /// here.
    pub fn oldest_at_device(&self) -> Option<Nanos> {
        self.entries.iter().filter_map(|(_, entry)| entry.entered.as_ref()).map(Entered::at).min()
    }

    /// Whose the device's time was.
    pub fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    /// What the device's time is worth in work: predictions of it are charged at this rate.
    pub fn worth(&self) -> Worth {
        self.worth
    }

    /// How many may be in service.
    pub fn depth(&self) -> &Depth {
        &self.depth
    }
}

impl<R, A> Entry<R, A> {
    fn leave(&mut self, now: Nanos, attribution: &mut Attribution) {
        if let Some(entered) = self.entered.take() {
            let took = attribution.leave(now, entered);
            self.attributed = Some(self.attributed.unwrap_or(Nanos::ZERO) + took);
        }
    }

    /// What it was charged ahead.
    fn charged(&self) -> Nanos {
        self.cost.since(self.owed)
    }

    /// What it is charged in the end.
    fn service(&self, by: ServedBy, worth: &Worth) -> Nanos {
        match (by, self.attributed) {
            (ServedBy::Device, Some(attributed)) => worth.of(attributed),
            (ServedBy::Device, None) => self.charged(),
            (ServedBy::Memory, _) => self.work,
            (ServedBy::Partly(part), _) => part,
        }
    }
}

#[cfg(test)]
mod tests;
