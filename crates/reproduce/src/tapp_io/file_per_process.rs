//! Figs. 4 to 7: a file for each process, from 8 to 4,096 nodes.

use super::gains::{Run, beside, deviation_percent, gain, gain_percent, gain_rows, is_gain, mean, run_all, sizes};
use super::job::{Pattern, Placement};
use super::machine::{Machine, Setting};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_units::Bytes;
use serde_json::{Value, json};

/// The defaults, then TAPP-IO.
const VARIANTS: [(Placement, Pattern); 4] = [
    (Placement::DEFAULTS[0], Pattern::FilePerProcess),
    (Placement::DEFAULTS[1], Pattern::FilePerProcess),
    (Placement::DEFAULTS[2], Pattern::FilePerProcess),
    (Placement::Balanced, Pattern::FilePerProcess),
];
const BALANCED: usize = 3;
/// The sizes of Fig. 4.
const SHOWN: [u32; 4] = [64, 512, 2_048, 4_096];
/// From here on the paper sees a gain at every size.
const GAIN_FROM: u32 = 16;
/// The paper's gains, by nodes.
const PAPER_GAIN: [(u32, f64, &str); 2] =
    [(2_048, 40.0, "about 40 %"), (4_096, 50.0, "about 50 % (54 POSIX, 51 MPI-IO, 32 HDF5)")];
/// The paper's bandwidth with TAPP-IO on 4096 nodes, in GB/s.
const PAPER_BANDWIDTH: f64 = 202.7;
/// What 51 % more bandwidth (MPI-IO on 4096 nodes) take off the time.
const PAPER_SHORTER: f64 = 100.0 * (1.0 - 1.0 / 1.51);

struct Evaluation {
    nodes: Vec<u32>,
    /// By size and seed.
    runs: Vec<Vec<Run>>,
    configuration: Value,
}

/// Figs. 4 to 7.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (seeds, repetitions) = if context.quick { (3, 2) } else { (30, 3) };
    let nodes = if context.quick { [&[8, 16], &SHOWN[..]].concat() } else { sizes(8, 4_096, false) };
    let bytes = Bytes(4 << 30);
    let machine = Machine::new(Setting::CHOSEN);
    let runs = run_all(&machine, &nodes, seeds, (repetitions, bytes), &VARIANTS, context, "a file for each process")?;
    let configuration = json!({
        "seeds": (1..=seeds).collect::<Vec<u64>>(),
        "repetitions": repetitions,
        "bytes_of_a_writer": bytes.0,
        "setting": Setting::CHOSEN.json(),
    });
    let evaluation = Evaluation { nodes, runs, configuration };
    Ok(vec![evaluation.run_by_run(), evaluation.bandwidths(), evaluation.means(), evaluation.times()])
}

fn name(variant: usize) -> &'static str {
    VARIANTS[variant].0.name()
}

/// Of each repetition, from its bandwidth: what 4 GiB of each node take.
fn time_s(nodes: u32, phases: &[f64]) -> f64 {
    let gigabytes = f64::from(nodes) * (4_u64 << 30) as f64 / 1e9;
    phases.iter().map(|rate| gigabytes / rate).sum()
}

impl Evaluation {
    fn at(&self, nodes: u32) -> &[Run] {
        let at = self.nodes.iter().position(|other| *other == nodes);
        at.map_or(&[], |at| &self.runs[at])
    }

    fn sized(&self) -> Vec<(u32, &[Run])> {
        self.nodes.iter().copied().zip(self.runs.iter().map(Vec::as_slice)).collect()
    }

    fn finding(&self, item: &'static str, title: &str, data: Data) -> Finding {
        let configuration = self.configuration.clone();
        Finding {
            item,
            title: title.to_owned(),
            configuration,
            data,
            table: None,
            charts: Vec::new(),
            claims: Vec::new(),
        }
    }

    fn defaults() -> Vec<(usize, &'static str)> {
        (0..BALANCED).map(|at| (at, name(at))).collect()
    }

    /// The gain over the defaults that are not judged.
    fn others(&self, nodes: u32) -> String {
        let gains: Vec<(&str, Interval)> =
            (1..BALANCED).map(|over| (name(over), gain(self.at(nodes), BALANCED, over))).collect();
        beside(&gains)
    }

    /// Fig. 4.
    fn run_by_run(&self) -> Finding {
        let shown: Vec<(u32, &[Run])> = SHOWN.iter().map(|nodes| (*nodes, self.at(*nodes))).collect();
        let mut finding = self.finding(
            "fig4",
            "gain over the default placement, run by run",
            gain_rows(&shown, BALANCED, &Self::defaults()),
        );
        let x = ("seed", "run");
        let chart = Chart::lines("Gain of each run over shared turns", x, ("gain_percent", "gain in bandwidth [%]"));
        finding.charts = vec![chart.by("nodes").only("default", [name(0)])];
        let gaining = |over: usize, nodes: u32| {
            Interval::by(self.at(nodes), |run| if gain_percent(run, BALANCED, over) > 0.0 { 100.0 } else { 0.0 })
        };
        let tests = SHOWN.map(|nodes| {
            Test::above(format!("{nodes} nodes"), gaining(0, nodes), 100.0).in_part(50.0, 100.0).unit(" %")
        });
        let others: Vec<String> = (1..BALANCED)
            .map(|over| {
                let parts = SHOWN.map(|nodes| format!("{:.0}", gaining(over, nodes).mean));
                format!("over {}: {} %", name(over), parts.join(", "))
            })
            .collect();
        finding.claims = vec![
            Claim::new("runs on 64, 512, 2048 and 4096 nodes that gain", "all", tests.into()).beside(others.join("; ")),
        ];
        finding
    }

    /// Fig. 5.
    fn bandwidths(&self) -> Finding {
        let mut data = Data::new(&["nodes", "seed", "placement", "gb_per_s", "deviation_percent"]);
        for (nodes, runs) in self.sized() {
            for (seed, run) in (1_u64..).zip(runs) {
                for (at, phases) in run.iter().enumerate() {
                    data.push([
                        nodes.into(),
                        seed.into(),
                        name(at).into(),
                        mean(phases).into(),
                        deviation_percent(phases).into(),
                    ]);
                }
            }
        }
        let chart = |title: &str, y| Chart::lines(title, ("nodes", "nodes"), y).by("placement").x_scale(Scale::Log2);
        let best = Interval::by(self.at(4_096), |run| mean(&run[BALANCED]));
        let large = self.sized().into_iter().filter(|(nodes, _)| *nodes >= GAIN_FROM);
        let tests = large.map(|(nodes, runs)| is_gain(format!("{nodes} nodes"), gain(runs, BALANCED, 0)));
        let tests: Vec<Test> = tests.collect();
        let mut finding = self.finding("fig5", "bandwidth with a file for each process", data);
        finding.charts = vec![
            chart("Bandwidth with a file for each process", ("gb_per_s", "GB/s")).y_scale(Scale::Log10).paper_of(
                name(BALANCED),
                Some(4_096),
                PAPER_BANDWIDTH,
            ),
            chart("Deviation among repetitions", ("deviation_percent", "of the bandwidth [%]")).named("deviation"),
        ];
        finding.claims = vec![
            Claim::new(
                "bandwidth with TAPP-IO on 4096 nodes",
                "up to 202.7 GB/s (POSIX)",
                vec![Test::near("", best, PAPER_BANDWIDTH).unit(" GB/s")],
            )
            .why("it hangs on the bandwidths, the other jobs, and the loss that are assumed"),
            Claim::new("a gain at every size from 16 nodes on", "consistent", tests),
        ];
        finding
    }

    /// Fig. 6, and what the text says of deviations.
    fn means(&self) -> Finding {
        let data = gain_rows(&self.sized(), BALANCED, &Self::defaults());
        let mut finding = self.finding("fig6", "mean gain over the default placement", data);
        let chart = Chart::lines(
            "Mean gain with TAPP-IO, by default placement",
            ("nodes", "nodes"),
            ("gain_percent", "gain in bandwidth [%]"),
        );
        let chart = chart.by("default").x_scale(Scale::Log2);
        finding.charts =
            vec![PAPER_GAIN.iter().fold(chart, |chart, (nodes, paper, _)| chart.paper(Some(*nodes), *paper))];
        let claim = |(nodes, paper, text): (u32, f64, &str)| {
            let test = Test::near("", gain(self.at(nodes), BALANCED, 0), paper).unit(" %");
            Claim::new(format!("mean gain on {nodes} nodes"), text, vec![test]).beside(self.others(nodes))
        };
        finding.claims = PAPER_GAIN.map(claim).into();
        finding.claims.push(self.deviation_claim());
        finding
    }

    fn deviation_claim(&self) -> Claim {
        // Of each seed, the mean over sizes.
        let seeds = self.runs.first().map_or(0, Vec::len);
        let of_seed = |seed: usize, at: usize| {
            mean(&self.runs.iter().map(|runs| deviation_percent(&runs[seed][at])).collect::<Vec<_>>())
        };
        let ratio = Interval::by(0..seeds, |seed| of_seed(seed, BALANCED) / of_seed(seed, 0));
        let text = (0..VARIANTS.len())
            .map(|at| format!("{} {} %", name(at), Interval::by(0..seeds, |seed| of_seed(seed, at))));
        Claim::new(
            "deviation among the repetitions of a run over that by default",
            "tremendously lower",
            vec![Test::below("mean over sizes", ratio, 0.5).in_part(0.0, 1.0)],
        )
        .beside(format!("of the bandwidth: {}", text.collect::<Vec<_>>().join(", ")))
        .why("what other jobs do differs between repetitions, and no placement knows of it")
    }

    /// Fig. 7.
    fn times(&self) -> Finding {
        let mut data = Data::new(&["nodes", "seed", "placement", "time_s"]);
        for (nodes, runs) in self.sized() {
            for (seed, run) in (1_u64..).zip(runs) {
                for (at, phases) in run.iter().enumerate() {
                    data.push([nodes.into(), seed.into(), name(at).into(), time_s(nodes, phases).into()]);
                }
            }
        }
        let shorter = |nodes: u32| {
            Interval::by(self.at(nodes), |run| 100.0 * (1.0 - time_s(nodes, &run[BALANCED]) / time_s(nodes, &run[0])))
        };
        let large = self.nodes.iter().filter(|nodes| **nodes >= GAIN_FROM);
        let mut finding = self.finding("fig7", "execution time with a file for each process", data);
        let chart = Chart::lines(
            "Time of three repetitions of 4 GiB for each node",
            ("nodes", "nodes"),
            ("time_s", "time [s]"),
        );
        finding.charts = vec![chart.by("placement").x_scale(Scale::Log2)];
        finding.claims = vec![
            Claim::new(
                "execution time is shorter with TAPP-IO, from 16 nodes on",
                "shorter",
                large.map(|nodes| is_gain(format!("{nodes} nodes"), shorter(*nodes))).collect(),
            ),
            Claim::new(
                "execution time on 4096 nodes is shorter by",
                "33.8 %, which 51 % more bandwidth are",
                vec![Test::near("", shorter(4_096), PAPER_SHORTER).unit(" %")],
            ),
        ];
        finding
    }
}
