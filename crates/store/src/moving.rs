//! A volume that goes from one server's store to another's.
//!
//! The store that has it *closes* it ([`Whereabouts::closed`](crate::Whereabouts)): nothing begins in it any more. [`Store::freeze`]
//! waits for what has begun, refuses what is in use, and brings all that memory knows to the database. From then on
//! [`Store::piece`] gives the volume in pieces, in the order of the database's keys: records of inodes, extended attributes, names, and
//! then the bytes of files, without their holes. Each piece says with which [`PieceCursor`] to go on, so whoever gets them needs to remember
//! nothing else.
//!
//! The other store takes them in ([`Store::take_piece`]), each as often as it comes. Files keep their numbers and get objects on the targets of
//! that store; bytes are read again and compared after they were written. The directory of the volume comes last
//! ([`Store::finish_volume`]): before that the store does not have the volume, whatever it has of it. Numbers that it gives
//! out afterwards are above all those that the first store ever gave out.
//!
//! [`Store::drop_volume`] removes all of a volume, of one that has moved and of one that never came; directory first, so
//! that a stop in between leaves none that is there by half.
//!
//! Spread files keep their objects where these are: only their records go.

use crate::database::Entry;
use crate::edit::ReclaimList;
use crate::inode::{Inode, LOOSE, SPREAD};
use crate::object::ObjectsId;
use crate::record::{Body, Record};
use crate::{Namespace, Store, StoreError, root_of};
use isonomia_proto::fs::{FileKind, Timestamp};
use isonomia_proto::space::Extent;
use isonomia_units::{Ino, VolumeId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicUsize};

/// About as many bytes are in one piece at most, beside one extended attribute or a record.
pub const PIECE_BYTES_MAX: usize = 96 << 10;
/// Inodes or names that are removed together.
const DROPPED_AT_ONCE: usize = 256;

/// Operations that are under way. Who closes a volume waits for those that may have begun before, and not for later ones: there are two
/// counts, and those that begin count in the one that is not waited for.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    parity: AtomicU8,
    under_way: [AtomicUsize; 2],
}

/// An operation that is under way.
#[derive(Debug)]
pub struct Passage<'s>(&'s AtomicUsize);

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Passages {
    fn begin(&self) -> Passage<'_> {
        let count = &self.under_way[usize::from(self.parity.load(SeqCst) & 1)];
        count.fetch_add(1, SeqCst);
        Passage(count)
    }

    /// Waits until all that began before has ended; false if `goes_on` says that it takes too long.
    fn drain(&self, goes_on: impl Fn() -> bool) -> bool {
        // Twice: who read the parity before the last change may count only now, in either.
        for _ in 0..2 {
            let parity = self.parity.fetch_add(1, SeqCst) & 1;
            while self.under_way[usize::from(parity)].load(SeqCst) > 0 {
                if !goes_on() {
                    return false;
                }
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
        true
    }
}

/// Which part of a volume is meant, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PieceCursor {
    /// Inodes after this one.
    Inodes(u64),
    /// Extended attributes after this key.
    Xattrs(Vec<u8>),
    /// Names after this key.
    Names(Vec<u8>),
    /// Bytes of this file, or of the next one if there is none, from the offset on.
    Bytes(u64, u64),
    /// There is nothing more.
    End,
}

/// A part of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Inodes with their records.
    pub inodes: Vec<(u64, Vec<u8>)>,
    /// Keys and values of extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directory, name, inode, and code of the kind.
    pub names: Vec<(u64, Vec<u8>, u64, u8)>,
    /// Bytes of a file.
    pub bytes: Option<FileBytes>,
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBytes {
    /// The file.
    pub ino: u64,
    /// Where they are.
    pub offset: u64,
    /// They.
    pub bytes: Vec<u8>,
    /// The file's record, with the last of them.
    pub record: Option<Vec<u8>>,
}

impl PieceCursor {
    /// The first piece of any volume.
    pub const BEGIN: Self = Self::Inodes(0);
}

fn first(volume: VolumeId) -> u64 {
    Ino::new(volume, 0).0
}

/// The key that is the first after all of the volume's.
fn beyond(volume: VolumeId) -> Vec<u8> {
    match volume.0.checked_add(1) {
        Some(next) => first(VolumeId(next)).to_be_bytes().to_vec(),
        None => vec![u8::MAX; 9],
    }
}

impl Store {
    /// Waits for what has begun in a closed volume, and brings all of it to the database, on stable storage.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if files in it are open or being cut, or `goes_on` says that it takes too long.
    pub fn freeze(&self, volume: VolumeId, goes_on: impl Fn() -> bool) -> Result<(), StoreError> {
        if !self.namespace.passages.drain(&goes_on) {
            return Err(StoreError::Busy);
        }
        let is_of = |ino: u64| Ino(ino).volume() == volume;
        // In this order: a cut that begins is noted before its file is loose no more.
        let is_loose = self.namespace.loose().iter().any(|ino| is_of(*ino));
        let is_cut = self.namespace.cuts().keys().any(|ino| is_of(*ino));
        let mut is_open = false;
        self.namespace.inodes.each(|ino, inode: &Arc<Inode>| is_open |= is_of(*ino) && inode.refs.load(Relaxed) > 0);
        if is_cut || is_open || is_loose {
            return Err(StoreError::Busy);
        }
        for (ino, _) in self.db.dirty_records()? {
            if is_of(ino) {
                let inode = self.namespace.inode(ino)?;
                // The bytes of a spread file stay where they are.
                if inode.has(SPREAD) { self.flush_inode(&inode)? } else { self.fsync(Ino(ino), false)? }
            }
        }
        self.sync()
    }

    /// A piece of a frozen volume, and where the next one begins.
    pub fn piece(&self, volume: VolumeId, cursor: &PieceCursor) -> Result<(Piece, PieceCursor), StoreError> {
        let (mut piece, mut len) = (Piece::default(), 0);
        let mut fits = |more: usize| {
            len += more + 32;
            len <= PIECE_BYTES_MAX || len == more + 32
        };
        let next = match cursor {
            PieceCursor::Inodes(after) => {
                let mut is_last = true;
                self.db.raw_records(
                    &after.saturating_add(1).max(first(volume)).to_be_bytes(),
                    &beyond(volume),
                    |ino, record| {
                        if !fits(record.len()) {
                            is_last = false;
                            return false;
                        }
                        piece.inodes.push((ino, record.to_vec()));
                        true
                    },
                )?;
                let last = piece.inodes.last().map_or(*after, |(ino, _)| *ino);
                if is_last {
                    PieceCursor::Xattrs(first(volume).to_be_bytes().to_vec())
                } else {
                    PieceCursor::Inodes(last)
                }
            }
            PieceCursor::Xattrs(from) => {
                let mut next = PieceCursor::Names(first(volume).to_be_bytes().to_vec());
                self.db.raw_xattrs(from, &beyond(volume), |key, value| {
                    if !fits(key.len() + value.len()) {
                        next = PieceCursor::Xattrs(key.to_vec());
                        return false;
                    }
                    piece.xattrs.push((key.to_vec(), value.to_vec()));
                    true
                })?;
                next
            }
            PieceCursor::Names(from) => {
                let mut next = PieceCursor::Bytes(first(volume), 0);
                self.db.raw_names(from, &beyond(volume), |key, dir, name, entry| {
                    if !fits(key.len() + 16) {
                        next = PieceCursor::Names(key.to_vec());
                        return false;
                    }
                    piece.names.push((dir, name.to_vec(), entry.ino, entry.kind.code()));
                    true
                })?;
                next
            }
            PieceCursor::Bytes(ino, offset) => return self.bytes_of(volume, *ino, *offset),
            PieceCursor::End => PieceCursor::End,
        };
        Ok((piece, next))
    }

    /// Bytes of the first file of `volume` from `ino` on that has any behind `offset`.
    fn bytes_of(&self, volume: VolumeId, ino: u64, offset: u64) -> Result<(Piece, PieceCursor), StoreError> {
        let mut found = None;
        self.db.raw_records(&ino.to_be_bytes(), &beyond(volume), |at, bytes| {
            let record = Record::decode(bytes);
            let has_bytes = record.as_ref().is_some_and(|record| {
                matches!(record.body, Body::Regular(_)) && record.spread.is_none() && record.size > 0
            });
            if has_bytes {
                found = Some((at, bytes.to_vec()));
            }
            !has_bytes
        })?;
        let Some((at, record)) = found else { return Ok((Piece::default(), PieceCursor::End)) };
        let offset = if at == ino { offset } else { 0 };
        let last = |offset| {
            let bytes = FileBytes { ino: at, offset, bytes: Vec::new(), record: Some(record.clone()) };
            (Piece { bytes: Some(bytes), ..Piece::default() }, PieceCursor::Bytes(at + 1, 0))
        };
        let from = match self.seek(Ino(at), offset, Extent::Data) {
            Ok(from) => from,
            Err(StoreError::NoDevice) => return Ok(last(offset)),
            // The host does not know holes.
            Err(StoreError::NotSupported) => offset,
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; PIECE_BYTES_MAX];
        let len = self.read(Ino(at), from, &mut bytes[..])?;
        bytes.truncate(len);
        if len == 0 {
            return Ok(last(from));
        }
        let end = from + len as u64;
        let is_last = Record::decode(&record).is_some_and(|record| end >= record.size);
        let (record, next) =
            if is_last { (Some(record), PieceCursor::Bytes(at + 1, 0)) } else { (None, PieceCursor::Bytes(at, end)) };
        let piece = Piece { bytes: Some(FileBytes { ino: at, offset: from, bytes, record }), ..Piece::default() };
        Ok((piece, next))
    }

    /// Takes in a piece of a volume that comes. One that was taken in before does no harm.
    pub fn take_piece(&self, volume: VolumeId, piece: &Piece, now: Timestamp) -> Result<(), StoreError> {
        let is_of = |ino: u64| Ino(ino).volume() == volume;
        let is_foreign = piece.inodes.iter().any(|(ino, _)| !is_of(*ino))
            || piece.names.iter().any(|(dir, _, ino, _)| !is_of(*dir) || !is_of(*ino))
            || piece.xattrs.iter().any(|(key, _)| key.first_chunk().is_none_or(|ino| !is_of(u64::from_be_bytes(*ino))))
            || piece.bytes.as_ref().is_some_and(|bytes| !is_of(bytes.ino));
        if is_foreign {
            return Err(StoreError::Invalid);
        }
        let is_spread = |bytes: &[u8]| Record::decode(bytes).is_some_and(|record| record.spread.is_some());
        if piece.inodes.iter().any(|(_, bytes)| is_spread(bytes)) && !self.namespace.has_loose.load(Relaxed) {
            let mut change = self.db.change();
            change.put_loose();
            change.commit()?;
            self.namespace.has_loose.store(true, Relaxed);
        }
        let namespace = self.namespace.own();
        let mut edit = self.namespace.edit();
        let mut spread = Vec::new();
        for (ino, bytes) in &piece.inodes {
            if *ino != root_of(volume).0 && matches!(self.namespace.load(*ino), Err(StoreError::Stale)) {
                let record = Record::decode(bytes).ok_or(StoreError::Damaged(Ino(*ino)))?;
                spread.extend(record.spread.is_some().then_some(*ino));
                edit.create(*ino, self.namespace.arriving(*ino, record));
            }
        }
        for (dir, name, ino, kind) in &piece.names {
            let kind = FileKind::from_code(*kind).ok_or(StoreError::Damaged(Ino(*ino)))?;
            edit.name_at(*dir, name, Some(Entry { ino: *ino, kind }));
        }
        for (key, value) in &piece.xattrs {
            let (ino, name) = key.split_first_chunk().ok_or(StoreError::Invalid)?;
            edit.raw_xattr(u64::from_be_bytes(*ino), name, value);
        }
        let ReclaimList(_) = edit.commit()?;
        for ino in spread {
            self.namespace.load(ino)?.set(LOOSE);
        }
        drop(namespace);
        match &piece.bytes {
            Some(bytes) => self.take_bytes(bytes, now),
            None => Ok(()),
        }
    }

    fn take_bytes(&self, part: &FileBytes, now: Timestamp) -> Result<(), StoreError> {
        let ino = Ino(part.ino);
        let mut done = 0;
        while done < part.bytes.len() {
            match self.write(ino, part.offset + done as u64, &part.bytes[done..], now)? {
                0 => return Err(StoreError::NoSpace),
                written => done += written,
            }
        }
        if !part.bytes.is_empty() {
            let mut read = vec![0; part.bytes.len()];
            let len = self.read(ino, part.offset, &mut read[..])?;
            if len < read.len() || read != part.bytes {
                return Err(StoreError::Damaged(ino));
            }
        }
        let Some(record) = &part.record else { return Ok(()) };
        let wanted = Record::decode(record).ok_or(StoreError::Damaged(ino))?;
        self.set_size(ino, wanted.size, now)?;
        self.fsync(ino, false)?;
        // What writing has changed.
        let inode = self.namespace.inode(ino.0)?;
        let _namespace = self.namespace.own();
        let mut edit = self.namespace.edit();
        let record = edit.record(&inode);
        (record.mode, record.atime, record.mtime, record.ctime) =
            (wanted.mode, wanted.atime, wanted.mtime, wanted.ctime);
        let ReclaimList(_) = edit.commit()?;
        Ok(())
    }

    /// All pieces are here: so is the volume, on stable storage.
    pub fn finish_volume(&self, volume: VolumeId, record: &[u8]) -> Result<(), StoreError> {
        let ino = root_of(volume).0;
        let namespace = self.namespace.own();
        if matches!(self.namespace.load(ino), Err(StoreError::Stale)) {
            let record = Record::decode(record).ok_or(StoreError::Damaged(Ino(ino)))?;
            let Body::Directory { name, .. } = record.body.clone() else { return Err(StoreError::NotDirectory) };
            let root = self.namespace.load(Ino::ROOT.0)?;
            let mut edit = self.namespace.edit();
            edit.create(ino, record);
            if self.namespace.look_up(&root, &name)?.is_none() {
                edit.record(&root).nlink += 1;
            }
            edit.enter(&root, &name, ino, FileKind::Directory);
            let ReclaimList(_) = edit.commit()?;
        }
        drop(namespace);
        self.sync()
    }

    /// Removes all of a volume that is here, whole or in part, from stable storage.
    pub fn drop_volume(&self, volume: VolumeId) -> Result<(), StoreError> {
        let ino = root_of(volume).0;
        {
            let _namespace = self.namespace.own();
            match self.namespace.load(ino) {
                Ok(inode) => {
                    let root = self.namespace.load(Ino::ROOT.0)?;
                    let mut edit = self.namespace.edit();
                    // Where users see the root, the name of one that another server has by now stays without an inode.
                    let is_others = |name: &[u8]| {
                        self.namespace
                            .whereabouts()
                            .is_some_and(|known| known.is_root() && known.names.get(name) == Some(&volume))
                    };
                    if let Body::Directory { name, .. } = inode.record().body.clone()
                        && !is_others(&name)
                        && self.namespace.look_up(&root, &name)?.is_some_and(|entry| entry.ino == ino)
                    {
                        edit.leave(&root, &name);
                        edit.record(&root).nlink -= 1;
                    }
                    edit.move_away(&inode);
                    let ReclaimList(_) = edit.commit()?;
                    self.namespace.found_here.forget();
                }
                Err(StoreError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        while self.drop_inodes(volume)? + self.namespace.drop_names(volume)? > 0 {}
        // Those of its directory come before that does.
        let mut change = self.db.change();
        change.remove_xattrs(ino)?;
        change.commit()?;
        self.sync()?;
        self.objects().remove_unused().map(drop)
    }

    fn drop_inodes(&self, volume: VolumeId) -> Result<usize, StoreError> {
        let namespace = self.namespace.own();
        let mut numbers = Vec::new();
        self.db.raw_records(&first(volume).to_be_bytes(), &beyond(volume), |ino, _| {
            numbers.push(ino);
            numbers.len() < DROPPED_AT_ONCE
        })?;
        let mut edit = self.namespace.edit();
        for ino in &numbers {
            edit.move_away(&self.namespace.load(*ino)?);
        }
        let reclaimed = edit.commit()?;
        drop(namespace);
        self.reclaim_all(reclaimed)?;
        Ok(numbers.len())
    }
}

impl Namespace {
    /// Counts an operation until it ends, so that [`Store::freeze`] can wait for it. To be called before it is checked where
    /// things are.
    pub fn passage(&self) -> Option<Passage<'_>> {
        self.is_in_cluster().then(|| self.passages.begin())
    }

    /// Waits for what began before; false if `goes_on` says that it takes too long.
    pub fn drain(&self, goes_on: impl Fn() -> bool) -> bool {
        self.passages.drain(goes_on)
    }

    /// The lowest number that this store may give to an inode in the future, without the volume.
    pub fn next_number(&self) -> u64 {
        self.share().reserved
    }

    /// Gives out no number below `number` from now on, also after a stop.
    pub fn skip_numbers(&self, number: u64) -> Result<(), StoreError> {
        let mut numbers = self.own();
        if numbers.next < number {
            // The next one is reserved then, durably, as ever.
            (numbers.next, numbers.reserved) = (number, number);
        }
        self.new_number(&mut numbers, VolumeId::ROOT).map(drop)
    }

    /// The record of the directory of a volume that is here.
    pub fn volume_record(&self, volume: VolumeId) -> Result<Vec<u8>, StoreError> {
        Ok(self.db.record(root_of(volume).0)?.ok_or(StoreError::Stale)?.encode())
    }

    /// A record that came, as it is before the bytes of the file have come.
    fn arriving(&self, ino: u64, mut record: Record) -> Record {
        if matches!(record.body, Body::Regular(_)) && record.spread.is_none() {
            record.body = Body::Regular(self.layouts.of_new_file());
            record.objects = ObjectsId { number: ino, generation: self.generation };
            (record.size, record.blocks) = (0, 0);
            (record.has_objects, record.has_sums, record.created) = (false, false, [].into());
        }
        record
    }

    fn drop_names(&self, volume: VolumeId) -> Result<usize, StoreError> {
        let _namespace = self.own();
        let mut names = Vec::new();
        self.db.raw_names(&first(volume).to_be_bytes(), &beyond(volume), |_, dir, name, _| {
            names.push((dir, name.to_vec()));
            names.len() < DROPPED_AT_ONCE
        })?;
        let mut edit = self.edit();
        for (dir, name) in &names {
            edit.name_at(*dir, name, None);
        }
        let ReclaimList(_) = edit.commit()?;
        Ok(names.len())
    }
}
#[cfg(test)]
mod tests;
