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
const TARGETS_PER_LEAF: u16 = TARGETS / LEAVES;
/// Parts of the machine, each with a router for each leaf.
const SECTIONS: u16 = 12;
const ROUTERS: u16 = SECTIONS * LEAVES;
/// Of both file systems together, in bytes per second.
const BANDWIDTH: f64 = 1e12;
/// Of one target, in bytes per second.
pub const TARGET_BANDWIDTH: f64 = BANDWIDTH / (2.0 * TARGETS as f64);

/// What the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Streams of other jobs at a target, on average.
    pub foreign_streams: f64,
    /// Bandwidth of a router, in targets.
    pub router: f64,
    /// What one stream can do at most, in targets.
    pub stream_max: Option<f64>,
    /// Of the balanced placement.
    pub weights: Weights,
}

impl Setting {
    /// The choices that were made before the first run.
    pub const CHOSEN: Self = Self {
        foreign_streams: 1.0,
        router: 2.0 * TARGETS as f64 / ROUTERS as f64,
        stream_max: None,
        weights: Weights::EQUAL,
    };

    /// As it stands in results.
    pub fn json(&self) -> Value {
        json!({
            "foreign_streams_of_a_target": self.foreign_streams,
            "target_gb_per_s": TARGET_BANDWIDTH / 1e9,
            "router_bandwidth_in_targets": self.router,
            "stream_bandwidth_in_targets": self.stream_max,
            "weights_of_router_server_target": self.weights.parts(),
        })
    }
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

    /// The zones of `nodes` nodes that lie together, from a random one on.
    pub fn draw_nodes(nodes: u32, random: &mut impl Rng) -> Vec<Zone> {
        let first = random.random_range(0..NODES);
        let section = |node: u32| node % NODES * u32::from(SECTIONS) / NODES;
        (first..first + nodes).map(|node| Zone(section(node) as u16)).collect()
    }

    /// Streams of other jobs.
    pub fn draw_foreign(&self, random: &mut impl Rng) -> Vec<(Zone, TargetId)> {
        let count = (self.setting.foreign_streams * f64::from(TARGETS)).round() as u32;
        let draw = |_| (Zone(random.random_range(0..SECTIONS)), TargetId(random.random_range(0..TARGETS)));
        (0..count).map(draw).collect()
    }
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
    fn nodes_lie_together_and_foreign_streams_do_not() {
        let mut random = Pcg64::seed_from_u64(1);
        for _ in 0..20 {
            let mut zones = Machine::draw_nodes(4_096, &mut random);
            assert_eq!(zones.len(), 4_096);
            zones.dedup();
            // 1,557 nodes a section.
            assert!((3..=4).contains(&zones.len()), "{zones:?}");
        }
        let foreign = Machine::new(Setting::CHOSEN).draw_foreign(&mut random);
        assert_eq!(foreign.len(), 1_008);
        let sections: std::collections::BTreeSet<Zone> = foreign.iter().map(|stream| stream.0).collect();
        assert_eq!(sections.len(), 12);
    }
}
