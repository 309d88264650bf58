//! What is simulated of a device that was measured.
//!
//! A device serves as many small requests at once as a small one alone takes times its cost; these are its channels. What a request
//! takes on its channel is its cost times their number: so as many requests end in a second as were measured while the device
//! was kept busy. What a small one took beyond that when it was alone is transit. That large requests cost what channels
//! that each have a part of the bandwidth would make of them shows when one is alone: it takes the cost times the number of
//! channels then, too. One that takes much less has more of the bandwidth than a part: the channels have one in
//! common, which is what was measured, and each its own, which is what those that were alone had.
//!
//! The channels of many devices get in each other's way long before the device is busy: those of a virtual machine, of a network, of
//! an emulation that needs the processors. Where small requests that are fewer than the channels show that, there are as many
//! channels as it took to keep the device busy, and what a request takes on its own depends on how many are there
//! ([`LoadDependence`]): so the device does with each number of small requests what it was measured to do.

use super::{ChannelTimes, Channels, LoadDependence};
use isonomia_policy::device::profile::{DeviceProfile, FittedCost};
use isonomia_policy::{Access, DepthSpec};
use isonomia_units::{Bytes, Nanos, Rate};
use std::num::NonZeroU32;

/// The most channels of one device.
pub(crate) const CHANNELS_MAX: u32 = 4096;
/// No request of a server is larger, but those of its own.
const LARGE: Bytes = Bytes(256 << 10);
/// What is alone and large takes so many times less than channels that bound it would make of it, where they do not.
const COMMON_MIN: f64 = 1.25;
/// Channels leave each other alone where so many requests as there are channels, or fewer, do this part at least of what as many times
/// one would do.
const INDEPENDENT_MIN: f64 = 0.8;

impl Channels {
    /// Of a profile, in which `access` was measured: all requests are as these are, or those of other accesses as they were
    /// measured, as far as they were.
    pub(crate) fn of_profile(
        profile: &DeviceProfile,
        access: Access,
        is_only: bool,
        jitter: f64,
        depth: DepthSpec,
    ) -> Option<Self> {
        let parallel = profile.costs.get(&access)?.parallel;
        let (channels, load_dependence) =
            load_dependent(profile, access, parallel).unwrap_or((parallel, LoadDependence::NONE));
        let channels = channels.clamp(1, CHANNELS_MAX);
        let bandwidth = common(profile, access, channels);
        let all = Access::ALL.map(|one| {
            let one = if is_only || !profile.costs.contains_key(&one) { access } else { one };
            let cost = profile.costs.get(&one)?;
            Some(times(profile, one, cost, (channels, load_dependence), bandwidth))
        });
        let [Some(a), Some(b), Some(c), Some(d)] = all else { return None };
        let count = NonZeroU32::new(channels);
        Some(Self { count, times: [a, b, c, d], load_dependence, bandwidth, jitter, depth })
    }

    /// The same with requests that take `time` less, on their way to a channel first and then on it, as far as they take so long.
    #[must_use]
    pub fn less(self, time: Nanos) -> Self {
        let less = |times: ChannelTimes| {
            let latency = times.latency.since(time.since(times.transit)).max(Nanos(1));
            ChannelTimes { transit: times.transit.since(time), latency, ..times }
        };
        Self { times: self.times.map(less), ..self }
    }

    /// What a request takes that finds nobody else.
    pub fn time_alone(&self, access: Access, bytes: Bytes) -> Nanos {
        self.time_among(access, bytes, 1)
    }

    /// What a request takes that is one of so many on channels, and passes what they have in common at once.
    pub fn time_among(&self, access: Access, bytes: Bytes, count: u32) -> Nanos {
        let passing = self.bandwidth.map_or(Nanos::ZERO, |rate| rate.time_for(bytes));
        self.times[access.index()].transit + self.time_on_channel(access, bytes, count) + passing
    }

    /// How long a request that is one of so many keeps its channel, besides passing what they have in common.
    pub fn time_on_channel(&self, access: Access, bytes: Bytes, count: u32) -> Nanos {
        let times = &self.times[access.index()];
        times.in_channel(bytes) + times.among(self.load_dependence, count).since(times.latency)
    }
}

impl ChannelTimes {
    fn in_channel(&self, bytes: Bytes) -> Nanos {
        self.latency + self.bandwidth.map_or(Nanos::ZERO, |rate| rate.time_for(bytes))
    }

    /// The latency where so many are on channels.
    pub(super) fn among(&self, load_dependence: LoadDependence, count: u32) -> Nanos {
        Nanos((self.latency.0 as f64 * load_dependence.factor(count)) as u64)
    }
}

/// How many channels a device has, and how they get in each other's way, if they do so with fewer requests than it serves in the time
/// of one alone.
fn load_dependent(profile: &DeviceProfile, access: Access, parallel: u32) -> Option<(u32, LoadDependence)> {
    let (bytes, _) = profile.alone(access)?;
    let alike = |depth: u32| {
        profile.points.iter().find(|point| point.access == access && point.bytes == bytes && point.depth == depth)
    };
    let one = alike(1)?.requests_per_s;
    let longer = |depth| Some(f64::from(depth) * one / alike(depth)?.requests_per_s);
    let is_dependent = (1..=parallel).filter_map(longer).any(|longer| longer * INDEPENDENT_MIN > 1.0);
    is_dependent.then_some((profile.saturated(access, bytes)?.depth, LoadDependence::new(longer)))
}

/// The largest requests of an access that a server has, and what they took alone.
fn large(profile: &DeviceProfile, access: Access) -> Option<(Bytes, Nanos)> {
    let alone =
        profile.points.iter().filter(|point| point.access == access && point.depth == 1 && point.bytes <= LARGE);
    let point = alone.max_by_key(|point| point.bytes)?;
    Some((point.bytes, point.interval()))
}

/// What all channels have in common, if that bounds large requests.
fn common(profile: &DeviceProfile, access: Access, channels: u32) -> Option<Rate> {
    let (bytes, alone) = large(profile, access)?;
    let most = profile.saturated(access, bytes)?;
    let cost_ns = 1e9 / most.requests_per_s;
    let is_bound_by_channels = cost_ns * f64::from(channels) < COMMON_MIN * alone.0 as f64;
    if is_bound_by_channels { None } else { Rate::new(most.bytes_per_s() as u64) }
}

fn times(
    profile: &DeviceProfile,
    access: Access,
    cost: &FittedCost,
    (channels, load_dependence): (u32, LoadDependence),
    common: Option<Rate>,
) -> ChannelTimes {
    let small = profile.alone(access);
    let passing = |bytes| common.map_or(Nanos::ZERO, |rate| rate.time_for(bytes));
    let latency = match small.filter(|_| load_dependence != LoadDependence::NONE) {
        Some((bytes, took)) => took.since(passing(bytes)),
        None => Nanos(cost.per_op.0.saturating_mul(u64::from(channels))),
    };
    let latency = latency.max(Nanos(1));
    let bandwidth = match (common, small, large(profile, access)) {
        (Some(common), Some((least, first)), Some((most, last))) if most > least => {
            let bytes = Bytes(most.0 - least.0);
            let own = last.since(first).since(common.time_for(bytes));
            Rate::new((bytes.0 as f64 * 1e9 / own.0 as f64).min(u64::MAX as f64) as u64).filter(|_| own > Nanos::ZERO)
        }
        (Some(_), ..) => None,
        // All channels together have the bandwidth that was fitted.
        (None, ..) => cost.bandwidth.and_then(|rate| Rate::new((rate.bytes_per_s() / u64::from(channels)).max(1))),
    };
    let mut times = ChannelTimes { transit: Nanos::ZERO, latency, bandwidth };
    if let Some((bytes, took)) = small {
        times.transit = took.since(times.in_channel(bytes) + passing(bytes));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_policy::device::profile::ProfilePoint;

    const ACCESS: Access = Access::ReadRandom;

    /// A profile of a device of so many channels on which requests take `alone_s`, and which moves no more than so many bytes in
    /// a second.
    fn profile(channels: u32, most_per_s: f64, alone_s: impl Fn(f64) -> f64) -> DeviceProfile {
        let mut points = Vec::new();
        for bytes in [4u64 << 10, 16 << 10, 64 << 10, 256 << 10] {
            for depth in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
                let alone_s = alone_s(bytes as f64);
                let requests_per_s = (f64::from(depth.min(channels)) / alone_s).min(most_per_s / bytes as f64);
                let took = Nanos((alone_s * 1e9) as u64);
                let (access, bytes) = (ACCESS, Bytes(bytes));
                points.push(ProfilePoint { access, bytes, depth, requests_per_s, p50: took, p99: took });
            }
        }
        DeviceProfile::new("/d".into(), true, points)
    }

    #[track_caller]
    fn assert_near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.03, "{found} instead of {wanted}");
    }

    #[test]
    fn channels_that_each_move_bytes_are_told_from_a_bandwidth_in_common() {
        // 4 channels, 2 ms and 100 MB/s each.
        let device = profile(4, f64::INFINITY, |bytes| 2e-3 + bytes / 100e6);
        let channels = Channels::of_profile(&device, ACCESS, false, 0.0, DepthSpec::Auto).unwrap();
        assert_eq!((channels.count, channels.bandwidth), (NonZeroU32::new(4), None));
        assert_near(channels.time_alone(ACCESS, Bytes(4096)).0 as f64, 2e6 + 40_960.0);
        assert_near(channels.time_alone(Access::WriteRandom, Bytes(256 << 10)).0 as f64, 2e6 + 2_621_440.0);
        // 128 of 5 ms, which move 4 GB/s together.
        let device = profile(128, 4e9, |bytes| 5e-3 + bytes / 4e9);
        let channels = Channels::of_profile(&device, ACCESS, false, 0.0, DepthSpec::Auto).unwrap();
        assert_near(channels.bandwidth.unwrap().bytes_per_s() as f64, 4e9);
        assert_near(channels.count.map_or(0, NonZeroU32::get).into(), 128.0);
        for bytes in [4u64 << 10, 256 << 10] {
            assert_near(channels.time_alone(ACCESS, Bytes(bytes)).0 as f64, 5e6 + bytes as f64 / 4.0);
        }
    }

    #[test]
    fn less_is_taken_of_the_way_first() {
        let times = ChannelTimes { transit: Nanos(20), latency: Nanos(50), bandwidth: None };
        let (times, load_dependence) = ([times; 4], LoadDependence::NONE);
        let device =
            Channels { count: None, times, load_dependence, bandwidth: None, jitter: 0.0, depth: DepthSpec::Auto };
        for (time, transit, latency) in [(0, 20, 50), (15, 5, 50), (20, 0, 50), (30, 0, 40), (90, 0, 1)] {
            let ChannelTimes { transit: way, latency: on, .. } = device.less(Nanos(time)).times[2];
            assert_eq!((way, on), (Nanos(transit), Nanos(latency)), "{time}");
        }
    }

    #[test]
    fn channels_that_get_in_each_others_way_do_what_was_measured() {
        // 100 us alone; n at once take a quarter of that more for each but the first, so 40,000 a second are the most.
        let rate = |depth: u32| f64::from(depth) / (100e-6 * (1.0 + f64::from(depth - 1) / 4.0));
        let point = |(bytes, depth)| {
            let (requests_per_s, took) = (rate(depth), Nanos::from_micros(100));
            ProfilePoint { access: ACCESS, bytes: Bytes(bytes), depth, requests_per_s, p50: took, p99: took }
        };
        let depths = [1, 2, 4, 8, 16, 32, 64, 128, 256];
        let points = [4 << 10, 256 << 10].into_iter().flat_map(|bytes| depths.map(|depth| point((bytes, depth))));
        let device = DeviceProfile::new("/d".into(), true, points.collect());
        let channels = Channels::of_profile(&device, ACCESS, false, 0.0, DepthSpec::Auto).unwrap();
        assert_eq!(channels.count, NonZeroU32::new(64), "the first with 0.95 of the most that was measured");
        for count in [1, 2, 3, 4, 6, 8, 16, 24, 64] {
            let takes_s = channels.time_among(ACCESS, Bytes(4096), count).0 as f64 / 1e9;
            assert_near(f64::from(count) / takes_s, rate(count));
        }
    }
}
