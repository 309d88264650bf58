//! A fair clock beside an arbiter that does not go by one: how far each job's I/O phase has come, and how far fair sharing would have
//! brought it.
//!
//! The arbiter decides as ever; the clock sees what comes and what is begun, and changes nothing. What is fair are the policy's
//! levels, and for a policy without any, jobs alike; parts that servers agree on ([`Arbiter::apportion`]) are not looked
//! at. A request counts when it is begun, at what it is charged then: later corrections are not followed. A phase ends after
//! [`Tuning::active_window`] without a request, and is noticed to have within another.
//!
//! O(1) for each request, beside what [`fair_clock`](super::fair_clock) takes where a phase begins, ends, or turns out longer.

use crate::arbiter::{Arbiter, DeviceService, EnqueueError, Next, Request};
use crate::device::latency::LatencyReport;
use crate::exchange::rates::{Parts, RateReport};
use crate::history::SizeHistory;
use crate::queueing::fair_clock::PhaseReport;
use crate::queueing::phases::{Lateness, Phases};
use crate::queueing::slots::Slots;
use crate::spec::scheme::Sizes;
use crate::spec::{Entity, Level, PolicySpec};
use crate::{COST_MAX, Progress, RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::VecDeque;

pub(crate) struct FairBeside {
    inner: Box<dyn Arbiter>,
    tuning: Tuning,
    phases: Phases,
    slots: Slots,
    members: Vec<Member>,
    vacant: Vec<u32>,
    /// Jobs that had nothing to do when they were put here, with the time of that; each at most once.
    resting: VecDeque<(u32, Nanos)>,
    now: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    is_present: bool,
    is_in_phase: bool,
    /// It is among those that rest.
    is_listed: bool,
    queued: u32,
    in_flight: u32,
    idle_since: Nanos,
}

impl FairBeside {
    pub(crate) fn new(inner: Box<dyn Arbiter>, spec: &PolicySpec, tuning: Tuning) -> Self {
        let alike = [Level::new(Entity::Job)];
        let levels = if spec.levels().is_empty() { &alike[..] } else { spec.levels() };
        let (slots, members, vacant, resting) = Default::default();
        let phases = Phases::new(levels, Sizes::Declared);
        Self { inner, tuning, phases, slots, members, vacant, resting, now: Nanos::ZERO }
    }

    fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.phases.clock.at(self.now);
        while let Some((slot, since)) = self.resting.front().copied() {
            if since + self.tuning.active_window > self.now {
                return;
            }
            self.resting.pop_front();
            let member = &mut self.members[slot as usize];
            member.is_listed = false;
            if !member.is_present || member.queued + member.in_flight > 0 {
                continue;
            }
            if member.idle_since + self.tuning.active_window <= self.now {
                member.is_in_phase = false;
                self.phases.end(slot);
            } else {
                self.list(slot);
            }
        }
    }

    /// Puts a job among those that rest, from now on: the list is in the order of time.
    fn list(&mut self, slot: u32) {
        let member = &mut self.members[slot as usize];
        if !std::mem::replace(&mut member.is_listed, true) {
            self.resting.push_back((slot, self.now));
        }
    }

    fn rest(&mut self, slot: u32) {
        let member = &mut self.members[slot as usize];
        if member.queued + member.in_flight == 0 && member.is_in_phase {
            member.idle_since = self.now;
            self.list(slot);
        }
    }
}

impl Arbiter for FairBeside {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.advance(now);
        self.inner.set_job(now, job, info);
        if let Some(slot) = self.slots.get(job) {
            self.phases.change(slot, info);
            return;
        }
        let slot = self.vacant.pop().unwrap_or(self.members.len() as u32);
        if slot as usize == self.members.len() {
            self.members.push(Member::default());
        }
        let member = &mut self.members[slot as usize];
        // Whether the entry is listed is not the job's.
        *member = Member { is_present: true, is_listed: member.is_listed, ..Member::default() };
        self.phases.open(slot, job, info);
        self.slots.insert(job, slot);
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        if let Some(slot) = self.slots.remove(job) {
            self.phases.close(slot);
            self.members[slot as usize].is_present = false;
            self.vacant.push(slot);
        }
        self.inner.remove_job(now, job)
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        self.inner.enqueue(now, request)?;
        self.advance(now);
        let Some(slot) = self.slots.get(request.job) else { return Ok(()) };
        let member = &mut self.members[slot as usize];
        member.queued += 1;
        if member.queued > 1 {
            return Ok(());
        }
        if std::mem::replace(&mut member.is_in_phase, true) {
            self.phases.go_on(slot);
            self.phases.clock.forgo(self.phases.account(slot), self.tuning.lag_max);
        } else {
            self.phases.begin(slot);
        }
        self.phases.clock.needs(self.phases.account(slot), charged(&request));
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let next = self.inner.next(now);
        if let Next::Dispatch(request) = &next
            && let Some(slot) = self.slots.get(request.job)
        {
            self.advance(now);
            let member = &mut self.members[slot as usize];
            member.queued = member.queued.saturating_sub(1);
            member.in_flight += 1;
            let is_last = member.queued == 0;
            let cost = charged(request);
            self.phases.clock.needs(self.phases.account(slot), cost);
            self.phases.serve(slot, cost, is_last);
        }
        next
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        self.inner.complete(now, request, job);
        self.advance(now);
        if let Some(slot) = self.slots.get(job) {
            let member = &mut self.members[slot as usize];
            member.in_flight = member.in_flight.saturating_sub(1);
            self.rest(slot);
        }
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        let is_gone = self.inner.cancel(now, request, job);
        self.advance(now);
        if let Some(slot) = self.slots.get(job).filter(|_| is_gone) {
            let member = &mut self.members[slot as usize];
            member.queued = member.queued.saturating_sub(1);
            self.rest(slot);
        }
        is_gone
    }

    fn drain(&mut self) -> Vec<Request> {
        for slot in 0..self.members.len() {
            self.members[slot].queued = 0;
            self.rest(slot as u32);
        }
        self.inner.drain()
    }

    fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        self.inner.expect(now, job, service);
        self.advance(now);
        if let Some(slot) = self.slots.get(job) {
            self.phases.expect(slot, service);
        }
    }

    fn phases(&self) -> Vec<PhaseReport> {
        self.phases.reports(self.present())
    }

    fn history(&mut self) -> Option<&mut SizeHistory> {
        Some(self.phases.history())
    }

    fn lateness(&mut self, now: Nanos) -> Vec<Lateness> {
        self.advance(now);
        self.phases.lateness(self.present())
    }

    fn correct(&mut self, now: Nanos, job: JobId, charged: Nanos, took: Nanos) {
        self.inner.correct(now, job, charged, took);
    }

    fn device_served(&mut self, job: JobId, had: DeviceService) {
        self.inner.device_served(job, had);
    }

    fn set_depth(&mut self, depth: u32) {
        self.inner.set_depth(depth);
    }

    fn device_kept_for(&self) -> Option<JobId> {
        self.inner.device_kept_for()
    }

    fn set_aside(&mut self, now: Nanos, request: RequestId, job: JobId, is_at_device: bool) {
        self.inner.set_aside(now, request, job, is_at_device);
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.inner.queued_of(job)
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

    fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        self.inner.progress(now)
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

    fn latency(&self, now: Nanos) -> Option<LatencyReport> {
        self.inner.latency(now)
    }
}

impl FairBeside {
    fn present(&self) -> impl Iterator<Item = u32> {
        let is_there = |(_, member): &(usize, &Member)| member.is_present;
        self.members.iter().enumerate().filter(is_there).map(|(slot, _)| slot as u32)
    }
}

fn charged(request: &Request) -> Nanos {
    request.cost.clamp(Nanos(1), COST_MAX)
}
