//! Which objects are open, so that there are not too many descriptors of them.

use crate::content::Content;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Looks for an object to close at most, when one more is opened than there should be.
const PROBES_MAX: usize = 64;

/// The open objects in the order of opening. When there are too many the first is closed, unless its content was used since it
/// was last looked at: then it goes to the end once more (the *clock* algorithm).
pub(crate) struct OpenObjects {
    ring: Mutex<VecDeque<(Weak<Content>, usize)>>,
    /// Descriptors of objects, of which those that are used past the page cache have two.
    pub descriptors: Arc<AtomicUsize>,
    /// And so many there may be.
    max: usize,
}

impl OpenObjects {
    /// For so many descriptors.
    pub fn new(max: usize) -> Self {
        Self { ring: Mutex::default(), descriptors: Arc::default(), max }
    }

    /// Takes an object that was just opened, and closes others if there are too many descriptors.
    pub fn admit(&self, content: &Arc<Content>, index: usize) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_back((Arc::downgrade(content), index));
        self.close_some(ring);
    }

    /// Closes objects if there are too many descriptors.
    pub fn make_room(&self) {
        self.close_some(self.ring.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn close_some(&self, mut ring: MutexGuard<'_, VecDeque<(Weak<Content>, usize)>>) {
        for _ in 0..PROBES_MAX {
            let is_full = self.descriptors.load(Relaxed) > self.max;
            // The ring may also have objects that were closed in other ways.
            if !is_full && ring.len() <= self.max {
                break;
            }
            let Some((weak, index)) = ring.pop_front() else { break };
            // Gone from memory, and its descriptors with it.
            let Some(content) = weak.upgrade() else { continue };
            if is_full && content.recent.swap(false, Relaxed) {
                ring.push_back((weak, index));
                continue;
            }
            // Objects that somebody uses are not closed: those of the caller, whose lock it has, and those of other threads.
            match content.data.try_write() {
                Ok(mut objects) if is_full => objects.close(index),
                Ok(objects) if objects.object(index).is_none() => {}
                _ => ring.push_back((weak, index)),
            }
        }
    }
}
