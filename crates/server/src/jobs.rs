//! The jobs that a server knows, and what each has received.
//!
//! A job is known from its first connection until a minute after its last. It gets a small number that is not
//! used for another job while this one is known.

use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Jobs known at once; a client of one more is refused.
pub const JOBS_MAX: usize = 100_000;
/// How long a job without connections is remembered.
const REMEMBER_FOR: Nanos = Nanos::from_secs(60);
/// Between two samples of what each job has received.
pub const SAMPLE_EVERY: Nanos = Nanos::from_millis(100);
/// Samples that the reported rates look back over.
const SAMPLES: usize = 10;
/// Latencies up to this are told apart to two digits; longer ones count as this.
const LATENCY_MAX_US: u64 = 60_000_000;

/// One job.
#[derive(Debug)]
pub struct Job {
    /// Its number here.
    pub id: JobId,
    info: Mutex<Arc<JobInfo>>,
    /// Open connections.
    connections: AtomicU64,
    totals: Totals,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Totals {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    requests: AtomicU64,
    data_service_ns: AtomicU64,
    metadata_service_ns: AtomicU64,
}

/// Numbers that only grow, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// When.
    pub at: Nanos,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests served.
    pub requests: u64,
    /// Service cost on data targets.
    pub data_service_ns: u64,
    /// Service cost at the metadata service.
    pub metadata_service_ns: u64,
}

#[derive(Debug)]
struct Recent {
    samples: VecDeque<Received>,
    /// Latencies of this second and of the one before.
    latency_us: [hdrhistogram::Histogram<u32>; 2],
    latency_max_us: u64,
    idle_since: Option<Nanos>,
}

/// What was done for one request.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Bytes that went to the client.
    pub read_bytes: u64,
    /// Bytes that came from the client.
    pub written_bytes: u64,
    /// What it was charged.
    pub cost: Nanos,
    /// At the metadata service, not at a data target.
    pub is_metadata: bool,
    /// From arrival to reply.
    pub latency: Nanos,
}

/// Latencies of the last second or two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Since the start.
    pub max_us: f64,
}

impl Job {
    fn new(id: JobId, info: JobInfo) -> Self {
        let histogram = || {
            let mut h = hdrhistogram::Histogram::new_with_bounds(1, LATENCY_MAX_US, 2).expect("constant bounds");
            h.auto(false);
            h
        };
        let recent = Recent {
            samples: VecDeque::with_capacity(SAMPLES + 1),
            latency_us: [histogram(), histogram()],
            latency_max_us: 0,
            idle_since: None,
        };
        Self {
            id,
            info: Mutex::new(Arc::new(info)),
            connections: AtomicU64::new(0),
            totals: Totals::default(),
            recent: Mutex::new(recent),
        }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who it is.
    pub fn info(&self) -> Arc<JobInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts one served request.
    pub fn record(&self, served: &Served) {
        let t = &self.totals;
        t.requests.fetch_add(1, Ordering::Relaxed);
        t.read_bytes.fetch_add(served.read_bytes, Ordering::Relaxed);
        t.written_bytes.fetch_add(served.written_bytes, Ordering::Relaxed);
        let service = if served.is_metadata { &t.metadata_service_ns } else { &t.data_service_ns };
        service.fetch_add(served.cost.0, Ordering::Relaxed);
        let us = served.latency.0 / 1_000;
        let mut recent = self.recent();
        recent.latency_us[0].saturating_record(us.clamp(1, LATENCY_MAX_US));
        recent.latency_max_us = recent.latency_max_us.max(us);
    }

    /// Everything received until now.
    pub fn received(&self, at: Nanos) -> Received {
        let t = &self.totals;
        Received {
            at,
            read_bytes: t.read_bytes.load(Ordering::Relaxed),
            written_bytes: t.written_bytes.load(Ordering::Relaxed),
            requests: t.requests.load(Ordering::Relaxed),
            data_service_ns: t.data_service_ns.load(Ordering::Relaxed),
            metadata_service_ns: t.metadata_service_ns.load(Ordering::Relaxed),
        }
    }

    /// The oldest sample that rates look back to, and the numbers now.
    pub fn window(&self, now: Nanos) -> (Received, Received) {
        let latest = self.received(now);
        (self.recent().samples.front().copied().unwrap_or(Received { at: now, ..latest }), latest)
    }

    /// Latencies of late.
    pub fn latency(&self) -> Latency {
        let recent = self.recent();
        let mut both = recent.latency_us[0].clone();
        // The bounds are the same, so adding cannot fail.
        let _ = both.add(&recent.latency_us[1]);
        let quantile = |q| if both.is_empty() { 0.0 } else { both.value_at_quantile(q) as f64 };
        Latency { p50_us: quantile(0.5), p99_us: quantile(0.99), max_us: recent.latency_max_us as f64 }
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// All jobs of a server.
#[derive(Debug, Default)]
pub struct Jobs {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By name and user: another user's job of the same name is another job.
    by_name: BTreeMap<(Arc<str>, Arc<str>), Arc<Job>>,
    next_id: u32,
    samples: u64,
}

/// No more jobs can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{JOBS_MAX} jobs are known already")]
pub struct TooManyJobs;

impl Jobs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job that `info` describes, with one more connection; true if it is new or its description changed
    /// (the latest counts), so that the arbiters must hear of it.
    pub fn join(&self, info: JobInfo) -> Result<(Arc<Job>, bool), TooManyJobs> {
        let mut known = self.known();
        let key = (info.name.clone(), info.user.clone());
        if let Some(job) = known.by_name.get(&key) {
            job.connections.fetch_add(1, Ordering::Relaxed);
            job.recent().idle_since = None;
            let mut current = job.info.lock().unwrap_or_else(PoisonError::into_inner);
            let is_changed = **current != info;
            *current = Arc::new(info);
            return Ok((job.clone(), is_changed));
        }
        if known.by_name.len() >= JOBS_MAX {
            return Err(TooManyJobs);
        }
        known.next_id = known.next_id.wrapping_add(1);
        let job = Arc::new(Job::new(JobId(known.next_id), info));
        job.connections.store(1, Ordering::Relaxed);
        known.by_name.insert(key, job.clone());
        Ok((job, true))
    }

    /// One connection of `job` is gone.
    pub fn leave(&self, job: &Job, now: Nanos) {
        let _known = self.known();
        if job.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            job.recent().idle_since = Some(now);
        }
    }

    /// Samples what every job received; to be called every [`SAMPLE_EVERY`]. Gives the jobs that are forgotten.
    pub fn sample(&self, now: Nanos) -> Vec<Arc<Job>> {
        let mut known = self.known();
        known.samples += 1;
        let is_new_second = known.samples.is_multiple_of(SAMPLES as u64);
        let mut forgotten = Vec::new();
        known.by_name.retain(|_, job| {
            let received = job.received(now);
            let mut recent = job.recent();
            if recent.samples.len() == SAMPLES {
                recent.samples.pop_front();
            }
            recent.samples.push_back(received);
            if is_new_second {
                recent.latency_us.swap(0, 1);
                recent.latency_us[0].clear();
            }
            let forget = recent.idle_since.is_some_and(|since| now.since(since) >= REMEMBER_FOR);
            drop(recent);
            if forget {
                forgotten.push(job.clone());
            }
            !forget
        });
        forgotten
    }

    /// Every known job, by name.
    pub fn all(&self) -> Vec<Arc<Job>> {
        self.known().by_name.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_of_another_user_is_another_job() {
        let jobs = Jobs::default();
        let (a, new) = jobs.join(JobInfo::new("1", "ada", "g")).unwrap();
        assert!(new);
        let (b, _) = jobs.join(JobInfo::new("1", "bob", "g")).unwrap();
        assert_ne!(a.id, b.id);
        let (again, new) = jobs.join(JobInfo::new("1", "ada", "g")).unwrap();
        assert!(!new && Arc::ptr_eq(&a, &again));
        let (larger, changed) = jobs.join(JobInfo { nodes: 4, ..JobInfo::new("1", "ada", "g") }).unwrap();
        assert!(changed && larger.id == a.id && a.info().nodes == 4);
        assert_eq!(a.connections(), 3);
    }

    #[test]
    fn a_job_is_forgotten_a_minute_after_its_last_connection() {
        let jobs = Jobs::default();
        let (job, _) = jobs.join(JobInfo::new("1", "ada", "g")).unwrap();
        jobs.leave(&job, Nanos::from_secs(10));
        assert!(jobs.sample(Nanos::from_secs(69)).is_empty());
        assert_eq!(jobs.sample(Nanos::from_secs(70)).len(), 1);
        assert!(jobs.all().is_empty());
    }

    #[test]
    fn rates_look_back_over_the_samples() {
        let jobs = Jobs::default();
        let (job, _) = jobs.join(JobInfo::new("1", "ada", "g")).unwrap();
        let served = Served {
            read_bytes: 0,
            written_bytes: 10,
            cost: Nanos(100),
            is_metadata: false,
            latency: Nanos::from_micros(7),
        };
        for i in 0..20u64 {
            job.record(&served);
            jobs.sample(Nanos::from_millis(100 * (i + 1)));
        }
        let (from, to) = job.window(Nanos::from_millis(2_000));
        assert_eq!(to.at.since(from.at), Nanos::from_millis(900));
        assert_eq!(to.written_bytes - from.written_bytes, 90);
        assert_eq!(to.data_service_ns, 2_000);
        assert_eq!(job.latency(), Latency { p50_us: 7.0, p99_us: 7.0, max_us: 7.0 });
    }
}
