//! Bytes that another process may change at any moment.
//!
//! A reference to such memory would be undefined behaviour: the compiler may read a slice twice and rely on getting the
//! same, or assume that nobody else writes to it. So there is never one. The bytes are copied to and from memory that is
//! this process's own, by an instruction that the compiler does not see into, or, where there is none, with one relaxed
//! atomic access for each word; what was copied is what is checked, summed, and used. A peer that changes its bytes
//! meanwhile gets a mixture of old and new ones, and harms only itself.
//!
//! 256 KiB take 2 to 3 µs by the instruction, as long as `memcpy` does, and 5 µs by words; writing them to a file in
//! memory takes 20 µs.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
#[cfg(any(test, not(target_arch = "x86_64")))]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD_LEN: usize = size_of::<u64>();
/// Bytes copied at a time, as words: so many that the loop costs little beside them.
#[cfg(any(test, not(target_arch = "x86_64")))]
const BLOCK_LEN: usize = 8 * WORD_LEN;

/// See the module.
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
    /// For all of `'a` the bytes are mapped for reading and writing, `start` is aligned to 8 bytes, and nothing in this
    /// process refers to them but by atomic or volatile access.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        debug_assert!(start.as_ptr().addr().is_multiple_of(WORD_LEN));
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

    /// Copies the first bytes into all of `own`, or into as much of it as there are bytes; gives how many.
    pub fn copy_to(&self, own: &mut [u8]) -> usize {
        let count = own.len().min(self.len);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `count` bytes are readable at `start` by the promise of `new`, and `own` is this side's.
        unsafe {
            copy_unseen(self.start.as_ptr(), own.as_mut_ptr(), count);
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.words().copy_to(&mut own[..count]);
        count
    }

    /// Copies `own` over the first bytes, or as much of it as there is room for; gives how many.
    pub fn copy_from(&self, own: &[u8]) -> usize {
        let count = own.len().min(self.len);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `count` bytes are writable at `start` by the promise of `new`, which is no part of `own`.
        unsafe {
            copy_unseen(own.as_ptr(), self.start.as_ptr(), count);
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.words().copy_from(&own[..count]);
        count
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn words(&self) -> Words<'_> {
        Words(self)
    }
}

/// Copies `count` bytes without telling the compiler what is read or written: to it this is what another process does.
///
/// # Safety
/// `from` may be read and `to` written, and the two do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_unseen(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's promise; the direction flag is clear, as it always is between calls.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The same bytes as atomic words.
#[cfg(any(test, not(target_arch = "x86_64")))]
struct Words<'a>(&'a SharedBytes<'a>);

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Words<'_> {
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(WORD_LEN) && at + WORD_LEN <= self.0.len);
        // SAFETY: inside the memory and aligned by the promise of `new`; an atomic may change under its reference.
        unsafe { self.0.start.add(at).cast().as_ref() }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.0.len);
        // SAFETY: as in `word`.
        unsafe { self.0.start.add(at).cast().as_ref() }
    }

    fn copy_to(&self, own: &mut [u8]) {
        let (blocks, rest) = own.as_chunks_mut::<BLOCK_LEN>();
        for (index, block) in blocks.iter_mut().enumerate() {
            let (words, _) = block.as_chunks_mut::<WORD_LEN>();
            for (place, word) in words.iter_mut().enumerate() {
                *word = self.word(index * BLOCK_LEN + place * WORD_LEN).load(Relaxed).to_ne_bytes();
            }
        }
        let done = blocks.len() * BLOCK_LEN;
        rest.iter_mut().enumerate().for_each(|(place, byte)| *byte = self.byte(done + place).load(Relaxed));
    }

    fn copy_from(&self, own: &[u8]) {
        let (blocks, rest) = own.as_chunks::<BLOCK_LEN>();
        for (index, block) in blocks.iter().enumerate() {
            let (words, _) = block.as_chunks::<WORD_LEN>();
            for (place, word) in words.iter().enumerate() {
                self.word(index * BLOCK_LEN + place * WORD_LEN).store(u64::from_ne_bytes(*word), Relaxed);
            }
        }
        let done = blocks.len() * BLOCK_LEN;
        rest.iter().enumerate().for_each(|(place, byte)| self.byte(done + place).store(*byte, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn over(words: &mut [u64], len: usize) -> SharedBytes<'_> {
        assert!(len <= size_of_val(words));
        // SAFETY: aligned memory of this test's, borrowed for as long as the result, and used through that alone.
        unsafe { SharedBytes::new(NonNull::from(words).cast(), len) }
    }

    proptest! {
        #[test]
        fn bytes_of_any_length_come_and_go(bytes in proptest::collection::vec(any::<u8>(), 0..300), room in 0usize..300) {
            let mut memory = [0xa5a5_a5a5_a5a5_a5a5; 64];
            let shared = over(&mut memory, room);
            let count = shared.copy_from(&bytes);
            prop_assert_eq!(count, bytes.len().min(room));
            let mut back = vec![0; 400];
            prop_assert_eq!(shared.copy_to(&mut back), room);
            prop_assert_eq!(&back[..count], &bytes[..count]);
            prop_assert!(back[count..room].iter().all(|byte| *byte == 0xa5), "the rest is as it was");
            prop_assert!(back[room..].iter().all(|byte| *byte == 0), "nothing beyond the end");
            let mut by_words = vec![0; room];
            shared.words().copy_to(&mut by_words);
            prop_assert_eq!(&by_words, &back[..room]);
            let other: Vec<u8> = by_words.iter().map(|byte| !byte).collect();
            shared.words().copy_from(&other);
            shared.copy_to(&mut back);
            prop_assert_eq!(&other, &back[..room]);
        }
    }
}
