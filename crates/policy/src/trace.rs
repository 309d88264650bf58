//! What an arbiter was told and what it answered, call by call.
//!
//! [`Recorded`] hands every call on and notes it. [`Player`] makes the same arbiters, puts the same calls, and finds
//! the first answer that differs: that a simulation decides as a live server did is so a matter of record. Reading
//! calls (`queued`, `shares`, `phases`, `lateness`, `latency`, `rates`) change nothing and are left out.

use crate::exchange::rates::{Parts, RateReport};
use crate::{
    Arbiter, DeviceService, Draw, EnqueueError, LatencyReport, Lateness, Nature, Next, PhaseReport, PolicySpec,
    Progress, Request, RequestId, Tuning, build,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One call of one arbiter. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the arbiter in its journal.
    pub arbiter: u32,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
}

/// A call, with its answer where it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum Call {
    /// Of no arbiter: the record begins. By this the records of several servers are laid beside each other.
    Clock {
        /// When, by the clock of all other calls.
        now: u64,
        /// By the time of day, in nanoseconds since 1970.
        wall_ns: u64,
    },
    /// [`build`], the first call of every arbiter.
    Build {
        /// What is fair.
        policy: PolicySpec,
        /// Whether turns are drawn by lot.
        lottery: bool,
        /// Of the lottery.
        seed: u64,
        /// [`Tuning::active_window`].
        active_window: u64,
        /// [`Tuning::hold_max`].
        hold_max: u64,
        /// [`Tuning::lag_free`].
        lag_free: u64,
        /// [`Tuning::lag_max`].
        lag_max: u64,
        /// [`Tuning::parallel`].
        parallel: u32,
        /// [`Tuning::bandwidth`].
        bandwidth: Rate,
    },
    /// [`Arbiter::set_job`].
    SetJob {
        /// When.
        now: u64,
        /// The job.
        job: JobId,
        /// Who it is.
        info: JobInfo,
    },
    /// [`Arbiter::remove_job`].
    RemoveJob {
        /// When.
        now: u64,
        /// The job.
        job: JobId,
        /// Its queued requests.
        gave: Vec<u64>,
    },
    /// [`Arbiter::enqueue`].
    Enqueue {
        /// When.
        now: u64,
        /// The request.
        request: u64,
        /// Its job.
        job: JobId,
        /// Its cost.
        cost: u64,
        /// What it moves.
        #[serde(default)]
        bytes: u64,
        /// What it does; of an older record, nothing that rules look at.
        #[serde(default = "own")]
        nature: Nature,
        /// Whether it was queued.
        gave: bool,
    },
    /// [`Arbiter::next`].
    Next {
        /// When.
        now: u64,
        /// The answer.
        gave: Decision,
    },
    /// [`Arbiter::correct`].
    Correct {
        /// When.
        now: u64,
        /// The job.
        job: JobId,
        /// What was charged.
        charged: u64,
        /// What it took.
        took: u64,
    },
    /// [`Arbiter::device_served`].
    DeviceServed {
        /// The job; of an older record, none.
        #[serde(default = "nobody")]
        job: JobId,
        /// What the device took.
        time: u64,
        /// What that is worth.
        worth: u64,
        /// What the request costs on a device of which nothing is known.
        #[serde(default)]
        work: u64,
    },
    /// [`Arbiter::set_depth`], by the name that records have.
    SetPlaces {
        /// Requests that the device is given at once.
        places: u32,
    },
    /// [`Arbiter::complete`].
    Complete {
        /// When.
        now: u64,
        /// The request.
        request: u64,
        /// Its job.
        job: JobId,
    },
    /// [`Arbiter::set_aside`].
    SetAside {
        /// When.
        now: u64,
        /// The request.
        request: u64,
        /// Its job.
        job: JobId,
        /// Whether it is not at the device; an older record does not tell, and nothing was made of it.
        #[serde(default)]
        is_stalled: bool,
    },
    /// [`Arbiter::cancel`].
    Cancel {
        /// When.
        now: u64,
        /// The request.
        request: u64,
        /// Its job.
        job: JobId,
        /// Whether it was queued.
        gave: bool,
    },
    /// [`Arbiter::set_rank`].
    SetRank {
        /// When.
        now: u64,
        /// The job.
        job: JobId,
        /// Its rank.
        rank: Option<u32>,
    },
    /// [`Arbiter::set_fair_ends`].
    SetFairEnds {
        /// When.
        now: u64,
        /// Jobs, and how long from then.
        ends: Vec<(JobId, u64)>,
    },
    /// [`Arbiter::expect`].
    Expect {
        /// When.
        now: u64,
        /// The job.
        job: JobId,
        /// What its phase needs.
        service: u64,
    },
    /// [`Arbiter::apportion`].
    Apportion {
        /// When.
        now: u64,
        /// Jobs, and their parts as the bits of numbers in double precision.
        parts: Vec<(JobId, u64)>,
    },
    /// [`Arbiter::set_rate_parts`].
    SetRateParts {
        /// When.
        now: u64,
        /// The parts.
        parts: Parts,
    },
    /// [`Arbiter::drain`].
    Drain {
        /// Every queued request.
        gave: Vec<u64>,
    },
}

fn own() -> Nature {
    Nature::OWN
}

fn nobody() -> JobId {
    JobId(u32::MAX)
}

/// An answer of [`Arbiter::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// This request.
    Dispatch(u64),
    /// Nothing before this time.
    WaitUntil(u64),
    /// Nothing.
    Idle,
}

impl From<Next> for Decision {
    fn from(next: Next) -> Self {
        match next {
            Next::Dispatch(request) => Self::Dispatch(request.id.0),
            Next::WaitUntil(at) => Self::WaitUntil(at.0),
            Next::Idle => Self::Idle,
        }
    }
}

/// Where entries go. Clones are one journal.
#[derive(Clone)]
pub struct Journal {
    note: Arc<dyn Fn(&Entry) + Send + Sync>,
    arbiters: Arc<AtomicU32>,
}

impl Journal {
    /// A journal whose entries are handed to `note`; those of one arbiter come in order.
    pub fn new(note: impl Fn(&Entry) + Send + Sync + 'static) -> Self {
        Self { note: Arc::new(note), arbiters: Arc::new(AtomicU32::new(0)) }
    }

    /// What [`build`] makes, with every call of it noted.
    pub fn build(&self, spec: &PolicySpec, draw: Draw, seed: u64, tuning: Tuning) -> Box<dyn Arbiter> {
        self.record(build(spec, draw, seed, tuning), (spec, draw, seed, tuning))
    }

    /// The same of an arbiter that was made of these. What it shares with others ([`SharedIoNode`](crate::SharedIoNode)) is not in
    /// the journal: played back, it has that for itself.
    pub fn record(
        &self,
        inner: Box<dyn Arbiter>,
        (spec, draw, seed, tuning): (&PolicySpec, Draw, u64, Tuning),
    ) -> Box<dyn Arbiter> {
        let number = self.arbiters.fetch_add(1, Ordering::Relaxed);
        let recorded = Recorded { inner, number, journal: self.clone() };
        recorded.note(Call::Build {
            policy: spec.clone(),
            lottery: draw == Draw::Lottery,
            seed,
            active_window: tuning.active_window.0,
            hold_max: tuning.hold_max.0,
            lag_free: tuning.lag_free.0,
            lag_max: tuning.lag_max.0,
            parallel: tuning.parallel,
            bandwidth: tuning.bandwidth,
        });
        Box::new(recorded)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("arbiters", &self.arbiters).finish_non_exhaustive()
    }
}

/// An arbiter with a journal.
struct Recorded {
    inner: Box<dyn Arbiter>,
    number: u32,
    journal: Journal,
}

impl Recorded {
    fn note(&self, call: Call) {
        (self.journal.note)(&Entry { arbiter: self.number, call });
    }
}

fn ids(requests: &[Request]) -> Vec<u64> {
    requests.iter().map(|request| request.id.0).collect()
}

impl Arbiter for Recorded {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.inner.set_job(now, job, info);
        self.note(Call::SetJob { now: now.0, job, info: info.clone() });
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        let gave = self.inner.remove_job(now, job);
        self.note(Call::RemoveJob { now: now.0, job, gave: ids(&gave) });
        gave
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let gave = self.inner.enqueue(now, request);
        let Request { id, job, cost, bytes, nature } = request;
        self.note(Call::Enqueue {
            now: now.0,
            request: id.0,
            job,
            cost: cost.0,
            bytes: bytes.0,
            nature,
            gave: gave.is_ok(),
        });
        gave
    }

    fn next(&mut self, now: Nanos) -> Next {
        let gave = self.inner.next(now);
        self.note(Call::Next { now: now.0, gave: gave.into() });
        gave
    }

    fn correct(&mut self, now: Nanos, job: JobId, charged: Nanos, took: Nanos) {
        self.inner.correct(now, job, charged, took);
        self.note(Call::Correct { now: now.0, job, charged: charged.0, took: took.0 });
    }

    fn set_depth(&mut self, depth: u32) {
        self.inner.set_depth(depth);
        self.note(Call::SetPlaces { places: depth });
    }

    fn device_kept_for(&self) -> Option<JobId> {
        self.inner.device_kept_for()
    }

    fn device_served(&mut self, job: JobId, had: DeviceService) {
        self.inner.device_served(job, had);
        self.note(Call::DeviceServed { job, time: had.time.0, worth: had.worth.0, work: had.work.0 });
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        self.inner.complete(now, request, job);
        self.note(Call::Complete { now: now.0, request: request.0, job });
    }

    fn set_aside(&mut self, now: Nanos, request: RequestId, job: JobId, is_at_device: bool) {
        self.inner.set_aside(now, request, job, is_at_device);
        self.note(Call::SetAside { now: now.0, request: request.0, job, is_stalled: !is_at_device });
    }

    fn latency(&self, now: Nanos) -> Option<LatencyReport> {
        self.inner.latency(now)
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        let gave = self.inner.cancel(now, request, job);
        self.note(Call::Cancel { now: now.0, request: request.0, job, gave });
        gave
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
        self.note(Call::SetRank { now: now.0, job, rank });
    }

    fn fair_ends(&self) -> Vec<(JobId, Nanos)> {
        self.inner.fair_ends()
    }

    fn set_fair_ends(&mut self, now: Nanos, ends: &[(JobId, Nanos)]) {
        self.inner.set_fair_ends(now, ends);
        self.note(Call::SetFairEnds { now: now.0, ends: ends.iter().map(|(job, end)| (*job, end.0)).collect() });
    }

    fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        self.inner.expect(now, job, service);
        self.note(Call::Expect { now: now.0, job, service: service.0 });
    }

    fn apportion(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        self.inner.apportion(now, parts);
        let parts = parts.iter().map(|(job, part)| (*job, part.to_bits())).collect();
        self.note(Call::Apportion { now: now.0, parts });
    }

    fn phases(&self) -> Vec<PhaseReport> {
        self.inner.phases()
    }

    fn set_rate_parts(&mut self, now: Nanos, parts: &Parts) {
        self.inner.set_rate_parts(now, parts);
        self.note(Call::SetRateParts { now: now.0, parts: parts.clone() });
    }

    fn rates(&self, now: Nanos) -> Vec<RateReport> {
        self.inner.rates(now)
    }

    fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        self.inner.progress(now)
    }

    fn lateness(&mut self, now: Nanos) -> Vec<Lateness> {
        self.inner.lateness(now)
    }

    fn drain(&mut self) -> Vec<Request> {
        let gave = self.inner.drain();
        self.note(Call::Drain { gave: ids(&gave) });
        gave
    }
}

/// The ends of [`Call::SetFairEnds`].
pub fn fair_ends(ends: &[(JobId, u64)]) -> Vec<(JobId, Nanos)> {
    ends.iter().map(|(job, end)| (*job, Nanos(*end))).collect()
}

/// Puts recorded calls to new arbiters.
#[derive(Default)]
pub struct Player {
    arbiters: BTreeMap<u32, Box<dyn Arbiter>>,
}

/// An entry that cannot be played: its arbiter was not built before, or is built a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("arbiter {arbiter} is called before it is built, or built twice")]
pub struct OutOfOrder {
    /// Its number.
    pub arbiter: u32,
}

impl Player {
    /// Puts the call of `entry` to its arbiter, and gives the entry as it is this time: equal to `entry` if the
    /// answer is.
    ///
    /// # Errors
    /// The entry does not fit those before.
    pub fn play(&mut self, entry: &Entry) -> Result<Entry, OutOfOrder> {
        let arbiter = entry.arbiter;
        if matches!(entry.call, Call::Clock { .. }) {
            return Ok(entry.clone());
        }
        let built = self.arbiters.contains_key(&arbiter);
        if let Call::Build { policy, lottery, seed, active_window, hold_max, lag_free, lag_max, parallel, bandwidth } =
            &entry.call
        {
            if built {
                return Err(OutOfOrder { arbiter });
            }
            let tuning = Tuning {
                active_window: Nanos(*active_window),
                hold_max: Nanos(*hold_max),
                lag_free: Nanos(*lag_free),
                lag_max: Nanos(*lag_max),
                parallel: *parallel,
                bandwidth: *bandwidth,
            };
            let draw = if *lottery { Draw::Lottery } else { Draw::VirtualTime };
            self.arbiters.insert(arbiter, build(policy, draw, *seed, tuning));
            return Ok(entry.clone());
        }
        let Some(player) = self.arbiters.get_mut(&arbiter) else { return Err(OutOfOrder { arbiter }) };
        let mut call = entry.call.clone();
        match &mut call {
            Call::Clock { .. } | Call::Build { .. } => {}
            Call::SetJob { now, job, info } => player.set_job(Nanos(*now), *job, info),
            Call::RemoveJob { now, job, gave } => *gave = ids(&player.remove_job(Nanos(*now), *job)),
            Call::Enqueue { now, request, job, cost, bytes, nature, gave } => {
                let (id, bytes) = (RequestId(*request), Bytes(*bytes));
                let request = Request { id, job: *job, cost: Nanos(*cost), bytes, nature: *nature };
                *gave = player.enqueue(Nanos(*now), request).is_ok();
            }
            Call::Next { now, gave } => *gave = player.next(Nanos(*now)).into(),
            Call::Correct { now, job, charged, took } => {
                player.correct(Nanos(*now), *job, Nanos(*charged), Nanos(*took));
            }
            Call::SetPlaces { places } => player.set_depth(*places),
            Call::DeviceServed { job, time, worth, work } => {
                let [time, worth, work] = [time, worth, work].map(|ns| Nanos(*ns));
                player.device_served(*job, DeviceService { time, worth, work });
            }
            Call::Complete { now, request, job } => player.complete(Nanos(*now), RequestId(*request), *job),
            Call::SetAside { now, request, job, is_stalled } => {
                player.set_aside(Nanos(*now), RequestId(*request), *job, !*is_stalled);
            }
            Call::Cancel { now, request, job, gave } => {
                *gave = player.cancel(Nanos(*now), RequestId(*request), *job);
            }
            Call::SetRank { now, job, rank } => player.set_rank(Nanos(*now), *job, *rank),
            Call::SetFairEnds { now, ends } => {
                player.set_fair_ends(Nanos(*now), &fair_ends(ends));
            }
            Call::Expect { now, job, service } => player.expect(Nanos(*now), *job, Nanos(*service)),
            Call::Apportion { now, parts } => {
                let parts: Vec<_> = parts.iter().map(|(job, part)| (*job, f64::from_bits(*part))).collect();
                player.apportion(Nanos(*now), &parts);
            }
            Call::SetRateParts { now, parts } => player.set_rate_parts(Nanos(*now), parts),
            Call::Drain { gave } => *gave = ids(&player.drain()),
        }
        Ok(Entry { arbiter, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn recorded() -> Vec<Entry> {
        let entries = Arc::new(Mutex::new(Vec::new()));
        let kept = entries.clone();
        let journal = Journal::new(move |entry| kept.lock().unwrap().push(entry.clone()));
        for draw in [Draw::VirtualTime, Draw::Lottery] {
            let mut arbiter = journal.build(&"size-fair".parse().unwrap(), draw, 3, Tuning::default());
            for job in [1, 2] {
                let info = JobInfo { nodes: job, ..JobInfo::new("", "u", "g") };
                arbiter.set_job(Nanos::ZERO, JobId(job), &info);
            }
            for id in 0..40u64 {
                let job = JobId(1 + (id % 2) as u32);
                arbiter
                    .enqueue(
                        Nanos(id),
                        Request { id: RequestId(id), job, cost: Nanos(1000), bytes: Bytes(0), nature: Nature::WRITE },
                    )
                    .unwrap();
            }
            arbiter.cancel(Nanos(40), RequestId(39), JobId(2));
            for at in 0..20 {
                if let Next::Dispatch(request) = arbiter.next(Nanos(50 + at)) {
                    arbiter.correct(Nanos(51 + at), request.job, request.cost, Nanos(at * 300));
                    arbiter.complete(Nanos(51 + at), request.id, request.job);
                }
            }
            assert_eq!(arbiter.remove_job(Nanos(100), JobId(1)).len() + arbiter.drain().len(), 19);
        }
        std::mem::take(&mut *entries.lock().unwrap())
    }

    #[test]
    fn the_same_calls_give_the_same_answers_also_as_text() {
        let entries = recorded();
        let mut player = Player::default();
        for entry in &entries {
            let text = serde_json::to_string(entry).unwrap();
            let read: Entry = serde_json::from_str(&text).unwrap();
            assert_eq!(&read, entry, "{text}");
            assert_eq!(&player.play(&read).unwrap(), entry);
        }
    }

    #[test]
    fn another_answer_and_another_order_are_noticed() {
        let entries = recorded();
        let mut player = Player::default();
        let mut other = entries.clone();
        let Call::Build { policy, .. } = &mut other[0].call else { panic!("the first entry") };
        *policy = "job-fair".parse().unwrap();
        assert!(other.iter().any(|entry| player.play(entry).unwrap() != *entry));
        let mut player = Player::default();
        assert_eq!(player.play(&entries[1]), Err(OutOfOrder { arbiter: 0 }));
        player.play(&entries[0]).unwrap();
        assert_eq!(player.play(&entries[0]), Err(OutOfOrder { arbiter: 0 }));
    }
}
