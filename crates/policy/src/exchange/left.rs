//! What the jobs that use a target leave of it to one more, for whoever places files.
//!
//! Where a target divides by itself, a newcomer with enough to do gets the max-min fair part of its time beside those who are there: each
//! of them has what he uses of it, or as much as the newcomer if he waits for more. But servers that tell each other what jobs receive divide
//! so that every job has its share of the *whole*: a job that has idle targets to itself elsewhere gets nothing of one on which
//! somebody waits who has less than that altogether. So levels are filled from what each job has on other targets: a job
//! that waits here and has `e` elsewhere has L − e of this one, at least nothing and at most all of it; one that does not wait has no more than it
//! uses; and the newcomer L − W, where W is what nobody else uses of all other targets. L is the level at which this adds up to all of the target.
//!
//! That is for jobs that count alike, as under `job-fair`. Under other policies it is an estimate: whose share is larger
//! leaves less than this.

use super::{Exchange, Identity, Table, identity};
use isonomia_units::{JobInfo, Nanos, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of all targets at a time.
#[derive(Clone, Debug, Default)]
pub struct Left {
    tables: BTreeMap<ServerId, Arc<Table>>,
    /// What each job uses of all targets together, in targets.
    used: BTreeMap<Identity, f64>,
    /// What nobody uses of them.
    unused: f64,
}

/// What one job uses of a target.
struct Use {
    of: Identity,
    /// Of the target's time: 0 to 1.
    part: f64,
    /// It would use more.
    is_short: bool,
}

/// A job that is there when a newcomer comes.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// What it has of other targets.
    elsewhere: f64,
    /// What it would use of this one: 0 to 1.
    wanted: f64,
}

impl Exchange {
    /// What is known of the targets of all servers that are heard of, and of the server's own. O(n log n) for n rows.
    pub fn left(&self, server: ServerId, own: Arc<Table>) -> Left {
        let mut tables: BTreeMap<_, _> =
            self.tables.iter().map(|(server, (_, table))| (*server, table.clone())).collect();
        tables.insert(server, own);
        let mut left = Left::default();
        for table in tables.values() {
            for index in 0..table.targets.len() {
                let mut unused = 1.0_f64;
                for Use { of, part, .. } in uses(table, index) {
                    unused -= part;
                    *left.used.entry(of).or_default() += part;
                }
                left.unused += unused.max(0.0);
            }
        }
        Left { tables, ..left }
    }

    /// How long what a server told counts.
    pub fn kept_for(&self) -> Nanos {
        self.kept_for
    }
}

/// Who uses the target at `index` of a server, each once: two jobs of one user and name count as one.
fn uses(table: &Table, index: usize) -> impl Iterator<Item = Use> {
    let window = (table.window_ns as f64).max(1.0);
    let mut found: BTreeMap<Identity, (f64, bool)> = BTreeMap::new();
    for row in table.targets.get(index).into_iter().flatten() {
        let Some(job) = table.jobs.get(row.job as usize) else { continue };
        let (part, is_short) = found.entry(identity(job)).or_default();
        (*part, *is_short) = ((*part + row.service_ns as f64 / window).min(1.0), *is_short || row.is_short);
    }
    found.into_iter().map(|(of, (part, is_short))| Use { of, part, is_short })
}

impl Left {
    /// Whether `server` is heard of.
    pub fn knows(&self, server: ServerId) -> bool {
        self.tables.contains_key(&server)
    }

    /// Which part (0 to 1) of the time of the target at `index` in the list of `server` the others leave to `job`, if it uses
    /// before what nobody uses elsewhere. All of it, of one that nothing is known of. O(n log n) for n jobs there.
    pub fn of(&self, server: ServerId, index: usize, job: Option<&JobInfo>) -> f64 {
        let Some(table) = self.tables.get(&server).filter(|table| index < table.targets.len()) else { return 1.0 };
        let own: Option<Identity> = job.map(identity);
        let used = |of: &Identity| self.used.get(of).copied().unwrap_or(0.0);
        let (mut here, mut own_here, mut claims) = (0.0, 0.0, Vec::new());
        for Use { of, part, is_short } in uses(table, index) {
            here += part;
            if Some(&of) == own.as_ref() {
                own_here += part;
            } else {
                let wanted = if is_short { 1.0 } else { part };
                claims.push(Claim { elsewhere: (used(&of) - part).max(0.0), wanted });
            }
        }
        let own_elsewhere = own.as_ref().map_or(0.0, |own| (used(own) - own_here).max(0.0));
        let unused_elsewhere = (self.unused - f64::max(1.0 - here, 0.0)).max(0.0);
        newcomers(&claims, unused_elsewhere + own_elsewhere)
    }
}

/// What a newcomer who has `elsewhere` of other targets gets of one on which these are: see the module.
fn newcomers(claims: &[Claim], elsewhere: f64) -> f64 {
    // What is given at a level grows with it, faster by one where a job begins to have some, and slower where it has all it wants.
    let begins = claims.iter().map(|claim| (claim.elsewhere, 1.0));
    let ends = claims.iter().map(|claim| (claim.elsewhere + claim.wanted, -1.0));
    let mut bends: Vec<(f64, f64)> = begins.chain(ends).chain([(elsewhere, 1.0)]).collect();
    bends.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let (mut level, mut given, mut slope) = (0.0, 0.0, 0.0);
    for (at, bend) in bends {
        let more = slope * (at - level);
        if given + more >= 1.0 {
            break;
        }
        (level, given, slope) = (at, given + more, slope + bend);
    }
    // Somebody still takes what there is: the newcomer has no end.
    let level = level + (1.0 - given) / f64::max(slope, 1.0);
    (level - elsewhere).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Row, Rule};
    use super::*;
    use proptest::prelude::*;

    fn table(rows: &[(u32, f64, bool)]) -> Table {
        let row = |&(job, used, is_short): &(u32, f64, bool)| Row {
            job,
            service_ns: (used * 1e9) as u64,
            is_short,
            fair_end_ns: 0,
        };
        let jobs = (0..9).map(|number| JobInfo::new(&format!("j{number}"), "ada", "astro")).collect();
        // Nobody has anything elsewhere: the first target is all in use by one who has no rows on the second.
        let busy = vec![row(&(8, 1.0, false))];
        Table { window_ns: 1_000_000_000, jobs, targets: vec![busy, rows.iter().map(row).collect()] }
    }

    fn left(rows: &[(u32, f64, bool)], job: Option<&str>) -> f64 {
        left_of(table(rows), 1, job)
    }

    fn left_of(table: Table, index: usize, job: Option<&str>) -> f64 {
        let left = Exchange::new(Rule::Received, Nanos::from_millis(500)).left(ServerId(1), Arc::new(table));
        let job = job.map(|name| JobInfo::new(name, "ada", "astro"));
        (left.of(ServerId(1), index, job.as_ref()) * 1e6).round() / 1e6
    }

    /// A target in use as `rows` say, and `idle` others.
    fn beside(idle: usize, rows: &[(u32, f64, bool)]) -> Table {
        let mut table = table(rows);
        table.targets.remove(0);
        table.targets.resize(idle + 1, Vec::new());
        table
    }

    /// The other way to the same: the level is looked for by halving.
    fn by_halving(claims: &[Claim], elsewhere: f64) -> f64 {
        let given = |level: f64| {
            let others = claims.iter().map(|claim| (level - claim.elsewhere).clamp(0.0, claim.wanted));
            others.sum::<f64>() + (level - elsewhere).max(0.0)
        };
        let (mut low, mut high) = (0.0, elsewhere + 2.0);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if given(middle) < 1.0 { low = middle } else { high = middle }
        }
        (high - elsewhere).clamp(0.0, 1.0)
    }

    #[test]
    fn a_newcomer_gets_what_max_min_fairness_gives_him() {
        for (rows, expected) in [
            (&[][..], 1.0),
            (&[(0, 0.2, false)], 0.8),
            // It uses all that there is, and gives up half of it.
            (&[(0, 1.0, false)], 0.5),
            (&[(0, 0.3, true)], 0.5),
            (&[(0, 0.1, false), (1, 0.9, true)], 0.45),
            (&[(0, 0.3, true), (1, 0.3, true), (2, 0.3, true)], 0.25),
        ] {
            assert_eq!(left(rows, Some("new")), expected, "{rows:?}");
            assert_eq!(left(rows, None), expected, "{rows:?}");
        }
    }

    #[test]
    fn what_a_job_uses_itself_is_left_to_it() {
        assert_eq!(left(&[(3, 0.9, true), (1, 0.1, false)], Some("j3")), 0.9);
    }

    #[test]
    fn who_has_idle_targets_elsewhere_gets_nothing_beside_one_who_waits_and_has_less() {
        // Six idle ones are more than the one on which it waits.
        assert_eq!(left_of(beside(6, &[(0, 1.0, true)]), 0, Some("new")), 0.0);
        assert_eq!(left_of(beside(6, &[(0, 1.0, true)]), 1, Some("new")), 1.0);
        // One that waits there and has half of another one, and the newcomer a whole one: a quarter, and three.
        let mut table = beside(0, &[(0, 0.5, true)]);
        let row = |job, used: f64| Row { job, service_ns: (used * 1e9) as u64, is_short: false, fair_end_ns: 0 };
        table.targets.extend([vec![row(0, 0.5), row(1, 0.5)], Vec::new()]);
        assert_eq!(left_of(table, 0, Some("new")), 0.25);
        // Nobody waits, so there is something left however much it has.
        assert_eq!(left_of(beside(6, &[(0, 0.5, false)]), 0, Some("new")), 0.5);
        // Two jobs of one user and name are one.
        let mut table = beside(0, &[(0, 0.5, true), (1, 0.5, true)]);
        table.jobs[1] = table.jobs[0].clone();
        assert_eq!(left_of(table, 0, Some("new")), 0.5);
        // What it uses itself elsewhere it has there as well.
        let mut table = beside(0, &[(0, 1.0, true)]);
        table.targets.extend([vec![row(5, 1.0)], vec![row(6, 1.0)]]);
        assert_eq!(left_of(table.clone(), 0, Some("j5")), 0.0);
        assert_eq!(left_of(table, 0, Some("new")), 0.5);
    }

    proptest! {
        #[test]
        fn levels_are_those_that_halving_finds(
            claims in prop::collection::vec((0.0..3.0_f64, 0.0..1.0_f64), 0..6),
            elsewhere in 0.0..3.0_f64,
        ) {
            let claims: Vec<Claim> =
                claims.into_iter().map(|(elsewhere, wanted)| Claim { elsewhere, wanted }).collect();
            prop_assert!((newcomers(&claims, elsewhere) - by_halving(&claims, elsewhere)).abs() < 1e-9);
        }
    }

    #[test]
    fn of_whom_nothing_is_known_all_is_left() {
        let left = Exchange::new(Rule::Received, Nanos::from_millis(500)).left(ServerId(1), Arc::default());
        assert!(left.knows(ServerId(1)) && !left.knows(ServerId(2)));
        assert_eq!((left.of(ServerId(1), 0, None), left.of(ServerId(2), 7, None)), (1.0, 1.0));
    }
}
