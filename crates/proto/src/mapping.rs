//! Files that programs map: what a session is told of those whose writable shared mapping it has, as mounts have, and what
//! it asks for memory that stands for a file, as preloaded programs do.
//!
//! What it is told is the state as it is, not its changes: a reply that is lost, or asked for twice, leaves nothing untold.

use isonomia_units::Ino;

/// Inodes in one [`LeaseEvents`] at most; further ones are told as these are given back.
pub const WANTED_MAX: usize = 512;
/// Bytes of the longest [`LeaseEvents`].
pub const LEASE_EVENTS_LEN_MAX: usize = WORD_LEN * (2 + WANTED_MAX);

/// Bit of [`RequestHeader::valid`](crate::request::RequestHeader::valid) of an
/// [`Op::TakeMapping`](crate::request::Op::TakeMapping): the session had the mapping, perhaps from a server that has
/// forgotten it.
pub const HAD: u32 = 1;
/// Bit of [`RequestHeader::valid`](crate::request::RequestHeader::valid) of an
/// [`Op::MapFile`](crate::request::Op::MapFile): the program will store to the memory.
pub const STORES: u32 = 1;
/// The longest part of a file that memory stands for.
pub const SEGMENT_LEN_MAX: u64 = 1 << 30;

const WORD_LEN: usize = size_of::<u64>();

/// The state of a session's mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseEvents {
    /// Drawn by the server when the session took its first mapping. Another number than before: the server has lost the
    /// session, and with it every mapping that it had.
    pub session: u64,
    /// Grows with every change.
    pub version: u64,
    /// Mappings of the session that others wait for.
    pub wanted: Vec<Ino>,
}

impl LeaseEvents {
    /// As bytes: each number with 8.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.session, self.version].into_iter().chain(self.wanted.iter().map(|ino| ino.0));
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    /// From bytes; `None` if they are not what [`Self::encode`] makes of some events.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<WORD_LEN>();
        let (&[session, version], inos) = numbers.split_first_chunk()?;
        if !rest.is_empty() || inos.len() > WANTED_MAX {
            return None;
        }
        let wanted = inos.iter().map(|ino| Ino(u64::from_le_bytes(*ino))).collect();
        Some(Self { session: u64::from_le_bytes(session), version: u64::from_le_bytes(version), wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_too_short_too_long_or_uneven_is_no_news() {
        let events =
            |count: u64| LeaseEvents { session: 1, version: 2, wanted: (0..count).map(Ino).collect() }.encode();
        assert_eq!(events(1), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let most = events(WANTED_MAX as u64);
        assert!(most.len() == LEASE_EVENTS_LEN_MAX && LeaseEvents::decode(&most).is_some());
        assert_eq!(LeaseEvents::decode(&events(WANTED_MAX as u64 + 1)), None);
        assert_eq!(LeaseEvents::decode(&events(0)[..8]), None);
        assert_eq!(LeaseEvents::decode(&events(3)[..39]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_news_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(events) = LeaseEvents::decode(&bytes) {
                prop_assert_eq!(events.encode(), bytes);
            }
        }
    }
}
