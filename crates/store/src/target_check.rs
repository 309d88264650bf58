//! Whether a request for data was sent to the target where the data lie: clients know a file's layout, and say so.

use crate::{Namespace, StoreError};
use isonomia_proto::fs::Layout;
use isonomia_units::{Ino, TargetId};

impl Namespace {
    /// Checks that all of `len` bytes at `offset` lie on `target`. [`StoreError::Stale`] if not: whoever says so has the
    /// layout of another file.
    pub fn check_target(&self, ino: Ino, target: TargetId, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check_layout(ino, |layout| {
            let (lies_on, run) = layout.locate(offset);
            lies_on == target && len <= run
        })
    }

    /// Checks that the whole file lies on `target`.
    pub fn check_only_target(&self, ino: Ino, target: TargetId) -> Result<(), StoreError> {
        self.check_layout(ino, |layout| layout.targets == [target])
    }

    /// Checks that a part of the file may lie on `target`.
    pub fn check_some_target(&self, ino: Ino, target: TargetId) -> Result<(), StoreError> {
        self.check_layout(ino, |layout| layout.targets.contains(&target))
    }

    fn check_layout(&self, ino: Ino, is_right: impl FnOnce(&Layout) -> bool) -> Result<(), StoreError> {
        if is_right(self.inode(ino.0)?.regular()?) { Ok(()) } else { Err(StoreError::Stale) }
    }
}
