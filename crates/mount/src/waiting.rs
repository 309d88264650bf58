//! Those who wait for a lock: asked for again and again by one thread, so that the kernel's other requests go on.
//!
//! The kernel's word that a signal came does not get through `fuser` 0.18, which answers that it does not understand; the
//! kernel then waits for us, whatever comes. So `/proc` is asked whether the waiting thread has a signal to take: it is
//! woken with EINTR, and the kernel ends or restarts its call, or ends the process, as it would have anyway. Of a process
//! that this one cannot see nothing is known: it waits until it has the lock.

use crate::background::{Background, Shared};
use crate::caller::{self, Signals};
use crate::filesystem::Outcome;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Waiting at once; more get ENOLCK.
const WAITERS_MAX: usize = 1_024;
/// Between two attempts: the first, and the longest pause for few.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// The longest pause grows so much with each who waits: 10,000 attempts a second are enough for all of them.
const PAUSE_EACH: Duration = Duration::from_micros(100);
/// A signal to a process that no thread of it has taken after this long may be meant for the one that waits.
const TAKEN_WITHIN: Duration = Duration::from_millis(5);

/// One who waits.
pub struct Waiter {
    thread: u32,
    until: Option<Instant>,
    attempt: Box<dyn Fn() -> Outcome<()> + Send>,
    answer: Box<dyn FnOnce(Outcome<()>) + Send>,
    pause: Duration,
    next: Instant,
    /// Since when a signal to the process was seen.
    signalled: Option<Instant>,
}

/// All who wait. Dropping it ends their waiting.
pub struct Waiting {
    background: Background<Crowd>,
}

#[derive(Default)]
struct Crowd {
    waiters: Vec<Waiter>,
    /// How many are being asked for right now, and not among `waiters`.
    busy: usize,
    /// Counts the calls to ask now.
    calls: u64,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { background: Background::new("locks", run) }
    }
}

impl Waiter {
    /// `thread` waits until `attempt` gives anything but EAGAIN, a signal comes, or `until` has passed; `answer` is told.
    pub fn new(
        thread: u32,
        until: Option<Instant>,
        attempt: impl Fn() -> Outcome<()> + Send + 'static,
        answer: impl FnOnce(Outcome<()>) + Send + 'static,
    ) -> Self {
        let (attempt, answer) = (Box::new(attempt), Box::new(answer));
        Self { thread, until, attempt, answer, pause: PAUSE_MIN, next: Instant::now() + PAUSE_MIN, signalled: None }
    }

    /// Tries once more; gives itself back if that is not the end of it. `crowd` are waiting in all.
    fn attempt(mut self, crowd: usize) -> Option<Self> {
        let now = Instant::now();
        // Before the attempt: a lock is not for a thread that goes away.
        if self.is_interrupted(now) {
            (self.answer)(Err(Errno::INTR));
            return None;
        }
        match (self.attempt)() {
            Err(Errno::AGAIN) if self.until.is_none_or(|until| now < until) => {
                self.next = Instant::now() + self.pause;
                self.pause = (2 * self.pause).min(PAUSE_MAX.max(PAUSE_EACH * crowd as u32));
                Some(self)
            }
            outcome => {
                (self.answer)(outcome);
                None
            }
        }
    }

    fn is_interrupted(&mut self, now: Instant) -> bool {
        let signals = if self.thread == 0 { Signals::None } else { caller::signals(self.thread) };
        match signals {
            Signals::None => self.signalled = None,
            Signals::ToThread => return true,
            Signals::ToProcess => return now.duration_since(*self.signalled.get_or_insert(now)) >= TAKEN_WITHIN,
        }
        false
    }
}

impl Waiting {
    /// One more.
    pub fn add(&self, waiter: Waiter) {
        let (mut state, has_thread) = self.background.with_thread();
        if !has_thread || state.work.waiters.len() + state.work.busy >= WAITERS_MAX {
            drop(state);
            return (waiter.answer)(Err(Errno::NOLCK));
        }
        state.work.waiters.push(waiter);
        drop(state);
        self.background.wake();
    }

    /// A lock was given up here: all are asked for now.
    pub fn ask_now(&self) {
        let mut state = self.background.state();
        state.work.calls += 1;
        if state.work.waiters.is_empty() {
            return;
        }
        let now = Instant::now();
        for waiter in &mut state.work.waiters {
            waiter.next = waiter.next.min(now);
        }
        drop(state);
        self.background.wake();
    }
}

fn run(shared: &Shared<Crowd>) {
    let mut state = shared.state();
    while !state.is_over() {
        let now = Instant::now();
        let Some(next) = state.work.waiters.iter().map(|waiter| waiter.next).min() else {
            state = shared.sleep(state);
            continue;
        };
        if next > now {
            state = shared.sleep_for(state, next - now).0;
            continue;
        }
        let crowd = state.work.waiters.len();
        let due: Vec<Waiter> = state.work.waiters.extract_if(.., |waiter| waiter.next <= now).collect();
        state.work.busy = due.len();
        let calls = state.work.calls;
        drop(state);
        let mut left: Vec<Waiter> = due.into_iter().filter_map(|waiter| waiter.attempt(crowd)).collect();
        state = shared.state();
        state.work.busy = 0;
        if state.work.calls != calls {
            // Perhaps what one of them waits for, given up just after it was asked for.
            left.iter_mut().for_each(|waiter| waiter.next = now);
        }
        state.work.waiters.append(&mut left);
    }
    let waiters = std::mem::take(&mut state.work.waiters);
    drop(state);
    waiters.into_iter().for_each(|waiter| (waiter.answer)(Err(Errno::INTR)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    /// A thread of this process without signals.
    fn own_thread() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    #[test]
    fn who_waits_is_answered_when_its_time_has_come() {
        let waiting = Waiting::default();
        let (tell, told) = channel();
        let wait = |name: &'static str, until, attempts: u32, end: Outcome<()>| {
            let (tell, asked) = (tell.clone(), AtomicU32::new(0));
            let attempt =
                move || if asked.fetch_add(1, Ordering::Relaxed) < attempts { Err(Errno::AGAIN) } else { end };
            waiting.add(Waiter::new(own_thread(), until, attempt, move |outcome| tell.send((name, outcome)).unwrap()));
        };
        wait("has it", None, 3, Ok(()));
        assert_eq!(told.recv().unwrap(), ("has it", Ok(())));
        wait("never would", None, 2, Err(Errno::DEADLK));
        assert_eq!(told.recv().unwrap(), ("never would", Err(Errno::DEADLK)));
        wait("too late", Some(Instant::now()), u32::MAX, Ok(()));
        assert_eq!(told.recv().unwrap(), ("too late", Err(Errno::AGAIN)));
        wait("the end", None, u32::MAX, Ok(()));
        drop(waiting);
        assert_eq!(told.recv().unwrap(), ("the end", Err(Errno::INTR)));
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let waiting = Waiting::default();
        let (tell, told) = channel();
        for _ in 0..=WAITERS_MAX {
            let tell = tell.clone();
            waiting.add(Waiter::new(0, None, || Err(Errno::AGAIN), move |outcome| tell.send(outcome).unwrap()));
        }
        assert_eq!(told.recv().unwrap(), Err(Errno::NOLCK));
        drop(waiting);
        assert_eq!(told.iter().take(WAITERS_MAX).filter(|outcome| *outcome == Err(Errno::INTR)).count(), WAITERS_MAX);
    }

    #[test]
    fn who_is_gone_does_not_wait() {
        let waiting = Waiting::default();
        let (tell, told) = channel();
        // Above the largest number that Linux gives to a thread.
        let nobody = (1 << 22) + 1;
        waiting.add(Waiter::new(nobody, None, || Ok(()), move |outcome| tell.send(outcome).unwrap()));
        assert_eq!(told.recv().unwrap(), Err(Errno::INTR));
    }
}
