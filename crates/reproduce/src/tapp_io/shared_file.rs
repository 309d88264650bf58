//! Fig. 8: one file that all processes share.

use super::gains::{Run, beside, deviation_percent, gain, is_gain, mean, run_all, sizes};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Setting};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_units::Bytes;
use serde_json::json;

/// The paper's variants I, II and III; the first two over each default placement, of which two differ for one file.
const VARIANTS: [(Placement, Pattern); 5] = [
    (Placement::RoundRobin, Pattern::DefaultStripes),
    (Placement::Random, Pattern::DefaultStripes),
    (Placement::RoundRobin, Pattern::StripePerWriter),
    (Placement::Random, Pattern::StripePerWriter),
    (Placement::Balanced, Pattern::StripePerWriter),
];
const FOUR_STRIPES: usize = 0;
const STRIPE_PER_WRITER: usize = 2;
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
    let (seeds, repetitions) = if context.quick { (3, 2) } else { (30, 3) };
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
    let chart = Chart::lines("Bandwidth with one shared file", ("nodes", "nodes"), ("gb_per_s", "GB/s")).by("variant");
    Ok(vec![Finding {
        table: None,
        item: "fig8",
        title: "bandwidth with one shared file".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<u64>>(),
            "repetitions": repetitions,
            "bytes_of_a_writer": bytes.0,
            "setting": Setting::CHOSEN.json(),
        }),
        data,
        charts: vec![chart.x_scale(Scale::Log2).y_scale(Scale::Log10)],
        claims: claims(&sized),
    }])
}

fn claims(sized: &[(u32, &[Run])]) -> Vec<Claim> {
    let from = |over: usize| -> Vec<Test> {
        let large = sized.iter().filter(|(nodes, _)| *nodes >= GAIN_FROM);
        large.map(|(nodes, runs)| is_gain(format!("{nodes} nodes"), gain(runs, BALANCED, over))).collect()
    };
    let at_256: &[Run] = sized.iter().find(|(nodes, _)| *nodes == 256).map_or(&[], |(_, runs)| runs);
    let random = [(Placement::Random.name(), gain(at_256, BALANCED, STRIPE_PER_WRITER + 1))];
    let seeds = sized.first().map_or(0, |(_, runs)| runs.len());
    let deviation = |seed: usize, at: usize| {
        mean(&sized.iter().map(|(_, runs)| deviation_percent(&runs[seed][at])).collect::<Vec<_>>())
    };
    let ratio = Interval::by(0..seeds, |seed| deviation(seed, BALANCED) / deviation(seed, STRIPE_PER_WRITER));
    vec![
        Claim::new(
            "gain over the same stripes with default placement on 256 nodes",
            format!("{PAPER_PERCENT} %"),
            vec![Test::near("", gain(at_256, BALANCED, STRIPE_PER_WRITER), PAPER_PERCENT).unit(" %")],
        )
        .beside(beside(&random))
        .why(
            "no placement puts two stripes of a file on one target, so that only routers and servers can be shared \
             unevenly; what other jobs take is between files",
        ),
        Claim::new(
            "gain over the same stripes with default placement, from 32 nodes on",
            "at every size",
            from(STRIPE_PER_WRITER),
        ),
        Claim::new("gain over four stripes, from 32 nodes on", "significant", from(FOUR_STRIPES))
            .why("a file on four targets has at most the bandwidth of four; what its locks cost is not modelled"),
        Claim::new(
            "deviation among the repetitions of a run over that of the same stripes by default",
            "relatively small",
            vec![Test::below("mean over sizes", ratio, 0.5).in_part(0.0, 1.0)],
        )
        .why("what other jobs do differs between repetitions, and no placement knows of it"),
    ]
}
