//! Making, removing, and moving names. What is checked first is what Linux checks first: where a call has several
//! reasons to fail POSIX leaves the choice open, and programs have got used to one.

use super::tree::{FileSystem, Id, Kind, Person, READ, SEARCH, WRITE};
use super::walk::{Dots, Follow, Last, Location};
use crate::RenameHow;
use nix::errno::Errno;

/// A rename, with what was found at both locations.
struct Renaming<'a> {
    old: &'a Location,
    source: Id,
    new: &'a Location,
    target: Option<Id>,
    exchange: bool,
}

impl FileSystem {
    /// A name that is not there, in a directory where it may be made.
    fn free_name(&self, who: &Person, path: &str, for_directory: bool) -> Result<(Id, String), Errno> {
        let (dir, name) = self.unused_name(who, path, for_directory)?;
        self.may(who, dir, WRITE | SEARCH)?;
        Ok((dir, name))
    }

    /// A name that is not there.
    fn unused_name(&self, who: &Person, path: &str, for_directory: bool) -> Result<(Id, String), Errno> {
        let location = self.locate(who, path, Follow::Never)?;
        if self.at(&location)?.is_some() {
            return Err(Errno::EEXIST);
        }
        if location.slash && !for_directory {
            return Err(Errno::ENOENT);
        }
        match location.last {
            Last::Name(name) => Ok((location.dir, name)),
            Last::Dots(..) => Err(Errno::EEXIST),
        }
    }

    /// `mkdir`, `symlink`, and `mknod`; `permissions` with the umask applied.
    pub(super) fn make(&mut self, who: &Person, path: &str, kind: Kind, permissions: u32) -> Result<(), Errno> {
        let (dir, name) = self.free_name(who, path, matches!(kind, Kind::Directory(_)))?;
        self.create(who, dir, &name, kind, permissions);
        Ok(())
    }

    pub(super) fn link(&mut self, who: &Person, path: &str, to: &str) -> Result<(), Errno> {
        let found = self.find(who, path, false)?;
        let (dir, name) = self.unused_name(who, to, false)?;
        let inode = self.inode(found);
        // As with `fs.protected_hardlinks`.
        let is_open_to_all = matches!(inode.kind, Kind::File(_)) && who.may(inode, READ | WRITE).is_ok();
        if !who.owns(inode) && !is_open_to_all {
            return Err(Errno::EPERM);
        }
        self.may(who, dir, WRITE | SEARCH)?;
        if self.inode(found).is_directory() {
            return Err(Errno::EPERM);
        }
        self.set_name(dir, &name, Some(found));
        Ok(())
    }

    /// Whether a name may be taken out of a directory: in a sticky one only by the owner of either.
    fn may_remove(&self, who: &Person, dir: Id, victim: Id) -> Result<(), Errno> {
        self.may(who, dir, WRITE | SEARCH)?;
        let owned = who.owns(self.inode(dir)) || who.owns(self.inode(victim));
        if self.inode(dir).is_sticky() && !owned { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Whether a name may be taken out for something that is a directory, or is none.
    fn may_remove_as(&self, who: &Person, dir: Id, victim: Id, as_directory: bool) -> Result<(), Errno> {
        self.may_remove(who, dir, victim)?;
        match (as_directory, self.inode(victim).is_directory()) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            _ => Ok(()),
        }
    }

    fn is_empty(&self, dir: Id) -> bool {
        self.names(dir).is_ok_and(|names| names.is_empty())
    }

    pub(super) fn rmdir(&mut self, who: &Person, path: &str) -> Result<(), Errno> {
        let location = self.locate(who, path, Follow::Never)?;
        let name = match &location.last {
            Last::Name(name) => name,
            Last::Dots(Dots::One, _) => return Err(Errno::EINVAL),
            Last::Dots(Dots::Two, _) => return Err(Errno::ENOTEMPTY),
        };
        let victim = self.look(location.dir, name)?.ok_or(Errno::ENOENT)?;
        self.may_remove_as(who, location.dir, victim, true)?;
        if !self.is_empty(victim) {
            return Err(Errno::ENOTEMPTY);
        }
        self.set_name(location.dir, name, None);
        Ok(())
    }

    pub(super) fn unlink(&mut self, who: &Person, path: &str) -> Result<(), Errno> {
        let location = self.locate(who, path, Follow::Never)?;
        let Last::Name(name) = &location.last else { return Err(Errno::EISDIR) };
        let victim = self.look(location.dir, name)?.ok_or(Errno::ENOENT)?;
        if location.slash {
            return Err(if self.inode(victim).is_directory() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.may_remove_as(who, location.dir, victim, false)?;
        self.set_name(location.dir, name, None);
        Ok(())
    }

    pub(super) fn rename(&mut self, who: &Person, path: &str, to: &str, how: RenameHow) -> Result<(), Errno> {
        let exchange = how == RenameHow::Exchange;
        let (old, new) = (self.locate(who, path, Follow::Never)?, self.locate(who, to, Follow::Never)?);
        let Last::Name(old_name) = &old.last else { return Err(Errno::EBUSY) };
        let Last::Name(new_name) = &new.last else {
            return Err(if how == RenameHow::NoReplace { Errno::EEXIST } else { Errno::EBUSY });
        };
        let source = self.look(old.dir, old_name)?.ok_or(Errno::ENOENT)?;
        let target = self.look(new.dir, new_name)?;
        match target {
            Some(_) if how == RenameHow::NoReplace => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            _ => {}
        }
        let renaming = Renaming { old: &old, source, new: &new, target, exchange };
        self.check_shape(&renaming)?;
        if target == Some(source) {
            return Ok(());
        }
        self.check_rights(who, &renaming)?;
        if let Some(target) = target
            && !exchange
            && self.inode(target).is_directory()
            && !self.is_empty(target)
        {
            return Err(Errno::ENOTEMPTY);
        }
        self.set_name(old.dir, old_name, if exchange { target } else { None });
        self.set_name(new.dir, new_name, Some(source));
        Ok(())
    }

    /// Slashes after what is no directory, and directories that would get below themselves.
    fn check_shape(&self, renaming: &Renaming<'_>) -> Result<(), Errno> {
        let Renaming { old, source, new, target, exchange } = *renaming;
        let is_directory = |id: Id| self.inode(id).is_directory();
        if exchange && new.slash && !target.is_some_and(is_directory) {
            return Err(Errno::ENOTDIR);
        }
        if !is_directory(source) && (old.slash || new.slash && !exchange) {
            return Err(Errno::ENOTDIR);
        }
        if self.is_below(new.dir, source) {
            return Err(Errno::EINVAL);
        }
        if target.is_some_and(|target| self.is_below(old.dir, target)) {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        Ok(())
    }

    /// Both directories change, and a directory that moves to another one, because its `..` does.
    fn check_rights(&self, who: &Person, renaming: &Renaming<'_>) -> Result<(), Errno> {
        let Renaming { old, source, new, target, exchange } = *renaming;
        let is_directory = |id: Id| self.inode(id).is_directory();
        self.may_remove(who, old.dir, source)?;
        match target {
            None => self.may(who, new.dir, WRITE | SEARCH)?,
            Some(target) if exchange => self.may_remove(who, new.dir, target)?,
            Some(target) => self.may_remove_as(who, new.dir, target, is_directory(source))?,
        }
        if old.dir != new.dir {
            for moved in [Some(source), target.filter(|_| exchange)].into_iter().flatten() {
                if is_directory(moved) {
                    self.may(who, moved, WRITE)?;
                }
            }
        }
        Ok(())
    }
}
