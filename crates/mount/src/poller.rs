//! Who waits at the kernel's poller for the next request.
//!
//! Many threads serve a mount, because a request may wait long for its turn at the server. But each thread that the
//! kernel wakes for a request costs more than most requests do, and it wakes the one that has slept longest. So, as a
//! completion port does, one thread *polls* and goes from request to request while its requests are short, and all
//! others are *parked*. One more is called when requests queue up, and when the last that polled is about to sleep
//! for the server, or has a long transfer to make ([`leave`]). Who has served a request looks for the next for a while, giving the processor to whoever else wants it, and is then parked if another polls.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a thread looks for the next request: a program that makes one after the other has it by then.
const LOOK_FOR: Duration = Duration::from_micros(60);

/// See the module.
#[derive(Debug)]
pub struct Poller {
    /// The kernel's requests: readable when there are some.
    device: OnceLock<OwnedFd>,
    /// With so many threads polling no other is called, however many requests queue up.
    polling_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that have served, and now wait for the kernel or serve what will not take long.
    polling: usize,
    /// The one parked last is the first to be called: what it needs may still be in the caches.
    parked: Vec<Arc<Parked>>,
    /// The mount ends: all parked threads were called, and no thread parks any more.
    is_closed: bool,
}

#[derive(Debug)]
struct Parked {
    thread: Thread,
    is_called: AtomicBool,
}

/// A thread that has served.
struct PollingThread {
    poller: Arc<Poller>,
    is_away: bool,
}

impl Drop for PollingThread {
    /// A thread that serves ends when the mount does, or in a panic: either way nobody may go on waiting to be called.
    fn drop(&mut self) {
        self.poller.close();
    }
}

thread_local! {
    static POLLING: RefCell<Option<PollingThread>> = const { RefCell::new(None) };
}

/// One request, from when it was received until it is answered.
pub struct Serving<'a>(&'a Poller);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.look_for_more();
    }
}

/// To be called in the middle of a request that will take long, or before its thread sleeps: another thread polls
/// meanwhile. Of no effect on a thread that serves no mount.
pub fn leave() {
    POLLING.with_borrow_mut(|thread| {
        if let Some(PollingThread { poller, is_away: is_away @ false }) = thread {
            *is_away = true;
            let mut state = poller.state();
            state.polling -= 1;
            if state.polling == 0 {
                state.call();
            }
        }
    });
}

impl Poller {
    /// The poller of a mount on a machine of `cores`.
    pub fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self { device: OnceLock::new(), polling_max: cores, state: Mutex::default() })
    }

    /// Where the requests come from, before the first.
    pub fn open(&self, device: OwnedFd) {
        // There is one client for a mount.
        let _ = self.device.set(device);
    }

    /// This thread has received a request.
    pub fn serving(self: &Arc<Self>) -> Serving<'_> {
        POLLING.with_borrow_mut(|thread| {
            if thread.is_none() {
                *thread = Some(PollingThread { poller: self.clone(), is_away: false });
                self.state().polling += 1;
            }
        });
        if self.is_readable() {
            let mut state = self.state();
            if state.polling < self.polling_max {
                state.call();
            }
        }
        Serving(self)
    }

    /// Returns when there may be another request for this thread, or when it is the one to wait for it.
    fn look_for_more(&self) {
        POLLING.with_borrow_mut(|thread| {
            if let Some(PollingThread { is_away: is_away @ true, .. }) = thread {
                *is_away = false;
                self.state().polling += 1;
            }
        });
        let start = Instant::now();
        while !self.is_readable() {
            if start.elapsed() > LOOK_FOR {
                return self.park();
            }
            rustix::thread::sched_yield();
        }
    }

    /// Sleeps until this thread is called, unless no other polls.
    fn park(&self) {
        let mut state = self.state();
        if state.polling <= 1 || state.is_closed {
            return;
        }
        state.polling -= 1;
        let parked = Arc::new(Parked { thread: std::thread::current(), is_called: AtomicBool::new(false) });
        state.parked.push(parked.clone());
        drop(state);
        while !parked.is_called.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Whether a read would not block: there is a request, or the mount has ended.
    fn is_readable(&self) -> bool {
        let Some(device) = self.device.get() else { return false };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut looked_at = [PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN)];
        // Of an error the read tells.
        poll(&mut looked_at, Some(&at_once)) != Ok(0)
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        while state.call() {}
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Calls a parked thread to poll; false if there is none.
    fn call(&mut self) -> bool {
        let Some(parked) = self.parked.pop() else { return false };
        self.polling += 1;
        parked.is_called.store(true, Ordering::Release);
        parked.thread.unpark();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A poller with a pipe for a device, and its other end.
    fn poller(cores: usize) -> (Arc<Poller>, OwnedFd) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let poller = Poller::new(cores);
        poller.open(reader);
        (poller, writer)
    }

    fn parked(poller: &Poller) -> usize {
        poller.state().parked.len()
    }

    /// Waits, for as long as the test may take, until so many threads are parked.
    fn wait_until_parked(poller: &Poller, count: usize) {
        while parked(poller) != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_thread_attends_and_the_others_are_called_when_it_leaves() {
        let (poller, _writer) = poller(4);
        let (said, heard) = mpsc::channel();
        let others: Vec<_> = (0..3)
            .map(|number| {
                let (poller, said) = (poller.clone(), said.clone());
                std::thread::spawn(move || {
                    drop(poller.serving());
                    said.send(number).unwrap();
                    // As a thread that waits for the kernel, which it does not leave before the test ends.
                    while !poller.state().is_closed {
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        // One of the three polls; two are parked once they have looked in vain.
        heard.recv().unwrap();
        wait_until_parked(&poller, 2);
        let serving = poller.serving();
        leave();
        leave();
        assert_eq!((parked(&poller), poller.state().polling), (2, 1), "another polls, so nobody is called");
        poller.close();
        assert_eq!(heard.iter().take(2).count(), 2, "whoever is parked is let go");
        for other in others {
            other.join().unwrap();
        }
        drop(serving);
    }

    #[test]
    fn the_last_to_leave_calls_another() {
        let (poller, _writer) = poller(1);
        let (inner, (said, heard)) = (poller.clone(), mpsc::channel());
        let first = poller.serving();
        let other = std::thread::spawn(move || {
            drop(inner.serving());
            said.send(()).unwrap();
        });
        wait_until_parked(&poller, 1);
        leave();
        heard.recv().unwrap();
        other.join().unwrap();
        drop(first);
    }

    #[test]
    fn requests_that_queue_up_bring_one_more_thread() {
        let (poller, writer) = poller(2);
        let inner = poller.clone();
        let first = poller.serving();
        let other = std::thread::spawn(move || drop(inner.serving()));
        wait_until_parked(&poller, 1);
        rustix::io::write(&writer, b"x").unwrap();
        let second = poller.serving();
        assert_eq!(parked(&poller), 0);
        other.join().unwrap();
        drop((first, second));
    }

    #[test]
    fn a_thread_that_ends_lets_go_who_is_parked() {
        let (poller, _writer) = poller(1);
        let (inner, (done, wait)) = (poller.clone(), mpsc::channel::<()>());
        let first = std::thread::spawn(move || {
            let serving = inner.serving();
            wait.recv().unwrap();
            std::mem::forget(serving);
        });
        while poller.state().polling == 0 {
            std::thread::yield_now();
        }
        let inner = poller.clone();
        let other = std::thread::spawn(move || drop(inner.serving()));
        wait_until_parked(&poller, 1);
        done.send(()).unwrap();
        first.join().unwrap();
        other.join().unwrap();
    }
}
