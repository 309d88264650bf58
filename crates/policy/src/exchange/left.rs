//! What the jobs that use a target leave of it to one more, for whoever places files.
//!
//! A newcomer with enough to do gets the max-min fair part of the target's time beside those who are there: each of them has
//! what he uses of it, or as much as the newcomer if he waits for more, as under `job-fair`. Under other policies it is an
//! estimate: whose share is larger leaves less than this.

use super::{Exchange, Identity, Table, identity};
use isonomia_units::{JobInfo, Nanos, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of all targets at a time.
#[derive(Clone, Debug, Default)]
pub struct Left {
    tables: BTreeMap<ServerId, Arc<Table>>,
}

impl Exchange {
    /// What is known of the targets of all servers that are heard of, and of the server's own.
    pub fn left(&self, server: ServerId, own: Arc<Table>) -> Left {
        let mut tables: BTreeMap<_, _> =
            self.tables.iter().map(|(server, (_, table))| (*server, table.clone())).collect();
        tables.insert(server, own);
        Left { tables }
    }

    /// How long what a server told counts.
    pub fn kept_for(&self) -> Nanos {
        self.kept_for
    }
}

impl Left {
    /// Whether `server` is heard of.
    pub fn knows(&self, server: ServerId) -> bool {
        self.tables.contains_key(&server)
    }

    /// Which part (0 to 1) of the time of the target at `place` in the list of `server` the others leave to `job`. All of it, of
    /// one that nothing is known of. O(n log n) for n jobs there.
    pub fn of(&self, server: ServerId, place: usize, job: Option<&JobInfo>) -> f64 {
        let Some(table) = self.tables.get(&server) else { return 1.0 };
        let Some(rows) = table.targets.get(place) else { return 1.0 };
        let own: Option<Identity> = job.map(identity);
        let window = (table.window_ns as f64).max(1.0);
        let others = rows.iter().filter(|row| {
            let of = table.jobs.get(row.job as usize).map(identity);
            of.is_some() && of != own
        });
        let mut wanted: Vec<f64> =
            others.map(|row| if row.is_short { 1.0 } else { (row.service_ns as f64 / window).min(1.0) }).collect();
        wanted.sort_unstable_by(f64::total_cmp);
        let (mut left, mut claims) = (1.0_f64, wanted.len() as f64 + 1.0);
        for wanted in wanted {
            if wanted >= left / claims {
                break;
            }
            (left, claims) = (left - wanted, claims - 1.0);
        }
        left / claims
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Row, Rule};
    use super::*;

    fn table(rows: &[(u32, f64, bool)]) -> Table {
        let row = |&(job, used, is_short): &(u32, f64, bool)| Row { job, service_ns: (used * 1e9) as u64, is_short };
        let jobs = (0..9).map(|number| JobInfo::new(&format!("j{number}"), "ada", "astro")).collect();
        Table { window_ns: 1_000_000_000, jobs, targets: vec![Vec::new(), rows.iter().map(row).collect()] }
    }

    fn left(rows: &[(u32, f64, bool)], job: Option<&str>) -> f64 {
        let left = Exchange::new(Rule::Received, Nanos::from_millis(500)).left(ServerId(1), Arc::new(table(rows)));
        let job = job.map(|name| JobInfo::new(name, "ada", "astro"));
        (left.of(ServerId(1), 1, job.as_ref()) * 1e6).round() / 1e6
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
    fn of_whom_nothing_is_known_all_is_left() {
        let left = Exchange::new(Rule::Received, Nanos::from_millis(500)).left(ServerId(1), Arc::default());
        assert!(left.knows(ServerId(1)) && !left.knows(ServerId(2)));
        assert_eq!((left.of(ServerId(1), 0, None), left.of(ServerId(2), 7, None)), (1.0, 1.0));
    }
}
