//! Who may do what: the POSIX permission model with Linux's rules for root, sticky and set-id bits.

use crate::StoreError;
use crate::record::Record;
use isonomia_proto::fs::FileKind;

/// Execute or search, as in `access(2)`.
pub const MAY_EXECUTE: u32 = 1;
/// Write, as in `access(2)`.
pub const MAY_WRITE: u32 = 2;
/// Read, as in `access(2)`.
pub const MAY_READ: u32 = 4;

pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
pub(crate) const STICKY: u32 = 0o1000;
pub(crate) const GROUP_EXECUTE: u32 = 0o010;

/// On whose behalf an operation runs. Uid 0 has every capability of root.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
}

impl Caller<'_> {
    /// The superuser.
    pub const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, groups: &[] };

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    pub(crate) fn owns(&self, record: &Record) -> bool {
        self.is_root() || self.uid == record.uid
    }

    /// Checks `mask` ([`MAY_READ`] and so on) against the permission bits.
    pub(crate) fn check(&self, record: &Record, mask: u32) -> Result<(), StoreError> {
        if self.is_root() {
            let executable = record.mode & 0o111 != 0 || record.kind() == FileKind::Directory;
            return if mask & MAY_EXECUTE == 0 || executable { Ok(()) } else { Err(StoreError::PermissionDenied) };
        }
        let shift = if self.uid == record.uid {
            6
        } else if self.in_group(record.gid) {
            3
        } else {
            0
        };
        if mask & !(record.mode >> shift) & 0o7 == 0 { Ok(()) } else { Err(StoreError::PermissionDenied) }
    }

    /// Checks that names may be made in `dir`.
    pub(crate) fn may_add(&self, dir: &Record) -> Result<(), StoreError> {
        self.check(dir, MAY_WRITE | MAY_EXECUTE)
    }

    /// Checks that another name may be made for `inode`: by its owner, or if it is a file without set-id bits that the
    /// caller may read and write. Else everybody could keep files that their owner thinks he removed or replaced, and fill
    /// his quota; so Linux forbids it too (`fs.protected_hardlinks` of `proc_sys_fs(5)`).
    pub(crate) fn may_link(&self, inode: &Record) -> Result<(), StoreError> {
        let is_plain = inode.kind() == FileKind::Regular && after_write(inode.mode) == inode.mode;
        if self.owns(inode) || (is_plain && self.check(inode, MAY_READ | MAY_WRITE).is_ok()) {
            Ok(())
        } else {
            Err(StoreError::NotPermitted)
        }
    }

    /// Checks that the name of `victim` may be taken out of `dir`.
    pub(crate) fn may_remove(&self, dir: &Record, victim: &Record) -> Result<(), StoreError> {
        self.check(dir, MAY_WRITE | MAY_EXECUTE)?;
        let sticky = dir.mode & STICKY != 0;
        if sticky && !self.is_root() && self.uid != victim.uid && self.uid != dir.uid {
            return Err(StoreError::NotPermitted);
        }
        Ok(())
    }
}

/// `mode` of a file that was written: set-user-id goes, and set-group-id where it means something. Linux keeps both for
/// root, and takes set-group-id without group execution from files that others than members of the group write; here the
/// writer is not known.
pub(crate) fn after_write(mode: u32) -> u32 {
    if mode & GROUP_EXECUTE == 0 { mode & !SET_UID } else { mode & !(SET_UID | SET_GID) }
}

/// `mode` of a file of group `gid` that `caller` gives away: set-user-id goes, and set-group-id where it means
/// something or is not the caller's to give.
pub(crate) fn after_chown(caller: &Caller<'_>, mode: u32, gid: u32) -> u32 {
    let keeps_group = mode & GROUP_EXECUTE == 0 && (caller.is_root() || caller.in_group(gid));
    if keeps_group { mode & !SET_UID } else { mode & !(SET_UID | SET_GID) }
}

/// Owner, group and permission bits of a new inode in `dir` (`bits`: what the caller asked for).
pub(crate) fn of_new(caller: &Caller<'_>, dir: &Record, kind: FileKind, bits: u32) -> (u32, u32, u32) {
    if dir.mode & SET_GID == 0 {
        return (caller.uid, caller.gid, bits);
    }
    let group = dir.gid;
    let both = SET_GID | GROUP_EXECUTE;
    let bits = if kind == FileKind::Directory {
        bits | SET_GID
    } else if bits & both == both && !caller.is_root() && !caller.in_group(group) {
        bits & !SET_GID
    } else {
        bits
    };
    (caller.uid, group, bits)
}
