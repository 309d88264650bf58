//! One phase of writing: streams through routers, servers and targets, until the last one is done.

use super::machine::{Foreign, LEAVES, Machine, TARGETS_PER_LEAF};
use isonomia_allocation::max_min_rates;
use isonomia_placement::Zone;
use isonomia_units::TargetId;
use std::collections::BTreeMap;

/// What is left of a stream's volume when it counts as done, of the volume.
const DONE: f64 = 1e-9;

/// Bytes on their way from a node to a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Where the node is.
    pub zone: Zone,
    /// Where the bytes go.
    pub target: TargetId,
    /// How many, as the time in seconds that the target alone would take.
    pub volume_s: f64,
}

/// How many streams there are with each way, begin, and volume. Times are not negative, and so in the order of their bits.
type Counts = BTreeMap<(u64, Zone, TargetId, u64), u32>;

/// Streams with the same way, begin, and volume: one for the rates, as they stay alike to the end.
struct Bundle {
    begin_s: f64,
    count: f64,
    way: Vec<u32>,
    volume_s: f64,
    left_s: f64,
    is_own: bool,
}

/// Seconds until the last of `streams` is done, beside streams of other jobs. All rates are max-min fair at every
/// moment, and a target can do what [`Setting::throughput`](super::machine::Setting::throughput) says of the streams it has
/// then. Nothing is shared between leaves, so each is computed alone: O(d (n + m) m) for n bundles of streams, the m
/// resources of a leaf, and d moments at which some begin or are done.
pub fn duration_s(machine: &Machine, streams: &[Stream], foreign: &[Foreign]) -> f64 {
    let mut own = vec![Counts::new(); LEAVES.into()];
    for stream in streams {
        let key = (0, stream.zone, stream.target, stream.volume_s.to_bits());
        *own[Machine::leaf(stream.target)].entry(key).or_default() += 1;
    }
    let mut others = vec![Counts::new(); LEAVES.into()];
    for stream in foreign {
        let leaf = Machine::leaf(stream.target);
        if !own[leaf].is_empty() {
            let key = (stream.begin_s.to_bits(), stream.zone, stream.target, stream.volume_s.to_bits());
            *others[leaf].entry(key).or_default() += 1;
        }
    }
    own.into_iter().zip(others).map(|(own, others)| leaf_s(machine, own, others)).fold(0.0, f64::max)
}

/// Seconds until the last own stream is done at one leaf.
fn leaf_s(machine: &Machine, own: Counts, others: Counts) -> f64 {
    let mut capacities = machine.capacities().to_vec();
    let first_target = capacities.len() - usize::from(TARGETS_PER_LEAF);
    let mut active = bundle(machine, own, true, &mut capacities);
    let mut own_left = active.len();
    let mut coming = bundle(machine, others, false, &mut capacities).into_iter().peekable();
    let mut time_s = 0.0;
    // Each round ends or begins one bundle at least.
    while own_left > 0 {
        active.extend(std::iter::from_fn(|| coming.next_if(|bundle| bundle.begin_s <= time_s)));
        let mut streams = [0.0; TARGETS_PER_LEAF as usize];
        for bundle in &active {
            streams[bundle.way[2] as usize - first_target] += bundle.count;
        }
        for (target, streams) in streams.iter().enumerate() {
            capacities[first_target + target] = machine.setting.throughput(*streams);
        }
        let given: Vec<(f64, &[u32])> = active.iter().map(|bundle| (bundle.count, &bundle.way[..])).collect();
        let rates = max_min_rates(&capacities, &given).expect("ways through the machine");
        let ends_s = active.iter().zip(&rates).map(|(bundle, rate)| bundle.left_s / rate);
        let next_s = coming.peek().map_or(f64::INFINITY, |bundle| bundle.begin_s - time_s);
        let step_s = ends_s.fold(next_s, f64::min);
        time_s += step_s;
        for (bundle, rate) in active.iter_mut().zip(&rates) {
            bundle.left_s -= step_s * rate;
        }
        active.retain(|bundle| bundle.left_s > DONE * bundle.volume_s);
        own_left = active.iter().filter(|bundle| bundle.is_own).count();
    }
    time_s
}

fn bundle(machine: &Machine, counts: Counts, is_own: bool, capacities: &mut Vec<f64>) -> Vec<Bundle> {
    let bundle = |((begin, zone, target, bits), count): ((u64, Zone, TargetId, u64), u32)| {
        let count = f64::from(count);
        let mut way = Machine::way(zone, target).to_vec();
        if let Some(stream_max) = machine.setting.stream_max {
            way.push(capacities.len() as u32);
            capacities.push(count * stream_max);
        }
        let volume_s = count * f64::from_bits(bits);
        Bundle { begin_s: f64::from_bits(begin), count, way, volume_s, left_s: volume_s, is_own }
    };
    counts.into_iter().map(bundle).collect()
}

#[cfg(test)]
mod tests {
    use super::super::machine::Setting;
    use super::*;

    fn stream(zone: u16, target: u16, volume_s: f64) -> Stream {
        Stream { zone: Zone(zone), target: TargetId(target), volume_s }
    }

    fn other(zone: u16, target: u16, begin_s: f64, volume_s: f64) -> Foreign {
        Foreign { zone: Zone(zone), target: TargetId(target), begin_s, volume_s }
    }

    fn assert_takes(setting: Setting, streams: &[Stream], foreign: &[Foreign], expected_s: f64) {
        let time_s = duration_s(&Machine::new(setting), streams, foreign);
        assert!((time_s - expected_s).abs() < 1e-6, "{time_s} instead of {expected_s}");
    }

    #[test]
    fn phases_by_hand() {
        let open = Setting { loss: 0.0, ..Setting::CHOSEN };
        assert_takes(open, &[], &[], 0.0);
        assert_takes(open, &[stream(0, 0, 8.0)], &[], 8.0);
        // Two at one target, one of them short: 2 at half speed until 4, the other has 6 left.
        assert_takes(open, &[stream(0, 0, 2.0), stream(5, 0, 8.0)], &[], 10.0);
        // Two streams of another job at the target: a third of it, to the end.
        assert_takes(open, &[stream(0, 0, 2.0)], &[other(3, 0, 0.0, 9.0), other(3, 0, 0.0, 9.0)], 6.0);
        // One that comes at 1 and is done at 2, after half of what it shares.
        assert_takes(open, &[stream(0, 0, 2.0)], &[other(3, 0, 1.0, 0.5)], 2.5);
        // One at another target, or too late, takes nothing.
        assert_takes(open, &[stream(0, 0, 2.0)], &[other(3, 1, 0.0, 9.0), other(3, 0, 2.5, 9.0)], 2.0);
        // Seven targets of one server by one router of 14/3 targets: two thirds each.
        let seven: Vec<Stream> = (0..7).map(|target| stream(0, target, 2.0)).collect();
        assert_takes(open, &seven, &[], 3.0);
        // With one that halves the first target until 2: the others have 25/36 each, and 11/18 left then, which take 11/12
        // at two thirds; the first has 1 left at 2, and 7/18 when it is alone.
        let eight = [&seven[..], &[stream(1, 0, 1.0)]].concat();
        assert_takes(open, &eight, &[], 2.0 + 11.0 / 12.0 + 7.0 / 18.0);
        // Streams that can do a quarter of a target each: one alone, and two that are alike.
        let narrow = Setting { stream_max: Some(0.25), ..open };
        assert_takes(narrow, &[stream(0, 0, 2.0)], &[], 8.0);
        assert_takes(narrow, &[stream(0, 0, 2.0); 2], &[], 8.0);
        // Two at each target of a server, through a router that does not limit them; nor does the server.
        let wide = Setting { router: 100.0, ..open };
        assert_takes(wide, &[&seven[..], &seven[..]].concat(), &[], 4.0);
        // Two at a target that loses a quarter by the second, until the first is done: each has 3/8.
        let lossy = Setting { loss: 1.0 / 3.0, ..open };
        assert_takes(lossy, &[stream(0, 0, 3.0), stream(5, 0, 4.0)], &[], 8.0 + 1.0);
    }
}
