//! The server's clocks: the one module where time is read.

use isonomia_proto::fs::Timestamp;
use isonomia_units::Nanos;
use nix::sys::resource::{UsageWho, getrusage};

/// Monotonic time since the machine started: what arbiters and statistics count in.
pub fn now() -> Nanos {
    isonomia_transport::monotonic_now()
}

/// How often this thread has waited for something and left its processor to others, and how often others were given the processor
/// while it had more to do; `None` where the kernel does not tell.
pub fn switches() -> Option<(i64, i64)> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    Some((usage.voluntary_context_switches(), usage.involuntary_context_switches()))
}

/// The time of day, for file times. The coarse clock costs 5 ns and is what local file systems use.
pub fn wall() -> Timestamp {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::new(t.tv_sec, t.tv_nsec as u32).unwrap_or_default()
}

/// The time of day in nanoseconds since 1970, as exactly as the host knows it.
pub fn wall_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// A number that grows by less than 2^24 in a second, from each start of a server to the next.
pub fn wall_number() -> u64 {
    let now = wall();
    (now.secs.unsigned_abs() << 24) | u64::from(now.nanos >> 6)
}
