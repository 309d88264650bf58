//! Opening, and what is done to inodes rather than to names.

use super::tree::{FileSystem, Id, Inode, Kind, Person, READ, SEARCH, WRITE};
use super::walk::{Follow, Last};
use crate::{OpenHow, XattrHow};
use nix::errno::Errno;

impl FileSystem {
    /// `open`; the umask is applied to `permissions` of a new file.
    pub(super) fn open(&mut self, who: &Person, path: &str, how: &OpenHow, permissions: u32) -> Result<Id, Errno> {
        let found = if how.create {
            let follow = if how.exclusive || how.no_follow { Follow::Never } else { Follow::WithoutSlash };
            let location = self.locate(who, path, follow)?;
            match (&location.last, location.slash) {
                (Last::Name(_), true) => return Err(Errno::EISDIR),
                (Last::Name(name), false) if self.at(&location)?.is_none() => {
                    self.may(who, location.dir, WRITE | SEARCH)?;
                    // Whoever creates a file may open it, whatever its permissions.
                    return Ok(self.create(who, location.dir, name, Kind::File(Default::default()), permissions));
                }
                _ if how.exclusive => return Err(Errno::EEXIST),
                _ => {}
            }
            let found = self.at(&location)?.ok_or(Errno::ENOENT)?;
            if self.inode(found).is_directory() {
                return Err(Errno::EISDIR);
            }
            found
        } else {
            self.find(who, path, !how.no_follow)?
        };
        match self.inode(found).kind {
            Kind::Directory(_) if how.write => return Err(Errno::EISDIR),
            Kind::Directory(_) => {}
            _ if how.directory => return Err(Errno::ENOTDIR),
            Kind::Symlink(_) => return Err(Errno::ELOOP),
            Kind::File(_) | Kind::Socket => {}
        }
        self.may(who, found, if how.read { READ } else { 0 } | if how.write { WRITE } else { 0 })?;
        match &mut self.inode_mut(found).kind {
            Kind::Socket => return Err(Errno::ENXIO),
            Kind::File(_) if how.truncate => self.resize(found, 0),
            _ => {}
        }
        Ok(found)
    }

    /// Sets the size of a file, which modifies it, be the size the same.
    pub(super) fn resize(&mut self, file: Id, size: u64) {
        let inode = self.inode_mut(file);
        if let Kind::File(contents) = &mut inode.kind {
            contents.resize(size);
            inode.mtime = None;
        }
    }

    pub(super) fn truncate(&mut self, who: &Person, path: &str, size: u64) -> Result<(), Errno> {
        let found = self.find(who, path, true)?;
        match self.inode(found).kind {
            Kind::File(_) => self.may(who, found, WRITE)?,
            Kind::Directory(_) => return Err(Errno::EISDIR),
            Kind::Symlink(_) | Kind::Socket => return Err(Errno::EINVAL),
        }
        // Unlike ftruncate, it is a modification only if it modifies something.
        if self.inode(found).size() != size {
            self.resize(found, size);
        }
        Ok(())
    }

    pub(super) fn readlink(&self, who: &Person, path: &str) -> Result<String, Errno> {
        match &self.inode(self.find(who, path, false)?).kind {
            Kind::Symlink(text) => Ok(text.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The inode at `path`, for its owner to change.
    fn own(&mut self, who: &Person, path: &str) -> Result<&mut Inode, Errno> {
        let found = self.find(who, path, true)?;
        if who.owns(self.inode(found)) { Ok(self.inode_mut(found)) } else { Err(Errno::EPERM) }
    }

    pub(super) fn chmod(&mut self, who: &Person, path: &str, bits: u32) -> Result<(), Errno> {
        self.own(who, path)?.set_permissions(who, bits);
        Ok(())
    }

    /// Users give files to nobody else, and only to groups that they are in.
    pub(super) fn chown(&mut self, who: &Person, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let inode = self.own(who, path)?;
        let gives_away =
            uid.is_some_and(|uid| uid != inode.uid) || gid.is_some_and(|gid| gid != inode.gid && !who.is_in(gid));
        if gives_away && !who.is_root() {
            return Err(Errno::EPERM);
        }
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        Ok(())
    }

    pub(super) fn set_time(&mut self, who: &Person, path: &str, secs: i64) -> Result<(), Errno> {
        self.own(who, path)?.mtime = Some(secs);
        Ok(())
    }

    pub(super) fn xattr(&self, who: &Person, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(self.find(who, path, true)?);
        who.may(inode, if inode.has_xattrs() { READ } else { 0 })?;
        inode.xattrs.get(name).map(|&(fill, len)| vec![fill; len]).ok_or(Errno::ENODATA)
    }

    /// An inode whose extended attributes `who` may change: as its contents, but in a sticky directory's case its own.
    fn with_xattrs(&mut self, who: &Person, path: &str) -> Result<&mut Inode, Errno> {
        let found = self.find(who, path, true)?;
        let inode = self.inode_mut(found);
        if !inode.has_xattrs() || inode.is_directory() && inode.is_sticky() && !who.owns(inode) {
            return Err(Errno::EPERM);
        }
        who.may(inode, WRITE)?;
        Ok(inode)
    }

    pub(super) fn set_xattr(
        &mut self,
        who: &Person,
        path: &str,
        name: &str,
        value: (u8, usize),
        how: XattrHow,
    ) -> Result<(), Errno> {
        let inode = self.with_xattrs(who, path)?;
        match (how, inode.xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(Errno::EEXIST),
            (XattrHow::Replace, false) => return Err(Errno::ENODATA),
            _ => inode.xattrs.insert(name.to_owned(), value),
        };
        Ok(())
    }

    pub(super) fn remove_xattr(&mut self, who: &Person, path: &str, name: &str) -> Result<(), Errno> {
        self.with_xattrs(who, path)?.xattrs.remove(name).map(drop).ok_or(Errno::ENODATA)
    }
}

impl Inode {
    /// Files and directories have attributes of the `user.` namespace: xattr(7).
    fn has_xattrs(&self) -> bool {
        matches!(self.kind, Kind::File(_) | Kind::Directory(_))
    }
}
