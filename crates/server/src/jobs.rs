//! The jobs that a server knows, and what each has received.
//!
//! A job is known from its first connection until a minute after its last. The number of known jobs is bounded, in all and for each
//! user: when another one needs room, the job is forgotten that has been without a connection for longest. A job gets a small
//! number, which no other job has while this one is known. A job that does nothing takes about a kilobyte.

mod joining;

use crate::debts::Debts;
use crate::prices::Misses;
use hdrhistogram::Histogram;
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    /// Cost that was known only after its requests were served, and is charged with the next ones.
    pub debts: Arc<Debts>,
    /// How much of what it reads comes from a device.
    pub misses: Misses,
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

impl Totals {
    fn service(&self, is_metadata: bool) -> &AtomicU64 {
        if is_metadata { &self.metadata_service_ns } else { &self.data_service_ns }
    }
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
    /// Latencies of this second and of the one before, if there were any.
    latency_us: [Option<Box<Histogram<u32>>>; 2],
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
    fn new(id: JobId, info: JobInfo, debts: Arc<Debts>) -> Self {
        let recent = Recent { samples: VecDeque::new(), latency_us: [None, None], latency_max_us: 0, idle_since: None };
        Self {
            id,
            info: Mutex::new(Arc::new(info)),
            connections: AtomicU64::new(0),
            debts,
            misses: Misses::default(),
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
        t.service(served.is_metadata).fetch_add(served.cost.0, Ordering::Relaxed);
        let us = served.latency.0 / 1_000;
        let mut recent = self.recent();
        // `record` fails for what is out of range, where `saturating_record` would not let the histogram grow. That is left out.
        let _ = recent.latency_us[0].get_or_insert_with(histogram).record(us.clamp(1, LATENCY_MAX_US));
        recent.latency_max_us = recent.latency_max_us.max(us);
    }

    /// Counts service of what the server did by itself for the job.
    pub fn charge(&self, cost: Nanos) {
        self.totals.service(false).fetch_add(cost.0, Ordering::Relaxed);
    }

    /// Counts service that is charged with a later request.
    pub fn owe(&self, is_metadata: bool, cost: Nanos) {
        self.totals.service(is_metadata).fetch_add(cost.0, Ordering::Relaxed);
        self.debts.put_back(is_metadata, cost);
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

    /// Latencies of the last second or two.
    pub fn latency(&self) -> Latency {
        let recent = self.recent();
        let mut both = histogram();
        for second in recent.latency_us.iter().flatten() {
            // A histogram that grows by itself can take in any other.
            let _ = both.add(&**second);
        }
        let quantile = |q| if both.is_empty() { 0.0 } else { both.value_at_quantile(q) as f64 };
        Latency { p50_us: quantile(0.5), p99_us: quantile(0.99), max_us: recent.latency_max_us as f64 }
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Two digits of any latency; it takes as much memory as the longest that was recorded needs.
fn histogram() -> Box<Histogram<u32>> {
    Box::new(Histogram::new(2).expect("a constant number of digits"))
}

impl Recent {
    /// Takes a sample, and begins anew with latencies if a second has passed.
    fn sample(&mut self, received: Received, is_new_second: bool) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(received);
        if is_new_second {
            self.latency_us = [None, self.latency_us[0].take()];
        }
    }
}

/// All jobs of a server.
#[derive(Debug)]
pub struct Jobs {
    jobs_max: usize,
    per_user_max: usize,
    known: Mutex<Known>,
}

/// Name, user, and proof: another user's job of the same name is another job, and so is one that is claimed within
/// another proof.
type Key = (Arc<str>, Arc<str>, Option<Arc<str>>);

fn key_of(info: &JobInfo) -> Key {
    (info.name.clone(), info.user.clone(), info.within.clone())
}

#[derive(Debug, Default)]
struct Known {
    by_name: BTreeMap<Key, Arc<Job>>,
    /// Debts by user and proof, of jobs that are only claimed.
    debts: BTreeMap<(Arc<str>, Arc<str>), Weak<Debts>>,
    /// Jobs of each user.
    of_user: HashMap<Arc<str>, usize>,
    /// Jobs without a connection, by when their last one went.
    idle: BTreeSet<(Nanos, Key)>,
    next_id: u32,
    samples: u64,
}

/// No more jobs can be known: all that are have connections.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyJobs {
    /// Of this user.
    #[error("user {user} has {most} jobs with connections, and may not have more (limits.jobs_per_user)")]
    OfUser {
        /// Whose.
        user: Arc<str>,
        /// The limit.
        most: usize,
    },
    /// In all.
    #[error("{most} jobs have connections, and there may not be more (limits.jobs)")]
    InAll {
        /// The limit.
        most: usize,
    },
}

/// A job with one more connection.
#[derive(Debug)]
pub struct Joined {
    /// The job.
    pub job: Arc<Job>,
    /// It is new or its description changed (the latest counts), so that the arbiters must hear of it.
    pub is_changed: bool,
    /// The job that it replaced.
    pub forgotten: Option<Arc<Job>>,
}

impl Known {
    fn count_of(&self, user: &str) -> usize {
        self.of_user.get(user).copied().unwrap_or(0)
    }

    fn forget(&mut self, key: Key) -> Option<Arc<Job>> {
        let job = self.by_name.remove(&key)?;
        let user = &key.1;
        if let Some(count) = self.of_user.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(user);
            }
        }
        if let Some(since) = job.recent().idle_since {
            self.idle.remove(&(since, key));
        }
        Some(job)
    }

    /// What a new job owes: all that is claimed within one proof owes together.
    fn debts_of(&mut self, info: &JobInfo) -> Arc<Debts> {
        let Some(within) = &info.within else { return Arc::default() };
        let shared = self.debts.entry((info.user.clone(), within.clone())).or_default();
        shared.upgrade().unwrap_or_else(|| {
            let debts = Arc::default();
            *shared = Arc::downgrade(&debts);
            debts
        })
    }

    /// Forgets the job that has been idle for longest, of `user` if one is named.
    fn make_room(&mut self, user: Option<&Arc<str>>) -> Option<Arc<Job>> {
        let (_, key) = self.idle.iter().find(|(_, key)| user.is_none_or(|user| *user == key.1))?.clone();
        self.forget(key)
    }
}

impl Jobs {
    /// No job is known; so many may be, and so many of one user.
    pub fn new(jobs_max: usize, per_user_max: usize) -> Self {
        Self { jobs_max, per_user_max, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job that `info` describes, with one more connection.
    pub fn join(&self, info: JobInfo) -> Result<Joined, TooManyJobs> {
        let mut known = self.known();
        let (key, user) = (key_of(&info), info.user.clone());
        if let Some(job) = known.by_name.get(&key).cloned() {
            job.connections.fetch_add(1, Ordering::Relaxed);
            if let Some(since) = job.recent().idle_since.take() {
                known.idle.remove(&(since, key));
            }
            let mut current = job.info.lock().unwrap_or_else(PoisonError::into_inner);
            // The executable of a job is that of the first of its programs.
            let executable = current.executable.clone().or(info.executable);
            let info = JobInfo { executable, ..info };
            let is_changed = **current != info;
            *current = Arc::new(info);
            drop(current);
            return Ok(Joined { job, is_changed, forgotten: None });
        }
        // Before another job is forgotten to make room: that may be the last one that keeps the debts which this job shares.
        let debts = known.debts_of(&info);
        let mut forgotten = None;
        if known.count_of(&user) >= self.per_user_max {
            let refused = || TooManyJobs::OfUser { user: user.clone(), most: self.per_user_max };
            forgotten = Some(known.make_room(Some(&user)).ok_or_else(refused)?);
        } else if known.by_name.len() >= self.jobs_max {
            let refused = || TooManyJobs::InAll { most: self.jobs_max };
            forgotten = Some(known.make_room(None).ok_or_else(refused)?);
        }
        known.next_id = known.next_id.wrapping_add(1);
        let job = Arc::new(Job::new(JobId(known.next_id), info, debts));
        job.connections.store(1, Ordering::Relaxed);
        known.by_name.insert(key, job.clone());
        *known.of_user.entry(user).or_default() += 1;
        Ok(Joined { job, is_changed: true, forgotten })
    }

    /// One connection of `job` is gone.
    pub fn leave(&self, job: &Job, now: Nanos) {
        let mut known = self.known();
        if job.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            job.recent().idle_since = Some(now);
            known.idle.insert((now, key_of(&job.info())));
        }
    }

    /// Samples what every job received; to be called every [`SAMPLE_EVERY`]. Gives the jobs that are forgotten.
    pub fn sample(&self, now: Nanos) -> Vec<Arc<Job>> {
        let mut known = self.known();
        known.samples += 1;
        let is_new_second = known.samples.is_multiple_of(SAMPLES as u64);
        if is_new_second {
            known.debts.retain(|_, debts| debts.strong_count() > 0);
        }
        for job in known.by_name.values() {
            let received = job.received(now);
            job.recent().sample(received, is_new_second);
        }
        let is_due = |since: Nanos| now.since(since) >= REMEMBER_FOR;
        let mut forgotten = Vec::new();
        while known.idle.first().is_some_and(|(since, ..)| is_due(*since)) {
            forgotten.extend(known.make_room(None));
        }
        forgotten
    }

    /// Every known job, by name.
    pub fn all(&self) -> Vec<Arc<Job>> {
        self.known().by_name.values().cloned().collect()
    }

    /// The job of this number, if it is known still.
    pub fn find(&self, id: JobId) -> Option<Arc<Job>> {
        self.known().by_name.values().find(|job| job.id == id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_any_length_are_told() {
        let job = Jobs::new(1, 1).join(JobInfo::new("1", "ada", "g")).unwrap().job;
        for latency in [Nanos::from_micros(3), Nanos::from_millis(5), Nanos::from_millis(5), Nanos::from_secs(100)] {
            job.record(&Served { read_bytes: 0, written_bytes: 0, cost: Nanos(1), is_metadata: false, latency });
        }
        let Latency { p50_us, p99_us, .. } = job.latency();
        assert!((p50_us / 5e3 - 1.0).abs() < 0.02 && (p99_us / 60e6 - 1.0).abs() < 0.02, "{p50_us}, {p99_us}");
    }

    #[test]
    fn the_same_name_of_another_user_is_another_job() {
        let jobs = Jobs::new(100, 100);
        let Joined { job: a, is_changed, .. } = jobs.join(JobInfo::new("1", "ada", "g")).unwrap();
        assert!(is_changed);
        let b = jobs.join(JobInfo::new("1", "bob", "g")).unwrap().job;
        assert_ne!(a.id, b.id);
        let again = jobs.join(JobInfo::new("1", "ada", "g")).unwrap();
        assert!(!again.is_changed && Arc::ptr_eq(&a, &again.job));
        let larger = jobs.join(JobInfo { nodes: 4, ..JobInfo::new("1", "ada", "g") }).unwrap();
        assert!(larger.is_changed && larger.job.id == a.id && a.info().nodes == 4);
        assert_eq!(a.connections(), 3);
    }

    #[test]
    fn a_claim_is_another_job_than_what_it_claims_to_be_and_owes_with_its_like() {
        let jobs = Jobs::new(100, 100);
        let join =
            |name: &str, within: &str| jobs.join(JobInfo::new(name, "ada", "g").claimed_within(within)).unwrap().job;
        let (proven, liar, another) = (join("71", "71"), join("71", ""), join("invented", ""));
        assert!(proven.id != liar.id && proven.info().within != liar.info().within);
        liar.owe(true, Nanos(5));
        assert_eq!((proven.debts.take(true), another.debts.take(true)), (Nanos::ZERO, Nanos(5)));
        [proven, liar, another].into_iter().for_each(|job| jobs.leave(&job, Nanos::ZERO));
        for _ in 0..=SAMPLES {
            jobs.sample(Nanos::from_secs(60));
        }
        assert!(jobs.all().is_empty() && jobs.known().debts.is_empty());
    }

    #[test]
    fn what_is_owed_outlives_the_job_that_makes_room() {
        let jobs = Jobs::new(10, 1);
        let join = |name: &str| jobs.join(JobInfo::new(name, "ada", "g").claimed_within("")).unwrap().job;
        let first = join("1");
        first.owe(false, Nanos(7));
        jobs.leave(&first, Nanos::ZERO);
        drop(first);
        assert_eq!(join("2").debts.take(false), Nanos(7));
    }

    #[test]
    fn a_job_is_forgotten_a_minute_after_its_last_connection() {
        let jobs = Jobs::new(100, 100);
        let job = jobs.join(JobInfo::new("1", "ada", "g")).unwrap().job;
        jobs.leave(&job, Nanos::from_secs(10));
        assert!(jobs.sample(Nanos::from_secs(69)).is_empty());
        assert_eq!(jobs.sample(Nanos::from_secs(70)).len(), 1);
        assert!(jobs.all().is_empty());
    }

    #[test]
    fn the_job_that_is_idle_for_longest_makes_room_and_one_with_connections_never() {
        let jobs = Jobs::new(4, 2);
        let join = |name: &str, user: &str| jobs.join(JobInfo::new(name, user, "g"));
        let name_of = |job: Option<Arc<Job>>| job.map(|job| job.info().name.to_string());
        let first = join("1", "ada").unwrap().job;
        let second = join("2", "ada").unwrap().job;
        let refused = join("3", "ada").unwrap_err().to_string();
        assert!(refused.contains("user ada has 2 jobs") && refused.contains("limits.jobs_per_user"), "{refused}");
        jobs.leave(&second, Nanos::from_secs(1));
        jobs.leave(&first, Nanos::from_secs(2));
        // A job whose name is used again is idle no more.
        join("2", "ada").unwrap();
        assert_eq!(name_of(join("3", "ada").unwrap().forgotten).as_deref(), Some("1"));
        let bobs = join("1", "bob").unwrap().job;
        join("2", "bob").unwrap();
        assert_eq!(join("1", "eve").unwrap_err(), TooManyJobs::InAll { most: 4 });
        jobs.leave(&bobs, Nanos::from_secs(3));
        let eve = join("1", "eve").unwrap();
        assert!(Arc::ptr_eq(&eve.forgotten.unwrap(), &bobs));
        assert_eq!(jobs.all().len(), 4);
        assert_eq!(jobs.known().of_user.values().sum::<usize>(), 4);
    }

    #[test]
    fn a_job_takes_memory_while_it_does_something() {
        let jobs = Jobs::new(100, 100);
        let job = jobs.join(JobInfo::new("1", "ada", "g")).unwrap().job;
        let latency = Nanos::from_micros(7);
        job.record(&Served { read_bytes: 1, written_bytes: 0, cost: Nanos(1), is_metadata: false, latency });
        (1..=10).for_each(|i| drop(jobs.sample(Nanos::from_millis(100 * i))));
        assert!(job.recent().latency_us[1].is_some() && job.latency().p50_us > 0.0);
        (11..=40).for_each(|i| drop(jobs.sample(Nanos::from_millis(100 * i))));
        let recent = job.recent();
        assert!(recent.latency_us.iter().all(Option::is_none) && recent.samples.len() == SAMPLES);
        assert_eq!(recent.latency_max_us, 7);
    }

    #[test]
    fn rates_look_back_over_the_samples() {
        let jobs = Jobs::new(100, 100);
        let job = jobs.join(JobInfo::new("1", "ada", "g")).unwrap().job;
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
