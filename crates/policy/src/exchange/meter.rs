//! What jobs had of a target in the last while.

use super::{ROWS_MAX, Row, Table, Usage};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// It is looked at so much at least: with requests of 10 ms, less would show which of the jobs had the last one, and no more.
const WINDOW_MIN: Nanos = Nanos::from_millis(100);

/// A job that waited in more than this part of the time would use more than it has,
const SHORT_ABOVE: f64 = 1.0 / 8.0;
/// until it waits in less than this. The time is that since it came, for the window of one that came just now is mostly time before
/// that; and as it is not known when that was, at first it is what its requests waited and were served.
const SHORT_BELOW: f64 = 1.0 / 16.0;
/// Names of a table, and what it says of each, take so much at most: it is sent in one message. Titles and programs are not in it: other servers
/// are not told of them.
const TABLE_LEN_MAX: usize = 48 << 10;
/// What a job takes besides its names, and a row, generously.
const JOB_LEN: usize = 24;
const ROW_LEN: usize = 20;
/// What a row takes more that tells a fair end.
const FAIR_END_LEN: usize = 10;

/// Differences between what jobs had of one target now and a while ago.
#[derive(Debug)]
struct Meter {
    window: Nanos,
    samples: VecDeque<(Nanos, BTreeMap<JobId, Usage>)>,
    short: BTreeSet<JobId>,
    /// Jobs that had, or waited for, anything by the last sample, and that before they first did.
    came: BTreeMap<JobId, Nanos>,
}

/// What a job had of a target in the window.
struct Had {
    service: Nanos,
    is_short: bool,
    fair_end: Nanos,
}

impl Meter {
    /// Of a target that is asked every `interval`.
    fn new(interval: Nanos) -> Self {
        let window = interval.max(WINDOW_MIN);
        Self { window, samples: VecDeque::new(), short: BTreeSet::new(), came: BTreeMap::new() }
    }

    /// Notes what each job has had by now, and gives over which time it looks back and what those had in it who had, or waited for,
    /// anything. Nobody the first time: nothing is known of the time before.
    fn note(&mut self, now: Nanos, usage: BTreeMap<JobId, Usage>) -> (Nanos, Vec<(JobId, Had)>) {
        // One from before the window stays.
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= self.window) {
            self.samples.pop_front();
        }
        let Some((from, before)) = self.samples.front() else {
            self.samples.push_back((now, usage));
            return (Nanos(1), Vec::new());
        };
        let window = now.since(*from).max(Nanos(1));
        let last = self.samples.back().map_or(now, |(at, _)| *at);
        let mut had = Vec::new();
        let mut came = BTreeMap::new();
        for (job, usage) in &usage {
            // Numbers of jobs are used again: then it has had less than before.
            let before = before.get(job).filter(|before| before.service <= usage.service).copied().unwrap_or_default();
            let (service, waited) = (usage.service.since(before.service), usage.waited.since(before.waited));
            if service + waited > Nanos::ZERO {
                let limit = if self.short.contains(job) { SHORT_BELOW } else { SHORT_ABOVE };
                let since = self.came.get(job);
                let there = since.map_or(service + waited, |since| now.since(*since).min(window));
                came.insert(*job, *since.unwrap_or(&last));
                let is_short = waited.0 as f64 > limit * there.0 as f64;
                had.push((*job, Had { service, is_short, fair_end: usage.fair_end }));
            }
        }
        self.came = came;
        self.short = had.iter().filter(|(_, had)| had.is_short).map(|(job, _)| *job).collect();
        self.samples.push_back((now, usage));
        (window, had)
    }
}

/// What one server has to tell of its targets.
#[derive(Debug)]
pub struct Meters {
    targets: Vec<Meter>,
}

/// A server's own table, and which jobs its rows are of there.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// What others are told.
    pub table: Table,
    /// By target and row.
    jobs: Vec<Vec<JobId>>,
}

impl Meters {
    /// Of so many targets that are asked every `interval`.
    pub fn new(targets: usize, interval: Nanos) -> Self {
        Self { targets: (0..targets).map(|_| Meter::new(interval)).collect() }
    }

    /// Makes a table of what each job has had of each target by now ([`Dispatcher::usage`](crate::Dispatcher::usage)). `info` tells who a
    /// job is; what it does not know is left out.
    pub fn table(
        &mut self,
        now: Nanos,
        usage: impl IntoIterator<Item = BTreeMap<JobId, Usage>>,
        mut info: impl FnMut(JobId) -> Option<JobInfo>,
    ) -> Own {
        let mut own = Own::default();
        let mut window = Nanos(1);
        let mut rows: Vec<(usize, JobId, Had)> = Vec::new();
        for (at, (meter, usage)) in self.targets.iter_mut().zip(usage).enumerate() {
            let (span, had) = meter.note(now, usage);
            window = window.max(span);
            rows.extend(had.into_iter().map(|(job, had)| (at, job, had)));
        }
        // What does not fit is of those who use the least, and who are in no phase that is to end: whoever is put off for such a one has little.
        rows.sort_by_key(|(at, job, had)| (had.fair_end == Nanos::ZERO, std::cmp::Reverse(had.service), *at, *job));
        rows.truncate(ROWS_MAX);
        own.table.window_ns = window.0;
        own.table.targets = vec![Vec::new(); self.targets.len()];
        own.jobs = vec![Vec::new(); self.targets.len()];
        let mut numbers: BTreeMap<JobId, u32> = BTreeMap::new();
        let mut len = 0;
        for (at, job, had) in rows {
            let number = match numbers.get(&job) {
                Some(number) => *number,
                None => {
                    let Some(info) = info(job) else { continue };
                    let within = info.within.as_ref().map_or(0, |within| within.len());
                    len += JOB_LEN + info.name.len() + info.user.len() + info.group.len() + within;
                    own.table.jobs.push(info);
                    let number = own.table.jobs.len() as u32 - 1;
                    numbers.insert(job, number);
                    number
                }
            };
            len += ROW_LEN + if had.fair_end > Nanos::ZERO { FAIR_END_LEN } else { 0 };
            own.table.targets[at].push(Row {
                job: number,
                service_ns: had.service.0,
                is_short: had.is_short,
                fair_end_ns: had.fair_end.0,
            });
            own.jobs[at].push(job);
            if len > TABLE_LEN_MAX {
                break;
            }
        }
        own
    }
}

impl Own {
    /// The jobs that the rows are of, by target.
    pub fn jobs(&self) -> &[Vec<JobId>] {
        &self.jobs
    }

    /// What the arbiter of each target is to be told, of what [`Exchange::fair_ends`](super::Exchange::fair_ends) made of the table.
    pub fn fair_ends(&self, ends: Vec<Vec<Nanos>>) -> Vec<Vec<(JobId, Nanos)>> {
        let of_target = |(jobs, ends): (&Vec<JobId>, Vec<Nanos>)| {
            jobs.iter().copied().zip(ends).filter(|(_, end)| *end > Nanos::ZERO).collect()
        };
        self.jobs.iter().zip(ends).map(of_target).collect()
    }

    /// What the arbiter of each target is to be told, of the parts that [`Exchange::join`](super::Exchange::join) made of the table.
    pub fn parts(&self, parts: Vec<Vec<f64>>) -> Vec<Vec<(JobId, f64)>> {
        let parts = self.jobs.iter().zip(parts);
        parts.map(|(jobs, parts)| jobs.iter().copied().zip(parts).collect()).collect()
    }
}
