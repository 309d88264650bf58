//! Names and attributes.

use crate::attr::timestamp;
use crate::clients::errno;
use crate::filesystem::{MountedFiles, Outcome};
use fuser::{FileHandle, INodeNo, RenameFlags, Request, TimeOrNow};
use isonomia_client::{Attr, Change, FsStat, Node, RenameHow, TimeChange};
use rustix::io::Errno;

/// The longest name, in bytes.
pub const NAME_LEN_MAX: u32 = 255;

/// A name in a directory.
type Location<'a> = (INodeNo, &'a [u8]);

impl MountedFiles {
    /// The attributes of what `name` in `parent` leads to; the caller must be allowed to search `parent`.
    pub(crate) fn look_up(&self, request: &Request, parent: INodeNo, name: &[u8]) -> Outcome<Node> {
        self.permitted(request)?.look_up(self.nodes.at(parent), name, false).map_err(|e| errno(&e))
    }

    /// The attributes of an inode, which everybody who has it may see.
    pub(crate) fn get_attr(&self, request: &Request, ino: INodeNo) -> Outcome<Attr> {
        self.told(request)?.get_attr(self.nodes.at(ino), b"", false).map_err(|e| errno(&e))
    }

    /// Changes attributes; a size by right of `handle`, if there is one, else of the caller.
    pub(crate) fn set_attr(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: Option<FileHandle>,
        change: &Change,
    ) -> Outcome<Attr> {
        let client = self.permitted(request)?;
        let mut change = *change;
        if let (Some(size), Some(handle)) = (change.size_bytes, handle) {
            let attr = client.truncate(&self.handles.get(handle)?.file, size).map_err(|e| errno(&e))?;
            change.size_bytes = None;
            if change == Change::default() {
                return Ok(attr);
            }
        }
        client.set_attr(self.nodes.at(ino), b"", false, &change).map_err(|e| errno(&e))
    }

    pub(crate) fn link_text(&self, request: &Request, ino: INodeNo) -> Outcome<Vec<u8>> {
        self.permitted(request)?.readlink(self.nodes.at(ino), b"").map_err(|e| errno(&e))
    }

    /// Creates a file, FIFO, socket, or device; opening all but files is the kernel's business.
    pub(crate) fn make_node(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Outcome<Node> {
        self.permitted(request)?.mknod(self.nodes.at(parent), name, mode, rdev.into()).map_err(|e| errno(&e))
    }

    pub(crate) fn make_directory(&self, request: &Request, parent: INodeNo, name: &[u8], mode: u32) -> Outcome<Node> {
        self.permitted(request)?.mkdir(self.nodes.at(parent), name, mode).map_err(|e| errno(&e))
    }

    pub(crate) fn make_symlink(&self, request: &Request, parent: INodeNo, name: &[u8], text: &[u8]) -> Outcome<Node> {
        self.permitted(request)?.symlink(text, self.nodes.at(parent), name).map_err(|e| errno(&e))
    }

    pub(crate) fn make_link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &[u8]) -> Outcome<Node> {
        self.permitted(request)?
            .link(self.nodes.at(ino), b"", false, self.nodes.at(parent), name)
            .map_err(|e| errno(&e))
    }

    pub(crate) fn remove(&self, request: &Request, parent: INodeNo, name: &[u8]) -> Outcome<()> {
        self.permitted(request)?.unlink(self.nodes.at(parent), name).map_err(|e| errno(&e))
    }

    pub(crate) fn remove_directory(&self, request: &Request, parent: INodeNo, name: &[u8]) -> Outcome<()> {
        self.permitted(request)?.rmdir(self.nodes.at(parent), name).map_err(|e| errno(&e))
    }

    pub(crate) fn move_name(
        &self,
        request: &Request,
        (parent, name): Location<'_>,
        (to, to_name): Location<'_>,
        flags: RenameFlags,
    ) -> Outcome<()> {
        let how = if flags.is_empty() {
            RenameHow::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameHow::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameHow::Exchange
        } else {
            return Err(Errno::INVAL);
        };
        self.permitted(request)?
            .rename(self.nodes.at(parent), name, self.nodes.at(to), to_name, how)
            .map_err(|e| errno(&e))
    }

    /// Checks `mask`, as in `access(2)`.
    pub(crate) fn may_access(&self, request: &Request, ino: INodeNo, mask: u32) -> Outcome<()> {
        self.permitted(request)?.access(self.nodes.at(ino), b"", mask, false).map_err(|e| errno(&e))
    }

    /// The capacity, which is nobody's in particular.
    pub(crate) fn capacity(&self) -> Outcome<FsStat> {
        self.clients.own()?.stat_fs().map_err(|e| errno(&e))
    }
}

/// A change of attributes, from the kernel's words.
pub fn change(
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size_bytes: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
) -> Change {
    let time = |time| match time {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::SpecificTime(time) => TimeChange::At(timestamp(time)),
    };
    Change { mode, uid, gid, size_bytes, atime: atime.map(time), mtime: mtime.map(time) }
}
