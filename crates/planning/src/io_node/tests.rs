//! A node under calls by hand, and beside the schedules that it should follow.

use super::*;
use crate::{App, schedule_with};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

const RULES: PhaseRules = PhaseRules { order: Order::Fifo, lease: Nanos(1_000), gap: Nanos(50) };

fn node() -> IoNode {
    IoNode::new(RULES, 7)
}

fn join(node: &mut IoNode, name: &str) -> AppId {
    node.join(Nanos(0), &name.into())
}

fn state(node: &IoNode, now: u64, name: &str) -> AppState {
    node.states(Nanos(now)).into_iter().find(|state| &*state.application == name).unwrap()
}

#[test]
fn a_phase_ends_with_the_gap_and_the_next_one_waits_for_nothing_else() {
    let mut node = node();
    let (a, b) = (join(&mut node, "a"), join(&mut node, "b"));
    node.arrive(Nanos(0), a);
    node.arrive(Nanos(10), b);
    assert!(node.admits(a) && !node.admits(b));
    node.finish(Nanos(20), a);
    // Back within the gap: the same phase.
    node.arrive(Nanos(60), a);
    node.finish(Nanos(100), a);
    assert_eq!(node.ask_again_at(Nanos(100)), Nanos(150));
    node.settle(Nanos(149));
    assert!(node.admits(a) && !node.admits(b));
    node.settle(Nanos(150));
    assert!(!node.admits(a) && node.admits(b));
    let (a, b) = (state(&node, 150, "a"), state(&node, 150, "b"));
    assert_eq!((a.io, a.waited, a.phases, a.standing), (Nanos(100), Nanos(0), 1, Standing::Away));
    assert_eq!((b.waited, b.waited_max, b.standing), (Nanos(140), Nanos(140), Standing::Holding));
    assert_eq!(node.endings(), Endings { gap: 1, ..Endings::default() });
}

#[test]
fn a_declared_phase_ends_at_once_and_no_gap_ends_it() {
    let mut node = node();
    let (a, b) = (join(&mut node, "a"), join(&mut node, "b"));
    node.begin(Nanos(0), a, 1, Declared::default());
    node.begin(Nanos(0), a, 2, Declared::default());
    node.arrive(Nanos(10), b);
    node.arrive(Nanos(300), a);
    assert!(node.admits(a) && !node.admits(b), "no gap ends it");
    node.end(Nanos(310), a, 1);
    node.end(Nanos(310), a, 1);
    node.end(Nanos(320), a, 2);
    assert!(node.admits(a), "what it has outstanding belongs to it");
    node.finish(Nanos(330), a);
    assert!(!node.admits(a) && node.admits(b));
    assert_eq!(node.endings(), Endings { told: 1, ..Endings::default() });
}

#[test]
fn an_application_that_is_gone_delays_nobody() {
    let mut node = node();
    let (a, b) = (join(&mut node, "a"), join(&mut node, "b"));
    node.begin(Nanos(0), a, 1, Declared::default());
    node.arrive(Nanos(10), b);
    node.forget_session(Nanos(20), 1);
    assert!(node.admits(b));
    node.begin(Nanos(30), a, 3, Declared::default());
    node.leave(Nanos(35), b);
    assert!(node.admits(b), "it has something outstanding");
    node.finish(Nanos(40), b);
    node.leave(Nanos(41), b);
    assert!(node.admits(a));
    node.part(Nanos(100), a);
    assert_eq!(node.holder(), None);
    assert_eq!(node.endings(), Endings { told: 1, gone: 2, ..Endings::default() });
}

#[test]
fn who_hangs_blocks_others_for_the_lease_and_goes_on_behind_them() {
    let mut node = node();
    let (a, b) = (join(&mut node, "a"), join(&mut node, "b"));
    node.arrive(Nanos(0), a);
    node.settle(Nanos(5_000));
    assert!(node.admits(a), "nobody waits");
    node.arrive(Nanos(5_001), b);
    assert!(!node.admits(a) && node.admits(b));
    assert_eq!(state(&node, 5_001, "a").standing, Standing::Waiting);
    node.finish(Nanos(5_010), b);
    node.settle(Nanos(5_060));
    assert!(node.admits(a));
    assert_eq!(node.endings(), Endings { lease: 1, gap: 1, ..Endings::default() });
}

#[test]
fn what_a_server_does_for_itself_waits_for_nobody_and_nobody_for_it() {
    let mut node = node();
    let (own, a) = (join(&mut node, "scrub"), join(&mut node, "a"));
    node.exempt(Nanos(0), own);
    node.arrive(Nanos(0), own);
    assert_eq!(node.holder(), None);
    node.arrive(Nanos(1), a);
    assert!(node.admits(a) && node.admits(own));
    assert_eq!(node.states(Nanos(1)).len(), 1);
}

fn nothing(instance: u64) -> Publication {
    Publication { instance, heard: 0, grant: None, recalled: 0 }
}

#[test]
fn who_has_the_node_keeps_it_while_another_coordinator_takes_over() {
    let mut node = node();
    let (a, b) = (join(&mut node, "a"), join(&mut node, "b"));
    node.set_coordinator(Nanos(0), ServerId(3), true);
    node.begin(Nanos(1), a, 1, Declared::default());
    node.arrive(Nanos(2), b);
    // It decides no more: another one is to be heard.
    node.set_coordinator(Nanos(3), ServerId(3), false);
    assert!(!node.is_open() && node.admits(a) && !node.admits(b));
    node.hear(Nanos(4), nothing(7)).unwrap();
    assert!(node.admits(a) && !node.admits(b));
    // It decides again, and grants nothing that is granted already.
    node.set_coordinator(Nanos(5), ServerId(3), true);
    assert!(node.admits(a) && !node.admits(b));
    node.set_coordinator(Nanos(6), ServerId(3), false);
    node.settle(Nanos(6) + SILENCE_MAX);
    assert!(node.is_open() && node.admits(a) && node.admits(b), "nobody was heard");
}

#[test]
fn without_a_coordinator_everybody_is_served() {
    let mut node = node();
    let (a, b) = (join(&mut node, "a"), join(&mut node, "b"));
    node.set_coordinator(Nanos(0), ServerId(3), false);
    node.arrive(Nanos(5), a);
    node.arrive(Nanos(6), b);
    assert!(node.is_open() && node.admits(a) && node.admits(b));
    let says = |number, application: &str| Publication {
        grant: Some(NodeGrant { number, application: application.into() }),
        ..nothing(7)
    };
    assert_eq!(node.hear(Nanos(10), nothing(8)), Err(Outdated::OtherProcess { told: 8, own: 7 }));
    assert!(node.is_open(), "it is for an earlier process");
    node.hear(Nanos(10), nothing(7)).unwrap();
    assert!(!node.is_open() && !node.admits(a) && !node.admits(b) && node.has_changed());
    let report = node.report(Nanos(10));
    assert_eq!(report.applications.iter().filter(|app| app.claim.is_some()).count(), 2);
    node.hear(Nanos(11), says(5, "b")).unwrap();
    assert!(!node.admits(a) && node.admits(b));
    node.hear(Nanos(12), says(6, "a")).unwrap();
    assert!(node.admits(b) && !node.admits(a), "not taken back");
    node.finish(Nanos(13), b);
    node.settle(Nanos(63));
    node.hear(Nanos(64), says(5, "b")).unwrap();
    assert!(!node.admits(b), "it is over");
    node.hear(Nanos(65), says(6, "a")).unwrap();
    assert!(node.admits(a));
    // An answer to an earlier report than the last one that was answered is late, and says nothing, nor that anybody is there.
    let heard = node.report(Nanos(66)).number;
    node.hear(Nanos(67), Publication { heard, ..says(6, "a") }).unwrap();
    let late = node.hear(Nanos(65) + SILENCE_MAX, Publication { recalled: 6, heard: heard - 1, ..nothing(7) });
    let [told, known] = [heard - 1, heard].map(|number| Edition { process: 7, number });
    assert_eq!(late, Err(Outdated::Publication(OldEdition { told, known })));
    assert!(node.admits(a));
    node.settle(Nanos(67) + SILENCE_MAX);
    assert!(node.is_open() && node.admits(b));
}

/// The live node on the applications of a schedule, which say where their phases begin and end; what becomes of each.
fn live(apps: &[App], compute: &[Vec<u64>], order: Order) -> Vec<u64> {
    let mut node = IoNode::new(PhaseRules { order, lease: Nanos(u64::MAX), gap: Nanos(u64::MAX / 2) }, 1);
    let mut events = BinaryHeap::new();
    let ids: Vec<AppId> = (0..apps.len()).map(|at| node.join(Nanos(0), &format!("{at:03}").into())).collect();
    for (at, compute) in compute.iter().enumerate() {
        events.push(Reverse((compute[0], at, false)));
    }
    let (mut done, mut ends) = (vec![0; apps.len()], vec![0; apps.len()]);
    let mut serving = None;
    while let Some(Reverse((now, at, is_io_end))) = events.pop() {
        let (app, id, time) = (&apps[at], ids[at], Nanos(now));
        if is_io_end {
            serving = None;
            node.finish(time, id);
            node.end(time, id, at as u64);
            done[at] += 1;
            ends[at] = now;
            if let Some(compute) = compute[at].get(done[at]) {
                events.push(Reverse((now + compute, at, false)));
            }
        } else {
            let left = (app.iterations as usize - done[at]) as u64;
            let remaining = app.io.0 * left + app.compute.0 * (left - 1);
            node.begin(time, id, at as u64, Declared { io: Some(app.io), remaining: Some(Nanos(remaining)) });
            node.arrive(time, id);
        }
        let holder = (0..apps.len()).find(|other| node.admits(ids[*other]));
        if let Some(next) = holder.filter(|_| serving.is_none()) {
            serving = Some(next);
            events.push(Reverse((now + apps[next].io.0, next, true)));
        }
    }
    ends
}

proptest! {
    #[test]
    fn a_live_node_does_what_the_schedule_says(
        of in proptest::collection::vec((1_000_000u64..9_000_000, 1_000_000u64..5_000_000, 1u32..7), 1..7),
        noise in proptest::collection::vec(0u64..1_000_000, 49),
        order in proptest::sample::select(Order::ALL.to_vec()),
    ) {
        let app = |&(compute, io, iterations): &(u64, u64, u32)| App { compute: Nanos(compute), io: Nanos(io), iterations, release: Nanos::ZERO };
        let apps: Vec<App> = of.iter().map(app).collect();
        // No two things at one time.
        let phase = |at: usize, iteration: usize| apps[at].compute.0 + noise[(at * 7 + iteration) % noise.len()] * 7 + at as u64;
        let compute: Vec<Vec<u64>> =
            (0..apps.len()).map(|at| (0..apps[at].iterations as usize).map(|iteration| phase(at, iteration)).collect()).collect();
        let schedule = schedule_with(&apps, order, |at, iteration| Nanos(phase(at, iteration as usize)), |_| {}).unwrap();
        let ends: Vec<u64> = schedule.apps.iter().map(|app| app.completion.0).collect();
        prop_assert_eq!(live(&apps, &compute, order), ends);
    }

    #[test]
    fn one_has_the_node_and_nobody_waits_for_ever(
        steps in proptest::collection::vec((0usize..5, 0usize..4, 0u64..400), 1..120),
        order in proptest::sample::select(Order::ALL.to_vec()),
    ) {
        let mut node = IoNode::new(PhaseRules { order, ..RULES }, 1);
        let ids: Vec<_> = (0..4).map(|at| join(&mut node, &at.to_string())).collect();
        let mut outstanding = [0u32; 4];
        let (mut now, mut before) = (0, None);
        for (what, at, pause) in steps {
            now += pause;
            let (time, id) = (Nanos(now), ids[at]);
            match what {
                0 | 1 => {
                    outstanding[at] += 1;
                    node.arrive(time, id);
                }
                // Only what is served ends.
                2 if outstanding[at] > 0 && node.admits(id) => {
                    outstanding[at] -= 1;
                    node.finish(time, id);
                }
                3 => node.begin(time, id, at as u64, Declared::default()),
                4 => node.end(time, id, at as u64),
                _ => node.settle(time),
            }
            let admitted = (0..4).filter(|at| node.admits(ids[*at])).count();
            prop_assert!(admitted <= 1);
            let states = node.states(time);
            let is_wanted = states.iter().any(|state| state.standing == Standing::Waiting);
            prop_assert!(admitted == 1 || !is_wanted, "idle while somebody waits");
            let now = (node.changes(), node.holder().cloned());
            if let Some((changes, holder)) = &before {
                prop_assert!(*changes != now.0 || *holder == now.1, "changes are counted");
            }
            before = Some(now);
        }
        // Nobody serves anything any more: all who want the node have it once within as many leases.
        let mut wanting: BTreeSet<_> =
            node.states(Nanos(now)).into_iter().filter(|state| state.standing == Standing::Waiting).map(|state| state.application).collect();
        for _ in 0..=4 {
            wanting.retain(|name| node.holder() != Some(name));
            now += RULES.lease.0;
            node.settle(Nanos(now));
        }
        prop_assert!(wanting.is_empty(), "{:?}", wanting);
    }
}
