//! Reads that workers have under way at devices without waiting for them: see [`crate::fetch`].

use crate::requests::Work;
use isonomia_policy::DEPTH_MAX;
use isonomia_units::Nanos;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reads that a worker has under way at most: as many as one target has in service.
pub const FETCHES_MAX: usize = DEPTH_MAX;

/// A read that is under way.
#[derive(Debug)]
pub struct Fetch {
    /// The index of its target.
    pub target: usize,
    /// The request.
    pub work: Box<Work>,
    /// Whether the read was tried, and had the host begin to read what is missing: that may have come before it is asked for.
    pub is_begun: bool,
    /// Since when the device is waited for; `None` if it was not yet.
    pub entered: Option<Nanos>,
}

/// What the workers have under way.
#[derive(Debug)]
pub struct Fetches {
    /// Of each worker. An entry whose read was rescued is empty until the kernel's word on it has come.
    tables: Box<[Mutex<Vec<Option<Fetch>>>]>,
    /// Reads whose turn has come, for any worker, with the indices of their targets.
    handed: Mutex<VecDeque<(usize, Box<Work>)>>,
    handed_count: AtomicUsize,
    /// Workers that have a ring.
    rings: AtomicUsize,
    is_refused: AtomicBool,
}

impl Fetches {
    /// Of so many workers.
    pub fn new(workers: usize) -> Self {
        let table = |_| Mutex::new((0..FETCHES_MAX).map(|_| None).collect());
        Self {
            tables: (0..workers).map(table).collect(),
            handed: Mutex::default(),
            handed_count: AtomicUsize::new(0),
            rings: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// What worker `number` has under way, by entries.
    pub fn table(&self, number: usize) -> MutexGuard<'_, Vec<Option<Fetch>>> {
        self.tables[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handed(&self) -> MutexGuard<'_, VecDeque<(usize, Box<Work>)>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any worker has a ring.
    pub fn are_on(&self) -> bool {
        self.rings.load(Ordering::Relaxed) > 0
    }

    /// A worker has a ring.
    pub fn begun(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker has its ring no more.
    pub fn ended(&self) {
        self.rings.fetch_sub(1, Ordering::Relaxed);
    }

    /// A worker gets no ring, or can use it no more.
    pub fn refused(&self, error: &io::Error) {
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            tracing::info!(%error, "the kernel has no io_uring for a worker: reads that wait for a device take a thread each");
        }
    }

    /// Any worker may begin this read.
    pub fn hand(&self, target: usize, work: Box<Work>) {
        self.handed().push_back((target, work));
        self.handed_count.fetch_add(1, Ordering::AcqRel);
    }

    /// A read that any worker may begin, and the index of its target.
    pub fn next_handed(&self) -> Option<(usize, Box<Work>)> {
        if self.handed_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let next = self.handed().pop_front();
        self.handed_count.fetch_sub(usize::from(next.is_some()), Ordering::AcqRel);
        next
    }
}
