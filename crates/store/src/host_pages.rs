//! Which pages of the host's memory a read takes its bytes from: for whoever has the host bring them there, and reads when they
//! have come ([`Store::read_cached`]).
//!
//! Nothing is promised by that. When the pages have come the file may have been cut, removed, or written to, or they may have
//! gone again: the read that follows sees to all of it, as any other.

use crate::checksum::{BLOCK_BYTES, blocks_in};
use crate::content::{Content, Objects};
use crate::object::spot;
use crate::{ObjectPlace, ObjectStore, Store};
use isonomia_proto::fs::Layout;
use isonomia_units::Ino;
use rustix::fs::Advice;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

/// Bytes that are looked for at once at most.
pub const PAGES_LEN_MAX: u64 = 32 << 10;
/// Blocks that so many bytes are in at most.
const BLOCKS: usize = PAGES_LEN_MAX as usize / BLOCK_BYTES + 1;

/// The number of `cachestat`, which `libc` does not have: the same on all that this is built for.
const CACHESTAT: libc::c_long = 451;

/// What the kernel has of a range in its page cache: `cachestat` of `linux/mman.h`, in pages.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached_pages: u64,
    dirty_pages: u64,
    written_back_pages: u64,
    evicted_pages: u64,
    lately_evicted_pages: u64,
}

/// A range of one object.
#[derive(Clone, Debug)]
pub struct HostPages {
    /// The object, open for as long as somebody has this.
    pub file: Arc<OwnedFd>,
    /// Where in it.
    pub offset: u64,
    /// How many bytes, at least one.
    pub len: u64,
}

impl HostPages {
    /// The block of `block_bytes` that they are in, a multiple of the page; `None` if they are in several.
    pub fn block(&self, block_bytes: u64) -> Option<Self> {
        let offset = self.offset - self.offset % block_bytes;
        let is_in_one = self.offset + self.len <= offset + block_bytes;
        is_in_one.then(|| Self { file: self.file.clone(), offset, len: block_bytes })
    }

    /// How many of these bytes the host has in memory, in whole pages. `None` if the kernel does not tell (Linux does from 6.5 on), or if the host has
    /// dropped some of them for want of memory: more of them would be dropped as well before anybody comes to it.
    pub fn cached_bytes(&self) -> Option<u64> {
        let found = self.found().filter(|found| found.evicted_pages == 0)?;
        Some(found.cached_pages * rustix::param::page_size() as u64)
    }

    fn found(&self) -> Option<CacheStat> {
        let range = [self.offset, self.len];
        let mut found = CacheStat::default();
        // SAFETY: the range is a `cachestat_range`, and what is found a `cachestat`; both outlive the call.
        let outcome = unsafe { libc::syscall(CACHESTAT, self.file.as_raw_fd(), range.as_ptr(), &raw mut found, 0) };
        (outcome == 0).then_some(found)
    }

    /// Whether all that the host has of them is on the device, too.
    pub fn is_clean(&self) -> bool {
        self.found().is_some_and(|found| found.dirty_pages == 0 && found.written_back_pages == 0)
    }

    /// Has the host drop those that nobody uses. It begins to write those that are not [clean](Self::is_clean).
    pub fn forget(&self) {
        // It is no more than advice.
        let _ = rustix::fs::fadvise(&self.file, self.offset, NonZeroU64::new(self.len), Advice::DontNeed);
    }

    /// Waits until the host has read as many of them as `scratch` is long, or cannot.
    pub fn read(&self, scratch: &mut [u8]) {
        let len = self.len.min(scratch.len() as u64) as usize;
        // The read that follows finds out what is wrong.
        let _ = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut scratch[..len], self.offset));
    }
}

impl Store {
    /// The pages that a read of `len` bytes at `offset` waits for; `None` if it waits for anything else, such as an object that is
    /// not open, checksums that are not in memory, or somebody who changes the file, or for nothing, or for more than one object or
    /// [`PAGES_LEN_MAX`].
    pub fn host_pages(&self, ino: Ino, offset: u64, len: u64) -> Option<HostPages> {
        // Looking for it would take the database, which may be on a device that hangs.
        let inode = self.namespace.inodes.get(ino.0)?;
        let layout = inode.regular().ok()?;
        let objects = inode.data.try_read().ok()?;
        self.objects.host_pages(&inode.content, layout, &objects, offset, len)
    }
}

impl ObjectStore {
    /// The same of an object of a spread file.
    pub fn host_pages_of_object(&self, place: ObjectPlace, offset: u64, len: u64) -> Option<HostPages> {
        let object = self.detached.get(place)?;
        let objects = object.content.data.try_read().ok()?;
        self.host_pages(&object.content, object.layout(), &objects, offset, len)
    }

    fn host_pages(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &Objects,
        offset: u64,
        len: u64,
    ) -> Option<HostPages> {
        let len = content.size().saturating_sub(offset).min(len);
        let at = spot(layout, offset);
        if len == 0 || len > at.run.min(PAGES_LEN_MAX) {
            return None;
        }
        let file = objects.object(at.index)?.pages()?;
        if let Some(blocks) = self.checked_blocks(content, layout, objects, at.index).ok()? {
            let first = at.offset / BLOCK_BYTES as u64;
            let count = blocks_in(at.offset + len) - first;
            // Some file systems have a read wait for whoever writes to the file.
            if blocks.sums.is_being_written() {
                return None;
            }
            if !blocks.sums.copy(first, &mut [0; BLOCKS][..count as usize]) {
                return None;
            }
        }
        Some(HostPages { file: file.clone(), offset: at.offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pages_in_memory;
    use rustix::fs::Advice;

    #[test]
    fn what_a_block_has_in_memory_is_counted_and_pages_come_that_are_read() {
        const PAGES: usize = 64;
        let page = rustix::param::page_size();
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        rustix::io::pwrite(&file, &vec![7; PAGES * page], 0).unwrap();
        rustix::fs::fsync(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        if pages_in_memory(&file, PAGES).contains(&true) {
            isonomia_testbed::skip("the host keeps files in memory here");
            return;
        }
        let at = |number: usize, pages: usize| HostPages {
            file: file.clone(),
            offset: (number * page) as u64,
            len: (pages * page) as u64,
        };
        at(9, 9).read(&mut vec![0; 7 * page]);
        let there: Vec<_> = (0..PAGES).map(|number| (9..16).contains(&number)).collect();
        assert_eq!(pages_in_memory(&file, PAGES), there, "as many as there is place for");
        let block = |pages: HostPages| {
            let block = pages.block(8 * page as u64)?;
            Some((block.offset as usize / page, block.len as usize / page))
        };
        assert_eq!(block(at(10, 6)), Some((8, 8)));
        assert_eq!(block(at(15, 2)), None, "they are in two");
        let cached = |number, pages| at(number, pages).cached_bytes().map(|bytes| bytes as usize / page);
        if cached(0, 1).is_none() {
            isonomia_testbed::skip("the kernel does not tell what is in memory");
            return;
        }
        assert_eq!([cached(0, 8), cached(8, 8), cached(15, 8)], [Some(0), Some(7), Some(1)]);
        at(12, 8).forget();
        assert_eq!([cached(0, 8), cached(8, 8), cached(16, 8)], [Some(0), Some(3), Some(0)]);
        assert!(at(8, 8).is_clean());
        rustix::io::pwrite(&file, &vec![7; page], 10 * page as u64).unwrap();
        assert!(!at(8, 8).is_clean() && at(11, 8).is_clean());
        rustix::fs::fsync(&file).unwrap();
        // What the host dropped for want of memory, as this makes it drop them.
        let len = PAGES * page;
        // SAFETY: the host finds a place for it, and it is as long as the file.
        unsafe {
            use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
            let start = mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap();
            (0..PAGES).for_each(|number| assert_eq!(start.cast::<u8>().add(number * page).read_volatile(), 7));
            madvise(start, len, Advice::LinuxPageOut).unwrap();
            munmap(start, len).unwrap();
        }
        if pages_in_memory(&file, PAGES).contains(&true) {
            isonomia_testbed::skip("the host drops no pages when it is asked to");
            return;
        }
        assert_eq!(cached(8, 8), None, "it was dropped");
    }
}
