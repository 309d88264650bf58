//! The part of a store in a file system of several servers: which volumes it has, and who has what it has not.
//!
//! A volume is a directory below the root with all that is in it, and is on one server. Its number is in the numbers of all
//! its inodes; that of its directory is [`root_of`]. Every server has a root directory, with the names of its own volumes. On
//! the *root server* this is the root that users see: the names of others' volumes stand in it as well, without an inode, and
//! so do files and what else is in no volume.
//!
//! A walk that comes to what another server has ends with [`StoreError::Elsewhere`]. A change of a name that stands for a volume is no
//! matter of this store alone: it ends with [`StoreError::OfVolume`], after permissions have been checked as for any directory.
//! The server sees to it that all agree, and then calls [`Store::make_volume`] and its like, which check nothing of that.

pub(crate) mod change;
mod found;

pub(crate) use found::FoundHere;

use crate::database::{ClusterRecord, Entry};
use crate::edit::ReclaimList;
use crate::inode::Inode;
use crate::permission::{self, STICKY};
use crate::record::{Body, Record};
use crate::walk::{Last, Location};
use crate::{Caller, Namespace, RenameHow, Store, StoreError, VolumeChange};
use isonomia_proto::NAME_LEN_MAX;
use isonomia_proto::fs::{Attr, FileKind, Timestamp};
use isonomia_units::{Ino, ServerId, VolumeId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError, RwLock};

/// The number of a volume's directory within the volume.
const ROOT_NUMBER: u64 = Ino::ROOT.0;

/// The directory of a volume.
pub const fn root_of(volume: VolumeId) -> Ino {
    Ino::new(volume, ROOT_NUMBER)
}

/// Which server has which volume, as far as this one knows: it may be old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// This server.
    pub own: ServerId,
    /// The root server, who knows for certain.
    pub root: ServerId,
    /// The server of each volume that is known.
    pub servers: HashMap<VolumeId, ServerId>,
    /// The volumes by name.
    pub names: HashMap<Box<[u8]>, VolumeId>,
    /// The root server is away: what is known of the root directory here is better than nothing, to those who read it.
    pub is_root_away: bool,
    /// Volumes that are here, or on their way, and in which nobody is served: who is to be asked. This server, if that may
    /// change in a moment.
    pub closed: HashMap<VolumeId, ServerId>,
    /// Names of which nobody can say for a moment what they stand for: volumes are about to change theirs.
    pub in_doubt: HashSet<Box<[u8]>>,
}

impl Whereabouts {
    /// Who has a volume, or knows who has.
    fn of(&self, volume: VolumeId) -> ServerId {
        match volume {
            VolumeId::ROOT => self.root,
            volume => self.servers.get(&volume).copied().filter(|server| *server != self.own).unwrap_or(self.root),
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.own == self.root
    }
}

impl Store {
    /// Says that a directory in the root is to be made by all servers together, after the checks of `mkdir`.
    pub(crate) fn check_new_volume(
        &self,
        caller: &Caller<'_>,
        dir: &Inode,
        name: &[u8],
        bits: u32,
    ) -> Result<(), StoreError> {
        if dir.ino != Ino::ROOT.0 || self.namespace.whereabouts().is_none() {
            return Ok(());
        }
        let (uid, gid, mode) = {
            let root = dir.record();
            caller.may_add(&root)?;
            permission::of_new(caller, &root, FileKind::Directory, bits & (0o777 | STICKY))
        };
        // The table of volumes grows by it, and what is stored of that cannot be given up half-way.
        self.objects.admit()?;
        if !self.namespace.names_in_the_making().insert(name.into()) {
            return Err(StoreError::Exists);
        }
        Err(StoreError::OfVolume(VolumeChange::Make { name: name.into(), mode, uid, gid }))
    }

    /// Makes the directory of a volume here, and gives its attributes. One that is there already stays as it is.
    pub fn make_volume(
        &self,
        volume: VolumeId,
        name: &[u8],
        (mode, uid, gid): (u32, u32, u32),
        now: Timestamp,
    ) -> Result<Attr, StoreError> {
        let namespace = self.namespace.own();
        let (root, ino) = (self.namespace.load(Ino::ROOT.0)?, root_of(volume).0);
        let inode = match self.namespace.load(ino) {
            Ok(inode) => inode,
            Err(StoreError::Stale) => {
                self.objects.admit()?;
                let body = Body::Directory { parent: root.ino, name: name.into() };
                let record =
                    Record::new((ino, self.namespace.generation), (FileKind::Directory, mode), (uid, gid), body, now);
                let mut edit = self.namespace.edit();
                let inode = edit.create(ino, record);
                if self.namespace.look_up(&root, name)?.is_none() {
                    edit.record(&root).nlink += 1;
                }
                edit.enter(&root, name, ino, FileKind::Directory);
                edit.touch_dir(&root, now);
                let ReclaimList(_) = edit.commit()?;
                inode
            }
            Err(error) => return Err(error),
        };
        drop(namespace);
        self.attr(&inode)
    }

    /// Removes the directory of a volume that is empty. One that is gone already is no error.
    pub fn remove_volume(&self, volume: VolumeId, now: Timestamp) -> Result<(), StoreError> {
        let namespace = self.namespace.own();
        let root = self.namespace.load(Ino::ROOT.0)?;
        let inode = match self.namespace.load(root_of(volume).0) {
            Ok(inode) => inode,
            Err(StoreError::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.namespace.is_empty(inode.ino)? {
            return Err(StoreError::NotEmpty);
        }
        let Body::Directory { name, .. } = inode.record().body.clone() else { return Err(StoreError::NotDirectory) };
        let mut edit = self.namespace.edit();
        edit.leave(&root, &name);
        edit.drop_link(&inode, now);
        edit.touch_dir(&root, now);
        edit.record(&root).nlink -= 1;
        let reclaimed = edit.commit()?;
        self.namespace.found_here.forget();
        drop(namespace);
        self.reclaim_all(reclaimed)
    }
}

impl Namespace {
    /// Makes the store a part of a file system of several servers, or tells it where things are now.
    pub fn set_whereabouts(&self, whereabouts: Arc<Whereabouts>) {
        let known = self.whereabouts.get_or_init(RwLock::default);
        *known.write().unwrap_or_else(PoisonError::into_inner) = whereabouts;
        self.found_here.forget();
    }

    /// What the server keeps of its cluster: keys and values of which the store knows nothing.
    pub fn cluster_records(&self) -> Result<Vec<ClusterRecord>, StoreError> {
        self.db.cluster_records()
    }

    /// Puts these changes of what is kept of the cluster on stable storage, all or none; without a value a record goes.
    pub fn keep_cluster_records<'r>(
        &self,
        changes: impl IntoIterator<Item = (&'r [u8], Option<&'r [u8]>)>,
    ) -> Result<(), StoreError> {
        self.change_cluster_records(changes)?;
        self.db.sync()
    }

    /// Makes these changes of what is kept of the cluster, all or none. A power cut may undo them until the next sync.
    pub fn change_cluster_records<'r>(
        &self,
        changes: impl IntoIterator<Item = (&'r [u8], Option<&'r [u8]>)>,
    ) -> Result<(), StoreError> {
        let mut change = self.db.change();
        for (key, value) in changes {
            match value {
                Some(value) => change.put_cluster_record(key, value),
                None => change.remove_cluster_record(key),
            }
        }
        change.commit()
    }

    /// Says that a name, which [`VolumeChange`] told of, is not about to be given to a volume any more: it has been, or will
    /// not be.
    pub fn forget_new_name(&self, name: &[u8]) {
        self.names_in_the_making().remove(name);
    }

    /// Gives the directory of a volume that is here another name.
    pub fn rename_volume(&self, volume: VolumeId, name: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let _namespace = self.own();
        let (root, inode) = (self.load(Ino::ROOT.0)?, self.load(root_of(volume).0)?);
        let Body::Directory { name: before, .. } = inode.record().body.clone() else {
            return Err(StoreError::NotDirectory);
        };
        if before[..] == *name {
            return Ok(());
        }
        let mut edit = self.edit();
        edit.leave(&root, &before);
        edit.enter(&root, name, inode.ino, FileKind::Directory);
        let record = edit.record(&inode);
        record.ctime = now;
        record.body = Body::Directory { parent: root.ino, name: name.into() };
        edit.touch_dir(&root, now);
        let ReclaimList(_) = edit.commit()?;
        Ok(())
    }

    /// Has the root directory name exactly these volumes, besides what is in no volume and volumes that are here.
    pub fn set_volume_names(&self, names: &HashMap<Box<[u8]>, VolumeId>, now: Timestamp) -> Result<(), StoreError> {
        let _namespace = self.own();
        let root = self.load(Ino::ROOT.0)?;
        let mut there: HashMap<Box<[u8]>, Entry> = HashMap::new();
        self.db.entries(root.ino, 0, |key, entry| {
            if Ino(entry.ino).volume() != VolumeId::ROOT {
                there.insert(key.name.into(), entry);
            }
            true
        })?;
        let mut edit = self.edit();
        let mut has_changed = false;
        for (name, entry) in &there {
            let is_wanted = names.get(name).is_some_and(|volume| root_of(*volume).0 == entry.ino);
            if !is_wanted && !self.loads(Ino(entry.ino))? {
                edit.leave(&root, name);
                edit.record(&root).nlink -= 1;
                has_changed = true;
            }
        }
        for (name, volume) in names {
            let ino = root_of(*volume).0;
            if there.get(name).is_none_or(|entry| entry.ino != ino) && !self.loads(Ino(ino))? {
                edit.enter(&root, name, ino, FileKind::Directory);
                edit.record(&root).nlink += 1;
                has_changed = true;
            }
        }
        if has_changed {
            edit.touch_dir(&root, now);
            let ReclaimList(_) = edit.commit()?;
        }
        Ok(())
    }

    /// Whether there are other servers, or may be.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.whereabouts.get().is_some()
    }

    /// Where things are, if there are several servers.
    pub fn whereabouts(&self) -> Option<Arc<Whereabouts>> {
        let known = self.whereabouts.get()?;
        Some(known.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Checks that the volume of `ino` is here: [`StoreError::Elsewhere`] otherwise. The root directory is everywhere.
    pub fn check_is_here(&self, ino: Ino) -> Result<(), StoreError> {
        if ino == Ino::ROOT || !self.is_in_cluster() {
            return Ok(());
        }
        let Err(before) = self.found_here.has(ino.volume()) else { return Ok(()) };
        self.look_whether_here(ino)?;
        // A walk takes what is noted for the name as well.
        if self.whereabouts().is_none_or(|whereabouts| whereabouts.in_doubt.is_empty()) {
            self.found_here.note(ino.volume(), before);
        }
        Ok(())
    }

    fn look_whether_here(&self, ino: Ino) -> Result<(), StoreError> {
        let Some(whereabouts) = self.whereabouts() else { return Ok(()) };
        match ino.volume() {
            VolumeId::ROOT if whereabouts.is_root() => Ok(()),
            VolumeId::ROOT => Err(StoreError::elsewhere(whereabouts.root, b"")),
            volume => match whereabouts.closed.get(&volume) {
                // Who is sent to the server that says so waits for a moment.
                Some(server) => Err(StoreError::elsewhere(*server, b"")),
                None if self.has_volume(volume)? => Ok(()),
                // Whoever knows for certain says that there is none.
                None => match whereabouts.of(volume) {
                    server if server == whereabouts.own => Err(StoreError::Stale),
                    server => Err(StoreError::elsewhere(server, b"")),
                },
            },
        }
    }

    /// Whether nobody is served in a volume for now.
    pub fn is_closed(&self, volume: VolumeId) -> bool {
        self.whereabouts().is_some_and(|whereabouts| whereabouts.closed.contains_key(&volume))
    }

    /// Whether a volume is on this server.
    pub fn has_volume(&self, volume: VolumeId) -> Result<bool, StoreError> {
        let ino = root_of(volume);
        if self.inodes.get(ino.0).is_some() {
            return Ok(true);
        }
        let _namespace = self.share();
        self.loads(ino)
    }

    /// Whether there is such an inode here. The caller has the namespace lock.
    fn loads(&self, ino: Ino) -> Result<bool, StoreError> {
        match self.load(ino.0) {
            Ok(_) => Ok(true),
            Err(StoreError::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks that a location whose directory is the root is for this server to look at; `rest` is what is left of the path from the root
    /// on, the location's own name first.
    pub(crate) fn check_in_root(&self, last: &Last, rest: &[u8]) -> Result<(), StoreError> {
        let Some(whereabouts) = self.whereabouts() else { return Ok(()) };
        let Last::Name(name) = last else {
            let is_here = whereabouts.is_root();
            return if is_here { Ok(()) } else { Err(StoreError::elsewhere(whereabouts.root, rest)) };
        };
        if whereabouts.in_doubt.contains(&name[..]) {
            return Err(StoreError::elsewhere(whereabouts.own, rest));
        }
        let root = self.load(Ino::ROOT.0)?;
        let volume = match self.look_up(&root, name)?.map(|entry| Ino(entry.ino).volume()) {
            Some(VolumeId::ROOT) => return Ok(()),
            Some(volume) => match whereabouts.closed.get(&volume) {
                Some(server) => return Err(StoreError::elsewhere(*server, rest)),
                None if self.loads(root_of(volume))? => return Ok(()),
                None => Some(volume),
            },
            None if whereabouts.is_root() => return Ok(()),
            None => whereabouts.names.get(&name[..]).copied(),
        };
        match volume.map_or(whereabouts.root, |volume| whereabouts.of(volume)) {
            // The name of a volume that nobody has at the moment: it is being made, or being removed.
            server if server == whereabouts.own => Err(StoreError::NotFound),
            server => Err(StoreError::elsewhere(server, rest)),
        }
    }

    /// The same for a name that was looked up, and leads to an inode of `volume` if to any: the volumes that most requests go through are
    /// known to be here.
    pub(crate) fn check_on_the_way(
        &self,
        volume: Option<VolumeId>,
        name: &[u8],
        rest: &[u8],
    ) -> Result<(), StoreError> {
        let unknown = match volume.filter(|volume| *volume != VolumeId::ROOT) {
            Some(volume) => match self.found_here.has(volume) {
                Ok(()) => return Ok(()),
                Err(before) => Some((volume, before)),
            },
            None => None,
        };
        self.check_in_root(&Last::Name(name.to_vec()), rest)?;
        unknown.into_iter().for_each(|(volume, before)| self.found_here.note(volume, before));
        Ok(())
    }

    /// Checks that the root directory of this store is the one that users see.
    pub fn check_root_is_here(&self) -> Result<(), StoreError> {
        self.check_in_root(&Last::Itself, b"")
    }

    /// Checks that the root directory of this store is the one that users see, or all that they can see for now.
    pub fn check_root_is_readable(&self) -> Result<(), StoreError> {
        if self.whereabouts().is_some_and(|whereabouts| whereabouts.is_root_away) {
            return Ok(());
        }
        self.check_root_is_here()
    }

    /// The same if this inode, which is asked for itself, is the root directory.
    pub(crate) fn check_root_itself(&self, inode: &Inode) -> Result<(), StoreError> {
        if inode.ino == Ino::ROOT.0 { self.check_root_is_readable() } else { Ok(()) }
    }

    /// The root directory, if `path` from `at` is just that, its own server is away, and it is only to be read.
    pub(crate) fn root_to_read(&self, at: u64, path: &[u8]) -> Result<Option<Arc<Inode>>, StoreError> {
        let is_root = at == Ino::ROOT.0 && (path.iter().all(|byte| *byte == b'/') || path == b".");
        let is_away = || self.whereabouts().is_some_and(|whereabouts| whereabouts.is_root_away);
        if is_root && is_away() { self.load(at).map(Some) } else { Ok(None) }
    }

    /// The volume whose name this location is, if it is one's.
    pub(crate) fn volume_named(&self, location: &Location) -> Result<Option<VolumeId>, StoreError> {
        if location.dir.ino != Ino::ROOT.0 || self.whereabouts().is_none() {
            return Ok(None);
        }
        let volume = self.entry_at(location)?.map(|entry| Ino(entry.ino).volume());
        Ok(volume.filter(|volume| *volume != VolumeId::ROOT))
    }

    /// Checks that nobody is about to give `name` to a volume, if `dir` is the root.
    pub(crate) fn check_not_in_the_making(&self, dir: &Inode, name: &[u8]) -> Result<(), StoreError> {
        if dir.ino == Ino::ROOT.0 && self.names_in_the_making().contains(name) {
            return Err(StoreError::Exists);
        }
        Ok(())
    }

    fn names_in_the_making(&self) -> MutexGuard<'_, HashSet<Box<[u8]>>> {
        self.names_in_the_making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The second path of an operation that has two, the first of which is in `volume`: what is elsewhere is on another file
    /// system.
    pub(crate) fn locate_beside(
        &self,
        caller: &Caller<'_>,
        volume: VolumeId,
        at: u64,
        path: &[u8],
    ) -> Result<Location, StoreError> {
        if at != Ino::ROOT.0 && Ino(at).volume() != volume {
            return Err(StoreError::CrossDevice);
        }
        let is_own = |server| self.whereabouts().is_some_and(|whereabouts| whereabouts.own == server);
        self.locate(caller, at, path).map_err(|error| match error {
            // In a moment it may be beside the first.
            StoreError::Elsewhere { server, .. } if is_own(server) => error,
            StoreError::Elsewhere { .. } => StoreError::CrossDevice,
            error => error,
        })
    }

    /// What becomes of the wish that a volume, whose location that is, be called `path2`: a change that all servers make
    /// together, if it is allowed and the name is not its own already.
    pub(crate) fn renamed_volume(
        &self,
        caller: &Caller<'_>,
        volume: VolumeId,
        location: &Location,
        (at2, path2): (u64, &[u8]),
        how: RenameHow,
    ) -> Result<Option<VolumeChange>, StoreError> {
        let (inode, root) = (self.load(root_of(volume).0)?, &location.dir);
        caller.may_remove(&root.record(), &inode.record())?;
        // Whose a volume is that has the new name, its own server knows alone.
        let how = match (root.record().mode & STICKY != 0 && !caller.is_root(), how) {
            (true, RenameHow::Exchange) => return Err(StoreError::NotPermitted),
            (true, _) => RenameHow::NoReplace,
            (false, how) => how,
        };
        // Whether the new name is free is known to the root server: nothing but a name in the root will do.
        let name = match path2.iter().position(|byte| *byte == b'/') {
            _ if at2 != Ino::ROOT.0 => return Err(StoreError::CrossDevice),
            None => path2,
            Some(slash) if path2[slash..].iter().all(|byte| *byte == b'/') => &path2[..slash],
            Some(_) => return Err(StoreError::CrossDevice),
        };
        match name {
            b"" | b"." | b".." => Err(StoreError::Busy),
            name if name.len() > NAME_LEN_MAX => Err(StoreError::NameTooLong),
            name if name.contains(&0) => Err(StoreError::Invalid),
            name if matches!(&location.last, Last::Name(old) if old[..] == *name) => Ok(None),
            name => Ok(Some(VolumeChange::Rename { volume, name: name.into(), how })),
        }
    }
}

#[cfg(test)]
mod tests;
