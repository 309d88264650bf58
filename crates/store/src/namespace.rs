//! Making and removing names: mkdir, mknod, symlink, link, unlink, rmdir, and the questions about them.

use crate::database::Entry;
use crate::edit::ReclaimList;
use crate::inode::{Inode, MAY_BE_NAMED, UNLINKED};
use crate::layouts::{Creator, NewFile};
use crate::permission::{self, STICKY};
use crate::record::{Body, Record};
use crate::volumes::change::VolumeChange;
use crate::walk::{Last, Location};
use crate::{Caller, Namespace, Numbers, Store, StoreError};
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::fs::{Attr, FileKind, Layout, MODE_PERMISSION_MASK, Timestamp};
use isonomia_proto::striping::XATTR;
use isonomia_units::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Hard links to one inode at most, as in ext4.
pub const LINKS_MAX: u32 = 65_000;

/// What is to be created.
pub(crate) struct NewInode {
    pub kind: FileKind,
    pub bits: u32,
    pub rdev: u64,
    pub text: Arc<[u8]>,
    /// Of a spread file.
    pub layout: Option<Arc<Layout>>,
    /// Of a regular file, if it is known.
    pub creator: Option<Creator>,
}

impl Store {
    /// Creates a directory; of `mode` the permission and sticky bits count.
    pub fn mkdir(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        mode: u32,
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        let bits = mode & (0o777 | STICKY);
        self.make(
            caller,
            at,
            path,
            NewInode { kind: FileKind::Directory, bits, rdev: 0, text: [].into(), layout: None, creator: None },
            now,
        )
    }

    /// Creates a node of the kind in `mode` (a regular file when it has none); device nodes are root's to create.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        mode: u32,
        rdev: u64,
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        let kind = match FileKind::from_mode(mode) {
            None if mode & !MODE_PERMISSION_MASK == 0 => FileKind::Regular,
            None | Some(FileKind::Symlink) => return Err(StoreError::Invalid),
            Some(FileKind::Directory) => return Err(StoreError::NotPermitted),
            Some(kind) => kind,
        };
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let rdev = if device { rdev } else { 0 };
        self.make(
            caller,
            at,
            path,
            NewInode { kind, bits: mode & MODE_PERMISSION_MASK, rdev, text: [].into(), layout: None, creator: None },
            now,
        )
    }

    /// Creates the symbolic link `path` with `text`.
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        text: &[u8],
        at: Ino,
        path: &[u8],
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        if text.is_empty() {
            return Err(StoreError::NotFound);
        }
        if text.len() >= PATH_LEN_MAX {
            return Err(StoreError::NameTooLong);
        }
        if text.contains(&0) {
            return Err(StoreError::Invalid);
        }
        let new =
            NewInode { kind: FileKind::Symlink, bits: 0o777, rdev: 0, text: text.into(), layout: None, creator: None };
        self.make(caller, at, path, new, now)
    }

    fn make(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        new: NewInode,
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        let mut namespace = self.namespace.own();
        let location = self.namespace.locate(caller, at.0, path)?;
        let (Last::Name(name), None) = (&location.last, self.namespace.entry_at(&location)?) else {
            return Err(StoreError::Exists);
        };
        if location.slash && new.kind != FileKind::Directory {
            return Err(StoreError::NotFound);
        }
        if new.kind == FileKind::Directory {
            self.check_new_volume(caller, &location.dir, name, new.bits)?;
        }
        Ok(self.create(&mut namespace, caller, &location.dir, Some(name), new, now)?.attr())
    }

    /// Creates an inode with a name that is free; or a regular file without one, and with one reference.
    pub(crate) fn create(
        &self,
        numbers: &mut Numbers,
        caller: &Caller<'_>,
        dir: &Arc<Inode>,
        name: Option<&[u8]>,
        new: NewInode,
        now: Timestamp,
    ) -> Result<Arc<Inode>, StoreError> {
        if dir.has(UNLINKED) {
            return Err(StoreError::NotFound);
        }
        let (uid, gid, bits) = {
            let dir = dir.record();
            caller.may_add(&dir)?;
            permission::of_new(caller, &dir, new.kind, new.bits)
        };
        if matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) && !caller.is_root() {
            return Err(StoreError::NotPermitted);
        }
        if let Some(name) = name {
            self.namespace.check_not_in_the_making(dir, name)?;
        }
        self.objects.admit()?;
        let ino = self.namespace.new_number(numbers, Ino(dir.ino).volume())?;
        let is_dir = new.kind == FileKind::Directory;
        let striping = match new.kind {
            FileKind::Regular | FileKind::Directory => self.namespace.striping_of(dir)?,
            _ => None,
        };
        let layout = match (new.layout, new.kind) {
            (None, FileKind::Regular) => self.namespace.chosen_layout(&NewFile {
                ino: Ino(ino),
                striping: striping.as_deref(),
                creator: new.creator,
            }),
            (layout, _) => layout,
        };
        let (size, spread) = (new.text.len() as u64, layout.as_ref().map(|_| 0));
        let body = match new.kind {
            FileKind::Regular => Body::Regular(layout.unwrap_or_else(|| self.namespace.layouts.of_new_file())),
            FileKind::Directory => Body::Directory { parent: dir.ino, name: name.unwrap_or_default().into() },
            FileKind::Symlink => Body::Symlink(new.text),
            FileKind::Fifo | FileKind::CharDevice | FileKind::BlockDevice | FileKind::Socket => Body::Node,
        };
        let mut record = Record::new((ino, self.namespace.generation), (new.kind, bits), (uid, gid), body, now);
        (record.size, record.rdev, record.spread) = (size, new.rdev, spread);
        if name.is_none() {
            record.nlink = 0;
        }
        let mut edit = self.namespace.edit();
        let inode = edit.create(ino, record);
        let Some(name) = name else {
            inode.refs.store(1, Relaxed);
            inode.set(UNLINKED);
            if let Some(layout) = &inode.layout {
                edit.orphan(&inode, inode.record().objects, layout);
            }
            let ReclaimList(_) = edit.commit()?;
            return Ok(inode);
        };
        edit.enter(dir, name, ino, new.kind);
        edit.touch_dir(dir, now);
        if is_dir {
            if let Some(striping) = striping {
                edit.put_xattr(&inode, XATTR, &striping);
            }
            edit.record(dir).nlink += 1;
        }
        let ReclaimList(_) = edit.commit()?;
        inode.note_found_in(dir.ino);
        Ok(inode)
    }

    /// Gives the inode at `path` the second name `path2`, or the file without a name that `at` is its first one, and tells
    /// its attributes.
    #[expect(clippy::too_many_arguments, reason = "two paths, as in linkat(2)")]
    pub fn link(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        at2: Ino,
        path2: &[u8],
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        // Its size and times are about to be looked at, and its data lock comes before that of the namespace.
        let unnamed =
            path.is_empty().then(|| self.namespace.inode(at.0)).transpose()?.filter(|inode| inode.has(MAY_BE_NAMED));
        let objects = unnamed.as_ref().map(|inode| inode.own_data());
        let namespace = self.namespace.own();
        let inode = self.namespace.resolve(caller, at.0, path, follow)?;
        let location = self.namespace.locate_beside(caller, Ino(inode.ino).volume(), at2.0, path2)?;
        let (Last::Name(name), None) = (&location.last, self.namespace.entry_at(&location)?) else {
            return Err(StoreError::Exists);
        };
        let is_named = !inode.has(UNLINKED) || inode.has(MAY_BE_NAMED);
        if location.slash || location.dir.has(UNLINKED) || !is_named {
            return Err(StoreError::NotFound);
        }
        if Ino(inode.ino).volume() != Ino(location.dir.ino).volume() {
            return Err(StoreError::CrossDevice);
        }
        caller.may_link(&inode.record())?;
        caller.may_add(&location.dir.record())?;
        let kind = inode.record().kind();
        if kind == FileKind::Directory {
            return Err(StoreError::NotPermitted);
        }
        self.objects.admit()?;
        let mut edit = self.namespace.edit();
        let record = edit.record(&inode);
        if record.nlink >= LINKS_MAX {
            return Err(StoreError::LinksMax);
        }
        record.nlink += 1;
        record.ctime = now;
        edit.enter(&location.dir, name, inode.ino, kind);
        edit.touch_dir(&location.dir, now);
        if inode.has(UNLINKED) {
            edit.name_first(&inode);
        }
        let ReclaimList(_) = edit.commit()?;
        inode.note_found_in(location.dir.ino);
        drop(namespace);
        drop(objects);
        self.attr(&inode)
    }

    /// Removes the name of what is not a directory.
    pub fn unlink(&self, caller: &Caller<'_>, at: Ino, path: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let namespace = self.namespace.own();
        let location = self.namespace.locate(caller, at.0, path)?;
        let Last::Name(name) = &location.last else { return Err(StoreError::IsDirectory) };
        let entry = self.namespace.entry_at(&location)?.ok_or(StoreError::NotFound)?;
        let inode = self.namespace.load(entry.ino)?;
        let is_dir = entry.kind == FileKind::Directory;
        if location.slash {
            return Err(if is_dir { StoreError::IsDirectory } else { StoreError::NotDirectory });
        }
        caller.may_remove(&location.dir.record(), &inode.record())?;
        if is_dir {
            return Err(StoreError::IsDirectory);
        }
        let mut edit = self.namespace.edit();
        edit.leave(&location.dir, name);
        edit.drop_link(&inode, now);
        edit.touch_dir(&location.dir, now);
        let reclaimed = edit.commit()?;
        drop(namespace);
        self.reclaim_all(reclaimed)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, at: Ino, path: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let namespace = self.namespace.own();
        let location = self.namespace.locate(caller, at.0, path)?;
        let name = match &location.last {
            Last::Name(name) => name,
            Last::Dot => return Err(StoreError::Invalid),
            Last::DotDot => return Err(StoreError::NotEmpty),
            Last::Itself => return Err(StoreError::Busy),
        };
        let entry = self.namespace.entry_at(&location)?.ok_or(StoreError::NotFound)?;
        let inode = self.namespace.load(entry.ino)?;
        caller.may_remove(&location.dir.record(), &inode.record())?;
        if entry.kind != FileKind::Directory {
            return Err(StoreError::NotDirectory);
        }
        if !self.namespace.is_empty(inode.ino)? {
            return Err(StoreError::NotEmpty);
        }
        if let Some(volume) = self.namespace.volume_named(&location)? {
            return Err(StoreError::OfVolume(VolumeChange::Remove { volume }));
        }
        let mut edit = self.namespace.edit();
        edit.leave(&location.dir, name);
        edit.drop_link(&inode, now);
        edit.touch_dir(&location.dir, now);
        edit.record(&location.dir).nlink -= 1;
        let reclaimed = edit.commit()?;
        drop(namespace);
        self.reclaim_all(reclaimed)
    }
}

impl Namespace {
    /// The text of the symbolic link at `path`.
    pub fn readlink(&self, caller: &Caller<'_>, at: Ino, path: &[u8]) -> Result<Vec<u8>, StoreError> {
        let _namespace = self.share();
        let inode = self.resolve(caller, at.0, path, false)?;
        match &inode.record().body {
            Body::Symlink(text) => Ok(text.to_vec()),
            _ => Err(StoreError::Invalid),
        }
    }

    /// The path of a directory from the root; of anything else that of the directory in which it was last found. Nothing if a part of that is not
    /// in memory, or if it was not found by a name since it is.
    ///
    /// This waits for nothing: neither for the database nor for whoever changes names. Of a directory that is being moved it may say the old
    /// path, the new one, or the upper part of one below the lower part of the other.
    pub fn path_in_memory(&self, ino: Ino) -> Option<Vec<u8>> {
        let inode = self.inodes.get(ino.0)?;
        let dir = if inode.record().is_dir() { inode } else { self.inodes.get(inode.found_in()?)? };
        path_to(dir, |up| self.inodes.get(up).ok_or(StoreError::Stale)).ok()
    }

    /// The path of a directory from the root, beginning with a slash.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>, StoreError> {
        let _namespace = self.share();
        path_to(self.load(ino.0)?, |up| self.load(up))
    }

    /// The entry at a location; `None` also for `.`, `..` and the start, which have none.
    pub(crate) fn entry_at(&self, location: &Location) -> Result<Option<Entry>, StoreError> {
        match &location.last {
            Last::Name(name) => self.look_up(&location.dir, name),
            Last::Dot | Last::DotDot | Last::Itself => Ok(None),
        }
    }
}

/// The path from the root of `dir`, of what `load` finds.
fn path_to(mut dir: Arc<Inode>, load: impl Fn(u64) -> Result<Arc<Inode>, StoreError>) -> Result<Vec<u8>, StoreError> {
    let mut names: Vec<Arc<[u8]>> = Vec::new();
    let mut len = 0;
    loop {
        if dir.has(UNLINKED) {
            return Err(StoreError::NotFound);
        }
        let (up, name) = match &dir.record().body {
            Body::Directory { parent, name } => (*parent, name.clone()),
            _ => return Err(StoreError::NotDirectory),
        };
        if up == dir.ino {
            break;
        }
        len += 1 + name.len();
        if len >= PATH_LEN_MAX {
            return Err(StoreError::NameTooLong);
        }
        names.push(name);
        dir = load(up)?;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Ok(if path.is_empty() { b"/".to_vec() } else { path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenHow, StoreConfig, TargetDir};
    use isonomia_proto::fs::access;
    use isonomia_units::{ServerId, TargetId};

    const ROOT: Caller<'static> = Caller::ROOT;

    #[test]
    fn a_path_in_memory_is_told_while_names_are_being_changed() {
        let scratch = tempfile::tempdir().unwrap();
        let target = TargetDir { id: TargetId(0), dir: scratch.path().join("target") };
        let config = StoreConfig::new(scratch.path().join("store"), ServerId(0), vec![target]);
        let now = Timestamp::new(1, 0).unwrap();
        let store = Store::open(&config).unwrap();
        store.mkdir(&ROOT, Ino::ROOT, b"a", 0o755, now).unwrap();
        let dir = Ino(store.mkdir(&ROOT, Ino::ROOT, b"a/b", 0o755, now).unwrap().ino);
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let file = store.open_file(&ROOT, dir, b"f", &how, now).unwrap().ino;
        let tell =
            |store: &Store, ino| store.namespace().path_in_memory(ino).map(|path| String::from_utf8(path).unwrap());
        // Whoever changes names has this lock, and keeps it while the database waits for its device.
        let changing = store.namespace.own();
        for (ino, path) in [(Ino::ROOT, "/"), (dir, "/a/b"), (file, "/a/b")] {
            assert_eq!(tell(&store, ino).as_deref(), Some(path));
        }
        drop(changing);
        store.rename(&ROOT, Ino::ROOT, b"a", Ino::ROOT, b"c", crate::RenameHow::default(), now).unwrap();
        assert_eq!(tell(&store, file).as_deref(), Some("/c/b"));
        store.release(file).unwrap();
        store.close().unwrap();
        drop(store);
        let store = Store::open(&config).unwrap();
        assert_eq!(tell(&store, dir), None, "nothing of it is in memory");
        store.get_attr(&ROOT, Ino::ROOT, b"c/b/f", true).unwrap();
        // Looking a file up by its name has told where it is.
        assert_eq!((tell(&store, dir), tell(&store, file)), (Some("/c/b".to_owned()), Some("/c/b".to_owned())));
    }
}
