//! Stripe count and stripe size of a file that many processes share.

use isonomia_units::Bytes;
use std::num::{NonZeroU32, NonZeroU64};

/// How a shared file is striped (TAPP-IO §III.A, Algorithm 1, lines 10 and 11): as many stripes as writers, so that
/// each writer has a stripe, and so a target, of its own; each writer's block is contiguous (Fig. 1, layout 1).
///
/// Deviations: the paper wants as many stripes as writers where that is possible; here there are at most as many as
/// targets. The stripe size is rounded up to a whole number of units, which file systems ask for (Lustre 64 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLayout {
    /// How many stripes the file has, each on a target of its own.
    pub stripe_count: NonZeroU32,
    /// Bytes of each stripe, at least a unit; the file is `stripe_count` of these or less.
    pub stripe_size: Bytes,
}

impl SharedLayout {
    /// The layout of a file that will have `file_size`, which the application has to say before, written by `writers`
    /// on `targets`. Saturates at 2^64 − 1 bytes of stripe size.
    pub fn new(file_size: Bytes, writers: NonZeroU32, targets: NonZeroU32, unit: NonZeroU64) -> Self {
        let stripe_count = writers.min(targets);
        let units = file_size.0.div_ceil(u64::from(stripe_count.get())).div_ceil(unit.get()).max(1);
        Self { stripe_count, stripe_size: Bytes(units.saturating_mul(unit.get())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: u64, writers: u32, targets: u32, unit: u64) -> (u32, u64) {
        let count = |n| NonZeroU32::new(n).expect("not zero");
        let unit = NonZeroU64::new(unit).expect("not zero");
        let layout = SharedLayout::new(Bytes(size), count(writers), count(targets), unit);
        (layout.stripe_count.get(), layout.stripe_size.0)
    }

    #[test]
    fn layouts_by_hand() {
        // Fig. 1: 32 writers of 1 MiB each.
        assert_eq!(layout(32 << 20, 32, 1008, 65_536), (32, 1 << 20));
        // More writers than targets, and a size that does not divide: 100 / 3 is 33.3, in tens 40.
        assert_eq!(layout(100, 8, 3, 10), (3, 40));
        // Nothing to write takes a unit all the same, as no stripe is empty.
        assert_eq!(layout(0, 4, 4, 10), (4, 10));
        assert_eq!(layout(u64::MAX, 1, 1, 65_536), (1, u64::MAX));
    }
}
