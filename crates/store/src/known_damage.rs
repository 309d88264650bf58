//! Blocks that are known to be damaged: a read, or the scrub, found other bytes than were written.
//!
//! Of a file at rest its checksums say so each time. Those of a suspect file do not count ([`crate::settle`]): its blocks are
//! believed, and a damaged one would be believed with them, if the file was written elsewhere before an unclean stop. So what
//! was found is kept in the database, on stable storage: for each block a *note*, which is the checksum of the bytes that
//! were found there, in the keyspace `damaged`.
//!
//! # The rule
//! A block of a suspect file that has the bytes of its note is damaged, unless its own checksum says that they were written. It
//! gets a checksum with which it does not agree, if it has none, so that it stays an error when the file is at rest. A block
//! with other bytes than those of its note was written since, and is believed as the others are.
//!
//! # Why the bytes are kept, and not only the position
//! Whoever overwrites a block need say nothing before, and no order of a write, its note and a stop takes good bytes for
//! damage, or damage for good bytes. What is left to do:
//! * A program may write just the bytes that were found, or have a hole there (most damage is zeros). Then the note goes, on
//!   stable storage, before the program hears that it has written: whichever of the two storage has, it is what was written. Who
//!   cuts a file has put that on stable storage before.
//! * The note of a block that was overwritten with other bytes is *void*, and goes when these are on stable storage, that is when
//!   the file comes to rest: a power cut may bring the old ones back until then.
//! * The notes of objects go with these.
//!
//! # What it does not do
//! More than [`NOTES_MAX`] blocks of a store are not kept; the log says so. A device that gives other wrong bytes each time is known by
//! the last. Checksums that cannot be read as a whole have no note. Damage that nobody has met before the stop is believed.

use crate::checksum::{BLOCK_BYTES, ObjectId, Summer};
use crate::database::{Database, ObjectTables};
use crate::object::{ObjectPlace, ObjectsId};
use crate::{ObjectStore, StoreError};
use isonomia_units::TargetId;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Notes that a store keeps at most: those of 1 GiB.
pub(crate) const NOTES_MAX: usize = 1 << 18;

/// A block of an object.
type Key = (ObjectPlace, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// Of the bytes that were found.
    sum: u64,
    /// Other bytes were written since.
    is_void: bool,
}

/// All notes of a store, as the database has them.
#[derive(Default)]
pub(crate) struct KnownDamage {
    notes: RwLock<BTreeMap<Key, Note>>,
    /// Locked while the database is changed, so that both have the same; those who look need not wait for that.
    changing: Mutex<()>,
    /// As many as there are: mostly there is nothing to look for.
    count: AtomicUsize,
    /// The log has it that a note could not be kept.
    is_told: AtomicBool,
}

/// Those of one object.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub all: &'a KnownDamage,
    /// Without it nothing is noted.
    pub db: Option<&'a ObjectTables>,
    pub place: ObjectPlace,
    /// Nothing survives a power cut anyway.
    pub is_volatile: bool,
}

impl KnownDamage {
    pub fn load(db: &Database) -> Result<Self, StoreError> {
        let mut notes = BTreeMap::new();
        db.each_damaged(|place, block, sum| {
            notes.insert((place, block), Note { sum, is_void: false });
        })?;
        let count = AtomicUsize::new(notes.len());
        Ok(Self { notes: RwLock::new(notes), count, ..Self::default() })
    }

    fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    fn with<T>(&self, look: impl FnOnce(&BTreeMap<Key, Note>) -> T) -> T {
        look(&self.notes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<Key, Note>) -> T) -> T {
        let mut notes = self.notes.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut notes);
        self.count.store(notes.len(), Release);
        changed
    }

    /// Forgets those of these objects, which are gone.
    pub fn forget_objects(&self, db: &ObjectTables, id: ObjectsId) {
        let place = |index, target| {
            let object = ObjectId { number: id.number, generation: id.generation, index };
            ObjectPlace { object, target: TargetId(target) }
        };
        self.remove(db, &((place(0, 0), 0)..=(place(u32::MAX, u16::MAX), u64::MAX)), |_, _| true);
    }

    /// The same of one.
    pub fn forget_object(&self, db: &ObjectTables, place: ObjectPlace) {
        self.remove(db, &((place, 0)..=(place, u64::MAX)), |_, _| true);
    }

    /// Removes those in `range` of which `which` says that they are to go; whether there were any.
    fn remove(&self, db: &ObjectTables, range: &RangeInclusive<Key>, which: impl Fn(u64, &Note) -> bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let _changing = self.begin_change();
        let old: Vec<Key> = self.with(|notes| {
            let old = notes.range(range.clone()).filter(|((_, block), note)| which(*block, note));
            old.map(|(key, _)| *key).collect()
        });
        if old.is_empty() {
            return false;
        }
        let mut change = db.change();
        old.iter().for_each(|(place, block)| change.remove_damaged(*place, *block));
        match change.commit() {
            Ok(()) => self.change(|notes| old.iter().for_each(|key| _ = notes.remove(key))),
            Err(error) => self.tell(&error.to_string()),
        }
        true
    }

    fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, reason: &str) {
        if !self.is_told.swap(true, Relaxed) {
            tracing::error!(
                reason,
                "which blocks are damaged cannot be kept: after an unclean stop they may be believed"
            );
        }
    }
}

impl Known<'_> {
    fn blocks(&self, first: u64, last: u64) -> RangeInclusive<Key> {
        (self.place, first)..=(self.place, last)
    }

    /// Which blocks have a note, of those from `first` to `last`.
    pub fn noted(&self, first: u64, last: u64) -> Vec<u64> {
        if self.all.is_empty() {
            return Vec::new();
        }
        self.all.with(|notes| notes.range(self.blocks(first, last)).map(|((_, block), _)| *block).collect())
    }

    /// The last block from `first` on of which nothing was found, or zeros, if there is one.
    pub fn last_lost(&self, first: u64) -> Option<u64> {
        let summer = Summer::new(self.place.object);
        let is_zeros = |block| self.has(block, summer.entry(block, &[0; BLOCK_BYTES]));
        self.noted(first, u64::MAX).into_iter().rfind(|block| is_zeros(*block))
    }

    /// Whether a block whose bytes have this sum has those of its note.
    pub fn has(&self, block: u64, sum: u64) -> bool {
        let key = (self.place, block);
        if self.all.is_empty() || !self.all.with(|notes| notes.contains_key(&key)) {
            return false;
        }
        self.all.change(|notes| {
            let Some(note) = notes.get_mut(&key) else { return false };
            note.is_void |= note.sum != sum;
            note.sum == sum
        })
    }

    /// A block was found damaged, with bytes that have this sum.
    pub fn note(&self, block: u64, sum: u64) {
        let Some(db) = self.db else { return };
        let key = (self.place, block);
        let note = Note { sum, is_void: false };
        if self.all.with(|notes| notes.get(&key) == Some(&note)) {
            return;
        }
        let _changing = self.all.begin_change();
        if self.all.with(|notes| notes.len() >= NOTES_MAX && !notes.contains_key(&key)) {
            return self.all.tell("there are too many");
        }
        let mut change = db.change();
        change.put_damaged(self.place, block, sum);
        match change.commit().and_then(|()| self.sync(db)) {
            Ok(()) => self.all.change(|notes| _ = notes.insert(key, note)),
            Err(error) => self.all.tell(&error.to_string()),
        }
    }

    fn sync(&self, db: &ObjectTables) -> Result<(), StoreError> {
        if self.is_volatile { Ok(()) } else { db.sync() }
    }

    /// Blocks from `first` on were written, and have these entries now.
    pub fn overwritten(&self, first: u64, entries: &[u64]) {
        if !self.all.is_empty() && !entries.is_empty() {
            let last = first + entries.len() as u64 - 1;
            self.written(first, last, |block| entries[(block - first) as usize]);
        }
    }

    /// Whether a block from `first` on that was overwritten is about to have the bytes once more that were found there, by these
    /// entries.
    pub fn comes_again(&self, first: u64, entries: &[u64]) -> bool {
        if self.all.is_empty() || entries.is_empty() {
            return false;
        }
        let last = first + entries.len() as u64 - 1;
        let is_so = |((_, block), note): (&Key, &Note)| note.is_void && note.sum == entries[(*block - first) as usize];
        self.all.with(|notes| notes.range(self.blocks(first, last)).any(is_so))
    }

    /// Blocks from `first` on were cut off.
    pub fn cut(&self, first: u64) {
        self.zeroed(first..u64::MAX);
    }

    /// These blocks are zeros, or a hole.
    pub fn zeroed(&self, blocks: Range<u64>) {
        if !self.all.is_empty() && !blocks.is_empty() {
            self.written(blocks.start, blocks.end - 1, |_| 0);
        }
    }

    fn written(&self, first: u64, last: u64, entry: impl Fn(u64) -> u64) {
        let Some(db) = self.db else { return };
        if self.noted(first, last).is_empty() {
            return;
        }
        let summer = Summer::new(self.place.object);
        let sum = |block| match entry(block) {
            0 => summer.entry(block, &[0; BLOCK_BYTES]),
            entry => entry,
        };
        self.all.change(|notes| {
            notes.range_mut(self.blocks(first, last)).for_each(|((_, block), note)| {
                note.is_void |= note.sum != sum(*block);
            });
        });
        let range = self.blocks(first, last);
        if self.all.remove(db, &range, |block, note| note.sum == sum(block))
            && let Err(error) = self.sync(db)
        {
            self.all.tell(&error.to_string());
        }
    }

    /// The object came to rest: what was written is on stable storage.
    pub fn settled(&self) {
        if let Some(db) = self.db {
            self.all.remove(db, &self.blocks(0, u64::MAX), |_, note| note.is_void);
        }
    }
}

impl ObjectStore {
    /// What is known of the blocks of an object.
    pub(crate) fn known_damage(&self, place: ObjectPlace) -> Known<'_> {
        Known { all: &self.protection.known, db: Some(&self.db), place, is_volatile: self.is_volatile() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{config, create, now};
    use crate::{Caller, Store};
    use isonomia_units::Ino;

    const BLOCK: usize = BLOCK_BYTES;

    /// A file of two blocks, the second of which was found to be damaged.
    fn with_damage(store: &Store, name: &str) -> Ino {
        let ino = create(store, name);
        store.write(ino, 0, &[7; 2 * BLOCK], now()).unwrap();
        let inode = store.namespace.inode(ino.0).unwrap();
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let object = std::fs::File::options().write(true).open(store.objects.targets.path(place)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&object, &[5; BLOCK], BLOCK as u64).unwrap();
        assert!(store.read(ino, 0, &mut [0; 2 * BLOCK]).is_err());
        ino
    }

    fn notes(store: &Store) -> (usize, usize) {
        let mut kept = 0;
        store.db.each_damaged(|_, _, _| kept += 1).unwrap();
        (store.objects.protection.known.count.load(Acquire), kept)
    }

    #[test]
    fn what_is_known_goes_with_the_file_and_when_it_is_overwritten_and_rests() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let store = Store::open(&config).unwrap();
        let names = ["removed", "overwritten", "removed at a start"];
        let inos = names.map(|name| with_damage(&store, name));
        assert_eq!(notes(&store), (3, 3));
        let unlink = |store: &Store, index: usize| {
            store.release(inos[index]).unwrap();
            store.unlink(&Caller::ROOT, Ino::ROOT, names[index].as_bytes(), now()).unwrap();
        };
        unlink(&store, 0);
        store.objects().remove_unused().unwrap();
        assert_eq!(notes(&store), (2, 2));
        store.write(inos[1], BLOCK as u64, &[8; BLOCK], now()).unwrap();
        assert_eq!(notes(&store), (2, 2), "a power cut may bring it back");
        (0..2).for_each(|_| store.settle().unwrap());
        assert_eq!(notes(&store), (1, 1));
        drop(store);
        let mut store = Store::open(&config).unwrap();
        assert_eq!(notes(&store), (1, 1));
        // As on a disk, where what is removed waits for the database to be there.
        store.objects.removal.is_volatile = false;
        store.unlink(&Caller::ROOT, Ino::ROOT, names[2].as_bytes(), now()).unwrap();
        drop(store);
        assert_eq!(notes(&Store::open(&config).unwrap()), (0, 0));
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&config(dir.path())).unwrap();
        let ino = with_damage(&store, "file");
        let inode = store.namespace.inode(ino.0).unwrap();
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let known = store.objects.known_damage(place);
        known.all.change(|notes| {
            notes.extend((2..NOTES_MAX as u64).map(|block| ((place, block), Note { sum: 1, is_void: false })));
        });
        known.note(0, 2);
        known.note(u64::MAX, 2);
        assert_eq!((known.has(0, 2), known.has(u64::MAX, 2)), (true, false));
        // One that is there may change.
        known.note(1, 3);
        assert!(known.has(1, 3));
    }

    #[test]
    fn no_bytes_agree_with_what_stands_for_others() {
        for sum in [1, 2, 3, 0x1234_5678, u64::MAX] {
            assert!(![0, sum].contains(&Summer::other_than(sum)), "{sum}");
        }
    }
}
