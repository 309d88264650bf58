//! How long two processors take to hand a word of memory to each other and back.
//!
//! A request through shared memory is a few such hand-overs, so small requests are as fast as these. They differ by a factor
//! of five between processors with a cache in common and without, and a virtual machine's host may move its processors from
//! one to the other at any time: two measurements compare only if this was the same.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Round trips that are measured: some milliseconds.
const ROUNDS: u32 = 20_000;
/// Where processors are too busy for that, this long.
const TIME_MAX: Duration = Duration::from_millis(200);

/// Looks at the word from one look at the clock to the next.
const LOOKS: u32 = 1 << 12;

/// A word in a cache line of its own.
#[repr(align(128))]
struct Word(AtomicU32);

/// A round trip between two processors that this process may use, in nanoseconds; `None` if there is one only, or others keep
/// them busy.
pub fn round_trip_ns() -> Option<f64> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (one, other) = (usable.next()?, usable.next()?);
    let word = Word(AtomicU32::new(0));
    std::thread::scope(|scope| {
        // Both are threads of their own, so that this one stays where it may be.
        let echo = scope.spawn(|| run(&word.0, other, 1));
        let lead = scope.spawn(|| run(&word.0, one, 0));
        let took = lead.join().ok()??;
        echo.join().ok()??;
        Some(took.as_nanos() as f64 / f64::from(ROUNDS))
    })
}

/// Says each number from `first` on in steps of 2, when the word is at the one before; how long that took. `None` if it took
/// too long.
fn run(word: &AtomicU32, cpu: usize, first: u32) -> Option<Duration> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).ok()?;
    let begun = Instant::now();
    let mut looks: u32 = 0;
    for number in (first..2 * ROUNDS).step_by(2) {
        while word.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
            looks = looks.wrapping_add(1);
            // A look at the clock takes as long as a hand-over.
            if looks.is_multiple_of(LOOKS) && begun.elapsed() > TIME_MAX {
                return None;
            }
        }
        word.store(number + 1, Ordering::Release);
    }
    Some(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_goes_to_and_fro_or_nothing_is_told() {
        assert!(round_trip_ns().is_none_or(|ns| ns > 0.0 && ns < TIME_MAX.as_nanos() as f64));
    }
}
