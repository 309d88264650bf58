//! What the database keeps of objects besides the records of files: those whose checksums are not settled, those that are to
//! be removed or cut, and detached ones.

use super::{Change, Database};
use crate::StoreError;
use crate::change_counts::Committed;
use crate::checksum::ObjectId;
use crate::content::Owner;
use crate::detached::DetachedRecord;
use crate::engine::Table;
use crate::object::{ObjectPlace, ObjectsId};
use isonomia_proto::fs::Layout;
use isonomia_units::{Ino, TargetId};
use std::sync::Arc;

const PLACE_LEN: usize = 16;

/// Objects of one file, and how it was laid out.
pub(crate) type Orphan = (ObjectsId, Layout);

impl Database {
    /// Objects that are still to be removed.
    pub fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        let mut orphans = Vec::new();
        self.engine.scan(Table::Orphans, .., |key, value| {
            orphans.push(decode_orphan(key, value)?);
            Ok(true)
        })?;
        Ok(orphans)
    }

    /// Calls `each` with the objects that other servers are still to remove, those behind `after` in order, until it says
    /// that it is enough.
    pub fn spread_orphans(
        &self,
        after: Option<ObjectsId>,
        mut each: impl FnMut(Orphan) -> bool,
    ) -> Result<(), StoreError> {
        let first = after.map(|id| [&orphan_key(id)[..], &[0]].concat()).unwrap_or_default();
        self.engine.scan(Table::SpreadOrphans, first.., |key, value| Ok(each(decode_orphan(key, value)?)))
    }

    /// Spread files whose objects are still to be cut, with the number of the cut.
    pub fn cuts(&self) -> Result<Vec<(u64, u64)>, StoreError> {
        let mut cuts = Vec::new();
        self.engine.scan(Table::Cuts, .., |key, value| {
            let ino = super::decode_ino(key)?;
            cuts.push((ino, decode_number(value, ino)?));
            Ok(true)
        })?;
        Ok(cuts)
    }

    pub fn detached(&self, place: ObjectPlace) -> Result<Option<DetachedRecord>, StoreError> {
        let Some(bytes) = self.engine.get(Table::Detached, place_key(place))? else { return Ok(None) };
        DetachedRecord::decode(&bytes).map(Some).ok_or(StoreError::Damaged(Ino(place.object.number)))
    }

    /// Calls `each` with the detached objects behind `after`, in order, and their records if they can be read, until it says
    /// that it is enough.
    pub fn detached_after(
        &self,
        after: Option<ObjectPlace>,
        mut each: impl FnMut(ObjectPlace, Option<DetachedRecord>) -> bool,
    ) -> Result<(), StoreError> {
        let first = after.map(|place| [&place_key(place)[..], &[0]].concat()).unwrap_or_default();
        self.engine
            .scan(Table::Detached, first.., |key, value| Ok(each(decode_place(key)?, DetachedRecord::decode(value))))
    }

    /// Calls `each` with every block that is known to be damaged, and the sum of what was found there. What cannot be read of that
    /// is told in the log.
    pub fn each_damaged(&self, mut each: impl FnMut(ObjectPlace, u64, u64)) -> Result<(), StoreError> {
        self.engine.scan(Table::Damaged, .., |key, value| {
            let read =
                |(place, block): (ObjectPlace, u64)| Ok((place, block, decode_number(value, place.object.number)?));
            match decode_block(key).and_then(read) {
                Ok((place, block, sum)) => each(place, block, sum),
                Err(error) => tracing::error!(%error, "what is known of a damaged block cannot be read"),
            }
            Ok(true)
        })
    }

    /// Whether any block of an object is known to be damaged.
    pub fn has_damage(&self, place: ObjectPlace) -> Result<bool, StoreError> {
        let mut has_damage = false;
        self.engine.scan(Table::Damaged, place_key(place).to_vec().., |key, _| {
            has_damage = key.starts_with(&place_key(place));
            Ok(false)
        })?;
        Ok(has_damage)
    }
}

impl Change<'_> {
    pub fn put_unsettled(&mut self, owner: Owner) {
        self.put(Table::Unsettled, owner_key(owner), Vec::new());
    }

    pub fn remove_unsettled(&mut self, owner: Owner) {
        self.remove(Table::Unsettled, owner_key(owner));
    }

    /// Those of an object's blocks from `first` on.
    pub fn remove_damaged_from(&mut self, place: ObjectPlace, first: u64) -> Result<(), StoreError> {
        let database = self.database;
        database.engine.scan(Table::Damaged, block_key(place, first).., |key, _| {
            let is_of_it = key.starts_with(&place_key(place));
            if is_of_it {
                self.remove(Table::Damaged, key);
            }
            Ok(is_of_it)
        })
    }

    /// Those of all blocks of some objects.
    pub fn remove_all_damaged(&mut self, id: ObjectsId) -> Result<(), StoreError> {
        let database = self.database;
        database.engine.scan(Table::Damaged, orphan_key(id).to_vec().., |key, _| {
            let is_of_them = key.starts_with(&orphan_key(id));
            if is_of_them {
                self.remove(Table::Damaged, key);
            }
            Ok(is_of_them)
        })
    }

    pub fn put_orphan(&mut self, id: ObjectsId, layout: &Layout) {
        self.put(Table::Orphans, orphan_key(id), encoded(layout));
    }

    pub fn remove_orphan(&mut self, id: ObjectsId) {
        self.remove(Table::Orphans, orphan_key(id));
    }

    pub fn put_spread_orphan(&mut self, id: ObjectsId, layout: &Layout) {
        self.put(Table::SpreadOrphans, orphan_key(id), encoded(layout));
    }

    pub fn remove_spread_orphan(&mut self, id: ObjectsId) {
        self.remove(Table::SpreadOrphans, orphan_key(id));
    }

    pub fn put_cut(&mut self, ino: u64, number: u64) {
        self.put(Table::Cuts, ino.to_be_bytes(), number.to_le_bytes());
    }

    pub fn remove_cut(&mut self, ino: u64) {
        self.remove(Table::Cuts, ino.to_be_bytes());
    }
}

/// What the database keeps of objects, for whoever is to know of nothing else in it.
pub(crate) struct ObjectTables(Arc<Database>);

/// Changes of that which happen together or not at all.
pub(crate) struct ObjectChange<'a>(Change<'a>);

impl ObjectTables {
    pub fn of(database: Arc<Database>) -> Self {
        Self(database)
    }

    pub fn change(&self) -> ObjectChange<'_> {
        ObjectChange(self.0.change())
    }

    /// As [`Database::sync`].
    pub fn sync(&self) -> Result<(), StoreError> {
        self.0.sync()
    }

    /// As [`Database::committed`].
    pub fn committed(&self) -> Committed {
        self.0.committed()
    }

    /// As [`Database::needs_sync`].
    pub fn needs_sync(&self, committed: Committed) -> bool {
        self.0.needs_sync(committed)
    }

    /// As [`Database::sync_since`].
    pub fn sync_since(&self, committed: Committed) -> Result<(), StoreError> {
        self.0.sync_since(committed)
    }

    /// As [`Database::forget_verifier`].
    pub fn forget_verifier(&self) {
        self.0.forget_verifier();
    }

    pub fn detached(&self, place: ObjectPlace) -> Result<Option<DetachedRecord>, StoreError> {
        self.0.detached(place)
    }

    /// As [`Database::detached_after`].
    pub fn detached_after(
        &self,
        after: Option<ObjectPlace>,
        each: impl FnMut(ObjectPlace, Option<DetachedRecord>) -> bool,
    ) -> Result<(), StoreError> {
        self.0.detached_after(after, each)
    }

    /// Until when a detached object that was removed is not to come back, in seconds since the epoch.
    pub fn removed_until(&self, place: ObjectPlace) -> Result<Option<u64>, StoreError> {
        let Some(bytes) = self.0.engine.get(Table::Removed, place_key(place))? else { return Ok(None) };
        decode_number(&bytes, place.object.number).map(Some)
    }

    /// Calls `each` with every detached object that is not to come back, and until when, until it says that it is enough.
    pub fn each_removed(&self, mut each: impl FnMut(ObjectPlace, u64) -> bool) -> Result<(), StoreError> {
        self.0.engine.scan(Table::Removed, .., |key, value| {
            let place = decode_place(key)?;
            Ok(each(place, decode_number(value, place.object.number)?))
        })
    }
}

impl ObjectChange<'_> {
    pub fn put_unsettled(&mut self, owner: Owner) {
        self.0.put_unsettled(owner);
    }

    pub fn remove_unsettled(&mut self, owner: Owner) {
        self.0.remove_unsettled(owner);
    }

    pub fn put_damaged(&mut self, place: ObjectPlace, block: u64, sum: u64) {
        self.0.put(Table::Damaged, block_key(place, block), sum.to_le_bytes());
    }

    pub fn remove_damaged(&mut self, place: ObjectPlace, block: u64) {
        self.0.remove(Table::Damaged, block_key(place, block));
    }

    pub fn remove_orphan(&mut self, id: ObjectsId) {
        self.0.remove_orphan(id);
    }

    pub fn put_detached(&mut self, place: ObjectPlace, record: &DetachedRecord) {
        self.0.put(Table::Detached, place_key(place), record.encode());
    }

    pub fn remove_detached(&mut self, place: ObjectPlace) {
        self.0.remove(Table::Detached, place_key(place));
    }

    pub fn put_removed(&mut self, place: ObjectPlace, until_secs: u64) {
        self.0.put(Table::Removed, place_key(place), until_secs.to_le_bytes());
    }

    pub fn remove_removed(&mut self, place: ObjectPlace) {
        self.0.remove(Table::Removed, place_key(place));
    }

    /// All of it, or an error and none of it.
    pub fn commit(self) -> Result<(), StoreError> {
        self.0.commit()
    }
}

fn encoded(layout: &Layout) -> Vec<u8> {
    let mut bytes = Vec::new();
    layout.encode(&mut bytes);
    bytes
}

fn orphan_key(id: ObjectsId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.number.to_be_bytes());
    key[8..].copy_from_slice(&id.generation.to_be_bytes());
    key
}

fn decode_orphan(key: &[u8], value: &[u8]) -> Result<Orphan, StoreError> {
    let number = super::decode_ino(key)?;
    let damaged = || StoreError::Damaged(Ino(number));
    let generation = key.get(8..).and_then(|rest| rest.try_into().ok()).map(u32::from_be_bytes);
    let id = ObjectsId { number, generation: generation.ok_or_else(damaged)? };
    Ok((id, Layout::decode(value).map_err(|_| damaged())?))
}

fn decode_number(value: &[u8], about: u64) -> Result<u64, StoreError> {
    value.try_into().map(u64::from_le_bytes).map_err(|_| StoreError::Damaged(Ino(about)))
}

fn place_key(place: ObjectPlace) -> [u8; PLACE_LEN] {
    let mut key = [0; PLACE_LEN];
    key[..8].copy_from_slice(&place.object.number.to_be_bytes());
    key[8..12].copy_from_slice(&place.object.generation.to_be_bytes());
    key[12..14].copy_from_slice(&(place.object.index as u16).to_be_bytes());
    key[14..].copy_from_slice(&place.target.0.to_be_bytes());
    key
}

fn decode_place(key: &[u8]) -> Result<ObjectPlace, StoreError> {
    let number = super::decode_ino(key)?;
    let key: &[u8; PLACE_LEN] = key.try_into().map_err(|_| StoreError::Damaged(Ino(number)))?;
    let u16_at = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
    let generation = u32::from_be_bytes([key[8], key[9], key[10], key[11]]);
    let object = ObjectId { number, generation, index: u16_at(12).into() };
    Ok(ObjectPlace { object, target: TargetId(u16_at(14)) })
}

fn block_key(place: ObjectPlace, block: u64) -> Vec<u8> {
    [&place_key(place)[..], &block.to_be_bytes()].concat()
}

fn decode_block(key: &[u8]) -> Result<(ObjectPlace, u64), StoreError> {
    let number = super::decode_ino(key)?;
    let (place, block) = key.split_at_checked(PLACE_LEN).ok_or(StoreError::Damaged(Ino(number)))?;
    let block = block.try_into().map_err(|_| StoreError::Damaged(Ino(number)))?;
    Ok((decode_place(place)?, u64::from_be_bytes(block)))
}

fn owner_key(owner: Owner) -> Vec<u8> {
    match owner {
        Owner::File(ino) => ino.to_be_bytes().to_vec(),
        Owner::Detached(place) => place_key(place).to_vec(),
    }
}

pub(super) fn decode_owner(key: &[u8]) -> Result<Owner, StoreError> {
    if key.len() == PLACE_LEN {
        decode_place(key).map(Owner::Detached)
    } else {
        super::decode_ino(key).map(Owner::File)
    }
}
