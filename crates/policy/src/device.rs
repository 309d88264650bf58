//! What a device is to a policy: the cost of a request, foreseen and as it turns out, how many requests it is given at
//! once, of everybody and of others while some are in a hurry, and a device that is only emulated.

pub mod attribution;
mod capped;
pub mod chunks;
mod cost;
mod depth;
mod depth_spec;
pub(crate) mod latency;
mod learning;
pub mod profile;
pub mod read_ahead;

pub use capped::{CappedDevice, LATE_MAX};
pub use cost::{COST_MAX, CostModel};
pub use depth::{Completion, DepthControl};
pub use depth_spec::{DEPTH_MAX, Depth, DepthSpec, ParseDepthError};
pub use latency::{LatencyReport, Unreachable};
pub use learning::{Access, CostLearner};
