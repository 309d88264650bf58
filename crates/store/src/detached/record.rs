//! What the database keeps of a detached object.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | flags: 1 = it was created, 2 = its blocks have checksums, 4 = its last cut is not known to be done |
//! | 1 | 8 | number of its last cut, 0 if there was none |
//! | 9 | 8 | how long that cut makes it, if that is not known to be done |
//!
//! Integers are little-endian.

const FLAG_CREATED: u8 = 1;
const FLAG_SUMS: u8 = 2;
const FLAG_UNFINISHED: u8 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DetachedRecord {
    /// There is such a file, or it is lost.
    pub is_created: bool,
    pub has_sums: bool,
    /// Number of the last cut.
    pub cuts: u64,
    /// How long the last cut makes it, if that may not be done.
    pub unfinished: Option<u64>,
}

impl DetachedRecord {
    pub fn encode(&self) -> Vec<u8> {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.is_created, FLAG_CREATED)
            | flag(self.has_sums, FLAG_SUMS)
            | flag(self.unfinished.is_some(), FLAG_UNFINISHED);
        let mut bytes = vec![flags];
        bytes.extend_from_slice(&self.cuts.to_le_bytes());
        if let Some(size) = self.unfinished {
            bytes.extend_from_slice(&size.to_le_bytes());
        }
        bytes
    }

    /// `None` for bytes that [`Self::encode`] does not make.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let (cuts, rest) = rest.split_first_chunk::<8>()?;
        let unfinished = match (flags & FLAG_UNFINISHED, rest) {
            (0, []) => None,
            (FLAG_UNFINISHED, rest) => Some(u64::from_le_bytes(rest.try_into().ok()?)),
            _ => return None,
        };
        let is_known = flags & !(FLAG_CREATED | FLAG_SUMS | FLAG_UNFINISHED) == 0;
        is_known.then_some(Self {
            is_created: flags & FLAG_CREATED != 0,
            has_sums: flags & FLAG_SUMS != 0,
            cuts: u64::from_le_bytes(*cuts),
            unfinished,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_survive_the_database(is_created: bool, has_sums: bool, cuts: u64, unfinished: Option<u64>) {
            let record = DetachedRecord { is_created, has_sums, cuts, unfinished };
            prop_assert_eq!(DetachedRecord::decode(&record.encode()), Some(record));
        }

        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            if let Some(record) = DetachedRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
