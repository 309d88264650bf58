//! Extents: where ranges of a file lie on a target, for an engine that brings pages of it to the device, or from there.
//!
//! To open and to close an object are three requests on a network file system. So what is read ahead is read by the descriptor
//! that is open, if there is one. What is written back has one of its own. In either case who waits keeps nobody from the file. Errors of
//! write-back are remembered with the content ([`ObjectStore::note_lost_writes`]): the host tells of each once, and whoever asks for
//! an `fsync` next must hear it.

use crate::content::Content;
use crate::object::{ObjectPlace, object_size};
use crate::object_file::ObjectFile;
use crate::{ObjectStore, Store, StoreError};
use isonomia_units::{Ino, TargetId};
use rustix::fs::Advice;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// One page in so many bytes is looked at to know that what is read ahead is there: a device is given them in their order.
const PROBE_BYTES: u64 = 128 << 10;

/// Ranges of one object, of a file or detached.
pub struct Extent {
    content: Arc<Content>,
    place: ObjectPlace,
    object: Arc<OwnedFd>,
    /// Others use that descriptor, too.
    is_shared: bool,
    /// Offset and length.
    parts: Vec<(u64, NonZeroU64)>,
}

impl Store {
    /// What of `ranges` of a file lies on `target`, if there is anything. A file that has objects of more than one target
    /// has one extent on each.
    pub fn extent(&self, ino: Ino, target: TargetId, ranges: &[Range<u64>]) -> Result<Option<Extent>, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.regular()?;
        let Some(index) = layout.targets.iter().position(|id| *id == target) else { return Ok(None) };
        let part = |range: &Range<u64>| {
            let (offset, end) = (object_size(layout, index, range.start), object_size(layout, index, range.end));
            Some((offset, NonZeroU64::new(end.saturating_sub(offset))?))
        };
        let parts: Vec<_> = ranges.iter().filter_map(part).collect();
        let (place, object) = {
            let objects = inode.share_data();
            (inode.place(objects.id, layout, index), objects.object(index).map(ObjectFile::shared))
        };
        self.objects.extent_at(&inode.content, place, object, parts)
    }
}

impl ObjectStore {
    /// `ranges` of a detached object, if there is anything of them and the object exists.
    pub fn object_extent(&self, place: ObjectPlace, ranges: &[Range<u64>]) -> Result<Option<Extent>, StoreError> {
        let part = |range: &Range<u64>| Some((range.start, NonZeroU64::new(range.end.saturating_sub(range.start))?));
        let parts = ranges.iter().filter_map(part).collect();
        let content = &self.detached(place)?.content;
        let object = content.share_data().object(0).map(ObjectFile::shared);
        self.extent_at(content, place, object, parts)
    }

    fn extent_at(
        &self,
        content: &Arc<Content>,
        place: ObjectPlace,
        open: Option<Arc<OwnedFd>>,
        parts: Vec<(u64, NonZeroU64)>,
    ) -> Result<Option<Extent>, StoreError> {
        if parts.is_empty() {
            return Ok(None);
        }
        let is_shared = open.is_some();
        let object = match open {
            Some(object) => Some(object),
            None => self.targets.open_to_read(place)?.map(Arc::new),
        };
        Ok(object.map(|object| Extent { content: content.clone(), place, object, is_shared, parts }))
    }
}

impl Extent {
    /// Has the host write what it has in memory of the extent to the device, and waits for that; with `what_is_between`, of what lies
    /// between its ranges as well. What is needed besides to find the bytes after a power cut only an `fsync` writes. `store` is
    /// the one that the extent is of.
    pub fn write_out(&self, store: &Store, what_is_between: bool) -> Result<(), StoreError> {
        let objects = &store.objects;
        // The host tells each open file of an error once: it is not to be told to this one while an `fsync` asks the other.
        let own = if self.is_shared { objects.targets.open_to_read(self.place)? } else { None };
        let object = match &own {
            Some(own) => own,
            None if self.is_shared => return Ok(()),
            None => &*self.object,
        };
        let begin = libc::SYNC_FILE_RANGE_WRITE;
        let finish = libc::SYNC_FILE_RANGE_WAIT_BEFORE | begin | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        match self.parts[..] {
            // The host gives the device twice as many requests at once where a call waits for them than where it only begins
            // them (`wbt_wait` in Linux's `block/blk-wbt.c`).
            [(start, _), .., (last, len)] if what_is_between => {
                self.sync_range(objects, object, (start, len.saturating_add(last.saturating_sub(start))), finish)
            }
            _ => {
                if self.parts.len() > 1 {
                    // All of them are on their way before the first is waited for.
                    self.parts.iter().try_for_each(|part| self.sync_range(objects, object, *part, begin))?;
                }
                self.parts.iter().try_for_each(|part| self.sync_range(objects, object, *part, finish))
            }
        }
    }

    fn sync_range(
        &self,
        objects: &ObjectStore,
        object: &OwnedFd,
        (offset, len): (u64, NonZeroU64),
        flags: libc::c_uint,
    ) -> Result<(), StoreError> {
        let range = offset..offset.saturating_add(len.get());
        let (offset, len) = (offset as libc::off64_t, len.get() as libc::off64_t);
        loop {
            // SAFETY: a call that takes numbers only.
            if unsafe { libc::sync_file_range(object.as_raw_fd(), offset, len, flags) } == 0 {
                return Ok(());
            }
            match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                Errno::INTR => {}
                // A file system without: it writes at its own pace.
                Errno::NOSYS | Errno::INVAL | Errno::SPIPE => return Ok(()),
                errno => {
                    objects.note_lost_writes(&self.content, self.place, Some(range), errno);
                    return Err(StoreError::host(&objects.targets.path(self.place), errno));
                }
            }
        }
    }

    /// Has the host begin to write what it has in memory of the extent, as far as it can without waiting. An `fsync` tells what fails.
    /// `store` is the one that the extent is of.
    pub fn begin_to_write(&self, store: &Store) {
        let begin = |part| self.sync_range(&store.objects, &self.object, part, libc::SYNC_FILE_RANGE_WRITE);
        // What is refused is noted there.
        let _ = self.parts.iter().try_for_each(|part| begin(*part));
    }

    /// Lets the host forget what it has in memory of the extent, as far as that is on the device.
    pub fn forget(&self) {
        self.advise(Advice::DontNeed);
    }

    /// Has the host read the extent from the device to memory, without waiting for it.
    pub fn read_ahead(&self) {
        self.advise(Advice::WillNeed);
    }

    /// Waits until what [`Self::read_ahead`] asked for is in memory, as far as the file reaches.
    pub fn wait_until_read(&self) {
        for (offset, len) in &self.parts {
            let end = offset.saturating_add(len.get());
            for step in 1..=len.get().div_ceil(PROBE_BYTES) {
                let last = offset.saturating_add(step * PROBE_BYTES).min(end) - 1;
                // A page that is being read is waited for. Whoever reads what cannot be read finds out.
                let _ = rustix::io::pread(&self.object, &mut [0u8; 1], last);
            }
        }
    }

    fn advise(&self, advice: Advice) {
        for (offset, len) in &self.parts {
            // It is no more than advice: a host that refuses it loses some speed.
            let _ = rustix::fs::fadvise(&self.object, *offset, Some(*len), advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, OpenHow, StoreConfig, TargetDir};
    use isonomia_proto::fs::{Timestamp, access};
    use isonomia_testbed::Heard;
    use isonomia_units::ServerId;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn what_cannot_be_written_out_is_told_by_the_next_fsync_and_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir { id: TargetId(0), dir: dir.path().join("target") };
        let config = StoreConfig::new(dir.path().join("store"), ServerId(0), vec![target]);
        let store = Store::open(&config).unwrap();
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let now = Timestamp::new(1, 0).unwrap();
        let ino = store.open_file(&Caller::ROOT, Ino::ROOT, b"f", &how, now).unwrap().ino;
        store.write(ino, 0, &[1; 8192], now).unwrap();
        let mut extent = store.extent(ino, TargetId(0), &[0..100, 5000..6000]).unwrap().unwrap();
        // The host refuses it.
        let path = store.objects.targets.path(extent.place);
        extent.is_shared = false;
        extent.object = Arc::new(rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap());
        let heard = Heard::default();
        assert!(tracing::subscriber::with_default(heard.clone(), || extent.write_out(&store, false)).is_err());
        let (line, path) = (heard.take(), path.display().to_string());
        assert!(line.starts_with("ERROR") && line.contains("may be lost"), "{line}");
        for part in [format!("ino={ino}"), format!("object={path}"), "object_offset=0".to_owned(), "end=100".to_owned()]
        {
            assert!(line.contains(&part), "{line}");
        }
        assert!(store.fsync(ino, true).is_err());
        store.fsync(ino, true).unwrap();
        assert!(extent.write_out(&store, true).is_err());
        assert!(store.fsync(ino, true).is_err());
        store.fsync(ino, true).unwrap();
        let verifier = store.verifier();
        drop((extent, store));
        assert_ne!(Store::open(&config).unwrap().verifier(), verifier);
    }
}
