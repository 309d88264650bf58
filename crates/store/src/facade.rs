//! What servers ask of one of a store's two parts alone: each of these is the method of that part that is called like it, and does
//! what is said there.

use crate::data::Cached;
use crate::detached::{ObjectStat, ObjectWritten};
use crate::object::ObjectPlace;
use crate::volumes::Whereabouts;
use crate::{Extent, Store, StoreError};
use isonomia_memory::{Sink, Source};
use isonomia_proto::control::ChecksumStatus;
use isonomia_proto::space::{self, SpaceChange};
use isonomia_units::{Ino, VolumeId};
use std::ops::Range;
use std::sync::Arc;

/// Without a name or an inode.
impl Store {
    /// [`crate::ObjectStore::read_object`].
    pub fn read_object<'b>(
        &self,
        place: ObjectPlace,
        offset: u64,
        sink: impl Into<Sink<'b>>,
    ) -> Result<usize, StoreError> {
        self.objects.read_object(place, offset, sink)
    }

    /// [`crate::ObjectStore::read_object_cached`].
    pub fn read_object_cached<'b>(
        &self,
        place: ObjectPlace,
        offset: u64,
        sink: impl Into<Sink<'b>>,
    ) -> Result<Cached, StoreError> {
        self.objects.read_object_cached(place, offset, sink)
    }

    /// [`crate::ObjectStore::write_object`].
    pub fn write_object<'b>(
        &self,
        place: ObjectPlace,
        offset: u64,
        source: impl Into<Source<'b>>,
    ) -> Result<ObjectWritten, StoreError> {
        self.objects.write_object(place, offset, source)
    }

    /// [`crate::ObjectStore::write_object_after`].
    pub fn write_object_after<'b>(
        &self,
        known: u64,
        place: ObjectPlace,
        offset: u64,
        source: impl Into<Source<'b>>,
    ) -> Result<ObjectWritten, StoreError> {
        self.objects.write_object_after(known, place, offset, source)
    }

    /// [`crate::ObjectStore::sync_object`].
    pub fn sync_object(&self, place: ObjectPlace) -> Result<(), StoreError> {
        self.objects.sync_object(place)
    }

    /// [`crate::ObjectStore::stat_object`].
    pub fn stat_object(&self, place: ObjectPlace) -> Result<ObjectStat, StoreError> {
        self.objects.stat_object(place)
    }

    /// [`crate::ObjectStore::seek_object`].
    pub fn seek_object(&self, place: ObjectPlace, offset: u64, what: space::Extent) -> Result<u64, StoreError> {
        self.objects.seek_object(place, offset, what)
    }

    /// [`crate::ObjectStore::change_object_space`].
    pub fn change_object_space(
        &self,
        place: ObjectPlace,
        offset: u64,
        len: u64,
        how: SpaceChange,
    ) -> Result<u64, StoreError> {
        self.objects.change_object_space(place, offset, len, how)
    }

    /// [`crate::ObjectStore::cut_object`].
    pub fn cut_object(&self, place: ObjectPlace, number: u64, size_bytes: u64) -> Result<u64, StoreError> {
        self.objects.cut_object(place, number, size_bytes)
    }

    /// [`crate::ObjectStore::object_extent`].
    pub fn object_extent(&self, place: ObjectPlace, ranges: &[Range<u64>]) -> Result<Option<Extent>, StoreError> {
        self.objects.object_extent(place, ranges)
    }

    /// [`crate::ObjectStore::detached_objects`].
    pub fn detached_objects(&self, after: Option<ObjectPlace>, max: usize) -> Result<Vec<ObjectPlace>, StoreError> {
        self.objects.detached_objects(after, max)
    }

    /// [`crate::ObjectStore::remove_detached`].
    pub fn remove_detached(
        &self,
        places: &[ObjectPlace],
        capabilities_until_secs: u64,
        now_secs: u64,
    ) -> Result<(), StoreError> {
        self.objects.remove_detached(places, capabilities_until_secs, now_secs)
    }

    /// [`crate::ObjectStore::forget_removed`].
    pub fn forget_removed(&self, now_secs: u64) -> Result<usize, StoreError> {
        self.objects.forget_removed(now_secs)
    }

    /// [`crate::ObjectStore::remove_unused`].
    pub fn remove_unused(&self) -> Result<usize, StoreError> {
        self.objects.remove_unused()
    }

    /// [`crate::ObjectStore::checksum_status`].
    pub fn checksum_status(&self) -> ChecksumStatus {
        self.objects.checksum_status()
    }

    /// [`crate::ObjectStore::is_volatile`].
    pub fn is_volatile(&self) -> bool {
        self.objects.is_volatile()
    }
}

/// Without an object.
impl Store {
    /// [`crate::Namespace::whereabouts`].
    pub fn whereabouts(&self) -> Option<Arc<Whereabouts>> {
        self.namespace.whereabouts()
    }

    /// [`crate::Namespace::check_is_here`].
    pub fn check_is_here(&self, ino: Ino) -> Result<(), StoreError> {
        self.namespace.check_is_here(ino)
    }

    /// [`crate::Namespace::is_closed`].
    pub fn is_closed(&self, volume: VolumeId) -> bool {
        self.namespace.is_closed(volume)
    }

    /// [`crate::Namespace::has_volume`].
    pub fn has_volume(&self, volume: VolumeId) -> Result<bool, StoreError> {
        self.namespace.has_volume(volume)
    }

    /// [`crate::Namespace::check_root_is_here`].
    pub fn check_root_is_here(&self) -> Result<(), StoreError> {
        self.namespace.check_root_is_here()
    }

    /// [`crate::Namespace::check_root_is_readable`].
    pub fn check_root_is_readable(&self) -> Result<(), StoreError> {
        self.namespace.check_root_is_readable()
    }
}
