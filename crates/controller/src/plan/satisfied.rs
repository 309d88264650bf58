//! Who wants less than is due to him: it is left to him, and the others share what remains.
//!
//! GIFT's applications are in an I/O phase or they are not, and one that is in it takes all that it gets (§2, §3.4). Live there
//! are those, too, that do a little I/O all the time. Counted like the others, such a one would delay whoever shares a
//! target with it, since all progress is that of the slowest target; and it would be throttled, which costs it nothing, and get coupons
//! and node time for that.
//!
//! A job is *satisfied* that waits for more at none of its targets, and wants at each of them no more than is due to it there. Its part
//! of a target is what is due to it, so that it is served well if it wants more next; of the targets, the schemes divide
//! among the others what it is likely to leave. Of one that had next to nothing and did not wait it is never asked whether a part is enough: a job
//! of one node beside one of thousands is due less than can be told. It is neither throttled nor does it redeem. Who takes less than is due to him
//! makes more due to the others, some of whom may be satisfied by that: it is gone through again, as progressive filling does.
//!
//! A job that waits at one target counts at all of its targets, however little it has of the others: they may be waiting for that one.

use super::joined::{Joined, Known, KnownRow};
use crate::message::PARTS_PER_TARGET;
use isonomia_units::TargetId;

/// It is gone through so often at most: who would be found later counts as one who wants more.
const PASSES_MAX: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Satisfied {
    /// Of each job, in the order of their keys.
    weights: Vec<f64>,
    is_satisfied: Vec<bool>,
    /// By target: the sum of the weights of all who use it; nothing if nobody is satisfied.
    totals: Vec<f64>,
    /// By target: what is left for those who want more.
    left: Vec<f64>,
}

impl Satisfied {
    /// Of jobs with these weights, which are positive.
    ///
    /// O(rows), and O(rows of those who may be satisfied · passes).
    pub(super) fn new(jobs: &Joined, weights: Vec<f64>) -> Self {
        let is_satisfied = vec![false; weights.len()];
        let mut found = Self { weights, is_satisfied, totals: Vec::new(), left: Vec::new() };
        let waits_nowhere = |job: &Known| !job.rows.is_empty() && job.rows.iter().all(|row| wanted(row).is_some());
        let mut candidates: Vec<(usize, &Known)> =
            jobs.iter().enumerate().filter(|(_, job)| waits_nowhere(job)).collect();
        if candidates.is_empty() {
            return found;
        }
        let targets = jobs.iter().flat_map(|job| &job.rows).map(|row| at(row.target) + 1).max().unwrap_or(0);
        found.totals = vec![0.0; targets];
        found.left = vec![1.0; targets];
        for (job, weight) in jobs.iter().zip(&found.weights) {
            job.rows.iter().for_each(|row| found.totals[at(row.target)] += weight);
        }
        // The weights of those at each target who are not satisfied.
        let mut weights_left = found.totals.clone();
        for _ in 0..PASSES_MAX {
            let before = candidates.len();
            candidates.retain(|&(index, job)| {
                let weight = found.weights[index];
                // Of who does next to nothing what is due to him is enough, however little.
                let taken = |row: &KnownRow| {
                    let target = at(row.target);
                    let due = found.left[target] * weight / weights_left[target];
                    wanted(row).filter(|wanted| *wanted <= due || row.of.load.is_least()).map(|wanted| wanted.min(due))
                };
                let Some(taken) = job.rows.iter().map(taken).collect::<Option<Vec<f64>>>() else {
                    return true;
                };
                found.is_satisfied[index] = true;
                for (row, taken) in job.rows.iter().zip(taken) {
                    found.left[at(row.target)] -= taken;
                    weights_left[at(row.target)] -= weight;
                }
                false
            });
            if candidates.len() == before {
                break;
            }
        }
        found
    }

    /// Whether the job at this index is satisfied.
    pub(super) fn is(&self, index: usize) -> bool {
        self.is_satisfied[index]
    }

    /// The weight of the job at this index.
    pub(super) fn weight(&self, index: usize) -> f64 {
        self.weights[index]
    }

    /// The part of a target that is left for those who want more.
    pub(super) fn left(&self, target: TargetId) -> f64 {
        // Nobody takes more than is due to him, so that something is left; but for the rounding of sums.
        self.left.get(at(target)).map_or(1.0, |left| left.clamp(f64::EPSILON, 1.0))
    }

    /// The part of a target that is due to the job at this index if all who use it want more.
    pub(super) fn due(&self, index: usize, target: TargetId) -> f64 {
        self.totals.get(at(target)).map_or(0.0, |total| self.weights[index] / total)
    }
}

fn at(target: TargetId) -> usize {
    usize::from(target.0)
}

/// What a job is likely to want of a target; nothing if that is all that it can get.
fn wanted(row: &KnownRow) -> Option<f64> {
    Some(f64::from(row.of.load.wanted_parts()?) / f64::from(PARTS_PER_TARGET))
}

#[cfg(test)]
mod tests {
    use crate::kept::Kept;
    use crate::message::{Load, PARTS_PER_TARGET, ReportedJob};
    use crate::plan::{Given, Plan};
    use crate::standing::{Standing, Use, Using};
    use crate::{Decided, Moment};
    use isonomia_allocation::Coupons;
    use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A job, and what it had of which targets in hundredths: `None` if it wants all that it can get.
    type Had<'a> = (&'a str, &'a [(u16, Option<u64>)]);

    fn plan(policy: &str) -> Plan {
        Plan::new(&policy.parse().unwrap(), Nanos::from_secs(10), Kept::default()).unwrap().unwrap()
    }

    fn load(had: Option<u64>, whole: u64) -> Load {
        had.map_or(Load::WANTS_ALL, |had| Load::of(Nanos(had), Nanos(whole), false))
    }

    fn decide(plan: &mut Plan, at_s: u64, jobs: &[Had]) -> Decided {
        decide_of(plan, at_s, 100, jobs)
    }

    /// What jobs had is in parts of `whole`.
    fn decide_of(plan: &mut Plan, at_s: u64, whole: u64, jobs: &[Had]) -> Decided {
        let using = |(name, at): &Had| Using {
            job: ReportedJob::from(&JobInfo::new(name, "ada", "astro")),
            at: at.iter().map(|(at, had)| (TargetId(*at), Use { load: load(*had, whole), progress: None })).collect(),
        };
        let standing = Standing::of(&jobs.iter().map(using).collect::<Vec<_>>());
        let now = Nanos::from_secs(at_s);
        plan.decide(Moment { now, wall: now }, &BTreeMap::from([(ServerId(1), &standing)])).unwrap()
    }

    /// The part that each job has of each target, in thousandths, by its index.
    fn parts(decided: &Decided) -> BTreeMap<(u32, u16), u32> {
        let Given::Rates(rates) = &decided.given[&ServerId(1)] else { unreachable!("it has parts") };
        rates.iter().map(|rate| ((rate.job, rate.target.0), rate.parts / (PARTS_PER_TARGET / 1_000))).collect()
    }

    /// Three jobs that do next to nothing share the first target with one that uses both. Counted like it they limit it to a quarter, also on
    /// the second.
    #[test]
    fn who_wants_little_delays_nobody() {
        let jobs = |little: Option<u64>| {
            let (both, other) = (&[(0, None), (1, None)][..], &[(1, None)][..]);
            let small = [(0, little)];
            parts(&decide(
                &mut plan("bsip"),
                1,
                &[("both", both), ("a", &small), ("b", &small), ("c", &small), ("other", other)],
            ))
        };
        let counted = jobs(None);
        assert_eq!((counted[&(0, 0)], counted[&(0, 1)], counted[&(4, 1)]), (250, 250, 500));
        // What they had and a quarter more is theirs; the rest, 88.75 %, is more than half.
        let left = jobs(Some(3));
        assert_eq!((left[&(0, 0)], left[&(0, 1)], left[&(4, 1)]), (500, 500, 500));
        assert_eq!(left[&(1, 0)], 250, "what is due to it, should it want more");
    }

    /// GIFT Fig. 6: the first one is throttled for the other, and gets coupons; unless it would not have used what is taken.
    #[test]
    fn who_loses_nothing_gets_no_coupons() {
        let issued =
            |had| decide(&mut plan("gift{throttle=0.3}"), 1, &[("A", &[(0, had)]), ("B", &[(0, None), (1, None)])]);
        assert_eq!(issued(None).issued, Coupons(150_000));
        let satisfied = issued(Some(20));
        assert_eq!((satisfied.issued, parts(&satisfied)[&(0, 0)], parts(&satisfied)[&(1, 0)]), (Coupons(0), 500, 750));
        // Half and a quarter of that is more than half.
        assert_eq!(issued(Some(50)).issued, Coupons(150_000));
    }

    /// However many there are, and however little is due to each of them: those that want less delay nobody, and get no coupons.
    #[test]
    fn a_hundred_jobs_that_do_little_are_satisfied() {
        let decided = |policy: &str, count: u32, little: Option<u64>| {
            let names: Vec<String> = (0..count).map(|at| format!("job{at}")).collect();
            let small = [(0, little)];
            let mut jobs: Vec<Had> = vec![("both", &[(0, None), (1, None)])];
            jobs.extend(names.iter().map(|name| (&**name, &small[..])));
            decide_of(&mut plan(policy), 1, 100_000, &jobs)
        };
        // Each wants 0.5 % and a quarter of that; or next to nothing, for which 0.05 % is enough.
        for (count, little) in [(99, 500), (1_999, 20)] {
            let [counted, satisfied] = [None, Some(little)].map(|little| decided("gift{throttle=0.3}", count, little));
            assert!(counted.issued > Coupons(0));
            assert_eq!(satisfied.issued, Coupons(0));
        }
        let [counted, satisfied] = [None, Some(500)].map(|little| parts(&decided("bsip", 99, little)));
        assert_eq!((counted[&(0, 0)], counted[&(0, 1)]), (10, 10));
        assert_eq!((satisfied[&(0, 0)], satisfied[&(0, 1)], satisfied[&(1, 0)]), (381, 381, 10));
    }

    /// Who waits at one target counts at all, and who is satisfied by what another one leaves is so.
    #[test]
    fn it_is_the_whole_job_and_all_of_them_one_after_the_other() {
        let waits = decide(&mut plan("bsip"), 1, &[("A", &[(0, Some(1)), (1, None)]), ("B", &[(0, None)])]);
        assert_eq!((parts(&waits)[&(0, 0)], parts(&waits)[&(1, 0)]), (500, 500));
        // 30 %, told as 30.4 %, and a quarter of that is more than a third, and less than half of what the one with 4 % leaves.
        let last =
            decide(&mut plan("bsip"), 1, &[("A", &[(0, Some(30))]), ("B", &[(0, Some(4))]), ("C", &[(0, None)])]);
        assert_eq!(parts(&last)[&(2, 0)], 570);
        let all = decide(&mut plan("gift"), 1, &[("A", &[(0, Some(30))]), ("B", &[(0, Some(4))])]);
        assert_eq!((all.jobs, parts(&all)[&(0, 0)], parts(&all)[&(1, 0)]), (2, 500, 500));
    }

    fn any_load() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![1 => Just(None), 3 => (0..=100_u64).prop_map(Some)]
    }

    proptest! {
        /// Nobody is left less than he wants nor takes more than is due to him, and all that is not theirs is the others'.
        #[test]
        fn what_some_want_and_what_is_left_is_all(
            jobs in proptest::collection::vec(proptest::collection::btree_map(0..4_u16, any_load(), 1..4), 1..9),
            policy in proptest::sample::select(vec!["gift{throttle=0.5}", "bsip", "mbw", "tsa{throttle=0.5}"]),
        ) {
            let names: Vec<String> = (0..jobs.len()).map(|at| format!("job{at}")).collect();
            let at: Vec<Vec<(u16, Option<u64>)>> = jobs.into_iter().map(|at| at.into_iter().collect()).collect();
            let said: Vec<Had> = names.iter().zip(&at).map(|(name, at)| (&**name, &**at)).collect();
            let mut plan = plan(policy);
            let decided = decide(&mut plan, 1, &said);
            prop_assert_eq!(&decided.failed, &None);
            let (problem, _, satisfied) = plan.problem().unwrap();
            let is_one = |index: &usize| satisfied.is(*index);
            prop_assert_eq!(problem.apps().len(), (0..at.len()).filter(|index| !is_one(index)).count());
            for target in 0..4 {
                let wanted = |index: &usize| {
                    let (_, had) = at[*index].iter().find(|(at, _)| *at == target)?;
                    let wanted = load(*had, 100).wanted_parts().unwrap_or(PARTS_PER_TARGET);
                    Some(f64::from(wanted) / f64::from(PARTS_PER_TARGET))
                };
                let here: Vec<usize> = (0..at.len()).filter(|index| wanted(index).is_some()).collect();
                let (some, others): (Vec<usize>, Vec<usize>) = here.into_iter().partition(is_one);
                let (left, taken) = (satisfied.left(TargetId(target)), some.iter().filter_map(wanted).sum::<f64>());
                prop_assert!(left > 0.0 && (some.is_empty() || (left + taken - 1.0).abs() < 1e-9), "{left} {taken}");
                let due = left / others.len().max(1) as f64;
                prop_assert!(others.is_empty() || some.iter().filter_map(wanted).all(|wanted| wanted <= due + 1e-9));
            }
        }
    }

    /// What was owed to a job that is satisfied stays in the ledger, and is paid when the period ends.
    #[test]
    fn a_period_ends_though_nobody_wants_anything() {
        let mut plan = plan("gift{throttle=0.3,period=60s}");
        decide(&mut plan, 1, &[("A", &[(0, None)]), ("B", &[(0, None), (1, None)])]);
        for at_s in [11, 21, 31, 41, 51, 61] {
            let quiet = decide(&mut plan, at_s, &[("A", &[(0, Some(1))])]);
            assert_eq!(quiet.redeemed, Coupons(0));
        }
        assert_eq!(plan.kept().periods[&1].payments[0].coupons, 150_000);
    }
}
