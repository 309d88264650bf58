//! On which processor a thread of the mount runs.
//!
//! A program that waits for the mount leaves its processor idle. There the thread that serves it runs best: no halted
//! processor has to be woken for the answer. A scheduler does not see to that: of threads that look for work and give
//! their processor to each other again and again, it has no reason to move any.

use crate::caller::stat_field;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A thread asks where a program runs once in so long: what it costs is then lost among the requests.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// "CPU number last executed on", in proc_pid_stat(5).
const PROCESSOR: usize = 39;

thread_local! {
    static ASKED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// To be called by a thread that serves a request of thread `pid`: moves it to the processor on which that ran last, if
/// it may run there, now and then.
pub fn follow_program(pid: u32) {
    let now = Instant::now();
    if ASKED_AT.get().is_some_and(|at| now.duration_since(at) < ASK_EVERY) {
        return;
    }
    ASKED_AT.set(Some(now));
    if let Some(processor) = processor_of(pid).filter(|processor| *processor != sched_getcpu()) {
        move_to(processor);
    }
}

/// Moves this thread. Where that fails, for instance because there are more processors than a set has room for, it stays.
fn move_to(processor: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if processor >= CpuSet::MAX_CPU || !allowed.is_set(processor) {
        return;
    }
    let mut there = CpuSet::new();
    there.set(processor);
    if sched_setaffinity(None, &there).is_ok() {
        // It goes on there, until the scheduler finds a better one.
        let _ = sched_setaffinity(None, &allowed);
    }
}

/// The processor on which thread `pid` ran last.
fn processor_of(pid: u32) -> Option<usize> {
    stat_field(pid, PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn processors(set: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    #[test]
    fn a_thread_that_waits_is_found_where_it_was_put() {
        let allowed = sched_getaffinity(None).unwrap();
        for processor in processors(&allowed) {
            let (put, is_put) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                let mut there = CpuSet::new();
                there.set(processor);
                sched_setaffinity(None, &there).unwrap();
                put.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                let _ = ended.recv();
            });
            assert_eq!(processor_of(is_put.recv().unwrap()), Some(processor));
            drop(end);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_thread_that_moved_may_run_where_it_might_before() {
        let allowed = sched_getaffinity(None).unwrap();
        for processor in processors(&allowed).into_iter().chain([CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU]) {
            move_to(processor);
            assert_eq!(processors(&sched_getaffinity(None).unwrap()), processors(&allowed));
        }
    }
}
