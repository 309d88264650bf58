//! Short reads that wait for a device, without a thread for each.
//!
//! A worker whose read is not in memory has the kernel bring its pages there ([`Ring`]), several requests in one call, and serves
//! others meanwhile. When the pages have come it serves the read as one that is in memory, and answers: nothing goes from
//! thread to thread. Where the kernel has no ring for this process, and for whatever is not in memory even then (checksums,
//! damage, an object that was cut), there are the threads of the target's engine.
//!
//! A worker may be kept waiting by something that nobody foresaw, such as a call that should not have waited, for a device that
//! hangs. What it has under way is then given to the engines ([`Core::rescue_fetches`]), so that requests to other devices do not
//! wait for it, too. The kernel's word on these comes to nobody.

mod ring;

use crate::clock;
use crate::core::Core;
use crate::engine::{Kind, Task};
use crate::execute::{self, Tried};
use crate::fetches::{FETCHES_MAX, Fetch};
use crate::requests::Work;
use crate::target::Target;
use isonomia_units::{Bytes, Nanos};
use ring::Ring;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;

/// Requests that the kernel is asked for in one call: more of them would keep the first ones waiting.
const ASKED_MAX: usize = 8;
/// What the kernel has done when it was asked for so little time, for each request, was in memory: this is less than it takes to ask a device. In
/// longer a device may have done it, which is charged for.
const AT_ONCE_MAX: Nanos = Nanos::from_micros(2);
/// As much at least: the clock is looked at, and a call made.
const AT_ONCE_LEAST: Nanos = Nanos::from_micros(10);
/// What the kernel has not taken, for want of memory, it is asked for again after this time.
const ASK_AGAIN: Nanos = Nanos::from_millis(1);
/// Reads that are answered before the worker looks at the connections again: those who have theirs are to have their next
/// ones on the way to the device soon.
const ANSWERED_MAX: usize = 4;

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// What a worker keeps for itself.
struct Own {
    number: usize,
    ring: Ring,
    /// Entries of its table that are free.
    free: Vec<usize>,
    /// Those that the kernel has not been asked for yet.
    fresh: Vec<usize>,
    /// Those whose pages have come.
    ready: VecDeque<usize>,
}

/// Whether this thread has reads under way.
pub fn are_under_way() -> bool {
    OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.free.len() < FETCHES_MAX))
}

/// How much this thread has gathered to ask the kernel for; `None` if it may not add to it.
pub fn gathered() -> Option<usize> {
    OWN.with_borrow(|own| own.as_ref().map(|own| own.fresh.len()).filter(|count| *count < ASKED_MAX))
}

impl Core {
    /// This thread is worker `number`, and may have reads under way from now on.
    pub fn begin_fetches(&self, number: usize) {
        match Ring::new(FETCHES_MAX as u32, &self.epoll) {
            Ok(ring) => {
                let free = (0..FETCHES_MAX).rev().collect();
                OWN.set(Some(Own { number, ring, free, fresh: Vec::new(), ready: VecDeque::new() }));
                self.fetches.begun();
            }
            Err(error) => self.fetches.refused(&error),
        }
    }

    /// This thread ends: what it has under way is finished by the engines.
    pub fn end_fetches(&self) {
        if let Some(own) = OWN.take() {
            self.fetches.ended();
            self.rescue_from(own.number);
        }
    }

    /// Whether asking the kernel is the first thing to do: reads of this job and target mostly wait for the device, or some do, and this one will,
    /// of whose block more may be wanted.
    pub fn expects_fetch(&self, target: &Target, work: &Work) -> bool {
        let misses = &work.pending.connection.job.misses;
        target.prices.is_some()
            && (misses.are_most()
                || misses.are_some() && target.read_ahead.is_some() && self.fetches.are_on() && self.is_missing(work))
    }

    /// Has the kernel bring what a read waits for to memory; gives it back where that is not possible, or not all. `is_begun` if trying it
    /// had the host begin to read.
    pub fn fetch(&self, target: &Target, mut work: Box<Work>, is_begun: bool) -> Result<(), Box<Work>> {
        OWN.with_borrow_mut(|own| {
            work.pending.neighbours = Bytes(0);
            let Some(own) = own else { return Err(work) };
            let Some(entry) = own.free.last().copied() else { return Err(work) };
            let pages = execute::host_pages(self, &work.pending.connection, &work.pending.header);
            let pages = pages.map(|pages| self.block_of(target, &mut work, &pages).unwrap_or(pages));
            if !pages.is_some_and(|pages| own.ring.ask(entry as u64, pages)) {
                work.pending.neighbours = Bytes(0);
                return Err(work);
            }
            own.free.pop();
            own.fresh.push(entry);
            self.fetches.table(own.number)[entry] = Some(Fetch { target: target.index, work, is_begun, entered: None });
            Ok(())
        })
    }

    /// Asks the kernel for what was gathered, and answers some of those whose pages have come; true if there were any.
    pub fn advance_fetches(&self, scratch: &mut Vec<u8>) -> bool {
        let Some(number) = OWN.with_borrow(|own| Some(own.as_ref().filter(|own| own.free.len() < FETCHES_MAX)?.number))
        else {
            return false;
        };
        // The kernel may have to wait for a device before it takes a request.
        self.serving.begin(number, clock::now());
        let mut answered = 0;
        match OWN.with_borrow_mut(|own| own.as_mut().map_or(Ok(true), |own| own.advance(self))) {
            Ok(true) => {}
            // It is asked again, and nobody waits for that.
            Ok(false) => self.rescue_from(number),
            Err(error) => {
                self.fetches.refused(&error);
                self.end_fetches();
            }
        }
        while answered < ANSWERED_MAX {
            let Some(entry) = OWN.with_borrow_mut(|own| own.as_mut()?.ready.pop_front()) else { break };
            let fetch = self.fetches.table(number)[entry].take();
            OWN.with_borrow_mut(|own| own.iter_mut().for_each(|own| own.free.push(entry)));
            if let Some(fetch) = fetch {
                self.answer_fetched(fetch, scratch);
            }
            answered += 1;
        }
        if OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.ready.len() >= ANSWERED_MAX)) {
            self.call_for_help(clock::now());
        }
        self.worker_has_served(number);
        answered > 0
    }

    fn answer_fetched(&self, fetch: Fetch, scratch: &mut Vec<u8>) {
        let Fetch { target, work, entered, .. } = fetch;
        let target = &self.targets[target];
        if work.pending.connection.is_closed() {
            target.give_up(&work.pending, work.id);
            return self.tell_of_arrivals(!target.is_empty());
        }
        let (reply, payload) = match self.read_cached(&work, scratch) {
            Tried::Done(reply, payload) => (reply, payload),
            Tried::WouldWait => return self.leave(target, Task::Serve(work), scratch),
            Tried::Unknown => {
                // From now on nobody asks the kernel first.
                target.engine.cannot_tell();
                return self.leave(target, Task::Serve(work), scratch);
            }
        };
        let now = clock::now();
        if let Some((pace, since)) = target.engine.pace(Kind::Read).zip(entered) {
            pace.note(now.since(since), u64::from(work.pending.header.len) + work.pending.neighbours.0);
        }
        self.complete(target, work, reply, payload, now);
        // There is a slot in the depth again, and this worker may sleep without looking.
        self.tell_of_arrivals(!target.is_empty());
    }

    /// Gives what workers that are kept waiting have under way to the engines.
    pub fn rescue_fetches(&self, now: Nanos) {
        self.serving.who_waits(now).for_each(|number| self.rescue_from(number));
    }

    fn rescue_from(&self, number: usize) {
        let rescued: Vec<Fetch> = self.fetches.table(number).iter_mut().filter_map(Option::take).collect();
        for Fetch { target, work, .. } in rescued {
            // Whoever rescues them must not wait.
            if let Err(Task::Serve(work)) = self.submit(&self.targets[target], Task::Serve(work)) {
                self.hand_to_worker(&self.targets[target], work);
            }
        }
    }

    /// Has a worker begin a short read: this thread would wait for the device.
    pub fn hand_to_worker(&self, target: &Target, work: Box<Work>) {
        self.fetches.hand(target.index, work);
        self.has_arrived();
        if self.is_stopping.load(Ordering::SeqCst) {
            self.leave_handed();
        }
    }

    /// Leaves to the engines what was handed to workers that have ended.
    pub fn leave_handed(&self) {
        while let Some((target, work)) = self.fetches.next_handed() {
            self.leave(&self.targets[target], Task::Serve(work), &mut Vec::new());
        }
    }

    /// Sleeps for at most `timeout`, or until something comes; true if it is for any worker.
    pub fn sleep_for(&self, now: Nanos, timeout: Nanos) -> bool {
        // None if there is nothing under way.
        let waited = OWN.with_borrow(|own| {
            let own = own.as_ref().filter(|own| own.free.len() < FETCHES_MAX)?;
            // What has come is answered first.
            let timeout = if own.ring.has_untaken() { timeout.min(ASK_AGAIN) } else { timeout };
            Some(own.ready.is_empty() && own.ring.wait(timeout))
        });
        match waited {
            None => self.take_events(now, Some(timeout)),
            Some(true) => self.take_events(now, Some(Nanos::ZERO)),
            Some(false) => false,
        }
    }
}

impl Own {
    /// Asks the kernel for what was gathered, and looks what has come; false if the kernel takes nothing for now. Fails if it takes
    /// nothing from this process.
    fn advance(&mut self, core: &Core) -> io::Result<bool> {
        let begun = clock::now();
        let submitted = if self.ring.has_untaken() { self.ring.submit() } else { Ok(()) };
        let is_taken = match submitted.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(()) | Err((Some(Errno::INTR), _)) => true,
            Err((Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM), _)) => false,
            Err((_, error)) => return Err(error),
        };
        self.ring.take(|entry| self.ready.push_back(entry as usize));
        if !self.fresh.is_empty() {
            let at_once_max = AT_ONCE_LEAST.max(Nanos(AT_ONCE_MAX.0 * self.fresh.len() as u64));
            let is_at_once = clock::now().since(begun) < at_once_max;
            let ready = &self.ready;
            let mut table = core.fetches.table(self.number);
            for entry in self.fresh.drain(..) {
                let is_in_memory = is_at_once && ready.contains(&entry);
                if let Some(fetch) = table[entry].as_mut().filter(|fetch| fetch.is_begun || !is_in_memory) {
                    let id = fetch.work.id;
                    core.enter(&core.targets[fetch.target], begun, &mut fetch.work.pending, id);
                    fetch.entered = Some(begun);
                }
            }
        }
        Ok(is_taken)
    }
}

#[cfg(test)]
pub mod tests;
