//! The checksums of one object in memory, and their sidecar; the bytes are those of [`crate::checksum`].
//!
//! Entries are read from the sidecar by pages when they are first needed, changed in memory, and written back by
//! [`Writing::write_back`]: a write to the object makes no call for its checksum. The object and its entries change
//! together under one lock, [`Sums::lock`], or, while the host writes, under a claim on the blocks that are written
//! ([`ranges`]): a device that takes its time is given many writes to one file at once. Readers take no part in it: they
//! copy entries, and read them once more under the lock if a block does not agree.

use crate::checksum::{BLOCKS_MAX, Header, ObjectId, PAGE_BYTES, blocks_of, entry_offset, place_of};
use crate::fence::Fence;
use crate::holes::next_data;
use isonomia_memory::{Sink, Source};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod ranges;
mod sidecar;

use ranges::Ranges;
use sidecar::{fetch_pages, open_sidecar, read_header, read_page, stored_blocks};
pub(crate) use sidecar::{last_entry, shorten};

/// What a page in memory takes besides its entries, about.
const PAGE_OVERHEAD_BYTES: usize = 64;

/// Where the sidecar of an object is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The directory of all objects of the target.
    pub dir: BorrowedFd<'a>,
    /// The object.
    pub object: ObjectId,
    /// The sidecar may be older than the object, or torn: what is wrong with it is not damage.
    pub is_suspect: bool,
    /// Whether it may be changed.
    pub fence: &'a Fence,
}

/// Why there are no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SidecarFault {
    /// What the host says.
    Host(Errno),
    /// What is wrong with the sidecar.
    Damaged(&'static str),
}

/// Memory for entries of all objects.
#[derive(Default)]
pub(crate) struct Meter(AtomicU64);

/// The checksums of one object.
#[derive(Default)]
pub(crate) struct Sums {
    guarded: Mutex<Guarded>,
    /// For who waits for blocks that others write.
    is_written: Condvar,
    table: RwLock<Table>,
    is_dirty: AtomicBool,
    /// Used since the last [`Sums::is_recent`].
    recent: AtomicBool,
    /// Somebody will come to give the memory back.
    is_listed: AtomicBool,
}

#[derive(Default)]
struct Table {
    pages: BTreeMap<u64, Page>,
    meter: Option<Arc<Meter>>,
}

/// As many entries as it has; the others are 0. They change under a shared lock of the table, by one [`Writing`] at a
/// time.
#[derive(Default)]
struct Page {
    entries: Vec<AtomicU64>,
    is_dirty: AtomicBool,
}

/// What one [`Writing`] at a time has.
#[derive(Default)]
struct Guarded {
    file: File,
    ranges: Ranges,
}

#[derive(Default)]
struct File {
    state: State,
    /// As in [`Header::blocks`], for what memory has.
    blocks: u64,
    /// The same for what the sidecar has.
    stored_blocks: u64,
    /// The sidecar's header says something else than `stored_blocks`.
    is_header_old: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nobody looked yet.
    #[default]
    Unknown,
    /// There is none, or none that counts.
    Fresh,
    Present,
}

/// The right to change blocks and entries of an object.
pub(crate) struct Writing<'s> {
    sums: &'s Sums,
    guarded: MutexGuard<'s, Guarded>,
    /// Kept from one call to the next. Nobody waits for it, as only the one `Writing` ever takes it exclusively.
    table: Option<RwLockReadGuard<'s, Table>>,
}

impl Meter {
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Sums {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries that the sidecar does not have yet.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty.load(Acquire)
    }

    /// Whether it was used since this was last asked.
    pub fn is_recent(&self) -> bool {
        self.recent.swap(false, Relaxed)
    }

    /// True the first time, and after [`Self::unlist`].
    pub fn is_to_be_listed(&self) -> bool {
        !self.is_listed.load(Relaxed) && !self.is_listed.swap(true, Relaxed)
    }

    pub fn unlist(&self) {
        self.is_listed.store(false, Relaxed);
    }

    /// Copies the entries from block `first` on; false if some are not in memory.
    pub fn copy(&self, first: u64, out: &mut [u64]) -> bool {
        if !self.recent.load(Relaxed) {
            self.recent.store(true, Relaxed);
        }
        self.table().copy(first, out)
    }
}

/// Calls `each` with every page that has entries of `count` blocks from `first` on: its number, the place of the first
/// of them, and which they are. Ends when `each` says false, and says so.
fn each_page(first: u64, count: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>) -> bool) -> bool {
    let mut done = 0;
    while done < count {
        let block = first + done as u64;
        let (page, _) = place_of(block);
        let (start, len) = blocks_of(page);
        let at = (block - start) as usize;
        let run = (len - at).min(count - done);
        if !each(page, at, done..done + run) {
            return false;
        }
        done += run;
    }
    true
}

impl Writing<'_> {
    /// As if nobody had looked yet.
    pub fn reset(&mut self) {
        self.guarded.file = File::default();
        self.forget();
    }

    /// Starts anew: no block was ever written, and a sidecar that may exist does not count.
    pub fn start_anew(&mut self) {
        self.guarded.file = File { state: State::Fresh, ..File::default() };
        self.forget();
        // Else nobody would write the sidecar of an object that is one hole.
        self.sums.is_dirty.store(true, Release);
    }

    /// Brings the entries of `count` blocks from `first` on into memory.
    pub fn load(
        &mut self,
        place: &Place<'_>,
        meter: &Arc<Meter>,
        first: u64,
        count: usize,
    ) -> Result<(), SidecarFault> {
        let mut missing = Vec::new();
        let table = self.table.get_or_insert_with(|| self.sums.table());
        each_page(first, count, |page, _, _| {
            if !table.pages.contains_key(&page) {
                missing.push(page);
            }
            true
        });
        if missing.is_empty() {
            return Ok(());
        }
        let sidecar = self.open(place, &missing)?;
        let mut read = Vec::new();
        for page in missing {
            let entries = match &sidecar {
                Some(sidecar) => {
                    read_page(sidecar, page, self.guarded.file.stored_blocks).or_else(|fault| match fault {
                        SidecarFault::Damaged(_) if place.is_suspect => Ok(Vec::new()),
                        fault => Err(fault),
                    })?
                }
                None => Vec::new(),
            };
            read.push((page, Page { entries, is_dirty: AtomicBool::new(false) }));
        }
        let mut table = self.table_alone();
        table.meter.get_or_insert_with(|| meter.clone());
        let grown = read.iter().map(|(_, page)| page.bytes()).sum();
        table.pages.extend(read);
        table.account(0, grown);
        Ok(())
    }

    /// To change which pages there are, and how many entries each has.
    fn table_alone(&mut self) -> RwLockWriteGuard<'_, Table> {
        self.table = None;
        self.sums.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the sidecar's header the first time; `None` if there is no sidecar and need not be. The device looks for the
    /// `wanted` pages, which are to be read next, meanwhile.
    fn open(&mut self, place: &Place<'_>, wanted: &[u64]) -> Result<Option<OwnedFd>, SidecarFault> {
        if self.guarded.file.state == State::Fresh {
            return Ok(None);
        }
        let opened = open_sidecar(place).and_then(|sidecar| {
            fetch_pages(&sidecar, wanted, self.guarded.file.state == State::Unknown);
            if self.guarded.file.state == State::Unknown {
                let header = read_header(&sidecar, place.object)?;
                self.guarded.file.stored_blocks = header.blocks;
                if place.is_suspect {
                    // A stop came between a cut and the header that tells of it.
                    self.guarded.file.stored_blocks = stored_blocks(&sidecar, &header)?;
                    if self.guarded.file.stored_blocks < header.blocks {
                        self.guarded.file.is_header_old = true;
                        self.sums.is_dirty.store(true, Release);
                    }
                }
                self.guarded.file.blocks = self.guarded.file.blocks.max(self.guarded.file.stored_blocks);
            }
            Ok(sidecar)
        });
        match opened {
            Ok(sidecar) => {
                self.guarded.file.state = State::Present;
                Ok(Some(sidecar))
            }
            Err(SidecarFault::Damaged(_)) if place.is_suspect => {
                self.guarded.file = File { state: State::Fresh, blocks: self.guarded.file.blocks, ..File::default() };
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The entry of a block that was loaded; 0 for one that was not.
    pub fn entry(&mut self, block: u64) -> u64 {
        let mut entry = [0];
        self.table.get_or_insert_with(|| self.sums.table()).copy(block, &mut entry);
        entry[0]
    }

    /// The next block at `first` or behind it whose entry may be other than 0: neither memory nor the sidecar has anything
    /// of those before it.
    pub fn next_written(&mut self, place: &Place<'_>, first: u64) -> Result<Option<u64>, SidecarFault> {
        let stored = match self.open(place, &[])? {
            None => None,
            Some(sidecar) => next_data(&sidecar, entry_offset(first))
                .map_err(SidecarFault::Host)?
                .map(|at| first + (at - entry_offset(first)) / size_of::<u64>() as u64),
        };
        let table = self.table.get_or_insert_with(|| self.sums.table());
        let (page, _) = place_of(first);
        let known = table.pages.range(page..).find(|(_, page)| !page.entries.is_empty());
        let known = known.map(|(page, _)| blocks_of(*page).0.max(first));
        Ok([stored, known].into_iter().flatten().min())
    }

    /// Changes the entries from block `first` on, which were loaded.
    pub fn store(&mut self, first: u64, entries: &[u64]) {
        debug_assert!(first + (entries.len() as u64) <= BLOCKS_MAX);
        let table = self.table.get_or_insert_with(|| self.sums.table());
        if !table.store(first, entries) {
            let mut table = self.table_alone();
            table.make_room(first, entries.len());
            table.store(first, entries);
        }
        let end = entries.iter().rposition(|entry| *entry != 0).map_or(0, |last| first + last as u64 + 1);
        if end > self.guarded.file.blocks {
            self.guarded.file.blocks = end;
        }
        if !self.sums.is_dirty.load(Relaxed) {
            self.sums.is_dirty.store(true, Release);
        }
    }

    /// Makes all entries from block `end` on 0, in the sidecar too, whether it counts or not ([`crate::shortened`]). With `end` 0 it
    /// need not be legible.
    pub fn cut(&mut self, place: &Place<'_>, end: u64) -> Result<(), SidecarFault> {
        if end > 0 {
            self.open(place, &[])?;
        }
        shorten(place, end).map_err(SidecarFault::Host)?;
        if end == 0 {
            self.start_anew();
            return Ok(());
        }
        if self.guarded.file.blocks <= end && !place.is_suspect {
            return Ok(());
        }
        let mut table = self.table_alone();
        let before = table.bytes();
        let (page, _) = place_of(end);
        let (start, _) = blocks_of(page);
        table.pages.split_off(&(page + 1));
        if let Some(page) = table.pages.get_mut(&page) {
            page.entries.truncate((end - start) as usize);
            *page.is_dirty.get_mut() = true;
        }
        table.account(before, table.bytes());
        drop(table);
        self.guarded.file.blocks = self.guarded.file.blocks.min(end);
        self.guarded.file.stored_blocks = self.guarded.file.stored_blocks.min(end);
        self.guarded.file.is_header_old = true;
        self.sums.is_dirty.store(true, Release);
        Ok(())
    }

    /// Brings the sidecar up to date, creating it if need be; gives it open, to be synced.
    pub fn write_back(&mut self, place: &Place<'_>) -> Result<OwnedFd, SidecarFault> {
        let fail = SidecarFault::Host;
        if !self.sums.is_dirty() && self.guarded.file.state != State::Fresh {
            return open_sidecar(place);
        }
        let fresh = if self.guarded.file.state == State::Fresh { OFlags::TRUNC } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | fresh;
        let (name, mode) = (place.object.sidecar_name(), Mode::from_raw_mode(0o600));
        let sidecar =
            place.fence.check().and_then(|()| rustix::fs::openat(place.dir, name, flags, mode)).map_err(fail)?;
        let table = self.table.get_or_insert_with(|| self.sums.table());
        let header = Header { object: place.object, blocks: self.guarded.file.blocks }.encode();
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        for (number, page) in table.pages.iter().filter(|(_, page)| page.is_dirty.load(Relaxed)) {
            bytes.clear();
            let (start, _) = blocks_of(*number);
            let offset = if start == 0 {
                bytes.extend_from_slice(&header);
                0
            } else {
                entry_offset(start)
            };
            page.entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.load(Relaxed).to_le_bytes()));
            place.fence.check().and_then(|()| write_at(&sidecar, offset, &bytes)).map_err(fail)?;
        }
        let is_old = self.guarded.file.is_header_old || self.guarded.file.stored_blocks != self.guarded.file.blocks;
        if is_old || self.guarded.file.state != State::Present {
            place.fence.check().and_then(|()| write_at(&sidecar, 0, &header)).map_err(fail)?;
        }
        table.pages.values().for_each(|page| page.is_dirty.store(false, Relaxed));
        let wanted = entry_offset(self.guarded.file.blocks);
        if rustix::fs::fstat(&sidecar).map_err(fail)?.st_size as u64 <= wanted {
            // After a cut the last entries may be 0, and in nobody's page.
            place.fence.check().and_then(|()| rustix::fs::ftruncate(&sidecar, wanted)).map_err(fail)?;
        }
        self.guarded.file = File {
            state: State::Present,
            blocks: self.guarded.file.blocks,
            stored_blocks: self.guarded.file.blocks,
            is_header_old: false,
        };
        self.sums.is_dirty.store(false, Release);
        Ok(sidecar)
    }

    /// Gives the memory back. What was not written back is lost.
    pub fn forget(&mut self) {
        let mut table = self.table_alone();
        let before = table.bytes();
        table.pages.clear();
        table.account(before, 0);
        drop(table);
        self.sums.is_dirty.store(false, Release);
    }

    /// Blocks that may have an entry.
    pub fn blocks(&mut self, place: &Place<'_>) -> Result<u64, SidecarFault> {
        if self.guarded.file.state == State::Unknown {
            self.open(place, &[])?;
        }
        Ok(self.guarded.file.blocks)
    }
}

impl Table {
    /// As [`Sums::copy`].
    fn copy(&self, first: u64, out: &mut [u64]) -> bool {
        each_page(first, out.len(), |page, at, range| {
            let Some(page) = self.pages.get(&page) else { return false };
            let out = &mut out[range];
            let known = page.entries.get(at..).unwrap_or_default();
            let known = &known[..known.len().min(out.len())];
            out.iter_mut().zip(known).for_each(|(out, entry)| *out = entry.load(Relaxed));
            out[known.len()..].fill(0);
            true
        })
    }

    /// Changes the entries from block `first` on; false if there is no room for all of them.
    fn store(&self, first: u64, entries: &[u64]) -> bool {
        each_page(first, entries.len(), |page, at, range| {
            let Some(page) = self.pages.get(&page) else { return false };
            let Some(places) = page.entries.get(at..at + range.len()) else { return false };
            places.iter().zip(&entries[range]).for_each(|(place, entry)| place.store(*entry, Relaxed));
            if !page.is_dirty.load(Relaxed) {
                page.is_dirty.store(true, Relaxed);
            }
            true
        })
    }

    /// Makes room for the entries of `count` blocks from `first` on.
    fn make_room(&mut self, first: u64, count: usize) {
        let mut grown = 0;
        each_page(first, count, |page, at, range| {
            let page = self.pages.entry(page).or_default();
            let end = at + range.len();
            if page.entries.len() < end {
                let before = page.bytes();
                page.entries.resize_with(end, AtomicU64::default);
                grown += page.bytes() - before;
            }
            true
        });
        self.account(0, grown);
    }

    fn bytes(&self) -> usize {
        self.pages.values().map(Page::bytes).sum()
    }

    /// Tells the meter that what took `before` bytes takes `after`.
    fn account(&self, before: usize, after: usize) {
        if let Some(meter) = &self.meter {
            meter.0.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
        }
    }
}

impl Page {
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>() + PAGE_OVERHEAD_BYTES
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.account(self.bytes(), 0);
    }
}

/// Reads until `sink` is full or the file ends.
pub(crate) fn read_at<'a>(fd: &OwnedFd, offset: u64, sink: impl Into<Sink<'a>>) -> Result<usize, Errno> {
    read_until(offset, sink.into(), |mut rest, at| rest.pread(fd, at))
}

/// The same, as long as the bytes are in memory: see [`Sink::pread_cached`].
pub(crate) fn read_cached_at(fd: &OwnedFd, offset: u64, sink: Sink<'_>) -> Result<usize, Errno> {
    read_until(offset, sink, |mut rest, at| rest.pread_cached(fd, at))
}

fn read_until(
    offset: u64,
    mut sink: Sink<'_>,
    read: impl Fn(Sink<'_>, u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let len = sink.len();
    let mut done = 0;
    while done < len {
        match read(sink.part(done..len), offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn write_at(fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    match write_until(fd, offset, bytes) {
        (_, None) => Ok(()),
        (_, Some(errno)) => Err(errno),
    }
}

/// Writes until all is written or the host refuses; both can be.
pub(crate) fn write_until<'a>(fd: &OwnedFd, offset: u64, source: impl Into<Source<'a>>) -> (usize, Option<Errno>) {
    let source = source.into();
    let mut done = 0;
    while done < source.len() {
        match source.part(done..source.len()).pwrite(fd, offset + done as u64) {
            Ok(0) => return (done, Some(Errno::NOSPC)),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return (done, Some(e)),
        }
    }
    (done, None)
}
