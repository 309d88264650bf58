//! Volumes that were found to be here, so that not every request has to look for its own.
//!
//! What was found counts until anything changes: who changes where volumes are, or takes one away, says so right afterwards
//! ([`FoundHere::forget`]). A look that was under way then may still be noted, and is not believed: it bears the number of
//! changes from before. So a request is told what was true when it asked, as without this.

use isonomia_units::VolumeId;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Volumes that are remembered: each has one entry, which others may take.
const ENTRIES: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct FoundHere {
    /// Changes so far, and one: nothing was found in an empty entry.
    changes: AtomicU64,
    /// A volume's number, below the number of changes when it was found.
    found: [AtomicU64; ENTRIES],
}

/// The number of changes when a look began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(u64);

impl Default for FoundHere {
    fn default() -> Self {
        Self { changes: AtomicU64::new(1), found: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl FoundHere {
    /// Whether `volume` was found to be here; if not, what is to be noted when it is.
    #[inline]
    pub fn has(&self, volume: VolumeId) -> Result<(), Before> {
        // In one order with who counts what is under way ([`crate::moving`]).
        let before = Before(self.changes.load(SeqCst));
        let is_here = self.entry(volume).load(SeqCst) == before.of(volume);
        if is_here { Ok(()) } else { Err(before) }
    }

    /// Notes that it is here, as a look found that began `before`.
    pub fn note(&self, volume: VolumeId, before: Before) {
        self.entry(volume).store(before.of(volume), SeqCst);
    }

    /// Where volumes are has changed.
    pub fn forget(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    fn entry(&self, volume: VolumeId) -> &AtomicU64 {
        &self.found[usize::from(volume.0) % ENTRIES]
    }
}

impl Before {
    fn of(self, volume: VolumeId) -> u64 {
        self.0 << u16::BITS | u64::from(volume.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_counts_until_anything_changes() {
        let (here, one, other) = (FoundHere::default(), VolumeId(1), VolumeId(1 + ENTRIES as u16));
        let before = here.has(one).unwrap_err();
        here.note(one, before);
        assert!(here.has(one).is_ok() && here.has(other).is_err() && here.has(VolumeId(0)).is_err());
        here.forget();
        // A look from before the change says nothing.
        here.note(one, before);
        let now = here.has(one).unwrap_err();
        here.note(other, now);
        assert!(here.has(other).is_ok() && here.has(one).is_err());
    }
}
