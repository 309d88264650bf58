//! Fig. 9: checkpoints of S3D, as the benchmark Genarray writes them.

use super::gains::{Run, beside, gain, gain_rows, is_gain, run_all, sizes};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Setting};
use crate::chart::{Chart, Scale};
use crate::claims::Claim;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_units::Bytes;
use serde_json::json;

const VARIANTS: [(Placement, Pattern); 4] = [
    (Placement::DEFAULTS[0], Pattern::FilePerProcess),
    (Placement::DEFAULTS[1], Pattern::FilePerProcess),
    (Placement::DEFAULTS[2], Pattern::FilePerProcess),
    (Placement::Balanced, Pattern::FilePerProcess),
];
const BALANCED: usize = 3;
const PROCESSES: u64 = 16;
/// Of one process in one checkpoint.
const BYTES: u64 = 8_000_000;
const CHECKPOINTS: u32 = 10;

/// Fig. 9.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (seeds, checkpoints) = if context.quick { (3, 2) } else { (30, CHECKPOINTS) };
    let nodes = sizes(128, 4_096, context.quick);
    let machine = Machine::new(Setting::CHOSEN);
    let work = (checkpoints, Bytes(PROCESSES * BYTES));
    let runs = run_all(&machine, &nodes, seeds, work, &VARIANTS, context, "checkpoints")?;
    // A run's bandwidth is all of its bytes over all of its time in I/O: every checkpoint has as many bytes.
    let whole = |phases: &Vec<f64>| vec![phases.len() as f64 / phases.iter().map(|rate| 1.0 / rate).sum::<f64>()];
    let runs: Vec<Vec<Run>> =
        runs.iter().map(|runs| runs.iter().map(|run| run.iter().map(whole).collect()).collect()).collect();
    let sized: Vec<(u32, &[Run])> = nodes.iter().copied().zip(runs.iter().map(Vec::as_slice)).collect();
    let defaults: Vec<(usize, &'static str)> = (0..BALANCED).map(|at| (at, VARIANTS[at].0.name())).collect();
    let tests = sized.iter().map(|(nodes, runs)| is_gain(format!("{nodes} nodes"), gain(runs, BALANCED, 0)));
    let least = |over: usize| -> Interval {
        let gains = sized.iter().map(|(_, runs)| gain(runs, BALANCED, over));
        gains.min_by(|a, b| a.mean.total_cmp(&b.mean)).unwrap_or(Interval::exact(f64::NAN))
    };
    let others: Vec<(&str, Interval)> = defaults[1..].iter().map(|(over, name)| (*name, least(*over))).collect();
    let chart = Chart::lines(
        "Mean gain of checkpoints with TAPP-IO, by default placement",
        ("nodes", "nodes"),
        ("gain_percent", "gain in bandwidth [%]"),
    );
    Ok(vec![Finding {
        table: None,
        item: "fig9",
        title: "gain of checkpoints".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<u64>>(),
            "checkpoints": checkpoints,
            "processes_of_a_node": PROCESSES,
            "bytes_of_a_process": BYTES,
            "setting": Setting::CHOSEN.json(),
        }),
        data: gain_rows(&sized, BALANCED, &defaults),
        charts: vec![chart.by("default").x_scale(Scale::Log2)],
        claims: vec![
            Claim::new(
                "checkpoints gain at every size from 128 to 4096 nodes",
                "yes, more on many nodes",
                tests.collect(),
            )
            .beside(format!("least of the sizes: {}", beside(&others))),
        ],
    }])
}
