//! Extents: where a range of a file lies on a target, for an engine that brings pages of it to the device, or from there.
//!
//! An extent has a descriptor of its own, so that who waits for it keeps nobody from the file. Errors of write-back are
//! remembered with the content ([`LOST_WRITES`]): the host tells of each once, and whoever asks for an `fsync` next must hear it.

use crate::content::{Content, LOST_WRITES};
use crate::object::{ObjectPlace, object_size};
use crate::{Store, StoreError};
use isonomia_units::{Ino, TargetId};
use rustix::fs::Advice;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// A range of one object, of a file or detached.
pub struct Extent {
    content: Arc<Content>,
    path: PathBuf,
    object: OwnedFd,
    offset: u64,
    len: NonZeroU64,
}

impl Store {
    /// What of `range` of a file lies on `target`, if there is anything. A file that has objects of more than one target
    /// has one extent on each.
    pub fn extent(&self, ino: Ino, target: TargetId, range: Range<u64>) -> Result<Option<Extent>, StoreError> {
        let inode = self.inode(ino.0)?;
        let layout = inode.regular()?;
        let Some(index) = layout.targets.iter().position(|id| *id == target) else { return Ok(None) };
        let (offset, end) = (object_size(layout, index, range.start), object_size(layout, index, range.end));
        let Some(len) = NonZeroU64::new(end.saturating_sub(offset)) else { return Ok(None) };
        let place = inode.place(inode.share_data().id, layout, index);
        self.extent_at(&inode.content, place, offset, len)
    }

    /// `range` of a detached object, if there is anything of that and the object exists.
    pub fn object_extent(&self, place: ObjectPlace, range: Range<u64>) -> Result<Option<Extent>, StoreError> {
        let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) else { return Ok(None) };
        self.extent_at(&self.detached(place)?.content, place, range.start, len)
    }

    fn extent_at(
        &self,
        content: &Arc<Content>,
        place: ObjectPlace,
        offset: u64,
        len: NonZeroU64,
    ) -> Result<Option<Extent>, StoreError> {
        let path = self.targets.path(place);
        let object = self.targets.open_to_read(place)?;
        Ok(object.map(|object| Extent { content: content.clone(), path, object, offset, len }))
    }
}

impl Extent {
    /// Has the host write what it has in memory of the extent to the device, and waits for that. What is needed besides to
    /// find the bytes after a power cut only an `fsync` writes.
    pub fn write_out(&self) -> Result<(), StoreError> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let (offset, len) = (self.offset as libc::off64_t, self.len.get() as libc::off64_t);
        loop {
            // SAFETY: a call that takes numbers only.
            if unsafe { libc::sync_file_range(self.object.as_raw_fd(), offset, len, flags) } == 0 {
                return Ok(());
            }
            match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                Errno::INTR => {}
                // A file system without: it writes at its own pace.
                Errno::NOSYS | Errno::INVAL | Errno::SPIPE => return Ok(()),
                errno => {
                    self.content.set(LOST_WRITES);
                    return Err(StoreError::host(&self.path, errno));
                }
            }
        }
    }

    /// Lets the host forget what it has in memory of the extent, as far as that is on the device.
    pub fn forget(&self) {
        self.advise(Advice::DontNeed);
    }

    /// Has the host read the extent from the device to memory, without waiting for it.
    pub fn read_ahead(&self) {
        self.advise(Advice::WillNeed);
    }

    fn advise(&self, advice: Advice) {
        // It is no more than advice: a host that refuses it loses some speed.
        let _ = rustix::fs::fadvise(&self.object, self.offset, Some(self.len), advice);
    }
}
