//! The clock that all processes of this machine share.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A sleep ends late by about this much; the rest of a wait is spent looking at the clock.
const WAKE_UP_NS: u64 = 200_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns at `at_ns` or right after.
pub fn wait_until(at_ns: u64) {
    let ahead_ns = at_ns.saturating_sub(now_ns());
    std::thread::sleep(Duration::from_nanos(ahead_ns.saturating_sub(WAKE_UP_NS)));
    while now_ns() < at_ns {
        std::hint::spin_loop();
    }
}
