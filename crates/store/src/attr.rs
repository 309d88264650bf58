//! Attributes: reading them, changing them, and the capacity of it all.

use crate::inode::{UNFLUSHED, UNLINKED};
use crate::permission::{MAY_WRITE, SET_GID, after_chown};
use crate::record::Record;
use crate::{Caller, FILE_SIZE_MAX, Namespace, Store, StoreError};
use isonomia_proto::fs::{Attr, FileKind, FsStat, MODE_PERMISSION_MASK, Timestamp};
use isonomia_units::Ino;

/// What to change of an inode's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<TimeChange>,
    /// Modification time.
    pub mtime: Option<TimeChange>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The `now` of the request.
    Now,
    /// This one.
    At(Timestamp),
}

impl Store {
    /// The attributes of the inode at `path`.
    pub fn get_attr(&self, caller: &Caller<'_>, at: Ino, path: &[u8], follow: bool) -> Result<Attr, StoreError> {
        if path.is_empty() {
            let inode = self.namespace.inode(at.0)?;
            self.namespace.check_root_itself(&inode)?;
            return self.attr(&inode);
        }
        let inode = {
            let _namespace = self.namespace.share();
            match self.namespace.root_to_read(at.0, path)? {
                Some(root) => root,
                None => self.namespace.resolve(caller, at.0, path, follow)?,
            }
        };
        self.attr(&inode)
    }

    /// Changes attributes of the inode at `path`: all that `change` names, or, if one may not be, none.
    pub fn set_attr(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        change: &SetAttr,
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        let inode = {
            let _namespace = self.namespace.share();
            self.namespace.resolve(caller, at.0, path, follow)?
        };
        if let Some(size) = change.size {
            {
                let record = inode.record();
                check_size(caller, &record, size)?;
                check_change(caller, &record, change)?;
            }
            self.set_inode_size(&inode, size, now)?;
        }
        if *change != (SetAttr { size: change.size, ..SetAttr::default() }) {
            // Recovery is to take the time that is set, not that of the host: with no write under way the dirty record can say so.
            let objects = change.mtime.and(inode.layout.as_ref()).map(|_| inode.own_data());
            let _namespace = self.namespace.own();
            let mut edit = self.namespace.edit();
            let record = edit.record(&inode);
            check_change(caller, record, change)?;
            apply(caller, record, change, now);
            if let Some(objects) = &objects
                && inode.has(UNFLUSHED)
                && !inode.has(UNLINKED)
            {
                edit.flush(&inode, self.synced_size(&inode, objects));
            }
            let _none = edit.commit()?;
        }
        self.attr(&inode)
    }

    /// Capacity of the targets; each file system that several share counts once.
    pub fn stat_fs(&self) -> Result<FsStat, StoreError> {
        self.objects.targets.stat_fs()
    }

    /// Whether there is no room but what is kept for changes of the metadata, as far as is known: what can be done without is not to take of that.
    pub fn is_full(&self) -> bool {
        self.objects.emergency_space.is_spent()
    }

    /// What each target has left for ordinary users, in bytes and in the order of the configuration. Targets on one file system
    /// have it in common.
    pub fn free_bytes(&self) -> Result<Vec<u64>, StoreError> {
        self.objects.targets.free_bytes()
    }
}

impl Namespace {
    /// Whether `caller` may do `mask` ([`crate::MAY_READ`] and so on; 0: exist) with the inode at `path`.
    pub fn access(&self, caller: &Caller<'_>, at: Ino, path: &[u8], mask: u32) -> Result<(), StoreError> {
        if mask & !0o7 != 0 {
            return Err(StoreError::Invalid);
        }
        let _namespace = self.share();
        let inode = self.resolve(caller, at.0, path, true)?;
        let record = inode.record();
        caller.check(&record, mask)
    }
}

fn check_size(caller: &Caller<'_>, record: &Record, size: u64) -> Result<(), StoreError> {
    match record.kind() {
        FileKind::Directory => return Err(StoreError::IsDirectory),
        FileKind::Regular => {}
        _ => return Err(StoreError::Invalid),
    }
    caller.check(record, MAY_WRITE)?;
    if size > FILE_SIZE_MAX { Err(StoreError::Invalid) } else { Ok(()) }
}

fn check_change(caller: &Caller<'_>, record: &Record, change: &SetAttr) -> Result<(), StoreError> {
    if change.mode.is_some() && !caller.owns(record) {
        return Err(StoreError::NotPermitted);
    }
    if !caller.is_root() {
        let own = caller.uid == record.uid;
        let uid_stays = change.uid.is_none_or(|uid| own && uid == record.uid);
        let gid_allowed = change.gid.is_none_or(|gid| own && (gid == record.gid || caller.in_group(gid)));
        if !uid_stays || !gid_allowed {
            return Err(StoreError::NotPermitted);
        }
    }
    match (change.atime, change.mtime) {
        (None, None) => Ok(()),
        _ if caller.owns(record) => Ok(()),
        (Some(TimeChange::Now), Some(TimeChange::Now)) => caller.check(record, MAY_WRITE),
        _ => Err(StoreError::NotPermitted),
    }
}

fn apply(caller: &Caller<'_>, record: &mut Record, change: &SetAttr, now: Timestamp) {
    record.ctime = now;
    if change.uid.is_some() || change.gid.is_some() {
        if !record.is_dir() {
            record.mode = after_chown(caller, record.mode, record.gid);
        }
        record.uid = change.uid.unwrap_or(record.uid);
        record.gid = change.gid.unwrap_or(record.gid);
    }
    if let Some(mode) = change.mode {
        let mut bits = mode & MODE_PERMISSION_MASK;
        if !caller.is_root() && !caller.in_group(record.gid) {
            bits &= !SET_GID;
        }
        record.mode = record.mode & !MODE_PERMISSION_MASK | bits;
    }
    let time = |change| match change {
        TimeChange::Now => now,
        TimeChange::At(time) => time,
    };
    record.atime = change.atime.map_or(record.atime, time);
    record.mtime = change.mtime.map_or(record.mtime, time);
}
