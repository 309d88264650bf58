//! The record of one server, call by call.

use super::merge::failed;
use super::{Asked, Made, Record, Told};
use crate::replay::each_entry;
use crate::source::SourceError;
use isonomia_policy::trace::{Call, Decision, Entry, fair_ends};
use isonomia_policy::{Draw, Tuning};
use isonomia_units::{Bytes, Nanos};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Where the time of one target's device goes: an equal part of it to each request in service.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    in_service: u32,
    at: Nanos,
    /// What each request that was in service all the time has had.
    each: f64,
}

impl Work {
    fn advance(&mut self, now: Nanos) -> f64 {
        if self.in_service > 0 {
            self.each += now.since(self.at).0 as f64 / f64::from(self.in_service);
        }
        self.at = self.at.max(now);
        self.each
    }
}

/// Reads the record at `path`. A last line without an end is left out.
///
/// # Errors
/// The file cannot be read, or contains something else than a record; the error names the line.
pub fn read(path: &Path) -> Result<Record, SourceError> {
    let record = read_one(path)?;
    if record.requests.is_empty() && record.left_out == 0 {
        return Err(failed(path, "no request came while it was recorded".to_owned()));
    }
    Ok(record)
}

/// The record at `path`, in which there may be no request.
pub(super) fn read_one(path: &Path) -> Result<Record, SourceError> {
    let mut reading = Reading { record: Record { records: 1, ..Record::default() }, ..Reading::default() };
    each_entry(path, |_, entry| {
        Ok(if reading.take(entry) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(reading.finish())
}

#[derive(Default)]
struct Reading {
    record: Record,
    /// By the record's number of an arbiter.
    targets: HashMap<u32, usize>,
    work: Vec<Work>,
    /// By target: its device's time is measured.
    is_measured: Vec<bool>,
    /// By target and name: the position in the record of what is queued or in service, and what its target's work was when its turn came.
    open: HashMap<(usize, u64), (usize, Option<f64>)>,
}

impl Reading {
    /// Takes one call; false at the end of what can be used.
    fn take(&mut self, entry: Entry) -> bool {
        if let Call::Clock { now, wall_ns } = entry.call {
            self.record.clock = Some((Nanos(now), wall_ns));
            return true;
        }
        if let Call::Build { policy, lottery, seed, active_window, hold_max, lag_free, lag_max, parallel, bandwidth } =
            entry.call
        {
            // Targets begin to be recorded one after the other, while requests come to the first.
            let is_another = self.record.targets.first().is_some_and(|first| first.policy != policy);
            if is_another && !self.record.requests.is_empty() {
                return false;
            }
            let times = Tuning {
                active_window: Nanos(active_window),
                hold_max: Nanos(hold_max),
                lag_free: Nanos(lag_free),
                lag_max: Nanos(lag_max),
                parallel,
                bandwidth,
            };
            self.targets.insert(entry.arbiter, self.record.targets.len());
            let draw = if lottery { Draw::Lottery } else { Draw::VirtualTime };
            self.record.targets.push(Made { policy, draw, seed, tuning: times });
            self.work.push(Work::default());
            self.is_measured.push(false);
            return true;
        }
        let Some(&target) = self.targets.get(&entry.arbiter) else { return true };
        let record = &mut self.record;
        match entry.call {
            Call::SetJob { now, job, info } => record.told.push((Nanos(now), target, Told::Job(job, info))),
            Call::Expect { now, job, service } => {
                record.told.push((Nanos(now), target, Told::Expect(job, Nanos(service))));
            }
            Call::SetRank { now, job, rank } => record.told.push((Nanos(now), target, Told::Rank(job, rank))),
            Call::SetFairEnds { now, ends } => record.told.push((Nanos(now), target, Told::FairEnds(fair_ends(&ends)))),
            Call::Apportion { now, parts } => {
                let parts = parts.into_iter().map(|(job, part)| (job, f64::from_bits(part))).collect();
                record.told.push((Nanos(now), target, Told::Apportion(parts)));
            }
            Call::SetRateParts { now, parts } => record.told.push((Nanos(now), target, Told::Parts(parts))),
            Call::Enqueue { now, request, job, cost, bytes, nature, gave: true } => {
                let (arrived, cost, bytes) = (Nanos(now), Nanos(cost), Bytes(bytes));
                self.open.insert((target, request), (record.requests.len(), None));
                let (took, ended) = (Nanos::ZERO, None);
                record.requests.push(Asked { target, job, arrived, cost, bytes, nature, took, ended });
            }
            Call::Next { now, gave: Decision::Dispatch(request) } => {
                let each = self.work[target].advance(Nanos(now));
                self.work[target].in_service += 1;
                if let Some((_, begun)) = self.open.get_mut(&(target, request)) {
                    *begun = Some(each);
                }
            }
            Call::Complete { now, request, .. } => {
                if let Some((at, Some(begun))) = self.open.remove(&(target, request)) {
                    let each = self.work[target].advance(Nanos(now));
                    self.work[target].in_service -= 1;
                    let took = Nanos((each - begun).round() as u64);
                    record.requests[at].took = took.max(Nanos(1));
                    record.requests[at].ended = Some(Nanos(now));
                }
            }
            // Its policy is another one from now on: before anything came there is nothing to compare.
            Call::Drain { .. } if record.requests.is_empty() => self.forget(target),
            Call::Drain { .. } => return false,
            Call::SetPlaces { .. } | Call::DeviceServed { .. } => self.is_measured[target] = true,
            Call::Cancel { request, gave: true, .. } => _ = self.open.remove(&(target, request)),
            _ => {}
        }
        true
    }

    /// As if a target, of which no request came, had not been recorded.
    fn forget(&mut self, target: usize) {
        self.record.targets.remove(target);
        self.work.remove(target);
        self.is_measured.remove(target);
        self.targets.retain(|_, at| *at != target);
        self.record.told.retain(|(_, at, _)| *at != target);
        let told = self.record.told.iter_mut().map(|(_, at, _)| at);
        told.chain(self.targets.values_mut()).filter(|at| **at > target).for_each(|at| *at -= 1);
    }

    fn finish(mut self) -> Record {
        // One that replaces another when the record ends.
        let is_used = |record: &Record, target| {
            record.requests.iter().any(|asked| asked.target == target)
                || record.told.iter().any(|told| told.1 == target)
        };
        while let Some(last) = self.record.targets.len().checked_sub(1).filter(|last| !is_used(&self.record, *last)) {
            self.record.targets.truncate(last);
        }
        let record = &mut self.record;
        for asked in record.requests.iter_mut().filter(|asked| !self.is_measured[asked.target]) {
            let serves_one = record.targets[asked.target].tuning.parallel == 1;
            asked.took = if serves_one { asked.cost } else { asked.took.min(asked.cost) }.max(Nanos(1));
        }
        let asked = record.requests.len();
        record.requests.retain(|asked| asked.ended.is_some());
        record.left_out = (asked - record.requests.len()) as u64;
        record.settle();
        self.record
    }
}
