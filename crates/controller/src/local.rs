//! A server's part: what it reports of its own targets, and what their arbiters are told. The same live and simulated.

use crate::message::{JobKey, Load, PARTS_PER_TARGET, Progress, ReportedJob};
use crate::standing::{Use, Using};
use isonomia_policy as policy;
use isonomia_policy::exchange::{Own, Table};
use isonomia_units::{JobId, JobInfo, Nanos, TargetId};
use std::collections::{BTreeMap, HashMap};

/// What jobs have is looked at so often at most,
const LOOK_MIN: Nanos = Nanos::from_millis(50);
/// and at least: who does I/O now counts, and not who did a while ago.
const LOOK_MAX: Nanos = Nanos::from_millis(500);

/// Nobody's part of a target is below a hundredth: one request that was served at next to no part would be a debt that its
/// job pays for long after the allocation has ended.
const PARTS_LEAST: u32 = PARTS_PER_TARGET / 100;

/// Titles and programs of the jobs of a report take so much at most: a report is one message. Further jobs are left out of it, and not their
/// titles alone, for coupons are counted by titles.
const TITLES_LEN_MAX: usize = 48 << 10;

/// The jobs of a server, by what the controller knows them by: several there may be one to it.
pub type KnownJobs = HashMap<JobKey, Vec<JobId>>;

/// How often a server looks at what its jobs have, if it is decided every `interval`.
pub fn look_every(interval: Nanos) -> Nanos {
    Nanos(interval.0 / 2).clamp(LOOK_MIN, LOOK_MAX)
}

/// How often it looks whether phases have begun or ended, under a policy that goes by that.
pub const LOOK_FOR_PHASES_EVERY: Nanos = LOOK_MIN;

impl Using {
    /// Which of a server's jobs used which of its targets, by what they had of them and waited for. `targets` are those of `own`, in its order: the
    /// number of each in the whole system (one without is left out), and how far the phases of its jobs have come, if the
    /// policy goes by that.
    pub fn of(
        own: &Own,
        targets: impl IntoIterator<Item = (Option<TargetId>, Vec<(JobId, policy::Progress)>)>,
    ) -> Vec<Self> {
        let (ids, phases): (Vec<_>, Vec<HashMap<JobId, policy::Progress>>) =
            targets.into_iter().map(|(id, phases)| (id, phases.into_iter().collect())).unzip();
        Self::gather(&own.table, ids, |target, row| {
            let job = own.jobs().get(target)?.get(row)?;
            phases.get(target)?.get(job).map(told)
        })
    }

    /// The same of another server, by what it tells: `targets` are the numbers of its targets.
    pub fn of_table(table: &Table, targets: impl IntoIterator<Item = Option<TargetId>>) -> Vec<Self> {
        Self::gather(table, targets, |_, _| None)
    }

    /// `progress` is by the indices of target and row.
    fn gather(
        table: &Table,
        targets: impl IntoIterator<Item = Option<TargetId>>,
        progress: impl Fn(usize, usize) -> Option<Progress>,
    ) -> Vec<Self> {
        // Those that had the most come first in a table.
        let mut titles_len = 0;
        let fits = |info: &&JobInfo| {
            let texts = [&info.title, &info.executable].into_iter().flatten();
            titles_len += texts.map(|text| text.len()).sum::<usize>();
            titles_len <= TITLES_LEN_MAX
        };
        let jobs: Vec<&JobInfo> = table.jobs.iter().take_while(fits).collect();
        let mut using: BTreeMap<JobKey, Self> = BTreeMap::new();
        for (target, (id, rows)) in targets.into_iter().zip(&table.targets).enumerate() {
            let Some(id) = id else { continue };
            for (index, row) in rows.iter().enumerate() {
                let Some(info) = jobs.get(row.job as usize).copied() else { continue };
                let one = || Self { job: ReportedJob::from(info), at: Vec::new() };
                let at = &mut using.entry(JobKey::of(info)).or_insert_with(one).at;
                let load = Load::of(Nanos(row.service_ns), Nanos(table.window_ns), row.is_short);
                match at.last_mut().filter(|(last, _)| *last == id) {
                    Some((_, of)) => of.load = of.load.with(load),
                    None => at.push((id, Use { load, progress: progress(target, index) })),
                }
            }
        }
        using.into_values().collect()
    }
}

/// What the arbiters of a server's targets are told ([`isonomia_policy::Arbiter::apportion`]) of what its jobs are given, by target. Several
/// that the controller knows as one divide what is given to it.
pub fn parts<'a>(
    given: impl IntoIterator<Item = (&'a JobKey, TargetId, u32)>,
    known: &KnownJobs,
) -> BTreeMap<TargetId, Vec<(JobId, f64)>> {
    let mut parts: BTreeMap<TargetId, Vec<(JobId, f64)>> = BTreeMap::new();
    for (job, target, given) in given {
        let Some(ids) = known.get(job) else { continue };
        let part = f64::from(given.max(PARTS_LEAST)) / ids.len() as f64;
        parts.entry(target).or_default().extend(ids.iter().map(|id| (*id, part)));
    }
    parts
}

/// What the arbiter of a server's metadata service is told, when those of its targets are told `parts`: of the service each job has what it
/// has of a target that it uses, in the mean. So whoever is throttled on the targets is so in what it opens and creates.
pub fn metadata_parts(parts: &BTreeMap<TargetId, Vec<(JobId, f64)>>) -> Vec<(JobId, f64)> {
    let mut sums: BTreeMap<JobId, (f64, f64)> = BTreeMap::new();
    for (job, part) in parts.values().flatten() {
        let (sum, count) = sums.entry(*job).or_default();
        (*sum, *count) = (*sum + part, *count + 1.0);
    }
    sums.into_iter().map(|(job, (sum, count))| (job, sum / count)).collect()
}

/// The ranks of a server's jobs in an order of all ([`isonomia_policy::Arbiter::set_rank`]).
pub fn ranks<'a>(order: impl IntoIterator<Item = (&'a JobKey, u32)>, known: &KnownJobs) -> BTreeMap<JobId, u32> {
    let of = |(job, rank): (&JobKey, u32)| known.get(job).into_iter().flatten().map(move |id| (*id, rank));
    order.into_iter().flat_map(of).collect()
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
    use crate::follower::Follower;
    use crate::message::{MESSAGE_LEN_MAX, Report};
    use isonomia_policy::exchange::{Meters, Row, Usage};
    use std::sync::Arc;

    #[test]
    fn looks_are_twice_an_interval_within_bounds() {
        let looked = |ms| look_every(Nanos::from_millis(ms));
        assert_eq!([100, 600, 10_000].map(looked), [50, 300, 500].map(Nanos::from_millis));
        assert_eq!(looked(10), LOOK_MIN);
    }

    /// However many jobs there are, and however long their names: what is left out are those that had the least. Other servers, who are told
    /// no titles, are told of as many as if there were none.
    #[test]
    fn a_report_of_all_jobs_fits_into_a_message() {
        let usage = |jobs: u32| {
            let had = |job: u32| Usage { service: Nanos(u64::from(1_000_000 - job)), ..Usage::default() };
            (0..jobs).map(|job| (JobId(job), had(job))).collect::<BTreeMap<_, _>>()
        };
        let long = "x".repeat(isonomia_units::NAME_LEN_MAX);
        for (name, title, told_min) in [("", &long[..], 80), (&long[..], "", 70), ("", "lammps", 800)] {
            let info = |job: JobId| {
                let title = (!title.is_empty()).then(|| Arc::from(title));
                let name = format!("{:05}{}", job.0, &name[name.len().min(5)..]);
                Some(JobInfo { title: title.clone(), executable: title, ..JobInfo::new(&name, "ada", "astro") })
            };
            let mut meters = Meters::new(1, Nanos(1));
            meters.table(Nanos(1), [usage(0)], info);
            let own = meters.table(Nanos(2), [usage(4_000)], info);
            assert_eq!(own.table.jobs.len() >= 800, name.is_empty(), "{}", own.table.jobs.len());
            let using = Using::of(&own, [(Some(TargetId(1)), Vec::new())]);
            assert!(using.len() >= told_min && using[0].job.name == info(JobId(0)).unwrap().name, "{}", using.len());
            let report = Follower::default().answer(&using).encode();
            assert!(report.len() <= MESSAGE_LEN_MAX && Report::decode(&report).is_ok(), "{} bytes", report.len());
        }
    }

    #[test]
    fn what_jobs_that_are_one_had_is_told_together() {
        let named = |name: &str| JobInfo::new(name, "ada", "astro");
        let row = |job, service_ns, is_short| Row { job, service_ns, is_short, fair_end_ns: 0 };
        let targets = vec![vec![row(0, 30, true), row(2, 20, false)], vec![row(1, 9, false), row(0, 8, false)]];
        let table = Table { window_ns: 100, jobs: vec![named("a"), named("b"), named("a")], targets };
        let using = Using::of_table(&table, [Some(TargetId(4)), Some(TargetId(5))]);
        let told = using.iter().flat_map(|using| using.at.iter().map(|(at, of)| (&*using.job.name, at.0, of.load)));
        let load = |had, wants_more| Load::of(Nanos(had), Nanos(100), wants_more);
        let expected = [("a", 4, load(50, true)), ("a", 5, load(8, false)), ("b", 5, load(9, false))];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn jobs_that_are_one_divide_its_part_and_nobody_has_none() {
        let key = |name: &str| JobKey { user: "ada".into(), name: name.into() };
        let [a, b, stranger] = ["a", "b", "c"].map(key);
        let known = HashMap::from([(a.clone(), vec![JobId(1), JobId(2)]), (b.clone(), vec![JobId(3)])]);
        let target = TargetId(7);
        let parts = parts([(&a, target, 600_000), (&b, target, 0), (&stranger, target, 400_000)], &known);
        assert_eq!(parts[&target], [(JobId(1), 300_000.0), (JobId(2), 300_000.0), (JobId(3), 10_000.0)]);
        let (other, half) = (TargetId(8), f64::from(PARTS_PER_TARGET / 2));
        let more = parts.into_iter().chain([(other, vec![(JobId(1), half), (JobId(4), half)])]).collect();
        let of_metadata = [(JobId(1), 400_000.0), (JobId(2), 300_000.0), (JobId(3), 10_000.0), (JobId(4), 500_000.0)];
        assert_eq!(metadata_parts(&more), of_metadata, "those of the targets in the mean, whoever uses how many");
        assert_eq!(ranks([(&b, 4), (&stranger, 1)], &known), BTreeMap::from([(JobId(3), 4)]));
    }
}
