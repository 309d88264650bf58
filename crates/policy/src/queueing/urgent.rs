//! Requests of a latency class go first, and are charged as ever: a policy's arbiter with its class around it.
//!
//! The policy's own arbiter gets every request and decides as if there were no class. A request of the class may be served
//! *ahead* of the turn that it gives: the arbiter then keeps the request in its queue, and when it gives the turn, nobody
//! is served, for the turn was had already. So whoever is in the class is charged for everything he is served, at
//! the moment and in the order that the policy says. Requests of the class that may go ahead do so in the order of their
//! deadlines, which in one class is that of their arrival.
//!
//! **The bound.** How much of an owner's service is ahead is limited to its target, or one
//! request if that costs more. An *owner* is a user, or, in a policy that splits among jobs at once, a job, or all that is
//! claimed within one proof. *Claim:* over any span of time an owner in the class is served at most what the policy's
//! arbiter gives it in that span, and A more, where A is the larger of the target and one request; and anybody else is
//! served at least what it is given, but for one request. *Why:* let S be what the owner was served up to some moment, and I
//! what it was given turns for. Each request is given one turn, and served then or before (or not at all, if it is
//! cancelled), so S − I is the service that is ahead, which lies between 0 and A. Hence S(t) − S(s) ≤ I(t) − I(s) + A for
//! all s < t. Of others at most one request was given its turn and waits to be begun. That names of jobs cannot be used to be ahead
//! more than once is why owners are users. What is ahead when a job leaves is owed by its owner: turns that the owner is
//! given from then on pay for it first, each with what its request costs, and the request is queued anew. So leaving and
//! coming back, or cancelling, forgives nothing. [`OWING_MAX`](accounts::OWING_MAX) owners that left
//! are remembered. Service is counted as it is charged; where that was a prediction, [`Arbiter::correct`] settles the
//! difference with the policy's arbiter at once, whether the turn has come or not. What the policy promises (`virtual_time`, `token_bucket`, `mclock`) holds up to A for each owner.
//!
//! A bulk job that is named in the class gets no more than its share, but runs A ahead of it. It is the requests
//! of those who use less than their share that find A unused, and are served at once.
//!
//! **Depth.** While the class is active, no more of the others are in service than [`LatencyControl`] says. Where the limit
//! is reached, the request whose turn it is waits here, and [`Next::WaitUntil`] is the answer unless one of the class may
//! go ahead. What is set aside (a flush, a client that stalls) counts neither as in service nor for the latency.
//!
//! O(log requests) for each call, beside what the policy's own arbiter takes.

mod accounts;

use crate::arbiter::{Arbiter, DeviceService, EnqueueError, Next, Request};
use crate::device::latency::{Arrival, LatencyControl, LatencyReport};
use crate::exchange::rates::{Parts, RateReport};
use crate::spec::PolicySpec;
use crate::spec::latency::LatencyClass;

use crate::{COST_MAX, Lateness, PhaseReport, Progress, RequestId, SizeHistory};
use accounts::{Accounts, Owner};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::BTreeMap;

/// Turns in one call of [`Arbiter::next`] that nobody is served in. After so many the caller is to ask again at once.
const TURNS_MAX: usize = 1024;

pub(crate) struct Urgent {
    inner: Box<dyn Arbiter>,
    class: LatencyClass,
    /// Whether jobs have shares of their own at the first level.
    is_by_job: bool,
    /// By the number under which the inner arbiter knows them; those of vacant entries are reused.
    requests: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    /// Numbers of what is queued or in service, by the caller's names.
    numbers: BTreeMap<(JobId, RequestId), u32>,
    jobs: BTreeMap<JobId, Member>,
    accounts: Accounts,
    /// A request of others whose turn it is, while it must not begin.
    drawn: Option<u32>,
    control: LatencyControl,
    arrivals: u64,
    queued: usize,
    /// Those of them that are not of the class.
    others_queued: usize,
    now: Nanos,
}

struct Member {
    account: u32,
    /// All its requests are of the class.
    is_named: bool,
    queued: usize,
}

struct Entry {
    request: Request,
    /// Its position among all arrivals.
    arrival: u64,
    account: u32,
    /// `None` if it is not of the class.
    urgent: Option<Waiting>,
    stage: Stage,
    /// It is one of those that [`LatencyControl`] counts.
    is_counted: bool,
}

#[derive(Clone, Copy)]
struct Waiting {
    arrival: Arrival,
    is_within_share: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for its turn.
    Queued,
    /// It was given its turn and waits to be begun.
    Drawn,
    /// It is in service, and was given its turn.
    InService,
    /// It is in service, and its turn is to come.
    Ahead,
    /// It was served, and its turn is to come.
    Served,
    /// It is in service, and the inner arbiter was made to forget it.
    Forgotten,
}

impl Urgent {
    /// Around the arbiter of `spec`, which has the class.
    pub(crate) fn new(spec: &PolicySpec, class: &LatencyClass, inner: Box<dyn Arbiter>) -> Self {
        Self {
            inner,
            class: class.clone(),
            is_by_job: spec.levels().len() == 1,
            requests: Vec::new(),
            vacant: Vec::new(),
            numbers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            accounts: Accounts::new(class.target),
            drawn: None,
            control: LatencyControl::new(class.target),
            arrivals: 0,
            queued: 0,
            others_queued: 0,
            now: Nanos::ZERO,
        }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    fn entry(&mut self, number: u32) -> &mut Entry {
        self.requests[number as usize].as_mut().expect("a number is in use as long as the inner arbiter has it")
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        let number = self.vacant.pop().unwrap_or(self.requests.len() as u32);
        if number as usize == self.requests.len() {
            self.requests.push(Some(entry));
        } else {
            self.requests[number as usize] = Some(entry);
        }
        number
    }

    /// Forgets a request that the inner arbiter does not have.
    fn free(&mut self, number: u32) {
        let Some(entry) = self.requests[number as usize].take() else { return };
        self.vacant.push(number);
        let name = (entry.request.job, entry.request.id);
        if self.numbers.get(&name) == Some(&number) {
            self.numbers.remove(&name);
        }
        self.accounts.drop_reference(entry.account);
    }

    /// A queued request waits no more.
    fn unqueue(&mut self, number: u32) {
        let Entry { request, arrival, account, urgent, .. } = *self.entry(number);
        self.queued -= 1;
        if let Some(member) = self.jobs.get_mut(&request.job) {
            member.queued -= 1;
        }
        if urgent.is_some() {
            self.accounts.unqueue(account, (arrival, number));
        } else {
            self.others_queued -= 1;
        }
    }

    /// A request that is not going to be served, or is not in service any more, without having been served.
    fn uncount(&mut self, now: Nanos, number: u32) {
        let entry = self.entry(number);
        let (was_counted, urgent) = (std::mem::take(&mut entry.is_counted), entry.urgent);
        match urgent {
            Some(_) if was_counted => self.control.left(now),
            None if was_counted => self.control.other_left(now),
            _ => {}
        }
    }

    /// Serves the first request of the class that may go ahead of its turn.
    fn go_ahead(&mut self) -> Option<Request> {
        let (account, number) = self.accounts.first()?;
        self.unqueue(number);
        let entry = self.entry(number);
        entry.stage = Stage::Ahead;
        let request = entry.request;
        self.accounts.go_ahead(account, charged(&request));
        Some(request)
    }

    /// The inner arbiter gives a request its turn. Returns it if it is to be served now.
    fn take_turn(&mut self, now: Nanos, number: u32) -> Option<Request> {
        let entry = self.entry(number);
        let (request, account, stage) = (entry.request, entry.account, entry.stage);
        let is_urgent = entry.urgent.is_some();
        match stage {
            Stage::Queued if self.accounts.pay_off(account, charged(&request)) && self.queue_anew(now, number) => None,
            Stage::Queued if is_urgent => {
                self.unqueue(number);
                self.entry(number).stage = Stage::InService;
                Some(request)
            }
            Stage::Queued => {
                self.entry(number).stage = Stage::Drawn;
                self.drawn = Some(number);
                None
            }
            Stage::Ahead => {
                self.entry(number).stage = Stage::InService;
                self.accounts.repay(account, charged(&request));
                None
            }
            Stage::Served => {
                self.inner.complete(now, RequestId(number.into()), request.job);
                self.accounts.repay(account, charged(&request));
                self.free(number);
                None
            }
            Stage::Drawn | Stage::InService | Stage::Forgotten => None,
        }
    }

    /// Queues a request whose turn has paid for something else. The arbiter has room for what has just left it.
    fn queue_anew(&mut self, now: Nanos, number: u32) -> bool {
        let turn = Request { id: RequestId(number.into()), ..self.entry(number).request };
        self.inner.complete(now, turn.id, turn.job);
        self.inner.enqueue(now, turn).is_ok()
    }

    /// Takes a request back from the inner arbiter's queue. Returns it if it was queued here too; otherwise its
    /// owner owes what it is ahead.
    fn take_back(&mut self, now: Nanos, number: u32) -> Option<(u64, Request)> {
        let entry = self.entry(number);
        let (request, arrival, account, stage) = (entry.request, entry.arrival, entry.account, entry.stage);
        match stage {
            Stage::Queued => {
                self.unqueue(number);
                self.uncount(now, number);
                self.free(number);
                return Some((arrival, request));
            }
            Stage::Ahead => {
                self.accounts.owe(account, charged(&request));
                self.entry(number).stage = Stage::Forgotten;
            }
            Stage::Served => {
                self.accounts.owe(account, charged(&request));
                self.free(number);
            }
            Stage::Drawn | Stage::InService | Stage::Forgotten => {}
        }
        None
    }

    /// Takes back the request that waits to be begun, if it is of this job, or of any.
    fn take_back_drawn(&mut self, now: Nanos, job: Option<JobId>) -> Option<(u64, Request)> {
        let number = self.drawn?;
        let Entry { request, arrival, .. } = *self.entry(number);
        if job.is_some_and(|job| job != request.job) {
            return None;
        }
        self.drawn = None;
        self.inner.complete(now, RequestId(number.into()), request.job);
        self.unqueue(number);
        self.free(number);
        Some((arrival, request))
    }

    fn owner(&self, info: &JobInfo) -> Owner {
        match &info.within {
            _ if !self.is_by_job => Owner::User(info.user.clone()),
            Some(within) => Owner::Proof(info.user.clone(), within.clone()),
            None => Owner::Job(info.user.clone(), info.name.clone()),
        }
    }
}

impl Arbiter for Urgent {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        let now = self.advance(now);
        self.inner.set_job(now, job, info);
        let account = self.accounts.join(self.owner(info));
        let is_named = self.class.has_job(info);
        let queued = self.jobs.get(&job).map_or(0, |member| member.queued);
        if let Some(before) = self.jobs.insert(job, Member { account, is_named, queued }) {
            self.accounts.drop_reference(before.account);
        }
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        let now = self.advance(now);
        let drawn = self.take_back_drawn(now, Some(job));
        let inner = self.inner.remove_job(now, job);
        let mut queue: Vec<(u64, Request)> =
            inner.iter().filter_map(|request| self.take_back(now, request.id.0 as u32)).collect();
        queue.extend(drawn);
        queue.sort_unstable_by_key(|(arrival, _)| *arrival);
        let in_service = (job, RequestId(0))..=(job, RequestId(u64::MAX));
        let in_service: Vec<u32> = self.numbers.range(in_service).map(|(_, number)| *number).collect();
        for number in in_service {
            self.uncount(now, number);
            self.free(number);
        }
        if let Some(member) = self.jobs.remove(&job) {
            self.accounts.drop_reference(member.account);
        }
        queue.into_iter().map(|(_, request)| request).collect()
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.advance(now);
        let Request { id, job, bytes, .. } = request;
        let Some(member) = self.jobs.get_mut(&job) else { return Err(EnqueueError::UnknownJob { job, request: id }) };
        let account = member.account;
        let is_urgent = member.is_named || self.class.has_size(bytes);
        self.accounts.refer(account);
        let arrival = self.arrivals;
        let entry = Entry { request, arrival, account, urgent: None, stage: Stage::Queued, is_counted: false };
        let number = self.insert(entry);
        if let Err(error) = self.inner.enqueue(now, Request { id: RequestId(number.into()), ..request }) {
            self.free(number);
            return Err(match error {
                EnqueueError::UnknownJob { .. } => EnqueueError::UnknownJob { job, request: id },
                EnqueueError::QueueFull { .. } => EnqueueError::QueueFull { job, request: id },
            });
        }
        self.arrivals += 1;
        self.queued += 1;
        self.numbers.insert((job, id), number);
        if let Some(member) = self.jobs.get_mut(&job) {
            member.queued += 1;
        }
        if is_urgent {
            let is_within_share = self.accounts.queue(account, (arrival, number), charged(&request));
            let waiting = Waiting { arrival: self.control.arrived(now), is_within_share };
            let entry = self.entry(number);
            (entry.urgent, entry.is_counted) = (Some(waiting), true);
        } else {
            self.others_queued += 1;
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.advance(now);
        for _ in 0..TURNS_MAX {
            if let Some(request) = self.go_ahead() {
                return Next::Dispatch(request);
            }
            if let Some(number) = self.drawn {
                if let Some(until) = self.control.hold(now) {
                    return Next::WaitUntil(until);
                }
                self.drawn = None;
                self.unqueue(number);
                self.control.other_began(now);
                let entry = self.entry(number);
                (entry.stage, entry.is_counted) = (Stage::InService, true);
                return Next::Dispatch(entry.request);
            }
            match self.inner.next(now) {
                Next::Dispatch(turn) => {
                    if let Some(request) = self.take_turn(now, turn.id.0 as u32) {
                        return Next::Dispatch(request);
                    }
                }
                other if self.queued > 0 => return other,
                // Only turns that were had already are to come.
                _ => return Next::Idle,
            }
        }
        Next::WaitUntil(now + Nanos(1))
    }

    fn set_depth(&mut self, depth: u32) {
        self.inner.set_depth(depth);
    }

    fn device_kept_for(&self) -> Option<JobId> {
        // Whoever has the turn is held back for a time in which others are to be served, and nothing is kept free for a job.
        self.inner.device_kept_for().filter(|_| self.drawn.is_none())
    }

    fn device_served(&mut self, job: JobId, had: DeviceService) {
        self.inner.device_served(job, had);
    }

    fn correct(&mut self, now: Nanos, job: JobId, charged: Nanos, took: Nanos) {
        let now = self.advance(now);
        self.inner.correct(now, job, charged, took);
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        let now = self.advance(now);
        let Some(&number) = self.numbers.get(&(job, request)) else { return };
        let is_backlogged = self.others_queued > 0;
        let Entry { request, urgent, stage, is_counted, .. } = *self.entry(number);
        if matches!(stage, Stage::Queued | Stage::Drawn) {
            return;
        }
        match urgent {
            Some(waiting) if is_counted => {
                self.control.completed(now, &waiting.arrival, request.cost, waiting.is_within_share);
            }
            None if is_counted => self.control.other_ended(now, request.cost, is_backlogged),
            _ => {}
        }
        if stage == Stage::Ahead {
            self.numbers.remove(&(job, request.id));
            let entry = self.entry(number);
            (entry.stage, entry.is_counted) = (Stage::Served, false);
            return;
        }
        if stage == Stage::InService {
            self.inner.complete(now, RequestId(number.into()), job);
        }
        self.free(number);
    }

    fn set_aside(&mut self, now: Nanos, request: RequestId, job: JobId, is_at_device: bool) {
        let now = self.advance(now);
        let Some(&number) = self.numbers.get(&(job, request)) else { return };
        if self.entry(number).stage == Stage::InService {
            self.inner.set_aside(now, RequestId(number.into()), job, is_at_device);
        }
        if !matches!(self.entry(number).stage, Stage::Queued | Stage::Drawn) {
            self.uncount(now, number);
        }
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        let now = self.advance(now);
        let Some(&number) = self.numbers.get(&(job, request)) else { return false };
        match self.entry(number).stage {
            Stage::Queued => {
                self.inner.cancel(now, RequestId(number.into()), job);
                self.take_back(now, number).is_some()
            }
            Stage::Drawn => self.take_back_drawn(now, Some(job)).is_some(),
            _ => false,
        }
    }

    fn queued(&self) -> usize {
        self.queued
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, |member| member.queued)
    }

    fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.inner.shares(now)
    }

    fn set_rank(&mut self, now: Nanos, job: JobId, rank: Option<u32>) {
        self.inner.set_rank(now, job, rank);
    }

    fn fair_ends(&self) -> Vec<(JobId, Nanos)> {
        self.inner.fair_ends()
    }

    fn set_fair_ends(&mut self, now: Nanos, ends: &[(JobId, Nanos)]) {
        self.inner.set_fair_ends(now, ends);
    }

    fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        self.inner.expect(now, job, service);
    }

    fn apportion(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        self.inner.apportion(now, parts);
    }

    fn set_rate_parts(&mut self, now: Nanos, parts: &Parts) {
        self.inner.set_rate_parts(now, parts);
    }

    fn rates(&self, now: Nanos) -> Vec<RateReport> {
        self.inner.rates(now)
    }

    fn phases(&self) -> Vec<PhaseReport> {
        self.inner.phases()
    }

    fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        self.inner.progress(now)
    }

    fn history(&mut self) -> Option<&mut SizeHistory> {
        self.inner.history()
    }

    fn lateness(&mut self, now: Nanos) -> Vec<Lateness> {
        self.inner.lateness(now)
    }

    fn latency(&self, now: Nanos) -> Option<LatencyReport> {
        Some(self.control.report(now))
    }

    fn drain(&mut self) -> Vec<Request> {
        let now = self.now;
        let drawn = self.take_back_drawn(now, None);
        let inner = self.inner.drain();
        let mut queue: Vec<(u64, Request)> =
            inner.iter().filter_map(|request| self.take_back(now, request.id.0 as u32)).collect();
        queue.extend(drawn);
        queue.sort_unstable_by_key(|(arrival, _)| *arrival);
        queue.into_iter().map(|(_, request)| request).collect()
    }
}

fn charged(request: &Request) -> Nanos {
    request.cost.clamp(Nanos(1), COST_MAX)
}
