//! What servers ask of one of a store's two parts alone: each of these is the method of that part that is called like it, and does
//! what is said there.

use crate::{
    Cached, Caller, ClusterRecord, Extent, NewFile, ObjectPlace, ObjectStat, ObjectWritten, Passage, Spread, Store,
    StoreError, Whereabouts,
};
use isonomia_memory::{Sink, Source};
use isonomia_proto::control::ChecksumStatus;
use isonomia_proto::fs::{Capability, DirEntry, Layout, Timestamp};
use isonomia_proto::space::{self, SpaceChange};
use isonomia_units::{Ino, TargetId, VolumeId};
use std::collections::HashMap;
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

    /// [`crate::ObjectStore::object_blocks`].
    pub fn object_blocks(&self, place: ObjectPlace) -> Result<u64, StoreError> {
        self.objects.object_blocks(place)
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

    /// [`crate::Namespace::access`].
    pub fn access(&self, caller: &Caller<'_>, at: Ino, path: &[u8], mask: u32) -> Result<(), StoreError> {
        self.namespace.access(caller, at, path, mask)
    }

    /// [`crate::Namespace::read_dir`].
    pub fn read_dir(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        cookie: u64,
        bytes_max: usize,
    ) -> Result<Vec<DirEntry>, StoreError> {
        self.namespace.read_dir(caller, ino, cookie, bytes_max)
    }

    /// [`crate::Namespace::lost_writes`].
    pub fn lost_writes(&self, ino: Ino) -> u64 {
        self.namespace.lost_writes(ino)
    }

    /// [`crate::Namespace::choose_layouts`].
    pub fn choose_layouts(&self, choose: impl Fn(&NewFile<'_>) -> Option<Layout> + Send + Sync + 'static) {
        self.namespace.choose_layouts(choose)
    }

    /// [`crate::Namespace::set_layout`].
    pub fn set_layout(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        layout: Option<Layout>,
    ) -> Result<bool, StoreError> {
        self.namespace.set_layout(caller, at, path, follow, layout)
    }

    /// [`crate::Namespace::is_open`].
    pub fn is_open(&self, ino: Ino) -> bool {
        self.namespace.is_open(ino)
    }

    /// [`crate::Namespace::passage`].
    pub fn passage(&self) -> Option<Passage<'_>> {
        self.namespace.passage()
    }

    /// [`crate::Namespace::drain`].
    pub fn drain(&self, goes_on: impl Fn() -> bool) -> bool {
        self.namespace.drain(goes_on)
    }

    /// [`crate::Namespace::next_number`].
    pub fn next_number(&self) -> u64 {
        self.namespace.next_number()
    }

    /// [`crate::Namespace::skip_numbers`].
    pub fn skip_numbers(&self, number: u64) -> Result<(), StoreError> {
        self.namespace.skip_numbers(number)
    }

    /// [`crate::Namespace::volume_record`].
    pub fn volume_record(&self, volume: VolumeId) -> Result<Vec<u8>, StoreError> {
        self.namespace.volume_record(volume)
    }

    /// [`crate::Namespace::readlink`].
    pub fn readlink(&self, caller: &Caller<'_>, at: Ino, path: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.namespace.readlink(caller, at, path)
    }

    /// [`crate::Namespace::path_in_memory`].
    pub fn path_in_memory(&self, ino: Ino) -> Option<Vec<u8>> {
        self.namespace.path_in_memory(ino)
    }

    /// [`crate::Namespace::path_of`].
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>, StoreError> {
        self.namespace.path_of(ino)
    }

    /// [`crate::Namespace::acquire`].
    pub fn acquire(&self, ino: Ino) -> Result<(), StoreError> {
        self.namespace.acquire(ino)
    }

    /// [`crate::Namespace::verify`].
    pub fn verify(&self, capability: &Capability) -> Result<(), StoreError> {
        self.namespace.verify(capability)
    }

    /// [`crate::Namespace::verify_access`].
    pub fn verify_access(&self, capability: &Capability, needed: u32) -> Result<(), StoreError> {
        self.namespace.verify_access(capability, needed)
    }

    /// [`crate::Namespace::prove`].
    pub fn prove(&self, ino: Ino, holder: u32) -> Result<Capability, StoreError> {
        self.namespace.prove(ino, holder)
    }

    /// [`crate::Namespace::delegate`].
    pub fn delegate(&self, capability: &Capability, holder: u32) -> Capability {
        self.namespace.delegate(capability, holder)
    }

    /// [`crate::Namespace::verify_opened`].
    pub fn verify_opened(&self, capability: &Capability) -> Result<(), StoreError> {
        self.namespace.verify_opened(capability)
    }

    /// [`crate::Namespace::size`].
    pub fn size(&self, ino: Ino) -> Result<u64, StoreError> {
        self.namespace.size(ino)
    }

    /// [`crate::Namespace::size_in_memory`].
    pub fn size_in_memory(&self, ino: Ino) -> Option<u64> {
        self.namespace.size_in_memory(ino)
    }

    /// [`crate::Namespace::layout`].
    pub fn layout(&self, ino: Ino) -> Result<Arc<Layout>, StoreError> {
        self.namespace.layout(ino)
    }

    /// [`crate::Namespace::spread_of`].
    pub fn spread_of(&self, ino: Ino) -> Result<Spread, StoreError> {
        self.namespace.spread_of(ino)
    }

    /// [`crate::Namespace::was_shortened_after`].
    pub fn was_shortened_after(&self, ino: Ino, cuts: u64) -> Result<Option<bool>, StoreError> {
        self.namespace.was_shortened_after(ino, cuts)
    }

    /// [`crate::Namespace::note_loose`].
    pub fn note_loose(&self, ino: Ino) -> Result<(), StoreError> {
        self.namespace.note_loose(ino)
    }

    /// [`crate::Namespace::objects_removed`].
    pub fn objects_removed(&self, (number, generation): (u64, u32)) -> Result<(), StoreError> {
        self.namespace.objects_removed((number, generation))
    }

    /// [`crate::Namespace::is_wanted`].
    pub fn is_wanted(&self, number: u64, generation: u32) -> Result<bool, StoreError> {
        self.namespace.is_wanted(number, generation)
    }

    /// [`crate::Namespace::check_target`].
    pub fn check_target(&self, ino: Ino, target: TargetId, offset: u64, len: u64) -> Result<(), StoreError> {
        self.namespace.check_target(ino, target, offset, len)
    }

    /// [`crate::Namespace::check_only_target`].
    pub fn check_only_target(&self, ino: Ino, target: TargetId) -> Result<(), StoreError> {
        self.namespace.check_only_target(ino, target)
    }

    /// [`crate::Namespace::check_some_target`].
    pub fn check_some_target(&self, ino: Ino, target: TargetId) -> Result<(), StoreError> {
        self.namespace.check_some_target(ino, target)
    }

    /// [`crate::Namespace::set_whereabouts`].
    pub fn set_whereabouts(&self, whereabouts: Arc<Whereabouts>) {
        self.namespace.set_whereabouts(whereabouts)
    }

    /// [`crate::Namespace::cluster_records`].
    pub fn cluster_records(&self) -> Result<Vec<ClusterRecord>, StoreError> {
        self.namespace.cluster_records()
    }

    /// [`crate::Namespace::keep_cluster_records`].
    pub fn keep_cluster_records<'r>(
        &self,
        changes: impl IntoIterator<Item = (&'r [u8], Option<&'r [u8]>)>,
    ) -> Result<(), StoreError> {
        self.namespace.keep_cluster_records(changes)
    }

    /// [`crate::Namespace::change_cluster_records`].
    pub fn change_cluster_records<'r>(
        &self,
        changes: impl IntoIterator<Item = (&'r [u8], Option<&'r [u8]>)>,
    ) -> Result<(), StoreError> {
        self.namespace.change_cluster_records(changes)
    }

    /// [`crate::Namespace::forget_new_name`].
    pub fn forget_new_name(&self, name: &[u8]) {
        self.namespace.forget_new_name(name)
    }

    /// [`crate::Namespace::rename_volume`].
    pub fn rename_volume(&self, volume: VolumeId, name: &[u8], now: Timestamp) -> Result<(), StoreError> {
        self.namespace.rename_volume(volume, name, now)
    }

    /// [`crate::Namespace::set_volume_names`].
    pub fn set_volume_names(&self, names: &HashMap<Box<[u8]>, VolumeId>, now: Timestamp) -> Result<(), StoreError> {
        self.namespace.set_volume_names(names, now)
    }

    /// [`crate::Namespace::get_xattr`].
    pub fn get_xattr<T>(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        name: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, StoreError> {
        self.namespace.get_xattr(caller, at, path, follow, name, take)
    }

    /// [`crate::Namespace::list_xattrs`].
    pub fn list_xattrs(&self, caller: &Caller<'_>, at: Ino, path: &[u8], follow: bool) -> Result<Vec<u8>, StoreError> {
        self.namespace.list_xattrs(caller, at, path, follow)
    }

    /// [`crate::Namespace::remove_xattr`].
    pub fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.namespace.remove_xattr(caller, at, path, follow, name, now)
    }
}
