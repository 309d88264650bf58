//! What a request costs: the target time that it takes.
//!
//! Sharing is of *service*, not of request counts: 256 requests of 4 KiB weigh as much as one of 1 MiB, plus
//! the fixed part of each. Metadata operations carry no bytes and cost the fixed part alone.

use isonomia_units::{Bytes, Nanos, Rate};

/// The most that one request is charged. A longer one is charged this much.
pub const COST_MAX: Nanos = Nanos::from_secs(3_600);

/// A target's price list: a fixed part for each operation, and bytes at a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Target time of an operation that moves no bytes. Zero lets a job of empty operations pass for free.
    pub per_op: Nanos,
    /// Rate at which bytes pass.
    pub bandwidth: Rate,
}

/// Rate of [`CostModel::nominal`].
const NOMINAL_BANDWIDTH: u64 = 8 << 30;
/// Time of an operation in [`CostModel::nominal`].
const NOMINAL_PER_OP: Nanos = Nanos(1_907);

impl CostModel {
    /// Stands for bytes that take no time of their own. Files have no larger numbers.
    pub const BANDWIDTH_MAX: Rate = Rate::new(i64::MAX as u64).expect("constant");

    /// Rate at which bytes pass, unless they take no time of their own.
    pub fn limited_bandwidth(&self) -> Option<Rate> {
        Some(self.bandwidth).filter(|rate| *rate < Self::BANDWIDTH_MAX)
    }

    /// Of a device of which nothing is known. Shares depend on the ratio of the two parts only: here an operation weighs as
    /// much as 16 KiB.
    pub fn nominal() -> Self {
        Self { per_op: NOMINAL_PER_OP, bandwidth: Rate::new(NOMINAL_BANDWIDTH).expect("constant") }
    }

    /// Target time of one operation that moves `bytes`, at least 1 ns; saturates.
    pub fn cost(&self, bytes: Bytes) -> Nanos {
        let cost = self.per_op + self.bandwidth.time_for(bytes);
        cost.max(Nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mebibyte_and_256_pages_differ_only_by_the_fixed_parts() {
        let model = CostModel { per_op: Nanos::from_micros(5), bandwidth: Rate::new(1 << 30).unwrap() };
        let large = model.cost(Bytes::mib(1)).0;
        let small = 256 * model.cost(Bytes::kib(4)).0;
        assert_eq!(large, 5_000 + 976_563);
        assert_eq!(small, 256 * (5_000 + 3_815));
        assert_eq!(model.cost(Bytes(0)), Nanos(5_000));
    }

    #[test]
    fn nothing_is_free_and_nothing_overflows() {
        let model = CostModel { per_op: Nanos::ZERO, bandwidth: Rate::new(1).unwrap() };
        assert_eq!(model.cost(Bytes(0)), Nanos(1));
        assert_eq!(model.cost(Bytes(u64::MAX)), Nanos::MAX);
    }
}
