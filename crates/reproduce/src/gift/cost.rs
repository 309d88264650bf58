//! What GIFT itself costs (§4, the last paragraph of the evaluation; §3.5): processor time of a decision, messages between its metadata
//! server and the storage servers, and decisions of which not all servers hear.

use super::system::{pofs, run_all};
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_allocation::{App, Gift, GiftConfig, Problem, TargetIndex, Targets, bsip};
use isonomia_sim::fluid::population::{INTERVAL, Population};
use isonomia_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::Arc;

const TARGETS: [u32; 4] = [32, 64, 128, 200];
/// Applications that do I/O at once: all of the paper's set, which is the most that can be.
const APPLICATIONS: usize = 1_000;
const STRIPES_MAX: usize = 8;
/// The paper's milliseconds with the fewest and the most targets.
const PAPER_MS: [f64; 2] = [1.0, 5.0];
/// Bytes of a name and a number: the least that tells an application's requests or its bandwidth.
const TUPLE_BYTES: f64 = 16.0;
/// Servers that do not answer a decision in time, in per cent; the paper decides if more than 80 % of them do.
const SILENT_PERCENT: [u32; 5] = [0, 5, 10, 20, 30];
const ANSWERS_MIN: f64 = 0.8;

fn processor_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn targets(count: u32) -> Arc<Targets> {
    Arc::new(Targets::new((0..count).map(|at| (format!("ost{at:03}"), 1.0))).expect("names differ"))
}

/// `applications` with files on one to eight targets each.
fn draw(applications: usize, targets: &Arc<Targets>, random: &mut Pcg64) -> Vec<App> {
    let all: Vec<_> = targets.iter().collect();
    let mut app = |at: usize| {
        let mut free = all.clone();
        let stripes = random.random_range(1..=STRIPES_MAX);
        let at_targets: Vec<_> = (0..stripes).map(|_| free.swap_remove(random.random_range(0..free.len()))).collect();
        App::new(format!("app{at:04}"), at_targets)
    };
    (0..applications).map(&mut app).collect()
}

/// All items.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    Ok(vec![overhead(context)?, messages(context)?, silence(context)?])
}

fn overhead(context: &Context) -> Result<Finding, Stopped> {
    let decisions = if context.quick { 5 } else { 20 };
    let mut data = Data::new(&["targets", "seed", "processor_ms"]);
    let mut by_targets = Vec::new();
    for count in TARGETS {
        let known = targets(count);
        let mut gift = Gift::new(GiftConfig { interval: INTERVAL, ..GiftConfig::default() }).expect("good parameters");
        let mut times = Vec::new();
        for decision in 0..decisions {
            context.go_on()?;
            let apps = draw(APPLICATIONS, &known, &mut Pcg64::seed_from_u64(decision));
            let problem = Problem::new(known.clone(), apps).expect("applications differ");
            let begin_ms = processor_ms();
            gift.decide(Nanos(decision * INTERVAL.0), &problem).expect("a feasible program");
            times.push(processor_ms() - begin_ms);
            data.push([count.into(), decision.into(), times[times.len() - 1].into()]);
        }
        by_targets.push(Interval::of(&times));
    }
    let (first, last) = (by_targets[0], by_targets[TARGETS.len() - 1]);
    let chart = Chart::lines(
        format!("One decision over {APPLICATIONS} applications"),
        ("targets", "targets"),
        ("processor_ms", "processor time [ms]"),
    );
    Ok(Finding {
        table: None,
        item: "overhead",
        title: "processor time of a decision".to_owned(),
        configuration: json!({ "applications": APPLICATIONS, "decisions": decisions, "stripes_max": STRIPES_MAX }),
        data,
        charts: vec![chart.paper(Some(TARGETS[0]), PAPER_MS[0]).paper(Some(TARGETS[TARGETS.len() - 1]), PAPER_MS[1])],
        claims: vec![
            Claim::new(
                "processor time of a decision with 1000 applications",
                "1 ms with 32 targets, 5 ms with 200",
                vec![
                    Test::below("32 targets", first, PAPER_MS[0] * 1.2).in_part(0.0, PAPER_MS[0] * 2.0).unit(" ms"),
                    Test::below("200 targets", last, PAPER_MS[1] * 1.2).in_part(0.0, PAPER_MS[1] * 2.0).unit(" ms"),
                ],
            )
            .why(
                "all 1000 applications do I/O at once, on this machine's processor, by a solver that also makes the optimum \
                 unique; the paper tells neither how many did nor how it measured",
            ),
            Claim::not_testable(
                "GIFT's implementation slows I/O down by less than 0.01 %",
                "below 0.01 %",
                "it takes the paper's FUSE file system and cgroups",
            ),
        ],
    })
}

/// Messages of two days: in each decision interval each server tells the requests of each application, and is told its
/// bandwidth.
fn messages(context: &Context) -> Result<Finding, Stopped> {
    let (days, seeds) = (2, if context.quick { 4 } else { 10 });
    let population = Population { duration: Nanos::from_secs(days * 86_400), ..Population::gift(250) };
    let seeds: Vec<u64> = (1..=seeds).collect();
    let outcomes = run_all(&population, &seeds, &[pofs()], context, "messages")?;
    let mut data = Data::new(&["seed", "kind", "mb"]);
    let (mut tuples, mut heartbeats) = (Vec::new(), Vec::new());
    for (seed, outcomes) in seeds.iter().zip(&outcomes) {
        // A run of an application has files on as many targets as every other.
        let stripes: Vec<usize> =
            population.draw(*seed).iter().map(|app| app.runs.first().map_or(0, |run| run.targets.len())).collect();
        let told = |(app, stripes): (&isonomia_sim::fluid::ApplicationOutcome, &usize)| {
            app.phases as f64 * app.io_phase_s / INTERVAL.as_secs_f64() * *stripes as f64
        };
        let pairs: f64 = outcomes[0].applications.iter().zip(&stripes).map(told).sum();
        tuples.push(2.0 * TUPLE_BYTES * pairs / 1e6);
        // One byte to each server and back, in each interval.
        let intervals = population.duration.0 as f64 / INTERVAL.0 as f64;
        heartbeats.push(2.0 * f64::from(population.targets) * intervals / 1e6);
        for (kind, mb) in
            [("tuples", tuples[tuples.len() - 1]), ("heartbeats of one byte", heartbeats[heartbeats.len() - 1])]
        {
            data.push([(*seed).into(), kind.into(), mb.into()]);
        }
    }
    let total = Interval::by(tuples.iter().zip(&heartbeats), |(a, b)| a + b);
    Ok(Finding {
        table: None,
        item: "messages",
        title: "messages of two days".to_owned(),
        configuration: json!({ "days": days, "seeds": seeds, "tuple_bytes": TUPLE_BYTES, "applications": 250 }),
        data,
        charts: vec![Chart::bars("Messages of two days", ("kind", ""), ("mb", "MB")).paper(None::<f64>, 4.0)],
        claims: vec![
            Claim::new(
                "messages between metadata server and storage servers in two days",
                "below 4 MB",
                vec![Test::below("", total, 4.0).in_part(0.0, 8.0).unit(" MB")],
            )
            .beside(format!("tuples of {TUPLE_BYTES} bytes alone {} MB, heartbeats of one byte alone {} MB", Interval::of(&tuples), Interval::of(&heartbeats)))
            .why(
                "64 servers hear and answer 17,280 heartbeats in two days; with the applications that each has to name, 4 MB \
                 allow less than two bytes for a message",
            ),
        ],
    })
}

/// What is left of the effective bandwidth if servers do not answer in time: the decision knows nothing of what they serve,
/// and they go on as they were, with fair shares.
fn silence(context: &Context) -> Result<Finding, Stopped> {
    let seeds: u64 = if context.quick { 4 } else { 30 };
    let known = targets(64);
    let mut data = Data::new(&["silent_percent", "seed", "effective_bandwidth_percent", "decided_percent"]);
    let mut by_silence = Vec::new();
    for silent_percent in SILENT_PERCENT {
        let mut kept = Vec::new();
        let mut decided = Vec::new();
        for seed in 0..seeds {
            context.go_on()?;
            let mut random = Pcg64::seed_from_u64(seed);
            // As many as do I/O at once of 250.
            let apps = draw(60, &known, &mut random);
            let silent: Vec<TargetIndex> =
                known.iter().filter(|_| random.random_range(0..100) < silent_percent).collect();
            let answers = 1.0 - silent.len() as f64 / known.len() as f64;
            let full = Problem::new(known.clone(), apps.clone()).expect("applications differ");
            let with_all = decide(&full);
            let is_decided = answers > ANSWERS_MIN;
            let rate = if is_decided {
                let heard = |app: &App| -> Option<App> {
                    let demands: Vec<_> =
                        app.demands.iter().filter(|demand| !silent.contains(&demand.target)).copied().collect();
                    (!demands.is_empty()).then(|| App { demands, ..app.clone() })
                };
                let partial =
                    Problem::new(known.clone(), apps.iter().filter_map(heard).collect()).expect("applications differ");
                let fair = bsip(&full);
                let decision = decide(&partial);
                // An application advances at its slowest target: what was decided where it was heard, its fair share elsewhere.
                let share = |app: &App| {
                    let is_whole = app.demands.iter().all(|demand| !silent.contains(&demand.target));
                    let fair = fair.app(&app.name).map_or(0.0, |app| app.share);
                    let told = decision.app(&app.name).map_or(fair, |app| app.share);
                    app.demands.len() as f64 * if is_whole { told } else { told.min(fair) }
                };
                full.apps().iter().map(share).sum::<f64>()
            } else {
                bsip(&full).apps().iter().zip(full.apps()).map(|(app, of)| app.share * of.demands.len() as f64).sum()
            };
            let all: f64 =
                with_all.apps().iter().zip(full.apps()).map(|(app, of)| app.share * of.demands.len() as f64).sum();
            kept.push(100.0 * rate / all);
            decided.push(if is_decided { 100.0 } else { 0.0 });
            data.push([
                silent_percent.into(),
                seed.into(),
                kept[kept.len() - 1].into(),
                decided[decided.len() - 1].into(),
            ]);
        }
        by_silence.push((silent_percent, Interval::of(&kept), Interval::of(&decided)));
    }
    let few: Vec<_> = by_silence.iter().filter(|(percent, ..)| *percent > 0 && *percent < 20).collect();
    let tests = few.iter().flat_map(|(percent, kept, decided)| {
        [
            Test::above(format!("bandwidth with {percent} % silent"), *kept, 97.0)
                .in_part(90.0, f64::INFINITY)
                .unit(" %"),
            Test::above(format!("decisions with {percent} % silent"), *decided, 95.0)
                .in_part(50.0, f64::INFINITY)
                .unit(" %"),
        ]
    });
    let text: Vec<String> =
        by_silence.iter().map(|(percent, kept, decided)| format!("{percent} %: {kept} % ({decided} %)")).collect();
    Ok(Finding {
        table: None,
        item: "silence",
        title: "decisions of which some servers do not hear".to_owned(),
        configuration: json!({ "seeds": seeds, "applications": 60, "targets": 64, "answers_min": ANSWERS_MIN }),
        data,
        charts: vec![Chart::lines(
            "Effective bandwidth of one decision",
            ("silent_percent", "servers that do not answer in time [%]"),
            ("effective_bandwidth_percent", "of that with all answers [%]"),
        )],
        claims: vec![
            Claim::new(
                "a decision that waits for more than 80 % of the servers does as well",
                "new decision if more than 80 % respond; servers that fail are synchronised at the next",
                tests.collect(),
            )
            .beside(format!("by silent servers, bandwidth (decisions made): {}", text.join(", ")))
            .why("an application with files on a silent server advances by its fair share at most"),
        ],
    })
}

fn decide(problem: &Problem) -> isonomia_allocation::Allocation {
    let mut gift = Gift::new(GiftConfig { interval: INTERVAL, ..GiftConfig::default() }).expect("good parameters");
    gift.decide(Nanos::ZERO, problem).expect("a feasible program")
}
