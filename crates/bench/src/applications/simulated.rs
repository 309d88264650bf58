//! The applications request by request, with the arbiters and the controller that servers have.

use super::course::{Course, Ledger};
use super::workload::{Application, BANDWIDTH, BLOCK, Layout, STREAMS, TARGETS};
use anyhow::{Context, Result};
use isonomia_policy::PolicySpec;
use isonomia_sim::request::{self, Job, Op, Phase, Scenario, Target};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use std::ops::ControlFlow;

/// Nobody takes longer.
const DURATION: Nanos = Nanos::from_secs(100_000);

/// Requests take up to this part more or less than they would, …
const JITTER: f64 = 0.02;
/// … in so many simulations: who meets whom, and is served first, is chance in a single one as it is in a live run.
const SIMULATIONS: u64 = 8;

/// What comes of these applications under `policy` on so many servers, if the controller, where there is one, decides every `decide`, and servers
/// tell each other of their jobs so often, if they do: several times, by chance.
pub fn simulate(
    applications: &[Application],
    (layout, servers): (Layout, u16),
    policy: &PolicySpec,
    (decide, exchange): (Nanos, Option<Nanos>),
) -> Result<Vec<Course>> {
    (1..=SIMULATIONS)
        .map(|seed| simulate_once(applications, (layout, servers), policy, (decide, exchange), seed))
        .collect()
}

fn simulate_once(
    applications: &[Application],
    (layout, servers): (Layout, u16),
    policy: &PolicySpec,
    (decide, exchange): (Nanos, Option<Nanos>),
    seed: u64,
) -> Result<Course> {
    let bandwidth = Rate::new(BANDWIDTH).expect("not zero");
    let target = |number: usize| {
        Target::serial(
            format!("target-{number}"),
            number * usize::from(servers) / TARGETS,
            bandwidth,
            JITTER,
            policy.clone(),
        )
    };
    let servers = (0..servers).map(|server| format!("server-{server}")).collect();
    let jobs = applications.iter().map(|application| job(application, layout)).collect();
    let whole = Scenario::whole(DURATION, servers, (0..TARGETS).map(target).collect(), jobs);
    let scenario = Scenario { seed, decide: Some(decide), exchange, ..whole };
    let outcome = request::run(&scenario, &mut |_| ControlFlow::Continue(()));
    let mut phases_ns = Vec::new();
    for (application, job) in applications.iter().zip(&outcome.jobs) {
        job.elapsed_ns.with_context(|| format!("{} does not end in the simulation", application.name))?;
        let mut ready_ns = application.start_ns;
        let phase = |end: &u64| {
            let begin = ready_ns + application.compute_ns;
            ready_ns = *end;
            (begin, *end)
        };
        phases_ns.push(job.barriers_ns.iter().map(phase).collect());
    }
    let ledger = outcome.coupons.map(|coupons| Ledger {
        coupons_issued: coupons.issued,
        coupons_redeemed: coupons.redeemed,
        coupons_compensated: coupons.compensated,
        outstanding_node_s: coupons.outstanding_node_s,
        awarded_node_s: coupons.paid_node_s,
    });
    Ok(Course { phases_ns, ledger, controller: None })
}

fn job(application: &Application, layout: Layout) -> Job {
    let info = JobInfo { nodes: application.nodes, ..JobInfo::new(&application.name, "bench", "bench") };
    Job {
        info,
        processes: application.targets.len() as u32 * STREAMS as u32,
        depth: 1,
        targets: application.targets.clone(),
        layout: match layout {
            Layout::Striped => request::Layout::Striped,
            Layout::Apart => request::Layout::FilePerProcess,
        },
        phases: vec![Phase {
            compute: Nanos(application.compute_ns),
            barrier: true,
            ..Phase::back_to_back(Op::Write, Bytes(BLOCK), application.blocks)
        }],
        iterations: Some(application.iterations),
        start: Nanos(application.start_ns),
        stop: Nanos::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::course::{gain, mean, worst};
    use crate::applications::workload::draw;
    use crate::applications::{BASE, DECIDE, EXCHANGE, FINISH, FIRM_FINISH, exchange};

    fn course(applications: &[Application], layout: Layout, policy: &str) -> Course {
        let spec = policy.parse().expect("a policy");
        simulate_once(applications, (layout, 2), &spec, (DECIDE, exchange(policy)), 1).expect("it ends")
    }

    #[test]
    fn phases_are_as_many_as_there_are_and_follow_each_other() {
        let applications = draw(3, 10.0);
        let course = course(&applications, Layout::Striped, BASE);
        for (application, phases) in applications.iter().zip(&course.phases_ns) {
            assert_eq!(phases.len() as u64, application.iterations);
            let alone = application.io_ns();
            assert!(phases.iter().all(|(begin, end)| end - begin >= alone * 97 / 100), "{phases:?}, {alone} ns alone");
            assert!(phases.windows(2).all(|two| two[1].0 == two[0].1 + application.compute_ns));
        }
        assert!(course.ledger.is_none());
    }

    #[test]
    fn gift_throttles_and_keeps_its_books_over_all_targets() {
        let course = course(&draw(2, 20.0), Layout::Striped, "gift{period=10s}");
        let ledger = course.ledger.expect("GIFT has a ledger");
        assert!(ledger.coupons_issued > 0 && ledger.coupons_redeemed > 0, "{ledger:?}");
        let settled = ledger.coupons_redeemed + ledger.coupons_compensated;
        assert!(settled <= ledger.coupons_issued && ledger.awarded_node_s > 0.0, "{ledger:?}");
    }

    #[test]
    fn fair_finish_gains_more_than_twice_what_gift_does() {
        let applications = draw(2, 20.0);
        for layout in [Layout::Striped, Layout::Apart] {
            let io_s = |policy| course(&applications, layout, policy).io_s();
            let base = io_s(BASE);
            let (finish, gift) = (gain(&base, &io_s(FINISH)), gain(&base, &io_s("gift")));
            assert!(finish > 10.0 && finish > 2.0 * gift, "{layout}: {finish} and {gift}");
        }
    }

    /// Servers that tell each other when phases end fairly put nobody off whom his other targets wait for: whom it takes most it takes
    /// less than where each goes by its own clock, for no less gain.
    #[test]
    fn ends_on_other_targets_spare_whom_fair_finish_takes_most() {
        let (mut apart, mut together, mut gains) = (0.0, 0.0, 0.0);
        for seed in 1..=3 {
            let applications = draw(seed, 20.0);
            let io_s = |policy: &str, exchange| {
                let spec = policy.parse().expect("a policy");
                let of = |chance| simulate_once(&applications, (Layout::Striped, 2), &spec, (DECIDE, exchange), chance);
                mean((1..=3).map(|chance| of(chance).expect("it ends").io_s()))
            };
            let base = io_s(BASE, None);
            let (by_itself, told) = (io_s(FINISH, None), io_s(FINISH, Some(EXCHANGE)));
            apart += worst(&base, &by_itself);
            together += worst(&base, &told);
            gains += gain(&base, &told) - gain(&base, &by_itself);
            let firm = worst(&base, &io_s(FIRM_FINISH, Some(EXCHANGE)));
            assert!(firm < 1.25, "seed {seed}: {firm} times as long, with a floor of 0.8");
        }
        assert!(together < apart - 0.1 && gains > -3.0, "{together} and {apart} in three seeds, {gains} points more");
    }
}
