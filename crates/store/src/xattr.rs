//! Extended attributes, those of the `user.` namespace: names with values on regular files and directories, with the
//! rules of Linux (xattr(7)) for who may do what.
//!
//! An inode's record says whether it has any, so files without them cost nothing more. Attributes stay with an unlinked
//! inode until its last reference goes.

use crate::inode::{Inode, UNLINKED};
use crate::permission::{MAY_READ, MAY_WRITE, STICKY};
use crate::record::Record;
use crate::{Caller, Namespace, Store, StoreError};
use isonomia_proto::fs::{FileKind, Timestamp};
use isonomia_proto::{XATTR_LIST_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX};
use isonomia_units::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Names and values of one inode's extended attributes in all; more fail with `ENOSPC`.
pub const XATTRS_BYTES_MAX: usize = 256 << 10;

const NAMESPACE: &[u8] = b"user.";

/// What setting an extended attribute does when it exists, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrHow {
    /// Sets it all the same.
    #[default]
    Either,
    /// Fails if it exists.
    Create,
    /// Fails if it does not exist.
    Replace,
    /// Fails either way: what asking for both of the above means.
    Neither,
}

impl Store {
    /// Sets the extended attribute `name` of the inode at `path`.
    #[expect(clippy::too_many_arguments, reason = "as in setxattr(2), for a caller and at a time")]
    pub fn set_xattr(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        check_name_len(name)?;
        if value.len() > XATTR_VALUE_LEN_MAX {
            return Err(StoreError::TooBig);
        }
        let _namespace = self.namespace.own();
        let inode = self.namespace.resolve(caller, at.0, path, follow)?;
        check_change(caller, &inode, name)?;
        let (exists, others) = self.namespace.xattrs_besides(&inode, name)?;
        match how {
            XattrHow::Create | XattrHow::Neither if exists => return Err(StoreError::Exists),
            XattrHow::Replace | XattrHow::Neither if !exists => return Err(StoreError::NoAttribute),
            _ => {}
        }
        let names_len = others.names_len + name.len() + 1;
        if names_len > XATTR_LIST_LEN_MAX || names_len + others.values_len + value.len() > XATTRS_BYTES_MAX {
            return Err(StoreError::NoSpace);
        }
        self.objects.admit()?;
        let mut edit = self.namespace.edit();
        edit.put_xattr(&inode, name, value);
        edit.record(&inode).ctime = now;
        edit.commit().map(drop)
    }
}

impl Namespace {
    /// Gives the value of the extended attribute `name` of the inode at `path` to `take`.
    pub fn get_xattr<T>(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        name: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, StoreError> {
        check_name_len(name)?;
        let _namespace = self.share();
        let inode = self.resolve(caller, at.0, path, follow)?;
        check(caller, &inode.record(), name, MAY_READ)?;
        let value = if inode.record().has_xattrs { self.db.xattr(inode.ino, name)? } else { None };
        value.map(|value| take(&value)).ok_or(StoreError::NoAttribute)
    }

    /// Names of the extended attributes of the inode at `path`, in order, each with a NUL after it. Whoever finds the
    /// inode may see them.
    pub fn list_xattrs(&self, caller: &Caller<'_>, at: Ino, path: &[u8], follow: bool) -> Result<Vec<u8>, StoreError> {
        let _namespace = self.share();
        let inode = self.resolve(caller, at.0, path, follow)?;
        let mut names = Vec::new();
        if inode.record().has_xattrs {
            self.db.xattrs(inode.ino, |name, _| {
                names.extend_from_slice(name);
                names.push(0);
            })?;
        }
        Ok(names)
    }

    /// Removes the extended attribute `name` of the inode at `path`.
    pub fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        check_name_len(name)?;
        let _namespace = self.own();
        let inode = self.resolve(caller, at.0, path, follow)?;
        check_change(caller, &inode, name)?;
        let (exists, others) = self.xattrs_besides(&inode, name)?;
        if !exists {
            return Err(StoreError::NoAttribute);
        }
        let mut edit = self.edit();
        edit.remove_xattr(&inode, name, others.names_len == 0);
        edit.record(&inode).ctime = now;
        edit.commit().map(drop)
    }

    /// Whether `inode` has the attribute `name`, and how much it has besides.
    fn xattrs_besides(&self, inode: &Inode, name: &[u8]) -> Result<(bool, Extent), StoreError> {
        let (mut exists, mut others) = (false, Extent::default());
        if inode.record().has_xattrs {
            self.db.xattrs(inode.ino, |other, value_len| {
                if other == name {
                    exists = true;
                } else {
                    others.names_len += other.len() + 1;
                    others.values_len += value_len;
                }
            })?;
        }
        Ok((exists, others))
    }
}

/// What attributes take.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    names_len: usize,
    values_len: usize,
}

fn check_name_len(name: &[u8]) -> Result<(), StoreError> {
    if name.is_empty() || name.len() > XATTR_NAME_LEN_MAX || name.contains(&0) {
        return Err(StoreError::Range);
    }
    Ok(())
}

/// Checks that `name` is of the one namespace there is, that the kind of the inode can have it, and that `caller` may do
/// `mask` with it.
fn check(caller: &Caller<'_>, record: &Record, name: &[u8], mask: u32) -> Result<(), StoreError> {
    let Some(rest) = name.strip_prefix(NAMESPACE) else { return Err(StoreError::NotSupported) };
    match record.kind() {
        FileKind::Regular | FileKind::Directory => {}
        _ if mask == MAY_READ => return Err(StoreError::NoAttribute),
        _ => return Err(StoreError::NotPermitted),
    }
    // In a directory such as `/tmp` everybody may write; its attributes are for its owner alone, as on Linux.
    if mask == MAY_WRITE && record.is_dir() && record.mode & STICKY != 0 && !caller.owns(record) {
        return Err(StoreError::NotPermitted);
    }
    caller.check(record, mask)?;
    if rest.is_empty() { Err(StoreError::Invalid) } else { Ok(()) }
}

/// As [`check`], for a change; the caller owns the namespace lock.
fn check_change(caller: &Caller<'_>, inode: &Arc<Inode>, name: &[u8]) -> Result<(), StoreError> {
    check(caller, &inode.record(), name, MAY_WRITE)?;
    let is_gone = inode.has(UNLINKED) && inode.refs.load(Relaxed) == 0;
    if is_gone { Err(StoreError::Stale) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenHow, StoreConfig, TargetDir};
    use isonomia_proto::fs::access;
    use isonomia_units::{ServerId, TargetId};

    const ROOT: Caller<'static> = Caller::ROOT;

    fn at(secs: i64) -> Timestamp {
        Timestamp::new(secs, 0).unwrap()
    }

    fn config(dir: &tempfile::TempDir) -> StoreConfig {
        let target = TargetDir { id: TargetId(0), dir: dir.path().join("target") };
        StoreConfig::new(dir.path().join("store"), ServerId(0), vec![target])
    }

    /// An open file or directory with an attribute.
    fn opened(store: &Store, name: &str, is_dir: bool) -> Ino {
        if is_dir {
            store.mkdir(&ROOT, Ino::ROOT, name.as_bytes(), 0o755, at(1)).unwrap();
        }
        let how = OpenHow { access: access::READ, create: !is_dir, mode: 0o644, ..OpenHow::default() };
        let ino = store.open_file(&ROOT, Ino::ROOT, name.as_bytes(), &how, at(1)).unwrap().ino;
        set(store, ino).unwrap();
        ino
    }

    fn set(store: &Store, ino: Ino) -> Result<(), StoreError> {
        store.set_xattr(&ROOT, ino, b"", true, b"user.a", b"x", XattrHow::Either, at(2))
    }

    fn remove_name(store: &Store, name: &str, is_dir: bool) {
        let remove = if is_dir { Store::rmdir } else { Store::unlink };
        remove(store, &ROOT, Ino::ROOT, name.as_bytes(), at(3)).unwrap();
    }

    fn kept(store: &Store, ino: Ino) -> usize {
        let mut count = 0;
        store.db.xattrs(ino.0, |_, _| count += 1).unwrap();
        count
    }

    #[test]
    fn attributes_go_with_the_last_name_and_reference() {
        for is_dir in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(&config(&dir)).unwrap();
            let ino = opened(&store, "a", is_dir);
            remove_name(&store, "a", is_dir);
            assert_eq!(kept(&store, ino), 1, "it is open");
            set(&store, ino).unwrap();
            store.release(ino).unwrap();
            assert_eq!((kept(&store, ino), store.db.nameless().unwrap().len()), (0, 0));
            assert!(matches!(set(&store, ino), Err(StoreError::Stale)));
            let ino = opened(&store, "b", is_dir);
            store.release(ino).unwrap();
            remove_name(&store, "b", is_dir);
            assert_eq!((kept(&store, ino), store.db.nameless().unwrap().len()), (0, 0));
        }
    }

    #[test]
    fn those_of_an_open_inode_without_a_name_go_after_an_unclean_stop() {
        for is_dir in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(&config(&dir)).unwrap();
            let before = opened(&store, "a", is_dir);
            remove_name(&store, "a", is_dir);
            let after = opened(&store, "b", is_dir);
            store.namespace().remove_xattr(&ROOT, after, b"", true, b"user.a", at(3)).unwrap();
            remove_name(&store, "b", is_dir);
            set(&store, after).unwrap();
            let stays = opened(&store, "c", is_dir);
            drop(store);
            let store = Store::open(&config(&dir)).unwrap();
            assert_eq!([before, after, stays].map(|ino| kept(&store, ino)), [0, 0, 1]);
            assert_eq!(store.namespace().list_xattrs(&ROOT, stays, b"", true).unwrap(), b"user.a\0");
        }
    }

    #[test]
    fn nobody_looks_for_attributes_where_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&config(&dir)).unwrap();
        let ino = opened(&store, "a", false);
        let has = || store.namespace.load(ino.0).unwrap().record().has_xattrs;
        assert!(has());
        store.set_xattr(&ROOT, ino, b"", true, b"user.b", b"", XattrHow::Either, at(3)).unwrap();
        store.namespace().remove_xattr(&ROOT, ino, b"", true, b"user.a", at(3)).unwrap();
        assert!(has());
        store.namespace().remove_xattr(&ROOT, ino, b"", true, b"user.b", at(3)).unwrap();
        assert!(!has());
    }
}
