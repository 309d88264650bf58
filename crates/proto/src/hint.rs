//! What a program's libraries know of a file that it is about to create, in fields of an [`Op::Open`] that mean nothing
//! else there. A server may use it for placement, and may leave it: it changes nothing that a program can see.
//!
//! [`Op::Open`]: crate::request::Op::Open

use crate::request::RequestHeader;

/// Bit of [`RequestHeader::valid`]: the ranks use one file together, and not one each.
const SHARED: u32 = 1;

/// Who is going to use a file, and how much of it. The default knows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHint {
    /// Number of this process among the ranks.
    pub rank: u32,
    /// Processes that open the file together if it is shared, else processes of the program; 0 if not known.
    pub ranks: u32,
    /// Whether the ranks use one file together. Otherwise each has files of its own.
    pub shared: bool,
    /// How long the file is going to be, 0 if not known.
    pub expected_bytes: u64,
}

impl OpenHint {
    /// Puts the hint in the header of an open.
    pub fn write(self, header: &mut RequestHeader) {
        header.uid = self.ranks;
        header.gid = self.rank;
        header.valid = if self.shared { SHARED } else { 0 };
        header.offset = self.expected_bytes;
    }

    /// The hint in the header of an open; `None` if it says nothing.
    pub fn read(header: &RequestHeader) -> Option<Self> {
        let hint = Self {
            rank: header.gid,
            ranks: header.uid,
            shared: header.valid & SHARED != 0,
            expected_bytes: header.offset,
        };
        (hint != Self::default()).then_some(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use isonomia_units::Ino;

    #[test]
    fn an_open_carries_a_hint() {
        let mut open = RequestHeader::new(Op::Open, Ino::ROOT);
        assert_eq!(OpenHint::read(&open), None);
        let hints = [
            OpenHint { rank: 3, ranks: 4, shared: true, expected_bytes: u64::MAX },
            OpenHint { rank: u32::MAX, ranks: u32::MAX, ..OpenHint::default() },
            OpenHint { expected_bytes: 1, ..OpenHint::default() },
        ];
        for hint in hints {
            hint.write(&mut open);
            assert_eq!((OpenHint::read(&open), open.check()), (Some(hint), Ok(Op::Open)));
        }
        OpenHint::default().write(&mut open);
        assert_eq!(open, RequestHeader::new(Op::Open, Ino::ROOT));
    }
}
