//! What the host is asked for the sake of speed alone, as long as it takes no longer than that is worth.

use crate::clock;
use isonomia_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// One time changes the average by one part in so many, …
const WEIGHT: u64 = 8;
/// … and so does one that was refused.
const REFUSED_WEIGHT: u64 = 64;
/// Longer than so many times what is allowed counts as that.
const COUNTED_TIMES: u64 = 16;

/// How long the host took for some advice of late.
#[derive(Debug, Default)]
pub struct TimedAdvice {
    /// On average, in nanoseconds.
    took_ns: AtomicU64,
}

impl TimedAdvice {
    /// Whether the host takes no longer than `most` on average. If it does it is asked once in a while.
    pub fn may_ask(&self, most: Nanos) -> bool {
        let took_ns = self.took_ns.load(Ordering::Relaxed);
        if took_ns <= most.0 {
            return true;
        }
        // Two threads may ask at once; it is tried a moment earlier or later then.
        self.took_ns.store(took_ns - took_ns / REFUSED_WEIGHT, Ordering::Relaxed);
        false
    }

    /// Has `ask` ask the host, and notes how long that takes.
    pub fn measure(&self, most: Nanos, ask: impl FnOnce()) {
        let begun = clock::now();
        ask();
        let took_ns = clock::now().since(begun).0.min(most.0.saturating_mul(COUNTED_TIMES));
        let before = self.took_ns.load(Ordering::Relaxed);
        self.took_ns.store(before - before / WEIGHT + took_ns / WEIGHT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_takes_the_host_long_it_is_asked_once_in_a_while() {
        const MOST: Nanos = Nanos::from_secs(60);
        let advice = TimedAdvice::default();
        advice.measure(MOST, || ());
        assert!(advice.may_ask(MOST));
        advice.took_ns.store(COUNTED_TIMES * MOST.0, Ordering::Relaxed);
        let refused = (0..1_000).take_while(|_| !advice.may_ask(MOST)).count();
        assert!((100..200).contains(&refused), "{refused}");
        // One time that is short is not yet reason enough to do so each time.
        advice.took_ns.store(2 * MOST.0, Ordering::Relaxed);
        advice.measure(MOST, || ());
        assert!(!advice.may_ask(MOST));
    }
}
