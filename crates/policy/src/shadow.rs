//! A policy that decides beside the one that is followed, on the same stream of requests, and has no say.
//!
//! It tells what each job would have had of a target. A stream says what clients asked for under the policy that is followed: a
//! program asks for its next piece when it has the last one, so the requests of a job that another policy would have served more
//! are not in it. What is known of a job is how many requests it has outstanding, what they cost, and how long it takes from a
//! reply to the next request. So a shadow does not queue the requests themselves, but as many of the job's latest kind as the job has
//! outstanding: one that is served comes again after that time. And it gives out what the target gives out: with every
//! request that the target ends, as much service by its own order.
//!
//! **What it knows**: who was there at each moment, with how much outstanding, and what the target did in all. So of jobs that go on
//! asking, it tells the shares that they would have had (within some requests). **What it does not know**: that a job
//! that is served faster is done sooner, and one that is served more slowly stays longer; what a device would have done with another
//! order; what it could have done besides, if the policy that is followed leaves it idle (rates, holds). What other targets
//! and servers give, too: shares and rates are those of the target by itself.
//!
//! It costs about as much as an arbiter: O(log n) for each request. A job has at most as many requests in the shadow as it had
//! outstanding at once within the last two seconds.

use crate::arbiter::{Arbiter, Next, Request};
use crate::{Nature, RequestId};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What is told looks back over one to two of these.
const WINDOW: Nanos = Nanos::from_secs(1);
/// A job without a request for longer than this, and than four times its usual pause, is not there.
const PAUSE_MIN: Nanos = Nanos::from_millis(20);
/// Steps in a row in which nothing is to be given out.
const STEPS_MAX: usize = 64;

/// What a job had, and would have had, of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowReport {
    /// Service that it received.
    pub had: Nanos,
    /// Service that the shadow would have given it.
    pub would: Nanos,
}

/// The latest request of a job that ended, or the first one that came.
#[derive(Clone, Copy, Debug)]
struct Kind {
    cost: Nanos,
    bytes: Bytes,
    nature: Nature,
}

#[derive(Debug, Default)]
struct Job {
    kind: Option<Kind>,
    /// Requests that it has outstanding,
    outstanding: u32,
    /// the most of late: in this window and the one before,
    most: [u32; 2],
    /// and the sum over time of how many fewer it had, in request · ns, with how many it was answered meanwhile.
    missing_ns: u128,
    answered: u64,
    changed_at: Nanos,
    /// Of its requests in the shadow: those queued or in service there, and those that are to come.
    queued: u32,
    coming: u32,
    /// In this window and the one before.
    recent: [ShadowReport; 2],
}

/// See the module.
pub struct Shadow {
    arbiter: Box<dyn Arbiter>,
    jobs: BTreeMap<JobId, Job>,
    /// Requests that come again, by time.
    coming: BinaryHeap<Reverse<(Nanos, JobId)>>,
    /// What is in service, and how much of it is still to be given out.
    serving: Option<(Request, Nanos)>,
    next_id: u64,
    window_from: Nanos,
}

impl Job {
    fn peak(&self) -> u32 {
        self.most[0].max(self.most[1]).max(self.outstanding)
    }

    /// To be called before the number of its requests changes.
    fn advance(&mut self, now: Nanos) {
        let missing = self.peak().saturating_sub(self.outstanding);
        self.missing_ns += u128::from(missing) * u128::from(now.since(self.changed_at).0);
        self.changed_at = now;
    }

    /// From a reply to the next request (Little's law).
    fn pause(&self) -> Nanos {
        Nanos((self.missing_ns / u128::from(self.answered.max(1))).min(u128::from(WINDOW.0)) as u64)
    }

    fn is_there(&self, now: Nanos) -> bool {
        let pause_max = Nanos(self.pause().0.saturating_mul(4)).max(PAUSE_MIN);
        self.outstanding > 0 || now.since(self.changed_at) <= pause_max
    }
}

impl Shadow {
    /// With an arbiter of its own, which knows the jobs already.
    pub fn new(now: Nanos, arbiter: Box<dyn Arbiter>) -> Self {
        let (jobs, coming) = (BTreeMap::new(), BinaryHeap::new());
        Self { arbiter, jobs, coming, serving: None, next_id: 0, window_from: now }
    }

    /// As [`Arbiter::set_job`].
    pub fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.arbiter.set_job(now, job, info);
    }

    /// As [`Arbiter::remove_job`].
    pub fn remove_job(&mut self, now: Nanos, job: JobId) {
        self.arbiter.remove_job(now, job);
        self.jobs.remove(&job);
        self.serving.take_if(|(request, _)| request.job == job);
    }

    /// As [`Arbiter::expect`].
    pub fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        self.arbiter.expect(now, job, service);
    }

    /// As [`Arbiter::apportion`].
    pub fn apportion(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        self.arbiter.apportion(now, parts);
    }

    /// A request has come.
    pub fn came(&mut self, now: Nanos, request: &Request) {
        self.roll_window(now);
        let job = self.jobs.entry(request.job).or_insert_with(|| Job { changed_at: now, ..Job::default() });
        job.advance(now);
        job.outstanding += 1;
        job.most[0] = job.most[0].max(job.outstanding);
        let Request { cost, bytes, nature, .. } = *request;
        job.kind.get_or_insert(Kind { cost, bytes, nature: beside(nature) });
        if job.queued + job.coming < job.outstanding {
            self.queue(now, request.job);
        }
    }

    /// A request that came is gone without having been served.
    pub fn left(&mut self, now: Nanos, job: JobId) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.advance(now);
            job.outstanding = job.outstanding.saturating_sub(1);
        }
    }

    /// The target has ended a request, which had so much service: the shadow gives out as much.
    pub fn ended(&mut self, now: Nanos, job: JobId, service: Nanos, (bytes, nature): (Bytes, Nature)) {
        self.roll_window(now);
        if let Some(job) = self.jobs.get_mut(&job) {
            job.advance(now);
            job.outstanding = job.outstanding.saturating_sub(1);
            job.answered += 1;
            job.recent[0].had += service;
            if nature.operation.is_some() {
                job.kind = Some(Kind { cost: service.max(Nanos(1)), bytes, nature: beside(nature) });
            }
        }
        self.give(now, service);
    }

    /// What each job had and would have had over the last one or two seconds.
    pub fn report(&self) -> BTreeMap<JobId, ShadowReport> {
        let sum = |job: &Job| {
            let [now, before] = job.recent;
            ShadowReport { had: now.had + before.had, would: now.would + before.would }
        };
        self.jobs.iter().map(|(id, job)| (*id, sum(job))).collect()
    }

    fn roll_window(&mut self, now: Nanos) {
        if now.since(self.window_from) < WINDOW {
            return;
        }
        self.window_from = now;
        for job in self.jobs.values_mut() {
            job.advance(now);
            job.most = [job.outstanding, job.most[0]];
            job.recent = [ShadowReport::default(), job.recent[0]];
            // What is long ago counts less and less.
            (job.missing_ns, job.answered) = (job.missing_ns / 2, job.answered / 2);
        }
    }

    /// Queues one more request of a job.
    fn queue(&mut self, now: Nanos, job: JobId) {
        let Some(known) = self.jobs.get_mut(&job) else { return };
        let Some(Kind { cost, bytes, nature }) = known.kind else { return };
        self.next_id += 1;
        let request = Request { id: RequestId(self.next_id), job, cost, bytes, nature };
        if self.arbiter.enqueue(now, request).is_ok() {
            known.queued += 1;
        }
    }

    fn give(&mut self, now: Nanos, service: Nanos) {
        let mut left = service;
        for _ in 0..STEPS_MAX {
            self.come_again(now);
            if self.serving.is_none() {
                // What nobody is given, because all are held or gone, is lost, as it is on a device.
                let Next::Dispatch(request) = self.arbiter.next(now) else { return };
                self.serving = Some((request, request.cost));
            }
            let Some((request, to_give)) = &mut self.serving else { return };
            let part = left.min(*to_give);
            *to_give = to_give.since(part);
            left = left.since(part);
            let (request, is_served) = (*request, *to_give == Nanos::ZERO);
            if let Some(job) = self.jobs.get_mut(&request.job) {
                job.recent[0].would += part;
            }
            if is_served {
                self.serving = None;
                self.arbiter.complete(now, request.id, request.job);
                self.answer(now, request.job);
            }
            if left == Nanos::ZERO {
                return;
            }
        }
    }

    /// A job is answered in the shadow, and will ask again, as long as it is there.
    fn answer(&mut self, now: Nanos, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.queued = job.queued.saturating_sub(1);
        if job.is_there(now) && job.queued + job.coming < job.peak() {
            job.coming += 1;
            let at = now + job.pause();
            self.coming.push(Reverse((at, id)));
        }
    }

    fn come_again(&mut self, now: Nanos) {
        while let Some(Reverse((at, id))) = self.coming.peek().copied()
            && at <= now
        {
            self.coming.pop();
            let Some(job) = self.jobs.get_mut(&id).filter(|job| job.coming > 0) else { continue };
            job.coming -= 1;
            if job.is_there(now) {
                self.queue(now, id);
            }
        }
    }
}

/// What a request does, as the rules of the policy beside look at it: its directories have the bits from the highest one down.
fn beside(nature: Nature) -> Nature {
    Nature { below: nature.below.reverse_bits(), ..nature }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draw, Tuning, build};

    /// A device that serves one request after the other in the order that they come, for jobs that ask again after a while; and what the
    /// shadow says of the last seconds: parts of each.
    fn shares(policy: &str, jobs: &[(u32, Nanos, Nanos)]) -> Vec<(f64, f64)> {
        let mut arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 0, Tuning::default());
        for (job, _) in (0..).zip(jobs) {
            arbiter.set_job(Nanos::ZERO, JobId(job), &JobInfo::new(&format!("j{job}"), "ada", "g"));
        }
        let mut shadow = Shadow::new(Nanos::ZERO, arbiter);
        let mut arrivals: BinaryHeap<Reverse<(Nanos, u32)>> = BinaryHeap::new();
        for (job, (processes, ..)) in (0..).zip(jobs) {
            (0..*processes).for_each(|_| arrivals.push(Reverse((Nanos::ZERO, job))));
        }
        let mut free_at = Nanos::ZERO;
        let mut ends: std::collections::VecDeque<(Nanos, u32)> = std::collections::VecDeque::new();
        while free_at < Nanos::from_secs(5) {
            let end = ends.front().copied();
            match arrivals.peek().copied() {
                Some(Reverse((at, job))) if end.is_none_or(|(end, _)| at <= end) => {
                    arrivals.pop();
                    let cost = jobs[job as usize].1;
                    let (id, bytes, nature) = (RequestId(0), Bytes(cost.0), Nature::WRITE);
                    shadow.came(at, &Request { id, job: JobId(job), cost, bytes, nature });
                    free_at = free_at.max(at) + cost;
                    ends.push_back((free_at, job));
                }
                _ => {
                    let (at, job) = ends.pop_front().expect("somebody asks or is served");
                    let (_, cost, think) = jobs[job as usize];
                    shadow.ended(at, JobId(job), cost, (Bytes(cost.0), Nature::WRITE));
                    arrivals.push(Reverse((at + think, job)));
                }
            }
        }
        let report = shadow.report();
        let all = |of: fn(&ShadowReport) -> Nanos| report.values().map(|report| of(report).0 as f64).sum::<f64>();
        let (had, would) = (all(|report| report.had), all(|report| report.would));
        report.values().map(|report| (report.had.0 as f64 / had, report.would.0 as f64 / would)).collect()
    }

    const MS: Nanos = Nanos::from_millis(1);

    #[test]
    fn jobs_that_go_on_asking_are_told_what_they_would_have() {
        let found = shares("job-fair", &[(15, MS, Nanos::ZERO), (1, MS, Nanos::ZERO)]);
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.03;
        assert!(near(found[1].0, 1.0 / 16.0) && near(found[1].1, 0.5), "{found:.3?}");
        let found = shares("fifo", &[(15, MS, Nanos::ZERO), (1, MS, Nanos::ZERO)]);
        assert!(near(found[1].1, 1.0 / 16.0), "{found:.3?}");
        // One that thinks for three times as long as it is served does not have more than a quarter, whatever it is due.
        let found = shares("job-fair", &[(8, MS, Nanos::ZERO), (1, MS, Nanos::from_millis(3))]);
        assert!(found[1].1 > found[1].0 && (0.15..0.30).contains(&found[1].1), "{found:.3?}");
    }

    #[test]
    fn what_is_held_is_given_to_nobody_else() {
        let found = shares("tbf{job:j0=100MB/s,burst=1MB}", &[(4, MS, Nanos::ZERO), (4, MS, Nanos::ZERO)]);
        // 1 ms is 1 MB here; j1 has no rate.
        assert!((found[0].1 - 0.1).abs() < 0.03, "{found:.3?}");
    }

    #[test]
    fn its_directories_are_known_by_the_bits_from_the_highest_down() {
        let policy = "tbf{path:/a=1MB/s,path:/b=exempt,burst=1MB}".parse().unwrap();
        let mut arbiter = build(&policy, Draw::VirtualTime, 0, Tuning::default());
        let jobs = [(JobId(0), 1 << 63), (JobId(1), 1 << 62 | 1)];
        jobs.iter().for_each(|(job, _)| arbiter.set_job(Nanos::ZERO, *job, &JobInfo::new("j", "ada", "g")));
        let mut shadow = Shadow::new(Nanos::ZERO, arbiter);
        for at in (0..200).map(|at| Nanos::from_millis(4 * at)) {
            for ((job, below), at) in jobs.into_iter().zip([at, at + MS]) {
                let (id, bytes, nature) = (RequestId(0), Bytes(MS.0), Nature { below, ..Nature::WRITE });
                shadow.came(at, &Request { id, job, cost: MS, bytes, nature });
                shadow.ended(at + MS, job, MS, (bytes, nature));
            }
        }
        let would: Vec<Nanos> = shadow.report().values().map(|report| report.would).collect();
        assert!(would[0].0 * 4 < would[1].0, "{would:?}");
    }
}
