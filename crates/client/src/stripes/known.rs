//! What is known of a spread file, for all threads of a process that have it open.

use crate::files::OpenFile;
use isonomia_proto::object::{FileEnd, FileObjects, ObjectCode};
use isonomia_units::Nanos;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Looks at what another thread is copying, before it is done without.
const LOOKS: u32 = 1_000;

/// What is known of a spread file: what a capability for an object is put together from, and the end.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub objects: FileObjects,
    /// Of the capabilities for its objects.
    pub codes: Arc<[ObjectCode]>,
    /// When its server was last told of a write.
    pub told_at: Nanos,
}

/// What is known of a spread file, for all who have it open in this process. It is a hint, and may be missing.
#[derive(Debug)]
pub struct Stripes {
    targets_per_server: u16,
    /// Objects may have bytes behind the end of which the server of the volume is still to be told.
    pub(super) owes_cut: AtomicBool,
    /// Blocks of 512 bytes that were written, at most, and of which that server is still to be told.
    untold_blocks: AtomicU64,
    /// A thread copies what is known. A forked child may find that so for ever, and asks the server each time.
    is_busy: AtomicBool,
    known: UnsafeCell<ManuallyDrop<Option<Known>>>,
}

// SAFETY: `known` is touched only by the thread that changed `is_busy` from false to true.
unsafe impl Sync for Stripes {}

/// Equal if they mean the same servers: what is known besides is not part of the file.
impl PartialEq for Stripes {
    fn eq(&self, other: &Self) -> bool {
        self.targets_per_server == other.targets_per_server
    }
}

impl Eq for Stripes {}

impl Drop for Stripes {
    fn drop(&mut self) {
        // What another thread was changing when this process was forked may be half of it: it is left alone.
        if !*self.is_busy.get_mut() {
            drop(self.known.get_mut().take());
        }
    }
}

impl Known {
    fn end(&self) -> (u64, u64) {
        (self.objects.end.cuts, self.objects.end.size_bytes)
    }
}

impl Stripes {
    /// Of a file of which nothing else is known than how many numbers each server has for its targets.
    pub fn new(targets_per_server: u16) -> Self {
        let (owes_cut, is_busy, untold_blocks) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        Self { targets_per_server, owes_cut, untold_blocks, is_busy, known: UnsafeCell::new(ManuallyDrop::new(None)) }
    }

    /// Of a file that was opened.
    pub(crate) fn opened(objects: FileObjects, codes: Vec<ObjectCode>) -> Option<Self> {
        let stripes = Self::new(u16::try_from(objects.targets_per_server).ok().filter(|count| *count > 0)?);
        stripes.learn(Known { objects, codes: codes.into(), told_at: Nanos::ZERO });
        Some(stripes)
    }

    /// Whether objects may have bytes behind the end of which the server of the volume is still to be told.
    pub fn owes_cut(&self) -> bool {
        self.owes_cut.load(Ordering::Relaxed)
    }

    /// Whether something was written that the server of the volume is still to be told of, for what the file takes.
    pub fn owes_blocks(&self) -> bool {
        self.untold_blocks.load(Ordering::Relaxed) > 0
    }

    /// Keeps for the next word to the server of the volume that so many blocks of 512 bytes were written, at most.
    pub(super) fn keep_untold(&self, blocks: u64) {
        self.untold_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// What was kept, and `blocks` more, as a request has it.
    pub(crate) fn take_untold(&self, blocks: u64) -> u32 {
        let all = self.untold_blocks.swap(0, Ordering::Relaxed).saturating_add(blocks);
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// How many numbers each server has for its targets.
    pub fn targets_per_server(&self) -> u16 {
        self.targets_per_server
    }

    fn with<T>(&self, what: impl FnOnce(&mut Option<Known>) -> T) -> Option<T> {
        let is_free = || !self.is_busy.load(Ordering::Relaxed) && !self.is_busy.swap(true, Ordering::Acquire);
        let is_mine = (0..LOOKS).any(|_| {
            let is_mine = is_free();
            if !is_mine {
                std::hint::spin_loop();
            }
            is_mine
        });
        // SAFETY: `is_busy` is ours until below.
        let done = is_mine.then(|| what(unsafe { &mut *self.known.get() }));
        if is_mine {
            self.is_busy.store(false, Ordering::Release);
        }
        done
    }

    /// What is known to the holder of a capability.
    pub(super) fn known(&self, file: &OpenFile) -> Option<Known> {
        let known = self.with(|known| known.clone()).flatten()?;
        let (one, other) = (&known.objects.capability, &file.capability);
        ((one.holder, one.access) == (other.holder, other.access)).then_some(known)
    }

    pub(super) fn learn(&self, mut new: Known) {
        let newer = |known: &mut Option<Known>| {
            if let Some(known) = known {
                // Another thread may have been told something later. Of the same cut the larger size is.
                if known.objects.capability.holder == new.objects.capability.holder && known.end() > new.end() {
                    new.objects.end = known.objects.end;
                }
                if known.objects.end.cuts >= new.objects.end.cuts {
                    new.told_at = new.told_at.max(known.told_at);
                }
            }
            known.replace(new)
        };
        // Without it the server is asked again.
        let _ = self.with(newer);
    }

    /// Learns where the file ends, and that its server was told of a write at this time. Who knows nothing else of it has no use
    /// for that.
    pub(super) fn learn_end(&self, end: FileEnd, told_at: Nanos) {
        let newer = |known: &mut Option<Known>| {
            if let Some(known) = known {
                // What was told before a cut says nothing of what is written after it.
                known.told_at = if known.objects.end.cuts < end.cuts { told_at } else { known.told_at.max(told_at) };
                if known.end() < (end.cuts, end.size_bytes) {
                    known.objects.end = end;
                }
            }
        };
        let _ = self.with(newer);
    }
}
