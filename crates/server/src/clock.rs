//! The server's clocks: the one place where time is read.

use isonomia_proto::fs::Timestamp;
use isonomia_units::Nanos;

/// Monotonic time since the machine started: what arbiters and statistics count in.
pub fn now() -> Nanos {
    isonomia_transport::monotonic_now()
}

/// The time of day, for file times. The coarse clock costs 5 ns and is what local file systems use.
pub fn wall() -> Timestamp {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::new(t.tv_sec, t.tv_nsec as u32).unwrap_or_default()
}
