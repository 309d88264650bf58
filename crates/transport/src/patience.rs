//! Whether a client looks out for a reply for a while, or sleeps at once.
//!
//! Sleeping and being woken takes longer than what a server has in memory does, so a client looks first. Where replies take
//! far longer than that, looking is in vain, and with many clients takes the processors that the replies need. What is
//! likely is learnt from the latest replies to the same operation: reads may come from a disk while writes go to memory.
//!
//! A reply that came soon makes the client look again, so that two sides that sleep cannot keep each other slow: a reply to who
//! sleeps, from a server that has to be woken, still comes within [`LONG`].

use isonomia_proto::request::Op;
use isonomia_units::Nanos;

/// A reply that takes longer came from something slower than two threads that wake each other, which take half of this.
const LONG: Nanos = Nanos::from_micros(100);
/// So many of them in a row, and the next one is expected to take as long.
const LONG_IN_A_ROW: u8 = 4;
/// Operations are told apart by their numbers, up to this one.
const OPERATIONS: usize = 64;
const _: () = assert!(Op::ALL.len() < OPERATIONS);

/// See the module.
#[derive(Debug)]
pub struct Patience {
    /// How many replies to each operation were long, the latest ones, and without one in between that was not.
    long: [u8; OPERATIONS],
}

impl Default for Patience {
    fn default() -> Self {
        Self { long: [0; OPERATIONS] }
    }
}

impl Patience {
    /// Whether the reply to operation number `op` is likely to take so long that nobody should look out for it.
    pub fn expects_long(&self, op: u16) -> bool {
        self.long[usize::from(op) % OPERATIONS] >= LONG_IN_A_ROW
    }

    /// A reply to operation number `op` was waited for so long.
    pub fn note(&mut self, op: u16, waited: Nanos) {
        let long = &mut self.long[usize::from(op) % OPERATIONS];
        *long = if waited < LONG { 0 } else { long.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_long_a_few_times_is_slept_for_and_what_comes_soon_is_looked_out_for() {
        let (read, write) = (Op::Read as u16, Op::Write as u16);
        let mut patience = Patience::default();
        for _ in 0..LONG_IN_A_ROW {
            assert!(!patience.expects_long(read));
            patience.note(read, Nanos::from_millis(5));
        }
        assert!(patience.expects_long(read));
        assert!(!patience.expects_long(write), "another operation");
        (0..1_000).for_each(|_| patience.note(read, Nanos::from_millis(5)));
        patience.note(read, Nanos::from_micros(20));
        assert!(!patience.expects_long(read), "it came soon");
        assert!(!patience.expects_long(u16::MAX), "a number of no operation");
    }
}
