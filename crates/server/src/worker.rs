//! The worker threads: each takes requests in, asks the targets whose turn it is, and serves.
//!
//! A worker without work spins, then yields, then sleeps. As long as one is awake it looks after the hot
//! connections. Before the last one sleeps, it has the clients of all of them wake it by a bell.

use crate::clock;
use crate::core::Core;
use crate::fetch;
use crate::processors::Place;
use crate::substitutes::be_worker;
use crate::target::Action;
use isonomia_units::Nanos;
use std::sync::atomic::Ordering;

/// Rounds without work before the first yield: so many that the client of a busy connection has its next request posted
/// by then. More of them keep a client, or a mount and its program, from the processor that they share with the worker.
const SPINS: u32 = 10;
/// How long a worker yields before it sleeps: longer than a client does, so that the client of a busy connection
/// seldom has to ring.
const YIELD_FOR: Nanos = Nanos::from_micros(100);
/// Waking up from a sleep takes about this long; a shorter wait is spent yielding.
const WAKE_UP: Nanos = Nanos::from_micros(80);
/// The longest sleep. Everything that matters wakes a worker earlier, by the bell.
const SLEEP_MAX: Nanos = Nanos::from_secs(1);

/// What a worker does until the server stops.
pub fn run(core: &Core, number: usize) {
    be_worker(number);
    core.begin_fetches(number);
    let mut place = Place::new(number);
    let mut scratch = Vec::new();
    let mut idle_rounds = 0;
    let mut idle_since = Nanos::ZERO;
    let mut is_called = false;
    while !core.is_stopping.load(Ordering::Relaxed) {
        let now = clock::now();
        // A worker that another one can do without only finishes the reads that it has under way, unless it was woken for more.
        let is_to_spare = !is_called && fetch::are_under_way() && core.has_worker_to_spare(now);
        is_called = false;
        let (taken_in, now) = if is_to_spare { (false, now) } else { core.take_in(now) };
        let arrivals = core.arrivals.load(Ordering::Acquire);
        let (mut served, mut until) = (false, Nanos::MAX);
        if !is_to_spare {
            (served, until) = serve_one_each(core, number, now, &mut scratch);
            let mut gathered = 0;
            while fetch::gathered().is_some_and(|count| count > std::mem::replace(&mut gathered, count)) {
                (_, until) = serve_one_each(core, number, clock::now(), &mut scratch);
            }
        }
        served |= core.advance_fetches(&mut scratch);
        core.phases.look(&core.bell);
        let has_one_to_spare = core.has_worker_to_spare(now);
        if !has_one_to_spare || fetch::are_under_way() {
            place.keep_apart(&core.processors, now);
        }
        if has_one_to_spare {
            let slept = sleep(core, number, now, until, arrivals, !is_to_spare && !served);
            if slept != Slept::Not {
                place.was_woken();
                is_called = slept == Slept::Called;
                idle_rounds = 0;
                continue;
            }
        }
        if taken_in || served || is_to_spare {
            idle_rounds = 0;
            continue;
        }
        idle_rounds += 1;
        if idle_rounds == 1 {
            idle_since = now;
        }
        if idle_rounds <= SPINS {
            std::hint::spin_loop();
        } else if now.since(idle_since) < YIELD_FOR || is_close(until, now) {
            rustix::thread::sched_yield();
        } else {
            let slept = sleep(core, number, now, until, arrivals, true);
            if slept != Slept::Not {
                place.was_woken();
                is_called = slept == Slept::Called;
                idle_rounds = 0;
            }
        }
    }
    core.end_fetches();
}

/// Serves at most one request of each target, and before them a few control messages of other servers, a request that waited for
/// memory, and a read that a thread of an engine has left; true if there was anything, and the time at which to ask again.
pub fn serve_one_each(core: &Core, number: usize, now: Nanos, scratch: &mut Vec<u8>) -> (bool, Nanos) {
    let mut served = core.cluster.get().is_some_and(|cluster| cluster.answer_control(core));
    if let Some(work) = core.stalls.next_ready()
        && let Some(target) = core.target_of(work.pending.op, &work.pending.header)
    {
        core.serving.begin(number, now);
        core.begin(target, work, now, scratch);
        core.worker_has_served(number);
        served = true;
    }
    if let Some((target, work)) = core.fetches.next_handed() {
        core.serving.begin(number, now);
        core.begin(&core.targets[target], work, now, scratch);
        core.worker_has_served(number);
        served = true;
    }
    let mut until = Nanos::MAX;
    let count = core.targets.len();
    for index in 0..count {
        // Workers begin at different targets, so that they seldom meet at one lock.
        let target = &core.targets[(number + index) % count];
        if target.is_empty() {
            continue;
        }
        match target.next_action(now) {
            Action::Serve(work) => {
                let begun = if served { clock::now() } else { now };
                core.serving.begin(number, begun);
                core.begin(target, work, begun, scratch);
                core.worker_has_served(number);
                served = true;
            }
            Action::Answer(answer) => {
                core.answer_served(&answer, now);
                served = true;
            }
            Action::WriteBack(chunk, id) => {
                core.begin_chunk(target, chunk, id, scratch);
                served = true;
            }
            Action::ReadAhead(piece, id) => {
                core.begin_piece(target, piece, id, scratch);
                served = true;
            }
            Action::Scrub(finish_at) => {
                core.begin_scrub(target, finish_at, scratch);
                served = true;
            }
            Action::Scrubbed(scrubbing) => {
                core.scrubbed(target, &scrubbing, now);
                served = true;
            }
            Action::KeepFree(job, at) => {
                served |= core.write_back_more(target, job, now);
                until = until.min(at);
            }
            Action::WaitUntil(at) => until = until.min(at),
            Action::Idle => {}
        }
    }
    (served, until)
}

fn is_close(until: Nanos, now: Nanos) -> bool {
    until.since(now) < WAKE_UP && until != Nanos::MAX
}

/// What came of a worker's wish to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// There was no time to.
    Not,
    /// Until it was time, or reads of its own came.
    Well,
    /// Until something came that is for any worker.
    Called,
}

/// Sleeps until a bell wakes it or `until` is near. `arrivals` is what the count was before `until` was found out; whoever
/// has not looked whose turn it is since then, or found something (`found_nothing`), must not be the last to sleep.
fn sleep(core: &Core, number: usize, now: Nanos, until: Nanos, arrivals: u64, found_nothing: bool) -> Slept {
    let awake = core.awake.load(Ordering::Acquire);
    if awake <= 1 && !(found_nothing && core.leave_all()) {
        return Slept::Not;
    }
    // In this order: a worker that looks away from the connections either finds this one asleep and rings, or
    // makes the exchange fail, and who is the last has to be found out anew.
    core.asleep.fetch_add(1, Ordering::AcqRel);
    let slept = core.awake.compare_exchange(awake, awake - 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // An answer on a stream may bring the next request at once, and the worker that queued it may be asleep by now.
    let is_outdated = awake <= 1 && core.arrivals.load(Ordering::Acquire) != arrivals;
    let mut came_of_it = Slept::Not;
    if slept && is_outdated {
        core.awake.fetch_add(1, Ordering::AcqRel);
    } else if slept {
        core.processors.leave(number);
        let near = Nanos(until.0.saturating_sub(WAKE_UP.0 / 2)).since(now);
        let is_called = core.sleep_for(now, near.min(SLEEP_MAX));
        came_of_it = if is_called { Slept::Called } else { Slept::Well };
        core.awake.fetch_add(1, Ordering::AcqRel);
    }
    core.asleep.fetch_sub(1, Ordering::AcqRel);
    came_of_it
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::tests::Fixture;

    #[test]
    fn who_has_not_found_that_there_is_nothing_is_not_the_last_to_sleep() {
        let fixture = Fixture::new();
        let core = &fixture.core;
        let (now, arrivals) = (clock::now(), core.arrivals.load(Ordering::Acquire));
        core.awake.store(1, Ordering::SeqCst);
        assert_eq!(sleep(core, 0, now, Nanos::MAX, arrivals, false), Slept::Not);
        // Nor does who looked before something came.
        core.has_arrived();
        assert_eq!(sleep(core, 0, now, Nanos::MAX, arrivals, true), Slept::Not);
        assert_eq!(core.awake.load(Ordering::SeqCst), 1);
        assert_eq!(core.asleep.load(Ordering::SeqCst), 0);
        // One of two may go, until somebody rings.
        core.awake.store(2, Ordering::SeqCst);
        core.ring();
        Place::new(0).keep_apart(&core.processors, now);
        assert!(core.processors.knows(0));
        assert_eq!(sleep(core, 0, now, Nanos::MAX, arrivals, false), Slept::Called);
        assert!(!core.processors.knows(0), "others need not keep off where it slept");
        assert_eq!(core.awake.load(Ordering::SeqCst), 2);
    }
}
