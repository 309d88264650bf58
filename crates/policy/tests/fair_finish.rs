//! `fair-finish`: one phase after the other, as fair sharing would finish them; its theorems, against fair sharing that is
//! simulated here by other means.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod phases;

use isonomia_policy::Next;
use isonomia_units::{JobId, JobInfo, Nanos};
use phases::{Bench, Course, Phase, ROUNDING, Tree, arb_phases, fair, of_each, run};
use proptest::prelude::*;

const MS: Nanos = Nanos::from_millis(1);

fn ms(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

/// Two come together, and one when the second is through; the third has a later end than what is left of the first.
#[test]
fn who_would_finish_first_is_served_first() {
    let mut bench = Bench::new("fair-finish{guarantee=0.000001}");
    for job in 1..=3 {
        bench.add(job, "j", &format!("u{job}"), 1);
    }
    bench.declared(1, 6, MS);
    bench.declared(2, 2, MS);
    // Who has received nothing is below any floor as soon as somebody was served.
    assert_eq!(bench.serve_all(4), [2, 1, 2, 1]);
    // By now 4 ms have passed: in the clock 2 each, and 2 is done. 1 is at 6, this one at 2 + 5.
    bench.declared(3, 5, MS);
    assert_eq!(bench.serve_all(9), [1, 3, 1, 1, 1, 3, 3, 3, 3]);
    let mut bench = Bench::new("fair-finish{guarantee=0.000001,tree=size-fair}");
    bench.add(1, "j", "a", 4);
    bench.add(2, "j", "b", 1);
    bench.declared(1, 6, MS);
    bench.declared(2, 2, MS);
    assert_eq!(bench.serve_all(8), [1, 2, 1, 1, 1, 1, 1, 2], "6 / 4 is before 2 / 1");
}

/// With the whole guarantee nobody is ahead of another by more than a request.
#[test]
fn a_guarantee_of_everything_is_fair_queueing() {
    let mut bench = Bench::new("fair-finish{guarantee=1,tree=size-fair}");
    for (job, nodes) in [(1, 3), (2, 1), (3, 2)] {
        bench.add(job, "j", "u", nodes);
        bench.declared(job, 300, MS);
    }
    let mut served = [0u32; 3];
    for round in 1..=500u32 {
        served[bench.serve() as usize - 1] += 1;
        for (served, nodes) in served.iter().zip([3, 1, 2]) {
            let due = f64::from(round * nodes) / 6.0;
            assert!((f64::from(*served) - due).abs() <= 2.0, "round {round}: {served} of {due}");
        }
    }
}

#[test]
fn sizes_come_from_the_history_of_user_and_name() {
    let first_served = |policy: &str, user: &str| {
        let mut bench = Bench::new(policy);
        for (job, name) in [(1, "long"), (2, "short")] {
            bench.add(job, name, "ada", 1);
            bench.issue(job, if job == 1 { 400 } else { 20 }, MS);
            while bench.arbiter.queued() > 0 {
                bench.serve();
            }
            bench.pause();
            bench.arbiter.remove_job(bench.now, JobId(job));
        }
        // Other jobs of the same applications, the long one first.
        for (job, name) in [(3, "long"), (4, "short")] {
            bench.add(job, name, user, 1);
            bench.issue(job, 20, MS);
        }
        bench.serve_all(20).iter().filter(|&&job| job == 4).count()
    };
    assert!(first_served("fair-finish{sizes=history}", "ada") >= 15);
    assert!(first_served("fair-finish", "ada") >= 15, "nothing was declared");
    assert!(first_served("fair-finish{sizes=none}", "ada") >= 15, "the long one is of a class above");
    for policy in ["fair-finish{sizes=none}", "fair-finish{sizes=history}"] {
        assert!((8..=12).contains(&first_served(policy, "eve")), "nothing is known: {policy}");
    }
}

/// Phases of 120 and of 20 ms are of one class, in which nobody is before the other but by what they received.
#[test]
fn without_sizes_phases_of_one_class_take_turns() {
    let served_to = |policy: &str| {
        let mut bench = Bench::new(policy);
        for (job, name, requests) in [(1, "long", 120), (2, "short", 20)] {
            bench.add(job, name, "ada", 1);
            bench.issue(job, requests, MS);
            while bench.arbiter.queued() > 0 {
                bench.serve();
            }
            bench.pause();
            bench.arbiter.remove_job(bench.now, JobId(job));
        }
        for (job, name, requests) in [(3, "long", 120), (4, "short", 20)] {
            bench.add(job, name, "ada", 1);
            bench.issue(job, requests, MS);
        }
        bench.serve_all(140).iter().rposition(|&job| job == 4).unwrap() + 1
    };
    assert!(served_to("fair-finish{guarantee=0.000001,sizes=history}") <= 21);
    assert!((30..=45).contains(&served_to("fair-finish{guarantee=0.000001,sizes=none}")));
}

/// Under a scheduler that gives each run a number the title is what runs have in common.
#[test]
fn runs_of_one_title_have_one_history() {
    let mut bench = Bench::new("fair-finish{sizes=history}");
    for (job, requests) in [(1, 100), (2, 100), (3, 50)] {
        let info = JobInfo { title: Some("climate".into()), ..JobInfo::new(&format!("70{job}"), "ada", "g") };
        bench.arbiter.set_job(bench.now, JobId(job), &info);
        bench.issue(job, requests, MS);
        bench.serve();
        let told = bench.arbiter.phases()[0];
        let factors = [None, None, Some(1.01)];
        assert!(job == 1 || told.expected == Nanos(101_000_000), "run {job}: {told:?}");
        assert_eq!(told.error.map(|error| (error * 100.0).round() / 100.0), factors[job as usize - 1], "run {job}");
        while bench.arbiter.queued() > 0 {
            bench.serve();
        }
        bench.pause();
        bench.arbiter.remove_job(bench.now, JobId(job));
    }
}

#[test]
fn phases_are_reported_beside_what_fair_sharing_would_have_served() {
    let mut bench = Bench::new("fair-finish{guarantee=0.000001}");
    for job in 1..=3 {
        bench.add(job, "j", &format!("u{job}"), 1);
    }
    bench.declared(2, 30, MS);
    bench.declared(1, 10, MS);
    bench.serve_all(8);
    let found: Vec<_> = bench.arbiter.phases().iter().map(|phase| (phase.job.0, phase.received, phase.fair)).collect();
    assert_eq!(found, [(1, ms(7), ms(4)), (2, MS, ms(4))]);
    assert_eq!(bench.arbiter.phases()[1].expected, ms(30));
    bench.arbiter.remove_job(bench.now, JobId(2));
    bench.serve_all(3);
    bench.pause();
    assert_eq!(bench.arbiter.next(bench.now), Next::Idle);
    assert_eq!(bench.arbiter.phases(), []);
}

/// Job 2 says that its phase is long, sends little, and comes back with all of it when the clock would be done with it.
#[test]
fn who_does_not_ask_is_not_owed_for_it() {
    let mut bench = Bench::new("fair-finish{guarantee=0.000001}");
    for job in 1..=3 {
        bench.add(job, "j", &format!("u{job}"), 1);
    }
    bench.declared(1, 100_000, MS);
    bench.arbiter.expect(bench.now, JobId(2), ms(2_000));
    for _ in 0..500 {
        bench.issue(2, 1, Nanos(1_000));
        bench.serve_all(11);
    }
    bench.declared(3, 1_000, MS);
    bench.issue(2, 2_000, MS);
    let of_2 = bench.serve_all(1_000).iter().filter(|&&job| job == 2).count();
    assert!(of_2 <= 60, "{of_2}: it is owed what it missed for 50 ms at most, and the new one is shorter");
}

/// When each phase ends under fair sharing of jobs by their nodes, in ns.
fn fair_ends(phases: &[Phase]) -> Vec<f64> {
    fair(Tree::Sizes, phases, &[]).ends
}

fn ends(policy: &str, phases: &[Phase]) -> Vec<f64> {
    let Course { ends, .. } = run(policy, phases);
    ends
}

proptest! {
    /// Theorem 1: no phase ends later than under fair sharing by more than one request of each job, and the one that was in
    /// service when it came.
    #[test]
    fn no_phase_is_late_by_more_than_a_request_of_each(phases in arb_phases(), guarantee in 1u32..=20) {
        let policy = format!("fair-finish{{guarantee={},tree=size-fair}}", f64::from(guarantee) / 20.0);
        let each = of_each(&phases);
        for (at, (end, fair)) in ends(&policy, &phases).into_iter().zip(fair_ends(&phases)).enumerate() {
            prop_assert!(end <= fair + each + ROUNDING, "{at}: {end}, fair {fair} and {each}");
        }
    }

    /// Theorem 4: one tells a wrong size.
    #[test]
    fn a_liar_delays_nobody_beyond_what_he_said(
        phases in arb_phases(), guarantee in 1u32..=20, factor in 1.0f64..6.0, is_less in any::<bool>(),
    ) {
        let mut phases = phases;
        phases[0].told = Some(if is_less { 1.0 / factor } else { factor });
        let policy = format!("fair-finish{{guarantee={},tree=size-fair}}", f64::from(guarantee) / 20.0);
        let mut larger = phases.clone();
        let most = if is_less { 1.25 } else { factor };
        // Told anew it is a request more at least.
        larger[0].requests = (f64::from(larger[0].requests) * most).ceil() as u32 + 1;
        // What he said too much the clock may serve when the target has gone on after a pause.
        let excess = larger[0].size_ns() - phases[0].size_ns();
        // Those of each twice: what is in service when it is told anew counts once more.
        let each = 2.0 * of_each(&phases) + excess;
        // Who said too little is told anew, a quarter more each time, and waits himself for what is in service each time.
        let anew = if is_less { (factor.ln() / 1.25f64.ln()).ceil() } else { 0.0 };
        for (at, (end, fair)) in ends(&policy, &phases).into_iter().zip(fair_ends(&larger)).enumerate() {
            let each = if at == 0 { each + anew * of_each(&phases) } else { each };
            prop_assert!(end <= fair + each + ROUNDING, "{at}: {end}, fair {fair} and {each}");
        }
    }

    /// On the whole the phases end sooner, and never later than all of them together would.
    #[test]
    fn phases_that_come_together_end_sooner_than_under_fair_sharing(phases in arb_phases()) {
        let mut phases = phases;
        for phase in &mut phases {
            (phase.arrival_ms, phase.cost_us, phase.nodes) = (0, 1_000, 1);
        }
        let sum = |ends: &[f64]| ends.iter().sum::<f64>();
        let of_each = 1e6 * phases.len() as f64;
        let (finish, fair) = (ends("fair-finish{guarantee=0.000001}", &phases), fair_ends(&phases));
        prop_assert!(sum(&finish) <= sum(&fair) + of_each * phases.len() as f64);
        if phases.len() > 1 && phases.iter().all(|phase| phase.requests >= 10) {
            prop_assert!(sum(&finish) < sum(&fair));
        }
    }
}
