//! What `fair-finish` promises at every moment, over several targets, and with trees of several levels; and what it cannot
//! promise there.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod phases;

use phases::{
    Phase, ROUNDING, Tree, arb_guarantee, arb_phases, arb_told, fair, late_at_most, of_each, of_others, run,
    run_beside, sizes,
};
use proptest::prelude::*;

/// No phase has ever received less than `guarantee` times what fair sharing would have served of it, but for `short`, in
/// ns, of its number.
fn keeps_the_floor(
    (tree, word): (Tree, &str),
    phases: &[Phase],
    guarantee: f64,
    short: impl Fn(usize) -> f64,
) -> Result<(), TestCaseError> {
    let course = run(&format!("fair-finish{{guarantee={guarantee},tree={word}}}"), phases);
    let times: Vec<f64> = course.served.iter().map(|(now, _)| *now).collect();
    let fair = fair(tree, phases, &sizes(phases), &course.came, &times).served;
    for ((now, received), fair) in course.served.iter().zip(fair) {
        for (at, (received, fair)) in received.iter().zip(fair).enumerate() {
            let short = short(at);
            prop_assert!(
                *received >= guarantee * fair - short - ROUNDING,
                "{at} at {now}: {received} of {fair}, guarantee {guarantee}, but for {short}"
            );
        }
    }
    Ok(())
}

/// A part of a phase: as many requests as at the first target times `parts` tenths, at least one.
fn at_target(phases: &[Phase], parts: &[u32]) -> Vec<Phase> {
    let part = |(phase, part): (&Phase, &u32)| Phase { requests: (phase.requests * part / 10).max(1), ..phase.clone() };
    phases.iter().zip(parts).map(part).collect()
}

/// A phase of requests of 100 us.
fn phase(arrival_ms: u32, user: u32, nodes: u32, requests: u32) -> Phase {
    Phase { arrival_ms, user, nodes, requests, cost_us: 100, told: Some(1.0), cut: None, earlier: Vec::new() }
}

/// By how much the phase `at` ends after fair sharing would have ended it.
fn late_ms((tree, word): (Tree, &str), phases: &[Phase], guarantee: f64, at: usize) -> f64 {
    let course = run(&format!("fair-finish{{guarantee={guarantee},tree={word}}}"), phases);
    (course.ends[at] - fair(tree, phases, &sizes(phases), &course.came, &[]).ends[at]) / 1e6
}

proptest! {
    /// Theorem 2, with sizes as they are.
    #[test]
    fn at_every_moment_a_job_has_the_guaranteed_part(phases in arb_phases(), guarantee in arb_guarantee()) {
        let short = |at| guarantee * of_others(&phases, at);
        keeps_the_floor((Tree::Sizes, "size-fair"), &phases, guarantee, short)?;
    }

    /// Theorem 2, whatever is told of anybody: of what the arbiter's own clock has served.
    #[test]
    fn at_every_moment_a_job_has_the_guaranteed_part_of_its_clock(
        phases in arb_phases(), guarantee in arb_guarantee(), told in proptest::collection::vec(arb_told(), 8),
    ) {
        let mut phases = phases;
        phases.iter_mut().zip(told).for_each(|(phase, told)| phase.told = told);
        let course = run(&format!("fair-finish{{guarantee={guarantee},tree=size-fair}}"), &phases);
        for ((now, received), clock) in course.served.iter().zip(course.clock) {
            for (at, fair) in clock.into_iter().enumerate() {
                let (received, fair) = (received[at], fair.unwrap_or(0.0));
                let short = guarantee * of_others(&phases, at);
                prop_assert!(
                    received >= guarantee * fair - short - ROUNDING,
                    "{at} at {now}: {received} of {fair}, guarantee {guarantee}, but for {short}"
                );
            }
        }
    }

    /// With a tree of several levels the floor is what everybody can count on; it may be noticed a request of each later.
    #[test]
    fn with_users_above_jobs_everybody_keeps_the_floor(
        phases in arb_phases(), users in proptest::collection::vec(0u32..3, 8), guarantee in arb_guarantee(),
    ) {
        let mut phases = phases;
        phases.iter_mut().zip(users).for_each(|(phase, user)| phase.user = user);
        let largest = phases.iter().map(|phase| phase.cost_us as f64 * 1e3).fold(0.0, f64::max);
        let short = of_each(&phases) + phases.len() as f64 * largest;
        keeps_the_floor((Tree::UsersThenSizes, "user-then-size-fair"), &phases, guarantee, |_| short)?;
    }

    /// Theorem 3: each target has an arbiter of its own, which hears of no other, and a time of its own; so that the times are
    /// one, all come at once.
    #[test]
    fn a_phase_over_several_targets_is_not_late(
        phases in arb_phases(), guarantee in arb_guarantee(),
        parts in proptest::collection::vec(proptest::collection::vec(0u32..30, 8), 3),
    ) {
        let mut phases = phases;
        phases.iter_mut().for_each(|phase| phase.arrival_ms = 0);
        let policy = format!("fair-finish{{guarantee={guarantee},tree=size-fair}}");
        let (mut ends, mut fair_ends) = (vec![0.0f64; phases.len()], vec![0.0f64; phases.len()]);
        for parts in &parts {
            let here = at_target(&phases, parts);
            let course = run(&policy, &here);
            let fair = fair(Tree::Sizes, &here, &sizes(&here), &course.came, &[]);
            ends.iter_mut().zip(course.ends).for_each(|(last, end)| *last = last.max(end));
            fair_ends.iter_mut().zip(fair.ends).for_each(|(last, end)| *last = last.max(end));
        }
        for (at, (end, fair)) in ends.into_iter().zip(fair_ends).enumerate() {
            prop_assert!(end <= fair + late_at_most(&phases, at, guarantee) + ROUNDING, "{at}: {end}, fair {fair}");
        }
    }

    /// Theorem 3 where a target hears when another's fair sharing ends the phases: nobody is later than the later of the two ends, and who is
    /// heard nothing of is not either.
    #[test]
    fn who_is_put_off_to_an_end_elsewhere_is_not_later_than_that(
        phases in arb_phases(), guarantee in arb_guarantee(), elsewhere in proptest::collection::vec(0u32..400, 8),
    ) {
        let mut phases = phases;
        phases.iter_mut().for_each(|phase| phase.arrival_ms = 0);
        let elsewhere: Vec<f64> = elsewhere[..phases.len()].iter().map(|end_ms| f64::from(*end_ms) * 1e6).collect();
        let policy = format!("fair-finish{{guarantee={guarantee},tree=size-fair}}");
        let course = run_beside(&policy, &phases, &elsewhere);
        let fair = fair(Tree::Sizes, &phases, &sizes(&phases), &course.came, &[]);
        for (at, (end, fair)) in course.ends.iter().zip(&fair.ends).enumerate() {
            let foretold = course.foretold[at].unwrap_or_default();
            prop_assert!((foretold - fair).abs() <= ROUNDING, "{at}: {foretold} is foretold, and fair is {fair}");
            let due = fair.max(elsewhere[at]);
            prop_assert!(*end <= due + late_at_most(&phases, at, guarantee) + ROUNDING, "{at}: {end}, due {due}");
        }
    }
}

/// A job of one node has next to nothing beside one of a thousand of its user's, and half of the target when that is gone.
#[test]
fn a_job_that_its_user_leaves_alone_keeps_the_floor() {
    let phases = [phase(0, 0, 1, 20_000), phase(0, 0, 1_000, 20), phase(0, 1, 1, 1_500)];
    let short = 7.0 * 100_000.0;
    keeps_the_floor((Tree::UsersThenSizes, "user-then-size-fair"), &phases, 0.05, |_| short).unwrap();
}

/// Why there is no theorem 1 with users above jobs. A's long phase is served instead of B's, being the shorter one. Then A
/// begins ten short ones, which fair sharing ends before B's: they are paid from A's half, and the fair end of A's long phase moves behind B's,
/// when it has been served already.
#[test]
fn with_users_above_jobs_somebody_may_be_late() {
    let mut phases = vec![phase(0, 0, 1, 900), phase(0, 1, 1, 1_000)];
    phases.extend((0..10).map(|_| phase(80, 0, 1, 50)));
    let late_ms = |tree, word: &str| late_ms((tree, word), &phases, 0.2, 1);
    let (of_users, of_jobs) = (late_ms(Tree::UsersThenSizes, "user-then-job-fair"), late_ms(Tree::Sizes, "job-fair"));
    let each_ms = of_each(&phases) / 1e6;
    assert!(of_users > 10.0 * each_ms, "{of_users} ms late, and a request of each is {each_ms} ms");
    assert!(of_jobs <= each_ms, "{of_jobs} ms late where jobs are shared among at once");
}

/// Why theorem 1 divides by what the guarantee leaves. Five light jobs with long requests have one each by the floor, and the
/// first phase waits for them. When the clock is done with that, a heavy one comes, whose floor leaves it one part in twenty.
#[test]
fn beside_a_large_floor_a_phase_may_be_late_by_many_requests_of_each() {
    let mut phases = vec![phase(0, 0, 1_000, 4_000), phase(402, 1, 1_000_000, 20_000)];
    phases.extend((2..7).map(|user| Phase { cost_us: 3_000, ..phase(0, user, 1, 100) }));
    let others_ms = of_others(&phases, 0) / 1e6;
    for guarantee in [0.000_001, 0.2, 0.5, 0.8, 0.95, 1.0] {
        let late_ms = late_ms((Tree::Sizes, "size-fair"), &phases, guarantee, 0);
        let at_most_ms = late_at_most(&phases, 0, guarantee) / 1e6;
        assert!(late_ms <= at_most_ms, "{late_ms} ms late with guarantee {guarantee}, at most {at_most_ms}");
        let least_ms = if guarantee == 1.0 { 0.8 * others_ms } else { 0.8 * at_most_ms };
        assert!(late_ms >= least_ms, "{late_ms} ms late with guarantee {guarantee}, at most {at_most_ms}");
    }
}
