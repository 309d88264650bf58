//! The order in which the blocks of a file are touched.

use crate::task::Order;

/// Every block of a file once, then again from the start.
#[derive(Clone, Debug)]
pub struct Offsets {
    order: Order,
    block_bytes: u64,
    blocks: u64,
    next: u64,
}

impl Offsets {
    /// Blocks of `block_bytes` in a file of `file_bytes`. The number of blocks is rounded down to a power of two.
    pub fn new(order: Order, block_bytes: u64, file_bytes: u64) -> Self {
        let blocks = (file_bytes / block_bytes).max(1);
        Self { order, block_bytes, blocks: 1 << blocks.ilog2(), next: 0 }
    }

    /// Blocks of one pass.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The next offset in bytes.
    pub fn next(&mut self) -> u64 {
        let index = self.next & (self.blocks - 1);
        self.next += 1;
        let block = match self.order {
            Order::Sequential => index,
            Order::Random => scatter(index, self.blocks.ilog2()),
        };
        block * self.block_bytes
    }
}

/// A permutation of the numbers below 2^`bits`: odd factors and shifted xors are one-to-one.
fn scatter(index: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let shift = bits / 2 + 1;
    let mut x = index;
    for factor in [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93] {
        x = x.wrapping_mul(factor) & mask;
        x ^= x >> shift;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_pass_touches_every_block_once(bits in 0u32..14, random: bool) {
            let order = if random { Order::Random } else { Order::Sequential };
            let mut offsets = Offsets::new(order, 4096, 4096 << bits);
            for _ in 0..2 {
                let seen: BTreeSet<u64> = (0..1 << bits).map(|_| offsets.next()).collect();
                let all: BTreeSet<u64> = (0..1 << bits).map(|block| block * 4096).collect();
                prop_assert_eq!(seen, all);
            }
        }
    }

    #[test]
    fn random_order_seldom_goes_to_a_neighbour() {
        let mut offsets = Offsets::new(Order::Random, 1, 1 << 12);
        let all: Vec<u64> = (0..1 << 12).map(|_| offsets.next()).collect();
        let neighbours = all.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 8).count();
        assert!(neighbours < 100, "{neighbours} of 4095");
    }
}
