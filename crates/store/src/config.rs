//! What a store is opened with.

use crate::OpenError;
use crate::fence::Fence;
use crate::owner::Ownership;
use isonomia_proto::fs::Layout;
use isonomia_units::{ServerId, TargetId};
use std::path::PathBuf;
use std::sync::Arc;

/// Inodes kept in memory at most, apart from those in use; detached objects as many again.
pub const CACHED_INODES_MAX: usize = 1 << 17;
/// Directory entries kept in memory at most.
pub const CACHED_ENTRIES_MAX: usize = 1 << 18;
/// Descriptors of object files kept open at most; the limit of the process can make it fewer.
pub const OPEN_OBJECTS_MAX: usize = 16_384;
/// Memory for checksums at most, apart from what operations under way need: those of 32 GiB of blocks.
pub const SUMS_BYTES_MAX: u64 = 64 << 20;

/// Where a store lives and how new files are laid out.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory of the metadata; created when absent.
    pub dir: PathBuf,
    /// The server whose files these are.
    pub server: ServerId,
    /// The targets, in the order in which new files go round them.
    pub targets: Vec<TargetDir>,
    /// Layout of new files.
    pub default_layout: DefaultLayout,
    /// Permission bits of the root directory when the store is created.
    pub root_mode: u32,
    /// Owner and group of the root directory when the store is created.
    pub root_owner: (u32, u32),
    /// Whether blocks of objects are summed when they are written, and verified when they are read.
    pub checksums: bool,
    /// Targets whose objects are read and written past the page cache of the host, as far as its file system can do that.
    pub direct: Vec<TargetId>,
    /// Targets whose objects are written past it by those writes that ask for it ([`crate::WriteMode::Direct`]), as far as its file
    /// system says that it can do that.
    pub direct_on_request: Vec<TargetId>,
    /// Targets of which the host is to read what it is asked for, and nothing ahead of that: whoever uses the store reads ahead
    /// for those whose turn it is ([`crate::Extent::read_ahead`]).
    pub reads_as_asked: Vec<TargetId>,
    /// Bounds of the caches.
    pub bounds: Bounds,
    /// How this process comes to own the directories where others may take them over; nothing where only a lock says who has
    /// them.
    pub ownership: Option<Ownership>,
    /// What tells this start of the host from its others, if it is not what the kernel says: tests cut the power of a disk only.
    pub host_start: Option<String>,
}

/// One target: a directory on a local or mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDir {
    /// The target's name in layouts.
    pub id: TargetId,
    /// Its directory; created when absent and the store is new to it.
    pub dir: PathBuf,
}

/// How new files are spread over targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultLayout {
    /// Bytes on one target before the next takes over; a positive multiple of 4096.
    pub stripe_bytes: u64,
    /// Targets of a file; as many as there are when fewer.
    pub stripe_count: usize,
}

/// How much the caches keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Inodes, apart from those in use; detached objects as many again.
    pub inodes: usize,
    /// Directory entries.
    pub entries: usize,
    /// Descriptors of object files, apart from those being opened at the same moment: an object has one, or two if it is used past the
    /// page cache of the host.
    pub objects: usize,
    /// Memory for checksums of blocks.
    pub sums_bytes: u64,
}

impl StoreConfig {
    /// A store of `server` in `dir` with `targets`, one target a file, and a root directory like `/tmp`: everyone
    /// may create, only owners remove.
    pub fn new(dir: impl Into<PathBuf>, server: ServerId, targets: Vec<TargetDir>) -> Self {
        Self {
            dir: dir.into(),
            server,
            targets,
            default_layout: DefaultLayout::default(),
            root_mode: 0o1777,
            root_owner: (0, 0),
            checksums: true,
            direct: Vec::new(),
            direct_on_request: Vec::new(),
            reads_as_asked: Vec::new(),
            bounds: Bounds::default(),
            ownership: None,
            host_start: None,
        }
    }

    /// What tells this start of the host from its others; empty if that is not known.
    pub(crate) fn host_start(&self) -> String {
        let kernels =
            || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        self.host_start.clone().unwrap_or_else(kernels)
    }

    /// What every change is checked against. Asked once for a store: without a lease it is another one each time.
    pub(crate) fn fence(&self) -> Arc<Fence> {
        self.ownership.as_ref().map(|ownership| ownership.fence.clone()).unwrap_or_default()
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.targets.is_empty() {
            return Err(OpenError::Config("a server needs at least one target"));
        }
        if self.targets.len() > Layout::TARGETS_MAX {
            return Err(OpenError::Config("a server has at most 1024 targets"));
        }
        for (i, target) in self.targets.iter().enumerate() {
            if self.targets[..i].iter().any(|t| t.id == target.id || t.dir == target.dir) {
                return Err(OpenError::Config("a target or its directory is named twice"));
            }
        }
        let stripe = self.default_layout.stripe_bytes;
        if stripe == 0 || !stripe.is_multiple_of(Layout::STRIPE_ALIGN_BYTES) {
            return Err(OpenError::Config("stripe_size (--stripe-size) is a positive multiple of 4096 bytes"));
        }
        if self.default_layout.stripe_count == 0 {
            return Err(OpenError::Config("a file needs at least one target"));
        }
        Ok(())
    }
}

impl Default for DefaultLayout {
    fn default() -> Self {
        Self { stripe_bytes: 1 << 20, stripe_count: 1 }
    }
}

impl Default for Bounds {
    /// A quarter of the process's descriptors at most go to objects: sessions and the database need theirs.
    fn default() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let objects = descriptors.map_or(OPEN_OBJECTS_MAX, |n| (n / 4) as usize).clamp(16, OPEN_OBJECTS_MAX);
        Self { inodes: CACHED_INODES_MAX, entries: CACHED_ENTRIES_MAX, objects, sums_bytes: SUMS_BYTES_MAX }
    }
}
