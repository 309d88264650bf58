//! A server's part: what it reports of its own targets, and what their arbiters are told. The same live and simulated.

use crate::message::{Content, JobKey, PARTS_PER_TARGET, Progress, Report, ReportedJob, Row, Term};
use isonomia_policy as policy;
use isonomia_policy::exchange::Own;
use isonomia_units::{JobId, Nanos, TargetId};
use std::collections::{BTreeMap, HashMap};

/// What jobs have is looked at so often at most,
const LOOK_MIN: Nanos = Nanos::from_millis(50);
/// and at least: who does I/O now counts, and not who did a while ago.
const LOOK_MAX: Nanos = Nanos::from_millis(500);

/// Nobody's part of a target is below a hundredth: one request that was served at next to no part would be a debt that its
/// job pays for long after the allocation has ended.
const PARTS_LEAST: u32 = PARTS_PER_TARGET / 100;

/// How often a server looks at what its jobs have, if it is decided every `interval`.
pub fn look_every(interval: Nanos) -> Nanos {
    Nanos(interval.0 / 2).clamp(LOOK_MIN, LOOK_MAX)
}

impl Report {
    /// Of what a server's jobs had of its targets. `of` says to whom it is: the controller's term, its round (0 if it has not
    /// asked), and the version that the server holds. `targets` are those of `own`, in its order: the number of each in the
    /// whole system (one without is left out), and how far the phases of its jobs have come.
    pub fn of_usage(
        of: (Term, u64, u64),
        own: &Own,
        targets: impl IntoIterator<Item = (Option<TargetId>, Vec<(JobId, policy::Progress)>)>,
    ) -> Self {
        let (term, round, version) = of;
        let jobs = own.table.jobs.iter().map(ReportedJob::from).collect();
        let mut report = Self { term, round, version, window_ns: own.table.window_ns.max(1), jobs, rows: Vec::new() };
        for ((id, phases), (rows, jobs)) in targets.into_iter().zip(own.table.targets.iter().zip(own.jobs())) {
            let Some(target) = id else { continue };
            let phases: HashMap<JobId, policy::Progress> = phases.into_iter().collect();
            report.rows.extend(rows.iter().zip(jobs).map(|(row, job)| Row {
                job: row.job,
                target,
                service_us: row.service_ns / 1_000,
                is_short: row.is_short,
                progress: phases.get(job).map(told),
            }));
        }
        report
    }
}

impl Content {
    /// What the arbiters of a server's targets are told ([`isonomia_policy::Arbiter::apportion`]), by target; nothing for those that
    /// are not there, and nothing at all if this is no decision of parts. `known` are the server's jobs: several that the controller knows as
    /// one divide what is given to it.
    pub fn parts(&self, known: &HashMap<JobKey, Vec<JobId>>) -> BTreeMap<TargetId, Vec<(JobId, f64)>> {
        let mut parts: BTreeMap<TargetId, Vec<(JobId, f64)>> = BTreeMap::new();
        let Self::Rates { jobs, rates } = self else { return parts };
        for rate in rates {
            let Some(ids) = jobs.get(rate.job as usize).and_then(|job| known.get(job)) else { continue };
            let part = f64::from(rate.parts.max(PARTS_LEAST)) / ids.len() as f64;
            parts.entry(rate.target).or_default().extend(ids.iter().map(|id| (*id, part)));
        }
        parts
    }

    /// The places of jobs in the order that this is ([`isonomia_policy::Arbiter::set_rank`]); nothing if it is none.
    pub fn places(&self, known: &HashMap<JobKey, Vec<JobId>>) -> BTreeMap<JobId, u32> {
        let mut places = BTreeMap::new();
        if let Self::Ranks(told) = self {
            for (job, rank) in told {
                places.extend(known.get(job).into_iter().flatten().map(|id| (*id, *rank)));
            }
        }
        places
    }
}

/// How far a phase has come, as it is told.
fn told(progress: &policy::Progress) -> Progress {
    let ms = |time: Nanos| time.0 / 1_000_000;
    let policy::Progress { attained, elapsed, remaining } = *progress;
    Progress { attained_ms: ms(attained), elapsed_ms: ms(elapsed), remaining_ms: remaining.map(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Rate;

    #[test]
    fn looks_are_twice_an_interval_within_bounds() {
        let looked = |ms| look_every(Nanos::from_millis(ms));
        assert_eq!([100, 600, 10_000].map(looked), [50, 300, 500].map(Nanos::from_millis));
        assert_eq!(looked(10), LOOK_MIN);
    }

    #[test]
    fn jobs_that_are_one_divide_its_part_and_nobody_has_none() {
        let key = |name: &str| JobKey { user: "ada".into(), name: name.into() };
        let known = HashMap::from([(key("a"), vec![JobId(1), JobId(2)]), (key("b"), vec![JobId(3)])]);
        let rate = |job, parts| Rate { job, target: TargetId(7), parts };
        // Nobody here knows the third.
        let content = Content::Rates {
            jobs: vec![key("a"), key("b"), key("c")],
            rates: vec![rate(0, 600_000), rate(1, 0), rate(2, 400_000)],
        };
        let parts = content.parts(&known);
        assert_eq!(parts[&TargetId(7)], [(JobId(1), 300_000.0), (JobId(2), 300_000.0), (JobId(3), 10_000.0)]);
        assert!(content.places(&known).is_empty());
        let order = Content::Ranks(vec![(key("b"), 4), (key("c"), 1)]);
        assert_eq!(order.places(&known), BTreeMap::from([(JobId(3), 4)]));
        assert!(order.parts(&known).is_empty());
    }
}
