//! The right to change a store's directories, which a process may lose to another one, or give up for want of a storage that it can
//! rely on.
//!
//! A directory on a file system of several hosts can be taken over by a process elsewhere while the one before it stands still,
//! or is cut off from that file system. So who has a directory has it for [`LEASE`] at a time, by a record in it
//! ([`crate::owner`]) that is read anew every [`RENEW_EVERY`]. Each change looks whether that time is over
//! ([`Fence::check`]); who takes over says so in the record, and waits until it must be. No two hosts compare their clocks: each
//! counts from a moment of its own. Two clocks must both say that there is time left: the monotonic one, which nobody can set,
//! and the time of day, which goes on while a host sleeps. Both are read as of the last tick, which costs next to nothing and
//! errs by milliseconds.
//!
//! A change is one system call, which is made right after the look at the time. A thread that stands still exactly in between makes
//! that one call afterwards. What that can hit is kept small: the database lies in another directory after a take-over, so
//! that nothing is written to it by its old name, and its journals are other files ([`crate::owner`]). It can be
//! one write of a program to an object that was never acknowledged.

use crate::StoreError;
use crate::owner::{Claim, Found, Line};
use isonomia_units::Nanos;
use rustix::io::Errno;
use rustix::time::ClockId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long the record was read before at most, where anything is changed.
pub const LEASE: Nanos = Nanos::from_secs(8);
/// How often it is read.
pub const RENEW_EVERY: Nanos = Nanos::from_secs(1);
/// What a process that takes over waits beyond the lease: clocks may differ in speed, and a host may see what another one wrote
/// a moment later.
pub(crate) const MARGIN: Nanos = Nanos::from_secs(2);
/// A change waits for the record to be read for so long: after a standstill the time is over, and the directory still this
/// process's.
const PATIENCE: Duration = Duration::from_secs(5);
/// Stands for a right without end: that of a store that nobody else can take over.
const UNLIMITED: u64 = u64::MAX;

/// Why a process does not change the directory any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The process of this number has it.
    Replaced(u64),
    /// It is not the one that it should be.
    Misplaced,
    /// Changes of the metadata could not be synced, and now the storage takes the journal again: a process that begins anew reads what is
    /// there.
    Unsynced,
}

/// See the module.
#[derive(Debug)]
pub struct Fence {
    /// By the monotonic clock, in nanoseconds.
    until: AtomicU64,
    /// By the time of day.
    until_wall: AtomicU64,
    /// Another process has the directory, or this one gave it up.
    is_over: AtomicBool,
    claim: OnceLock<Claim>,
    state: Mutex<Option<Loss>>,
    #[cfg(test)]
    waiting: std::sync::atomic::AtomicU32,
    has_changed: Condvar,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            until: AtomicU64::new(UNLIMITED),
            until_wall: AtomicU64::new(UNLIMITED),
            is_over: AtomicBool::new(false),
            claim: OnceLock::new(),
            state: Mutex::default(),
            #[cfg(test)]
            waiting: std::sync::atomic::AtomicU32::new(0),
            has_changed: Condvar::new(),
        }
    }
}

/// A moment by both clocks.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    monotonic: Nanos,
    wall: Nanos,
}

pub(crate) fn now() -> Moment {
    Moment { monotonic: read(ClockId::MonotonicCoarse), wall: read(ClockId::RealtimeCoarse) }
}

fn read(clock: ClockId) -> Nanos {
    let t = rustix::time::clock_gettime(clock);
    Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

impl Fence {
    /// Whether this process may change anything, and say anything, at this moment.
    #[inline]
    pub fn is_valid(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == UNLIMITED || {
            let now = now();
            now.monotonic.0 < until && now.wall.0 < self.until_wall.load(Ordering::Acquire)
        }
    }

    fn extend(&self, since: Moment) {
        self.until_wall.store((since.wall + LEASE).0, Ordering::Release);
        self.until.store((since.monotonic + LEASE).0, Ordering::Release);
    }

    /// The same for who can wait a moment, if the record was not read in time.
    ///
    /// # Errors
    /// EIO if another process has the directory, or the record cannot be read.
    #[inline]
    pub fn check(&self) -> Result<(), Errno> {
        if self.is_valid() { Ok(()) } else { self.wait() }
    }

    #[cold]
    fn wait(&self) -> Result<(), Errno> {
        let waits = |_: &mut Option<Loss>| {
            #[cfg(test)]
            self.waiting.fetch_add(1, Ordering::AcqRel);
            !self.is_valid() && !self.is_over.load(Ordering::Acquire)
        };
        let waited = self.has_changed.wait_timeout_while(self.state(), PATIENCE, waits);
        drop(waited);
        if self.is_valid() { Ok(()) } else { Err(Errno::IO) }
    }

    /// How long it is valid yet; nothing if it has no end.
    pub fn left(&self) -> Option<Nanos> {
        match self.until.load(Ordering::Acquire) {
            UNLIMITED => None,
            until if self.is_valid() => Some(Nanos(until).since(now().monotonic)),
            _ => Some(Nanos::ZERO),
        }
    }

    /// The number of this process among those that had the directory, if it has a lease of it.
    pub fn instance(&self) -> Option<u64> {
        self.claim.get().map(|claim| claim.line().own.0)
    }

    /// All that had the directory, if this process has a lease of it.
    pub fn line(&self) -> Option<Line> {
        self.claim.get().map(Claim::line)
    }

    /// Nothing is changed any more: others know a process of this server, of number `by`, of which the directory knows nothing. If
    /// none has taken over meanwhile it is the wrong one, and this start of it does not count.
    pub fn refuse(&self, by: u64) {
        let claim = self.claim.get().filter(|_| self.is_valid());
        let is_replaced = claim.is_none_or(|claim| matches!(claim.look(), Ok(Found::Other(_))));
        if let Some(Err(error)) = claim.filter(|_| !is_replaced).map(|claim| claim.release(true)) {
            tracing::warn!(%error, "that the directory was refused cannot be recorded: this start counts");
        }
        self.end(Some(if is_replaced { Loss::Replaced(by) } else { Loss::Misplaced }));
    }

    /// Begins with what this process claimed.
    pub(crate) fn begin(&self, claim: Claim, since: Moment) {
        self.extend(since);
        // It is claimed once.
        let _ = self.claim.set(claim);
    }

    /// Reads the record, and holds on if it is this process's.
    pub fn renew(&self) {
        let Some(claim) = self.claim.get() else { return };
        let begun = now();
        match claim.look() {
            Ok(Found::Own) if !self.is_over.load(Ordering::Acquire) => {
                let was_over = !self.is_valid();
                self.extend(begun);
                if self.is_over.load(Ordering::Acquire) {
                    // Since it was looked at.
                    return self.end(None);
                }
                if was_over {
                    tracing::warn!(
                        "this process stood still, or its storage did, and nobody has taken over: it goes on"
                    );
                }
                self.tell(|_| {});
            }
            Ok(Found::Own) => {}
            Ok(Found::Other(instance)) => self.end(Some(Loss::Replaced(instance))),
            Err(error) => tracing::warn!(%error, "the record of who has the directory cannot be read"),
        }
    }

    /// Nothing is changed any more, because the directory is lost, or given up.
    pub fn end(&self, loss: Option<Loss>) {
        self.tell(|state| {
            self.is_over.store(true, Ordering::Release);
            self.until.store(0, Ordering::Release);
            *state = state.or(loss);
        });
    }

    /// Waits for the end: why the directory is lost, nothing if it was given up.
    pub fn wait_for_end(&self) -> Option<Loss> {
        let waits = |_: &mut Option<Loss>| !self.is_over.load(Ordering::Acquire);
        *self.has_changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for [`RENEW_EVERY`], or the end; true if that came.
    pub fn is_over_soon(&self) -> bool {
        let waits = |_: &mut Option<Loss>| !self.is_over.load(Ordering::Acquire);
        drop(self.has_changed.wait_timeout_while(self.state(), Duration::from_nanos(RENEW_EVERY.0), waits));
        self.is_over.load(Ordering::Acquire)
    }

    /// Gives the directory up for good: the next process need not wait.
    pub(crate) fn release(&self) -> Result<(), StoreError> {
        let Some(claim) = self.claim.get().filter(|_| self.is_valid()) else { return Ok(()) };
        claim.release(false).map_err(|source| StoreError::Io { path: claim.path(), source })
    }

    /// The record was not read in time.
    #[cfg(test)]
    pub(crate) fn lapse(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Whether a change waits for the record to be read.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    fn tell(&self, change: impl FnOnce(&mut Option<Loss>)) {
        change(&mut self.state());
        self.has_changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, Option<Loss>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
