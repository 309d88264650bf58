//! Worked examples, and max-min fairness from its definition.

use super::market::{Entry, Market, by_presence};
use super::*;
use isonomia_units::JobId;
use proptest::prelude::*;

fn entry(job: usize, used: f64, is_short: bool) -> Entry {
    Entry { job, used, is_short }
}

/// Where each job has a user of his own.
fn by_receipt(due: &[f64], targets: &[Vec<Entry>]) -> Vec<Vec<f64>> {
    let market = Market::new(due, targets, &vec![1.0; targets.len()]);
    market.parts(due, &market.kept, targets)
}

/// Of targets that serve all the time, jobs that want all they can have.
fn greedy(jobs_of: &[&[usize]]) -> Vec<Vec<Entry>> {
    jobs_of.iter().map(|jobs| jobs.iter().map(|job| entry(*job, 1.0 / jobs.len() as f64, true)).collect()).collect()
}

fn totals(jobs: usize, targets: &[Vec<Entry>], parts: &[Vec<f64>]) -> Vec<f64> {
    let mut totals = vec![0.0; jobs];
    for (entries, parts) in targets.iter().zip(parts) {
        let all: f64 = parts.iter().sum();
        entries.iter().zip(parts).for_each(|(entry, part)| totals[entry.job] += part / all);
    }
    totals
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.005)
}

/// ThemisIO Fig. 5: 16 nodes on both targets, 8 on the first, 8 on the second.
#[test]
fn a_job_on_two_targets_has_half_of_its_share_on_each() {
    let targets = greedy(&[&[0, 1], &[0, 2]]);
    for rule in [by_presence, by_receipt] {
        let parts = rule(&[0.5, 0.25, 0.25], &targets);
        assert!(near(&parts[0], &[0.5, 0.5]) && near(&parts[1], &[0.5, 0.5]), "{parts:?}");
    }
}

/// Two jobs of equal shares, and a third one with what nobody else wants.
#[test]
fn who_has_a_target_for_himself_leaves_others_the_rest() {
    let targets = greedy(&[&[0, 1], &[0]]);
    // By presence the first has a quarter and a whole: more than its share by a quarter.
    let presence = totals(2, &targets, &by_presence(&[0.5, 0.5], &targets));
    assert!(near(&presence, &[4.0 / 3.0, 2.0 / 3.0]), "{presence:?}");
    let parts = by_receipt(&[0.5, 0.5], &targets);
    let had = totals(2, &targets, &parts);
    assert!(had[1] > 0.95, "all of the first target but what keeps the other going: {had:?}");
    assert!(parts[0][0] > 0.0);
}

#[test]
fn who_needs_little_of_one_target_has_the_rest_of_his_share_on_another() {
    // The first needs a twentieth of the first target. Its share is half of two targets: one.
    let targets =
        vec![vec![entry(0, 0.05, false), entry(1, 0.95, true)], vec![entry(0, 0.5, true), entry(2, 0.5, true)]];
    let due = [0.5, 0.25, 0.25];
    let presence = by_presence(&due, &targets);
    assert!(near(&presence[1], &[0.5, 0.5]), "{presence:?}");
    let parts = by_receipt(&due, &targets);
    // 0.05 + a : b = 2 : 1, and a + b = 1.
    assert!(near(&parts[1], &[0.65, 0.35]), "{parts:?}");
    assert!(parts[0][0] >= 0.05 && parts[0][1] > 0.9, "it is not kept from what it uses: {parts:?}");
}

/// One who came first, and has nearly everything without waiting for it, gives way to one who waits.
#[test]
fn who_came_first_keeps_no_more_than_his_share() {
    let targets = vec![vec![entry(0, 0.95, false), entry(1, 0.05, true)]];
    let parts = by_receipt(&[0.5, 0.5], &targets);
    assert!(near(&parts[0], &[0.5, 0.5]), "{parts:?}");
    // As long as nobody waits, nobody has to.
    let targets = vec![vec![entry(0, 0.7, false), entry(1, 0.05, false)]];
    let parts = by_receipt(&[0.5, 0.5], &targets);
    assert!(near(&parts[0], &[0.5, 0.5]), "{parts:?}");
}

/// What one job of a user has no use for, another job of that user has.
#[test]
fn a_share_that_is_not_used_goes_to_the_same_user_first() {
    let policy: PolicySpec = "user-then-job-fair".parse().unwrap();
    let job = |name: &str, user: &str| JobInfo::new(name, user, "g");
    let idle = (0..50).map(|at| job(&format!("small{at}"), "ada"));
    let jobs: Vec<JobInfo> = [job("big", "ada"), job("rival", "bob")].into_iter().chain(idle).collect();
    let used = |job, part: f64, is_short| Row { job, service_ns: (part * 1e9) as u64, is_short, fair_end_ns: 0 };
    let small = (2..52).map(|job| used(job, 0.002, false)).collect();
    let targets = vec![vec![used(0, 0.5, true), used(1, 0.5, true)], small];
    let own = Table { window_ns: 1_000_000_000, jobs, targets };
    let mut exchange = Exchange::new(Rule::Received, Nanos::from_millis(500));
    let parts = exchange.join(Nanos(1), &policy, &own, &mut Course::new(Nanos::from_millis(500)));
    // Ada has a tenth of the second target and a of the first, bob b: 0.1 + a = b, a + b = 1.
    assert!(near(&parts[0], &[0.45, 0.55]), "{:?}", parts[0]);
}

fn job(name: &str, nodes: u32) -> JobInfo {
    JobInfo { nodes, ..JobInfo::new(name, name, "g") }
}

fn row(job: u32, part: f64) -> Row {
    Row { job, service_ns: (part * 1e9) as u64, is_short: true, fair_end_ns: 0 }
}

fn table(jobs: Vec<JobInfo>, targets: Vec<Vec<Row>>) -> Table {
    Table { window_ns: 1_000_000_000, jobs, targets }
}

#[test]
fn tables_of_others_count_until_they_are_silent() {
    let policy: PolicySpec = "size-fair".parse().unwrap();
    let interval = Nanos::from_millis(500);
    let own = table(vec![job("a", 16), job("b", 8)], vec![vec![row(0, 0.6), row(1, 0.4)]]);
    let others = table(vec![job("c", 8), job("a", 16)], vec![vec![row(1, 0.6), row(0, 0.4)]]);
    let mut exchange = Exchange::new(Rule::Received, interval);
    let course = &mut Course::new(interval);
    let alone = exchange.join(Nanos(1), &policy, &own, course);
    assert!(near(&alone[0], &[2.0 / 3.0, 1.0 / 3.0]), "{alone:?}");
    assert_eq!(exchange.tell(Nanos(2), ServerId(2), others.clone()), Ok(true));
    assert!(near(&exchange.join(Nanos(3), &policy, &own, course)[0], &[0.5, 0.5]));
    let late = Nanos(3) + Nanos(interval.0 * KEPT_FOR);
    assert!(near(&exchange.join(late, &policy, &own, course)[0], &[2.0 / 3.0, 1.0 / 3.0]), "it is silent");
    assert_eq!(exchange.heard(), 0);
    let fifo = "fifo".parse().unwrap();
    assert_eq!(exchange.join(late, &fifo, &own, course), [Vec::<f64>::new()], "nobody is owed a share");
    let unknown = table(vec![job("c", 8)], vec![vec![row(1, 0.5)]]);
    assert_eq!(exchange.tell(late, ServerId(2), unknown), Err(BadTable::UnknownJob { job: 1, jobs: 1 }));
    let timeless = Table { window_ns: 0, ..others.clone() };
    assert_eq!(exchange.tell(late, ServerId(2), timeless), Err(BadTable::NoTime));
    let wide = Table { targets: vec![Vec::new(); TARGETS_MAX + 1], ..others };
    assert_eq!(exchange.tell(late, ServerId(2), wide), Err(BadTable::TooManyTargets(TARGETS_MAX + 1)));
    let long = table(vec![job("c", 8)], vec![vec![row(0, 0.5); ROWS_MAX + 1]]);
    assert_eq!(exchange.tell(late, ServerId(2), long), Err(BadTable::TooLong(ROWS_MAX + 1)));
}

#[test]
fn a_meter_looks_back_over_a_window_and_forgets_numbers_that_are_used_again() {
    let ms = Nanos::from_millis;
    let mut meters = Meters::new(1, ms(10));
    let used = |service: u64| {
        BTreeMap::from([(JobId(7), Usage { service: ms(service), waited: Nanos::ZERO, ..Usage::default() })])
    };
    let mut note = |at: u64, service: u64| {
        let own = meters.table(ms(at), [used(service)], |_| Some(job("a", 1)));
        own.table.targets[0].first().map(|row| (row.service_ns / 1_000_000, own.table.window_ns / 1_000_000))
    };
    assert_eq!(note(0, 0), None, "nothing yet");
    assert_eq!(note(10, 5), Some((5, 10)));
    for at in 2..=20 {
        note(10 * at, 5 * at);
    }
    assert_eq!(note(210, 105), Some((50, 100)), "the last tenth of a second");
    assert_eq!(note(220, 3), Some((3, 100)), "another job of the same number");
}

#[test]
fn who_came_just_now_is_short_if_it_waited_while_it_was_there() {
    let ms = Nanos::from_millis;
    for interval in [10, 500] {
        let mut meters = Meters::new(1, ms(interval));
        let mut is_short = |at: Nanos, service: Nanos, waited: Nanos| {
            let usage = BTreeMap::from([(JobId(7), Usage { service, waited, ..Usage::default() })]);
            let own = meters.table(at, [usage], |_| Some(job("a", 1)));
            own.table.targets[0].first().map(|row| row.is_short)
        };
        let tick = |at: u64| ms(at * interval);
        for at in 1..=20 {
            assert_eq!(is_short(tick(at), Nanos::ZERO, Nanos::ZERO), None);
        }
        // It came a millisecond before, and waited for most of that.
        assert_eq!(is_short(tick(21), Nanos(100_000), Nanos(900_000)), Some(true), "{interval} ms");
        // From then on it does not wait.
        assert_eq!(is_short(tick(40), ms(6 * interval), Nanos(900_000)), Some(false), "{interval} ms");
        // Who is served at once is not short, however short the time.
        let mut meters = Meters::new(1, ms(interval));
        for (at, service, waited) in [(1, 0, 0), (2, 0, 0), (3, 900_000, 10_000)] {
            let usage = BTreeMap::from([(
                JobId(7),
                Usage { service: Nanos(service), waited: Nanos(waited), ..Usage::default() },
            )]);
            let own = meters.table(tick(at), [usage], |_| Some(job("a", 1)));
            assert!(own.table.targets[0].iter().all(|row| !row.is_short), "{interval} ms");
        }
    }
}

proptest! {
    /// The outcome is max-min fair, checked from its definition: where a job is served, nobody has more for his share than it has, but
    /// for what the floor keeps.
    #[test]
    fn nobody_could_have_more_without_taking_it_from_who_has_less(
        weights in proptest::collection::vec(1u32..20, 2..8),
        uses in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 8), 1..6),
    ) {
        let jobs = weights.len();
        let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let due: Vec<f64> = weights.iter().map(|weight| f64::from(*weight) / all).collect();
        let jobs_of: Vec<Vec<usize>> = uses.iter().map(|uses| (0..jobs).filter(|job| uses[*job]).collect()).collect();
        let jobs_of: Vec<&[usize]> = jobs_of.iter().map(Vec::as_slice).collect();
        let targets = greedy(&jobs_of);
        let parts = by_receipt(&due, &targets);
        let presence = by_presence(&due, &targets);
        let had = totals(jobs, &targets, &parts);
        let level: Vec<f64> = had.iter().zip(&due).map(|(had, due)| had / due).collect();
        for ((entries, parts), presence) in targets.iter().zip(&parts).zip(&presence) {
            for (at, richer) in entries.iter().enumerate() {
                // Who has more than by the floor of a target could leave it to others there.
                if parts[at] <= 1.5 * FLOOR * presence[at] { continue; }
                for poorer in entries {
                    prop_assert!(
                        level[richer.job] <= level[poorer.job] * 1.15 + 0.02,
                        "{} has {} and {} has {}", richer.job, level[richer.job], poorer.job, level[poorer.job]
                    );
                }
            }
            // And no target is left idle.
            prop_assert!(entries.is_empty() || parts.iter().sum::<f64>() > 0.99);
        }
    }

    /// Arbiters divide by the parts, and others beside those have what the policy says.
    #[test]
    fn a_tree_divides_by_parts(
        parts in proptest::collection::vec((0u8..3, 1u32..1000), 1..8),
        others in proptest::collection::vec(0u8..3, 0..4),
    ) {
        let policy: PolicySpec = "user-then-job-fair".parse().unwrap();
        let mut tree = ShareTree::new(policy.levels());
        let user = |user: u8, job: String| JobInfo::new(&job, &format!("u{user}"), "g");
        let mut leaves = Vec::new();
        for (at, (name, part)) in parts.iter().enumerate() {
            leaves.push((tree.insert(&user(*name, format!("j{at}")), at as u32), f64::from(*part)));
        }
        let beside: Vec<_> = others.iter().enumerate().map(|(at, name)| {
            tree.insert(&user(*name, format!("o{at}")), 100 + at as u32)
        }).collect();
        leaves.iter().for_each(|(leaf, _)| tree.activate(*leaf));
        beside.iter().for_each(|leaf| tree.activate(*leaf));
        let before: Vec<f64> = beside.iter().map(|leaf| tree.share(*leaf)).collect();
        tree.apportion(&leaves);
        let all: f64 = leaves.iter().map(|(leaf, _)| tree.share(*leaf)).sum();
        let total: f64 = leaves.iter().map(|(_, part)| part).sum();
        if beside.is_empty() {
            for (leaf, part) in &leaves {
                prop_assert!((tree.share(*leaf) / all - part / total).abs() < 1e-3, "{parts:?}");
            }
        }
        let sum: f64 = all + beside.iter().map(|leaf| tree.share(*leaf)).sum::<f64>();
        prop_assert!((sum - 1.0).abs() < 1e-9);
        // Undone, everything is as it was.
        tree.apportion(&[]);
        let after: Vec<f64> = beside.iter().map(|leaf| tree.share(*leaf)).collect();
        prop_assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}

/// One job has files on both targets of this server and on another server's; what that told is 10 ms old.
#[test]
fn a_phase_ends_fairly_where_its_last_target_is_done_with_it() {
    let job = |name: &str, user: &str| JobInfo::new(name, user, "g");
    let row = |job, end_ms: u64| Row { job, service_ns: 1, is_short: true, fair_end_ns: end_ms * 1_000_000 };
    let table = |jobs: Vec<JobInfo>, targets| Table { window_ns: 1, jobs, targets };
    let own = table(
        vec![job("a", "ada"), job("b", "ben"), job("a", "ada")],
        vec![vec![row(0, 30), row(1, 5)], vec![row(0, 50), row(2, 60), row(1, 0)]],
    );
    let ms = Nanos::from_millis;
    let mut exchange = Exchange::new(Rule::Received, ms(100));
    let ends = |exchange: &Exchange, now| exchange.fair_ends(now, &own);
    let alone = [vec![ms(60), ms(0)], vec![ms(30), ms(30), ms(5)]];
    assert_eq!(ends(&exchange, ms(1)), alone, "of its own targets, of which the second has two jobs that are one");
    let theirs = table(vec![job("b", "ben"), job("a", "eve")], vec![vec![row(0, 25), row(1, 999)]]);
    exchange.tell(ms(1), ServerId(2), theirs).unwrap();
    let both = [vec![ms(60), ms(15)], vec![ms(30), ms(30), ms(15)]];
    assert_eq!(ends(&exchange, ms(11)), both, "another user's job of that name is another one");
    assert_eq!(ends(&exchange, ms(90)), alone, "it has passed by now");
    let idle = table(vec![job("a", "ada")], vec![vec![row(0, 0)], vec![]]);
    assert_eq!(Exchange::new(Rule::Received, ms(100)).fair_ends(ms(90), &idle), [vec![], vec![]]);
}
