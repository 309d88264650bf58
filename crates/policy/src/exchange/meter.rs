//! What jobs had of a target in the last while.

use super::{ROWS_MAX, Row, Table, Usage};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, VecDeque};

/// It is looked at so much at least: with requests of 10 ms, less would show which of the jobs had the last one, and no more.
const WINDOW_MIN: Nanos = Nanos::from_millis(100);

/// Differences between what jobs had of one target now and a while ago.
#[derive(Debug)]
struct Meter {
    window: Nanos,
    samples: VecDeque<(Nanos, BTreeMap<JobId, Usage>)>,
}

impl Meter {
    /// Of a target that is asked every `interval`.
    fn new(interval: Nanos) -> Self {
        Self { window: interval.max(WINDOW_MIN), samples: VecDeque::new() }
    }

    /// Notes what each job has had by now, and gives over which time it looks back and what those had in it who had, or waited for,
    /// anything.
    fn note(&mut self, now: Nanos, usage: BTreeMap<JobId, Usage>) -> (Nanos, Vec<(JobId, Usage)>) {
        // One from before the window stays.
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= self.window) {
            self.samples.pop_front();
        }
        let (from, before) = self.samples.front().map_or((None, None), |(at, before)| (Some(*at), Some(before)));
        let since = |job: &JobId, usage: &Usage| {
            // Numbers of jobs are used again: then it has had less than before.
            let before = before.and_then(|before| before.get(job)).filter(|before| before.service <= usage.service);
            let before = before.copied().unwrap_or_default();
            Usage { service: usage.service.since(before.service), waited: usage.waited.since(before.waited) }
        };
        let had = usage.iter().map(|(job, usage)| (*job, since(job, usage)));
        let had = had.filter(|(_, had)| *had != Usage::default()).collect();
        let window = from.map_or(self.window, |from| now.since(from));
        self.samples.push_back((now, usage));
        (window.max(Nanos(1)), had)
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
        let mut rows: Vec<(usize, JobId, Usage)> = Vec::new();
        for (at, (meter, usage)) in self.targets.iter_mut().zip(usage).enumerate() {
            let (span, had) = meter.note(now, usage);
            window = window.max(span);
            rows.extend(had.into_iter().map(|(job, had)| (at, job, had)));
        }
        if rows.len() > ROWS_MAX {
            rows.sort_by_key(|(_, _, had)| std::cmp::Reverse(had.service + had.waited));
            rows.truncate(ROWS_MAX);
            rows.sort_by_key(|(at, job, _)| (*at, *job));
        }
        own.table.window_ns = window.0;
        own.table.targets = vec![Vec::new(); self.targets.len()];
        own.jobs = vec![Vec::new(); self.targets.len()];
        let mut numbers: BTreeMap<JobId, u32> = BTreeMap::new();
        for (at, job, had) in rows {
            let number = match numbers.get(&job) {
                Some(number) => *number,
                None => {
                    let Some(info) = info(job) else { continue };
                    own.table.jobs.push(info);
                    let number = own.table.jobs.len() as u32 - 1;
                    numbers.insert(job, number);
                    number
                }
            };
            own.table.targets[at].push(Row { job: number, service_ns: had.service.0, waited_ns: had.waited.0 });
            own.jobs[at].push(job);
        }
        own
    }
}

impl Own {
    /// What the arbiter of each target is to be told, of the parts that [`Exchange::join`](super::Exchange::join) made of the table.
    pub fn parts(&self, parts: Vec<Vec<f64>>) -> Vec<Vec<(JobId, f64)>> {
        let parts = self.jobs.iter().zip(parts);
        parts.map(|(jobs, parts)| jobs.iter().copied().zip(parts).collect()).collect()
    }
}
