//! Open files: which parts of them take space.

use crate::clients::errno;
use crate::filesystem::{MountedFiles, Outcome};
use crate::poller;
use fuser::{FileHandle, INodeNo, Request};
use isonomia_client::{Extent, SpaceChange};
use rustix::io::Errno;

impl MountedFiles {
    /// Makes room or holes, as `mode` of `fallocate(2)` says.
    pub(crate) fn change_space(
        &self,
        request: &Request,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Outcome<()> {
        let change = SpaceChange::from_mode(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        let handle = self.handles.get(handle)?;
        poller::leave();
        self.charged(request, &handle.client)?.change_space(&handle.file, change, offset, len).map_err(|e| errno(&e))
    }

    /// Finds the next data or hole, as `lseek(2)` does.
    pub(crate) fn seek(&self, request: &Request, handle: FileHandle, offset: i64, whence: i32) -> Outcome<i64> {
        let what = extent_of(whence).ok_or(Errno::INVAL)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let handle = self.handles.get(handle)?;
        let client = self.charged(request, &handle.client)?;
        let ino = handle.file.capability.ino;
        let found = if self.mappings.may_have_pages(ino) {
            // The server knows nothing of what was stored in holes and is not written back: so there are none.
            let size = client.get_attr(self.nodes.at(INodeNo(ino)), b"", false).map_err(|e| errno(&e))?.size_bytes;
            match what {
                _ if offset >= size => return Err(Errno::NXIO),
                Extent::Data => offset,
                Extent::Hole => size,
            }
        } else {
            client.seek_extent(&handle.file, offset, what).map_err(|e| errno(&e))?
        };
        i64::try_from(found).map_err(|_| Errno::OVERFLOW)
    }
}

fn extent_of(whence: i32) -> Option<Extent> {
    match whence {
        libc::SEEK_DATA => Some(Extent::Data),
        libc::SEEK_HOLE => Some(Extent::Hole),
        _ => None,
    }
}
