//! How long requests of a kind take at a target, from which it is guessed who is to serve the next one.

use crate::clock;
use crate::operation::is_slow;
use isonomia_proto::request::Op;
use isonomia_units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A worker may wait this long for a request: less than the cost of handing it to another thread, and of its coming back.
const WAIT_MAX: Nanos = Nanos::from_micros(60);
/// And this long where another worker looks after the connections meanwhile.
const SOON_MAX: Nanos = Nanos(3 * WAIT_MAX.0);
/// Where requests take longer on average, the kernel is asked whether they waited.
const DOUBTFUL: Nanos = Nanos(WAIT_MAX.0 / 4);
/// What a request counts as that did not wait for the device.
const UNDELAYED: Nanos = DOUBTFUL;
/// Longer times count as this.
const TOOK_MAX: Nanos = Nanos(4 * WAIT_MAX.0);
/// The time that the bytes themselves take, at this rate, is left out.
const BYTES_PER_NS: u64 = 1;
/// Weight of one request in the average, as its inverse: one that takes long by chance does not change a guess.
const WEIGHT: u64 = 8;

/// Requests that take about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes come.
    Read,
    /// Bytes go.
    Write,
    /// The metadata's, and locks.
    Other,
    /// The device is told to do something, or asked: never served among what is in memory.
    Flush,
}

impl Kind {
    /// The kind of an operation.
    pub fn of(op: Op) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Write | Op::ReserveAppend => Self::Write,
            op if is_slow(op) => Self::Flush,
            _ => Self::Other,
        }
    }
}

/// How long requests of one kind take.
#[derive(Debug, Default)]
pub struct Pace {
    /// Moving average of the time beyond that for the bytes, in nanoseconds; of longer times [`TOOK_MAX`] counts.
    average_ns: AtomicU64,
    is_slow: AtomicBool,
}

impl Pace {
    /// Whether a worker should not wait for such a request.
    pub fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Whether such a request is known to take no longer than handing it to another thread and back does, a few times over.
    pub fn is_soon(&self) -> bool {
        (1..=SOON_MAX.0).contains(&self.average_ns.load(Ordering::Relaxed))
    }

    /// Has `serve` serve a request, since `begun`, and give how many bytes that moved, and notes how long it takes for want of the device.
    pub fn measure(&self, begun: Nanos, serve: impl FnOnce() -> u64) {
        let is_doubtful = self.average_ns.load(Ordering::Relaxed) > DOUBTFUL.0;
        let before = is_doubtful.then(clock::switches).flatten();
        let bytes = serve();
        let took = clock::now().since(begun);
        let after = before.and_then(|_| clock::switches());
        self.note(delay(took, before.zip(after)), bytes);
    }

    /// A request that moved `bytes` took so long.
    pub fn note(&self, took: Nanos, bytes: u64) {
        let beyond = took.since(Nanos(bytes / BYTES_PER_NS)).min(TOOK_MAX).0;
        let before = self.average_ns.load(Ordering::Relaxed);
        // Two threads may note at once; what one of them says is lost then.
        let average = before - before / WEIGHT + beyond / WEIGHT;
        if average != before {
            self.average_ns.store(average, Ordering::Relaxed);
        }
        // It takes more to change a guess than to keep it.
        let is_slow = self.is_slow();
        let limit = if is_slow { WAIT_MAX.0 / 2 } else { WAIT_MAX.0 };
        if (average > limit) != is_slow {
            self.is_slow.store(!is_slow, Ordering::Relaxed);
        }
    }
}

/// What a request counts as that took so long, between two looks at its thread's [`clock::switches`]. If the thread never waited, what
/// took the time is that others were given its processor, or if it was not long, that caches were cold or the host of a virtual machine
/// was busy: that says nothing of the device.
fn delay(took: Nanos, switches: Option<((i64, i64), (i64, i64))>) -> Nanos {
    match switches {
        Some((before, after)) if before.0 == after.0 && (before.1 < after.1 || took < TOOK_MAX) => took.min(UNDELAYED),
        _ => took,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_single_slow_request_changes_no_guess() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(Nanos::from_micros(3), 4096);
        }
        pace.note(Nanos::from_millis(30), 4096);
        assert!(!pace.is_slow());
        for _ in 0..4 {
            pace.note(Nanos::from_millis(5), 4096);
        }
        assert!(pace.is_slow(), "five of them do");
        for _ in 0..100 {
            pace.note(Nanos::from_micros(3), 4096);
        }
        assert!(!pace.is_slow(), "and it changes back");
    }

    #[test]
    fn a_device_is_waited_for_by_a_worker_only_once_it_is_known_to_be_fast() {
        let pace = Pace::default();
        assert!(!pace.is_soon());
        for _ in 0..100 {
            pace.note(Nanos::from_micros(100), 4096);
        }
        assert!(pace.is_slow() && pace.is_soon());
        for _ in 0..100 {
            pace.note(Nanos::from_millis(1), 4096);
        }
        assert!(!pace.is_soon());
    }

    #[test]
    fn large_requests_may_take_their_time() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(Nanos::from_micros(250), 256 << 10);
        }
        assert!(!pace.is_slow());
        for _ in 0..100 {
            pace.note(Nanos::from_micros(500), 256 << 10);
        }
        assert!(pace.is_slow());
    }

    #[test]
    fn time_for_which_others_had_the_processor_is_not_the_devices() {
        let (short, long) = (Nanos::from_micros(100), Nanos::from_millis(5));
        assert_eq!(delay(long, Some(((3, 7), (3, 8)))), UNDELAYED);
        assert_eq!(delay(short, Some(((3, 7), (3, 7)))), UNDELAYED);
        assert_eq!(delay(long, Some(((3, 7), (3, 7)))), long, "it is slow by itself");
        assert_eq!(delay(short, Some(((3, 7), (4, 8)))), short, "it waited as well");
        assert_eq!(delay(short, None), short);
        let pace = Pace::default();
        (0..100).for_each(|_| pace.note(Nanos::from_millis(5), 4096));
        for _ in 0..100 {
            let long_ago = clock::now() - Nanos::from_millis(5);
            pace.measure(long_ago, || {
                std::thread::park_timeout(Duration::from_micros(200));
                4096
            });
        }
        assert!(pace.is_slow());
    }
}
