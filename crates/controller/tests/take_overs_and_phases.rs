//! What a controller decides from one to the next, without a network: regret periods over take-overs, and orders as phases begin.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_controller::{
    Controller, Decision, Effect, Follower, Kept, Moment, Plan, Progress, ReportedJob, Settings, Standing, Term, Use,
    Using,
};
use isonomia_policy::PolicySpec;
use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
use std::collections::BTreeMap;

const INTERVAL: Nanos = Nanos::from_secs(10);

fn moment(now: Nanos) -> Moment {
    Moment { now, wall: now }
}

/// Whoever takes over may take it for any time of day: a regret period has its length all the same.
#[test]
fn a_take_over_with_another_clock_ends_no_period_sooner_or_later() {
    let standing = |jobs: &[(&str, &[u16])]| {
        let using = |(name, at): &(&str, &[u16])| Using {
            job: ReportedJob::from(&JobInfo { nodes: 4, ..JobInfo::new(name, "ada", "astro") }),
            at: at.iter().map(|at| (TargetId(*at), Use::default())).collect(),
        };
        Standing::of(&jobs.iter().map(using).collect::<Vec<_>>())
    };
    // GIFT Fig. 6.
    let both = standing(&[("A", &[0]), ("B", &[0, 1])]);
    let standing = BTreeMap::from([(ServerId(1), &both)]);
    let spec: PolicySpec =
        "gift{throttle=0.3,window=1000000000,system-window=1000000000,period=1000s}".parse().unwrap();
    let mut records: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let hour = 3_600;
    let (mut worked, mut now) = (0, Nanos::from_secs(90 * hour));
    // Each is the controller for ten minutes; of the clocks some are hours behind the one before, and some are ahead.
    for wall_h in [500, 497, 509, 500, 1, 502, 503, 400, 504, 505] {
        let kept = Kept::read(records.iter().map(|(key, value)| (&key[..], &value[..]))).unwrap();
        let mut plan = Plan::new(&spec, INTERVAL, kept).unwrap().unwrap();
        // A process counts time from where it likes.
        now = Nanos(now.0 / 3 + worked);
        for _ in 0..60 {
            now += INTERVAL;
            worked += INTERVAL.0;
            let wall = Nanos::from_secs(wall_h * hour) + now;
            for (key, value) in plan.decide(Moment { now, wall }, &standing).unwrap().changes {
                records.insert(key, value.unwrap());
            }
        }
        let periods = plan.kept().periods.len() as u64;
        // Each take-over loses an interval of the period at most.
        let ended = (worked / 1_000_000_000 - 10 * 10) / 1_000..=worked / 1_000_000_000 / 1_000;
        assert!(ended.contains(&periods), "{periods} periods after {} s", worked / 1_000_000_000);
    }
}

/// Whatever the budget was before, and whoever was killed between storing a decision and sending it: what the periods cost is within
/// the budget under which they ended, and every coupon is accounted for.
#[test]
fn no_period_costs_more_than_the_budget_over_take_overs() {
    let jobs = |jobs: &[(&str, &[u16])]| {
        let using = |(name, at): &(&str, &[u16])| Using {
            job: ReportedJob::from(&JobInfo { nodes: 500, ..JobInfo::new(name, "ada", "astro") }),
            at: at.iter().map(|at| (TargetId(*at), Use::default())).collect(),
        };
        Standing::of(&jobs.iter().map(using).collect::<Vec<_>>())
    };
    // GIFT Fig. 6, with several that are throttled.
    let all = jobs(&[("A", &[0]), ("B", &[0, 1]), ("C", &[2]), ("D", &[2, 3])]);
    let standing = BTreeMap::from([(ServerId(1), &all)]);
    let mut records: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut now, mut known, mut total_paid) = (Nanos::ZERO, 0, 0);
    // Each of them has decided some times, and of the last decision stored none, the first part or all.
    for (at, budget_h) in ["none", "2", "1", "3", "1", "1", "2", "none", "1"].into_iter().enumerate() {
        let budget_ns = budget_h.parse::<u128>().map_or(u128::MAX, |hours| hours * 3_600_000_000_000);
        let spec =
            format!("gift{{throttle=0.5,window=1000000000,system-window=1000000000,period=100s,budget={budget_h}}}");
        let kept = Kept::read(records.iter().map(|(key, value)| (&key[..], &value[..]))).unwrap();
        assert!(kept.accounts.values().all(|account| account.record.balance().is_some_and(|all| all.is_conserved())));
        let mut plan = Plan::new(&spec.parse().unwrap(), INTERVAL, kept).unwrap().unwrap();
        let decisions = 25 + at % 3;
        for decision in 1..=decisions {
            now += INTERVAL;
            let changes = plan.decide(moment(now), &standing).unwrap().changes;
            if decision < decisions || at % 2 == 0 {
                records.extend(changes.into_iter().map(|(key, value)| (key, value.unwrap())));
            }
        }
        let kept = Kept::read(records.iter().map(|(key, value)| (&key[..], &value[..]))).unwrap();
        for (_, period) in kept.periods.range(known + 1..) {
            let cost = period.payments.iter().map(|payment| payment.node_ns).sum::<u128>();
            assert!(cost <= budget_ns, "period {} cost {cost} of {budget_ns}", period.number);
            total_paid += cost;
        }
        known = kept.periods.len() as u64;
        let paid = kept.accounts.values().map(|account| account.record.paid).sum::<u128>();
        assert_eq!(paid, total_paid, "every payment is in one period");
    }
    assert!(known > 10 && total_paid > 3 * 3_600_000_000_000, "{known} periods, {total_paid}");
}

/// Under `coflow` the order is another one as soon as a phase begins, and not half a second later.
#[test]
fn an_order_follows_a_phase_that_begins() {
    let spec: PolicySpec = "coflow{order=attained}".parse().unwrap();
    let interval = Plan::interval(&spec, INTERVAL);
    let plan = Plan::new(&spec, interval, Kept::default()).unwrap().unwrap();
    let settings = Settings { term: Term { epoch: 1, number: 1 }, interval };
    let own = ServerId(1);
    let mut controller = Controller::new(Nanos::ZERO, settings, plan, [own]);
    let mut follower = Follower::default();
    let at = Nanos::from_millis;
    let using = |phases: &[(&str, u64)]| {
        let one = |&(name, attained_ms): &(&str, u64)| {
            let progress = Progress { attained_ms, elapsed_ms: attained_ms, remaining_ms: None };
            let job = ReportedJob::from(&JobInfo::new(name, "ada", "astro"));
            Using { job, at: [0, 1].map(|target| (TargetId(target), progress.into())).into() }
        };
        phases.iter().map(one).collect::<Vec<_>>()
    };
    // Everything that is due at `now`; the order if there is another one.
    let mut step = |now: Nanos, using: &[Using]| {
        let mut effects = Vec::new();
        if let Some(report) = follower.look(now, interval, true, using) {
            controller.report(moment(now), own, report, &mut effects).unwrap();
        }
        if controller.wake_at() <= now {
            controller.tick(moment(now), &mut effects);
        }
        let mut order = None;
        while !effects.is_empty() {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Ask { ask, .. } => {
                        follower.ask(now, own, &ask).unwrap();
                        let answer = follower.answer(using);
                        controller.report(moment(now), own, answer, &mut effects).unwrap();
                    }
                    Effect::Allocate { allocation, .. } => {
                        let Ok(Decision::Ranks(ranks)) = follower.take(now, own, allocation) else {
                            panic!("an order")
                        };
                        let mut ranks: Vec<_> = ranks.into_iter().map(|(job, rank)| (rank, job.name)).collect();
                        ranks.sort();
                        order = Some(ranks.into_iter().map(|(_, name)| name.to_string()).collect::<Vec<_>>());
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        order
    };
    // It asks for the first time, hears of nobody, and then of one who is there.
    let _ = step(at(0), &[]);
    let old = (50..=1_000).step_by(50).filter_map(|ms| step(at(ms), &using(&[("old", ms)])));
    assert_eq!(old.last().unwrap(), ["old"]);
    let orders = (1_050..1_250).step_by(50).map(|ms| step(at(ms), &using(&[("old", ms), ("new", ms - 1_050)])));
    let first = orders.flatten().next();
    assert_eq!(first.unwrap(), ["new", "old"], "who has had less is first");
}
