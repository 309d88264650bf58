//! Reading and writing an object with the checksums of its blocks.
//!
//! # What it guarantees
//! * [`Blocks::read`] gives bytes that agree with their checksums, or says that they are damaged. What is missing reads as
//!   zeros only where nothing was ever written. Where whoever takes the bytes compares them ([`Sink::comparing`]), it tells him what their
//!   sums ought to be: if they are not, he reads once more without comparing, and hears what is wrong.
//! * A part of a block is written only where the rest of it is right: otherwise the new checksum would hide the damage.
//!   A whole block can always be written, and heals.
//!
//! # Concurrency
//! A write claims its blocks, puts bytes and then entries in place, and gives them up; so under the lock of [`Sums`], which
//! waits for claims to end, bytes and entries agree. Readers look at them without it: where they do not agree, a write may
//! have come between, and the block is read once more under the lock, into memory that nobody else has. Only what
//! disagrees there is damaged.
//!
//! # Memory that others may change
//! A write sums bytes, and then has the host write them: memory that somebody else can change in between would give a
//! block whose checksum is wrong. So such bytes are copied first ([`Source::stable`]), in pieces that stay in the
//! processor's cache until they are written. A read may go to such memory at once: what is summed is a copy, and what
//! does not agree with its checksum is read once more into memory that nobody else has, before it counts as damaged.

use crate::checksum::{BLOCK_BYTES, BLOCKS_MAX, PAGE_BYTES, Summer, blocks_in, is_zero};
use crate::holes::next_data;
use crate::known_damage::Known;
use crate::object_file::{ObjectFile, WriteMode};
use crate::sums::{Meter, Place, SidecarFault, Sums, Writing};
use isonomia_memory::{Sink, Source};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that are read or written at once: they stay in the processor's cache from being copied to being summed.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
const PIECE_BLOCKS: usize = PIECE_BYTES / BLOCK_BYTES;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that cannot be read, after which no more are tried where a write has failed.
const UNREADABLE_MAX: usize = 2;

/// What is wrong with a part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockFault {
    /// What the host says.
    Host(Errno),
    /// Bytes were lost or changed.
    Damaged {
        /// Where in the object.
        offset: u64,
        /// What was found.
        what: &'static str,
    },
}

/// What all objects have in common.
#[derive(Default)]
pub(crate) struct Watch {
    /// Memory of entries.
    pub meter: Arc<Meter>,
    /// Blocks of suspect objects whose entries were made anew.
    pub renewed: AtomicU64,
}

/// One object with its checksums. The caller sees to it that the object is not cut meanwhile.
pub(crate) struct Blocks<'a> {
    /// The object; `None` if there is no such file.
    pub object: Option<&'a ObjectFile>,
    pub sums: &'a Sums,
    pub place: Place<'a>,
    pub watch: &'a Watch,
    /// Which of its blocks are damaged, and who is to hear of more.
    pub known: Option<Known<'a>>,
    /// Whether a read may wait for the host; else it ends with `EAGAIN` where it would, or with `EOPNOTSUPP` where nobody
    /// knows.
    pub may_wait: bool,
    /// How writes go to the host.
    pub mode: WriteMode,
}

/// Memory for a copy of what is written: even, so that it can go past the page cache from there.
#[repr(C, align(4096))]
struct Room([MaybeUninit<u8>; PIECE_BYTES]);

impl Blocks<'_> {
    /// Fills `sink` from `offset` on, with zeros where nothing was written.
    pub fn read<'b>(&self, offset: u64, sink: impl Into<Sink<'b>>) -> Result<(), BlockFault> {
        let summer = Summer::new(self.place.object);
        let mut sink = sink.into();
        let len = sink.len();
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let rest = len - done;
            let count = if within == 0 && rest >= BLOCK_BYTES {
                let count = (rest - rest % BLOCK_BYTES).min(PIECE_BYTES);
                self.read_whole(summer, at / BLOCK, sink.part(done..done + count))?;
                count
            } else {
                let count = (BLOCK_BYTES - within).min(rest);
                let mut block = [0; BLOCK_BYTES];
                self.read_whole(summer, at / BLOCK, Sink::from(&mut block))?;
                sink.part(done..done + count).copy_from(&block[within..within + count]);
                count
            };
            done += count;
        }
        Ok(())
    }

    /// Has the host bring `len` bytes from `offset` on to memory, without waiting for them: what is then read in pieces costs
    /// the device's latency once.
    pub fn fetch(&self, offset: u64, len: u64) {
        if let (Some(object), Some(len)) = (self.object, NonZeroU64::new(len)) {
            object.fetch(offset, len);
        }
    }

    /// Reads whole blocks, [`PIECE_BYTES`] at most.
    fn read_whole(&self, summer: Summer, first: u64, mut sink: Sink<'_>) -> Result<(), BlockFault> {
        let mut entries = [0; PIECE_BLOCKS];
        let entries = &mut entries[..sink.len() / BLOCK_BYTES];
        if !self.sums.copy(first, entries) {
            if !self.may_wait {
                return Err(BlockFault::Host(Errno::AGAIN));
            }
            // The device is to look for the blocks while it looks for their checksums.
            self.fetch(first * BLOCK, sink.len() as u64);
            let mut writing = self.sums.lock();
            self.load(&mut writing, first, entries.len())?;
            self.sums.copy(first, entries);
        }
        let len = sink.len();
        self.read_raw(first * BLOCK, sink.part(0..len))?;
        // There checksums do not count where damage is known.
        let is_known = self.place.is_suspect && self.has_notes(first, first + entries.len() as u64 - 1);
        if !is_known && sink.compares() && leave_comparing(summer, first, entries, &sink) {
            return Ok(());
        }
        let mut room = [MaybeUninit::uninit(); BLOCK_BYTES];
        for (i, entry) in entries.iter().enumerate() {
            let number = first + i as u64;
            let mut block = sink.part(i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES);
            let agrees = match entry {
                0 => is_zero(block.stable(&mut room)),
                entry => summer.entry_of_sum(number, block.sum(&mut room)) == *entry,
            };
            if !agrees || is_known {
                self.read_again(summer, number, &mut block)?;
            }
        }
        Ok(())
    }

    /// A block that did not agree: alone, so that it is right or damaged.
    #[cold]
    fn read_again(&self, summer: Summer, number: u64, sink: &mut Sink<'_>) -> Result<(), BlockFault> {
        if !self.may_wait {
            return Err(BlockFault::Host(Errno::AGAIN));
        }
        let mut writing = self.sums.lock();
        let mut block = [0; BLOCK_BYTES];
        self.read_checked(&mut writing, summer, number, &mut block)?;
        sink.copy_from(&block);
        Ok(())
    }

    /// Reads one block under the lock. One of a suspect object gets a new entry if it needs one.
    fn read_checked(
        &self,
        writing: &mut Writing<'_>,
        summer: Summer,
        number: u64,
        block: &mut [u8; BLOCK_BYTES],
    ) -> Result<(), BlockFault> {
        self.load(writing, number, 1)?;
        self.read_raw(number * BLOCK, Sink::from(&mut block[..]))?;
        let entry = writing.entry(number);
        let agrees = summer.agrees(entry, number, block);
        if agrees && !self.place.is_suspect {
            return Ok(());
        }
        let sum = summer.entry(number, block);
        if !self.place.is_suspect {
            self.known.iter().for_each(|known| known.note(number, sum));
        } else if entry == sum || !self.is_as_found(number, sum) {
            if !agrees {
                writing.store(number, &[sum]);
                self.watch.renewed.fetch_add(1, Relaxed);
            }
            return Ok(());
        } else if entry == 0 {
            writing.store(number, &[Summer::other_than(sum)]);
        }
        let offset = number * BLOCK;
        Err(BlockFault::Damaged { offset, what: if self.ends_before(offset)? { "missing" } else { "wrong checksum" } })
    }

    /// Whether some blocks from `first` to `last` are known to be damaged.
    fn has_notes(&self, first: u64, last: u64) -> bool {
        self.known.is_some_and(|known| !known.noted(first, last).is_empty())
    }

    /// Whether the bytes of a block, with this sum, are those that were found when it was damaged.
    fn is_as_found(&self, number: u64, sum: u64) -> bool {
        self.known.is_some_and(|known| known.has(number, sum))
    }

    /// Blocks from `first` on have these entries now.
    fn note_written(&self, first: u64, entries: &[u64]) {
        if let Some(known) = &self.known {
            known.overwritten(first, entries);
        }
    }

    fn ends_before(&self, offset: u64) -> Result<bool, BlockFault> {
        let Some(object) = self.object else { return Ok(true) };
        Ok(rustix::fs::fstat(object).map_err(BlockFault::Host)?.st_size as u64 <= offset)
    }

    fn read_raw(&self, offset: u64, sink: Sink<'_>) -> Result<(), BlockFault> {
        read_or_zero(self.object, offset, sink, self.may_wait).map_err(BlockFault::Host)
    }

    fn load(&self, writing: &mut Writing<'_>, first: u64, count: usize) -> Result<(), BlockFault> {
        writing.load(&self.place, &self.watch.meter, first, count).map_err(|fault| sidecar_fault(fault, first * BLOCK))
    }

    /// Writes `source` at `offset`; tells how many bytes were written, and what kept it from more.
    pub fn write<'b>(&self, offset: u64, source: impl Into<Source<'b>>) -> (usize, Option<BlockFault>) {
        let source = source.into();
        if source.len() <= BLOCK_BYTES {
            self.write_pieces(offset, source, &mut [MaybeUninit::uninit(); BLOCK_BYTES])
        } else {
            self.write_large(offset, source)
        }
    }

    /// By itself, because touching so much of the stack takes as long as a tenth of a small write.
    #[inline(never)]
    fn write_large(&self, offset: u64, source: Source<'_>) -> (usize, Option<BlockFault>) {
        self.write_pieces(offset, source, &mut Room([MaybeUninit::uninit(); PIECE_BYTES]).0)
    }

    /// Writes in pieces for which `room` is large enough.
    fn write_pieces(
        &self,
        offset: u64,
        source: Source<'_>,
        room: &mut [MaybeUninit<u8>],
    ) -> (usize, Option<BlockFault>) {
        let mut done = 0;
        while done < source.len() {
            let at = offset + done as u64;
            // Pieces end at whole blocks, so that no block is summed twice.
            let len = (PIECE_BYTES - (at % BLOCK) as usize).min(source.len() - done);
            let (written, fault) = match self.write_piece(at, source.part(done..done + len), room) {
                Ok(written) => written,
                Err(fault) => (0, Some(fault)),
            };
            done += written;
            if fault.is_some() {
                return (done, fault);
            }
        }
        (done, None)
    }

    /// [`PIECE_BYTES`] at most, within so many blocks.
    fn write_piece(
        &self,
        offset: u64,
        source: Source<'_>,
        room: &mut [MaybeUninit<u8>],
    ) -> Result<(usize, Option<BlockFault>), BlockFault> {
        let summer = Summer::new(self.place.object);
        let object = self.object.ok_or(BlockFault::Host(Errno::BADF))?;
        let mut entries = [0; PIECE_BLOCKS];
        let (first, end) = (offset / BLOCK, offset + source.len() as u64);
        let count = (blocks_in(end) - first) as usize;
        let entries = &mut entries[..count];
        let first_whole = blocks_in(offset);
        let buf = source.stable_with_sums(room, (first_whole * BLOCK - offset) as usize, |i, sum| {
            let number = first_whole + i as u64;
            entries[(number - first) as usize] = summer.entry_of_sum(number, sum);
        });
        let blocks = first..first + count as u64;
        let mut writing = self.sums.lock_blocks(&blocks);
        self.load(&mut writing, first, count)?;
        for i in [0, count - 1] {
            let number = first + i as u64;
            if let Some(part) = part_in(number, offset, buf)
                && part.len() < BLOCK_BYTES
            {
                entries[i] = self.sum_merged(&mut writing, summer, number, offset, part)?;
            }
        }
        if self.known.is_some_and(|known| known.comes_again(first, entries)) {
            // What was written over the damage is to be on stable storage before nothing tells any more that it was damage.
            rustix::fs::fdatasync(object).map_err(BlockFault::Host)?;
            self.note_written(first, entries);
        }
        let claim = writing.claim(blocks);
        let (written, errno) = object.write(offset, Source::from(buf), self.mode);
        let mut writing = claim.lock();
        let Some(errno) = errno else {
            writing.store(first, entries);
            self.note_written(first, entries);
            return Ok((written, None));
        };
        let whole = (((offset + written as u64) / BLOCK).saturating_sub(first) as usize).min(count);
        writing.store(first, &entries[..whole]);
        self.note_written(first, &entries[..whole]);
        let touched = if object.goes_past(self.mode) { count } else { count.min(whole + 1) };
        // Who may change nothing has written nothing.
        if object.to_change().is_ok() {
            self.sum_what_is_there(&mut writing, summer, first + whole as u64..first + touched as u64);
        }
        Ok((written, Some(BlockFault::Host(errno))))
    }

    /// After a write that failed: the host may have written a part of the first of these blocks, and past the page cache all or some
    /// of any of them, whatever it says. So their checksums are those of what is there now. A block that cannot be read keeps
    /// the one that it has, and so do all after the [`UNREADABLE_MAX`]th: a device takes long to say that it cannot read.
    fn sum_what_is_there(&self, writing: &mut Writing<'_>, summer: Summer, numbers: Range<u64>) {
        let Some(object) = self.object else { return };
        let count = numbers.end.saturating_sub(numbers.start) as usize;
        let mut bytes = vec![0; count * BLOCK_BYTES];
        let is_whole = object.read_again(numbers.start * BLOCK, Sink::from(&mut bytes)).is_ok();
        let mut unreadable = 0;
        for (number, block) in numbers.zip(bytes.as_chunks_mut::<BLOCK_BYTES>().0) {
            if !is_whole && object.read_again(number * BLOCK, Sink::from(&mut block[..])).is_err() {
                unreadable += 1;
                if unreadable == UNREADABLE_MAX {
                    return;
                }
                continue;
            }
            let sum = summer.entry(number, block);
            // Damage that the write did not come to stays.
            if !summer.agrees(writing.entry(number), number, block) && !self.is_as_found(number, sum) {
                writing.store(number, &[sum]);
            }
        }
    }

    /// The entry of a block of which `part` is about to be written.
    fn sum_merged(
        &self,
        writing: &mut Writing<'_>,
        summer: Summer,
        number: u64,
        offset: u64,
        part: &[u8],
    ) -> Result<u64, BlockFault> {
        let mut block = [0; BLOCK_BYTES];
        // Where nothing was written there is nothing to read.
        if writing.entry(number) != 0 || self.place.is_suspect {
            self.read_checked(writing, summer, number, &mut block)?;
        }
        let within = offset.saturating_sub(number * BLOCK) as usize;
        block[within..within + part.len()].copy_from_slice(part);
        Ok(summer.entry(number, &block))
    }

    /// Brings the object to `len` bytes, longer or shorter. The caller has it alone.
    pub fn resize(&self, len: u64) -> Result<(), BlockFault> {
        let summer = Summer::new(self.place.object);
        let object = self.object.ok_or(BlockFault::Host(Errno::BADF))?;
        let size = rustix::fs::fstat(object).map_err(BlockFault::Host)?.st_size as u64;
        let mut writing = self.sums.lock();
        let mut last = None;
        let (number, within) = (len / BLOCK, (len % BLOCK) as usize);
        if len < size && within > 0 {
            let mut block = [0; BLOCK_BYTES];
            self.read_checked(&mut writing, summer, number, &mut block)?;
            block[within..].fill(0);
            let entry = writing.entry(number);
            last = Some(if entry == 0 { 0 } else { summer.entry(number, &block) });
        }
        if len < size {
            // First: nobody is to take what is cut off for lost. If the rest fails it is still there, behind the end of the file.
            writing.cut(&self.place, blocks_in(len)).map_err(|fault| sidecar_fault(fault, len))?;
        }
        object.to_change().and_then(|fd| rustix::fs::ftruncate(fd, len)).map_err(BlockFault::Host)?;
        if let Some(entry) = last {
            writing.store(number, &[entry]);
            self.note_written(number, &[entry]);
        }
        self.known.iter().for_each(|known| known.cut(blocks_in(len)));
        Ok(())
    }

    /// Lets `change` make zeros, or a hole, of `len` bytes at `offset`. The caller has the object alone.
    pub fn zero(&self, offset: u64, len: u64, change: &dyn Fn() -> Result<(), Errno>) -> Result<(), BlockFault> {
        let summer = Summer::new(self.place.object);
        let mut writing = self.sums.lock();
        let end = offset + len;
        let summed = writing.blocks(&self.place).map_err(|fault| sidecar_fault(fault, offset))?;
        let (first, last) = (offset / BLOCK, blocks_in(end).min(summed));
        // The blocks at the ends lose a part only.
        let mut parts: [Option<(u64, u64)>; 2] = [None; 2];
        for (part, number) in parts.iter_mut().zip([first, last.saturating_sub(1)]) {
            let (start, stop) = (number * BLOCK, (number + 1) * BLOCK);
            if (first..last).contains(&number) && (start < offset || stop > end) {
                let mut block = [0; BLOCK_BYTES];
                self.read_checked(&mut writing, summer, number, &mut block)?;
                block[offset.saturating_sub(start) as usize..(end.min(stop) - start) as usize].fill(0);
                let was_written = writing.entry(number) != 0;
                *part = Some((number, if was_written { summer.entry(number, &block) } else { 0 }));
            }
        }
        let changed = change();
        if changed == Err(Errno::OPNOTSUPP) {
            return Err(BlockFault::Host(Errno::OPNOTSUPP));
        }
        let mut at = first;
        while let Some(next) =
            writing.next_written(&self.place, at).map_err(|fault| sidecar_fault(fault, at * BLOCK))?
        {
            at = next;
            if at >= last {
                break;
            }
            let run = (last - at).min((PAGE_BYTES / size_of::<u64>()) as u64) as usize;
            self.load(&mut writing, at, run)?;
            let mut entries = vec![0; run];
            self.sums.copy(at, &mut entries);
            let is_written = entries.iter().any(|entry| *entry != 0);
            for (number, entry) in (at..).zip(&mut entries) {
                let part = parts.iter().flatten().find(|(part, _)| *part == number);
                let zeroed = part.map_or(0, |(_, entry)| *entry);
                // Of a change that failed some may have happened.
                if changed.is_ok() || !self.is_as(summer, number, *entry)? && self.is_as(summer, number, zeroed)? {
                    *entry = zeroed;
                }
            }
            if is_written {
                writing.store(at, &entries);
            }
            if changed.is_ok() {
                self.note_written(at, &entries);
            }
            at += run as u64;
        }
        if let Some(known) = self.known.filter(|_| changed.is_ok()) {
            // Also where no checksum says that anything was written.
            known.zeroed(blocks_in(offset)..end / BLOCK);
        }
        changed.map_err(BlockFault::Host)
    }

    fn is_as(&self, summer: Summer, number: u64, entry: u64) -> Result<bool, BlockFault> {
        let mut block = [0; BLOCK_BYTES];
        self.read_raw(number * BLOCK, Sink::from(&mut block))?;
        Ok(summer.agrees(entry, number, &block))
    }

    /// Whether the object ends before the last block that was written, or nobody can tell.
    pub fn is_short(&self) -> Result<bool, BlockFault> {
        match self.sums.lock().blocks(&self.place) {
            Ok(summed) => Ok(summed > 0 && self.ends_before((summed - 1) * BLOCK)?),
            Err(SidecarFault::Damaged(_)) => Ok(true),
            Err(SidecarFault::Host(errno)) => Err(BlockFault::Host(errno)),
        }
    }

    /// Takes the object to be as long as it is, whatever its checksums say: it is suspect. Blocks behind its end that are known to be
    /// lost stay so.
    pub fn believe_end(&self) -> Result<(), BlockFault> {
        let mut writing = self.sums.lock();
        let size = match self.object {
            Some(object) => rustix::fs::fstat(object).map_err(BlockFault::Host)?.st_size as u64,
            None => 0,
        };
        let fail = |fault| sidecar_fault(fault, size);
        if writing.blocks(&self.place).map_err(fail)? > blocks_in(size) {
            writing.cut(&self.place, blocks_in(size)).map_err(fail)?;
        }
        let summer = Summer::new(self.place.object);
        for number in self.known.map_or(Vec::new(), |known| known.noted(blocks_in(size), BLOCKS_MAX)) {
            match self.read_checked(&mut writing, summer, number, &mut [0; BLOCK_BYTES]) {
                Ok(()) | Err(BlockFault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Blocks that the object has, or should have.
    pub fn count(&self) -> Result<u64, BlockFault> {
        let summed = self.sums.lock().blocks(&self.place).map_err(|fault| sidecar_fault(fault, 0))?;
        Ok(summed.max(self.count_there()?))
    }

    /// Blocks that the object has.
    pub fn count_there(&self) -> Result<u64, BlockFault> {
        let Some(object) = self.object else { return Ok(0) };
        Ok(blocks_in(rustix::fs::fstat(object).map_err(BlockFault::Host)?.st_size as u64))
    }

    /// The first block from `first` on that may have been written: where both the object and its checksums have a hole,
    /// nothing was, and nothing can be lost. `None` if there is none.
    pub fn next_written(&self, first: u64) -> Result<Option<u64>, BlockFault> {
        let summed = self.sums.lock().next_written(&self.place, first);
        let summed = summed.map_err(|fault| sidecar_fault(fault, first * BLOCK))?;
        let Some(object) = self.object else { return Ok(summed) };
        let in_object = next_data(object, first * BLOCK).map_err(BlockFault::Host)?.map(|at| at / BLOCK);
        Ok(summed.into_iter().chain(in_object).min())
    }

    /// Looks at `count` blocks from `first` on, [`PIECE_BYTES`] at most at once: calls `damaged` with each one that is, and what
    /// is wrong. Entries of a suspect object are renewed.
    pub fn verify(
        &self,
        first: u64,
        count: usize,
        mut damaged: impl FnMut(u64, &'static str),
    ) -> Result<(), BlockFault> {
        let summer = Summer::new(self.place.object);
        let mut buf = vec![0; count.min(PIECE_BLOCKS) * BLOCK_BYTES];
        let mut number = first;
        let end = first + count as u64;
        while number < end {
            let len = buf.len().min((end - number) as usize * BLOCK_BYTES);
            let Err(fault) = self.read_whole(summer, number, Sink::from(&mut buf[..len])) else {
                number += (len / BLOCK_BYTES) as u64;
                continue;
            };
            match fault {
                BlockFault::Damaged { offset, what } => damaged(offset, what),
                // A sector that cannot be read; the rest can be looked at.
                BlockFault::Host(Errno::IO) if len == BLOCK_BYTES => damaged(number * BLOCK, "cannot be read"),
                BlockFault::Host(Errno::IO) => {
                    for one in number..number + (len / BLOCK_BYTES) as u64 {
                        self.verify(one, 1, &mut damaged as &mut dyn FnMut(u64, &'static str))?;
                    }
                    number += (len / BLOCK_BYTES) as u64;
                    continue;
                }
                fault => return Err(fault),
            }
            number = match fault {
                BlockFault::Damaged { offset, .. } => offset / BLOCK + 1,
                BlockFault::Host(_) => number + 1,
            };
        }
        Ok(())
    }
}

pub(crate) fn sidecar_fault(fault: SidecarFault, offset: u64) -> BlockFault {
    match fault {
        SidecarFault::Host(errno) => BlockFault::Host(errno),
        SidecarFault::Damaged(what) => BlockFault::Damaged { offset, what },
    }
}

/// Leaves it to whoever takes the blocks from `first` on to compare them with their `entries`; false if it must be done here.
fn leave_comparing(summer: Summer, first: u64, entries: &[u64], sink: &Sink<'_>) -> bool {
    let mut sums = [0; PIECE_BLOCKS];
    let sums = &mut sums[..entries.len()];
    sums.iter_mut().zip(entries).zip(first..).all(|((sum, entry), number)| {
        let told = summer.sum_of_entry(number, *entry);
        *sum = told.unwrap_or_default();
        told.is_some()
    }) && sink.expect(sums)
}

/// Fills `sink` from `offset` of the object on, with zeros where it has nothing. With `may_wait` false it ends with an
/// error where it would have to wait: see [`Blocks::may_wait`].
pub(crate) fn read_or_zero(
    object: Option<&ObjectFile>,
    offset: u64,
    mut sink: Sink<'_>,
    may_wait: bool,
) -> Result<(), Errno> {
    let len = sink.len();
    let got = match object {
        Some(object) => object.read(offset, sink.part(0..len), may_wait)?,
        None => 0,
    };
    sink.part(got..len).zero();
    Ok(())
}

/// What of `buf`, which is for `offset`, is for the block `number`.
fn part_in(number: u64, offset: u64, buf: &[u8]) -> Option<&[u8]> {
    let start = (number * BLOCK).saturating_sub(offset) as usize;
    let end = ((number + 1) * BLOCK).checked_sub(offset)?.min(buf.len() as u64) as usize;
    buf.get(start..end).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests;
