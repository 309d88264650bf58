//! Whether a client looks out for a reply for a while, or sleeps at once.
//!
//! Sleeping and being woken takes longer than what a server has in memory does, so a client looks first. Where replies take
//! far longer than that, looking is in vain, and with many clients takes the processors that the replies need. What is
//! likely is learnt from the latest replies to the same operation: reads may come from a disk while writes go to memory.
//!
//! How long is far longer depends on what the reply waited for. Where it waited for other programs, on a busy host, looking is
//! no slower than being woken. Where it waited for a device, nothing is gained by looking once that was in vain before.
//!
//! Where more threads look than there are processors, the kernel divides these among all of them alike, and the server, for which they
//! all look, gets one share of many. What is better then depends on how much the server does for each call, compared with its clients: if
//! little, each reply is there after a yield or two, and sleeping would be slower; if much, all look in vain. So who gave its processor
//! to others and had no reply in the end, a few times, does not look any more, until the next time at which everybody looks, by the clock
//! that all programs of the host have in common. One that looks while the others sleep would learn nothing of how it is when all do.
//!
//! A few replies that come soon make the client look again, so that two sides that sleep cannot keep each other slow: a reply to who
//! sleeps, from a server that has to be woken, still comes within [`LONG`].

use isonomia_proto::request::Op;
use isonomia_units::Nanos;

/// A reply that takes longer came from something slower than two threads that wake each other, also where several programs share
/// a processor: that takes a tenth of this, and who slept for such replies would make all of them as slow.
const LONG: Nanos = Nanos::from_millis(1);
/// A reply from a device that takes longer was looked out for in vain.
const LONG_BY_DEVICE: Nanos = Nanos::from_micros(60);
/// One that takes less than this would have been seen.
const SOON_BY_DEVICE: Nanos = Nanos::from_micros(30);
/// After so many more long replies than others lately the next one is expected to be long …
const LONG_EXPECTED: u8 = 4;
/// … and more than so many are not counted, so that a few that come soon are enough to change that.
const LONG_MAX: u8 = 8;
/// With so many looks lately that were in vain while others ran, less those that saw the reply, there is a crowd …
const CROWD_EXPECTED: u8 = 4;
/// … and more than so many are not counted.
const CROWD_MAX: u8 = 8;
/// A look that saw the reply makes up for so many in vain: looking is still the faster where one of three sees it.
const SEEN_WEIGHT: u8 = 2;
/// In a crowd, everybody looks at the beginning of each stretch of the host's clock of this length, …
const LOOK_EVERY: Nanos = Nanos::from_millis(64);
/// … for so long: some 25 calls of each of 8 programs on two processors, and 5 of each of 32.
const LOOK_FOR: Nanos = Nanos::from_millis(2);
/// Operations are told apart by their numbers, up to this one.
const OPERATIONS: usize = 64;
const _: () = assert!(Op::ALL.len() < OPERATIONS);

/// See the module.
#[derive(Debug)]
pub struct Patience {
    /// By how many the replies to each operation that were long lately outnumber the others.
    long: [u8; OPERATIONS],
    /// Looks lately that were in vain while others ran, less those that saw the reply, each [`SEEN_WEIGHT`] times.
    crowd: u8,
}

impl Default for Patience {
    fn default() -> Self {
        Self { long: [0; OPERATIONS], crowd: 0 }
    }
}

impl Patience {
    /// Whether to look out for the reply to operation number `op`, to which a request is under way.
    pub fn looks_for(&self, op: u16, now: impl FnOnce() -> Nanos) -> bool {
        !self.expects_long(op) && (self.crowd < CROWD_EXPECTED || now().0 % LOOK_EVERY.0 < LOOK_FOR.0)
    }

    /// Whether the reply to operation number `op` is likely to take so long that nobody should look out for it.
    pub fn expects_long(&self, op: u16) -> bool {
        self.long[usize::from(op) % OPERATIONS] >= LONG_EXPECTED
    }

    /// A reply was looked out for in vain, and others had the processor meanwhile.
    pub fn note_crowd(&mut self) {
        self.crowd = (self.crowd + 1).min(CROWD_MAX);
    }

    /// A reply to operation number `op` came while it was looked out for.
    pub fn note_seen(&mut self, op: u16) {
        self.crowd = self.crowd.saturating_sub(SEEN_WEIGHT);
        self.note(op, Nanos::ZERO, false);
    }

    /// A reply to operation number `op` was waited for so long. If `is_by_device`, the server had to wait for a device meanwhile.
    pub fn note(&mut self, op: u16, waited: Nanos, is_by_device: bool) {
        let long = &mut self.long[usize::from(op) % OPERATIONS];
        let (soon, late) = if is_by_device { (SOON_BY_DEVICE, LONG_BY_DEVICE) } else { (LONG, LONG) };
        if waited < soon {
            *long = long.saturating_sub(1);
        } else if waited >= late {
            *long = (*long + 1).min(LONG_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_long_a_few_times_is_slept_for_and_what_comes_soon_is_looked_out_for() {
        let (read, write) = (Op::Read as u16, Op::Write as u16);
        let mut patience = Patience::default();
        let replies =
            |patience: &mut Patience, count: u8, each| (0..count).for_each(|_| patience.note(read, each, false));
        replies(&mut patience, LONG_EXPECTED - 1, Nanos::from_millis(5));
        assert!(!patience.expects_long(read));
        replies(&mut patience, 100, Nanos::from_millis(5));
        assert!(patience.expects_long(read));
        assert!(!patience.expects_long(write), "another operation");
        replies(&mut patience, 1, Nanos::from_micros(20));
        assert!(patience.expects_long(read), "one says little");
        replies(&mut patience, LONG_MAX - LONG_EXPECTED, Nanos::from_micros(20));
        assert!(!patience.expects_long(read));
        assert!(!patience.expects_long(u16::MAX), "a number of no operation");
    }

    #[test]
    fn nobody_looks_in_a_crowd_but_all_at_the_same_time_until_it_has_left() {
        let (read, write) = (Op::Read as u16, Op::Write as u16);
        let mut patience = Patience::default();
        let everybody_looks = || Nanos(7 * LOOK_EVERY.0);
        let between = || Nanos(7 * LOOK_EVERY.0 + LOOK_FOR.0);
        (1..CROWD_EXPECTED).for_each(|_| patience.note_crowd());
        assert!(patience.looks_for(read, between), "a few times it is chance");
        (0..100).for_each(|_| patience.note_crowd());
        for op in [read, write] {
            assert!(!patience.looks_for(op, between), "the others want the processor, whatever is waited for");
            assert!(patience.looks_for(op, everybody_looks));
        }
        // Replies that were slept for tell nothing of the others.
        (0..100).for_each(|_| patience.note(read, Nanos::from_micros(20), false));
        assert!(!patience.looks_for(read, between));
        (0..=(CROWD_MAX - CROWD_EXPECTED) / SEEN_WEIGHT).for_each(|_| patience.note_seen(read));
        assert!(patience.looks_for(read, between) && patience.looks_for(write, between));
        (0..LONG_EXPECTED).for_each(|_| patience.note(read, LONG, false));
        assert!(!patience.looks_for(read, everybody_looks), "what takes long is not looked out for at any time");
    }

    #[test]
    fn a_device_is_slept_for_once_looking_out_was_in_vain() {
        let (read, write) = (Op::Read as u16, Op::Write as u16);
        let replies = |patience: &mut Patience, count: u8, each| {
            (0..count).for_each(|_| patience.note(read, each, true));
        };
        let mut patience = Patience::default();
        replies(&mut patience, LONG_MAX, Nanos::from_micros(25));
        assert!(!patience.expects_long(read), "it is as fast as who looks");
        (0..LONG_MAX).for_each(|_| patience.note(write, Nanos::from_micros(200), false));
        assert!(!patience.expects_long(write), "other programs were waited for");
        replies(&mut patience, LONG_EXPECTED, Nanos::from_micros(200));
        assert!(patience.expects_long(read));
        replies(&mut patience, LONG_MAX, Nanos::from_micros(50));
        assert!(patience.expects_long(read), "it comes sooner as nobody looks out for it");
        replies(&mut patience, LONG_MAX, Nanos::from_micros(20));
        assert!(!patience.expects_long(read));
    }
}
