//! Bytes that another process may change at any moment.
//!
//! A reference to such memory would be undefined behaviour: the compiler may read a slice twice and rely on getting the
//! same, or assume that nobody else writes to it. So there is never one. The bytes are copied, one relaxed atomic access
//! for each word, to and from memory that is this process's own; what was copied is what is checked, summed, and used.
//! A peer that changes its bytes meanwhile gets a mixture of old and new ones, and harms only itself.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const WORD_LEN: usize = size_of::<u64>();
/// Words copied at a time: so many that the loop costs little beside them.
const WORDS: usize = 8;
const BLOCK_LEN: usize = WORDS * WORD_LEN;

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

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(WORD_LEN) && at + WORD_LEN <= self.len);
        // SAFETY: inside the memory and aligned by the promise of `new`; an atomic may change under its reference.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: as in `word`.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// Copies the first bytes into all of `own`, or into as much of it as there are bytes; gives how many.
    pub fn copy_to(&self, own: &mut [u8]) -> usize {
        let count = own.len().min(self.len);
        let (blocks, rest) = own[..count].as_chunks_mut::<BLOCK_LEN>();
        for (index, block) in blocks.iter_mut().enumerate() {
            let (words, _) = block.as_chunks_mut::<WORD_LEN>();
            for (place, word) in words.iter_mut().enumerate() {
                *word = self.word(index * BLOCK_LEN + place * WORD_LEN).load(Relaxed).to_ne_bytes();
            }
        }
        let done = count - rest.len();
        rest.iter_mut().enumerate().for_each(|(place, byte)| *byte = self.byte(done + place).load(Relaxed));
        count
    }

    /// Copies `own` over the first bytes, or as much of it as there is room for; gives how many.
    pub fn copy_from(&self, own: &[u8]) -> usize {
        let count = own.len().min(self.len);
        let (blocks, rest) = own[..count].as_chunks::<BLOCK_LEN>();
        for (index, block) in blocks.iter().enumerate() {
            let (words, _) = block.as_chunks::<WORD_LEN>();
            for (place, word) in words.iter().enumerate() {
                self.word(index * BLOCK_LEN + place * WORD_LEN).store(u64::from_ne_bytes(*word), Relaxed);
            }
        }
        let done = count - rest.len();
        rest.iter().enumerate().for_each(|(place, byte)| self.byte(done + place).store(*byte, Relaxed));
        count
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
        }
    }
}
