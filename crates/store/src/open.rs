//! Opening and creating files, and the references of sessions.

use crate::inode::{Inode, MAY_BE_NAMED, SPREAD, UNFLUSHED, UNLINKED};
use crate::layouts::Creator;
use crate::namespace::NewInode;
use crate::permission::{MAY_EXECUTE, MAY_READ, MAY_WRITE};
use crate::record::Body;
use crate::walk::Last;
use crate::{Caller, Namespace, Store, StoreError};
use isonomia_proto::fs::{Attr, Capability, FileKind, Layout, MODE_PERMISSION_MASK, Timestamp, access};
use isonomia_units::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// How to open: the flags of `open(2)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// Bits of [`access`]. With [`access::EXECUTE`] permission to execute is enough to read, so the caller must be trusted to
    /// show nobody what it reads: it is for mounts, whose kernel executes the file.
    pub access: u32,
    /// Create the file when it does not exist.
    pub create: bool,
    /// With `create`: fail when it exists; a symbolic link at the end counts as existing.
    pub exclusive: bool,
    /// Cut the file to nothing; needs permission to write.
    pub truncate: bool,
    /// The path must be a directory.
    pub directory: bool,
    /// Fail at a symbolic link at the end.
    pub no_follow: bool,
    /// Create a file without a name in the directory that the path leads to (`O_TMPFILE`). It goes with its last
    /// reference, unless `exclusive` is unset and [`Store::link`] gives it a name before.
    pub unnamed: bool,
    /// Ask for the identity only (`O_PATH`): no permission on the inode is needed, and the capability allows nothing.
    pub path_only: bool,
    /// Permission bits of a new file; the umask is already applied.
    pub mode: u32,
    /// Who makes a new file, if it is known.
    pub creator: Option<Creator>,
}

impl OpenHow {
    fn new_file(&self, layout: Option<Arc<Layout>>) -> NewInode {
        let (kind, bits, creator) = (FileKind::Regular, self.mode & MODE_PERMISSION_MASK, self.creator);
        NewInode { kind, bits, rdev: 0, text: [].into(), layout, creator }
    }
}

/// What an open gives.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The inode; the session has a reference to it, to be given back with [`Store::release`].
    pub ino: Ino,
    /// Attributes after the open.
    pub attr: Attr,
    /// Where the bytes of a regular file are.
    pub layout: Option<Arc<Layout>>,
    /// Its bytes are in objects that are asked for by their places: see `spread`.
    pub is_spread: bool,
    /// This open created the file.
    pub created: bool,
    /// Proof of the open for data requests, made out to the caller.
    pub capability: Capability,
}

impl Store {
    /// Opens or creates the file at `path` and takes a reference to it.
    pub fn open_file(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        how: &OpenHow,
        now: Timestamp,
    ) -> Result<Opened, StoreError> {
        self.open_with(caller, at, path, how, None, now)
    }

    /// With the layout of a spread file, should it be created.
    pub(crate) fn open_with(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        how: &OpenHow,
        layout: Option<Arc<Layout>>,
        now: Timestamp,
    ) -> Result<Opened, StoreError> {
        let (inode, created) = if how.unnamed {
            (self.create_unnamed(caller, at, path, how, layout, now)?, true)
        } else if how.create {
            self.open_or_create(caller, at, path, how, layout, now)?
        } else {
            self.namespace.find(caller, at, path, how)?
        };
        if how.truncate
            && !created
            && inode.layout.is_some()
            && let Err(e) = self.set_inode_size(&inode, 0, now)
        {
            self.release(Ino(inode.ino))?;
            return Err(e);
        }
        let allowed = if how.path_only { 0 } else { how.access & (access::READ | access::WRITE) };
        Ok(Opened {
            ino: Ino(inode.ino),
            attr: self.attr(&inode)?,
            layout: inode.layout.clone(),
            is_spread: inode.has(SPREAD),
            created,
            capability: self.namespace.signer.sign(inode.ino, inode.generation, allowed, caller.uid),
        })
    }

    fn open_or_create(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        how: &OpenHow,
        layout: Option<Arc<Layout>>,
        now: Timestamp,
    ) -> Result<(Arc<Inode>, bool), StoreError> {
        if how.directory {
            return Err(StoreError::Invalid);
        }
        let mut namespace = self.namespace.own();
        let location = if how.exclusive || how.no_follow {
            self.namespace.locate(caller, at.0, path)?
        } else {
            self.namespace.locate_followed(caller, at.0, path)?
        };
        if let (Last::Name(_), true) = (&location.last, location.slash) {
            return Err(StoreError::IsDirectory);
        }
        let existing = self.namespace.inode_at(&location)?;
        if let (None, Last::Name(name)) = (&existing, &location.last) {
            let inode = self.create(&mut namespace, caller, &location.dir, Some(name), how.new_file(layout), now)?;
            take_reference(&inode)?;
            return Ok((inode, true));
        }
        let inode = existing.ok_or(StoreError::NotFound)?;
        if how.exclusive {
            return Err(StoreError::Exists);
        }
        check_open(caller, &inode, how)?;
        take_reference(&inode)?;
        Ok((inode, false))
    }

    fn create_unnamed(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        how: &OpenHow,
        layout: Option<Arc<Layout>>,
        now: Timestamp,
    ) -> Result<Arc<Inode>, StoreError> {
        if how.access & access::WRITE == 0 || how.create || how.path_only {
            return Err(StoreError::Invalid);
        }
        let mut namespace = self.namespace.own();
        let dir = self.namespace.resolve(caller, at.0, path, !how.no_follow)?;
        if !dir.record().is_dir() {
            return Err(StoreError::NotDirectory);
        }
        let inode = self.create(&mut namespace, caller, &dir, None, how.new_file(layout), now)?;
        if !how.exclusive {
            inode.set(MAY_BE_NAMED);
        }
        Ok(inode)
    }

    /// Gives back a reference. With the last one, the times of a written file go to the database, and a file without
    /// a name goes for good.
    pub fn release(&self, ino: Ino) -> Result<(), StoreError> {
        let namespace = self.namespace.share();
        let inode = self.namespace.load(ino.0)?;
        let before = inode.refs.fetch_update(AcqRel, Relaxed, |n| n.checked_sub(1)).map_err(|_| StoreError::Invalid)?;
        drop(namespace);
        if before > 1 {
            return Ok(());
        }
        if inode.has(UNLINKED) {
            self.reclaim(&inode)
        } else if inode.has(UNFLUSHED) {
            self.flush_inode(&inode)
        } else {
            Ok(())
        }
    }
}

impl Namespace {
    /// Takes one more reference to an inode that is open already.
    pub fn acquire(&self, ino: Ino) -> Result<(), StoreError> {
        let _namespace = self.share();
        take_reference(&*self.load(ino.0)?)
    }

    /// Checks that `capability` came from this store, and is not of another inode that had the same number: there is
    /// one where older metadata were put back. An inode that is gone is not noticed here.
    pub fn verify(&self, capability: &Capability) -> Result<(), StoreError> {
        self.signer.verify(capability)?;
        // Mostly it is in memory, and its generation is all there is to look at.
        let generation = match self.inodes.read(capability.ino, |inode| Some(inode.generation)) {
            Some(generation) => generation,
            None => match self.inode(capability.ino) {
                Ok(inode) => inode.generation,
                Err(StoreError::Stale) => return Ok(()),
                Err(e) => return Err(e),
            },
        };
        if generation == capability.generation { Ok(()) } else { Err(StoreError::Stale) }
    }

    /// Checks that `capability` came from this store and allows all of `needed` (bits of [`access`]).
    pub fn verify_access(&self, capability: &Capability, needed: u32) -> Result<(), StoreError> {
        self.verify(capability)?;
        if capability.access & needed == needed { Ok(()) } else { Err(StoreError::BadAccess) }
    }

    /// A capability without access of user `holder` for the inode `ino`: he came there.
    pub fn prove(&self, ino: Ino, holder: u32) -> Result<Capability, StoreError> {
        let inode = self.inode(ino.0)?;
        Ok(self.signer.sign(inode.ino, inode.generation, 0, holder))
    }

    /// The capability, which was verified, made out to user `holder`.
    pub fn delegate(&self, capability: &Capability, holder: u32) -> Capability {
        self.signer.sign(capability.ino, capability.generation, capability.access, holder)
    }

    /// Checks that `capability` came from this store and from an open that allows something: not of `O_PATH`.
    pub fn verify_opened(&self, capability: &Capability) -> Result<(), StoreError> {
        self.verify(capability)?;
        if capability.access & (access::READ | access::WRITE) != 0 { Ok(()) } else { Err(StoreError::BadAccess) }
    }

    /// The size of a regular file in bytes.
    pub fn size(&self, ino: Ino) -> Result<u64, StoreError> {
        let inode = self.inode(ino.0)?;
        inode.any_regular()?;
        Ok(inode.size())
    }

    /// The size of a regular file whose inode is in memory, as those of open files mostly are. Waits for nothing.
    pub fn size_in_memory(&self, ino: Ino) -> Option<u64> {
        let inode = self.inodes.get(ino.0)?;
        inode.any_regular().ok()?;
        Some(inode.size())
    }

    /// The layout of a regular file.
    pub fn layout(&self, ino: Ino) -> Result<Arc<Layout>, StoreError> {
        self.inode(ino.0)?.any_regular().cloned()
    }

    fn find(&self, caller: &Caller<'_>, at: Ino, path: &[u8], how: &OpenHow) -> Result<(Arc<Inode>, bool), StoreError> {
        let _namespace = self.share();
        let inode = match self.root_to_read(at.0, path)? {
            Some(root) => root,
            None => self.resolve(caller, at.0, path, !how.no_follow)?,
        };
        check_open(caller, &inode, how)?;
        take_reference(&inode)?;
        Ok((inode, false))
    }
}

/// The caller has the namespace lock: an inode cannot lose its last name meanwhile.
fn take_reference(inode: &Inode) -> Result<(), StoreError> {
    let more = |n: u32| if n == 0 && inode.has(UNLINKED) { None } else { n.checked_add(1) };
    inode.refs.fetch_update(AcqRel, Relaxed, more).map(|_| ()).map_err(|_| StoreError::Stale)
}

fn check_open(caller: &Caller<'_>, inode: &Inode, how: &OpenHow) -> Result<(), StoreError> {
    let record = inode.record();
    let is_dir = record.is_dir();
    if how.directory && !is_dir {
        return Err(StoreError::NotDirectory);
    }
    if how.path_only {
        return Ok(());
    }
    if let Body::Symlink(_) = record.body {
        return Err(StoreError::TooManyLinks);
    }
    if is_dir && how.access & access::EXECUTE != 0 {
        return Err(StoreError::PermissionDenied);
    }
    if is_dir && (how.create || how.truncate || how.access & access::WRITE != 0) {
        return Err(StoreError::IsDirectory);
    }
    let mut mask = 0;
    if how.access & access::EXECUTE != 0 {
        mask |= MAY_EXECUTE;
    } else if how.access & access::READ != 0 {
        mask |= MAY_READ;
    }
    if how.access & access::WRITE != 0 || how.truncate {
        mask |= MAY_WRITE;
    }
    caller.check(&record, mask)?;
    if let Body::Node = record.body { Err(StoreError::NoDevice) } else { Ok(()) }
}
