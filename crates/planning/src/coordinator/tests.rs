//! Nodes and a coordinator, with messages that are lost, doubled and late.

use super::*;
use crate::io_node::{AppId, Declared, IoNode, PhaseRules};
use proptest::prelude::*;

fn node(number: u16, order: Order) -> IoNode {
    let rules = PhaseRules { order, lease: Nanos::from_secs(1), gap: Nanos::from_millis(1) };
    let mut node = IoNode::new(rules, u64::from(number));
    node.set_coordinator(Nanos::ZERO, ServerId(number), false);
    node
}

fn bring(coordinator: &mut Coordinator, now: Nanos, number: u16, node: &mut IoNode) {
    let report = node.report(now);
    node.hear(now, coordinator.take(now, ServerId(number), report).unwrap()).unwrap();
}

#[test]
fn messages_are_encoded_as_they_are() {
    let grant = NodeGrant { number: 3, application: "ada/wrf".into() };
    let claim = Some(ClaimReport { waiting_ns: 1, io_ns: None, remaining_ns: Some(2) });
    let app = AppReport { application: "x".into(), age_ns: 9, io_done_ns: 1, waited_ns: 2, phases: 3, claim };
    let report = Report { instance: 1, number: 2, granted: Some(grant.clone()), ended: 2, applications: vec![app] };
    let bytes = postcard::to_stdvec(&report).unwrap();
    assert_eq!(postcard::from_bytes::<Report>(&bytes), Ok(report));
    let publication = Publication { instance: 1, heard: 2, grant: Some(grant), recalled: 7 };
    let bytes = postcard::to_stdvec(&publication).unwrap();
    assert_eq!(postcard::from_bytes::<Publication>(&bytes), Ok(publication));
}

#[test]
fn an_application_is_judged_by_what_it_did_on_all_nodes() {
    let mut coordinator = Coordinator::new(Order::Bandwidth);
    let app = |name: &str, io_done_ns, is_waiting: bool| AppReport {
        application: name.into(),
        age_ns: 1_000,
        io_done_ns,
        waited_ns: 0,
        phases: 1,
        claim: is_waiting.then_some(ClaimReport { waiting_ns: 10, io_ns: None, remaining_ns: None }),
    };
    let report = |number, applications| Report { instance: 1, number, granted: None, ended: 0, applications };
    let now = Nanos(5_000);
    let first = coordinator.take(now, ServerId(1), report(1, vec![app("a", 300, false), app("b", 0, false)])).unwrap();
    assert_eq!(first.grant, None);
    // Here both did as much; there `a` did more.
    let second = coordinator.take(now, ServerId(2), report(1, vec![app("a", 100, true), app("b", 100, true)])).unwrap();
    assert_eq!(second.grant.unwrap().application, "b".into());
}

#[test]
fn two_that_need_the_same_nodes_have_the_same_position_on_each() {
    let mut coordinator = Coordinator::new(Order::Fifo);
    let mut nodes = [node(1, Order::Fifo), node(2, Order::Fifo)];
    let now = Nanos(100);
    for (number, node) in (1..).zip(&mut nodes) {
        bring(&mut coordinator, now, number, node);
    }
    let ids: Vec<[AppId; 3]> =
        nodes.iter_mut().map(|node| ["x", "a", "b"].map(|name| node.join(now, &name.into()))).collect();
    // Somebody else has both; `a` asks here first and there last, `b` the other way round.
    for (at, order) in [(0, [0, 1, 2]), (1, [0, 2, 1])] {
        for (later, app) in (0..).zip(order) {
            let time = Nanos(200 + 10 * later + at as u64);
            nodes[at].begin(time, ids[at][app], 1, Declared::default());
            bring(&mut coordinator, time, at as u16 + 1, &mut nodes[at]);
        }
    }
    for at in [0, 1] {
        nodes[at].end(Nanos(300), ids[at][0], 1);
    }
    for at in [1, 0] {
        bring(&mut coordinator, Nanos(300), at as u16 + 1, &mut nodes[at]);
    }
    assert_eq!(nodes[0].holder(), nodes[1].holder());
}

/// `names` begin at the nodes one after the other while these are free, and then need them all.
fn cross(coordinator: &mut Coordinator, nodes: &mut [IoNode], names: &[&str]) -> Vec<Vec<AppId>> {
    let ids: Vec<Vec<AppId>> = nodes
        .iter_mut()
        .map(|node| names.iter().map(|name| node.join(Nanos(5), &Arc::from(*name))).collect())
        .collect();
    for (at, node) in nodes.iter_mut().enumerate() {
        bring(coordinator, Nanos(6), at as u16 + 1, node);
        node.begin(Nanos(10 + at as u64), ids[at][at], 1, Declared::default());
        bring(coordinator, Nanos(10 + at as u64), at as u16 + 1, node);
        assert_eq!(node.holder().map(|name| &**name), Some(names[at]));
    }
    let now = Nanos(100);
    for (at, node) in nodes.iter_mut().enumerate() {
        ids[at]
            .iter()
            .enumerate()
            .filter(|(app, _)| *app != at)
            .for_each(|(_, id)| node.begin(now, *id, 1, Declared::default()));
    }
    ids
}

fn holders(nodes: &[IoNode]) -> Vec<Option<&str>> {
    nodes.iter().map(|node| node.holder().map(|name| &**name)).collect()
}

#[test]
fn of_those_who_wait_for_each_other_the_last_gives_way() {
    for order in Order::ALL {
        let mut coordinator = Coordinator::new(order);
        let mut nodes = [node(1, order), node(2, order), node(3, order)];
        let ids = cross(&mut coordinator, &mut nodes, &["a", "b", "c"]);
        // Long before the lease all of them have had all nodes at once, one after the other.
        let mut had = [false; 3];
        for round in 0..20 {
            let now = Nanos(200 + 10 * round);
            for (number, node) in (1..).zip(&mut nodes) {
                bring(&mut coordinator, now, number, node);
            }
            let have = holders(&nodes);
            let Some(all) = ["a", "b", "c"].iter().position(|name| have.iter().all(|has| *has == Some(*name))) else {
                continue;
            };
            had[all] = true;
            nodes.iter_mut().zip(&ids).for_each(|(node, ids)| node.end(now, ids[all], 1));
        }
        assert_eq!(had, [true; 3], "{order}");
        assert!(nodes.iter().map(|node| node.endings().crossed).sum::<u64>() >= 1);
        assert_eq!(nodes.iter().map(|node| node.endings().lease).sum::<u64>(), 0);
    }
}

/// The same where one of the two nodes has the coordinator, at once and after each has been used by one for long.
#[test]
fn of_those_who_wait_for_each_other_the_last_gives_way_at_the_coordinators_own_node() {
    let rules = PhaseRules { order: Order::Fifo, lease: Nanos::from_secs(3_600), gap: Nanos::from_millis(1) };
    for waits_s in [0, 30] {
        let (mut here, mut there) = (IoNode::new(rules, 1), IoNode::new(rules, 2));
        here.set_coordinator(Nanos::ZERO, ServerId(1), true);
        there.set_coordinator(Nanos::ZERO, ServerId(2), false);
        let at = Nanos::from_secs;
        let [old, young] = ["old", "young"].map(|name| {
            let name = name.into();
            [here.join(at(1), &name), there.join(at(1), &name)]
        });
        let bring = |here: &mut IoNode, there: &mut IoNode, now| {
            let publication = here.coordinate(now, ServerId(2), there.report(now)).unwrap().unwrap();
            there.hear(now, publication).unwrap();
        };
        bring(&mut here, &mut there, at(1));
        there.begin(at(2), old[1], 1, Declared::default());
        bring(&mut here, &mut there, at(2));
        here.begin(at(3), young[0], 2, Declared::default());
        // The older one waits here, and then nothing happens here for a while.
        here.begin(at(4), old[0], 1, Declared::default());
        (4..=4 + waits_s).for_each(|second| bring(&mut here, &mut there, at(second)));
        there.begin(at(5 + waits_s), young[1], 2, Declared::default());
        bring(&mut here, &mut there, at(5 + waits_s));
        // The young one asks again behind the old one.
        bring(&mut here, &mut there, at(5 + waits_s));
        let has = [here.holder(), there.holder()].map(|name| name.map(|name| &**name));
        assert_eq!(has, [Some("old"), Some("old")], "after {waits_s} s");
    }
}

#[test]
fn a_grant_that_is_taken_back_before_it_came_never_begins() {
    let mut coordinator = Coordinator::new(Order::Fifo);
    let mut nodes = [node(1, Order::Fifo), node(2, Order::Fifo)];
    let now = Nanos(50);
    let ids: Vec<_> = nodes.iter_mut().map(|node| ["a", "b"].map(|name| node.join(Nanos(5), &name.into()))).collect();
    for number in [1, 2] {
        bring(&mut coordinator, now, number, &mut nodes[usize::from(number) - 1]);
    }
    nodes[0].begin(now, ids[0][0], 1, Declared::default());
    bring(&mut coordinator, now, 1, &mut nodes[0]);
    // What `b` is granted there is on its way when it asks here, and `a` asks there.
    nodes[1].begin(now, ids[1][1], 1, Declared::default());
    let report = nodes[1].report(now);
    let late = coordinator.take(now, ServerId(2), report).unwrap();
    assert_eq!(late.grant.as_ref().map(|grant| &*grant.application), Some("b"));
    nodes[0].begin(now, ids[0][1], 1, Declared::default());
    bring(&mut coordinator, now, 1, &mut nodes[0]);
    nodes[1].begin(now, ids[1][0], 1, Declared::default());
    let report = nodes[1].report(now);
    let latest = coordinator.take(now, ServerId(2), report).unwrap();
    assert_eq!(latest.recalled, 1);
    nodes[1].hear(now, latest.clone()).unwrap();
    assert!(nodes[1].hear(now, late).is_err(), "it is an answer to an earlier report");
    nodes[1].hear(now, latest).unwrap();
    for number in [2, 1, 2] {
        bring(&mut coordinator, now, number, &mut nodes[usize::from(number) - 1]);
    }
    assert_eq!(holders(&nodes), [Some("a"), Some("a")]);
}

#[test]
fn a_new_coordinator_hears_who_has_a_node() {
    let mut first = Coordinator::new(Order::Fifo);
    let mut node = node(4, Order::Fifo);
    let (a, b) = (node.join(Nanos(0), &"a".into()), node.join(Nanos(0), &"b".into()));
    bring(&mut first, Nanos(1), 4, &mut node);
    node.arrive(Nanos(2), a);
    node.arrive(Nanos(3), b);
    bring(&mut first, Nanos(4), 4, &mut node);
    assert!(node.admits(a));
    let mut second = Coordinator::new(Order::Fifo);
    bring(&mut second, Nanos(5), 4, &mut node);
    assert!(node.admits(a) && !node.admits(b));
    let [grant_of_first, grant_of_second] =
        [&first, &second].map(|coordinator| coordinator.publication(ServerId(4)).unwrap().grant);
    assert_eq!(grant_of_second, grant_of_first);
    node.finish(Nanos(6), a);
    node.settle(Nanos(6) + Nanos::from_millis(1));
    bring(&mut second, Nanos::from_millis(2), 4, &mut node);
    assert!(node.admits(b));
}

#[test]
fn what_a_node_has_counts_for_more_than_what_it_was_granted_meanwhile() {
    let (mut first, mut second) = (Coordinator::new(Order::Fifo), Coordinator::new(Order::Fifo));
    let mut node = node(4, Order::Fifo);
    bring(&mut first, Nanos(1), 4, &mut node);
    let (a, b) = (node.join(Nanos(1), &"a".into()), node.join(Nanos(1), &"b".into()));
    node.begin(Nanos(2), a, 1, Declared::default());
    // What the first one grants is on its way when the second one takes over, and hears of another claim before.
    let of_the_first = first.take(Nanos(3), ServerId(4), node.report(Nanos(3))).unwrap();
    node.end(Nanos(4), a, 1);
    node.begin(Nanos(5), b, 1, Declared::default());
    node.begin(Nanos(6), a, 1, Declared::default());
    let of_the_second = second.take(Nanos(7), ServerId(4), node.report(Nanos(7))).unwrap();
    let granted = |publication: &Publication| publication.grant.clone().unwrap();
    assert_eq!(granted(&of_the_first).number, granted(&of_the_second).number);
    assert_ne!(granted(&of_the_first).application, granted(&of_the_second).application);
    node.hear(Nanos(8), of_the_first).unwrap();
    node.hear(Nanos(9), of_the_second).unwrap();
    assert!(node.admits(a) && !node.admits(b));
    bring(&mut second, Nanos(10), 4, &mut node);
    assert_eq!(second.publication(ServerId(4)).unwrap().grant.unwrap().application, "a".into());
    node.end(Nanos(11), a, 1);
    bring(&mut second, Nanos(12), 4, &mut node);
    assert!(node.admits(b));
}

#[test]
fn old_reports_and_those_of_a_process_before_change_nothing() {
    let mut coordinator = Coordinator::new(Order::Fifo);
    let report = |instance, number, ended| Report { instance, number, granted: None, ended, applications: Vec::new() };
    let edition = |process, number| Edition { process, number };
    coordinator.take(Nanos(1), ServerId(1), report(1, 5, 4)).unwrap();
    for number in [5, 4] {
        let refused = Outdated::Report(OldEdition { told: edition(1, number), known: edition(1, 5) });
        assert_eq!(coordinator.take(Nanos(2), ServerId(1), report(1, number, 9)), Err(refused));
    }
    assert_eq!(coordinator.nodes[&ServerId(1)].number, 4);
    coordinator.take(Nanos(3), ServerId(1), report(2, 1, 0)).unwrap();
    assert_eq!(coordinator.nodes[&ServerId(1)].report.instance, 2);
    let refused = Outdated::Report(OldEdition { told: edition(1, 6), known: edition(2, 1) });
    assert_eq!(coordinator.take(Nanos(4), ServerId(1), report(1, 6, 5)), Err(refused));
    assert_eq!(coordinator.nodes[&ServerId(1)].report.instance, 2);
    coordinator.take(Nanos(4) + NODE_FORGOTTEN_AFTER, ServerId(2), report(1, 1, 0)).unwrap();
    assert_eq!(coordinator.nodes().collect::<Vec<_>>(), [ServerId(2)]);
}

proptest! {
    /// Messages are lost, doubled, and late; in the end everybody had a turn, and never two at once (which a node cannot have).
    #[test]
    fn every_claim_is_granted_whatever_becomes_of_messages(
        fates in proptest::collection::vec((0u8..4, 0u8..4), 60),
        order in proptest::sample::select(Order::ALL.to_vec()),
    ) {
        let mut coordinator = Coordinator::new(order);
        let mut nodes = [node(1, order), node(2, order)];
        let names: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
        let ids: Vec<Vec<AppId>> =
            nodes.iter_mut().map(|node| names.iter().map(|name| node.join(Nanos::ZERO, name)).collect()).collect();
        let mut late = Vec::new();
        let mut had = [[false; 3]; 2];
        let mut now = Nanos::from_millis(1);
        for (node, ids) in nodes.iter_mut().zip(&ids) {
            ids.iter().for_each(|id| node.begin(now, *id, 1, Declared::default()));
        }
        // After the fates that were drawn everything arrives.
        for round in 0..fates.len() + 60 {
            now += Nanos::from_millis(10);
            let (there, back) = fates.get(round).copied().unwrap_or((0, 0));
            for (at, node) in nodes.iter_mut().enumerate() {
                let number = ServerId(at as u16 + 1);
                let report = node.report(now);
                let publication = match there {
                    1 => coordinator.publication(number),
                    2 => {
                        let publication = coordinator.take(now, number, report.clone()).unwrap();
                        prop_assert!(coordinator.take(now, number, report).is_err());
                        Some(publication)
                    }
                    _ => Some(coordinator.take(now, number, report).unwrap()),
                };
                let Some(publication) = publication else { continue };
                match back {
                    1 => {}
                    2 => late.push((at, publication)),
                    3 => {
                        node.hear(now, publication.clone()).unwrap();
                        node.hear(now, publication).unwrap();
                    }
                    _ => node.hear(now, publication).unwrap(),
                }
            }
            if round % 5 == 4 {
                // Some are refused.
                late.drain(..).for_each(|(at, publication): (usize, Publication)| _ = nodes[at].hear(now, publication));
            }
            for (at, node) in nodes.iter_mut().enumerate() {
                let admitted: Vec<_> = (0..3).filter(|app| node.admits(ids[at][*app])).collect();
                if node.is_open() {
                    continue;
                }
                prop_assert!(admitted.len() <= 1);
                // Each has one phase and is done with it at once.
                if let [app] = admitted[..] {
                    had[at][app] = true;
                    node.end(now, ids[at][app], 1);
                }
            }
        }
        prop_assert_eq!(had, [[true; 3]; 2]);
    }
}
