//! Titan and one file system of Spider II, as far as the paper describes them; the rest as the parent module says.
//!
//! Bandwidth is counted in targets: 1 is what one target can do.

use isonomia_placement::{RouterId, Topology, Weights, Zone};
use isonomia_units::{ServerId, TargetId};
use rand::{Rng, RngExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Compute nodes (§II).
const NODES: u32 = 18_688;
/// Servers of the file system (§II).
const SERVERS: u16 = 144;
/// Targets of the file system (§II).
pub const TARGETS: u16 = 1_008;
const TARGETS_PER_SERVER: u16 = TARGETS / SERVERS;
/// Leaf switches. A stream to a target passes its leaf only, through a router and a server of that leaf.
pub const LEAVES: u16 = 36;
const SERVERS_PER_LEAF: u16 = SERVERS / LEAVES;
/// Targets behind the servers of a leaf.
pub const TARGETS_PER_LEAF: u16 = TARGETS / LEAVES;
/// Parts of the machine, each with a router for each leaf.
const SECTIONS: u16 = 12;
const ROUTERS: u16 = SECTIONS * LEAVES;
/// Of both file systems together, in bytes per second.
const BANDWIDTH: f64 = 1e12;
/// Of one target, in bytes per second.
pub const TARGET_BANDWIDTH: f64 = BANDWIDTH / (2.0 * TARGETS as f64);

/// Where the nodes of a job lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// All together.
    Together,
    /// In fragments of 1 to [`FRAGMENT_MAX`] nodes, log-uniform: what a scheduler finds free on a torus that others use too.
    Fragments,
    /// Each anywhere.
    Everywhere,
}

/// Nodes of a fragment at most.
const FRAGMENT_MAX: f64 = 512.0;
/// Writers of another job's burst at most; log-uniform from one on.
const BURST_WRITERS_MAX: f64 = 1_024.0;
/// Seconds that one writer of a burst would take alone: Pareto with this shape, on average this long, and this at most.
const BURST_SHAPE: f64 = 1.5;
const BURST_MEAN_S: f64 = 2.0;
const BURST_MAX_S: f64 = 60.0;
/// Other jobs are drawn for so long; what lasts longer has its end without them.
pub const FOREIGN_S: f64 = 200.0;
/// However many write to it, a target keeps this part of its throughput.
const THROUGHPUT_MIN: f64 = 0.5;

/// What the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Part of the file system's bandwidth that other jobs use, on average over time.
    pub load: f64,
    /// Part of its throughput that a target loses by each further stream.
    pub loss: f64,
    /// Where the nodes of a job lie.
    pub scatter: Scatter,
    /// Bandwidth of a router, in targets.
    pub router: f64,
    /// What one stream can do at most, in targets.
    pub stream_max: Option<f64>,
    /// Of the balanced placement.
    pub weights: Weights,
}

impl Setting {
    /// The choices that were made before the first run of this model.
    pub const CHOSEN: Self = Self {
        load: 0.1,
        loss: 0.05,
        scatter: Scatter::Fragments,
        router: 2.0 * TARGETS as f64 / ROUTERS as f64,
        stream_max: None,
        weights: Weights::EQUAL,
    };

    /// As it stands in results.
    pub fn json(&self) -> Value {
        json!({
            "load_of_other_jobs": self.load,
            "burst_writers_max": BURST_WRITERS_MAX,
            "burst_pareto_shape": BURST_SHAPE,
            "burst_mean_s": BURST_MEAN_S,
            "loss_for_each_further_stream": self.loss,
            "throughput_min": THROUGHPUT_MIN,
            "nodes_of_a_job": format!("{:?}", self.scatter).to_lowercase(),
            "target_gb_per_s": TARGET_BANDWIDTH / 1e9,
            "router_bandwidth_in_targets": self.router,
            "stream_bandwidth_in_targets": self.stream_max,
            "weights_of_router_server_target": self.weights.parts(),
        })
    }

    /// What a target can do with so many streams, in targets.
    pub fn throughput(&self, streams: f64) -> f64 {
        (1.0 / (1.0 + self.loss * (streams - 1.0).max(0.0))).max(THROUGHPUT_MIN)
    }
}

/// A stream of another job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Foreign {
    /// Where its node is.
    pub zone: Zone,
    /// Where its bytes go.
    pub target: TargetId,
    /// When it begins, after the phase does.
    pub begin_s: f64,
    /// What it has left then, as the time in seconds that the target alone would take.
    pub volume_s: f64,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Who reaches what.
    pub topology: Arc<Topology>,
    /// What is open in it.
    pub setting: Setting,
    /// Bandwidth of each router of a leaf, then of each server, then of each target; all leaves are alike.
    capacities: Vec<f64>,
}

impl Machine {
    /// The machine with this setting.
    pub fn new(setting: Setting) -> Self {
        let targets = (0..TARGETS).map(|target| (TargetId(target), ServerId(target / TARGETS_PER_SERVER)));
        let router = |section, server| RouterId(section * LEAVES + server / SERVERS_PER_LEAF);
        let routes = |section| (0..SERVERS).map(|server| (ServerId(server), router(section, server))).collect();
        let sections: Vec<BTreeMap<_, _>> = (0..SECTIONS).map(routes).collect();
        let topology = Topology::routed(targets, &sections).expect("targets and routes are made above");
        let capacities = [
            vec![setting.router; SECTIONS.into()],
            vec![TARGETS_PER_SERVER.into(); SERVERS_PER_LEAF.into()],
            vec![1.0; TARGETS_PER_LEAF.into()],
        ];
        Self { topology: Arc::new(topology), setting, capacities: capacities.concat() }
    }

    /// The bandwidths of what streams to the targets of one leaf pass through, in targets.
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// The leaf of a stream to `target`.
    pub fn leaf(target: TargetId) -> usize {
        usize::from(target.0 / TARGETS_PER_LEAF)
    }

    /// What a stream from `zone` to `target` passes through: positions in [`Self::capacities`] of its leaf.
    pub fn way(zone: Zone, target: TargetId) -> [u32; 3] {
        let server = SECTIONS + target.0 / TARGETS_PER_SERVER % SERVERS_PER_LEAF;
        [zone.0, server, SECTIONS + SERVERS_PER_LEAF + target.0 % TARGETS_PER_LEAF].map(u32::from)
    }

    /// The zones of a job's nodes.
    pub fn draw_nodes(&self, nodes: u32, random: &mut impl Rng) -> Vec<Zone> {
        let section = |node: u32| Zone((node % NODES * u32::from(SECTIONS) / NODES) as u16);
        let mut zones = Vec::new();
        while zones.len() < nodes as usize {
            let left = nodes - zones.len() as u32;
            let together = match self.setting.scatter {
                Scatter::Together => left,
                Scatter::Fragments => (log_uniform(FRAGMENT_MAX, random) as u32).clamp(1, left),
                Scatter::Everywhere => 1,
            };
            let first = random.random_range(0..NODES);
            zones.extend((first..first + together).map(section));
        }
        zones
    }

    /// Streams of other jobs at the time that a phase begins and for [`FOREIGN_S`] from then on, by their begin. Bursts
    /// come by chance at any time, each from nodes and onto targets that follow each other, as files of one job do.
    /// A burst that began before has left what it had not done alone.
    pub fn draw_foreign(&self, random: &mut impl Rng) -> Vec<Foreign> {
        let mean_writers = (BURST_WRITERS_MAX - 1.0) / BURST_WRITERS_MAX.ln();
        let bursts_per_s = self.setting.load * f64::from(TARGETS) / (mean_writers * BURST_MEAN_S);
        let round = self.topology.targets();
        let mut streams = Vec::new();
        if bursts_per_s <= 0.0 {
            return streams;
        }
        let mut at_s = -BURST_MAX_S;
        loop {
            at_s -= (1.0 - random.random::<f64>()).ln() / bursts_per_s;
            if at_s >= FOREIGN_S {
                break;
            }
            let writers = log_uniform(BURST_WRITERS_MAX, random) as usize;
            let least_s = BURST_MEAN_S * (BURST_SHAPE - 1.0) / BURST_SHAPE;
            let volume_s = (least_s * (1.0 - random.random::<f64>()).powf(-1.0 / BURST_SHAPE)).min(BURST_MAX_S);
            let zones = self.draw_nodes(writers as u32, random);
            let first = random.random_range(0..round.len());
            let left_s = volume_s + at_s.min(0.0);
            if left_s > 0.0 {
                let stream = |(at, zone): (usize, Zone)| Foreign {
                    zone,
                    target: round[(first + at) % round.len()],
                    begin_s: at_s.max(0.0),
                    volume_s: left_s,
                };
                streams.extend(zones.into_iter().enumerate().map(stream));
            }
        }
        streams
    }
}

/// From 1 to `most`, log-uniform.
fn log_uniform(most: f64, random: &mut impl Rng) -> f64 {
    most.powf(random.random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[test]
    fn the_machine_is_the_papers() {
        let machine = Machine::new(Setting::CHOSEN);
        assert_eq!(machine.capacities().len(), 12 + 4 + 28);
        // Section 11, target 1007: the last router, server, and target of the last leaf.
        assert_eq!((Machine::leaf(TargetId(1_007)), Machine::way(Zone(11), TargetId(1_007))), (35, [11, 15, 43]));
        // Target 28 is the first of the second leaf.
        assert_eq!((Machine::leaf(TargetId(28)), Machine::way(Zone(0), TargetId(28))), (1, [0, 12, 16]));
        // The paths of the placement are these ways.
        for (zone, target) in [(0, 0), (3, 500), (7, 27), (11, 1_007)] {
            let path = machine.topology.path(Zone(zone), TargetId(target)).expect("a path");
            let way = Machine::way(Zone(zone), TargetId(target));
            let leaf = Machine::leaf(TargetId(target)) as u16;
            assert_eq!(path.router, Some(RouterId(zone * LEAVES + leaf)));
            assert_eq!(u32::from(path.server.0 - 4 * leaf), way[1] - 12);
        }
        // All routers carry what two file systems do.
        assert!((432.0 * machine.capacities()[0] - 2_016.0).abs() < 1e-9);
    }

    #[test]
    fn nodes_lie_in_fragments_and_others_use_what_they_are_to_use() {
        let mut random = Pcg64::seed_from_u64(1);
        let sections = |scatter: Scatter, random: &mut Pcg64| {
            let machine = Machine::new(Setting { scatter, ..Setting::CHOSEN });
            let mut zones = machine.draw_nodes(1_024, random);
            assert_eq!(zones.len(), 1_024);
            zones.sort_unstable();
            zones.dedup();
            zones.len()
        };
        // 1,557 nodes a section.
        assert!(sections(Scatter::Together, &mut random) <= 2);
        assert!(sections(Scatter::Fragments, &mut random) > 2);
        assert_eq!(sections(Scatter::Everywhere, &mut random), 12);
        let machine = Machine::new(Setting::CHOSEN);
        let used = |random: &mut Pcg64| -> f64 {
            let streams = machine.draw_foreign(random);
            assert!(
                streams.is_sorted_by_key(|stream| stream.begin_s) && streams.iter().all(|stream| stream.volume_s > 0.0)
            );
            streams.iter().map(|stream| stream.volume_s).sum::<f64>() / (FOREIGN_S * 1_008.0)
        };
        let mean = (0..50).map(|_| used(&mut random)).sum::<f64>() / 50.0;
        assert!((0.07..0.13).contains(&mean), "{mean}");
        let quiet = Machine::new(Setting { load: 0.0, ..Setting::CHOSEN });
        assert!(quiet.draw_foreign(&mut random).is_empty());
    }

    #[test]
    fn a_target_loses_throughput_by_each_stream_to_a_half() {
        let setting = Setting::CHOSEN;
        assert_eq!([0.0, 1.0, 1e3].map(|streams| setting.throughput(streams)), [1.0, 1.0, 0.5]);
        assert!((setting.throughput(5.0) - 1.0 / 1.2).abs() < 1e-12);
    }
}
