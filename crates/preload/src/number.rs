//! Numbers of open files: no two alike, in whatever processes they were opened.

use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where this process's numbers begin; drawn at the first open. 0 before.
static BASE: AtomicU64 = AtomicU64::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A number that no other open file has but by a chance of about one in 2^64 for each pair.
pub fn fresh() -> Result<u64, Errno> {
    let mut base = BASE.load(Ordering::Relaxed);
    if base == 0 {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let drawn = u64::from_le_bytes(random) | 1;
        base = BASE.compare_exchange(0, drawn, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(drawn);
    }
    Ok(scattered(base.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))))
}

/// In the child of a fork: the parent goes on with its own.
pub fn begin_anew() {
    BASE.store(0, Ordering::Relaxed);
}

/// A bijection (the finaliser of SplitMix64, Steele et al. 2014) that keeps ranges of two processes from lying side by
/// side.
fn scattered(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_before_and_after_a_fork() {
        let mut seen = std::collections::HashSet::new();
        for round in 0..3 {
            (0..1000).for_each(|_| assert!(seen.insert(fresh().unwrap()), "round {round}"));
            begin_anew();
        }
    }
}
