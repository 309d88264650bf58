//! Files that preloaded programs have mapped: one [`Segment`] each, for all programs of this host.
//!
//! A segment begins when a program asks for one, and ends some time after nobody has it any more: then what was stored is
//! written back, and its memory goes. It is a file in the host's memory (`/dev/shm`), so it outlives a server that is
//! killed: the next one finds it, with all that programs stored and store, and they go on.
//!
//! While programs may store to it, it has the file's mapping, as a mount would ([`crate::mappings`]): either a mount has the
//! mapping or a segment, and the other waits. Where programs only read it, what others write comes to it as to the objects.
//!
//! Who writes to a file, or changes it otherwise, does so through [`Segments::write`], [`Segments::change`] and [`Segments::resize`],
//! who reads it, through [`Segments::read`]. There may come to be a segment at any time, so whoever finds none looks again afterwards: a
//! segment is found before it takes the first byte from the objects.

pub mod serving;

use crate::clock;
use crate::refusal::Refusal;
use crate::segment::{NotExtended, Segment, State};
use crate::segment_home::{Home, name};
use crate::usage::Permit;
use isonomia_memory::{Sink, Source};
use isonomia_store::{Store, StoreError};
use isonomia_units::{Ino, VolumeId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module.
#[derive(Debug, Default)]
pub struct Segments {
    /// Where they lie. Locked before the table.
    home: Mutex<Home>,
    table: RwLock<HashMap<Ino, Arc<Segment>>>,
    /// How many there are: mostly none, and then nobody looks into the table.
    count: AtomicUsize,
}

/// Why a program gets no memory that stands for a file.
#[derive(Debug, thiserror::Error)]
enum Unmapped {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("there is none for this session")]
    None,
    #[error("there is no room for it")]
    NoMemory,
    #[error("a mount has the mapping, or another attempt may do")]
    Again,
    #[error("too many mappings")]
    TooMany,
    #[error("the descriptor that was sent before has not been received")]
    Unread,
    #[error(transparent)]
    System(#[from] Errno),
}

impl From<StoreError> for Unmapped {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<NotExtended> for Unmapped {
    fn from(error: NotExtended) -> Self {
        match error {
            NotExtended::NoMemory => Self::NoMemory,
            NotExtended::Store(error) => error.into(),
        }
    }
}

impl Unmapped {
    fn errno(&self) -> u32 {
        let errno = match self {
            Self::Refused(refusal) => return refusal.errno(),
            Self::None => Errno::NODEV,
            Self::NoMemory => Errno::NOMEM,
            Self::Again => Errno::AGAIN,
            Self::TooMany => Errno::NOLCK,
            Self::Unread => Errno::BUSY,
            Self::System(errno) => *errno,
        };
        errno.raw_os_error().unsigned_abs()
    }
}

impl Segments {
    /// They are those of the server whose metadata lie in `metadata`. There are none where the host has no memory for files,
    /// and before this.
    pub fn lie_beside(&self, metadata: &Path) {
        *self.home() = Home::of(metadata);
    }

    fn home(&self) -> MutexGuard<'_, Home> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> RwLockReadGuard<'_, HashMap<Ino, Arc<Segment>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_to_change(&self) -> RwLockWriteGuard<'_, HashMap<Ino, Arc<Segment>>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment of `ino`, if there is one.
    fn find(&self, ino: Ino) -> Option<Arc<Segment>> {
        if self.count.load(Ordering::SeqCst) == 0 { None } else { self.table().get(&ino).cloned() }
    }

    /// As [`Self::find`], after the objects were changed without a segment.
    fn find_again(&self, ino: Ino) -> Option<Arc<Segment>> {
        // Pairs with the fence in `enter`: either this finds the new segment, or the new segment reads what was done to the
        // objects.
        fence(Ordering::SeqCst);
        self.find(ino)
    }

    /// Whether `ino` has one.
    pub fn has(&self, ino: Ino) -> bool {
        self.find(ino).is_some()
    }

    /// Whether there are any.
    pub fn are_there_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Whether there are any of files of `volume`.
    pub fn are_there_any_of(&self, volume: VolumeId) -> bool {
        self.are_there_any() && self.table().keys().any(|ino| ino.volume() == volume)
    }

    fn all(&self) -> Vec<Arc<Segment>> {
        if self.are_there_any() { self.table().values().cloned().collect() } else { Vec::new() }
    }

    /// Does a read at `offset` of `ino`: `read` fills the room from the objects, and gives how many bytes there were.
    pub fn read(
        &self,
        ino: Ino,
        offset: u64,
        mut sink: Sink<'_>,
        read: impl Fn(Sink<'_>) -> Result<usize, StoreError>,
    ) -> Result<usize, StoreError> {
        let room = sink.len();
        loop {
            let segment = self.find(ino);
            let part = sink.part(0..room);
            // What lies over it has no checksums.
            let len = read(if segment.is_some() { part.not_comparing() } else { part })?;
            // It is repeated only if the segment ended meanwhile, and a segment that begins anew does not end soon.
            match segment {
                Some(segment) if !segment.overlay(offset, sink.part(0..len))? => {}
                _ => return Ok(len),
            }
        }
    }

    /// Does a write of `payload` to `ino`, at `offset` or at the end: `write` does so in the objects, and gives where, and
    /// how many bytes.
    pub fn write(
        &self,
        store: &Store,
        ino: Ino,
        offset: Option<u64>,
        payload: Source<'_>,
        write: impl FnOnce() -> Result<(u64, usize), StoreError>,
    ) -> Result<(u64, usize), StoreError> {
        let end = |size| offset.unwrap_or(size).saturating_add(payload.len() as u64);
        self.around(store, ino, end, write, |segment, state, (offset, written), size| {
            segment.written(state, *offset, payload.part(0..*written), size.unwrap_or(*offset))
        })
    }

    /// Does what changes no other bytes of `ino` than those of `range`, and if it `grows` makes the file as long as that.
    pub fn change<T>(
        &self,
        store: &Store,
        ino: Ino,
        (range, grows): (std::ops::Range<u64>, bool),
        change: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let end = if grows { range.end } else { 0 };
        self.around(
            store,
            ino,
            |_| end,
            change,
            |segment, state, _, before| {
                // What programs stored behind the end of the file does not count.
                let start = before.map_or(range.start, |before| before.min(range.start));
                segment.changed(state, store, start..range.end)
            },
        )
    }

    /// Does what may make `ino` as long as `size` gives for the size that it has.
    pub fn resize<T>(
        &self,
        store: &Store,
        ino: Ino,
        size: impl FnOnce(u64) -> u64,
        resize: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.around(store, ino, size, resize, |segment, state, _, before| segment.resized(state, store, before))
    }

    /// Does `act`, which may make the file as long as `end` gives for the size that it has, and then lets the segment follow
    /// by what came of it, if there is one: `follow` is told how long the file was, unless the segment came meanwhile.
    fn around<T>(
        &self,
        store: &Store,
        ino: Ino,
        end: impl FnOnce(u64) -> u64,
        act: impl FnOnce() -> Result<T, StoreError>,
        follow: impl FnOnce(&Segment, &mut State, &T, Option<u64>) -> Result<(), StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(segment) = self.find(ino) {
            let mut state = segment.state();
            if !segment.has_ended() {
                let size = store.namespace().size(ino)?;
                segment.before_growth(&mut state, size, end(size))?;
                let done = act()?;
                follow(&segment, &mut state, &done, Some(size))?;
                return Ok(done);
            }
        }
        let done = act()?;
        if let Some(segment) = self.find_again(ino) {
            let mut state = segment.state();
            if !segment.has_ended() {
                follow(&segment, &mut state, &done, None)?;
            }
        }
        Ok(done)
    }
}

impl Segments {
    /// The segment of `ino`, and whether it is new.
    fn begin(&self, ino: Ino, generation: u32, permit: Permit) -> Result<(Arc<Segment>, bool), Unmapped> {
        let mut home = self.home();
        let mut table = self.table_to_change();
        if let Some(segment) = table.get(&ino) {
            return Ok((segment.clone(), false));
        }
        let dir = home.open().ok_or(Unmapped::None)?;
        let created = Segment::create(dir, name(ino, generation), ino, permit, clock::now());
        if matches!(created, Err(Errno::NOENT)) {
            // Somebody has removed the directory; who asks again finds another one.
            home.forget();
            return Err(Unmapped::Again);
        }
        Ok((self.enter(&mut table, created?), true))
    }

    /// The segment is gone.
    fn leave(&self, ino: Ino) {
        let mut table = self.table_to_change();
        if table.remove(&ino).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, table: &mut HashMap<Ino, Arc<Segment>>, segment: Segment) -> Arc<Segment> {
        let segment = Arc::new(segment);
        table.insert(segment.ino, segment.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
        // See `find_again`.
        fence(Ordering::SeqCst);
        segment
    }
}
