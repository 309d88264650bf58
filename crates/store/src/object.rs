//! Object files: the bytes of a file on one target.
//!
//! Object `i` of an inode, which lies on the `i`th target of its layout, is the file
//! `<target dir>/objects/<2 hex digits>/<number in 16 hex digits>.<generation in 8>.<i>`, the first digits being the
//! lowest of the number. Number and generation ([`ObjectsId`]) stand in the inode's record; no two files ever have the
//! same. Detached objects are called in the same way. An object is created at the first write to it, and nothing may be there before. Stripe `s` of `n` targets is at `(s / n) · stripe_bytes` of object `s mod n`;
//! with one target an object is the file. What an object lacks below the size of the file reads as zeros.

mod entries;

use self::entries::Entries;
use crate::checksum::{ObjectId, SIDECAR_SUFFIX, blocks_in};
use crate::config::{StoreConfig, TargetDir};
use crate::content::{Content, OBJECTS, Objects, Owner, SUMS, SUSPECT};
use crate::fence::Fence;
use crate::host_file_system::{is_volatile, syncs_names};
use crate::object_file::{ObjectFile, probe};
use crate::open_objects::OpenObjects;
use crate::recovery::leftovers::Left;
use crate::sums::{self, Place};
use crate::{OpenError, StoreError};
use isonomia_proto::fs::{FsStat, Layout, Spot};
use isonomia_units::TargetId;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of a target that has them.
pub(crate) const DIRECTORIES_NAME: &str = "objects";
/// Directories of objects in a target.
pub(crate) const DIRECTORIES: usize = 256;

/// Which objects are a file's: in their names, and never given to another file.
///
/// The number comes from the counter that inodes are numbered from, which never goes back as long as the metadata are
/// those of the last run. Where an older copy of them was put back, it is the generation that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectsId {
    pub number: u64,
    /// Drawn when the store was opened for the run that gave the number out.
    pub generation: u32,
}

/// One object: what it is called, and the target that it lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPlace {
    /// What it is called.
    pub object: ObjectId,
    /// The target.
    pub target: TargetId,
}

/// Where the byte at `offset` of a file is.
pub(crate) fn spot(layout: &Layout, offset: u64) -> Spot {
    layout.spot(offset)
}

/// Bytes of object `index` of a file of `size` bytes without holes.
pub(crate) fn object_size(layout: &Layout, index: usize, size: u64) -> u64 {
    layout.object_size(index, size)
}

/// The least size of a file whose object `index` has `object_size` bytes.
pub(crate) fn file_size(layout: &Layout, index: usize, object_size: u64) -> u64 {
    let Some(last) = object_size.checked_sub(1) else { return 0 };
    layout.file_offset(index, last).saturating_add(1)
}

/// Where the byte at `offset` of object `index` is in the file.
pub(crate) fn file_offset(layout: &Layout, index: usize, offset: u64) -> u64 {
    layout.file_offset(index, offset)
}

/// The targets of this server.
pub(crate) struct Targets {
    all: Vec<Target>,
    open: OpenObjects,
    /// Files whose first object is created get checksums.
    with_sums: bool,
    /// Whether anything may be changed.
    pub fence: Arc<Fence>,
}

struct Target {
    id: TargetId,
    path: PathBuf,
    objects: OwnedFd,
    /// Objects are read and written past the page cache.
    is_direct: bool,
    /// Writes that ask for it go past it.
    takes_direct: bool,
    reads_as_asked: bool,
    entries: Entries,
}

impl Targets {
    /// Opens the targets, with all their directories.
    pub fn open(config: &StoreConfig) -> Result<Self, OpenError> {
        let open = |target: &TargetDir| Target::open(target, config);
        let all = config.targets.iter().map(open).collect::<Result<_, _>>()?;
        let open = OpenObjects::new(config.bounds.objects.max(1));
        Ok(Self { all, open, with_sums: config.checksums, fence: config.fence() })
    }

    /// Opens the object `index` of `content`, whose objects the caller owns. Without `create` an object that was never
    /// written stays closed.
    pub fn open_object(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &mut Objects,
        index: usize,
        create: bool,
    ) -> Result<(), StoreError> {
        if objects.object(index).is_some() || (!create && !content.has(OBJECTS)) {
            return Ok(());
        }
        let place = content.place(objects.id, layout, index);
        let target = self.target(place)?;
        let name = place.object.object_name();
        let fail = |e| StoreError::host(&target.path.join(&name), e);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let open = |more: OFlags| rustix::fs::openat(&target.objects, &name, flags | more, Mode::from_raw_mode(0o600));
        let existing = if content.has(OBJECTS) { open(OFlags::empty()) } else { Err(Errno::NOENT) };
        let fd = match existing {
            Err(Errno::NOENT) if !create => return Ok(()),
            // All of a lost object would read as zeros but for what is written now: no checksums tell what was in it.
            Err(Errno::NOENT)
                if content.was_created(index)
                    && matches!(content.owner, Owner::File(_))
                    && (content.has(SUSPECT) || !content.has(SUMS)) =>
            {
                let (ino, offset, path) = (content.ino(), file_offset(layout, index, 0), target.path.join(&name));
                return Err(StoreError::Corrupt { ino, offset, path, what: "missing" });
            }
            Err(Errno::NOENT) => {
                self.fence.check().map_err(fail)?;
                let fd = match open(OFlags::CREATE | OFlags::EXCL) {
                    // A file of that name belongs to nobody: the record says that this object was never created.
                    Err(Errno::EXIST) => {
                        tracing::warn!(object = %target.path.join(&name).display(), "removed a stale object");
                        self.cut_sidecar(place, 0)?;
                        rustix::fs::unlinkat(&target.objects, &name, AtFlags::empty()).map_err(fail)?;
                        open(OFlags::CREATE | OFlags::EXCL)
                    }
                    other => other,
                };
                if fd.is_ok() {
                    if !content.has(OBJECTS) && self.with_sums {
                        content.set(SUMS);
                    }
                    // One that was lost keeps its checksums: what was in it is not to become a hole.
                    if !content.was_created(index) {
                        if content.has(SUMS) {
                            content.sums()[index].lock().start_anew();
                        }
                        content.set_created(index);
                    }
                    content.set(OBJECTS);
                    content.note_unrecorded();
                    objects.entry_created(index);
                    target.entries.created(place);
                }
                fd
            }
            other => other,
        };
        let pages = fd.map_err(fail)?;
        let direct = if target.is_direct { Some(open(OFlags::DIRECT).map_err(fail)?) } else { None };
        let count = &self.open.descriptors;
        objects.put(index, ObjectFile::new(pages, direct, target.reads_as_asked, self.fence.clone(), count));
        self.open.admit(content, index);
        Ok(())
    }

    /// Has the open object `index` go past the page cache for writes that ask for it, if its target can do that. Where it
    /// cannot be opened once more they go through it.
    pub fn open_direct(&self, content: &Content, layout: &Layout, objects: &Objects, index: usize) {
        let Some(object) = objects.object(index).filter(|object| !object.has_direct()) else { return };
        let place = content.place(objects.id, layout, index);
        let Some(target) = self.target(place).ok().filter(|target| target.takes_direct) else { return };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECT;
        let direct = rustix::fs::openat(&target.objects, place.object.object_name(), flags, Mode::empty());
        if direct.is_ok_and(|direct| object.add_direct(direct)) {
            self.open.make_room();
        }
    }

    /// Whether writes to a target go past the page cache if they ask for it.
    pub fn takes_direct(&self, target: TargetId) -> bool {
        self.all.iter().any(|ours| ours.id == target && ours.takes_direct)
    }

    /// Size and modification time of an object, if it exists.
    pub fn stat_object(&self, place: ObjectPlace) -> Result<Option<rustix::fs::Stat>, StoreError> {
        let (target, name) = (self.target(place)?, place.object.object_name());
        match rustix::fs::statat(&target.objects, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(StoreError::host(&target.path.join(&name), e)),
        }
    }

    /// The checksums of an object, as they lie beside it.
    pub fn sidecar(&self, place: ObjectPlace) -> Result<Place<'_>, StoreError> {
        Ok(Place { dir: self.directory(place)?, object: place.object, is_suspect: true, fence: &self.fence })
    }

    /// Before an object is cut to so many bytes: see [`crate::shortened`].
    pub fn cut_sidecar(&self, place: ObjectPlace, size: u64) -> Result<(), StoreError> {
        let cut = sums::shorten(&self.sidecar(place)?, blocks_in(size));
        cut.map_err(|errno| StoreError::host(&self.path(place), errno))
    }

    /// That anything may be changed.
    pub fn check_fence(&self) -> Result<(), StoreError> {
        let path = self.all.first().map_or(Path::new(""), |target| &target.path);
        self.fence.check().map_err(|errno| StoreError::host(path, errno))
    }

    /// Whether all targets of `layout` are these.
    pub fn have(&self, layout: &Layout) -> bool {
        layout.targets.iter().all(|id| self.has(*id))
    }

    /// Whether the target is one of these.
    pub fn has(&self, target: TargetId) -> bool {
        self.all.iter().any(|ours| ours.id == target)
    }

    /// Cuts every object to what a file of `size` bytes has of it at most, on stable storage.
    pub fn trim(&self, id: ObjectsId, layout: &Layout, size: u64) -> Result<(), StoreError> {
        let mut places = id.places(layout).enumerate();
        places.try_for_each(|(index, place)| self.trim_object(place, object_size(layout, index, size)))
    }

    /// Cuts an object to `wanted` bytes, on stable storage.
    pub fn trim_object(&self, place: ObjectPlace, wanted: u64) -> Result<(), StoreError> {
        // Also of one that is short already: what it lost behind that is not to be missing any more.
        self.cut_sidecar(place, wanted)?;
        if self.stat_object(place)?.is_none_or(|stat| stat.st_size as u64 <= wanted) {
            return Ok(());
        }
        let (target, name) = (self.target(place)?, place.object.object_name());
        rustix::fs::openat(&target.objects, &name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|fd| {
                self.fence.check()?;
                rustix::fs::ftruncate(&fd, wanted)?;
                rustix::fs::fdatasync(fd)
            })
            .map_err(|e| StoreError::host(&target.path.join(&name), e))
    }

    /// Removes all objects in one directory of each target but those that `keep`, as far as they can be removed; tells how many.
    pub fn remove_others(
        &self,
        directory: usize,
        left: &mut Left,
        mut keep: impl FnMut(ObjectPlace) -> bool,
    ) -> Result<usize, StoreError> {
        let mut removed = 0;
        for target in &self.all {
            let path = target.path.join(directory_name(directory));
            let fail = |e| StoreError::host(&path, e);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&target.objects, directory_name(directory), flags, Mode::empty());
            let fd = fd.map_err(fail)?;
            for entry in rustix::fs::Dir::read_from(&fd).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                // What is called otherwise is not ours.
                let Some(object) = object_called(entry.file_name().to_bytes()) else { continue };
                if ObjectsId::of(object).directory() != directory || keep(ObjectPlace { object, target: target.id }) {
                    continue;
                }
                tracing::warn!(object = %path.join(entry.file_name().to_string_lossy().as_ref()).display(),
                    "removing an object of no file");
                self.fence.check().map_err(fail)?;
                let unlinked = rustix::fs::unlinkat(&fd, entry.file_name(), AtFlags::empty());
                removed += usize::from(left.goes_on(unlinked.map_err(fail))?);
            }
        }
        Ok(removed)
    }

    /// Removes all objects of a file.
    pub fn remove_objects(&self, id: ObjectsId, layout: &Layout) -> Result<(), StoreError> {
        id.places(layout).try_for_each(|place| self.remove_object(place))
    }

    /// Removes an object, if it exists, and its sidecar.
    pub fn remove_object(&self, place: ObjectPlace) -> Result<(), StoreError> {
        let target = self.target(place)?;
        for name in [place.object.object_name(), place.object.sidecar_name()] {
            let removed =
                self.fence.check().and_then(|()| rustix::fs::unlinkat(&target.objects, &name, AtFlags::empty()));
            match removed {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(StoreError::host(&target.path.join(&name), e)),
            }
        }
        Ok(())
    }

    /// An object for reading, if it exists.
    pub fn open_to_read(&self, place: ObjectPlace) -> Result<Option<OwnedFd>, StoreError> {
        let (target, name) = (self.target(place)?, place.object.object_name());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(&target.objects, &name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(StoreError::host(&target.path.join(&name), e)),
        }
    }

    /// Calls `each` with the object that each file in a directory of every target is, or is the sidecar of, and its path.
    pub fn each_object(&self, directory: usize, mut each: impl FnMut(ObjectPlace, PathBuf)) -> Result<(), StoreError> {
        for target in &self.all {
            let path = target.path.join(directory_name(directory));
            let fail = |e| StoreError::host(&path, e);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&target.objects, directory_name(directory), flags, Mode::empty());
            for entry in rustix::fs::Dir::read_from(fd.map_err(fail)?).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                if let Some(object) = object_called(entry.file_name().to_bytes()) {
                    let place = ObjectPlace { object, target: target.id };
                    each(place, path.join(entry.file_name().to_string_lossy().as_ref()));
                }
            }
        }
        Ok(())
    }

    /// Moves the object at `path` to `lost+found` of its target.
    pub fn set_aside(&self, path: &Path) -> Result<(), StoreError> {
        let target = self.all.iter().find(|target| path.starts_with(&target.path)).ok_or(StoreError::Invalid)?;
        let (Some(dir), Some(name)) = (target.path.parent(), path.file_name()) else { return Err(StoreError::Invalid) };
        let dir = dir.join("lost+found");
        match rustix::fs::mkdir(&dir, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(StoreError::host(&dir, e)),
        }
        let to = dir.join(name);
        // Never over another one that was set aside.
        rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, &to, RenameFlags::NOREPLACE)
            .map_err(|e| StoreError::host(&to, e))
    }

    /// The directory that names of objects start from.
    pub fn directory(&self, place: ObjectPlace) -> Result<BorrowedFd<'_>, StoreError> {
        Ok(self.target(place)?.objects.as_fd())
    }

    /// Syncs everything on the file systems of the targets.
    pub fn sync_all(&self) -> Result<(), StoreError> {
        self.all
            .iter()
            .try_for_each(|target| rustix::fs::syncfs(&target.objects).map_err(|e| StoreError::host(&target.path, e)))
    }

    /// From now on [`Self::sync_all`] fails.
    #[cfg(test)]
    pub fn spoil_sync_all(&mut self) {
        for target in &mut self.all {
            target.objects =
                rustix::fs::open(&target.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("there");
        }
    }

    /// The path of an object, for messages.
    pub fn path(&self, place: ObjectPlace) -> PathBuf {
        let name = place.object.object_name();
        self.target(place).map_or_else(|_| name.clone().into(), |target| target.path.join(&name))
    }

    /// What each target has left for ordinary users, in bytes.
    pub fn free_bytes(&self) -> Result<Vec<u64>, StoreError> {
        let free = |target: &Target| {
            let stat = rustix::fs::fstatvfs(&target.objects).map_err(|e| StoreError::host(&target.path, e))?;
            Ok(stat.f_bavail * stat.f_frsize)
        };
        self.all.iter().map(free).collect()
    }

    pub fn stat_fs(&self) -> Result<FsStat, StoreError> {
        let mut sum = FsStat::default();
        let mut devices = HashSet::new();
        for target in &self.all {
            let fail = |e| StoreError::host(&target.path, e);
            if !devices.insert(rustix::fs::fstat(&target.objects).map_err(fail)?.st_dev) {
                continue;
            }
            let stat = rustix::fs::fstatvfs(&target.objects).map_err(fail)?;
            sum.total_bytes += stat.f_blocks * stat.f_frsize;
            sum.free_bytes += stat.f_bfree * stat.f_frsize;
            sum.available_bytes += stat.f_bavail * stat.f_frsize;
            sum.inodes_total += stat.f_files;
            sum.inodes_free += stat.f_ffree;
        }
        Ok(sum)
    }

    /// Whether none of the targets survives a power cut.
    pub fn are_volatile(&self) -> Result<bool, OpenError> {
        let mut all = self.all.iter().map(|target| is_volatile(&target.objects, &target.path));
        all.try_fold(true, |all, one| Ok(all && one?))
    }

    fn target(&self, place: ObjectPlace) -> Result<&Target, StoreError> {
        let damaged = || StoreError::Damaged(isonomia_units::Ino(place.object.number));
        self.all.iter().find(|target| target.id == place.target).ok_or_else(damaged)
    }
}

impl Target {
    fn open(target: &TargetDir, config: &StoreConfig) -> Result<Self, OpenError> {
        let path = target.dir.join(DIRECTORIES_NAME);
        let missing = |path: &Path, e: Errno| match e {
            Errno::NOENT => OpenError::damaged(path, "is missing"),
            e => OpenError::io(path, e),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let objects = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| missing(&path, e))?;
        for name in (0..DIRECTORIES).map(directory_name) {
            rustix::fs::statat(&objects, &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| missing(&path.join(&name), e))?;
        }
        let [is_direct, on_request, reads_as_asked] =
            [&config.direct, &config.direct_on_request, &config.reads_as_asked].map(|all| all.contains(&target.id));
        let probed = if is_direct || on_request { probe(&target.dir) } else { Ok(false) };
        if let Err(reason) = probed
            && is_direct
        {
            tracing::warn!(target = %target.id, dir = %target.dir.display(), %reason,
                "files go through the page cache: this file system cannot do without");
        }
        let takes_direct = !is_direct && on_request && probed == Ok(true);
        let (id, is_direct, entries) = (target.id, is_direct && probed.is_ok(), Entries::new(syncs_names(&objects)));
        Ok(Self { id, path, objects, is_direct, takes_direct, reads_as_asked, entries })
    }
}

/// Whether the directories of objects are all there.
pub(crate) fn has_directories(target: &Path) -> bool {
    let path = target.join(DIRECTORIES_NAME);
    (0..DIRECTORIES).all(|directory| path.join(directory_name(directory)).is_dir())
}

/// Whether there are objects in a target.
pub(crate) fn is_used(target: &Path) -> Result<bool, OpenError> {
    let path = target.join(DIRECTORIES_NAME);
    for directory in 0..DIRECTORIES {
        let inside = path.join(directory_name(directory));
        match std::fs::read_dir(&inside).map(|mut entries| entries.next().transpose()) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(_))) => return Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Ok(Err(e)) | Err(e) => return Err(OpenError::io(&inside, e)),
        }
    }
    Ok(false)
}

/// Creates the directories of objects in a target.
pub(crate) fn create_directories(target: &Path) -> Result<(), OpenError> {
    let path = target.join(DIRECTORIES_NAME);
    let fail = |e: Errno| OpenError::io(&path, e);
    let make = |made: Result<(), Errno>| match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(fail(e)),
    };
    make(rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let objects = rustix::fs::open(&path, flags, Mode::empty()).map_err(fail)?;
    for directory in 0..DIRECTORIES {
        make(rustix::fs::mkdirat(&objects, directory_name(directory), Mode::from_raw_mode(0o700)))?;
    }
    rustix::fs::fsync(&objects).map_err(fail)?;
    rustix::fs::open(target, flags, Mode::empty()).and_then(rustix::fs::fsync).map_err(fail)
}

impl ObjectsId {
    /// Whose the object is.
    pub fn of(object: ObjectId) -> Self {
        Self { number: object.number, generation: object.generation }
    }

    /// Which of the [`DIRECTORIES`] of a target they lie in.
    pub fn directory(self) -> usize {
        (self.number & 0xff) as usize
    }

    /// Where object `index` of a layout is, the first of which is called by `first_index`.
    pub fn place(self, layout: &Layout, index: usize, first_index: usize) -> ObjectPlace {
        let called = (first_index + index) as u32;
        let object = ObjectId { number: self.number, generation: self.generation, index: called };
        ObjectPlace { object, target: layout.targets[index] }
    }

    /// Where all objects of a file are.
    pub fn places(self, layout: &Layout) -> impl Iterator<Item = ObjectPlace> {
        (0..layout.targets.len()).map(move |index| self.place(layout, index, 0))
    }
}

/// Which object the file `name` is, or is the sidecar of; `None` if it is not called like one.
fn object_called(name: &[u8]) -> Option<ObjectId> {
    let name = std::str::from_utf8(name).ok()?;
    let mut parts = name.strip_suffix(SIDECAR_SUFFIX).unwrap_or(name).split('.');
    let (number, generation, index) = (parts.next()?, parts.next()?, parts.next()?);
    let index = index.parse::<u16>().ok().filter(|_| parts.next().is_none())?.into();
    let number = u64::from_str_radix(number, 16).ok()?;
    Some(ObjectId { number, generation: u32::from_str_radix(generation, 16).ok()?, index })
}

fn directory_name(directory: usize) -> String {
    format!("{directory:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::fixture::{config, create, now};
    use proptest::prelude::*;

    #[test]
    fn the_checksums_of_a_stale_object_go_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&config(dir.path())).unwrap();
        let now = now();
        let ino = create(&store, "f");
        let inode = store.namespace.inode(ino.0).unwrap();
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let objects = dir.path().join("target/objects");
        let (object, sidecar) = (store.objects.targets.path(place), objects.join(place.object.sidecar_name()));
        std::fs::write(&sidecar, [1; 8192]).unwrap();
        // One that cannot be removed as files are.
        std::fs::create_dir(&object).unwrap();
        assert!(store.write(ino, 0, b"bytes", now).is_err());
        assert_eq!(std::fs::metadata(sidecar).unwrap().len(), 0);
    }

    fn layout(stripe_pages: u64, count: u16) -> Layout {
        Layout { stripe_bytes: stripe_pages * 4096, targets: (0..count).map(TargetId).collect(), grows: false }
    }

    proptest! {
        #[test]
        fn spots_agree_with_the_layout(pages in 1u64..5, count in 1u16..6, offset in 0u64..1 << 40) {
            let layout = layout(pages, count);
            let spot = spot(&layout, offset);
            prop_assert_eq!((layout.targets[spot.index], spot.run), layout.locate(offset));
            // The byte at `offset` is the last one of a file of `offset + 1` bytes.
            prop_assert_eq!(object_size(&layout, spot.index, offset + 1), spot.offset + 1);
            prop_assert_eq!(file_size(&layout, spot.index, spot.offset + 1), offset + 1);
        }

        #[test]
        fn objects_share_a_file_without_rest(pages in 1u64..5, count in 1u16..6, size in 0u64..1 << 20) {
            let layout = layout(pages, count);
            let sizes = (0..usize::from(count)).map(|i| object_size(&layout, i, size));
            prop_assert_eq!(sizes.clone().sum::<u64>(), size);
            prop_assert_eq!(sizes.enumerate().map(|(i, s)| file_size(&layout, i, s)).max(), Some(size));
        }
    }
}
