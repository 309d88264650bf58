//! `coflow`: everybody keeps a part of its share, and the rest goes to one phase after the other.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use isonomia_policy::{Arbiter, Draw, Nature, Next, Order, Progress, Request, RequestId, Tuning, build, shares};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: Nanos = Nanos::from_millis(1);

/// A target that serves one request at a time, and jobs with phases of equal requests.
struct Bench {
    arbiter: Box<dyn Arbiter>,
    now: Nanos,
    id: u64,
}

impl Bench {
    fn new(policy: &str) -> Self {
        Self {
            arbiter: build(&policy.parse().unwrap(), Draw::VirtualTime, 0, Tuning::default()),
            now: Nanos::ZERO,
            id: 0,
        }
    }

    fn add(&mut self, job: u32, nodes: u32) {
        let info = JobInfo { nodes, ..JobInfo::new(&format!("j{job}"), &format!("u{job}"), "g") };
        self.arbiter.set_job(self.now, JobId(job), &info);
    }

    fn issue(&mut self, job: u32, requests: u32, cost: Nanos) {
        for _ in 0..requests {
            self.id += 1;
            self.arbiter
                .enqueue(
                    self.now,
                    Request { id: RequestId(self.id), job: JobId(job), cost, bytes: Bytes(0), nature: Nature::WRITE },
                )
                .unwrap();
        }
    }

    fn serve(&mut self) -> u32 {
        let Next::Dispatch(request) = self.arbiter.next(self.now) else { panic!("a request is queued") };
        self.now += request.cost;
        self.arbiter.complete(self.now, request.id, request.job);
        request.job.0
    }

    /// The jobs of the next `count` requests.
    fn serve_all(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.serve()).collect()
    }
}

/// Two jobs at g = 1/2: virtual time advances by a quarter of each request, a guaranteed request by one.
#[test]
fn half_is_guaranteed_and_half_goes_to_the_first() {
    let mut bench = Bench::new("coflow{guarantee=0.5,order=bottleneck}");
    for job in [1, 2] {
        bench.add(job, 1);
        bench.issue(job, 40, MS);
    }
    bench.arbiter.set_rank(bench.now, JobId(1), Some(9));
    bench.arbiter.set_rank(bench.now, JobId(2), Some(3));
    // Tags 0, 0: each is owed. Then virtual time, at 1/2, is behind both tags, at 1, until two more are served.
    assert_eq!(bench.serve_all(12), [1, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]);
    bench.arbiter.set_rank(bench.now, JobId(1), Some(2));
    assert_eq!(bench.serve_all(8), [1, 2, 1, 1, 1, 2, 1, 1]);
    // Job 1 is gone: everything is job 2's.
    bench.arbiter.remove_job(bench.now, JobId(1));
    assert_eq!(bench.serve_all(4), [2; 4]);
}

#[test]
fn a_guarantee_of_everything_is_the_tree_alone() {
    let run = |policy| {
        let mut bench = Bench::new(policy);
        for (job, nodes) in [(1, 3), (2, 1), (3, 2)] {
            bench.add(job, nodes);
            bench.issue(job, 300, MS);
        }
        let served = bench.serve_all(600);
        [1, 2, 3].map(|job| served.iter().filter(|&&of| of == job).count() as f64)
    };
    let fair = run("size-fair");
    for order in ["attained", "slowdown", "bottleneck"] {
        let coflow = run(match order {
            "attained" => "coflow{guarantee=1,order=attained,tree=size-fair}",
            "slowdown" => "coflow{guarantee=1,order=slowdown,tree=size-fair}",
            _ => "coflow{guarantee=1,order=bottleneck,tree=size-fair}",
        });
        for (coflow, fair) in coflow.iter().zip(&fair) {
            assert!((coflow - fair).abs() <= 3.0, "{order}: {coflow:?}, {fair:?}");
        }
    }
}

/// Under `attained` a new phase overtakes one that has received much, and equal phases end one after the other.
#[test]
fn least_attained_service_is_first() {
    let mut bench = Bench::new("coflow{guarantee=0.1,order=attained}");
    [1, 2, 3].into_iter().for_each(|job| bench.add(job, 1));
    bench.issue(1, 100, MS);
    bench.serve_all(20);
    bench.issue(2, 8, MS);
    let served = bench.serve_all(8);
    assert!(served.iter().filter(|&&job| job == 2).count() >= 7, "{served:?}");
    bench.issue(2, 2, MS);
    bench.issue(3, 2, MS);
    // Job 2 has received 8 ms or about, job 3 nothing.
    let served = bench.serve_all(3);
    assert!(served.iter().filter(|&&job| job == 3).count() == 2, "{served:?}");
}

/// A job that does the same again is known: its short phase goes before a long one's that began earlier.
#[test]
fn the_length_of_a_phase_is_learnt_from_the_ones_before() {
    let mut bench = Bench::new("coflow{guarantee=0.1,order=bottleneck}");
    [1, 2].into_iter().for_each(|job| bench.add(job, 1));
    for _ in 0..3 {
        bench.issue(1, 100, MS);
        bench.serve_all(100);
        bench.now += Tuning::default().active_window;
        bench.issue(2, 10, MS);
        bench.serve_all(10);
        bench.now += Tuning::default().active_window;
    }
    bench.issue(1, 100, MS);
    bench.issue(2, 10, MS);
    let served = bench.serve_all(12);
    assert_eq!(served.iter().filter(|&&job| job == 2).count(), 10, "{served:?}");
}

/// Longest for what it received: job 2 joined later, and received no less.
#[test]
fn the_worst_slowdown_is_first() {
    let mut bench = Bench::new("coflow{guarantee=0.000001,order=slowdown}");
    [1, 2].into_iter().for_each(|job| bench.add(job, 1));
    bench.issue(1, 400, MS);
    bench.serve_all(10);
    bench.issue(2, 400, MS);
    let served = bench.serve_all(300);
    // Slowdowns are kept alike: service is as the time since the beginning, 310 : 300.
    let of_2 = served.iter().filter(|&&job| job == 2).count();
    assert!((130..=170).contains(&of_2), "{of_2}");
    let longest = served.chunk_by(|a, b| a == b).map(<[u32]>::len).max();
    assert!(longest <= Some(40), "nobody waits for long: {longest:?}");
}

#[test]
fn an_order_over_many_targets_uses_the_same_ranks() {
    let far = Progress { attained: Nanos::from_secs(3), ..Progress::default() };
    let mut bench = Bench::new("coflow{guarantee=0.1,order=attained}");
    for job in [1, 2] {
        bench.add(job, 1);
        bench.issue(job, 100, MS);
    }
    bench.arbiter.set_rank(bench.now, JobId(1), Some(Order::Attained.rank(&far)));
    let served = bench.serve_all(50);
    assert!(served.iter().filter(|&&job| job == 2).count() >= 46, "served elsewhere: {served:?}");
    // The phase ends, and with it the rank.
    bench.serve_all(150);
    bench.now += Tuning::default().active_window;
    bench.issue(1, 10, MS);
    bench.issue(2, 10, MS);
    let served = bench.serve_all(10);
    assert!(served.iter().filter(|&&job| job == 1).count() >= 4, "{served:?}");
    bench.arbiter.set_rank(bench.now, JobId(7), Some(1));
}

/// Phases of equal length that begin together end sooner on average than under fair sharing, and none much later.
#[test]
fn phases_end_sooner_and_none_much_later() {
    let ends = |policy: &str| {
        let mut bench = Bench::new(policy);
        for job in 0..4 {
            bench.add(job, 1);
            bench.issue(job, 100, MS);
            if policy.contains("bottleneck") {
                // Told, because nothing is known of first phases.
                bench.arbiter.set_rank(bench.now, JobId(job), Some(job));
            }
        }
        let mut ends = [Nanos::ZERO; 4];
        for _ in 0..400 {
            let job = bench.serve();
            ends[job as usize] = bench.now;
        }
        ends
    };
    let mean = |ends: [Nanos; 4]| ends.iter().map(|end| end.0).sum::<u64>() / 4;
    let fair = ends("job-fair");
    for policy in ["coflow{guarantee=0.5,order=attained}", "coflow{guarantee=0.5,order=bottleneck}"] {
        let coflow = ends(policy);
        assert!(mean(coflow) * 100 < mean(fair) * 92, "{policy}: {coflow:?}, {fair:?}");
        assert!(coflow.iter().max() <= fair.iter().max(), "work is conserved");
    }
}

const ORDERS: [&str; 3] = ["attained", "slowdown", "bottleneck"];

proptest! {
    /// The bound: while a job stays queued and the target serves W, it receives at least
    /// g · share · (W − one largest request of each job) − one of its own, whatever the order says.
    #[test]
    fn nobody_falls_below_its_guarantee(
        costs in proptest::collection::vec(proptest::collection::vec(1u64..4_000, 1..4), 2..7),
        nodes in proptest::collection::vec(1u32..9, 7),
        guarantee in 1u32..=20,
        order in 0usize..3,
        flips in proptest::collection::vec((0u32..7, proptest::option::of(0u32..90)), 0..40),
        rounds in 1usize..400,
    ) {
        let g = f64::from(guarantee) / 20.0;
        let mut bench = Bench::new(&format!("coflow{{guarantee={g},order={},tree=size-fair}}", ORDERS[order]));
        let jobs = costs.len() as u32;
        let mut infos = BTreeMap::new();
        let cost = |job: u32, count: usize| Nanos::from_micros(costs[job as usize][count % costs[job as usize].len()]);
        for job in 0..jobs {
            bench.add(job, nodes[job as usize]);
            infos.insert(JobId(job), JobInfo { nodes: nodes[job as usize], ..JobInfo::new("j", "u", "g") });
            (0..2).for_each(|count| bench.issue(job, 1, cost(job, count)));
        }
        let share: Vec<f64> = shares::due(&"size-fair".parse().unwrap(), &infos).iter().map(|(_, share)| *share).collect();
        let largest = |job: u32| costs[job as usize].iter().max().unwrap() * 1_000;
        let ahead = (0..jobs).map(largest).sum::<u64>() + (0..jobs).map(largest).max().unwrap();
        let mut served = vec![0u64; jobs as usize];
        let mut counts = vec![0; jobs as usize];
        let mut log = vec![served.clone()];
        for round in 0..rounds {
            if let Some((job, rank)) = flips.get(round / 8).filter(|_| round % 8 == 0) {
                bench.arbiter.set_rank(bench.now, JobId(*job), *rank);
            }
            let before = bench.now;
            let job = bench.serve();
            served[job as usize] += bench.now.since(before).0;
            counts[job as usize] += 1;
            bench.issue(job, 1, cost(job, counts[job as usize] + 1));
            log.push(served.clone());
        }
        for from in (0..log.len()).step_by(1 + rounds / 12) {
            for to in (from..log.len()).step_by(1 + rounds / 12) {
                let work: u64 = (0..jobs as usize).map(|job| log[to][job] - log[from][job]).sum();
                for job in 0..jobs {
                    let received = (log[to][job as usize] - log[from][job as usize]) as f64;
                    let kept = g * share[job as usize] * (work as f64 - ahead as f64) - largest(job) as f64;
                    prop_assert!(received >= kept - 1.0, "job {job}: {received} of {work}, guaranteed {kept}");
                }
            }
        }
    }

    /// A phase ends within 1/g of its fair-share time and one request of each job, although a job that is always
    /// first in the order never pauses.
    #[test]
    fn a_phase_is_slowed_down_by_one_over_g_at_most(
        guarantee in 1u32..=20, others in 1u32..6, requests in 1u32..60, order in 0usize..3,
    ) {
        let g = f64::from(guarantee) / 20.0;
        let mut bench = Bench::new(&format!("coflow{{guarantee={g},order={}}}", ORDERS[order]));
        (0..=others).for_each(|job| bench.add(job, 1));
        for job in 1..=others {
            bench.issue(job, 3, MS);
            bench.arbiter.set_rank(bench.now, JobId(job), Some(0));
        }
        (0..others * 2).for_each(|_| { let job = bench.serve(); bench.issue(job, 1, MS); });
        let begin = bench.now;
        bench.issue(0, requests, MS);
        bench.arbiter.set_rank(bench.now, JobId(0), Some(u32::MAX));
        let mut left = requests;
        while left > 0 {
            let job = bench.serve();
            if job == 0 { left -= 1 } else { bench.issue(job, 1, MS) }
        }
        let fair = f64::from(requests * (others + 1));
        let took = bench.now.since(begin).0 as f64 / 1e6;
        prop_assert!(took <= fair / g + f64::from(others + 2), "{took} ms, at its fair share {fair} ms");
    }
}
