//! What blocks that are read ought to be, told to whoever takes them out of memory that others may change.
//!
//! He copies them anyway, and sums the copy on the way ([`SharedBytes::copy_to_with_sums`]), which costs him hardly anything, while
//! who put them there would have to go through all of them once more. What he has then is his own and agrees with its sums, or he
//! knows that it does not.

use crate::SharedBytes;
use crate::summed_copy::BLOCK_LEN;
use std::cell::Cell;

/// The sums ([`crate::sum_of_block`]) that blocks ought to have, from the first one of a [`crate::Sink`] on.
#[derive(Debug)]
pub struct Expected<'a> {
    sums: SharedBytes<'a>,
    count: Cell<usize>,
}

impl<'a> Expected<'a> {
    /// Bytes that the sum of one block takes.
    pub const SUM_LEN: usize = size_of::<u64>();

    /// Bytes that the sums of all whole blocks of `len` bytes take.
    pub const fn sums_len(len: usize) -> usize {
        len / BLOCK_LEN * Self::SUM_LEN
    }

    /// Sums that are told in `sums`, in this machine's order of bytes; none so far.
    pub fn new(sums: SharedBytes<'a>) -> Self {
        Self { sums, count: Cell::new(0) }
    }

    /// How many blocks at the beginning have a sum. The others were compared by who put them there.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Tells the sums of the blocks after the first `before` ones. False, and nothing is told, if not all before them have one, or if there
    /// is no room.
    pub(crate) fn tell(&self, before: usize, sums: &[u64]) -> bool {
        let room = self.sums.after(before.saturating_mul(Self::SUM_LEN));
        if before != self.count.get() || room.len() / Self::SUM_LEN < sums.len() {
            return false;
        }
        let mut bytes = [0; BLOCKS_AT_ONCE * size_of::<u64>()];
        for (number, sums) in sums.chunks(BLOCKS_AT_ONCE).enumerate() {
            let (words, _) = bytes.as_chunks_mut();
            words.iter_mut().zip(sums).for_each(|(word, sum)| *word = sum.to_ne_bytes());
            let at = number * BLOCKS_AT_ONCE * Self::SUM_LEN;
            room.after(at).copy_from(&bytes[..sums.len() * Self::SUM_LEN]);
        }
        self.count.set(before + sums.len());
        true
    }
}

/// Sums that are copied at once.
const BLOCKS_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summed_copy::LONG_COPY_LEN;
    use crate::tests::over;
    use crate::{Sink, sum_of_block};

    #[test]
    fn sums_are_told_from_the_first_block_on_and_without_a_gap() {
        let (mut bytes, mut sums) = (vec![0; 200 * BLOCK_LEN], vec![0xa5; Expected::sums_len(150 * BLOCK_LEN)]);
        let told = over(&mut sums);
        let expected = Expected::new(told);
        let mut sink = Sink::from(over(&mut bytes)).comparing(&expected);
        let many: Vec<u64> = (2..142).collect();
        assert!(!sink.part(BLOCK_LEN..9 * BLOCK_LEN).expect(&[9]), "the first block has none yet");
        assert!(!sink.part(1..BLOCK_LEN + 1).expect(&[9]), "no block begins there");
        assert!(sink.part(0..2 * BLOCK_LEN).expect(&[0, 1]));
        assert!(!sink.expect(&[8, 8]), "told before");
        let mut rest = sink.part(2 * BLOCK_LEN..200 * BLOCK_LEN);
        assert!(rest.part(0..140 * BLOCK_LEN).expect(&many));
        assert_eq!(expected.count(), 142);
        assert!(!rest.part(140 * BLOCK_LEN..149 * BLOCK_LEN).expect(&[7; 9]), "more than there is room for");
        assert!(!rest.part(140 * BLOCK_LEN..149 * BLOCK_LEN).not_comparing().expect(&[7]));
        assert!(sink.compares() && !Sink::from(&mut [0; 9]).compares() && !Sink::from(&mut [0; 9]).expect(&[]));
        let told = told.to_vec();
        let (told, _) = told.as_chunks();
        assert_eq!(expected.count(), 142);
        assert!(told[..142].iter().zip(0..).all(|(sum, number)| u64::from_ne_bytes(*sum) == number));
        assert!(told[142..].iter().all(|sum| *sum == [0xa5; 8]));
    }

    #[test]
    fn who_takes_blocks_sums_his_copy() {
        let mut memory: Vec<u8> = (0..LONG_COPY_LEN + 2 * BLOCK_LEN + 50).map(|at| ((at * at) >> 4) as u8).collect();
        let (own, shared) = (memory.clone(), over(&mut memory));
        for len in [0, 50, BLOCK_LEN, 2 * BLOCK_LEN + 50, LONG_COPY_LEN - 1, LONG_COPY_LEN, own.len()] {
            let (mut copy, mut sums) = (vec![0; len], Vec::new());
            shared.copy_to_with_sums(&mut copy, |number, sum| {
                assert_eq!(number, sums.len());
                sums.push(sum);
            });
            assert_eq!(copy, own[..len]);
            assert_eq!(sums, own[..len].as_chunks().0.iter().map(sum_of_block).collect::<Vec<_>>());
        }
    }
}
