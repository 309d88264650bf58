//! What somebody gains who invents jobs, sizes, and priorities: nothing that others lose.
//!
//! The bound: whatever a user claims within one proof, every job of others is due exactly what it would be due if the
//! user had one believed job of one node and priority 1 there instead. So a liar gains at most what his share in that
//! case is, and he can have it without a lie.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod phases;

use isonomia_policy::{Draw, Entity, Nature, Next, PolicySpec, Request, RequestId, Tuning, build, shares};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use phases::{Phase, ROUNDING, Tree, arb_guarantee, arb_phases, fair, late_at_most, of_each, run, sizes_as_told};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const POLICIES: [&str; 11] = [
    "job-fair",
    "size-fair",
    "priority-fair",
    "job-fair{urgent=10}",
    "size-fair{urgent=10,7=3}",
    "group-then-size-fair",
    "group{g1=3}-then-priority-fair",
    "user-then-size-fair",
    "user-then-job-fair{urgent=10}",
    "group-then-user-then-size-fair",
    "user-then-group-then-priority-fair",
];

prop_compose! {
    /// Any job of a few users; believed, or claimed within one of two proven jobs or none.
    fn jobs()(
        all in proptest::collection::vec((0u8..3, 0u8..2, 1u32..2_000, 1u32..2_000, 0u8..6, any::<bool>()), 1..14)
    ) -> BTreeMap<JobId, JobInfo> {
        let job = |(at, (user, group, nodes, priority, proof, urgent)): (usize, (u8, u8, u32, u32, u8, bool))| {
            let name = if urgent { "urgent".to_owned() } else { format!("j{at}") };
            let info = JobInfo { nodes, priority, ..JobInfo::new(&name, &format!("u{user}"), &format!("g{group}")) };
            let info = match proof {
                0..3 => info.claimed_within(""),
                3 => info.claimed_within("7"),
                4 => info.claimed_within("8"),
                _ => info,
            };
            (JobId(at as u32), info)
        };
        all.into_iter().enumerate().map(job).collect()
    }
}

/// The same jobs if everything that is claimed within one proof were one believed job of one node; in each of his groups
/// if groups have shares, for the kernel vouches for those.
fn honest(spec: &PolicySpec, jobs: &BTreeMap<JobId, JobInfo>) -> BTreeMap<JobId, JobInfo> {
    let has_groups = spec.levels().iter().any(|level| level.entity == Entity::Group);
    let mut seen: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)> = BTreeSet::new();
    let mut all = BTreeMap::new();
    for (id, info) in jobs {
        match &info.within {
            None => drop(all.insert(*id, info.clone())),
            Some(within) => {
                let group = if has_groups { info.group.clone() } else { "".into() };
                if seen.insert((info.user.clone(), group, within.clone())) {
                    all.insert(*id, JobInfo::new(within, &info.user, &info.group));
                }
            }
        }
    }
    all
}

fn of_users(spec: &PolicySpec, jobs: &BTreeMap<JobId, JobInfo>) -> BTreeMap<Arc<str>, f64> {
    let mut sums = BTreeMap::new();
    for (job, share) in shares::due(spec, jobs) {
        *sums.entry(jobs[&job].user.clone()).or_insert(0.0) += share;
    }
    sums
}

proptest! {
    #[test]
    fn users_are_due_what_they_would_be_if_nobody_had_claimed_anything(jobs in jobs()) {
        for policy in POLICIES {
            let spec: PolicySpec = policy.parse().unwrap();
            let (claimed, honest) = (of_users(&spec, &jobs), of_users(&spec, &honest(&spec, &jobs)));
            for (user, share) in &claimed {
                // Inside groups below a user there is only himself.
                prop_assert!((share - honest[user]).abs() < 1e-9, "{policy}: {user} {share} {honest:?} {jobs:?}");
            }
        }
    }

    #[test]
    fn arbiters_owe_what_the_specification_says(jobs in jobs()) {
        for policy in POLICIES {
            let spec: PolicySpec = policy.parse().unwrap();
            for draw in [Draw::VirtualTime, Draw::Lottery] {
                let mut arbiter = build(&spec, draw, 1, Tuning::default());
                for (id, info) in &jobs {
                    arbiter.set_job(Nanos::ZERO, *id, info);
                    let request = Request { id: RequestId(u64::from(id.0)), job: *id, cost: Nanos(1_000), bytes: Bytes(0), nature: Nature::WRITE };
                    arbiter.enqueue(Nanos::ZERO, request).unwrap();
                }
                let due = shares::due(&spec, &jobs);
                for ((job, share), (other, expected)) in arbiter.shares(Nanos::ZERO).into_iter().zip(due) {
                    prop_assert!(job == other && (share - expected).abs() < 1e-9, "{policy}: {share} {expected}");
                }
            }
        }
    }
}

/// Part of the service that the victim has over ten thousand requests of one cost, while everybody always has some queued.
fn victims_part(policy: &str, liars: &[JobInfo]) -> f64 {
    let mut arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 1, Tuning::default());
    let victim = JobInfo::new("v", "victim", "g").claimed_within("");
    let all: Vec<&JobInfo> = [&victim].into_iter().chain(liars).collect();
    let mut now = Nanos::ZERO;
    for (id, info) in all.iter().enumerate() {
        arbiter.set_job(now, JobId(id as u32), info);
        for place in 0..2 {
            let id = JobId(id as u32);
            arbiter
                .enqueue(
                    now,
                    Request {
                        id: RequestId(place),
                        job: id,
                        cost: Nanos(10_000),
                        bytes: Bytes(0),
                        nature: Nature::WRITE,
                    },
                )
                .unwrap();
        }
    }
    let mut victims = 0;
    let mut served = 0;
    while served < 10_000 {
        match arbiter.next(now) {
            Next::Dispatch(request) => {
                served += 1;
                victims += u32::from(request.job == JobId(0));
                now += request.cost;
                arbiter.complete(now, request.id, request.job);
                arbiter.enqueue(now, request).unwrap();
            }
            Next::WaitUntil(at) => now = at,
            Next::Idle => unreachable!("requests are queued"),
        }
    }
    f64::from(victims) / f64::from(served)
}

#[test]
fn a_hundred_invented_jobs_leave_the_victim_its_half() {
    let liar = |n: u32, nodes| JobInfo { nodes, ..JobInfo::new(&format!("l{n}"), "liar", "g").claimed_within("") };
    let many: Vec<JobInfo> = (0..100).map(|n| liar(n, 1)).collect();
    let large = [liar(0, 1_000)];
    for (policy, liars) in [
        ("job-fair", &many[..]),
        ("size-fair", &large[..]),
        ("size-fair", &many[..]),
        ("group-fair", &many[..]),
        ("user-then-job-fair", &many[..]),
        ("mclock", &many[..]),
        ("mclock{job:*=weight:2}", &many[..]),
        ("tbf{job:*=1GB/s,spare=proportional}", &many[..]),
        ("coflow{guarantee=1,tree=job-fair}", &many[..]),
        ("fair-finish{guarantee=1,tree=job-fair}", &many[..]),
        ("job-fair+latency{p99=1ms,user:liar}", &many[..]),
        ("size-fair+latency{p99=1ms,group:g}", &large[..]),
        ("mclock+latency{p99=1ms,user:liar}", &many[..]),
    ] {
        let part = victims_part(policy, liars);
        assert!((part - 0.5).abs() < 0.01, "{policy}: {part}");
    }
}

#[test]
fn a_rule_for_a_job_is_for_the_job_that_is_proven() {
    let claims = |within: &str| [JobInfo::new("urgent", "liar", "g").claimed_within(within)];
    for policy in ["mclock{job:urgent=weight:3}", "job-fair{urgent=3}"] {
        assert!((victims_part(policy, &claims("")) - 0.5).abs() < 0.01, "{policy}");
        assert!((victims_part(policy, &claims("urgent")) - 0.25).abs() < 0.01, "{policy}: the scheduler says so");
    }
}

/// Part of the service that a victim has who always has requests queued, against a liar each of whose requests is of a
/// job that was never heard of before.
fn victims_part_against_fresh_jobs(policy: &str, liar: &JobInfo) -> f64 {
    let mut arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 1, Tuning::default());
    let victim = JobId(0);
    let mut now = Nanos::ZERO;
    arbiter.set_job(now, victim, &JobInfo::new("v", "victim", "g").claimed_within(""));
    let request = |job, id| Request {
        id: RequestId(id),
        job,
        cost: Nanos::from_micros(100),
        bytes: Bytes(0),
        nature: Nature::WRITE,
    };
    (0..2).for_each(|id| arbiter.enqueue(now, request(victim, id)).unwrap());
    let mut fresh = 1;
    let mut bring = |arbiter: &mut dyn isonomia_policy::Arbiter, now| {
        let job = JobId(fresh);
        arbiter.set_job(now, job, &JobInfo { name: format!("l{fresh}").into(), ..liar.clone() });
        arbiter.enqueue(now, request(job, u64::from(fresh) + 10)).unwrap();
        fresh += 1;
    };
    (0..4).for_each(|_| bring(arbiter.as_mut(), now));
    let mut victims = 0;
    let mut served = 0;
    while served < 5_000 {
        match arbiter.next(now) {
            Next::Dispatch(request) => {
                served += 1;
                now += request.cost;
                arbiter.complete(now, request.id, request.job);
                if request.job == victim {
                    victims += 1;
                    arbiter.enqueue(now, request).unwrap();
                } else {
                    bring(arbiter.as_mut(), now);
                }
            }
            Next::WaitUntil(at) => now = at,
            Next::Idle => unreachable!("requests are queued"),
        }
    }
    f64::from(victims) / f64::from(served)
}

#[test]
fn a_new_job_with_each_request_leaves_the_victim_its_half() {
    let claimed = JobInfo::new("", "liar", "g").claimed_within("");
    let believed = JobInfo::new("", "liar", "g");
    for (policy, liar) in [
        ("job-fair", &claimed),
        ("size-fair", &claimed),
        ("group-fair", &claimed),
        ("user-then-size-fair", &claimed),
        ("user-then-size-fair", &believed),
        ("group-then-user-then-size-fair", &believed),
        ("mclock", &claimed),
        ("coflow{guarantee=1,tree=user-then-job-fair}", &believed),
        ("job-fair+latency{p99=1ms,user:liar}", &claimed),
        ("user-then-size-fair+latency{p99=1ms,user:liar}", &claimed),
        ("user-then-size-fair+latency{p99=1ms,user:liar}", &believed),
        ("group-then-user-then-size-fair+latency{p99=1ms,user:liar}", &believed),
    ] {
        let part = victims_part_against_fresh_jobs(policy, liar);
        assert!((part - 0.5).abs() < 0.02, "{policy}: {part}");
    }
}

/// How a job of a latency class that wants all there is tries to have more than its share.
#[derive(Clone, Copy, Debug)]
enum Trick {
    /// It does not.
    None,
    /// It leaves as soon as nothing of it is in service, and comes back at once.
    Leave,
    /// It cancels all that is queued whenever one of its requests was served, and queues it again.
    Cancel,
    /// It stays away for longer than it is remembered as active, and comes back with much.
    Rest,
}

/// What the liar and the victim are served, request after request: (the liar's, everybody's) in ns.
fn service_of_a_liar(policy: &str, trick: Trick, costs: (u64, u64), rounds: usize) -> Vec<(u64, u64)> {
    let mut arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 1, Tuning::default());
    let (liar, victim) = (JobId(0), JobId(1));
    let liars_info = JobInfo::new("l", "liar", "g");
    let mut now = Nanos::ZERO;
    let mut last = 0;
    let bring = |arbiter: &mut dyn isonomia_policy::Arbiter, now, job, last: &mut u64, many| {
        for _ in 0..many {
            *last += 1;
            let cost = Nanos(if job == liar { costs.0 } else { costs.1 });
            arbiter
                .enqueue(now, Request { id: RequestId(*last), job, cost, bytes: Bytes(1), nature: Nature::WRITE })
                .unwrap();
        }
    };
    arbiter.set_job(now, liar, &liars_info);
    arbiter.set_job(now, victim, &JobInfo::new("v", "victim", "g"));
    bring(arbiter.as_mut(), now, victim, &mut last, 2);
    bring(arbiter.as_mut(), now, liar, &mut last, 40);
    let (mut served, mut rests_until) = (vec![(0, 0)], Nanos::ZERO);
    while served.len() <= rounds {
        match arbiter.next(now) {
            Next::Dispatch(request) => {
                let (own, all) = served[served.len() - 1];
                served.push((own + if request.job == liar { request.cost.0 } else { 0 }, all + request.cost.0));
                now += request.cost;
                arbiter.complete(now, request.id, request.job);
                if request.job == victim {
                    bring(arbiter.as_mut(), now, victim, &mut last, 1);
                }
            }
            Next::WaitUntil(at) => now = at,
            Next::Idle => unreachable!("the victim has requests queued"),
        }
        match trick {
            Trick::Leave => {
                arbiter.remove_job(now, liar);
                arbiter.set_job(now, liar, &liars_info);
            }
            Trick::Cancel => {
                (last.saturating_sub(80)..=last).for_each(|id| {
                    arbiter.cancel(now, RequestId(id), liar);
                });
            }
            Trick::Rest if arbiter.queued_of(liar) == 0 && now >= rests_until => {
                rests_until = now + Nanos::from_millis(30)
            }
            Trick::None | Trick::Rest => {}
        }
        if now >= rests_until {
            let missing = 40 - arbiter.queued_of(liar).min(40);
            bring(arbiter.as_mut(), now, liar, &mut last, missing);
        }
    }
    served
}

/// The most that the liar was served beyond his half over any span of time, in ns.
fn largest_lead(served: &[(u64, u64)]) -> f64 {
    let (mut least, mut most) = (0.0f64, 0.0f64);
    for &(own, all) in served {
        let lead = own as f64 - all as f64 / 2.0;
        least = least.min(lead);
        most = most.max(lead - least);
    }
    most
}

proptest! {
    /// Whatever a user of a latency class does, over no span of time is he served more than without the class, the target,
    /// and some requests.
    #[test]
    fn a_class_gives_nobody_more_than_the_share_and_a_constant(
        policy in 0usize..6,
        trick in prop_oneof![Just(Trick::None), Just(Trick::Leave), Just(Trick::Cancel), Just(Trick::Rest)],
        costs in (10_000u64..900_000, 10_000u64..900_000),
    ) {
        let policy = [
            "job-fair+latency{p99=2ms,job:l}",
            "user-fair+latency{p99=2ms,user:liar}",
            "user-then-size-fair+latency{p99=2ms,size<=4KiB}",
            "mclock{user:*=weight:1}+latency{p99=2ms,user:liar}",
            "tbf{user:*=500MB/s,spare=proportional}+latency{p99=2ms,user:liar}",
            "coflow{guarantee=1,tree=user-fair}+latency{p99=2ms,group:g}",
        ][policy];
        let (plain, _) = policy.split_once('+').expect("it has a class");
        // What the policy itself lets him have: a job that leaves does not owe its last request.
        let [plain, most] = [plain, policy].map(|policy| largest_lead(&service_of_a_liar(policy, trick, costs, 300)));
        let ahead = 2_000_000.max(costs.0) as f64;
        let requests = 2.0 * (costs.0 + costs.1) as f64;
        prop_assert!(most <= plain + ahead + requests, "{policy}: {most} ns more than a half by {trick:?}, costs {costs:?}");
    }
}

/// A way to tell something else than the truth of a phase.
#[derive(Clone, Copy, Debug)]
enum Tale {
    /// So many times the truth.
    Times(f64),
    /// So many requests at a time, each time as if that were all.
    Cut(u32),
    /// Nothing, after five phases of so many requests.
    Trained(u32),
    /// Nothing.
    Silent,
}

fn arb_tale() -> impl Strategy<Value = Tale> {
    prop_oneof![
        (0.05f64..8.0).prop_map(Tale::Times),
        (1u32..10).prop_map(Tale::Cut),
        (1u32..10).prop_map(Tale::Trained),
        Just(Tale::Silent),
    ]
}

fn told(tale: Tale, phase: &Phase) -> Phase {
    match tale {
        Tale::Times(factor) => Phase { told: Some(factor), ..phase.clone() },
        Tale::Cut(requests) => Phase { cut: Some(requests), ..phase.clone() },
        Tale::Trained(requests) => Phase { told: None, earlier: vec![requests; 5], ..phase.clone() },
        Tale::Silent => Phase { told: None, ..phase.clone() },
    }
}

proptest! {
    /// Whatever somebody tells of his phase, he does not end sooner than with the truth, if the others tell the truth, but for a
    /// request of each and what he may be late with the truth.
    #[test]
    fn a_liar_among_honest_ones_does_not_end_sooner(
        phases in arb_phases(), guarantee in arb_guarantee(), tale in arb_tale(),
    ) {
        let policy = format!("fair-finish{{guarantee={guarantee},tree=size-fair}}");
        let honest = run(&policy, &phases).ends[0];
        let mut lying = phases.clone();
        lying[0] = told(tale, &phases[0]);
        let end = run(&policy, &lying).ends[0];
        let some = of_each(&phases) + late_at_most(&phases, 0, guarantee);
        prop_assert!(end >= honest - some - ROUNDING, "{tale:?}: {end} instead of {honest}, but for {some}");
    }

    /// Theorem 4: he delays nobody, himself included, beyond what he told last and what telling anew takes.
    #[test]
    fn a_tale_delays_nobody_beyond_what_it_says(phases in arb_phases(), guarantee in arb_guarantee(), tale in arb_tale()) {
        let mut lying = phases.clone();
        lying[0] = told(tale, &phases[0]);
        let course = run(&format!("fair-finish{{guarantee={guarantee},tree=size-fair}}"), &lying);
        let fair = fair(Tree::Sizes, &lying, &sizes_as_told(&lying, guarantee), &course.came, &[]);
        for (at, (end, fair)) in course.ends.into_iter().zip(fair.ends).enumerate() {
            let late = late_at_most(&phases, at, guarantee);
            prop_assert!(end <= fair + late + ROUNDING, "{tale:?}, {at}: {end}, fair {fair} and {late}");
        }
    }
}
