//! `exclusive`: one application at a time has all targets of a server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use isonomia_planning::{App, Order, schedule};
use isonomia_policy::{
    Arbiter, Draw, Exclusive, Nature, Next, PolicySpec, Request, RequestId, Scheme, SharedIoNode, Tuning, build_on,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;

const MS: Nanos = Nanos::from_millis(1);

fn settings(policy: &str) -> (PolicySpec, Exclusive) {
    let spec: PolicySpec = policy.parse().unwrap();
    let Scheme::Exclusive(settings) = spec.scheme().clone() else { panic!("{policy}") };
    (spec, settings)
}

/// Two targets of one server.
struct Server {
    node: SharedIoNode,
    targets: Vec<Box<dyn Arbiter>>,
    id: u64,
}

impl Server {
    fn new(policy: &str, jobs: &[JobInfo]) -> Self {
        let (spec, settings) = settings(policy);
        let node = SharedIoNode::new(&settings, 1);
        let target = |seed| build_on(Some(&node), &spec, Draw::VirtualTime, seed, Tuning::default());
        let mut targets: Vec<_> = (0..2).map(target).collect();
        for (number, info) in (0..).zip(jobs) {
            targets.iter_mut().for_each(|target| target.set_job(Nanos::ZERO, JobId(number), info));
        }
        Self { node, targets, id: 0 }
    }

    fn issue(&mut self, now: Nanos, target: usize, job: u32) {
        self.issue_as(now, target, job, Nature::WRITE);
    }

    fn issue_as(&mut self, now: Nanos, target: usize, job: u32, nature: Nature) {
        self.id += 1;
        let request = Request { id: RequestId(self.id), job: JobId(job), cost: MS, bytes: Bytes(0), nature };
        self.targets[target].enqueue(now, request).unwrap();
    }

    /// The job whose request is served now, and ended.
    fn serve(&mut self, now: Nanos, target: usize) -> Result<u32, Nanos> {
        match self.targets[target].next(now) {
            Next::Dispatch(request) => {
                self.targets[target].complete(now, request.id, request.job);
                Ok(request.job.0)
            }
            Next::WaitUntil(until) => Err(until),
            Next::Idle => Err(Nanos::MAX),
        }
    }
}

fn jobs(names: &[&str]) -> Vec<JobInfo> {
    names.iter().map(|name| JobInfo::new(name, "u", "g")).collect()
}

#[test]
fn an_application_has_all_targets_until_it_leaves_them_idle() {
    let mut server = Server::new("exclusive{gap=10ms,lease=1s}", &jobs(&["a", "b"]));
    server.issue(MS, 0, 0);
    for target in [0, 1] {
        server.issue(MS, target, 1);
    }
    assert_eq!(server.serve(MS, 0), Ok(0));
    // The other target was never used by `a`, and is `a`'s all the same.
    assert_eq!(server.serve(MS, 1), Err(Nanos::from_millis(11)));
    assert_eq!(server.serve(Nanos::from_millis(5), 0), Err(Nanos::from_millis(11)));
    // Within the gap it is still its turn.
    server.issue(Nanos::from_millis(6), 1, 0);
    assert_eq!(server.serve(Nanos::from_millis(7), 1), Ok(0));
    assert_eq!(server.serve(Nanos::from_millis(11), 0), Err(Nanos::from_millis(17)));
    assert_eq!(server.serve(Nanos::from_millis(17), 0), Ok(1));
    assert_eq!(server.serve(Nanos::from_millis(17), 1), Ok(1));
}

#[test]
fn whoever_writes_without_end_is_cut_by_the_lease_and_loses_nothing() {
    let mut server = Server::new("exclusive{gap=10ms,lease=100ms}", &jobs(&["a", "b"]));
    for _ in 0..5 {
        server.issue(Nanos::ZERO, 0, 0);
    }
    assert_eq!(server.serve(Nanos::ZERO, 0), Ok(0));
    server.issue(MS, 0, 1);
    assert_eq!(server.serve(Nanos::from_millis(99), 0), Ok(0));
    assert_eq!(server.serve(Nanos::from_millis(100), 0), Ok(1));
    assert_eq!(server.targets[0].queued_of(JobId(0)), 3);
    // `b` is done; `a` goes on with what it had queued, in order.
    let mut served = Vec::new();
    for _ in 0..3 {
        served.push(server.serve(Nanos::from_millis(120), 0));
    }
    assert_eq!(served, [Ok(0); 3]);
    assert_eq!(server.targets[0].queued(), 0);
}

#[test]
fn what_is_claimed_within_one_proof_is_one_application() {
    let claimed = |name: &str| JobInfo::new(name, "ada", "g").claimed_within("slurm-7");
    let others = [claimed("one"), claimed("two"), JobInfo::new("two", "bob", "g")];
    let mut server = Server::new("exclusive{gap=10ms,lease=1s}", &others);
    for job in [0, 2, 1] {
        server.issue(MS, 0, job);
    }
    assert_eq!((server.serve(MS, 0), server.serve(MS, 0)), (Ok(0), Ok(1)));
    assert!(server.serve(MS, 0).is_err());
    assert_eq!(server.serve(Nanos::from_millis(11), 0), Ok(2));
}

#[test]
fn what_the_server_writes_back_waits_for_no_turn_and_takes_none() {
    let mut server = Server::new("exclusive{gap=10ms,lease=1s}", &jobs(&["a", "b"]));
    server.issue(MS, 0, 0);
    server.issue(MS, 0, 1);
    assert_eq!(server.serve(MS, 0), Ok(0));
    server.issue_as(MS, 0, 1, Nature::OWN);
    assert_eq!(server.serve(MS, 0), Ok(1), "although `a` has the targets");
    assert_eq!(server.serve(Nanos::from_millis(11), 0), Ok(1));
    // `a`'s own turn has come and gone: what is left to be written for it delays nobody.
    server.issue_as(Nanos::from_millis(12), 1, 0, Nature::OWN);
    server.issue(Nanos::from_millis(12), 1, 1);
    let served: Vec<_> = (0..2).map(|_| server.serve(Nanos::from_millis(12), 1)).collect();
    assert!(served.contains(&Ok(0)) && served.contains(&Ok(1)), "{served:?}");
    assert_eq!(server.node.lock().endings().gap, 1);
    // It can be taken back, and goes over to another arbiter, like everything else.
    server.issue_as(Nanos::from_millis(13), 0, 0, Nature::OWN);
    assert!(server.targets[0].cancel(Nanos::from_millis(13), RequestId(server.id), JobId(0)));
    server.issue_as(Nanos::from_millis(13), 0, 0, Nature::OWN);
    assert_eq!(server.targets[0].drain().len(), 1);
    assert_eq!(server.targets[0].queued(), 0);
    server.targets.clear();
    assert_eq!(server.node.lock().states(Nanos::from_millis(14)), []);
}

#[test]
fn a_job_that_leaves_leaves_its_turn() {
    let mut server = Server::new("exclusive{gap=10ms,lease=1s}", &jobs(&["a", "b"]));
    server.issue(MS, 0, 0);
    server.issue(MS, 0, 1);
    for target in &mut server.targets {
        target.remove_job(MS, JobId(0));
    }
    assert_eq!(server.serve(MS, 0), Ok(1));
    assert_eq!(server.node.lock().states(MS).len(), 1);
}

/// What programs that say nothing get: phases found by the gap, each of which costs the others one.
#[test]
fn phases_found_by_the_gap_follow_the_schedule_of_phases_that_are_longer_by_it() {
    let app = |compute, io, iterations| App { compute, io, iterations, release: Nanos::ZERO };
    let (gap, step) = (Nanos::from_millis(10), MS);
    let apps = [
        app(Nanos::from_millis(300), Nanos::from_millis(100), 4),
        app(Nanos::from_millis(151), Nanos::from_millis(50), 8),
        app(Nanos::from_millis(77), Nanos::from_millis(25), 16),
    ];
    for order in [Order::Fifo, Order::LowestId] {
        let mut server =
            Server::new(&format!("exclusive{{order={order},gap=10ms,lease=10s}}"), &jobs(&["a", "b", "c"]));
        let (mut left, mut at): (Vec<u64>, Vec<Nanos>) =
            (apps.iter().map(|app| app.iterations.into()).collect(), apps.iter().map(|app| app.compute).collect());
        let mut to_issue: Vec<u64> = apps.iter().map(|app| app.io.0 / step.0).collect();
        let mut ends = [Nanos::ZERO; 3];
        let mut now = Nanos::ZERO;
        // Requests of a millisecond, one at a time, on one target.
        let mut waits = [false; 3];
        while left.iter().any(|left| *left > 0) {
            for job in 0..3 {
                if left[job] > 0 && at[job] <= now && !std::mem::replace(&mut waits[job], true) {
                    server.issue(now, 0, job as u32);
                }
            }
            now += step;
            let Next::Dispatch(request) = server.targets[0].next(now) else { continue };
            now += step;
            server.targets[0].complete(now, request.id, request.job);
            let job = request.job.0 as usize;
            waits[job] = false;
            to_issue[job] -= 1;
            if to_issue[job] == 0 {
                left[job] -= 1;
                to_issue[job] = apps[job].io.0 / step.0;
                at[job] = now + apps[job].compute;
                ends[job] = now;
            }
        }
        // A request takes two steps here.
        let longer = apps.map(|app| App { io: app.io + app.io + gap, compute: app.compute - gap, ..app });
        let expected = schedule(&longer, order).unwrap();
        for (end, outcome) in ends.iter().zip(&expected.apps) {
            let ratio = (end.0 + gap.0) as f64 / outcome.completion.0 as f64;
            assert!((0.95..1.05).contains(&ratio), "{order}: {ratio}");
        }
    }
}

proptest! {
    /// Whatever comes and whenever it is asked for: no two applications are served between two ends of a phase, and everything
    /// is served in the end.
    #[test]
    fn nothing_is_lost_and_two_never_mix(
        steps in proptest::collection::vec((0usize..2, 0u32..3, 0u64..30, any::<bool>()), 1..150),
        order in proptest::sample::select(Order::ALL.to_vec()),
    ) {
        let mut server = Server::new(&format!("exclusive{{order={order},gap=10ms,lease=100ms}}"), &jobs(&["a", "b", "c"]));
        let mut now = Nanos::ZERO;
        let (mut issued, mut served) = (0, 0);
        for (target, job, pause, is_served) in steps {
            now += Nanos::from_millis(pause);
            if is_served {
                let changes = server.node.lock().changes();
                let others: Vec<_> = (0..2).map(|target| server.serve(now, target)).collect();
                let jobs: Vec<_> = others.iter().flatten().collect();
                prop_assert!(jobs.windows(2).all(|pair| pair[0] == pair[1]) || server.node.lock().changes() != changes);
                served += jobs.len();
            } else {
                server.issue(now, target, job);
                issued += 1;
            }
        }
        for _ in 0..10_000 {
            if server.targets.iter().all(|target| target.queued() == 0) {
                break;
            }
            let mut again = Nanos::MAX;
            for target in 0..2 {
                match server.serve(now, target) {
                    Ok(_) => (served, again) = (served + 1, now),
                    Err(at) => again = again.min(at),
                }
            }
            now = again;
        }
        prop_assert_eq!(served, issued);
    }
}
