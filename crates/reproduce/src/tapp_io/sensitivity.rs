//! What the gain owes to each of the things that the paper leaves open, one at a time; the others are as chosen.

use super::gains::{gain, gain_percent, is_gain, run_all};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Scatter, Setting};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_placement::Weights;
use isonomia_units::Bytes;
use serde_json::json;

const VARIANTS: [(Placement, Pattern); 4] = [
    (Placement::DEFAULTS[0], Pattern::FilePerProcess),
    (Placement::DEFAULTS[1], Pattern::FilePerProcess),
    (Placement::DEFAULTS[2], Pattern::FilePerProcess),
    (Placement::Balanced, Pattern::FilePerProcess),
];
const BALANCED: usize = 3;
/// A size at which the paper gains something, and one at which it gains about 40 %.
const SIZES: [u32; 2] = [64, 2_048];
const SMALL: usize = 0;
const LARGE: usize = 1;
const PAPER_PERCENT: f64 = 40.0;
const AS_CHOSEN: &str = "as chosen";

/// A choice, its value, and the machine with it.
struct Choice {
    of: &'static str,
    value: String,
    setting: Setting,
}

/// What came of it: the gain by size and default placement.
struct Found {
    choice: Choice,
    gains: Vec<[Interval; 3]>,
}

const LOAD: &str = "load of other jobs";
const LOSS: &str = "loss by each further stream";
const NUMBERED: [(&str, &str, &str); 2] =
    [("load", LOAD, "part of the bandwidth"), ("loss", LOSS, "part of a target's throughput")];

fn choices() -> Vec<Choice> {
    let chosen = Setting::CHOSEN;
    let choice = |of, value: &str, setting| Choice { of, value: value.to_owned(), setting };
    let mut all = vec![choice(AS_CHOSEN, "", chosen)];
    all.extend([0.0, 0.05, 0.1, 0.2, 0.4].map(|load| choice(LOAD, &load.to_string(), Setting { load, ..chosen })));
    all.extend([0.0, 0.02, 0.05, 0.1, 0.3].map(|loss| choice(LOSS, &loss.to_string(), Setting { loss, ..chosen })));
    let scatters =
        [("together", Scatter::Together), ("fragments", Scatter::Fragments), ("everywhere", Scatter::Everywhere)];
    all.extend(scatters.map(|(value, scatter)| choice("nodes of a job", value, Setting { scatter, ..chosen })));
    let weights = [("router only", (1, 0, 0)), ("server only", (0, 1, 0)), ("target only", (0, 0, 1))];
    all.extend(weights.map(|(value, (router, server, target))| {
        let weights = Weights::new(router, server, target).expect("one is not zero");
        choice("weights", value, Setting { weights, ..chosen })
    }));
    all.extend([("half", 0.5), ("twice", 2.0), ("no limit", 1e3)].map(|(value, factor)| {
        choice("bandwidth of routers", value, Setting { router: factor * chosen.router, ..chosen })
    }));
    all.extend([0.5, 0.25].map(|most| {
        let setting = Setting { stream_max: Some(most), ..chosen };
        choice("what a stream can do, in targets", &most.to_string(), setting)
    }));
    let alone = Setting { load: 0.0, loss: 0.0, router: 1e3, ..chosen };
    all.push(choice("nothing but targets and servers", "", alone));
    all
}

/// The gain under each choice.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (seeds, repetitions) = if context.quick { (2, 1) } else { (20, 2) };
    let mut data = Data::new(&["choice", "value", "case", "default", "nodes", "seed", "gain_percent"]);
    let mut found = Vec::new();
    for choice in choices() {
        let what = format!("{} {}", choice.of, choice.value);
        let machine = Machine::new(choice.setting);
        let work = (repetitions, Bytes(4 << 30));
        let runs = run_all(&machine, &SIZES, seeds, work, &VARIANTS, context, &what)?;
        for (nodes, runs) in SIZES.into_iter().zip(&runs) {
            for (seed, run) in (1_u64..).zip(runs) {
                for (over, (placement, _)) in VARIANTS[..BALANCED].iter().enumerate() {
                    data.push([
                        choice.of.into(),
                        choice.value.clone().into(),
                        [choice.of, &choice.value].join(" ").trim_end().into(),
                        placement.name().into(),
                        nodes.into(),
                        seed.into(),
                        gain_percent(run, BALANCED, over).into(),
                    ]);
                }
            }
        }
        let gains = runs.iter().map(|runs| [0, 1, 2].map(|over| gain(runs, BALANCED, over))).collect();
        found.push(Found { choice, gains });
    }
    Ok(vec![Finding {
        table: None,
        item: "sensitivity",
        title: "mean gain by what the paper leaves open".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<u64>>(),
            "repetitions": repetitions,
            "nodes": SIZES,
            "setting": Setting::CHOSEN.json(),
        }),
        data,
        charts: charts(),
        claims: claims(&found),
    }])
}

fn charts() -> Vec<Chart> {
    let y = ("gain_percent", "gain in bandwidth [%]");
    let all = Chart::bars("Gain on 2048 nodes, one choice at a time", ("case", ""), y)
        .by("default")
        .only("nodes", [SIZES[LARGE]])
        .paper(None::<f64>, PAPER_PERCENT);
    let mut charts = vec![all];
    charts.extend(NUMBERED.map(|(name, choice, x)| {
        Chart::lines(format!("Gain on 2048 nodes by the {choice}"), ("value", x), y)
            .by("default")
            .only("choice", [choice])
            .only("nodes", [SIZES[LARGE]])
            .paper(None::<f64>, PAPER_PERCENT)
            .named(name)
            .x_scale(Scale::Linear)
    }));
    charts
}

fn claims(found: &[Found]) -> Vec<Claim> {
    let large = SIZES[LARGE];
    let paper = || format!("about {PAPER_PERCENT} %; under which choice is not said");
    let test = |name: &str, gain: Interval| Test::near(name, gain, PAPER_PERCENT).unit(" %");
    let defaults = (0..BALANCED).map(|over| test(VARIANTS[over].0.name(), found[0].gains[LARGE][over]));
    let mut claims = vec![Claim::new(
        format!("gain on {large} nodes whatever the default placement is"),
        paper(),
        defaults.collect(),
    )];
    let mut kinds: Vec<&'static str> = found.iter().skip(1).map(|found| found.choice.of).collect();
    kinds.dedup();
    for kind in kinds {
        let of_kind = || found.iter().filter(|found| found.choice.of == kind);
        let tests = of_kind().map(|found| test(&found.choice.value, found.gains[LARGE][0])).collect();
        claims.push(Claim::new(format!("gain on {large} nodes whatever this is: {kind}"), paper(), tests));
        if kind == LOAD {
            let tests = of_kind().map(|found| is_gain(found.choice.value.clone(), found.gains[SMALL][0])).collect();
            let what = format!("gain on {} nodes whatever this is: {kind}", SIZES[SMALL]);
            claims.push(Claim::new(what, "a gain, in production", tests).why(
                "with few nodes the slowest stream is soon the one that has most of other jobs' streams beside it, which \
                 no placement knows of",
            ));
        }
    }
    claims
}
