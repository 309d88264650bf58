//! What servers say to each other of decisions, jobs, rates and exclusive phases: read, or refused; whoever hears anything goes on, holds no
//! more than it may, and takes nothing back to what was before.

#![no_main]

use isonomia_cluster::peer;
use isonomia_controller::{
    Allocation, Ask, Controller, Effect, Follower, Kept, Load, Moment, Plan, Report, ReportedJob, Settings, Term, Use,
    Using,
};
use isonomia_planning::Order;
use isonomia_planning::coordinator::Coordinator;
use isonomia_planning::io_node::{Declared, IoNode, PhaseRules};
use isonomia_policy::PolicySpec;
use isonomia_policy::exchange::rates::{Divider, fingerprint};
use isonomia_policy::exchange::{Course, Exchange, Rule, Table};
use isonomia_server::from_peers::{PeerMessage, decode};
use isonomia_units::{Editions, JobInfo, Nanos, ServerId, TargetId};
use libfuzzer_sys::fuzz_target;

const INTERVAL: Nanos = Nanos::from_secs(10);
/// More than one message can cause.
const EFFECTS_MAX: usize = 10_000;

/// A decided policy and messages: a kind, who brings it, how much later than the one before in milliseconds, and bytes.
type Heard<'b> = (u8, Vec<(u8, u8, u16, &'b [u8])>);

fuzz_target!(|input: Heard<'_>| {
    let (policy, messages) = input;
    let policies = ["gift", "bsip", "mbw", "tsa", "coflow", "coflow{order=attained}"];
    let decided: PolicySpec = policies[usize::from(policy) % policies.len()].parse().expect("a policy");
    let plan = Plan::new(&decided, INTERVAL, Kept::default()).expect("no ledger").expect("it is decided");
    let settings = Settings { term: Term { epoch: 1, number: 1 }, interval: INTERVAL };
    let mut controller = Controller::new(Nanos::ZERO, settings, plan, [1, 2, 3].map(ServerId));
    let mut follower = Follower::default();
    let fair: PolicySpec = "user-then-size-fair".parse().expect("a policy");
    let (mut exchange, mut course) = (Exchange::new(Rule::Received, INTERVAL), Course::new(INTERVAL));
    let limited: PolicySpec = "tbf{job:a=1MiB/s}".parse().expect("a policy");
    let limits = (fingerprint(&limited.to_string()), limited.rates().expect("it has rates"));
    let mut divider = Divider::new(3, Some(INTERVAL), vec![false, true]);
    let mut editions = <[Editions; 2]>::default();
    let rules = PhaseRules { order: Order::Fifo, lease: INTERVAL, gap: Nanos::from_millis(1) };
    let (mut coordinator, mut node) = (Coordinator::new(Order::Fifo), IoNode::new(rules, 1));
    node.set_coordinator(Nanos::ZERO, ServerId(1), false);
    let app = node.join(Nanos::ZERO, &"a".into());
    let mut now = Nanos::ZERO;
    for (kind, from, later, bytes) in messages {
        now += Nanos::from_millis(u64::from(later));
        let from = ServerId(u16::from(from % 3) + 1);
        // A job of its own, which has more or less of a target.
        let load = Load::of(Nanos(u64::from(later) * 1_000), Nanos(1 << 26), later % 3 == 0);
        let job = ReportedJob::from(&JobInfo::new("a", "ada", "astro"));
        let using = [Using { job, at: vec![(TargetId(3), Use { load, progress: None })] }];
        let mut effects = Vec::new();
        if controller.wake_at() <= now {
            controller.tick(Moment { now, wall: now }, &mut effects);
        }
        let kind = 3 + u32::from(kind % 7);
        let format = if (4..=6).contains(&kind) { isonomia_controller::FORMAT } else { peer::FORMAT };
        // Now and then of another format.
        let bytes = if later % 16 == 0 { bytes.to_vec() } else { [&[format], bytes].concat() };
        match decode(kind, &bytes) {
            Some(PeerMessage::Ask(ask)) => {
                assert_eq!(Ask::decode(&ask.encode()).as_ref(), Ok(&ask));
                let _ = follower.ask(now, from, &ask);
                let answer = follower.answer(&using);
                assert_eq!(Report::decode(&answer.encode()), Ok(answer));
            }
            Some(PeerMessage::Report(report)) => {
                assert_eq!(Report::decode(&report.encode()).as_ref(), Ok(&report));
                let _ = controller.report(Moment { now, wall: now }, from, report, &mut effects);
            }
            Some(PeerMessage::Allocation(allocation)) => {
                assert_eq!(Allocation::decode(&allocation.encode()).as_ref(), Ok(&allocation));
                let before = follower.version();
                let term = follower.controller().map(|(_, term)| term);
                if follower.take(now, from, allocation).is_ok() && follower.controller().map(|(_, term)| term) == term {
                    assert!(follower.version() > before);
                }
            }
            Some(PeerMessage::Jobs(edition, table)) => {
                if editions[0].admit(now, from, edition).is_ok() {
                    assert!(editions[0].admit(now, from, edition).is_err());
                    let _ = exchange.tell(now, from, table);
                    let parts = exchange.join(now, &fair, &Table::default(), &mut course);
                    assert!(parts.iter().flatten().all(|part| part.is_finite() && *part >= 0.0));
                }
            }
            Some(PeerMessage::Rates(edition, table)) => {
                if editions[1].admit(now, from, edition).is_ok() {
                    divider.tell(now, from, table);
                    let _ = divider.divide(now, limits, &[Vec::new(), Vec::new()]);
                }
            }
            Some(PeerMessage::Claims(report)) => {
                if coordinator.take(now, from, report.clone()).is_ok() {
                    assert!(coordinator.take(now, from, report).is_err());
                }
            }
            Some(PeerMessage::Grant(publication)) => {
                node.begin(now, app, 1, Declared::default());
                let _ = node.hear(now, publication);
                node.settle(now);
                let _ = node.report(now);
            }
            None => {}
        }
        assert!(effects.len() < EFFECTS_MAX);
        for effect in effects {
            if let Effect::Allocate { allocation, .. } = effect {
                assert_eq!(Allocation::decode(&allocation.encode()), Ok(allocation));
            }
        }
        if let Some(report) = follower.look(now, INTERVAL, false, &using) {
            assert_eq!(Report::decode(&report.encode()), Ok(report));
        }
        let _ = follower.expire(now);
    }
});
