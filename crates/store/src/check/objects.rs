//! Objects: those that records tell of, and those that none does.

use super::Checker;
use crate::StoreError;
use crate::blocks::{BlockFault, Blocks, Watch};
use crate::object::{DIRECTORIES, ObjectsId};
use crate::object_file::ObjectFile;
use crate::record::{Body, Record};
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

impl Checker<'_, '_> {
    /// Objects that records tell of.
    pub(super) fn objects(&mut self) -> Result<(), StoreError> {
        let unsettled: HashSet<u64> = self.db.unsettled()?.into_iter().collect();
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
            for index in 0..layout.targets.len() {
                if record.created.get(index / 8).is_some_and(|bits| bits & 1 << (index % 8) != 0) {
                    self.checked.objects += 1;
                    self.object(*ino, &record, layout, index, unsettled.contains(ino))?;
                }
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        ino: u64,
        record: &Record,
        layout: &Layout,
        index: usize,
        is_unsettled: bool,
    ) -> Result<(), StoreError> {
        let path = self.targets.path(record.objects, layout, index);
        let about = format!("inode {ino}, {}", path.display());
        let object = self.targets.open_to_read(record.objects, layout, index)?.map(ObjectFile::from);
        if object.is_none() && !record.has_sums {
            self.found("object", Some(ino), format!("{about} is missing"), None);
        }
        if !record.has_sums || is_unsettled {
            return Ok(());
        }
        let (sums, watch) = (Sums::default(), Watch::default());
        let place = Place {
            dir: self.targets.directory(record.objects, layout, index)?,
            object: record.objects.object(index),
            is_suspect: false,
        };
        let blocks = Blocks { object: object.as_ref(), sums: &sums, place, watch: &watch, may_wait: true };
        match sums.lock().blocks(&blocks.place) {
            Ok(_) => {}
            Err(SidecarFault::Host(errno)) => return Err(StoreError::host(&path, errno)),
            // Believed, they would read as zeros.
            Err(SidecarFault::Damaged(_)) if object.is_none() => {
                self.found("object", Some(ino), format!("{about} is missing, and its checksums"), None);
                return Ok(());
            }
            Err(SidecarFault::Damaged(what)) => {
                let repair = "believe the object as it is, and sum it anew at the next start";
                if self.found("checksums", Some(ino), format!("{about}: {what}"), Some(repair.to_owned())) {
                    self.change.put_unsettled(ino);
                }
                return Ok(());
            }
        }
        let fail = |fault| match fault {
            BlockFault::Host(errno) => StoreError::host(&path, errno),
            BlockFault::Damaged { .. } => StoreError::Damaged(Ino(ino)),
        };
        if blocks.is_short().map_err(fail)? && !self.check.data {
            let what = if object.is_some() { "is shorter than what was written" } else { "is missing" };
            self.found("object", Some(ino), format!("{about} {what}"), None);
        }
        if self.check.data {
            let (mut at, count) = (0, blocks.count().map_err(fail)?);
            let mut damaged = Vec::new();
            while at < count {
                let run = BLOCKS_AT_ONCE.min(count - at);
                blocks.verify(at, run as usize, |offset, what| damaged.push((offset, what))).map_err(fail)?;
                at += run;
                self.checked.bytes += run * crate::checksum::BLOCK_BYTES as u64;
                sums.lock().forget();
            }
            for (offset, what) in damaged.iter().take(BLOCKS_TOLD_MAX) {
                let offset = crate::object::file_offset(layout, index, *offset);
                self.found("block", Some(ino), format!("{about}: {what} at {offset} of the file"), None);
            }
            if damaged.len() > BLOCKS_TOLD_MAX {
                self.found("block", Some(ino), format!("{about}: {} damaged blocks in all", damaged.len()), None);
            }
        }
        Ok(())
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
        let mut unknown: Vec<PathBuf> = Vec::new();
        for directory in 0..DIRECTORIES {
            self.targets.each_object(directory, |id, path| {
                if !known.contains(&id) {
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
