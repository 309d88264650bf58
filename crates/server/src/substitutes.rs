//! Threads that stand in for the workers when all of these wait.
//!
//! A worker leaves to an engine what it knows to wait for a device ([`crate::engine`]). What nobody could know still keeps
//! it waiting: the first request to a device that hangs, or a change of the metadata that takes the lock of a file whose
//! bytes are on the way to one. It is then counted out, so that another worker looks after the connections. When that has
//! happened to all of them, a substitute takes requests in and serves them, until a worker is back. It looks at the
//! connections once in a millisecond and takes no part in who sleeps and who is awake: a server in this state is slow, and
//! does not stand still.

mod thread;

use isonomia_units::Nanos;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Substitutes at once at most.
const SUBSTITUTES_MAX: usize = 16;
/// A thread that has been serving one request for this long waits for something.
const WAITING_AFTER: Nanos = Nanos::from_millis(50);
/// Instead of a time: the thread serves nothing.
const IDLE: u64 = 0;
/// Instead of a time: there is no such thread.
const ABSENT: u64 = u64::MAX;
/// Beside a time: the thread is not counted among those that are awake while it serves this.
const COUNTED_OUT: u64 = 1 << 63;

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of this thread, if it is a worker.
pub fn worker_number() -> Option<usize> {
    NUMBER.get()
}

/// This thread is that worker.
pub fn be_worker(number: usize) {
    NUMBER.set(Some(number));
}

/// Since when each worker, and then each substitute, has been serving what it serves.
#[derive(Debug)]
pub struct Serving {
    since: Box<[AtomicU64]>,
    workers: usize,
}

impl Serving {
    /// Of so many workers.
    pub fn new(workers: usize) -> Self {
        let slot = |index| AtomicU64::new(if index < workers { IDLE } else { ABSENT });
        Self { since: (0..workers + SUBSTITUTES_MAX).map(slot).collect(), workers }
    }

    /// Thread `number` begins to serve.
    pub fn begin(&self, number: usize, now: Nanos) {
        self.since[number].store(now.0, Ordering::Release);
    }

    /// It has served; true the first time if it was counted out meanwhile.
    pub fn end(&self, number: usize) -> bool {
        self.since[number].swap(IDLE, Ordering::AcqRel) & COUNTED_OUT != 0
    }

    /// Counts out a thread that serves; false if it serves nothing, or is counted out already.
    pub fn count_out(&self, number: usize) -> bool {
        let since = self.since[number].load(Ordering::Acquire);
        self.count_out_at(number, since)
    }

    /// The same, if it still waits.
    pub fn count_out_since(&self, number: usize, now: Nanos) -> bool {
        let since = self.since[number].load(Ordering::Acquire);
        waits(since, now) && self.count_out_at(number, since)
    }

    fn count_out_at(&self, number: usize, since: u64) -> bool {
        let counted = since | COUNTED_OUT;
        // Whoever has just ended, and began something else, has another time.
        since != IDLE
            && since & COUNTED_OUT == 0
            && self.since[number].compare_exchange(since, counted, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The workers that wait for something.
    pub fn who_waits(&self, now: Nanos) -> impl Iterator<Item = usize> {
        (0..self.workers).filter(move |number| waits(self.since[*number].load(Ordering::Acquire), now))
    }

    /// The number of a substitute that is needed now, and counts as there from now on.
    pub fn call(&self, now: Nanos) -> Option<usize> {
        let is_free = |since: u64| since != ABSENT && !waits(since, now);
        if self.since.iter().any(|since| is_free(since.load(Ordering::Relaxed))) {
            return None;
        }
        let number = self.since.iter().position(|since| since.load(Ordering::Relaxed) == ABSENT)?;
        self.since[number].store(IDLE, Ordering::Release);
        Some(number)
    }

    /// Whether a worker is back.
    fn is_worker_free(&self, now: Nanos) -> bool {
        self.since[..self.workers].iter().any(|since| !waits(since.load(Ordering::Relaxed), now))
    }

    /// Whether any substitute is there.
    pub fn has_substitutes(&self) -> bool {
        self.since[self.workers..].iter().any(|since| since.load(Ordering::Relaxed) != ABSENT)
    }

    fn dismiss(&self, number: usize) {
        self.since[number].store(ABSENT, Ordering::Relaxed);
    }
}

/// Whether a thread that has been serving since then waits for something.
fn waits(since: u64, now: Nanos) -> bool {
    since != IDLE && now.since(Nanos(since & !COUNTED_OUT)) > WAITING_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_substitute_is_called_when_nobody_is_left() {
        let serving = Serving::new(2);
        let (then, now) = (Nanos::from_secs(1), Nanos::from_secs(2));
        serving.begin(0, then);
        assert_eq!(serving.call(now), None, "the other looks after everything");
        serving.begin(1, now);
        assert_eq!(serving.call(now), None, "it has just begun");
        let later = now + Nanos::from_millis(60);
        assert_eq!(serving.call(later), Some(2));
        assert_eq!(serving.call(later), None, "the substitute does");
        serving.begin(2, now);
        assert_eq!(serving.call(later), Some(3), "until it waits, too");
        assert!(!serving.is_worker_free(later));
        assert!(serving.count_out(1) && !serving.count_out(1) && !serving.count_out_since(1, later), "once");
        assert!(serving.who_waits(later).eq([0, 1]) && !serving.is_worker_free(later));
        assert!(serving.end(1) && !serving.end(1) && !serving.count_out(1));
        assert!(serving.is_worker_free(later));
        serving.dismiss(3);
        assert_eq!(serving.call(later), None);
    }

    #[test]
    fn there_is_an_end_to_substitutes() {
        let serving = Serving::new(1);
        serving.begin(0, Nanos(1));
        for number in 1..=SUBSTITUTES_MAX {
            assert_eq!(serving.call(Nanos::from_secs(1)), Some(number));
            serving.begin(number, Nanos(1));
        }
        assert_eq!(serving.call(Nanos::from_secs(1)), None);
    }
}
