//! Renaming, in the order of checks that Linux has: what exists, what kinds go together, who may, what is empty.

use crate::inode::{Inode, UNLINKED};
use crate::permission::MAY_WRITE;
use crate::record::Body;
use crate::walk::{Last, Location};
use crate::{Caller, Namespace, Store, StoreError};
use isonomia_proto::fs::{FileKind, RenameHow, Timestamp};
use isonomia_units::Ino;
use std::sync::Arc;

/// A directory is moved into one that is at most so deep: nothing else can be changed while the way up from there is
/// walked. A path from the root cannot lead deeper than 2,048.
pub const MOVE_DEPTH_MAX: usize = 16_384;

/// One of the two names of a rename.
struct End<'p> {
    dir: &'p Arc<Inode>,
    name: &'p [u8],
    slash: bool,
    inode: Option<Arc<Inode>>,
}

impl Store {
    /// Renames `path` below `at` to `path2` below `at2`, atomically.
    #[expect(clippy::too_many_arguments, reason = "two paths, as in renameat2(2)")]
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        at2: Ino,
        path2: &[u8],
        how: RenameHow,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace.own();
        let location = self.namespace.locate(caller, at.0, path)?;
        if let Some(volume) = self.namespace.volume_named(&location)? {
            let change = self.namespace.renamed_volume(caller, volume, &location, (at2.0, path2), how)?;
            return change.map_or(Ok(()), |change| Err(StoreError::OfVolume(change)));
        }
        let location2 = self.namespace.locate_beside(caller, Ino(location.dir.ino).volume(), at2.0, path2)?;
        let name = name_of(&location, StoreError::Busy)?;
        let taken = if how == RenameHow::NoReplace { StoreError::Exists } else { StoreError::Busy };
        let name2 = name_of(&location2, taken)?;
        let old = self.namespace.end(&location, name)?;
        let source = old.inode.as_ref().ok_or(StoreError::NotFound)?;
        if Ino(location.dir.ino).volume() != Ino(location2.dir.ino).volume()
            || self.namespace.volume_named(&location2)?.is_some()
        {
            return Err(StoreError::CrossDevice);
        }
        self.namespace.check_not_in_the_making(&location2.dir, name2)?;
        let new = self.namespace.end(&location2, name2)?;
        self.namespace.check_kinds(&old, source, &new, how)?;
        if new.inode.as_ref().is_some_and(|target| target.ino == source.ino) {
            return Ok(());
        }
        check_permissions(caller, &old, source, &new, how)?;
        if how != RenameHow::Exchange
            && let Some(target) = new.inode.as_ref().filter(|t| t.record().is_dir())
            && !self.namespace.is_empty(target.ino)?
        {
            return Err(StoreError::NotEmpty);
        }
        let reclaimed = self.namespace.swap_names(&old, source, &new, how, now)?;
        source.note_found_in(new.dir.ino);
        if let (Some(target), RenameHow::Exchange) = (&new.inode, how) {
            target.note_found_in(old.dir.ino);
        }
        drop(namespace);
        self.reclaim_all(reclaimed)
    }
}

impl Namespace {
    fn end<'p>(&self, location: &'p Location, name: &'p [u8]) -> Result<End<'p>, StoreError> {
        let inode = match self.look_up(&location.dir, name)? {
            Some(entry) => Some(self.load(entry.ino)?),
            None => None,
        };
        Ok(End { dir: &location.dir, name, slash: location.slash, inode })
    }

    fn check_kinds(&self, old: &End<'_>, source: &Arc<Inode>, new: &End<'_>, how: RenameHow) -> Result<(), StoreError> {
        match (&new.inode, how) {
            (Some(_), RenameHow::NoReplace) => return Err(StoreError::Exists),
            (None, RenameHow::Exchange) => return Err(StoreError::NotFound),
            _ => {}
        }
        let exchange = how == RenameHow::Exchange;
        let target_is_dir = new.inode.as_ref().is_some_and(|t| t.record().is_dir());
        if exchange && new.slash && !target_is_dir {
            return Err(StoreError::NotDirectory);
        }
        if !source.record().is_dir() && (old.slash || (new.slash && !exchange)) {
            return Err(StoreError::NotDirectory);
        }
        // Only a directory that moves to another one can come below itself: the way up can be long.
        let moves = old.dir.ino != new.dir.ino;
        if moves && source.record().is_dir() && self.is_above(source, new.dir)? {
            return Err(StoreError::Invalid);
        }
        if let Some(target) = &new.inode
            && moves
            && target_is_dir
            && self.is_above(target, old.dir)?
        {
            return Err(if exchange { StoreError::Invalid } else { StoreError::NotEmpty });
        }
        Ok(())
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn is_above(&self, ancestor: &Inode, dir: &Arc<Inode>) -> Result<bool, StoreError> {
        let mut dir = dir.clone();
        for _ in 0..=MOVE_DEPTH_MAX {
            if dir.ino == ancestor.ino {
                return Ok(true);
            }
            let Body::Directory { parent, .. } = dir.record().body else { return Ok(false) };
            if parent == dir.ino || dir.has(UNLINKED) {
                return Ok(false);
            }
            dir = self.load(parent)?;
        }
        Err(StoreError::NameTooLong)
    }

    fn swap_names(
        &self,
        old: &End<'_>,
        source: &Arc<Inode>,
        new: &End<'_>,
        how: RenameHow,
        now: Timestamp,
    ) -> Result<crate::edit::ReclaimList, StoreError> {
        let mut edit = self.edit();
        let mut arrive = |inode: &Arc<Inode>, from: &End<'_>, to: &End<'_>| -> FileKind {
            let record = edit.record(inode);
            record.ctime = now;
            let kind = record.kind();
            if let Body::Directory { parent, name } = &mut record.body {
                (*parent, *name) = (to.dir.ino, to.name.into());
                edit.record(from.dir).nlink -= 1;
                edit.record(to.dir).nlink += 1;
            }
            edit.enter(to.dir, to.name, inode.ino, kind);
            kind
        };
        arrive(source, old, new);
        match &new.inode {
            Some(target) if how == RenameHow::Exchange => {
                arrive(target, new, old);
            }
            Some(target) => {
                if target.record().is_dir() {
                    edit.record(new.dir).nlink -= 1;
                }
                edit.drop_link(target, now);
                edit.leave(old.dir, old.name);
            }
            None => edit.leave(old.dir, old.name),
        }
        edit.touch_dir(old.dir, now);
        edit.touch_dir(new.dir, now);
        edit.commit()
    }
}

/// The name that a rename changes; `.` and `..` are not names.
fn name_of(location: &Location, otherwise: StoreError) -> Result<&[u8], StoreError> {
    match &location.last {
        Last::Name(name) => Ok(name),
        Last::Dot | Last::DotDot | Last::Itself => Err(otherwise),
    }
}

fn check_permissions(
    caller: &Caller<'_>,
    old: &End<'_>,
    source: &Inode,
    new: &End<'_>,
    how: RenameHow,
) -> Result<(), StoreError> {
    let exchange = how == RenameHow::Exchange;
    caller.may_remove(&old.dir.record(), &source.record())?;
    if new.dir.has(UNLINKED) {
        return Err(StoreError::NotFound);
    }
    let source_is_dir = source.record().is_dir();
    match &new.inode {
        None => caller.may_add(&new.dir.record())?,
        Some(target) => {
            caller.may_remove(&new.dir.record(), &target.record())?;
            match (source_is_dir, target.record().is_dir()) {
                (true, false) if !exchange => return Err(StoreError::NotDirectory),
                (false, true) if !exchange => return Err(StoreError::IsDirectory),
                _ => {}
            }
        }
    }
    // A directory that moves gets another `..`: that is a change of the directory itself.
    if old.dir.ino != new.dir.ino {
        if source_is_dir {
            caller.check(&source.record(), MAY_WRITE)?;
        }
        if let Some(target) = new.inode.as_ref().filter(|t| exchange && t.record().is_dir()) {
            caller.check(&target.record(), MAY_WRITE)?;
        }
    }
    Ok(())
}
