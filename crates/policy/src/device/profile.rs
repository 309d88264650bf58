//! What was measured of a device beforehand: the form that it is kept in, and what is made of it.
//!
//! The cost of a request is the time for which a device that has as many in service as it needs could have served something
//! else: one over the requests that it does in a second. For each access it is fitted over all sizes with a time for the
//! operation and a time for each byte, as live servers learn it ([`CostLearner`]).

use super::cost::CostModel;
use super::learning::{Access, CostLearner};
use isonomia_units::{Bytes, Nanos, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a target's directory calls the file that has its profile.
pub const PROFILE_NAME: &str = "device-profile.toml";
/// From this part of the most that was measured on, more requests in service are not worth it.
const SATURATED: f64 = 0.95;

/// A device as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// The directory that was measured.
    pub dir: String,
    /// Past the kernel's page cache.
    pub is_direct: bool,
    /// What was made of the measurements, for each access that was measured.
    pub costs: BTreeMap<Access, FittedCost>,
    /// The measurements.
    #[serde(default)]
    pub points: Vec<ProfilePoint>,
}

/// What requests of one access cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedCost {
    /// For the operation, in nanoseconds.
    pub per_op: Nanos,
    /// At which bytes pass, in bytes per second; `None` where they take no time of their own.
    pub bandwidth: Option<Rate>,
    /// How far it is off what was measured: the mean over the sizes, as a part of what was measured.
    pub error: f64,
    /// A small request alone takes so many times its cost: as many have to be in service to keep the device busy.
    pub parallel: u32,
    /// More may be needed: the most requests in service that were tried still did more than fewer.
    #[serde(default)]
    pub parallel_is_minimum: bool,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfilePoint {
    /// What requests did.
    pub access: Access,
    /// How long each was.
    pub bytes: Bytes,
    /// How many were in service at once.
    pub depth: u32,
    /// How many there were in a second.
    pub requests_per_s: f64,
    /// Half of them took no longer.
    pub p50: Nanos,
    /// 99 of 100 took no longer.
    pub p99: Nanos,
}

impl FittedCost {
    /// Without what it says of itself.
    pub fn model(&self) -> CostModel {
        CostModel { per_op: self.per_op, bandwidth: self.bandwidth.unwrap_or(CostModel::BANDWIDTH_MAX) }
    }
}

impl ProfilePoint {
    /// Bytes that passed in a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.requests_per_s * self.bytes.0 as f64
    }

    /// From the end of one request to that of the next.
    pub fn interval(&self) -> Nanos {
        Nanos((1e9 / self.requests_per_s) as u64)
    }
}

impl DeviceProfile {
    /// Of measurements.
    pub fn new(dir: String, is_direct: bool, points: Vec<ProfilePoint>) -> Self {
        let fitted = |access| Some((access, fit(&points, access)?));
        let costs = Access::ALL.into_iter().filter_map(fitted).collect();
        Self { dir, is_direct, costs, points }
    }

    /// The measurement with the fewest requests in service that is about as fast as any of this access and size.
    pub fn saturated(&self, access: Access, bytes: Bytes) -> Option<&ProfilePoint> {
        saturated(&self.points, access, bytes)
    }

    /// The most requests of this access that were in service at once.
    pub fn deepest(&self, access: Access) -> Option<u32> {
        self.points.iter().filter(|point| point.access == access).map(|point| point.depth).max()
    }

    /// The smallest requests of this access that were measured one at a time, and from one to the next.
    pub fn alone(&self, access: Access) -> Option<(Bytes, Nanos)> {
        let alone = self.points.iter().filter(|point| point.access == access && point.depth == 1);
        let point = alone.min_by_key(|point| point.bytes)?;
        Some((point.bytes, point.interval()))
    }
}

fn alike(points: &[ProfilePoint], access: Access, bytes: Bytes) -> impl Iterator<Item = &ProfilePoint> {
    points.iter().filter(move |point| point.access == access && point.bytes == bytes)
}

fn saturated(points: &[ProfilePoint], access: Access, bytes: Bytes) -> Option<&ProfilePoint> {
    let most = alike(points, access, bytes).map(|point| point.requests_per_s).fold(0.0, f64::max);
    alike(points, access, bytes)
        .filter(|point| point.requests_per_s >= SATURATED * most)
        .min_by_key(|point| point.depth)
}

fn fit(points: &[ProfilePoint], access: Access) -> Option<FittedCost> {
    let mut sizes: Vec<Bytes> = points.iter().filter(|point| point.access == access).map(|point| point.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let measured: Vec<(Bytes, f64)> = sizes
        .iter()
        .filter_map(|bytes| Some((*bytes, 1e9 / saturated(points, access, *bytes)?.requests_per_s)))
        .filter(|(_, cost_ns)| cost_ns.is_finite())
        .collect();
    let mut learner = CostLearner::new(CostModel::nominal());
    for (bytes, cost_ns) in &measured {
        learner.learn(Nanos::ZERO, *bytes, Nanos(*cost_ns as u64));
    }
    let model = learner.model();
    let off = |(bytes, cost_ns): &(Bytes, f64)| (model.cost(*bytes).0 as f64 / cost_ns - 1.0).abs();
    let error = measured.iter().map(off).sum::<f64>() / measured.len() as f64;
    let (smallest, cost_ns) = measured.first()?;
    let alone = alike(points, access, *smallest).find(|point| point.depth == 1)?;
    let parallel = (1e9 / alone.requests_per_s / cost_ns).round().max(1.0) as u32;
    let deepest = alike(points, access, *smallest).map(|point| point.depth).max();
    let parallel_is_minimum = deepest == saturated(points, access, *smallest).map(|point| point.depth);
    let bandwidth = model.limited_bandwidth();
    Some(FittedCost { per_op: model.per_op, bandwidth, error, parallel, parallel_is_minimum })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of 16 channels, 100 us and 100 MB/s each.
    fn points(access: Access) -> Vec<ProfilePoint> {
        let mut points = Vec::new();
        for bytes in [4 << 10, 64 << 10, 1 << 20] {
            for depth in [1, 2, 4, 8, 16, 32, 64] {
                let takes_s = 100e-6 + bytes as f64 / 100e6;
                let requests_per_s = f64::from(depth.min(16)) / takes_s;
                let took = Nanos((takes_s * 1e9) as u64);
                points.push(ProfilePoint { access, bytes: Bytes(bytes), depth, requests_per_s, p50: took, p99: took });
            }
        }
        points
    }

    #[test]
    fn costs_and_parallelism_are_found() {
        let profile = DeviceProfile::new("/d".into(), true, points(Access::WriteRandom));
        let cost = profile.costs[&Access::WriteRandom];
        assert_eq!(profile.costs.len(), 1);
        assert!((cost.per_op.0 as f64 / 6_250.0 - 1.0).abs() < 0.02, "{cost:?}");
        assert!((cost.bandwidth.unwrap().bytes_per_s() as f64 / 1.6e9 - 1.0).abs() < 0.02, "{cost:?}");
        assert!(cost.error < 0.01 && cost.parallel == 16 && !cost.parallel_is_minimum, "{cost:?}");
        assert_eq!(profile.saturated(Access::WriteRandom, Bytes(4096)).unwrap().depth, 16);
        assert_eq!(profile.alone(Access::WriteRandom), Some((Bytes(4096), Nanos(140_960))));
    }

    #[test]
    fn where_the_most_that_was_tried_did_more_it_serves_at_least_so_many() {
        let mut points = points(Access::ReadRandom);
        points.retain(|point| point.depth <= 2);
        let profile = DeviceProfile::new("/d".into(), true, points);
        let cost = profile.costs[&Access::ReadRandom];
        assert!(cost.parallel == 2 && cost.parallel_is_minimum, "{cost:?}");
        assert_eq!(profile.deepest(Access::ReadRandom), Some(2));
    }

    #[test]
    fn bytes_that_take_no_time_have_no_bandwidth() {
        let mut points = points(Access::ReadRandom);
        points.iter_mut().for_each(|point| point.requests_per_s = 200.0);
        let profile = DeviceProfile::new("/d".into(), true, points);
        let cost = profile.costs[&Access::ReadRandom];
        assert_eq!((cost.bandwidth, cost.per_op), (None, Nanos::from_millis(5)));
        assert_eq!(cost.model().cost(Bytes::mib(1)), Nanos::from_millis(5) + Nanos(1));
        assert!(serde_json::to_value(cost).unwrap()["bandwidth"].is_null());
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let profile = DeviceProfile::new(String::new(), false, Vec::new());
        assert!(profile.costs.is_empty() && profile.saturated(Access::ReadRandom, Bytes(1)).is_none());
    }
}
