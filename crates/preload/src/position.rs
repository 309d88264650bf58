//! The lock around an open file's offset, shared by all processes that have it open.
//!
//! POSIX asks that `read`, `write`, and `lseek` on one open file description take effect one after the other. The
//! lock lies in shared memory and names the thread that has it, so that a holder that died does not block the
//! others, and a signal handler that interrupts its own thread's transfer goes through.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set when somebody sleeps on the lock. Thread ids are below 2^22.
const WAITED_FOR: u32 = 1 << 31;
/// Looks at the lock before sleeping.
const SPINS_MAX: u32 = 100;
/// After sleeping this long, a waiter looks whether the holder is alive.
const CHECK_INTERVAL: rustix::thread::futex::Timespec =
    rustix::thread::futex::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// 0 when free, else the holder's thread id, perhaps with [`WAITED_FOR`].
#[repr(transparent)]
pub struct PositionLock(AtomicU32);

/// The right to use the offset.
pub struct PositionGuard<'a> {
    lock: &'a PositionLock,
    /// False in a signal handler that has interrupted the holder: the lock stays the holder's.
    owned: bool,
}

impl PositionLock {
    /// A lock that nobody has.
    pub const fn free() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits for the lock; bounded by the time-outs of the operations that have it.
    pub fn lock(&self) -> PositionGuard<'_> {
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut take_as = me;
        let mut spins = 0;
        loop {
            let Err(seen) = self.0.compare_exchange(0, take_as, Ordering::Acquire, Ordering::Relaxed) else {
                return PositionGuard { lock: self, owned: true };
            };
            let holder = seen & !WAITED_FOR;
            if holder == me {
                return PositionGuard { lock: self, owned: false };
            }
            spins += 1;
            if spins < SPINS_MAX {
                std::hint::spin_loop();
                continue;
            }
            // Others may sleep on the lock as well, so whoever gets it keeps the mark, and wakes one of them at its end.
            take_as = me | WAITED_FOR;
            let marked = holder | WAITED_FOR;
            if seen != marked && self.0.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            let slept = futex::wait(&self.0, futex::Flags::empty(), marked, Some(&CHECK_INTERVAL));
            if slept == Err(Errno::TIMEDOUT) && !is_alive(holder) {
                let taken = self.0.compare_exchange(marked, take_as, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return PositionGuard { lock: self, owned: true };
                }
            }
        }
    }
}

impl Drop for PositionGuard<'_> {
    fn drop(&mut self) {
        if self.owned && self.lock.0.swap(0, Ordering::Release) & WAITED_FOR != 0 {
            // Without a sleeper there is nobody to tell.
            let _ = futex::wake(&self.lock.0, futex::Flags::empty(), 1);
        }
    }
}

/// Whether a thread exists: `kill(2)` takes thread ids as well.
fn is_alive(thread: u32) -> bool {
    match Pid::from_raw(thread as i32) {
        Some(pid) => rustix::process::test_kill_process(pid) != Err(Errno::SRCH),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Shared(PositionLock, UnsafeCell<u64>);
    // SAFETY: the tests touch the cell under the lock only.
    unsafe impl Sync for Shared {}

    #[test]
    fn threads_exclude_each_other() {
        let shared = Shared(PositionLock(AtomicU32::new(0)), UnsafeCell::new(0));
        let shared = &shared;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        let _guard = shared.0.lock();
                        // SAFETY: under the lock.
                        unsafe { *shared.1.get() += 1 };
                    }
                });
            }
        });
        // SAFETY: the threads have ended.
        assert_eq!(unsafe { *shared.1.get() }, 40_000);
        assert_eq!(shared.0.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_dead_holder_and_a_signal_handler_do_not_block() {
        let dead = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32).join().unwrap();
        let lock = PositionLock(AtomicU32::new(dead));
        let outer = lock.lock();
        let inner = lock.lock();
        assert!(outer.owned && !inner.owned);
        drop(inner);
        assert_ne!(lock.0.load(Ordering::Relaxed), 0);
        drop(outer);
        assert_eq!(lock.0.load(Ordering::Relaxed), 0);
    }
}
