//! Packs and where they run: an example by hand, a literal Algorithm 1, the best placement by trying all, and what
//! every plan keeps.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_planning::{
    App, Job, Machine, Order, PackError, Plan, PlanError, Sensibility, alpha, assign, make_packs, plan,
};
use isonomia_units::Nanos;
use proptest::prelude::*;

fn job(nodes: u32, iterations: u32, compute: u64, io: u64) -> Job {
    Job { nodes, app: App { compute: Nanos(compute), io: Nanos(io), iterations, release: Nanos::ZERO } }
}

fn members(plan: &Plan) -> Vec<Vec<usize>> {
    plan.packs.iter().map(|run| run.pack.jobs.clone()).collect()
}

fn machine(nodes: u32, io_nodes: u32, sensibility: Sensibility) -> Machine {
    Machine { nodes, io_nodes, sensibility, order: Order::Fifo }
}

/// T is 100, 90, 80, 60, 20; I/O 60, 30, 50, 6, 10; eight compute nodes.
const FIVE: [(u32, u64, u64); 5] = [(4, 40, 60), (2, 60, 30), (4, 30, 50), (2, 54, 6), (2, 10, 10)];

#[test]
fn an_example_by_hand() {
    let jobs = FIVE.map(|(nodes, compute, io)| job(nodes, 1, compute, io));
    // Σ volume 156, Σ Q·T = 400 + 180 + 320 + 120 + 40 = 1060.
    assert!((alpha(&jobs, 8) - 8.0 * 156.0 / 1060.0).abs() < 1e-12);

    // S = 1: 1 joins 0 (60 + 30 ≤ 100); 2 does not (140 > 100), and opens a pack; 3 joins the pack in which more
    // nodes are in use, 0's (96 ≤ 100, 8 nodes); 4 joins 2 (60 ≤ 80).
    let one = plan(&jobs, &machine(8, 1, Sensibility::Limit(1.0))).unwrap();
    assert_eq!(members(&one), [vec![0, 1, 3], vec![2, 4]]);
    // First pack: 0 asks at 40 and has the node until 100, 3 asked at 54 and has it until 106, 1 asked at 60 and
    // has it until 136. Second: 4 asks at 10, until 20; 2 from 30 until 80.
    let times: Vec<u64> = one.packs.iter().map(|run| run.time.0).collect();
    assert_eq!(times, [136, 80]);
    assert_eq!(one.makespan(), Nanos(216));
    let worst = [106.0 / 60.0, 1.0];
    assert_eq!(one.mean_max_stretch(), (worst[0] + worst[1]) / 2.0);
    assert!((one.over_ideal() - 216.0 / 180.0).abs() < 1e-12);
    let time = one.node_time(&jobs, &machine(8, 1, Sensibility::Limit(1.0)));
    // 1 waits 46 on 2 nodes, 3 waits 46 on 2 nodes.
    assert_eq!((time.useful, time.delayed, time.idle), (1060, 184, 8 * 216 - 1060 - 184));

    // First-Fit: 2 fits nodes nowhere (4 + 2 + 4 > 8); all else as before.
    let all = plan(&jobs, &machine(8, 1, Sensibility::Infinite)).unwrap();
    assert_eq!(members(&all), [vec![0, 1, 3], vec![2, 4]]);
    let roomy = plan(&jobs, &machine(10, 1, Sensibility::Infinite)).unwrap();
    assert_eq!(members(&roomy), [vec![0, 1, 2], vec![3, 4]]);
    // S = α = 1.47: 2 joins (140 ≤ 147), 3 does not (146 ≤ 147, but 12 nodes).
    let some = plan(&jobs, &machine(10, 2, Sensibility::Alpha)).unwrap();
    assert_eq!(members(&some), [vec![0, 1, 2], vec![3, 4]]);
    assert_eq!(some.assigned, [(0, Nanos::ZERO), (1, Nanos::ZERO)]);
}

#[test]
fn jobs_that_cannot_run_are_refused() {
    let refused = |jobs: &[Job]| plan(jobs, &machine(8, 1, Sensibility::Alpha)).unwrap_err();
    let nodes = |job, needed| PlanError::Pack(PackError::Nodes { job, needed, nodes: 8 });
    assert_eq!(refused(&[job(8, 1, 1, 1), job(9, 1, 1, 1)]), nodes(1, 9));
    assert_eq!(refused(&[job(0, 1, 1, 1)]), nodes(0, 0));
    assert_eq!(refused(&[job(1, 0, 1, 1)]), PlanError::Pack(PackError::Nothing { job: 0 }));
    assert_eq!(refused(&[job(1, 2, u64::MAX / 4, 1)]), PlanError::Pack(PackError::Span));
    let nothing = plan(&[], &machine(8, 3, Sensibility::Alpha)).unwrap();
    assert_eq!((nothing.makespan(), nothing.mean_max_stretch(), nothing.over_ideal()), (Nanos::ZERO, 1.0, 1.0));
}

#[test]
fn lpt_on_grahams_worst_case() {
    // 5 5 4 4 3 3 3 on three machines: LPT needs 11, the best is 9 = 11 / (4/3 − 1/9).
    let tasks = [5, 5, 4, 4, 3, 3, 3].map(Nanos);
    assert_eq!(longest(&tasks, &assign(&tasks, 3), 3), 11);
    assert_eq!(best(&tasks, 3), 9);
}

fn longest(tasks: &[Nanos], assigned: &[u32], machines: u32) -> u64 {
    let load = |machine| tasks.iter().zip(assigned).filter(|(_, on)| **on == machine).map(|(task, _)| task.0).sum();
    (0..machines).map(load).max().unwrap()
}

/// The best makespan, by trying every placement.
fn best(tasks: &[Nanos], machines: u32) -> u64 {
    let placements = (machines as u64).pow(tasks.len() as u32);
    let digits = |n: u64| -> Vec<u32> {
        (0..tasks.len() as u32).map(|at| (n / u64::from(machines).pow(at) % u64::from(machines)) as u32).collect()
    };
    (0..placements).map(|n| longest(tasks, &digits(n), machines)).min().unwrap()
}

/// Algorithm 1 as it stands: all packs sorted anew for each job, every constraint from its definition.
fn algorithm_1(jobs: &[Job], nodes: u32, limit: f64) -> Vec<Vec<usize>> {
    let total = |job: usize| (jobs[job].app.compute.0 + jobs[job].app.io.0) * u64::from(jobs[job].app.iterations);
    let io = |job: usize| jobs[job].app.io.0 * u64::from(jobs[job].app.iterations);
    let used = |pack: &[usize]| pack.iter().map(|&job| jobs[job].nodes).sum::<u32>();
    let mut sorted: Vec<usize> = (0..jobs.len()).collect();
    sorted.sort_by(|&a, &b| total(b).cmp(&total(a)).then(a.cmp(&b)));
    let mut packs: Vec<(usize, Vec<usize>)> = Vec::new();
    for job in sorted {
        packs.sort_by(|(a, left), (b, right)| used(right).cmp(&used(left)).then(a.cmp(b)));
        let fits = |pack: &[usize]| {
            let length = pack.iter().map(|&job| total(job)).max().unwrap() as f64;
            let volume: u64 = pack.iter().map(|&job| io(job)).sum();
            (volume + io(job)) as f64 <= limit * length && used(pack) + jobs[job].nodes <= nodes
        };
        match packs.iter_mut().find(|(_, pack)| fits(pack)) {
            Some((_, pack)) => pack.push(job),
            None => packs.push((packs.len(), vec![job])),
        }
    }
    packs.sort();
    packs.into_iter().map(|(_, pack)| pack).collect()
}

const NODES: u32 = 16;

fn some_jobs() -> impl Strategy<Value = Vec<Job>> {
    let one = (1u32..=NODES, 1u32..5, 0u64..30, 0u64..30).prop_map(|(q, n, c, i)| job(q, n, c.max(1 - i.min(1)), i));
    proptest::collection::vec(one, 1..24)
}

fn sensibilities() -> impl Strategy<Value = Sensibility> {
    prop_oneof![
        Just(Sensibility::Infinite),
        Just(Sensibility::Alpha),
        Just(Sensibility::Limit(1.0)),
        (0.1..3.0).prop_map(Sensibility::Limit),
    ]
}

proptest! {
    #[test]
    fn packs_are_those_of_the_algorithm(jobs in some_jobs(), sensibility in sensibilities()) {
        let limit = match sensibility {
            Sensibility::Infinite => f64::INFINITY,
            Sensibility::Alpha => alpha(&jobs, NODES),
            Sensibility::Limit(limit) => limit,
        };
        let packs = make_packs(&jobs, NODES, sensibility).unwrap();
        let members: Vec<_> = packs.iter().map(|pack| pack.jobs.clone()).collect();
        prop_assert_eq!(members, algorithm_1(&jobs, NODES, limit));
        for pack in &packs {
            prop_assert!(pack.nodes <= NODES);
            prop_assert!(pack.jobs.len() == 1 || pack.occupation() <= limit);
        }
    }

    #[test]
    fn a_plan_runs_every_job_once(jobs in some_jobs(), sensibility in sensibilities(), io_nodes in 1u32..4) {
        let machine = machine(NODES, io_nodes, sensibility);
        let plan = plan(&jobs, &machine).unwrap();
        let mut all: Vec<usize> = members(&plan).concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..jobs.len()).collect::<Vec<_>>());
        // Packs of an I/O node follow each other without gap or overlap.
        for node in 0..io_nodes {
            let mut own: Vec<_> = plan.packs.iter().zip(&plan.assigned).filter(|(_, assigned)| assigned.0 == node).collect();
            own.sort_by_key(|(_, assigned)| assigned.1);
            let mut free = Nanos::ZERO;
            for (run, (_, begin)) in own {
                prop_assert_eq!(*begin, free);
                prop_assert!(run.time >= run.pack.alone && run.max_stretch() >= 1.0);
                free += run.time;
            }
            prop_assert!(free <= plan.makespan());
        }
        let time = plan.node_time(&jobs, &machine);
        let useful: u128 = jobs.iter().map(|job| u128::from(job.nodes) * u128::from(job.app.alone().0)).sum();
        prop_assert_eq!(time.useful, useful);
        let all = u128::from(NODES) * u128::from(io_nodes) * u128::from(plan.makespan().0);
        prop_assert_eq!(time.useful + time.delayed + time.idle, all);
        prop_assert_eq!(&plan, &isonomia_planning::plan(&jobs, &machine).unwrap());
    }

    #[test]
    fn lpt_is_within_grahams_bound(tasks in proptest::collection::vec(1u64..40, 1..8), machines in 1u32..4) {
        let tasks: Vec<Nanos> = tasks.into_iter().map(Nanos).collect();
        let lpt = longest(&tasks, &assign(&tasks, machines), machines);
        let best = best(&tasks, machines);
        prop_assert!(best <= lpt);
        // lpt / best ≤ 4/3 − 1/(3m), in integers.
        let m = u64::from(machines);
        prop_assert!(3 * m * lpt <= (4 * m - 1) * best, "{lpt} against {best}");
    }
}
