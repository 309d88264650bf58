//! Where the bytes of a read go, and those of a write come from.
//!
//! Memory that a client shares with the server may change at any moment, on both sides: each of them may be hostile. A reference to it would be undefined
//! behaviour: the compiler may read a slice twice and rely on getting the same, or assume that nobody else writes to it.
//! So there is never one. The host's `pread` and `pwrite` take such memory by its address, and whoever looks at bytes
//! copies them first, to memory that is this process's own; what was copied is what is checked, summed, and used. A peer
//! that changes its bytes meanwhile gets a mixture of old and new ones, and harms only itself.
//!
//! * [`SharedBytes`]: memory that somebody else may change.
//! * [`Source`]: bytes to be written, in such memory or in one's own. [`Sink`]: room for bytes that are read.
//! * [`Expected`]: what blocks that are read ought to be, for whoever takes them out of such memory.

mod copy;
mod expected;
mod summed_copy;

use copy::copy_unseen;
pub use expected::Expected;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
pub use summed_copy::{BLOCK_LEN, sum_of_block};
use summed_copy::{LONG_COPY_LEN, copy_and_then_sum, copy_blocks, sum_blocks};

/// Bytes that another process may change at any moment.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: NonNull<u8>,
    len: usize,
    /// Borrowed from whatever keeps the memory mapped.
    mapping: PhantomData<&'a AtomicU8>,
}

impl<'a> SharedBytes<'a> {
    /// `len` bytes at `start`.
    ///
    /// # Safety
    /// For all of `'a` the bytes are mapped for reading and writing, and nothing in this process refers to them but by
    /// atomic or volatile access.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, mapping: PhantomData }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `len` bytes, or all if there are fewer.
    pub fn first(self, len: usize) -> Self {
        Self { len: len.min(self.len), ..self }
    }

    /// What follows the first `len` bytes: nothing if there are no more.
    pub fn after(self, len: usize) -> Self {
        let len = len.min(self.len);
        // SAFETY: within the bytes, or at their end.
        Self { start: unsafe { self.start.add(len) }, len: self.len - len, ..self }
    }

    /// Where it begins, to tell it from other memory.
    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Copies the first bytes into all of `own`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn copy_to(&self, own: &mut [u8]) {
        Source::from(*self).copy_to(own);
    }

    /// As [`Self::copy_to`]; `each` gets the sum ([`sum_of_block`]) of every whole block of what was copied, and how many blocks came
    /// before.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn copy_to_with_sums(&self, own: &mut [u8], each: impl FnMut(usize, u64)) {
        check_range(&(0..own.len()), self.len);
        let len = own.len();
        // SAFETY: bytes are as well bytes that need no value yet, and what is written to them has one.
        let room = unsafe { std::slice::from_raw_parts_mut(own.as_mut_ptr().cast::<MaybeUninit<u8>>(), len) };
        let bytes = Source::from(self.first(len));
        if len < LONG_COPY_LEN {
            bytes.stable_with_sums(room, 0, each);
            return;
        }
        let (blocks, last) = room.as_chunks_mut();
        // SAFETY: the blocks are the first of the bytes, which are readable for the life of `self` and no part of `own`.
        unsafe { copy_and_then_sum(self.start.as_ptr(), blocks, each) };
        bytes.part(len - last.len()..len).stable(last);
    }

    /// A copy of all bytes. Of memory that is not zeroed first: glibc gives small pieces of such memory, unlike zeroed ones,
    /// from a cache of the thread.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut own = Vec::with_capacity(self.len);
        // SAFETY: `len` bytes are readable at `start` by the promise of `new`, and `own` has room for as many, which are
        // its content once they are copied.
        unsafe {
            copy_unseen(self.start.as_ptr(), own.as_mut_ptr(), self.len);
            own.set_len(self.len);
        }
        own
    }

    /// Copies `own` over the first bytes, or as much of it as there is room for; gives how many.
    pub fn copy_from(&self, own: &[u8]) -> usize {
        let count = own.len().min(self.len);
        // SAFETY: `count` bytes are writable at `start` by the promise of `new`, which is no part of `own`.
        unsafe { copy_unseen(own.as_ptr(), self.start.as_ptr(), count) };
        count
    }
}

/// Bytes to be written.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    start: NonNull<u8>,
    len: usize,
    is_own: bool,
    memory: PhantomData<&'a AtomicU8>,
}

impl<'a> Source<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of the bytes.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(&self, range: Range<usize>) -> Self {
        check_range(&range, self.len);
        // SAFETY: within the bytes.
        Self { start: unsafe { self.start.add(range.start) }, len: range.len(), ..*self }
    }

    /// The bytes as they stay: where they are if nobody else can change them, else a copy in `room`.
    ///
    /// # Panics
    /// If `room` is too small for a copy.
    pub fn stable<'r>(&self, room: &'r mut [MaybeUninit<u8>]) -> &'r [u8]
    where
        'a: 'r,
    {
        if self.is_own {
            // SAFETY: it was made of a slice that is borrowed for `'a`.
            return unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) };
        }
        let room = &mut room[..self.len];
        // SAFETY: the bytes are readable for `'a`, and `room`, which is this process's, has room for as many.
        unsafe {
            copy_unseen(self.start.as_ptr(), room.as_mut_ptr().cast(), self.len);
            room.assume_init_ref()
        }
    }

    /// As [`Self::stable`]; `each` gets the sum ([`sum_of_block`]) of every whole block that is among them, the first of which
    /// begins after `lead` bytes, and how many blocks came before. A copy is summed while it is made.
    ///
    /// # Panics
    /// If `room` is too small for a copy.
    pub fn stable_with_sums<'r>(
        &self,
        room: &'r mut [MaybeUninit<u8>],
        lead: usize,
        each: impl FnMut(usize, u64),
    ) -> &'r [u8]
    where
        'a: 'r,
    {
        let lead = lead.min(self.len);
        if self.is_own {
            let bytes = self.stable(room);
            let (blocks, _) = bytes[lead..].as_chunks();
            sum_blocks(blocks, each);
            return bytes;
        }
        let room = &mut room[..self.len];
        let (first, rest) = room.split_at_mut(lead);
        let (blocks, last) = rest.as_chunks_mut();
        let last_at = self.len - last.len();
        self.part(0..lead).stable(first);
        // SAFETY: the blocks are within the bytes, which are readable for `'a` and no part of `room`, this process's.
        unsafe { copy_blocks(self.start.as_ptr().add(lead), blocks, each) };
        self.part(last_at..self.len).stable(last);
        // SAFETY: the three parts are all of it, and filled.
        unsafe { room.assume_init_ref() }
    }

    /// Copies the first bytes into all of `own`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn copy_to(&self, own: &mut [u8]) {
        check_range(&(0..own.len()), self.len);
        // SAFETY: as many bytes are readable for `'a`, and `own` is exclusively borrowed, and so no part of them.
        unsafe { copy_unseen(self.start.as_ptr(), own.as_mut_ptr(), own.len()) };
    }

    /// Whether the first byte is at a multiple of `align`, a power of two.
    pub fn is_aligned_to(&self, align: usize) -> bool {
        self.start.as_ptr().addr() & (align - 1) == 0
    }

    /// Writes to a file at `offset` what the host takes of the bytes; tells how many those were.
    pub fn pwrite(&self, file: impl AsFd, offset: u64) -> Result<usize, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::FBIG)?;
        let file = file.as_fd().as_raw_fd();
        // The bare call: the C library's function is a point where a thread can be cancelled, which costs 30 ns.
        // SAFETY: the host reads `len` bytes, which are readable for `'a`.
        count_or_errno(unsafe { libc::syscall(libc::SYS_pwrite64, file, self.start.as_ptr(), self.len, offset) })
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(own: &'a [u8]) -> Self {
        Self { start: NonNull::from(own).cast(), len: own.len(), is_own: true, memory: PhantomData }
    }
}

impl<'a, const LEN: usize> From<&'a [u8; LEN]> for Source<'a> {
    fn from(own: &'a [u8; LEN]) -> Self {
        Self::from(own.as_slice())
    }
}

impl<'a> From<&'a Vec<u8>> for Source<'a> {
    fn from(own: &'a Vec<u8>) -> Self {
        Self::from(own.as_slice())
    }
}

impl<'a> From<SharedBytes<'a>> for Source<'a> {
    fn from(shared: SharedBytes<'a>) -> Self {
        Self { start: shared.start, len: shared.len, is_own: false, memory: PhantomData }
    }
}

/// Room for bytes that are read.
#[derive(Debug)]
pub struct Sink<'a> {
    start: NonNull<u8>,
    len: usize,
    is_own: bool,
    /// And how many blocks come before this part.
    expected: Option<(&'a Expected<'a>, usize)>,
    memory: PhantomData<&'a mut AtomicU8>,
}

impl<'a> Sink<'a> {
    /// The same room, whose bytes are taken by somebody who compares their blocks with what is `expected`.
    pub fn comparing(self, expected: &'a Expected<'a>) -> Self {
        Self { expected: Some((expected, 0)), ..self }
    }

    /// The same room, whose bytes nobody compares who takes them.
    pub fn not_comparing(self) -> Self {
        Self { expected: None, ..self }
    }
}

impl Sink<'_> {
    /// Whether somebody compares what is put there: see [`Self::expect`].
    pub fn compares(&self) -> bool {
        self.expected.is_some()
    }

    /// Leaves it to whoever takes the bytes to see whether the first blocks have these sums ([`sum_of_block`]). False if nobody
    /// will.
    pub fn expect(&self, sums: &[u64]) -> bool {
        self.expected.is_some_and(|(expected, before)| expected.tell(before, sums))
    }

    /// How many bytes there is room for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the room.
    ///
    /// # Panics
    /// If there is less.
    pub fn part(&mut self, range: Range<usize>) -> Sink<'_> {
        check_range(&range, self.len);
        // SAFETY: within the room.
        let start = unsafe { self.start.add(range.start) };
        let is_even = range.start.is_multiple_of(BLOCK_LEN);
        let expected = self.expected.filter(|_| is_even);
        let expected = expected.map(|(expected, before)| (expected, before + range.start / BLOCK_LEN));
        Sink { start, len: range.len(), is_own: self.is_own, expected, memory: PhantomData }
    }

    /// Copies `own` to the beginning of the room.
    ///
    /// # Panics
    /// If there is less room.
    pub fn copy_from(&mut self, own: &[u8]) {
        check_range(&(0..own.len()), self.len);
        // SAFETY: there is room for as many bytes, writable for `'a`, and `own` is no part of it: either that is
        // exclusively borrowed, or not this process's.
        unsafe { copy_unseen(own.as_ptr(), self.start.as_ptr(), own.len()) };
    }

    /// Fills the room with zeros.
    pub fn zero(&mut self) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut done = 0;
        while done < self.len {
            let count = ZEROS.len().min(self.len - done);
            self.part(done..done + count).copy_from(&ZEROS[..count]);
            done += count;
        }
    }

    /// What is in the room now, as it stays: a view of it if nobody else can change it, else a copy in `room`. The room
    /// must have been filled.
    ///
    /// # Panics
    /// If `room` is too small for a copy.
    pub fn stable<'r>(&'r self, room: &'r mut [MaybeUninit<u8>]) -> &'r [u8] {
        self.filled().stable(room)
    }

    /// The sum ([`sum_of_block`]) of the block in the room, which must have been filled; `room` is for a copy.
    ///
    /// # Panics
    /// If there is less than a block.
    pub fn sum(&self, room: &mut [MaybeUninit<u8>; BLOCK_LEN]) -> u64 {
        check_range(&(0..BLOCK_LEN), self.len);
        let mut found = 0;
        self.filled().part(0..BLOCK_LEN).stable_with_sums(room, 0, |_, sum| found = sum);
        found
    }

    /// What is in the room.
    fn filled(&self) -> Source<'_> {
        Source { start: self.start, len: self.len, is_own: self.is_own, memory: PhantomData }
    }

    /// Whether the first byte is at a multiple of `align`, a power of two.
    pub fn is_aligned_to(&self, align: usize) -> bool {
        self.start.as_ptr().addr() & (align - 1) == 0
    }

    /// Reads from a file at `offset` what the host gives; tells how many bytes those were.
    pub fn pread(&mut self, file: impl AsFd, offset: u64) -> Result<usize, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        let file = file.as_fd().as_raw_fd();
        // SAFETY: the host writes `len` bytes at most, which are writable for `'a`.
        count_or_errno(unsafe { libc::syscall(libc::SYS_pread64, file, self.start.as_ptr(), self.len, offset) })
    }
}

impl Sink<'_> {
    /// As [`Self::pread`], of what the host has in memory: `EAGAIN` if that is nothing of it, and `EOPNOTSUPP` if the host
    /// does not tell.
    pub fn pread_cached(&mut self, file: impl AsFd, offset: u64) -> Result<usize, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        let file = file.as_fd().as_raw_fd();
        let room = libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.len };
        let high: libc::off_t = 0;
        // The offset goes in two halves, of which 64-bit hosts take the whole from the first.
        // SAFETY: the host writes `len` bytes at most, which are writable for `'a`.
        count_or_errno(unsafe {
            libc::syscall(libc::SYS_preadv2, file, &raw const room, 1usize, offset, high, libc::RWF_NOWAIT)
        })
    }
}

impl<'a> From<&'a mut [u8]> for Sink<'a> {
    fn from(own: &'a mut [u8]) -> Self {
        Self { len: own.len(), start: NonNull::from(own).cast(), is_own: true, expected: None, memory: PhantomData }
    }
}

impl<'a, const LEN: usize> From<&'a mut [u8; LEN]> for Sink<'a> {
    fn from(own: &'a mut [u8; LEN]) -> Self {
        Self::from(own.as_mut_slice())
    }
}

impl<'a> From<&'a mut Vec<u8>> for Sink<'a> {
    fn from(own: &'a mut Vec<u8>) -> Self {
        Self::from(own.as_mut_slice())
    }
}

impl<'a> From<SharedBytes<'a>> for Sink<'a> {
    fn from(shared: SharedBytes<'a>) -> Self {
        Self { start: shared.start, len: shared.len, is_own: false, expected: None, memory: PhantomData }
    }
}

fn check_range(range: &Range<usize>, len: usize) {
    assert!(range.start <= range.end && range.end <= len, "{range:?} of {len} bytes");
}

fn count_or_errno(returned: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    pub(crate) fn over(memory: &mut [u8]) -> SharedBytes<'_> {
        let len = memory.len();
        // SAFETY: memory of this test's, borrowed for as long as the result, and used through that alone.
        unsafe { SharedBytes::new(NonNull::from(memory).cast(), len) }
    }

    #[test]
    fn copies_have_what_fits() {
        let mut memory = [7; 10];
        let shared = over(&mut memory);
        assert_eq!(shared.copy_from(&[1, 2, 3]), 3);
        assert_eq!(shared.first(2).copy_from(&[9; 5]), 2);
        assert_eq!(shared.to_vec(), [9, 9, 3, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(shared.first(4).to_vec(), [9, 9, 3, 7]);
        assert!(shared.first(0).to_vec().is_empty());
        assert_eq!(shared.after(2).first(2).to_vec(), [3, 7]);
        assert_eq!(shared.after(9).copy_from(&[5; 4]), 1);
        assert!(shared.after(10).is_empty() && shared.after(11).is_empty());
        let mut own = [0; 3];
        shared.after(7).copy_to(&mut own);
        assert_eq!(own, [7, 7, 5]);
    }

    #[test]
    fn what_stays_comes_with_the_sums_of_its_blocks() {
        let mut memory: Vec<u8> = (0..3 * BLOCK_LEN + 50).map(|at| ((at * at) >> 4) as u8).collect();
        let own = memory.clone();
        let shared = over(&mut memory);
        for (lead, len) in [(0, BLOCK_LEN), (0, 10), (20, 20), (20, 15), (7, own.len()), (0, own.len())] {
            let expected: Vec<u64> = own[lead.min(len)..len].as_chunks().0.iter().map(sum_of_block).collect();
            for source in [Source::from(shared), Source::from(&own)] {
                let (mut room, mut sums) = (vec![MaybeUninit::uninit(); len], Vec::new());
                let stays = source.part(0..len).stable_with_sums(&mut room, lead, |number, sum| {
                    assert_eq!(number, sums.len());
                    sums.push(sum);
                });
                assert_eq!((stays, &sums), (&own[..len], &expected));
            }
        }
    }

    #[test]
    fn bytes_go_to_a_file_and_back_from_any_memory() {
        let file = rustix::fs::memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap();
        let mut memory: Vec<u8> = (0..100).collect();
        let own = memory.clone();
        let shared = over(&mut memory);
        assert_eq!(Source::from(&own).part(0..60).pwrite(&file, 0), Ok(60));
        assert_eq!(Source::from(shared).part(60..100).pwrite(&file, 60), Ok(40));
        let mut back = [0; 120];
        assert_eq!(Sink::from(&mut back).pread(&file, 0), Ok(100));
        assert_eq!(&back[..100], &own[..]);
        let mut sink = Sink::from(shared);
        sink.zero();
        assert_eq!(sink.part(10..50).pread(&file, 0), Ok(40));
        let mut room = [MaybeUninit::uninit(); 100];
        let stable = sink.stable(&mut room);
        assert!(stable[..10].iter().chain(&stable[50..]).all(|byte| *byte == 0));
        assert_eq!(&stable[10..50], &own[..40]);
    }

    #[test]
    fn what_others_can_change_is_copied_before_it_is_looked_at() {
        let mut memory = [1; 8];
        let shared = over(&mut memory);
        let mut room = [MaybeUninit::uninit(); 8];
        let stable = Source::from(shared).stable(&mut room);
        shared.copy_from(&[2; 8]);
        assert_eq!(stable, [1; 8]);
        let mut copy = [0; 5];
        Source::from(shared).copy_to(&mut copy);
        assert_eq!(copy, [2; 5]);
        let own = [3; 8];
        assert_eq!(Source::from(&own).stable(&mut []).as_ptr(), own.as_ptr(), "own memory is not copied");
    }

    #[test]
    #[should_panic(expected = "3..9 of 8 bytes")]
    fn a_part_beyond_the_end_is_refused() {
        let _ = Source::from(&[0; 8]).part(3..9);
    }

    #[test]
    fn the_host_s_refusal_is_told() {
        let file = rustix::fs::memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(Source::from(&[0; 8]).pwrite(&file, u64::MAX), Err(Errno::FBIG));
        assert_eq!(Sink::from(&mut [0; 8]).pread(&file, u64::MAX), Err(Errno::INVAL));
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(Source::from(&[0; 8]).pwrite(&writer, 0), Err(Errno::SPIPE));
        drop(reader);
    }
}
