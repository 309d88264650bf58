//! Objects: those that records tell of, of files and detached, and those that none does.

use super::Checker;
use crate::StoreError;
use crate::blocks::{BlockFault, Blocks, Watch};
use crate::checksum::BLOCKS_MAX;
use crate::content::Owner;
use crate::known_damage::Known;
use crate::object::{DIRECTORIES, ObjectPlace, ObjectsId, file_offset};
use crate::object_file::{ObjectFile, WriteMode};
use crate::record::Body;
use crate::sums::{Place, SidecarFault, Sums};
use isonomia_proto::fs::Layout;
use isonomia_units::Ino;
use std::collections::HashSet;
use std::path::PathBuf;

/// Blocks that are read in one go.
const BLOCKS_AT_ONCE: u64 = 256;
/// Damaged blocks of one object that are told one by one.
const BLOCKS_TOLD_MAX: usize = 4;
/// After so many objects each [`super::Check::progress`] is called.
const TOLD_EVERY: u64 = 10_000;
/// Records of detached objects that are read in one go.
const DETACHED_AT_ONCE: usize = 1024;

/// An object that is looked at.
struct About<'a> {
    owner: Owner,
    place: ObjectPlace,
    /// The layout that it is in, and where; without one it is detached.
    in_file: Option<(&'a Layout, usize)>,
}

impl Checker<'_, '_> {
    /// Objects that records tell of.
    pub(super) fn objects(&mut self) -> Result<(), StoreError> {
        let unsettled: HashSet<Owner> = self.db.unsettled()?.into_iter().collect();
        let mut files = Vec::new();
        self.db.each_raw_record(|ino, record| {
            if record.is_some_and(|record| record.has_objects) {
                files.push(ino);
            }
        })?;
        for (done, ino) in files.iter().enumerate() {
            if (done as u64).is_multiple_of(TOLD_EVERY) {
                (self.check.progress)(done as u64, files.len() as u64);
            }
            let Some(record) = self.db.record(*ino)? else { continue };
            let Body::Regular(layout) = &record.body else { continue };
            if !self.targets.have(layout) {
                let what = format!("inode {ino} lies on a target that the store does not have");
                self.found("target", Some(*ino), what, None);
                continue;
            }
            let owner = Owner::File(*ino);
            for (index, place) in record.objects.places(layout).enumerate() {
                if record.created.get(index / 8).is_some_and(|bits| bits & 1 << (index % 8) != 0) {
                    let about = About { owner, place, in_file: Some((layout, index)) };
                    self.object(&about, record.has_sums, unsettled.contains(&owner))?;
                }
            }
        }
        self.detached_objects(&unsettled)
    }

    /// Those that are of files of other servers.
    fn detached_objects(&mut self, unsettled: &HashSet<Owner>) -> Result<(), StoreError> {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            self.db.detached_after(after, |place, record| {
                found.push((place, record));
                found.len() < DETACHED_AT_ONCE
            })?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            after = Some(*last);
            for (place, record) in found.drain(..) {
                let about = About { owner: Owner::Detached(place), place, in_file: None };
                let ino = Some(place.object.number);
                match record {
                    None => {
                        let what = format!("the record of {} cannot be read", self.targets.path(place).display());
                        self.found("record", ino, what, None);
                    }
                    Some(_) if !self.targets.has(place.target) => {
                        let what =
                            format!("a detached object lies on target {}, which the store does not have", place.target);
                        self.found("target", ino, what, None);
                    }
                    Some(record) if record.is_created => {
                        self.object(&about, record.has_sums, unsettled.contains(&about.owner))?;
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn object(&mut self, about: &About<'_>, has_sums: bool, is_unsettled: bool) -> Result<(), StoreError> {
        self.checked.objects += 1;
        let place = about.place;
        let path = self.targets.path(place);
        let object = self.targets.open_to_read(place)?.map(ObjectFile::from);
        let (ino, name) = match about.owner {
            Owner::File(ino) => (ino, format!("inode {ino}, {}", path.display())),
            Owner::Detached(_) => (place.object.number, format!("detached object {}", path.display())),
        };
        if object.is_none() && !has_sums {
            self.found("object", Some(ino), format!("{name} is missing"), None);
        }
        if !has_sums {
            return Ok(());
        }
        let known = Known { all: self.known, db: self.check.repair.then_some(self.tables), place, is_volatile: false };
        let (sums, watch) = (Sums::default(), Watch::default());
        let place = Place {
            dir: self.targets.directory(place)?,
            object: place.object,
            is_suspect: is_unsettled,
            fence: &self.targets.fence,
        };
        let blocks = Blocks {
            object: object.as_ref(),
            sums: &sums,
            place,
            watch: &watch,
            known: Some(known),
            may_wait: true,
            mode: WriteMode::Usual,
        };
        let fail = |fault| match fault {
            BlockFault::Host(errno) => StoreError::host(&path, errno),
            BlockFault::Damaged { .. } => StoreError::Damaged(Ino(ino)),
        };
        let mut damaged = Vec::new();
        if is_unsettled {
            // The next start believes all but these.
            for block in known.noted(0, BLOCKS_MAX) {
                blocks.verify(block, 1, |offset, what| damaged.push((offset, what))).map_err(fail)?;
            }
            self.tell_damaged(about, ino, &name, &damaged);
            return Ok(());
        }
        match sums.lock().blocks(&blocks.place) {
            Ok(_) => {}
            Err(SidecarFault::Host(errno)) => return Err(StoreError::host(&path, errno)),
            // Believed, they would read as zeros.
            Err(SidecarFault::Damaged(_)) if object.is_none() => {
                self.found("object", Some(ino), format!("{name} is missing, and its checksums"), None);
                return Ok(());
            }
            Err(SidecarFault::Damaged(what)) => {
                let repair = "believe the object as it is, and sum it anew at the next start";
                if self.found("checksums", Some(ino), format!("{name}: {what}"), Some(repair.to_owned())) {
                    self.change.put_unsettled(about.owner);
                }
                return Ok(());
            }
        }
        if blocks.is_short().map_err(fail)? && !self.check.data {
            let what = if object.is_some() { "is shorter than what was written" } else { "is missing" };
            self.found("object", Some(ino), format!("{name} {what}"), None);
        }
        if self.check.data {
            let (mut at, count) = (0, blocks.count().map_err(fail)?);
            while at < count {
                let run = BLOCKS_AT_ONCE.min(count - at);
                blocks.verify(at, run as usize, |offset, what| damaged.push((offset, what))).map_err(fail)?;
                at += run;
                self.checked.bytes += run * crate::checksum::BLOCK_BYTES as u64;
                sums.lock().forget();
            }
            self.tell_damaged(about, ino, &name, &damaged);
        }
        Ok(())
    }

    fn tell_damaged(&mut self, about: &About<'_>, ino: u64, name: &str, damaged: &[(u64, &'static str)]) {
        for (offset, what) in damaged.iter().take(BLOCKS_TOLD_MAX) {
            let at = match about.in_file {
                Some((layout, index)) => format!("{} of the file", file_offset(layout, index, *offset)),
                None => format!("{offset} of the object"),
            };
            self.found("block", Some(ino), format!("{name}: {what} at {at}"), None);
        }
        if damaged.len() > BLOCKS_TOLD_MAX {
            self.found("block", Some(ino), format!("{name}: {} damaged blocks in all", damaged.len()), None);
        }
    }

    /// Objects and sidecars that no record and no orphan tells of.
    pub(super) fn unknown_objects(&mut self) -> Result<(), StoreError> {
        let mut known: HashSet<ObjectsId> = self.db.orphans()?.into_iter().map(|(id, _)| id).collect();
        self.db.each_raw_record(|_, record| {
            known.extend(record.filter(|record| record.has_objects).map(|record| record.objects));
        })?;
        // A dirty file may have its first object before its record says so.
        for (ino, _) in self.db.dirty_records()? {
            known.extend(self.db.record(ino)?.map(|record| record.objects));
        }
        let mut detached: HashSet<ObjectPlace> = HashSet::new();
        self.db.detached_after(None, |place, _| {
            detached.insert(place);
            true
        })?;
        let mut unknown: Vec<PathBuf> = Vec::new();
        for directory in 0..DIRECTORIES {
            self.targets.each_object(directory, |place, path| {
                if !known.contains(&ObjectsId::of(place.object)) && !detached.contains(&place) {
                    unknown.push(path);
                }
            })?;
        }
        unknown.sort();
        for path in unknown {
            let what = format!("{} belongs to no file", path.display());
            if self.found("unknown object", None, what, Some("move it to lost+found of its target".to_owned())) {
                self.targets.set_aside(&path)?;
            }
        }
        Ok(())
    }
}
