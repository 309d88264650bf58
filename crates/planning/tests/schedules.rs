//! Schedules of one I/O node: an example by hand, a second simulator as oracle, and what every schedule keeps.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_planning::{App, Grant, Order, Schedule, ScheduleError, schedule, schedule_with};
use isonomia_units::Nanos;
use proptest::prelude::*;

fn app(compute: u64, io: u64, iterations: u32, release: u64) -> App {
    App { compute: Nanos(compute), io: Nanos(io), iterations, release: Nanos(release) }
}

fn completions(schedule: &Schedule) -> Vec<u64> {
    schedule.apps.iter().map(|app| app.completion.0).collect()
}

fn run(apps: &[App], order: Order) -> (Schedule, Vec<Grant>) {
    let mut grants = Vec::new();
    let schedule = schedule_with(apps, order, |app, _| apps[app].compute, |grant| grants.push(grant)).unwrap();
    (schedule, grants)
}

/// Three applications of Table 1's kind, twelve of work each. Until 12 there is nothing to choose:
///
/// ```text
/// time  0  2  4  6  8  10 12
/// 0     ........####           `.` compute, `#` I/O, `w` waiting
/// 1     ....##....ww           asked at 10 for its last 2
/// 2     ..#..w#..www           asked at 9 for 1; then 2 of compute and 1 of I/O are left
/// ```
#[test]
fn an_example_by_hand() {
    let apps = [app(8, 4, 1, 0), app(4, 2, 2, 0), app(2, 1, 4, 0)];
    let until_12 = [(2, 2, 3), (1, 4, 6), (2, 6, 7), (0, 8, 12)];
    let two_first = ([(2, 12, 13), (1, 13, 15), (2, 15, 16)], [12, 15, 16]);
    let one_first = ([(1, 12, 14), (2, 14, 15), (2, 17, 18)], [12, 14, 18]);
    for (order, (choice, ends)) in [
        (Order::Fifo, two_first),
        (Order::LowestId, one_first),
        (Order::LongestIo, one_first),
        (Order::ShortestIo, two_first),
        // 2 of work are left to 1, 4 to 2.
        (Order::ShortestRemaining, one_first),
        (Order::LongestRemaining, two_first),
        // Both did 2 of I/O in 12.
        (Order::Bandwidth, one_first),
        // 1 did 10 of work in 12, 2 did 8.
        (Order::Stretch, two_first),
    ] {
        let (schedule, grants) = run(&apps, order);
        let grants: Vec<_> = grants.iter().map(|grant| (grant.app, grant.begin.0, grant.end.0)).collect();
        assert_eq!(grants, [&until_12[..], &choice].concat(), "{order}");
        assert_eq!(completions(&schedule), ends, "{order}");
        assert_eq!(schedule.makespan().0, ends[2]);
        assert_eq!(schedule.max_stretch(), ends[2] as f64 / 12.0);
    }
}

#[test]
fn stretch_counts_from_the_release_and_no_io_waits_for_nobody() {
    let schedule = schedule(&[app(0, 10, 1, 0), app(5, 0, 2, 3), app(1, 4, 1, 5)], Order::Fifo).unwrap();
    assert_eq!(completions(&schedule), [10, 13, 14]);
    let stretches: Vec<f64> = schedule.apps.iter().map(isonomia_planning::Outcome::stretch).collect();
    assert_eq!(stretches, [1.0, 1.0, 9.0 / 5.0]);
}

#[test]
fn limits_are_told() {
    let refused = |apps: &[App]| schedule(apps, Order::Fifo).unwrap_err();
    assert_eq!(refused(&[app(1, 1, 1, 0), app(0, 0, 5, 0)]), ScheduleError::Nothing { app: 1 });
    assert_eq!(refused(&[app(1, 1, 0, 0)]), ScheduleError::Nothing { app: 0 });
    assert_eq!(refused(&[app(1, 1, 100_000_001, 0)]), ScheduleError::Phases { phases: 100_000_001 });
    assert_eq!(refused(&[app(u64::MAX / 8, 1, 3, 0)]), ScheduleError::Span);
    assert!(refused(&[app(u64::MAX / 8, 1, 3, 0)]).to_string().contains("146 years"));
    assert_eq!(schedule(&[], Order::Fifo).unwrap().makespan(), Nanos::ZERO);
}

/// A simulator that does everything tick by tick and asks the paper's words anew at every tick; it shares nothing
/// with the crate but [`App`] and [`Order`]. Needs I/O and compute of at least one tick.
fn tick_by_tick(apps: &[App], order: Order) -> Vec<u64> {
    #[derive(Clone, Copy, PartialEq)]
    enum Doing {
        Waiting,
        Computing(u64),
        Asking(u64),
        Io(u64),
        Done(u64),
    }
    let mut doing = vec![Doing::Waiting; apps.len()];
    let (mut computed, mut transferred) = (vec![0u64; apps.len()], vec![0u64; apps.len()]);
    let mut now = 0;
    while !doing.iter().all(|doing| matches!(doing, Doing::Done(_))) {
        for (id, app) in apps.iter().enumerate() {
            doing[id] = match doing[id] {
                Doing::Waiting if now == app.release.0 => Doing::Computing(app.compute.0),
                Doing::Computing(0) => Doing::Asking(now),
                Doing::Io(0) if transferred[id] == app.io.0 * u64::from(app.iterations) => Doing::Done(now),
                Doing::Io(0) => Doing::Computing(app.compute.0),
                other => other,
            };
        }
        if !doing.iter().any(|doing| matches!(doing, Doing::Io(_))) {
            let first = (0..apps.len()).filter(|id| matches!(doing[*id], Doing::Asking(_))).min_by(|&a, &b| {
                let elapsed = |id: usize| (now - apps[id].release.0) as f64;
                let total = |id: usize| (apps[id].compute + apps[id].io).0 * u64::from(apps[id].iterations);
                let left = |id: usize| total(id) - computed[id] - transferred[id];
                let since = |id: usize| if let Doing::Asking(since) = doing[id] { since } else { now };
                // With spans below 2^20 ticks, two quotients are equal or differ by far more than rounding does.
                let quotient = |numerator: u64, id: usize| numerator as f64 / elapsed(id);
                let stretch = |id: usize| quotient(computed[id] + transferred[id], id);
                match order {
                    Order::Fifo => since(a).cmp(&since(b)),
                    Order::LowestId => a.cmp(&b),
                    Order::LongestIo => apps[b].io.cmp(&apps[a].io),
                    Order::ShortestIo => apps[a].io.cmp(&apps[b].io),
                    Order::ShortestRemaining => left(a).cmp(&left(b)),
                    Order::LongestRemaining => left(b).cmp(&left(a)),
                    Order::Bandwidth => quotient(transferred[a], a).total_cmp(&quotient(transferred[b], b)),
                    Order::Stretch => stretch(a).total_cmp(&stretch(b)),
                }
                .then(a.cmp(&b))
            });
            if let Some(id) = first {
                doing[id] = Doing::Io(apps[id].io.0);
            }
        }
        for id in 0..apps.len() {
            match &mut doing[id] {
                Doing::Computing(left) => {
                    *left -= 1;
                    computed[id] += 1;
                }
                Doing::Io(left) => {
                    *left -= 1;
                    transferred[id] += 1;
                }
                _ => {}
            }
        }
        now += 1;
    }
    doing.iter().map(|doing| if let Doing::Done(at) = doing { *at } else { unreachable!() }).collect()
}

fn orders() -> impl Strategy<Value = Order> {
    proptest::sample::select(Order::ALL.to_vec())
}

fn some_apps(least: u64) -> impl Strategy<Value = Vec<App>> {
    let one = (least..12, least..8, 1u32..7, 0u64..20).prop_map(|(c, i, n, r)| app(c.max(1 - i.min(1)), i, n, r));
    proptest::collection::vec(one, 1..7)
}

proptest! {
    #[test]
    fn every_order_is_what_the_second_simulator_does(apps in some_apps(1), order in orders()) {
        prop_assert_eq!(completions(&schedule(&apps, order).unwrap()), tick_by_tick(&apps, order));
    }

    #[test]
    fn io_is_exclusive_whole_and_never_late(apps in some_apps(0), order in orders(), jitter in 0u64..4) {
        let mut grants: Vec<Grant> = Vec::new();
        let mut drawn = vec![0; apps.len()];
        let compute_of = |app: usize, iteration: u32| {
            let phase = apps[app].compute.0 + u64::from(iteration) % (jitter + 1);
            drawn[app] += phase;
            Nanos(phase)
        };
        let schedule = schedule_with(&apps, order, compute_of, |grant| grants.push(grant)).unwrap();
        for pair in grants.windows(2) {
            prop_assert!(pair[0].end <= pair[1].begin, "two at once: {:?}", pair);
            // The node was idle before `begin` only because nobody had asked.
            prop_assert!(pair[1].begin == pair[0].end.max(pair[1].asked) , "idle while claimed: {:?}", pair);
        }
        for (id, (app, outcome)) in apps.iter().zip(&schedule.apps).enumerate() {
            let own: Vec<_> = grants.iter().filter(|grant| grant.app == id).collect();
            prop_assert!(own.iter().all(|grant| grant.end == grant.begin + app.io && grant.begin >= grant.asked));
            prop_assert_eq!(own.len() as u64, if app.io.0 == 0 { 0 } else { u64::from(app.iterations) });
            prop_assert_eq!(outcome.alone, Nanos(drawn[id]) + app.io_alone());
            prop_assert!(outcome.stretch() >= 1.0);
            let waited: u64 = own.iter().map(|grant| grant.begin.since(grant.asked).0).sum();
            prop_assert_eq!(outcome.completion, app.release + outcome.alone + Nanos(waited));
        }
        // ICS'20 Theorem 1: work that is released at once takes no longer than all I/O and the longest alone.
        if apps.iter().all(|app| app.release == Nanos::ZERO) {
            let io: u64 = apps.iter().map(|app| app.io_alone().0).sum();
            let longest = schedule.apps.iter().map(|app| app.alone.0).max().unwrap();
            prop_assert!(schedule.makespan().0 <= io + longest);
        }
    }

    #[test]
    fn the_same_again(apps in some_apps(0), order in orders()) {
        prop_assert_eq!(run(&apps, order), run(&apps, order));
    }
}
