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
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes that are looked for at once at most.
pub const PAGES_LEN_MAX: u64 = 32 << 10;
/// Blocks that so many bytes are in at most.
const BLOCKS: usize = PAGES_LEN_MAX as usize / BLOCK_BYTES + 1;

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
