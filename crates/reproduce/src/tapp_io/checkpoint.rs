//! Fig. 9: checkpoints of S3D, as the benchmark Genarray writes them.

use super::gains::{GAIN_MIN, Run, by_default, gain, is_sure, over_defaults, run_all, sizes};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Setting};
use crate::claims::Claim;
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Figure, Finding, Stopped};
use isonomia_plot::{Line, Plot};
use isonomia_units::Bytes;
use serde_json::json;

const VARIANTS: [(Placement, Pattern); 3] = [
    (Placement::Random, Pattern::FilePerProcess),
    (Placement::InTurn, Pattern::FilePerProcess),
    (Placement::Balanced, Pattern::FilePerProcess),
];
const DEFAULTS: [usize; 2] = [0, 1];
const BALANCED: usize = 2;
const PROCESSES: u64 = 16;
/// Of one process in one checkpoint.
const BYTES: u64 = 8_000_000;
const CHECKPOINTS: u32 = 10;

/// Fig. 9.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (seeds, checkpoints) = if context.quick { (3, 2) } else { (50, CHECKPOINTS) };
    let nodes = sizes(128, 4_096, context.quick);
    let machine = Machine::new(Setting::CHOSEN);
    let work = (checkpoints, Bytes(PROCESSES * BYTES));
    let runs = run_all(&machine, &nodes, seeds, work, &VARIANTS, context, "checkpoints")?;
    // A run's bandwidth is all of its bytes over all of its time in I/O: every checkpoint has as many bytes.
    let whole = |phases: &Vec<f64>| vec![phases.len() as f64 / phases.iter().map(|rate| 1.0 / rate).sum::<f64>()];
    let runs: Vec<Vec<Run>> =
        runs.iter().map(|runs| runs.iter().map(|run| run.iter().map(whole).collect()).collect()).collect();
    let mut data = Data::new(&["nodes", "seed", "placement", "gb_per_s"]);
    for (nodes, runs) in nodes.iter().zip(&runs) {
        for (seed, run) in (1_u64..).zip(runs) {
            for ((placement, _), rate) in VARIANTS.iter().zip(run) {
                data.push([(*nodes).into(), seed.into(), placement.name().into(), rate[0].into()]);
            }
        }
    }
    let gains = |over: usize| runs.iter().map(move |runs| gain(runs, BALANCED, over));
    let line = |over: usize| Line {
        label: format!("over {}", VARIANTS[over].0.name()),
        points: nodes.iter().zip(gains(over)).map(|(n, gain)| (f64::from(*n).log2(), gain.mean.max(0.0))).collect(),
        reference: None,
    };
    let plot = Plot {
        caption: "mean gain of checkpoints over the default placement".to_owned(),
        x: "nodes, as a power of two",
        y: "per cent",
        lines: DEFAULTS.map(line).into(),
    };
    let least = |over: usize| gains(over).min_by(|a, b| a.mean.total_cmp(&b.mean));
    let least: Vec<Interval> = DEFAULTS.into_iter().filter_map(least).collect();
    let claim = Claim {
        claim: "checkpoints gain at every size from 128 to 4096 nodes".to_owned(),
        paper: "yes, more on many nodes".to_owned(),
        ours: format!("least: {}", by_default(&least)),
        verdict: over_defaults(
            &DEFAULTS.map(|over| gains(over).all(|gain| is_sure(&gain))),
            DEFAULTS.into_iter().any(|over| gains(over).all(|gain| gain.mean > GAIN_MIN)),
        ),
        why:
            "holds if no interval of a mean reaches zero, over both default placements; in part if so over one, or if \
              all means over one are gains"
                .to_owned(),
    };
    Ok(vec![Finding {
        item: "fig9",
        title: "gain of checkpoints".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<u64>>(),
            "checkpoints": checkpoints,
            "processes_of_a_node": PROCESSES,
            "bytes_of_a_process": BYTES,
            "setting": Setting::CHOSEN.json(),
        }),
        data,
        plots: vec![("", Figure::Lines(plot))],
        claims: vec![claim],
    }])
}
