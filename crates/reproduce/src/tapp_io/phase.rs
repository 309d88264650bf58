//! One phase of writing: streams through routers, servers and targets, until the last one is done.

use super::machine::{LEAVES, Machine};
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

/// How many streams there are with each way and volume. Volumes are positive, and so in the order of their bits.
type Counts = BTreeMap<(Zone, TargetId, u64), u32>;

/// Streams with the same way and volume: one for the rates, as they stay alike to the end.
struct Bundle {
    count: f64,
    way: Vec<u32>,
    volume_s: f64,
    /// Infinite for those of other jobs.
    left_s: f64,
}

/// Seconds until the last of `streams` is done, while `foreign` streams go on. All rates are max-min fair at every
/// moment. Nothing is shared between leaves, so each is computed alone: O(d (n + m) m) for n bundles of streams, the m
/// resources of a leaf, and d moments at which some are done.
pub fn duration_s(machine: &Machine, streams: &[Stream], foreign: &[(Zone, TargetId)]) -> f64 {
    let own = streams.iter().map(|stream| (stream.zone, stream.target, stream.volume_s));
    let others = foreign.iter().map(|(zone, target)| (*zone, *target, f64::INFINITY));
    let mut leaves = vec![Counts::new(); LEAVES.into()];
    for (zone, target, volume_s) in own.chain(others) {
        *leaves[Machine::leaf(target)].entry((zone, target, volume_s.to_bits())).or_default() += 1;
    }
    leaves.into_iter().map(|counts| leaf_s(machine, counts)).fold(0.0, f64::max)
}

/// Seconds until the last stream with an end is done at one leaf.
fn leaf_s(machine: &Machine, counts: Counts) -> f64 {
    let mut capacities = machine.capacities().to_vec();
    let mut bundles = bundle(machine, counts, &mut capacities);
    let mut time_s = 0.0;
    // Each round ends one bundle at least.
    while bundles.iter().any(|bundle| bundle.left_s.is_finite()) {
        let given: Vec<(f64, &[u32])> = bundles.iter().map(|bundle| (bundle.count, &bundle.way[..])).collect();
        let rates = max_min_rates(&capacities, &given).expect("ways through the machine");
        let ends_s = bundles.iter().zip(&rates).map(|(bundle, rate)| bundle.left_s / rate);
        let step_s = ends_s.fold(f64::INFINITY, f64::min);
        time_s += step_s;
        for (bundle, rate) in bundles.iter_mut().zip(&rates) {
            bundle.left_s -= step_s * rate;
        }
        bundles.retain(|bundle| bundle.left_s > DONE * bundle.volume_s);
    }
    time_s
}

fn bundle(machine: &Machine, counts: Counts, capacities: &mut Vec<f64>) -> Vec<Bundle> {
    let bundle = |((zone, target, bits), count): ((Zone, TargetId, u64), u32)| {
        let count = f64::from(count);
        let mut way = Machine::way(zone, target).to_vec();
        if let Some(stream_max) = machine.setting.stream_max {
            way.push(capacities.len() as u32);
            capacities.push(count * stream_max);
        }
        let volume_s = count * f64::from_bits(bits);
        // Nothing is left of an infinite volume only when it is done, which it never is.
        Bundle { count, way, volume_s: if volume_s.is_finite() { volume_s } else { 0.0 }, left_s: volume_s }
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

    fn assert_takes(setting: Setting, streams: &[Stream], foreign: &[(Zone, TargetId)], expected_s: f64) {
        let time_s = duration_s(&Machine::new(setting), streams, foreign);
        assert!((time_s - expected_s).abs() < 1e-6, "{time_s} instead of {expected_s}");
    }

    #[test]
    fn phases_by_hand() {
        let open = Setting::CHOSEN;
        assert_takes(open, &[], &[], 0.0);
        assert_takes(open, &[stream(0, 0, 8.0)], &[], 8.0);
        // Two at one target, one of them short: 2 at half speed until 4, the other has 6 left.
        assert_takes(open, &[stream(0, 0, 2.0), stream(5, 0, 8.0)], &[], 10.0);
        // Two streams of another job at the target: a third of it, to the end.
        assert_takes(open, &[stream(0, 0, 2.0)], &[(Zone(3), TargetId(0)), (Zone(3), TargetId(0))], 6.0);
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
    }
}
