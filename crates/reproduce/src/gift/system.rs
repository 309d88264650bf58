//! The simulated system: which applications, which schemes, and what one gains over another.

use crate::interval::Interval;
use crate::run::{Context, Stopped};
use isonomia_allocation::{AdapTbfConfig, Coupons, GiftConfig, Order, Progress, Strategy};
use isonomia_sim::fluid::population::{INTERVAL, Population};
use isonomia_sim::fluid::{Application, ApplicationOutcome, Decisions, Outcome, Parameters, Scenario, SchemeSpec, run};
use isonomia_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;

/// I/O phases below which an application is not compared: what it took tells whom it met.
pub const PHASES_MIN: u64 = 10;

/// A scheme under a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named {
    /// In data and plots.
    pub name: &'static str,
    /// What it is.
    pub scheme: SchemeSpec,
    /// When it decides.
    pub decisions: Decisions,
    /// How wrong it is told volumes.
    pub misprediction: f64,
    /// Submissions come later by up to this, each by a time of its own.
    pub late_max: Nanos,
    /// Draws these times.
    pub replica: u64,
}

/// How late submissions are in runs that show how much chance does: one interval between decisions.
const LATE_MAX: Nanos = INTERVAL;

/// Parameters as in the paper.
pub fn parameters() -> Parameters {
    Parameters {
        progress: Progress::MinRate,
        gift: GiftConfig { interval: INTERVAL, ..GiftConfig::default() },
        guarantee: 0.8,
        adaptbf: AdapTbfConfig::default(),
        strategy: Strategy::default(),
        order: Order::Attained,
        seed: 1,
    }
}

/// The scheme called `word` with these parameters.
///
/// # Panics
/// There is none of that name: the words are constants.
pub fn scheme(name: &'static str, word: &str, parameters: &Parameters) -> Named {
    let scheme = SchemeSpec::named(word, parameters).and_then(Result::ok).expect("a scheme with good parameters");
    Named { name, scheme, decisions: Decisions::Interval, misprediction: 1.0, late_max: Nanos::ZERO, replica: 0 }
}

/// The baseline of every gain.
pub fn pofs() -> Named {
    scheme("pofs", "pofs", &parameters())
}

/// The baseline again, with submissions up to one decision later. What differs is chance: a schedule that differs once
/// differs for ever after.
pub fn pofs_again() -> Named {
    Named { name: "pofs-again", late_max: LATE_MAX, ..pofs() }
}

/// A scheme in one of several replicas of the same submissions: the first as they are, the others each later by up to one
/// decision.
pub fn late_by_replica(named: Named, replica: usize) -> Named {
    Named { late_max: if replica == 0 { Nanos::ZERO } else { LATE_MAX }, replica: replica as u64, ..named }
}

/// POFS whose targets may run ahead.
pub fn pofs_banked() -> Named {
    scheme("pofs-banked", "pofs", &Parameters { progress: Progress::Banked, ..parameters() })
}

/// The same scheme, deciding at each change.
pub fn by_event(named: Named) -> Named {
    Named { decisions: Decisions::Event, ..named }
}

/// GIFT with other parameters.
pub fn gift(name: &'static str, redemption_rate_min: f64, b_thres: f64, window: u64) -> Named {
    let window = Coupons(window);
    let gift = GiftConfig { redemption_rate_min, b_thres, window, system_window: window, ..parameters().gift };
    scheme(name, "gift", &Parameters { gift, ..parameters() })
}

/// Coflow scheduling.
pub fn coflow(name: &'static str, guarantee: f64, order: Order) -> Named {
    scheme(name, "coflow", &Parameters { guarantee, order, ..parameters() })
}

/// Runs every scheme on the population of every seed, on all cores: outcomes by seed and scheme, in order.
pub fn run_all(
    population: &Population,
    seeds: &[u64],
    schemes: &[Named],
    context: &Context,
    what: &str,
) -> Result<Vec<Vec<Outcome>>, Stopped> {
    let drawn: Vec<Arc<[Application]>> = seeds.par_iter().map(|seed| population.draw(*seed).into()).collect();
    // Schemes that differ in their names only are run once.
    let alike = |a: &Named, b: &Named| Named { name: "", ..*a } == Named { name: "", ..*b };
    let first: Vec<usize> =
        schemes.iter().map(|scheme| schemes.iter().position(|other| alike(scheme, other)).unwrap_or(0)).collect();
    let unique = || (0..schemes.len()).filter(|at| first[*at] == *at);
    let cells: Vec<(usize, usize)> = (0..seeds.len()).flat_map(|seed| unique().map(move |at| (seed, at))).collect();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let outcomes: Vec<Outcome> = cells
        .par_iter()
        .with_max_len(1)
        .map(|(seed, scheme)| {
            let named = Named { name: "", ..schemes[*scheme] };
            let key = format!("{population:?} {} {named:?}", seeds[*seed]);
            let outcome = context.fluid(key, || {
                let applications = late(&drawn[*seed], named.late_max, seeds[*seed] + (named.replica << 32));
                run_one(population, &applications, &named, context)
            })?;
            let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            context.tell(what, done, cells.len());
            Ok(Outcome::clone(&outcome))
        })
        .collect::<Result<_, Stopped>>()?;
    let firsts: Vec<usize> = unique().collect();
    let of_seed = |outcomes: &[Outcome]| {
        let at = |first: &usize| firsts.iter().position(|other| other == first).unwrap_or(0);
        first.iter().map(|first| outcomes[at(first)].clone()).collect()
    };
    Ok(outcomes.chunks(firsts.len()).map(of_seed).collect())
}

/// The applications with submissions that are late by up to `late_max`.
pub fn late(applications: &Arc<[Application]>, late_max: Nanos, seed: u64) -> Arc<[Application]> {
    if late_max == Nanos::ZERO {
        return applications.clone();
    }
    let mut random = Pcg64::seed_from_u64(seed);
    let mut later = |application: &Application| {
        let mut application = application.clone();
        for run in &mut application.runs {
            run.submit += Nanos(random.random_range(0..late_max.0));
        }
        application.runs.sort_by_key(|run| run.submit);
        application
    };
    applications.iter().map(&mut later).collect()
}

fn run_one(
    population: &Population,
    applications: &Arc<[Application]>,
    named: &Named,
    context: &Context,
) -> Result<Outcome, Stopped> {
    let scenario = Scenario {
        misprediction: named.misprediction,
        ..population.scenario(applications.clone(), named.scheme, named.decisions)
    };
    let mut observe = |_| match context.go_on() {
        Ok(()) => ControlFlow::Continue(()),
        Err(Stopped) => ControlFlow::Break(()),
    };
    // A program that is always feasible, and volumes that are always known: a scheme that cannot decide is a defect.
    let outcome = run(&scenario, &mut observe).expect("a scheme that decides");
    if outcome.interrupted { Err(Stopped) } else { Ok(outcome) }
}

/// What a scheme gains over POFS for one population, in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Reduction of the time in I/O, mean over applications.
    pub io: f64,
    /// Reduction of the run time, mean over applications.
    pub run: f64,
    /// Increase of the effective bandwidth.
    pub bandwidth: f64,
    /// Increase of the jobs done.
    pub throughput: f64,
    /// Applications that spend more time in I/O.
    pub worse: f64,
    /// The same of all that did any I/O under both, however rarely.
    pub worse_of_all: f64,
    /// By how much, on average over these.
    pub worse_by: f64,
    /// Applications that spend at least a fifth less time in I/O.
    pub much_better: f64,
    /// Applications that lose more than nineteen of twenty do by chance; see [`loss_by_chance`].
    pub worse_beyond: f64,
}

/// Part of the applications that lose less by chance than what counts as a loss beyond chance.
const BY_CHANCE: f64 = 0.95;

impl Gain {
    /// Of `other` over `base`; applications with few phases under one of them are left out.
    pub fn over(base: &Outcome, other: &Outcome) -> Self {
        let both = base.applications.iter().zip(&other.applications).filter(|(a, b)| is_comparable(a, b));
        let (io, run): (Vec<f64>, Vec<f64>) =
            both.map(|(a, b)| (100.0 * (1.0 - b.io_s / a.io_s), 100.0 * (1.0 - b.run_s / a.run_s))).unzip();
        let worse: Vec<f64> = io.iter().copied().filter(|gain| *gain < 0.0).map(f64::abs).collect();
        let more = |a: f64, b: f64| if a > 0.0 { 100.0 * (b / a - 1.0) } else { 0.0 };
        Self {
            io: mean(&io),
            run: mean(&run),
            bandwidth: more(base.effective_bandwidth, other.effective_bandwidth),
            throughput: more(base.jobs_done as f64, other.jobs_done as f64),
            worse: part(&io, |gain| gain < 0.0),
            worse_of_all: part(&io_gains_where(base, other, does_io), |gain| gain < 0.0),
            worse_by: mean(&worse),
            much_better: part(&io, |gain| gain >= 20.0),
            worse_beyond: 0.0,
        }
    }

    /// The same, with what is beyond chance: more than `loss`, which is what [`loss_by_chance`] gives.
    pub fn beyond(base: &Outcome, other: &Outcome, loss: f64) -> Self {
        Self { worse_beyond: part(&io_gains(base, other), |gain| gain < -loss), ..Self::over(base, other) }
    }
}

/// How many per cent of its I/O time an application must lose so that chance alone does that to one of twenty at most:
/// `again` is the base with other chances.
pub fn loss_by_chance(base: &Outcome, again: &Outcome) -> f64 {
    let mut chance = io_gains(base, again);
    chance.sort_by(f64::total_cmp);
    let least = chance.get(((1.0 - BY_CHANCE) * chance.len() as f64) as usize);
    -least.copied().unwrap_or(0.0).min(0.0)
}

/// The gain in I/O time of each application that can be compared, in per cent.
fn io_gains(base: &Outcome, other: &Outcome) -> Vec<f64> {
    io_gains_where(base, other, is_comparable)
}

fn io_gains_where(
    base: &Outcome,
    other: &Outcome,
    is_counted: fn(&ApplicationOutcome, &ApplicationOutcome) -> bool,
) -> Vec<f64> {
    let both = base.applications.iter().zip(&other.applications).filter(|(a, b)| is_counted(a, b));
    both.map(|(a, b)| 100.0 * (1.0 - b.io_s / a.io_s)).collect()
}

fn does_io(a: &ApplicationOutcome, b: &ApplicationOutcome) -> bool {
    a.io_s > 0.0 && b.io_s > 0.0
}

fn part(values: &[f64], is_counted: impl Fn(f64) -> bool) -> f64 {
    100.0 * values.iter().filter(|value| is_counted(**value)).count() as f64 / values.len().max(1) as f64
}

/// Whether an application did I/O often enough under both that its means tell of the schemes, and not of whom it
/// happened to meet: a schedule that differs once differs for ever after.
pub fn is_comparable(a: &ApplicationOutcome, b: &ApplicationOutcome) -> bool {
    a.runs > 0 && b.runs > 0 && a.phases.min(b.phases) >= PHASES_MIN
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The interval of one measure over seeds.
pub fn interval(gains: &[Gain], of: fn(&Gain) -> f64) -> Interval {
    Interval::of(&gains.iter().map(of).collect::<Vec<f64>>())
}

/// The gains of scheme `at` over the first one, seed by seed.
pub fn gains(outcomes: &[Vec<Outcome>], at: usize) -> Vec<Gain> {
    outcomes.iter().map(|schemes| Gain::over(&schemes[0], &schemes[at])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_means_over_applications_that_ran_often_under_both() {
        let outcome = |io: [f64; 3], jobs_done, effective_bandwidth| Outcome {
            jobs_done,
            effective_bandwidth,
            applications: io
                .into_iter()
                .map(|io_s| ApplicationOutcome {
                    runs: 3,
                    phases: if io_s > 0.0 { PHASES_MIN } else { 0 },
                    io_s,
                    run_s: io_s + 100.0,
                    ..ApplicationOutcome::default()
                })
                .collect(),
            ..Outcome::default()
        };
        let gain = Gain::over(&outcome([100.0, 100.0, 100.0], 10, 0.5), &outcome([50.0, 110.0, 0.0], 12, 0.6));
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{gain:?}");
        near(gain.io, 20.0);
        near(gain.run, 10.0);
        near(gain.bandwidth, 20.0);
        near(gain.throughput, 20.0);
        assert_eq!((gain.worse, gain.worse_of_all, gain.much_better), (50.0, 50.0, 50.0));
        // Who does I/O rarely counts among all only.
        let [mut before, mut after] = [100.0, 130.0].map(|io| outcome([100.0, 100.0, io], 10, 0.5));
        (before.applications[2].phases, after.applications[2].phases) = (1, 1);
        let rare = Gain::over(&before, &after);
        assert_eq!((rare.io, rare.worse), (0.0, 0.0));
        near(rare.worse_of_all, 100.0 / 3.0);
        near(gain.worse_by, 10.0);
        // By chance the worst loses 10 %; so only who loses more loses beyond chance.
        let [base, again] = [[100.0; 3], [100.0, 110.0, 90.0]].map(|io| outcome(io, 10, 0.5));
        let loss = loss_by_chance(&base, &again);
        let beyond = Gain::beyond(&base, &outcome([105.0, 109.0, 120.0], 10, 0.5), loss);
        near(loss, 10.0);
        near(beyond.worse, 100.0);
        near(beyond.worse_beyond, 100.0 / 3.0);
    }
}
