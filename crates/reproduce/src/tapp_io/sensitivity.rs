//! What the paper leaves open, and what hangs on it: one choice at a time, the others as chosen.

use super::gains::{gain, is_near, is_part, is_sure, run_all};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Setting};
use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Figure, Finding, Stopped};
use isonomia_placement::Weights;
use isonomia_plot::{Bars, Line, Plot};
use isonomia_units::Bytes;
use serde_json::json;

const VARIANTS: [(Placement, Pattern); 4] = [
    (Placement::Random, Pattern::FilePerProcess),
    (Placement::SharedTurns, Pattern::FilePerProcess),
    (Placement::InTurn, Pattern::FilePerProcess),
    (Placement::Balanced, Pattern::FilePerProcess),
];
const DEFAULTS: [usize; 3] = [0, 1, 2];
const BALANCED: usize = 3;
/// A size at which the paper gains something, and one at which it gains about 40 %.
const SIZES: [u32; 2] = [64, 2_048];
const SMALL: usize = 0;
const LARGE: usize = 1;
const PAPER_PERCENT: f64 = 40.0;
const AS_CHOSEN: &str = "as chosen";
const NOISE: &str = "streams of other jobs at a target";

/// A choice, its value, and the machine with it.
struct Choice {
    of: &'static str,
    value: String,
    setting: Setting,
}

/// What came of it: the gain by size and default placement.
struct Found {
    choice: Choice,
    gains: Vec<Vec<Interval>>,
}

fn choices() -> Vec<Choice> {
    let chosen = Setting::CHOSEN;
    let choice = |of, value: &str, setting| Choice { of, value: value.to_owned(), setting };
    let mut all = vec![choice(AS_CHOSEN, "", chosen)];
    all.extend(
        [0.0, 0.5, 2.0, 4.0]
            .map(|foreign_streams| choice(NOISE, &foreign_streams.to_string(), Setting { foreign_streams, ..chosen })),
    );
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
    let alone = Setting { foreign_streams: 0.0, router: 1e3, ..chosen };
    all.push(choice("nothing but targets and servers", "no other jobs, no limit of routers", alone));
    all
}

/// The gain under each choice.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (seeds, repetitions) = if context.quick { (2, 1) } else { (50, 3) };
    let mut data = Data::new(&["choice", "value", "default", "nodes", "gain_percent", "half_interval_percent"]);
    let mut found = Vec::new();
    for choice in choices() {
        let what = format!("{} {}", choice.of, choice.value);
        let machine = Machine::new(choice.setting);
        let work = (repetitions, Bytes(4 << 30));
        let runs = run_all(&machine, &SIZES, seeds, work, &VARIANTS, context, &what)?;
        let of_size = |runs: &Vec<_>| DEFAULTS.map(|over| gain(runs, BALANCED, over)).to_vec();
        let gains: Vec<Vec<Interval>> = runs.iter().map(of_size).collect();
        for (nodes, gains) in SIZES.into_iter().zip(&gains) {
            for (over, gain) in DEFAULTS.into_iter().zip(gains) {
                data.push([
                    choice.of.into(),
                    choice.value.clone().into(),
                    VARIANTS[over].0.name().into(),
                    nodes.into(),
                    gain.mean.into(),
                    gain.half.into(),
                ]);
            }
        }
        found.push(Found { choice, gains });
    }
    Ok(vec![Finding {
        item: "sensitivity",
        title: "mean gain by what the paper leaves open".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<u64>>(),
            "repetitions": repetitions,
            "nodes": SIZES,
            "setting": Setting::CHOSEN.json(),
        }),
        data,
        plots: plots(&found),
        claims: claims(&found),
    }])
}

fn plots(found: &[Found]) -> Vec<(&'static str, Figure)> {
    let bar = |over: usize| (VARIANTS[over].0.name().to_owned(), vec![found[0].gains[LARGE][over].mean.max(0.0)]);
    let defaults = Bars {
        caption: format!("gain on {} nodes, by default placement", SIZES[LARGE]),
        y: "per cent",
        parts: vec![AS_CHOSEN],
        bars: DEFAULTS.map(bar).into(),
    };
    let mut by_noise: Vec<&Found> =
        found.iter().filter(|found| [AS_CHOSEN, NOISE].contains(&found.choice.of)).collect();
    let noise = |found: &Found| found.choice.setting.foreign_streams;
    by_noise.sort_by(|a, b| noise(a).total_cmp(&noise(b)));
    let line = |size: usize, over: usize| Line {
        label: format!("{} nodes, over {}", SIZES[size], VARIANTS[over].0.name()),
        points: by_noise.iter().map(|found| (noise(found), found.gains[size][over].mean.max(0.0))).collect(),
        reference: None,
    };
    let noise = Plot {
        caption: "gain, by what other jobs do".to_owned(),
        x: NOISE,
        y: "per cent",
        lines: [SMALL, LARGE].iter().flat_map(|size| DEFAULTS.map(|over| line(*size, over))).collect(),
    };
    vec![("", Figure::Bars(defaults)), ("noise", Figure::Lines(noise))]
}

fn claims(found: &[Found]) -> Vec<Claim> {
    let text = |(name, gain): (&str, &Interval)| format!("{name}: {gain:.1} %");
    let large = SIZES[LARGE];
    let names = DEFAULTS.map(|over| VARIANTS[over].0.name());
    let defaults = &found[0].gains[LARGE];
    let ours = names.into_iter().zip(defaults).map(text).collect::<Vec<_>>().join(", ");
    let mut claims =
        vec![large_claim(format!("gain on {large} nodes whatever the default placement is"), ours, defaults)];
    let mut kinds: Vec<&'static str> = found.iter().skip(1).map(|found| found.choice.of).collect();
    kinds.dedup();
    for kind in kinds {
        let over_random = |size: usize| -> (String, Vec<Interval>) {
            let of_kind = || found.iter().filter(|found| found.choice.of == kind);
            let gains: Vec<Interval> = of_kind().map(|found| found.gains[size][0]).collect();
            let names = of_kind().map(|found| found.choice.value.as_str());
            (names.zip(&gains).map(text).collect::<Vec<_>>().join(", "), gains)
        };
        let (ours, gains) = over_random(LARGE);
        let what = format!("gain on {large} nodes over random placement whatever this is: {kind}");
        claims.push(large_claim(what, ours, &gains));
        if kind == NOISE {
            let (ours, gains) = over_random(SMALL);
            claims.push(Claim {
                claim: format!("gain on {} nodes over random placement whatever this is: {kind}", SIZES[SMALL]),
                paper: "a gain, in production".to_owned(),
                ours,
                verdict: Verdict::of(gains.iter().all(is_sure), gains.iter().any(is_sure)),
                why:
                    "holds if no interval reaches zero; in part if one does not. With few nodes the slowest stream is \
                      soon the one that has most of other jobs' streams beside it, which no placement knows of"
                        .to_owned(),
            });
        }
    }
    claims
}

fn large_claim(claim: String, ours: String, gains: &[Interval]) -> Claim {
    Claim {
        claim,
        paper: format!("about {PAPER_PERCENT} %; under which choice is not said"),
        ours,
        verdict: Verdict::of(
            gains.iter().all(|gain| is_near(gain, PAPER_PERCENT)),
            gains.iter().all(|gain| is_part(gain, PAPER_PERCENT)),
        ),
        why: format!(
            "holds if each mean is within half of {PAPER_PERCENT} %; in part if each is a quarter of it at least"
        ),
    }
}
