//! A *segment*: memory that stands for the first part of a file while programs have it mapped.
//!
//! It is a file in the host's memory that programs map, and this server reads and writes by calls: never by a mapping,
//! because at any moment programs may change it, and those that may write to it may cut it. So bytes are copied out of it first,
//! and the copy is what is summed and written. As far as it *reaches*, the segment is the truth about the file, and the objects follow: a write
//! goes to both, a read takes the segment's bytes, and [`Segment::write_back`] brings to the objects what programs stored.
//!
//! The kernel knows whether anybody has it, and whether to write: the server has one descriptor of its own, for reading, and
//! sends each program one of another open file, which lives as long as the descriptor, a copy of it, or a mapping by it
//! does, in whatever process. [`Segment::is_in_use`] and [`Segment::may_be_stored_to`] ask.
//!
//! Who changes the file or the segment has locked its state. What a program stores while the server writes to the same bytes is
//! as with any two writes at once.

use crate::jobs::Job;
use crate::usage::Permit;
use isonomia_memory::{Sink, Source};
use isonomia_proto::fs::Timestamp;
use isonomia_proto::mapping::SEGMENT_LEN_MAX;
use isonomia_store::{Store, StoreError};
use isonomia_units::{Ino, Nanos};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_64;

/// What changed is found, and written back, in units of this.
const BLOCK_LEN: usize = 4096;
/// Bytes copied at a time.
const PIECE_LEN: usize = 1 << 20;

/// For the server alone. Others get descriptors, which they cannot open anew for more than they were opened for.
const PLAIN: Mode = Mode::RUSR.union(Mode::WUSR);
/// The same, and programs may have stored to it: a server that starts anew has to know.
const STORED_TO: Mode = Mode::RWXU;

/// See the module.
#[derive(Debug)]
pub struct Segment {
    /// The file.
    pub ino: Ino,
    dir: Arc<OwnedFd>,
    /// In the directory.
    name: String,
    memory: OwnedFd,
    /// Bytes from the beginning of the file on, in whole pages.
    reach: AtomicU64,
    has_ended: AtomicBool,
    state: Mutex<State>,
}

/// What changes of a segment, for whoever has locked it.
#[derive(Debug)]
pub struct State {
    /// Of each block, the hash of what was in the objects when it was last brought to or from them; 0 if that is not known.
    sums: Vec<u64>,
    /// Whether programs may have stored to it.
    is_stored_to: bool,
    /// Bytes from the beginning on for which the host has given memory.
    allocated: u64,
    /// For whom it is counted: nobody, if an earlier server made it.
    permit: Option<Permit>,
    /// Whether it has the file's mapping, or waits for it.
    pub mapping: Mapping,
    /// The job that asked for it last.
    pub job: Option<Arc<Job>>,
    /// When that was.
    pub asked_at: Nanos,
    /// When a program that stores asked last.
    pub stores_at: Nanos,
    /// When the last attempt to write it back at its end failed.
    pub failed_at: Option<Nanos>,
}

/// How a segment stands to the file's mapping, which it needs where programs store to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Nobody has asked for it.
    None,
    /// It was asked for, and perhaps is there.
    Asked,
    /// It is being given back: nobody asks meanwhile.
    Going,
}

/// Why a segment does not reach as far as it is to.
#[derive(Debug, thiserror::Error)]
pub enum NotExtended {
    /// It would be too long, or too much for its user, or the host has no memory for it.
    #[error("no memory for it")]
    NoMemory,
    /// The file cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Segment {
    /// A segment of `ino` that reaches nowhere, as the file `name` in `dir`, which is counted by `permit`.
    pub fn create(dir: Arc<OwnedFd>, name: String, ino: Ino, permit: Permit, now: Nanos) -> Result<Self, Errno> {
        // A segment that has this name already is of an inode that was removed.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::fchmod(rustix::fs::openat(&*dir, &*name, flags, PLAIN)?, PLAIN)?;
        let memory = open_for_reading(&dir, &name)?;
        Ok(Self::over(ino, (dir, name), memory, false, Some(permit), now))
    }

    /// The segment that an earlier server left as the file `name` in `dir`, with what stands in it. What programs did not
    /// store to is read anew.
    pub fn adopt(dir: Arc<OwnedFd>, name: String, ino: Ino, store: &Store, now: Nanos) -> Result<Self, StoreError> {
        let failed = |errno| memory_error(&name, errno);
        let memory = open_for_reading(&dir, &name).map_err(failed)?;
        let stat = rustix::fs::fstat(&memory).map_err(failed)?;
        let is_stored_to = stat.st_mode & STORED_TO.bits() == STORED_TO.bits();
        let reach = whole_pages(stat.st_size as u64);
        let segment = Self::over(ino, (dir, name), memory, is_stored_to, None, now);
        segment.take_from_objects(&mut segment.state(), store, 0..reach, !is_stored_to)?;
        segment.reach.store(reach, Ordering::Release);
        Ok(segment)
    }

    fn over(
        ino: Ino,
        (dir, name): (Arc<OwnedFd>, String),
        memory: OwnedFd,
        is_stored_to: bool,
        permit: Option<Permit>,
        now: Nanos,
    ) -> Self {
        let state = State {
            sums: Vec::new(),
            is_stored_to,
            allocated: 0,
            permit,
            mapping: if is_stored_to { Mapping::Asked } else { Mapping::None },
            job: None,
            asked_at: now,
            stores_at: now,
            failed_at: None,
        };
        let (reach, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { ino, dir, name, memory, reach, has_ended, state: Mutex::new(state) }
    }

    /// Holds the segment: nobody else changes it or its file meanwhile, but for programs that store to it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor to write to it by. Only who has locked the state asks for one.
    fn writable(&self) -> Result<OwnedFd, Errno> {
        self.open_anew(OFlags::RDWR)
    }

    /// Another open file of it. Not by its name: a host may be set up to remove what a user has in memory when he logs out
    /// (`RemoveIPC` of logind.conf(5)), also if he runs a server.
    fn open_anew(&self, access: OFlags) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", self.memory.as_raw_fd());
        rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty())
    }

    /// Holds it unless somebody else does.
    pub fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Whether it does not stand for the file any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// How far it reaches.
    pub fn reach(&self) -> u64 {
        self.reach.load(Ordering::Acquire)
    }

    /// How much of a file of `size` bytes is in memory if the segment reaches to `reach`.
    fn resident(reach: u64, size: u64) -> u64 {
        reach.min(whole_pages(size))
    }

    /// Makes it reach to `end` at least; gives how many bytes of the file were read for that. It is counted by `permit`, if it is
    /// not yet counted at any.
    pub fn extend(&self, state: &mut State, store: &Store, end: u64, permit: &Permit) -> Result<u64, NotExtended> {
        let (before, size) = (self.reach(), store.namespace().size(self.ino)?);
        let reach = before.max(whole_pages(end));
        self.make_room(state, Self::resident(reach, size), Some(permit))?;
        // Also if somebody cut it.
        if rustix::fs::fstat(&self.memory).map_or(0, |stat| stat.st_size as u64) < reach {
            let grown = self.writable().and_then(|memory| rustix::fs::ftruncate(memory, reach));
            grown.map_err(|_| NotExtended::NoMemory)?;
        }
        let read = self.take_from_objects(state, store, before..reach, true)?;
        self.reach.store(reach, Ordering::Release);
        Ok(read)
    }

    /// Whether it reaches to `end`, or at least behind the end of the file.
    pub fn suffices(&self, store: &Store, end: u64) -> Result<bool, StoreError> {
        Ok(self.reach() >= end.min(whole_pages(store.namespace().size(self.ino)?)) && self.reach() > 0)
    }

    /// Makes sure that the first `len` bytes are counted, and that the host has memory for them: whoever touches memory
    /// that a host does not have is killed.
    fn make_room(&self, state: &mut State, len: u64, permit: Option<&Permit>) -> Result<(), NotExtended> {
        if len > SEGMENT_LEN_MAX {
            return Err(NotExtended::NoMemory);
        }
        if let (None, Some(permit)) = (&state.permit, permit) {
            state.permit = Some(permit.beside(0).map_err(|_| NotExtended::NoMemory)?);
        }
        if let Some(permit) = &mut state.permit {
            permit.grow(len).map_err(|_| NotExtended::NoMemory)?;
        }
        if len > state.allocated {
            let (from, more) = (state.allocated, len - state.allocated);
            let give = |memory| rustix::fs::fallocate(memory, FallocateFlags::KEEP_SIZE, from, more);
            self.writable().and_then(give).map_err(|_| NotExtended::NoMemory)?;
            state.allocated = len;
        }
        Ok(())
    }

    /// A descriptor of an open file of its own, for a program.
    pub fn open(&self, state: &mut State, stores: bool) -> Result<OwnedFd, Errno> {
        if stores && !state.is_stored_to {
            rustix::fs::fchmod(&self.memory, STORED_TO)?;
            state.is_stored_to = true;
        }
        self.open_anew(if stores { OFlags::RDWR } else { OFlags::RDONLY })
    }

    /// Whether any process has a descriptor or a mapping of it, or is about to be given one. The caller has locked the state.
    pub fn is_in_use(&self) -> bool {
        !self.has_lease(nix::libc::F_WRLCK)
    }

    /// Whether any process has one to write, or is about to be given one. The caller has locked the state.
    pub fn may_be_stored_to(&self) -> bool {
        !self.has_lease(nix::libc::F_RDLCK)
    }

    /// Asks the kernel for a lease, and gives it back. There is one to write (`F_WRLCK`) only if there is no other open file
    /// of the memory, and one to read (`F_RDLCK`) only if there is none for writing. Nobody opens it meanwhile.
    fn has_lease(&self, kind: nix::libc::c_int) -> bool {
        use nix::libc;
        let lease = |kind: libc::c_int| {
            // SAFETY: a call with integers only.
            unsafe { libc::fcntl(self.memory.as_raw_fd(), libc::F_SETLEASE, kind) }
        };
        let is_granted = lease(kind) == 0;
        if is_granted {
            lease(libc::F_UNLCK);
        }
        is_granted
    }

    /// Everything that was stored has been written back, and nobody can store any more.
    pub fn is_stored_to_no_more(&self, state: &mut State) {
        if std::mem::replace(&mut state.is_stored_to, false) {
            // If that fails, a server that starts anew looks at more than it needs to.
            let _ = rustix::fs::fchmod(&self.memory, PLAIN);
        }
    }

    /// Reads what is in the objects of `range`, into the memory if `into_memory`; gives how many bytes.
    fn take_from_objects(
        &self,
        state: &mut State,
        store: &Store,
        range: std::ops::Range<u64>,
        into_memory: bool,
    ) -> Result<u64, StoreError> {
        let mut piece = vec![0; PIECE_LEN.min(usize::try_from(range.end - range.start).unwrap_or(PIECE_LEN))];
        let mut at = range.start;
        while at < range.end {
            let room = piece.len().min((range.end - at) as usize);
            let count = store.read(self.ino, at, &mut piece[..room])?;
            if count == 0 {
                break;
            }
            if into_memory {
                self.put(at, piece[..count].into())?;
            }
            for (index, block) in (at as usize / BLOCK_LEN..).zip(piece[..count].chunks(BLOCK_LEN)) {
                state.note(index, sum(block));
            }
            at += count as u64;
        }
        Ok(at - range.start)
    }

    /// Copies `bytes` to `offset`, as far as the segment reaches or is being extended.
    fn put(&self, offset: u64, bytes: Source<'_>) -> Result<(), StoreError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = |errno| memory_error(&self.name, errno);
        let memory = self.writable().map_err(failed)?;
        let mut done = 0;
        while done < bytes.len() {
            done += bytes.part(done..bytes.len()).pwrite(&memory, offset + done as u64).map_err(failed)?;
        }
        Ok(())
    }

    /// Copies what it has from `offset` on into `sink`; gives how much that is: less if somebody cut the memory.
    fn get(&self, offset: u64, mut sink: Sink<'_>) -> Result<usize, StoreError> {
        let len = sink.len();
        let mut done = 0;
        while done < len {
            match sink.part(done..len).pread(&self.memory, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(errno) => return Err(memory_error(&self.name, errno)),
            }
        }
        Ok(done)
    }

    /// The part of `len` bytes at `offset` that it reaches to.
    fn within(&self, offset: u64, len: usize) -> usize {
        self.reach().saturating_sub(offset).min(len as u64) as usize
    }

    /// Puts the bytes that it has from `offset` on instead of those in `sink`, which the objects gave. False if it ended
    /// meanwhile: then the objects have to be asked again.
    pub fn overlay(&self, offset: u64, mut sink: Sink<'_>) -> Result<bool, StoreError> {
        let len = self.within(offset, sink.len());
        self.get(offset, sink.part(0..len))?;
        Ok(!self.has_ended())
    }

    /// Before a file of `size` bytes grows to `end`: there must be memory for what the segment reaches to. ENOSPC if not.
    pub fn before_growth(&self, state: &mut State, size: u64, end: u64) -> Result<(), StoreError> {
        let reach = self.reach();
        let end = end.min(reach);
        if end <= size || end <= state.allocated {
            return Ok(());
        }
        // Some more, for a file that grows by many small writes.
        let ahead = Self::resident(reach, end.next_multiple_of(PIECE_LEN as u64));
        self.make_room(state, ahead, None).map_err(|_| StoreError::NoSpace)
    }

    /// A write put `bytes` at `offset` of the file, which had `size_before` bytes.
    pub fn written(
        &self,
        state: &mut State,
        offset: u64,
        bytes: Source<'_>,
        size_before: u64,
    ) -> Result<(), StoreError> {
        if offset > size_before {
            self.zero(state, size_before..offset)?;
        }
        self.put(offset, bytes.part(0..self.within(offset, bytes.len())))
    }

    /// The objects' bytes of `range` have become others: takes those. What is behind the end of the file is zeros.
    pub fn changed(&self, state: &mut State, store: &Store, range: std::ops::Range<u64>) -> Result<(), StoreError> {
        let size = store.namespace().size(self.ino)?;
        let range = range.start.min(self.reach())..range.end.min(self.reach());
        let mut at = range.start;
        let mut piece = vec![0; PIECE_LEN.min((range.end - range.start) as usize)];
        while at < range.end.min(size) {
            let room = piece.len().min((range.end.min(size) - at) as usize);
            let count = store.read(self.ino, at, &mut piece[..room])?;
            if count == 0 {
                break;
            }
            self.put(at, piece[..count].into())?;
            at += count as u64;
        }
        self.zero(state, at..range.end)?;
        let first = (range.start as usize / BLOCK_LEN).min(state.sums.len());
        let last = (range.end as usize).div_ceil(BLOCK_LEN).min(state.sums.len());
        state.sums[first..last].fill(0);
        Ok(())
    }

    /// The file, which had `before` bytes if that is known, may have another size: what is beyond the end is zeros, and so is
    /// what it has grown by.
    pub fn resized(&self, state: &mut State, store: &Store, before: Option<u64>) -> Result<(), StoreError> {
        let size = store.namespace().size(self.ino)?;
        self.zero(state, before.map_or(size, |before| before.min(size))..u64::MAX)
    }

    /// Makes `range` zeros, as far as it reaches, by making a hole.
    fn zero(&self, state: &mut State, range: std::ops::Range<u64>) -> Result<(), StoreError> {
        let end = range.end.min(self.reach());
        if range.start >= end {
            return Ok(());
        }
        // There is no memory for a hole.
        state.allocated = state.allocated.min(range.start / BLOCK_LEN as u64 * BLOCK_LEN as u64);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let make = |memory| rustix::fs::fallocate(memory, flags, range.start, end - range.start);
        self.writable().and_then(make).map_err(|errno| memory_error(&self.name, errno))
    }

    /// Brings what programs stored to the objects; gives how many bytes those were.
    pub fn write_back(&self, state: &mut State, store: &Store, now: Timestamp) -> Result<u64, StoreError> {
        if !state.is_stored_to {
            return Ok(0);
        }
        // A file that became longer while the segment began, and by so much, is nothing that it was asked to stand for.
        let end = self.reach().min(store.namespace().size(self.ino)?).min(SEGMENT_LEN_MAX);
        let mut piece = vec![0; PIECE_LEN.min(end as usize)];
        let (mut at, mut written) = (0, 0);
        while at < end {
            let room = piece.len().min((end - at) as usize);
            // What somebody cut away is nothing that was stored.
            let count = self.get(at, (&mut piece[..room]).into())?;
            written += write_changed(state, &piece[..count], at, |offset, run| {
                store.write_within(self.ino, offset, run, now)
            })?;
            if count < room {
                break;
            }
            at += count as u64;
        }
        Ok(written)
    }

    /// It stands for the file no more, and nobody has it: its memory goes. Whoever kept a way to it after all finds none.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        // What fails here leaves memory that nobody can reach.
        let _ = self.writable().and_then(|memory| rustix::fs::ftruncate(memory, 0));
        self.unlink();
    }

    /// Programs keep what they have, and nobody else gets it.
    pub fn unlink(&self) {
        let removed = rustix::fs::unlinkat(&*self.dir, &*self.name, rustix::fs::AtFlags::empty());
        if let Err(errno) = removed
            && errno != Errno::NOENT
        {
            tracing::warn!(segment = self.name, %errno, "cannot remove the memory of a mapped file");
        }
    }
}

impl State {
    fn note(&mut self, index: usize, sum: u64) {
        if index >= self.sums.len() {
            self.sums.resize(index + 1, 0);
        }
        self.sums[index] = sum;
    }
}

/// Gives `write` the blocks of `piece`, which begins at `start` of the file, that are not as in the objects; gives how
/// many bytes it wrote.
fn write_changed(
    state: &mut State,
    piece: &[u8],
    start: u64,
    mut write: impl FnMut(u64, &[u8]) -> Result<usize, StoreError>,
) -> Result<u64, StoreError> {
    let first = start as usize / BLOCK_LEN;
    let sums: Vec<u64> = piece.chunks(BLOCK_LEN).map(sum).collect();
    let has_changed = |state: &State, index: usize| state.sums.get(first + index) != Some(&sums[index]);
    let (mut index, mut written) = (0, 0);
    while index < sums.len() {
        let run = (index..sums.len()).take_while(|at| has_changed(state, *at)).count();
        if run == 0 {
            index += 1;
            continue;
        }
        let from = index * BLOCK_LEN;
        let to = piece.len().min((index + run) * BLOCK_LEN);
        let mut done = from;
        while done < to {
            match write(start + done as u64, &piece[done..to])? {
                // The file was cut.
                0 => break,
                count => done += count,
            }
        }
        (index..index + run).for_each(|at| state.note(first + at, sums[at]));
        written += (done - from) as u64;
        index += run;
    }
    Ok(written)
}

fn open_for_reading(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Never 0.
fn sum(block: &[u8]) -> u64 {
    XxHash3_64::oneshot(block).max(1)
}

fn whole_pages(len: u64) -> u64 {
    len.next_multiple_of(rustix::param::page_size() as u64)
}

fn memory_error(name: &str, errno: Errno) -> StoreError {
    StoreError::Io { path: PathBuf::from(name), source: errno.into() }
}
