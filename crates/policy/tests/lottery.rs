//! The lottery is right in expectation: with a fixed seed, service is within a few standard deviations of due.

use isonomia_policy::{Draw, Nature, Next, Request, RequestId, Tuning, build, shares};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use std::collections::BTreeMap;

const REQUEST_MAX: Nanos = Nanos::from_micros(980);

/// Part of the service of each job when all stay queued until `tokens` of the largest request are served.
fn parts(policy: &str, seed: u64, tokens: u64, jobs: &[(JobInfo, Nanos)]) -> Vec<f64> {
    let mut arbiter = build(&policy.parse().expect("a policy"), Draw::Lottery, seed, Tuning::default());
    let mut now = Nanos::ZERO;
    for (job, (info, cost)) in jobs.iter().enumerate() {
        let job = JobId(job as u32);
        arbiter.set_job(now, job, info);
        for id in 0..8 {
            arbiter
                .enqueue(now, Request { id: RequestId(id), job, cost: *cost, bytes: Bytes(0), nature: Nature::WRITE })
                .expect("the job is known");
        }
    }
    let mut service = vec![0; jobs.len()];
    while now.0 < tokens * REQUEST_MAX.0 {
        let Next::Dispatch(request) = arbiter.next(now) else { panic!("requests are queued") };
        now += request.cost;
        arbiter.complete(now, request.id, request.job);
        arbiter.enqueue(now, request).expect("the job is known");
        service[request.job.0 as usize] += request.cost.0;
    }
    service.iter().map(|&service| service as f64 / now.0 as f64).collect()
}

fn assert_due(policy: &str, jobs: &[(JobInfo, Nanos)]) {
    const TOKENS: u64 = 20_000;
    let infos: BTreeMap<_, _> = (0..).map(JobId).zip(jobs.iter().map(|(info, _)| info.clone())).collect();
    let due = shares::due(&policy.parse().expect("a policy"), &infos);
    for seed in 0..3 {
        let parts = parts(policy, seed, TOKENS, jobs);
        for (part, (job, due)) in parts.iter().zip(&due) {
            let deviation = (due * (1.0 - due) / TOKENS as f64).sqrt();
            assert!((part - due).abs() <= 4.0 * deviation, "{policy}, seed {seed}, job {job}: {part} due {due}");
        }
    }
}

#[test]
fn four_kib_against_one_mib_share_service() {
    let job = |name| JobInfo::new(name, name, name);
    assert_due("job-fair", &[(job("small"), Nanos::from_micros(9)), (job("large"), REQUEST_MAX)]);
    assert_due("job-fair", &[(job("large"), REQUEST_MAX), (job("small"), Nanos::from_micros(9))]);
}

#[test]
fn a_composite_gives_every_job_its_due_in_expectation() {
    let job =
        |user, group, nodes, cost_us| (JobInfo { nodes, ..JobInfo::new("", user, group) }, Nanos::from_micros(cost_us));
    let jobs = [
        job("u1", "g1", 1, 980),
        job("u1", "g1", 2, 100),
        job("u2", "g2", 2, 980),
        job("u2", "g2", 3, 300),
        job("u2", "g2", 2, 10),
        job("u3", "g2", 5, 980),
    ];
    assert_due("group-user-size-fair", &jobs);
    assert_due("group-fair{g1=3}-then-job-fair", &jobs);
}

#[test]
fn seeds_differ_and_repeat() {
    let jobs = [(JobInfo::new("a", "", ""), REQUEST_MAX), (JobInfo::new("b", "", ""), REQUEST_MAX)];
    assert_eq!(parts("job-fair", 1, 500, &jobs), parts("job-fair", 1, 500, &jobs));
    assert_ne!(parts("job-fair", 1, 500, &jobs), parts("job-fair", 2, 500, &jobs));
}
