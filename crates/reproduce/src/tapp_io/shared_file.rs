//! Fig. 8: one file that all processes share.

use super::gains::{
    Run, by_default, deviation_percent, gain, is_near, is_part, is_sure, mean, over_defaults, run_all, sizes,
};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Setting};
use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Figure, Finding, Stopped};
use isonomia_plot::{Line, Plot};
use isonomia_units::Bytes;
use serde_json::json;

/// The paper's variants I, II and III; the first two over each default placement.
const VARIANTS: [(Placement, Pattern); 5] = [
    (Placement::Random, Pattern::DefaultStripes),
    (Placement::InTurn, Pattern::DefaultStripes),
    (Placement::Random, Pattern::StripePerWriter),
    (Placement::InTurn, Pattern::StripePerWriter),
    (Placement::Balanced, Pattern::StripePerWriter),
];
const FOUR_STRIPES: [usize; 2] = [0, 1];
const STRIPE_PER_WRITER: [usize; 2] = [2, 3];
const BALANCED: usize = 4;
/// On 256 nodes.
const PAPER_PERCENT: f64 = 75.8;
/// From here on the paper sees a gain.
const GAIN_FROM: u32 = 32;

fn name(variant: usize) -> String {
    let (placement, pattern) = VARIANTS[variant];
    let stripes = if pattern == Pattern::DefaultStripes { "four stripes" } else { "a stripe per writer" };
    format!("{stripes}, {}", placement.name())
}

/// Fig. 8.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (seeds, repetitions) = if context.quick { (3, 2) } else { (50, 3) };
    let nodes = sizes(8, 1_024, context.quick);
    let bytes = Bytes(4 << 30);
    let machine = Machine::new(Setting::CHOSEN);
    let runs = run_all(&machine, &nodes, seeds, (repetitions, bytes), &VARIANTS, context, "a shared file")?;
    let sized: Vec<(u32, &[Run])> = nodes.iter().copied().zip(runs.iter().map(Vec::as_slice)).collect();
    let mut data = Data::new(&["nodes", "seed", "variant", "gb_per_s", "deviation_percent"]);
    for (nodes, runs) in &sized {
        for (seed, run) in (1_u64..).zip(*runs) {
            for (variant, phases) in run.iter().enumerate() {
                data.push([
                    (*nodes).into(),
                    seed.into(),
                    name(variant).into(),
                    mean(phases).into(),
                    deviation_percent(phases).into(),
                ]);
            }
        }
    }
    Ok(vec![Finding {
        item: "fig8",
        title: "bandwidth with one shared file".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<u64>>(),
            "repetitions": repetitions,
            "bytes_of_a_writer": bytes.0,
            "setting": Setting::CHOSEN.json(),
        }),
        data,
        plots: vec![("", plot(&sized))],
        claims: claims(&sized),
    }])
}

fn plot(sized: &[(u32, &[Run])]) -> Figure {
    let bandwidth = |runs: &[Run], at: usize| mean(&runs.iter().map(|run| mean(&run[at])).collect::<Vec<_>>());
    let line = |at: usize| Line {
        label: name(at),
        points: sized.iter().map(|(nodes, runs)| (f64::from(*nodes).log2(), bandwidth(runs, at))).collect(),
        reference: None,
    };
    Figure::Lines(Plot {
        caption: "bandwidth with one shared file".to_owned(),
        x: "nodes, as a power of two",
        y: "GB/s",
        lines: (0..VARIANTS.len()).map(line).collect(),
    })
}

fn claims(sized: &[(u32, &[Run])]) -> Vec<Claim> {
    let from = |over: usize| {
        let large = sized.iter().filter(|(nodes, _)| *nodes >= GAIN_FROM);
        large.map(move |(_, runs)| gain(runs, BALANCED, over))
    };
    let least = |over: usize| from(over).min_by(|a, b| a.mean.total_cmp(&b.mean));
    let least_of = |variants: [usize; 2]| by_default(&variants.into_iter().filter_map(least).collect::<Vec<_>>());
    let holds_over = |variants: [usize; 2]| variants.map(|over| from(over).all(|gain| is_sure(&gain)));
    let any_gain = |variants: [usize; 2]| variants.into_iter().any(|over| from(over).any(|gain| is_sure(&gain)));
    let at_256: &[Run] = sized.iter().find(|(nodes, _)| *nodes == 256).map_or(&[], |(_, runs)| runs);
    let gains: Vec<Interval> = STRIPE_PER_WRITER.map(|over| gain(at_256, BALANCED, over)).into();
    let holds: Vec<bool> = gains.iter().map(|gain| is_near(gain, PAPER_PERCENT)).collect();
    let deviation = |at: usize| {
        let of_size = |runs: &[Run]| mean(&runs.iter().map(|run| deviation_percent(&run[at])).collect::<Vec<_>>());
        mean(&sized.iter().map(|(_, runs)| of_size(runs)).collect::<Vec<_>>())
    };
    let [random, in_turn, balanced] = [STRIPE_PER_WRITER[0], STRIPE_PER_WRITER[1], BALANCED].map(deviation);
    vec![
        Claim {
            claim: "gain over the same stripes with default placement on 256 nodes".to_owned(),
            paper: format!("{PAPER_PERCENT} %"),
            ours: by_default(&gains),
            verdict: over_defaults(&holds, gains.iter().any(|gain| is_part(gain, PAPER_PERCENT))),
            why: "holds if within half of it over both default placements; in part if over one, or if it is a \
                  quarter at least over one. No placement puts two stripes of a file on one target, so that only routers and servers \
                  can be shared unevenly"
                .to_owned(),
        },
        Claim {
            claim: "gain over the same stripes with default placement, from 32 nodes on".to_owned(),
            paper: "at every size".to_owned(),
            ours: format!("least: {}", least_of(STRIPE_PER_WRITER)),
            verdict: over_defaults(&holds_over(STRIPE_PER_WRITER), any_gain(STRIPE_PER_WRITER)),
            why:
                "holds if no interval of a mean reaches zero, over both default placements; in part if so over one, or \
                  if there is a gain at some size"
                    .to_owned(),
        },
        Claim {
            claim: "gain over four stripes, from 32 nodes on".to_owned(),
            paper: "significant".to_owned(),
            ours: format!("least: {}", least_of(FOUR_STRIPES)),
            verdict: over_defaults(&holds_over(FOUR_STRIPES), any_gain(FOUR_STRIPES)),
            why: "as above; a file on four targets has at most the bandwidth of four, and what its locks cost is not \
                  modelled"
                .to_owned(),
        },
        Claim {
            claim: "deviation among the repetitions of a run, mean over sizes".to_owned(),
            paper: "relatively small compared with default placement".to_owned(),
            ours: format!("{balanced:.1} % of the bandwidth; random {random:.1} %, in turn {in_turn:.1} %"),
            verdict: Verdict::of(2.0 * balanced <= random.min(in_turn), balanced < random.max(in_turn)),
            why: "holds if at most half of either default's; in part if lower than one's. What other jobs do differs \
                  between repetitions, and no placement knows of it"
                .to_owned(),
        },
    ]
}
