//! Beyond the paper: fair finish with the clock of the closed system, where half of all time is I/O and nobody waits for nodes.
//!
//! The theorem compares an application's k-th I/O phase with its k-th under processor sharing of the same closed system, in which sizes and
//! the times between phases are the same. With fewer nodes than all need at once they are not: who ends sooner has
//! others' jobs begin sooner. So here the machine has nodes for everybody; what becomes of it with GIFT's nodes is in
//! [`saturation`](super::fair_finish::saturation).
//!
//! Processor sharing of a closed system is chaotic: what differs by a nanosecond, as by rounding, differs by a second after two
//! days. So every run is compared with another run, phase by phase, for half a day only, and to its end with its own clock, which is
//! processor sharing of the same closed system as well. A clock that replays the other run is compared with it to the end: what is given
//! when it comes is not chaotic.

use super::fair_finish::{SATURATED, finish, mean_gain, means_of, saturated, worse_by_chance};
use super::system::{Gain, Named, by_event, is_comparable, late, late_by_replica, pofs, pofs_banked};
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::table::Table;
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{Application, Clock, ClosedOutcome, Outcome, PhaseTimes, Scenario, Sizes, run_with_times};
use isonomia_units::Nanos;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Phases are compared with those of another run that end there by this time.
const COMPARED: Nanos = Nanos::from_secs(43_200);
/// By no more than this a phase of another run is later by rounding, in that time.
const ROUNDING: Nanos = Nanos::from_millis(1);
/// The scheme whose clock replays the run that it is compared with.
const REPLAYED: &str = "replayed-0.2";
const SHARING: usize = 1;
const AGAIN: usize = 2;

/// POFS first, then processor sharing, and that again with other chances.
fn schemes() -> Vec<(Named, &'static str)> {
    let closed = |name, guarantee, sizes| finish(name, guarantee, sizes, Clock::Closed);
    vec![
        (pofs(), "POFS"),
        (by_event(Named { name: "processor-sharing", ..pofs_banked() }), "processor sharing at each target"),
        (late_by_replica(by_event(Named { name: "processor-sharing-again", ..pofs_banked() }), 1), "the same again"),
        (
            finish("fair-finish-0.2", 0.2, Sizes::Declared, Clock::Open),
            "fair finish, declared, 0.2: clock of what comes",
        ),
        (finish("accounts-0.2", 0.2, Sizes::Declared, Clock::Accounts), "… with accounts"),
        (closed("closed-0", 0.0, Sizes::Declared), "… of the closed system, guarantee 0"),
        (closed("closed-0.2", 0.2, Sizes::Declared), "… 0.2"),
        (closed("closed-0.5", 0.5, Sizes::Declared), "… 0.5"),
        (closed("history-closed-0.2", 0.2, Sizes::History), "… 0.2, sizes by history"),
        (finish(REPLAYED, 0.2, Sizes::Declared, Clock::Replayed), "… 0.2, declared, the other run replayed"),
    ]
}

/// A run of the engine, with the times of each application's phases.
type Run = (Outcome, Vec<PhaseTimes>);

/// What a scheme did to one population.
#[derive(Serialize, Deserialize)]
struct Seen {
    gain: Gain,
    beside_sharing: Gain,
    /// Of 100 applications, how many would be worse off if everybody gained what this gains on average, and the rest were chance.
    by_chance: f64,
    /// Of 100 applications, how many spent more time in the phases that ended here and under processor sharing.
    worse_in_the_same: f64,
    /// Phases that are compared with processor sharing, and those of them that ended later.
    phases: u64,
    later: u64,
    closed: Option<ClosedOutcome>,
    io_part: f64,
}

impl Seen {
    /// Phases that ended later than in the clock of the closed system.
    fn late(&self) -> u64 {
        self.closed.map_or(0, |closed| closed.late_phases)
    }
}

/// How many phases are compared, those that ended there `until` then, and how many of them ended later.
fn later(sharing: &[PhaseTimes], other: &[PhaseTimes], until: Nanos) -> (u64, u64) {
    let both = || sharing.iter().zip(other);
    let in_both = || both().flat_map(|(sharing, other)| sharing.ended.iter().zip(&other.ended));
    let pairs = || in_both().filter(|(sharing, _)| **sharing <= until);
    let is_later = |(sharing, other): &(&Nanos, &Nanos)| **other > **sharing + ROUNDING;
    (pairs().count() as u64, pairs().filter(is_later).count() as u64)
}

/// Of 100 applications that can be compared, how many spent more time in those I/O phases that ended in both runs.
fn worse_in_the_same((sharing, sharing_times): &Run, (other, other_times): &Run) -> f64 {
    let applications = sharing.applications.iter().zip(&other.applications);
    let times = sharing_times.iter().zip(other_times);
    let counted = applications.zip(times).filter(|((sharing, other), _)| is_comparable(sharing, other));
    let is_worse = |(_, (sharing, other)): ((_, _), (&PhaseTimes, &PhaseTimes))| {
        let phases = sharing.ended.len().min(other.ended.len());
        let sum = |times: &[Nanos]| times[..phases].iter().map(|at| u128::from(at.0)).sum::<u128>();
        let io = |times: &PhaseTimes| sum(&times.ended) - sum(&times.began);
        io(other) > io(sharing) + u128::from(ROUNDING.0)
    };
    let worse: Vec<bool> = counted.map(is_worse).collect();
    100.0 * worse.iter().filter(|worse| **worse).count() as f64 / worse.len().max(1) as f64
}

fn run_one(
    population: &Population,
    applications: &Arc<[Application]>,
    seed: u64,
    named: &Named,
    context: &Context,
) -> Result<Run, Stopped> {
    let applications = late(applications, named.late_max, seed + (named.replica << 32));
    let nodes = applications.iter().map(|application| application.nodes).sum();
    let scenario = Scenario { nodes, ..population.scenario(applications, named.scheme, named.decisions) };
    let mut observe = |_| match context.go_on() {
        Ok(()) => ControlFlow::Continue(()),
        Err(Stopped) => ControlFlow::Break(()),
    };
    // Volumes are known and the guarantees are parts: a scheme that cannot decide is a defect.
    let (outcome, times) = run_with_times(&scenario, &mut observe).expect("a scheme that decides");
    if outcome.interrupted { Err(Stopped) } else { Ok((outcome, times)) }
}

/// The item.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seeds) = if context.quick { (4, 3) } else { (25, 10) };
    let population = saturated(days);
    let seeds: Vec<u64> = (1..=seeds).collect();
    let schemes = schemes();
    let (done, all) = (AtomicUsize::new(0), seeds.len() * schemes.len());
    let run_seed = |seed: &u64| -> Result<Vec<Seen>, Stopped> {
        let applications: Arc<[Application]> = population.draw(*seed).into();
        let of_scheme = |(named, _): &(Named, &str)| {
            let run = run_one(&population, &applications, *seed, named, context);
            context.tell("closed system", done.fetch_add(1, Ordering::Relaxed) + 1, all);
            run
        };
        let runs: Vec<Run> = schemes.iter().map(of_scheme).collect::<Result<_, Stopped>>()?;
        let sharing = [&runs[SHARING].0, &runs[AGAIN].0];
        let seen = |(run, (named, _)): (&Run, &(Named, &str))| {
            let (outcome, times) = run;
            let until = if named.name == REPLAYED { Nanos::MAX } else { COMPARED };
            let (phases, later) = later(&runs[SHARING].1, times, until);
            Seen {
                worse_in_the_same: worse_in_the_same(&runs[SHARING], run),
                gain: Gain::over(&runs[0].0, outcome),
                beside_sharing: Gain::over(&runs[SHARING].0, outcome),
                phases,
                later,
                by_chance: worse_by_chance(&sharing, mean_gain(&means_of(&sharing[..1], &[outcome]))),
                closed: outcome.closed,
                io_part: 100.0 * outcome.io_s() / outcome.run_s(),
            }
        };
        Ok(runs.iter().zip(&schemes).map(seen).collect())
    };
    // What is kept of a seed is what is seen of its runs: the times of all phases would be too much.
    let of_seed = |seed: &u64| {
        let mut is_run = false;
        let seen = context.once(&format!("closed {population:?} {seed} {schemes:?}"), || {
            is_run = true;
            run_seed(seed)
        });
        if !is_run {
            context.tell("closed system", done.fetch_add(schemes.len(), Ordering::Relaxed) + schemes.len(), all);
        }
        seen
    };
    let seen: Vec<Vec<Seen>> = seeds.par_iter().with_max_len(1).map(of_seed).collect::<Result<_, Stopped>>()?;
    Ok(vec![finding(days, &seeds, &schemes, &seen)])
}

fn finding(days: u64, seeds: &[u64], schemes: &[(Named, &'static str)], seen: &[Vec<Seen>]) -> Finding {
    let mut data = Data::new(&[
        "scheme",
        "seed",
        "io_time_gain_percent",
        "io_time_gain_over_processor_sharing_percent",
        "worse_percent",
        "worse_than_processor_sharing_percent",
        "worse_than_processor_sharing_by_chance_percent",
        "worse_than_processor_sharing_in_the_same_phases_percent",
        "phases",
        "phases_later_than_under_processor_sharing",
        "phases_late_in_the_closed_clock",
        "io_part_of_time_percent",
    ]);
    let mut table = Table::new(&[
        "scheme",
        "I/O time",
        "than under processor sharing",
        "worse than POFS",
        "than processor sharing, in one run",
        "by chance alone",
        "over the phases that ended in both",
        "k-th phase later than under it, in 12 h",
        "than in its closed clock",
        "time in I/O",
    ]);
    for (at, (named, words)) in schemes.iter().enumerate() {
        for (seed, seen) in seeds.iter().zip(seen) {
            let seen = &seen[at];
            data.push([
                named.name.into(),
                (*seed).into(),
                seen.gain.io.into(),
                seen.beside_sharing.io.into(),
                seen.gain.worse.into(),
                seen.beside_sharing.worse.into(),
                seen.by_chance.into(),
                seen.worse_in_the_same.into(),
                seen.phases.into(),
                seen.later.into(),
                seen.closed.map_or(serde_json::Value::Null, |closed| closed.late_phases.into()),
                seen.io_part.into(),
            ]);
        }
        if at == 0 || at == AGAIN {
            continue;
        }
        let of = |value: fn(&Seen) -> f64| Interval::by(seen, |seen| value(&seen[at]));
        let sum = |value: fn(&Seen) -> u64| seen.iter().map(|seen| value(&seen[at])).sum::<u64>();
        let (phases, later) = (sum(|seen| seen.phases), sum(|seen| seen.later));
        // Nothing is compared with itself.
        let beside = |text: String| if at == SHARING { "—".to_owned() } else { text };
        table.push([
            (*words).to_owned(),
            format!("{:.1} %", of(|seen| -seen.gain.io)),
            beside(format!("{:.1} %", of(|seen| -seen.beside_sharing.io))),
            format!("{:.2} %", of(|seen| seen.gain.worse)),
            beside(format!("{:.2} %", of(|seen| seen.beside_sharing.worse))),
            beside(format!("{:.2} %", of(|seen| seen.by_chance))),
            beside(format!("{:.2} %", of(|seen| seen.worse_in_the_same))),
            beside(part(later, phases) + if named.name == REPLAYED { ", to the end" } else { "" }),
            seen[0][at].closed.map_or("—".to_owned(), |_| {
                part(sum(Seen::late), sum(|seen| seen.closed.map_or(0, |closed| closed.phases)))
            }),
            format!("{:.0} %", of(|seen| seen.io_part).mean),
        ]);
    }
    Finding {
        item: "closed",
        title: "fair finish with the clock of the closed system".to_owned(),
        configuration: json!({
            "applications": 500, "days": days, "seeds": seeds, "io_scale": SATURATED, "targets": 64, "nodes": "for all",
        }),
        data,
        table: Some(table),
        charts: vec![
            Chart::bars(
                "Reduction of I/O time against POFS, half of all time in I/O, nodes for all",
                ("scheme", ""),
                ("io_time_gain_percent", "%"),
            ),
            Chart::bars(
                "Applications worse off than under processor sharing",
                ("scheme", ""),
                ("worse_than_processor_sharing_percent", "%"),
            )
            .only("scheme", schemes[AGAIN + 1..].iter().map(|(named, _)| named.name))
            .named("worse"),
        ],
        claims: claims(schemes, seen),
    }
}

fn part(counted: u64, all: u64) -> String {
    if counted == 0 { format!("0 of {all}") } else { format!("{:.2} %", 100.0 * counted as f64 / all as f64) }
}

fn claims(schemes: &[(Named, &'static str)], seen: &[Vec<Seen>]) -> Vec<Claim> {
    let of = |name: &str, value: fn(&Seen) -> f64| {
        let at = schemes.iter().position(|(named, _)| named.name == name).expect("a scheme of this study");
        Interval::by(seen, |seen| value(&seen[at]))
    };
    let claim = |name: &str| {
        Claim::ours(
            format!(
                "nodes for all, {name}: at least 40 % less I/O time than POFS, at most 1 % worse off than under processor sharing"
            ),
            vec![
                Test::above("I/O time", of(name, |seen| seen.gain.io), 40.0).unit(" %"),
                Test::below("worse", of(name, |seen| seen.beside_sharing.worse), 1.0).unit(" %"),
                Test::above("time in I/O", of("processor-sharing", |seen| seen.io_part), 50.0).unit(" %"),
            ],
        )
        .beside(format!(
            "{} % by chance alone; with accounts {} % worse",
            of(name, |seen| seen.by_chance),
            of("accounts-0.2", |seen| seen.beside_sharing.worse)
        ))
    };
    let claim_of_the_same = |name: &str| {
        Claim::ours(
            format!(
                "nodes for all, {name}: at least 40 % less I/O time than POFS, at most 1 % spend more time than under processor \
                 sharing in the phases that ended in both"
            ),
            vec![
                Test::above("I/O time", of(name, |seen| seen.gain.io), 40.0).unit(" %"),
                Test::below("worse", of(name, |seen| seen.worse_in_the_same), 1.0).unit(" %"),
                Test::above("time in I/O", of("processor-sharing", |seen| seen.io_part), 50.0).unit(" %"),
            ],
        )
    };
    let never = |name: &str| {
        [
            Test::between(format!("than in another run, {name}"), of(name, |seen| seen.later as f64), 0.0, 0.0),
            Test::between(format!("than in its clock, {name}"), of(name, |seen| seen.late() as f64), 0.0, 0.0),
        ]
    };
    vec![
        claim("closed-0.2"),
        claim("history-closed-0.2"),
        claim_of_the_same("closed-0.2"),
        claim_of_the_same(REPLAYED),
        Claim::ours(
            "nodes for all, sizes declared: no k-th phase of an application ends later than its k-th under processor sharing",
            ["closed-0", "closed-0.2", "closed-0.5", REPLAYED].into_iter().flat_map(never).collect(),
        ),
    ]
}
