//! A lock for a few instructions, safe to have locked across `fork` (see [`crate::process`]).
//!
//! Not a `std::sync::Mutex`: the child of a fork must be able to release what the parent's thread had locked, and
//! nothing here ever waits for the outside world.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Spins before the processor is offered to others.
const SPINS_MAX: u32 = 100;

/// Times that the processor is offered to others before the lock is given up.
const YIELDS_MAX: u32 = 1_000;

/// A value behind a spin lock.
pub struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

/// The right to use the value.
pub struct SpinGuard<'a, T>(&'a Spin<T>);

// SAFETY: the lock lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.acquire();
        SpinGuard(self)
    }

    /// As [`Self::lock`], but nothing if the lock stays taken: by what this thread's signal handler has interrupted, most
    /// likely, which would be waited for in vain.
    pub fn lock_soon(&self) -> Option<SpinGuard<'_, T>> {
        for _ in 0..YIELDS_MAX {
            if self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(SpinGuard(self));
            }
            rustix::thread::sched_yield();
        }
        None
    }

    /// Takes the lock for [`Self::release`]: around a fork.
    pub fn acquire(&self) {
        let mut spins = 0;
        while self.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins < SPINS_MAX { std::hint::spin_loop() } else { rustix::thread::sched_yield() }
        }
    }

    /// Gives back what [`Self::acquire`] took.
    pub fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to use the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_handler_does_not_wait_for_what_it_has_interrupted() {
        let lock = Spin::new(1);
        let outer = lock.lock();
        assert!(lock.lock_soon().is_none());
        drop(outer);
        assert!(lock.lock_soon().is_some_and(|value| *value == 1));
        assert_eq!(*lock.lock(), 1);
    }
}
