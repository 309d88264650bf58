//! GIFT at request level: what it decides for an interval are the weights of a draw at each target.
//!
//! As in ThemisIO's port of it (§5.4): BSIP and the linear program of `isonomia-allocation` every interval over the jobs that
//! have requests then, at the targets where they have them. A job that has no allocation at a target waits for the
//! next decision.

use isonomia_allocation::{App, Gift, GiftConfig, Problem, TargetIndex, Targets};
use isonomia_policy::{Arbiter, EnqueueError, Next, PolicySpec, Request, RequestId};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A share of 1 as a priority.
const SCALE: f64 = 1e6;

/// What GIFT decides for all targets of a system.
#[derive(Clone)]
pub struct GiftPort(Arc<Mutex<Controller>>);

struct Controller {
    gift: Gift,
    interval: Nanos,
    targets: Arc<Targets>,
    indices: Vec<TargetIndex>,
    next_decision: Nanos,
    /// Tells one decision from the next.
    decisions: u64,
    /// Requests of a job at a target that wait or are in service.
    pending: BTreeMap<(JobId, usize), usize>,
    /// Of the last decision, by job: the same at all of its targets.
    shares: BTreeMap<JobId, f64>,
}

/// One target under it.
struct Port {
    controller: GiftPort,
    target: usize,
    /// Whose shares are the priorities of this draw.
    draw: Box<dyn Arbiter>,
    /// The decision that it goes by.
    decision: u64,
    jobs: BTreeMap<JobId, Standing>,
}

/// A job at a target.
struct Standing {
    info: JobInfo,
    has_share: bool,
    in_flight: usize,
    /// What waits for an allocation.
    waiting: Vec<Request>,
}

impl GiftPort {
    /// GIFT over so many targets of one speed, that decides every `interval`, for the first time at `first_decision`.
    pub fn new(targets: usize, interval: Nanos, first_decision: Nanos) -> Self {
        let config = GiftConfig { interval, ..GiftConfig::default() };
        let names = (0..targets).map(|target| (format!("{target:05}"), 1.0));
        let targets = Arc::new(Targets::new(names).expect("names differ"));
        Self(Arc::new(Mutex::new(Controller {
            gift: Gift::new(config).expect("good parameters"),
            interval,
            indices: targets.iter().collect(),
            targets,
            next_decision: first_decision,
            decisions: 0,
            pending: BTreeMap::new(),
            shares: BTreeMap::new(),
        })))
    }

    /// The policy that the draws of its targets have.
    pub fn policy() -> PolicySpec {
        "priority-fair".parse().expect("a policy")
    }

    /// The arbiter of a target, counted from 0, which draws by `draw`, an arbiter of [`Self::policy`].
    pub fn arbiter(&self, target: usize, draw: Box<dyn Arbiter>) -> Box<dyn Arbiter> {
        Box::new(Port { controller: self.clone(), target, draw, decision: 0, jobs: BTreeMap::new() })
    }

    fn controller(&self) -> MutexGuard<'_, Controller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller {
    /// Decides, if it is time to.
    fn decide(&mut self, now: Nanos) {
        if now < self.next_decision {
            return;
        }
        let passed = now.since(self.next_decision).0 / self.interval.0 + 1;
        self.next_decision += Nanos(passed * self.interval.0);
        self.decisions += 1;
        let jobs: BTreeSet<JobId> = self.pending.keys().map(|(job, _)| *job).collect();
        let app = |job: &JobId| {
            let at = self.pending.range((*job, 0)..=(*job, usize::MAX)).map(|((_, target), _)| self.indices[*target]);
            App::new(job.0.to_string(), at)
        };
        let problem = Problem::new(self.targets.clone(), jobs.iter().map(app).collect()).expect("jobs differ");
        let allocation = self.gift.decide(now, &problem).expect("a feasible program");
        let share = |job: &JobId| allocation.app(&job.0.to_string()).map_or(0.0, |app| app.share);
        self.shares = jobs.iter().map(|job| (*job, share(job))).collect();
    }

    fn count(&mut self, job: JobId, target: usize, more: usize, fewer: usize) {
        let pending = self.pending.entry((job, target)).or_default();
        *pending = (*pending + more).saturating_sub(fewer);
        if *pending == 0 {
            self.pending.remove(&(job, target));
        }
    }
}

impl Port {
    /// Goes by the last decision.
    fn follow(&mut self, now: Nanos) {
        let mut controller = self.controller.controller();
        controller.decide(now);
        if self.decision == controller.decisions {
            return;
        }
        self.decision = controller.decisions;
        for (job, standing) in &mut self.jobs {
            let is_here = controller.pending.contains_key(&(*job, self.target));
            let share = controller.shares.get(job).copied().filter(|_| is_here).unwrap_or(0.0);
            standing.has_share = share > 0.0;
            if standing.has_share {
                let info = JobInfo { priority: ((share * SCALE) as u32).max(1), ..standing.info.clone() };
                self.draw.set_job(now, *job, &info);
                for request in standing.waiting.drain(..) {
                    self.draw.enqueue(now, request).expect("a job that is known");
                }
            }
        }
    }
}

impl Arbiter for Port {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.draw.set_job(now, job, info);
        let standing = Standing { info: info.clone(), has_share: false, in_flight: 0, waiting: Vec::new() };
        self.jobs.entry(job).or_insert(standing);
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        let waiting = self.jobs.remove(&job).map(|standing| standing.waiting).unwrap_or_default();
        let removed = [self.draw.remove_job(now, job), waiting].concat();
        self.controller.controller().count(job, self.target, 0, usize::MAX);
        removed
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        match self.jobs.get_mut(&request.job) {
            Some(standing) if !standing.has_share => standing.waiting.push(request),
            _ => self.draw.enqueue(now, request)?,
        }
        self.controller.controller().count(request.job, self.target, 1, 0);
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        self.follow(now);
        let next = self.draw.next(now);
        if let Next::Dispatch(request) = &next
            && let Some(standing) = self.jobs.get_mut(&request.job)
        {
            standing.in_flight += 1;
        }
        let waits = self.jobs.values().any(|standing| !standing.waiting.is_empty());
        if next == Next::Idle && waits { Next::WaitUntil(self.controller.controller().next_decision) } else { next }
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        if let Some(standing) = self.jobs.get_mut(&job) {
            standing.in_flight -= 1;
            self.controller.controller().count(job, self.target, 0, 1);
        }
        self.draw.complete(now, request, job);
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        let is_queued = self.draw.cancel(now, request, job);
        if is_queued {
            self.controller.controller().count(job, self.target, 0, 1);
        }
        is_queued
    }

    fn queued(&self) -> usize {
        self.draw.queued() + self.jobs.values().map(|standing| standing.waiting.len()).sum::<usize>()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.draw.queued_of(job) + self.jobs.get(&job).map_or(0, |standing| standing.waiting.len())
    }

    fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.draw.shares(now)
    }

    fn drain(&mut self) -> Vec<Request> {
        let waiting = self.jobs.values_mut().flat_map(|standing| std::mem::take(&mut standing.waiting));
        let waiting: Vec<Request> = waiting.collect();
        [self.draw.drain(), waiting].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_policy::{Draw, Nature, Tuning, build};
    use isonomia_units::Bytes;

    const INTERVAL: Nanos = Nanos::from_millis(500);

    fn request(id: u64, job: u32) -> Request {
        let (cost, nature) = (Nanos::from_millis(1), Nature::WRITE);
        Request { id: RequestId(id), job: JobId(job), cost, bytes: Bytes(10), nature }
    }

    fn port(gift: &GiftPort, target: usize) -> Box<dyn Arbiter> {
        let draw = build(&GiftPort::policy(), Draw::VirtualTime, 1, Tuning::default());
        let mut port = gift.arbiter(target, draw);
        (0..3).for_each(|job| port.set_job(Nanos::ZERO, JobId(job), &JobInfo::new("a", "user", "group")));
        port
    }

    #[test]
    fn a_job_waits_for_the_next_decision() {
        let mut port = port(&GiftPort::new(1, INTERVAL, Nanos::ZERO), 0);
        port.enqueue(Nanos::ZERO, request(1, 0)).unwrap();
        assert!(matches!(port.next(Nanos::ZERO), Next::Dispatch(Request { id: RequestId(1), .. })));
        port.complete(Nanos(10), RequestId(1), JobId(0));
        port.enqueue(Nanos(20), request(2, 1)).unwrap();
        assert_eq!((port.next(Nanos(20)), port.queued()), (Next::WaitUntil(INTERVAL), 1));
        assert!(matches!(port.next(INTERVAL), Next::Dispatch(Request { id: RequestId(2), .. })));
        assert_eq!(port.next(INTERVAL), Next::Idle);
    }

    /// Job 0 is at both targets, at the second with two others. Each would have a third of that; GIFT takes a tenth of what
    /// the others have for job 0, which makes use of it twice.
    #[test]
    fn one_decision_is_for_all_targets() {
        let gift = GiftPort::new(2, INTERVAL, Nanos::ZERO);
        let mut ports = [port(&gift, 0), port(&gift, 1)];
        for (at, (target, job)) in [(0, 0), (1, 0), (1, 1), (1, 2)].into_iter().enumerate() {
            for request_id in 0..30 {
                ports[target].enqueue(Nanos::ZERO, request(100 * at as u64 + request_id, job)).unwrap();
            }
        }
        let mut served = [0; 3];
        for _ in 0..30 {
            let Next::Dispatch(request) = ports[1].next(Nanos::ZERO) else { panic!("it is work-conserving") };
            served[request.job.0 as usize] += 1;
        }
        assert_eq!(served, [12, 9, 9]);
        assert!(matches!(ports[0].next(Nanos::ZERO), Next::Dispatch(Request { job: JobId(0), .. })));
    }
}
