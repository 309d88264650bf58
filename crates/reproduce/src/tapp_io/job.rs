//! A job that writes phase after phase, with the placement of its files.

use super::machine::{Machine, TARGET_BANDWIDTH, TARGETS};
use super::phase::{Stream, duration_s};
use isonomia_placement::{Balancer, RoundRobin, SharedLayout, Step, Topology, Zone, random_targets};
use isonomia_units::{Bytes, TargetId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::num::{NonZeroU32, NonZeroU64};

/// Stripes of Lustre's default layout on the paper's machine (§IV.A.1).
const DEFAULT_STRIPES: usize = 4;
/// Lustre's stripe sizes are multiples of this.
const STRIPE_UNIT: NonZeroU64 = NonZeroU64::new(65_536).expect("not zero");

/// Who chooses targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Chance, uniformly.
    Random,
    /// Round-robin, where as many files of other jobs take targets too, in random order.
    SharedRoundRobin,
    /// Round-robin, from a random start.
    RoundRobin,
    /// TAPP-IO.
    Balanced,
}

/// What a job writes in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A file without stripes for each writer.
    FilePerProcess,
    /// A shared file with the default stripes, which every writer writes to all of.
    DefaultStripes,
    /// A shared file with a stripe for each writer.
    StripePerWriter,
}

/// A job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Its nodes, each with one writer.
    pub nodes: u32,
    /// Bytes of each writer in each phase.
    pub writer_bytes: Bytes,
    /// Its phases: repetitions, or checkpoints.
    pub phases: u32,
    /// Where the job runs, what else goes on, and every choice by chance.
    pub seed: u64,
}

impl Placement {
    /// What the paper may compare with: first what is taken for it, then the two ends of what Lustre does.
    pub const DEFAULTS: [Self; 3] = [Self::SharedRoundRobin, Self::Random, Self::RoundRobin];

    /// Its name in data and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "in turn",
            Self::SharedRoundRobin => "shared turns",
            Self::Balanced => "tapp-io",
        }
    }
}

impl Job {
    /// Gigabytes per second of each phase, for each of the variants. All variants run on the same nodes and beside the
    /// same streams of other jobs.
    pub fn gb_per_s(&self, machine: &Machine, variants: &[(Placement, Pattern)]) -> Vec<Vec<f64>> {
        let zones = machine.draw_nodes(self.nodes, &mut self.generator(0));
        let mut noise = self.generator(1);
        let foreign: Vec<_> = (0..self.phases).map(|_| machine.draw_foreign(&mut noise)).collect();
        let gigabytes = f64::from(self.nodes) * self.writer_bytes.0 as f64 / 1e9;
        let of_variant = |&(placement, pattern): &(Placement, Pattern)| {
            let mut chooser = Chooser::new(placement, machine, self.generator(2));
            let mut phase = |foreign: &Vec<_>| {
                let mut choose = |writers: &[Zone]| chooser.file(&machine.topology, writers);
                let streams = self.streams(&mut choose, pattern, &zones);
                gigabytes / duration_s(machine, &streams, foreign)
            };
            foreign.iter().map(&mut phase).collect()
        };
        variants.iter().map(of_variant).collect()
    }

    /// A generator for each purpose.
    fn generator(&self, purpose: u64) -> Pcg64 {
        Pcg64::seed_from_u64(self.seed << 32 | u64::from(self.nodes) << 8 | purpose)
    }

    fn streams(
        &self,
        choose: &mut impl FnMut(&[Zone]) -> Vec<TargetId>,
        pattern: Pattern,
        zones: &[Zone],
    ) -> Vec<Stream> {
        let writer_s = self.writer_bytes.0 as f64 / TARGET_BANDWIDTH;
        match pattern {
            Pattern::FilePerProcess => {
                let stream = |&zone| Stream { zone, target: choose(&[zone])[0], volume_s: writer_s };
                zones.iter().map(stream).collect()
            }
            Pattern::DefaultStripes => {
                let targets = choose(&[zones[0]; DEFAULT_STRIPES]);
                let volume_s = writer_s / targets.len() as f64;
                let of_writer = |&zone| targets.iter().map(move |&target| Stream { zone, target, volume_s });
                zones.iter().flat_map(of_writer).collect()
            }
            Pattern::StripePerWriter => self.striped(choose, zones, writer_s),
        }
    }

    /// Layout 1 of Fig. 1: writer i has the i-th block of the file. With more writers than targets a block can lie in
    /// two stripes; a stripe then counts as written by the writer of its first byte.
    fn striped(&self, choose: &mut impl FnMut(&[Zone]) -> Vec<TargetId>, zones: &[Zone], writer_s: f64) -> Vec<Stream> {
        let [writers, most] = [self.nodes, TARGETS.into()].map(|count| NonZeroU32::new(count).expect("not zero"));
        let block = self.writer_bytes.0;
        let layout = SharedLayout::new(Bytes(block * u64::from(self.nodes)), writers, most, STRIPE_UNIT);
        let stripe = layout.stripe_size.0;
        let stripes = u64::from(layout.stripe_count.get());
        let first_writer = |at: u64| zones[((at * stripe / block) as usize).min(zones.len() - 1)];
        let targets = choose(&(0..stripes).map(first_writer).collect::<Vec<_>>());
        let mut streams = Vec::new();
        for (writer, &zone) in (0..).zip(zones) {
            let (mut begin, end) = (writer * block, (writer + 1) * block);
            while begin < end {
                let at = begin / stripe;
                let next = end.min((at + 1) * stripe);
                let volume_s = writer_s * (next - begin) as f64 / block as f64;
                streams.push(Stream { zone, target: targets[at as usize], volume_s });
                begin = next;
            }
        }
        streams
    }
}

/// A placement with its memory.
enum Chooser {
    Random(Pcg64),
    RoundRobin(RoundRobin),
    SharedRoundRobin(RoundRobin, Pcg64),
    Balanced(Balancer),
}

impl Chooser {
    fn new(placement: Placement, machine: &Machine, mut random: Pcg64) -> Self {
        let start = random.random_range(0..usize::from(TARGETS));
        let round = RoundRobin::starting_at(start, Step::Stripe);
        match placement {
            Placement::Random => Self::Random(random),
            Placement::RoundRobin => Self::RoundRobin(round),
            Placement::SharedRoundRobin => Self::SharedRoundRobin(round, random),
            Placement::Balanced => {
                Self::Balanced(Balancer::new(machine.topology.clone(), machine.setting.weights, start))
            }
        }
    }

    /// Targets of a file with as many stripes as writers. One stripe is a file without.
    fn file(&mut self, topology: &Topology, writers: &[Zone]) -> Vec<TargetId> {
        let stripes = writers.len();
        let chosen = match self {
            Self::Random(random) => random_targets(topology.targets(), stripes, random),
            Self::RoundRobin(round) => round.place(topology, stripes),
            Self::SharedRoundRobin(round, random) => {
                while random.random() {
                    round.skip(topology, stripes);
                }
                round.place(topology, stripes)
            }
            Self::Balanced(balancer) => {
                let paths = balancer.place_shared_file(writers);
                paths.map(|paths| paths.into_iter().map(|path| path.target).collect())
            }
        };
        chosen.expect("zones of the machine, and no more stripes than targets")
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Scatter, Setting};
    use super::*;

    /// Alone on the machine, seconds are whole numbers of a target's for a writer.
    fn alone(nodes: u32, variants: &[(Placement, Pattern)]) -> Vec<Vec<f64>> {
        // On nodes that lie together, or the balance of routers would be at the cost of that of targets.
        let scatter = Scatter::Together;
        let machine = Machine::new(Setting { load: 0.0, loss: 0.0, router: 1e3, scatter, ..Setting::CHOSEN });
        let job = Job { nodes, writer_bytes: Bytes::mib(64), phases: 2, seed: 1 };
        let best = f64::from(nodes) * TARGET_BANDWIDTH / 1e9;
        let rates = job.gb_per_s(&machine, variants);
        rates.iter().map(|phases| phases.iter().map(|rate| best / rate).collect()).collect()
    }

    fn assert_close(times: &[f64], expected: f64) {
        assert!(times.iter().all(|time| (time - expected).abs() < 1e-6), "{times:?} instead of {expected}");
    }

    #[test]
    fn alone_the_busiest_target_is_the_time() {
        use Pattern::{DefaultStripes, FilePerProcess, StripePerWriter};
        let of = |placement, pattern| move |nodes| alone(nodes, &[(placement, pattern)]).remove(0);
        for placement in [Placement::Balanced, Placement::RoundRobin] {
            assert_close(&of(placement, FilePerProcess)(1_008), 1.0);
            assert_close(&of(placement, FilePerProcess)(1_009), 2.0);
            assert_close(&of(placement, StripePerWriter)(256), 1.0);
        }
        // 64 writers of a quarter each at each of four targets.
        assert_close(&of(Placement::Random, DefaultStripes)(64), 16.0);
        // A stripe is 64/63 of a writer's 1024 units, rounded up to 1041 units, and no target has two.
        assert_close(&of(Placement::Balanced, StripePerWriter)(1_024), 1_041.0 / 1_024.0);
        assert_close(&of(Placement::Random, StripePerWriter)(1_024), 1_041.0 / 1_024.0);
        // Some target of 1008 has at least four of as many files, and hardly any one nine.
        let random = of(Placement::Random, FilePerProcess)(1_008);
        assert!(random.iter().all(|time| (4.0..9.0).contains(time)), "{random:?}");
        // With others' files in between it is neither all alike nor by chance alone.
        let shared = of(Placement::SharedRoundRobin, FilePerProcess)(1_008);
        assert!(shared.iter().all(|time| (2.0..5.0).contains(time)), "{shared:?}");
    }

    #[test]
    fn variants_do_not_disturb_each_other() {
        let machine = Machine::new(Setting::CHOSEN);
        let job = Job { nodes: 64, writer_bytes: Bytes::mib(64), phases: 2, seed: 3 };
        let [random, balanced] =
            [Placement::Random, Placement::Balanced].map(|placement| (placement, Pattern::FilePerProcess));
        let both = job.gb_per_s(&machine, &[random, balanced]);
        assert_eq!(both[1..], job.gb_per_s(&machine, &[balanced]));
        assert_ne!(both[0][0], both[0][1], "other streams in each phase");
    }
}
