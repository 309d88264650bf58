//! On which processors the workers run.
//!
//! A device with one queue interrupts one processor, and whoever sleeps until it is done is woken there. So workers that wait for devices gather on
//! that processor, and take turns on it while another one has little to do. A scheduler hardly sees to that: the other
//! processor is never idle for long, because the programs that are answered run on it for some microseconds each. So a worker that
//! finds another one on its processor goes to a processor without any.

use isonomia_units::Nanos;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A worker that is awake looks where the others are once in so long, and moves no more often. Moving takes some tens of microseconds, and the
/// scheduler may have reasons to move it back.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);
/// Instead of a processor: the worker sleeps.
const NONE: usize = usize::MAX;

/// Where each worker was when it last looked.
#[derive(Debug)]
pub struct Processors(Box<[AtomicUsize]>);

impl Processors {
    /// Of so many workers, which sleep.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| AtomicUsize::new(NONE)).collect())
    }

    /// Worker `number` sleeps: nobody has to keep off its processor.
    pub fn leave(&self, number: usize) {
        self.0[number].store(NONE, Ordering::Relaxed);
    }

    /// Worker `number` is on `processor`. True if it is to go, because another one is there.
    fn enter(&self, number: usize, processor: usize) -> bool {
        self.0[number].store(processor, Ordering::Relaxed);
        // Of two the one with the lower number stays.
        self.0[..number].iter().any(|other| other.load(Ordering::Relaxed) == processor)
    }

    /// Whether worker `number` is known to be on a processor.
    #[cfg(test)]
    pub fn knows(&self, number: usize) -> bool {
        self.0[number].load(Ordering::Relaxed) != NONE
    }

    /// Those of `allowed` that have no worker.
    fn free(&self, mut allowed: CpuSet) -> CpuSet {
        for taken in self.0.iter().map(|worker| worker.load(Ordering::Relaxed)).filter(|one| *one < CpuSet::MAX_CPU) {
            allowed.unset(taken);
        }
        allowed
    }
}

/// What a worker knows of where it runs.
#[derive(Debug)]
pub struct Place {
    number: usize,
    looked_at: Nanos,
    moved_at: Nanos,
}

impl Place {
    /// Of worker `number`.
    pub fn new(number: usize) -> Self {
        Self { number, looked_at: Nanos::ZERO, moved_at: Nanos::ZERO }
    }

    /// It was woken, perhaps on another processor than before.
    pub fn was_woken(&mut self) {
        self.looked_at = Nanos::ZERO;
    }

    /// Now and then looks whether another worker is on this processor, and goes to a free one then, if there is any on which it may run.
    pub fn keep_apart(&mut self, processors: &Processors, now: Nanos) {
        if now.since(self.looked_at) < LOOK_EVERY {
            return;
        }
        self.looked_at = now;
        if !processors.enter(self.number, sched_getcpu()) || now.since(self.moved_at) < LOOK_EVERY {
            return;
        }
        self.moved_at = now;
        if let Some(there) = move_to_free(processors) {
            // Another one may have gone there meanwhile: that is seen next time.
            processors.enter(self.number, there);
        }
    }
}

/// Moves this thread to a processor without a worker, which the kernel chooses by chance; tells which. Where there is none the thread stays, as it does where
/// moving is not possible, for instance because there are more processors than a set has room for.
fn move_to_free(processors: &Processors) -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let free = processors.free(allowed);
    if free.count() == 0 || sched_setaffinity(None, &free).is_err() {
        return None;
    }
    let there = sched_getcpu();
    // It goes on there, until the scheduler finds a better one. The kernel remembers the set: should the server's control group be given more
    // processors later, this thread, and those that it starts, do not go there.
    let _ = sched_setaffinity(None, &allowed);
    Some(there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_testbed::skip;

    fn of(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    /// Runs `test` in a thread that begins on `processor`, and may run wherever this one may.
    fn on(processor: usize, test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let allowed = sched_getaffinity(None).unwrap();
                sched_setaffinity(None, &of(&[processor])).unwrap();
                test();
                assert_eq!(sched_getaffinity(None).unwrap(), of(&[processor]), "nothing else is allowed afterwards");
                sched_setaffinity(None, &allowed).unwrap();
            });
        });
    }

    #[test]
    fn of_two_on_one_processor_the_one_with_the_lower_number_stays() {
        let processors = Processors::new(3);
        assert!(!processors.enter(1, 7), "the others sleep");
        assert!(!processors.enter(0, 7));
        assert!(processors.enter(1, 7));
        assert!(!processors.enter(1, 8));
        assert!(processors.enter(2, 8) && processors.enter(2, 7));
        processors.leave(0);
        assert!(!processors.enter(2, 7), "who sleeps is on none");
    }

    #[test]
    fn free_is_what_is_allowed_and_has_no_worker() {
        let processors = Processors::new(3);
        assert_eq!(processors.free(of(&[1, 4])), of(&[1, 4]));
        processors.enter(0, 4);
        processors.enter(1, 5);
        processors.enter(2, CpuSet::MAX_CPU);
        assert_eq!(processors.free(of(&[1, 4])), of(&[1]));
    }

    #[test]
    fn a_worker_stays_where_no_other_processor_is_allowed() {
        let Ok(allowed) = sched_getaffinity(None) else { return skip("more processors than a set has room for") };
        for processor in all(&allowed).into_iter().take(2) {
            on(processor, || {
                let processors = Processors::new(2);
                processors.enter(0, processor);
                Place::new(1).keep_apart(&processors, LOOK_EVERY);
                assert_eq!(sched_getcpu(), processor);
                assert_eq!(processors.0[1].load(Ordering::Relaxed), processor, "others know where it is");
            });
        }
    }

    fn all(set: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    /// Workers on all of these processors, the first ones, and another one that sleeps.
    fn taken(all: &[usize]) -> Processors {
        let processors = Processors::new(all.len() + 1);
        for (number, processor) in all.iter().enumerate() {
            assert!(!processors.enter(number, *processor));
        }
        processors
    }

    #[test]
    fn a_worker_goes_to_the_processor_that_no_other_one_has() {
        let Ok(allowed) = sched_getaffinity(None) else { return skip("more processors than a set has room for") };
        let all = all(&allowed);
        let processors = taken(&all);
        for (number, free) in all.iter().enumerate() {
            processors.leave(number);
            assert_eq!(move_to_free(&processors), Some(*free));
            // Where it is by now is the scheduler's business; it may run wherever it might.
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            processors.enter(number, *free);
        }
        assert_eq!(move_to_free(&processors), None);
    }

    #[test]
    fn a_worker_moves_no_more_often_than_it_looks() {
        let Ok(allowed) = sched_getaffinity(None) else { return skip("more processors than a set has room for") };
        let all = all(&allowed);
        let processors = taken(&all);
        let (mut place, now) = (Place::new(all.len()), Nanos::from_secs(1));
        place.keep_apart(&processors, now);
        assert_eq!(place.moved_at, now, "it tried");
        place.was_woken();
        place.keep_apart(&processors, now + Nanos::from_micros(999));
        assert_eq!(place.moved_at, now);
        place.was_woken();
        place.keep_apart(&processors, now + LOOK_EVERY);
        assert_eq!(place.moved_at, now + LOOK_EVERY);
    }

    #[test]
    fn a_worker_looks_once_in_a_while_and_when_it_was_woken() {
        let here = sched_getcpu();
        let processors = Processors::new(1);
        let is_known = || processors.knows(0);
        let (mut place, now) = (Place::new(0), Nanos::from_secs(1));
        place.keep_apart(&processors, now);
        assert!(is_known(), "it is on {here} or another one");
        processors.leave(0);
        place.keep_apart(&processors, now + Nanos::from_micros(999));
        assert!(!is_known());
        place.was_woken();
        place.keep_apart(&processors, now + Nanos::from_micros(999));
        assert!(is_known());
    }
}
