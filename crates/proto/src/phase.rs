//! Where a program says that an I/O phase begins or ends: an [`Op::Phase`], in fields that mean something else elsewhere.
//!
//! [`Op::Phase`]: crate::request::Op::Phase

use crate::request::{Op, RequestHeader};
use isonomia_units::{Ino, Nanos};

/// Bits of [`RequestHeader::valid`].
const BEGIN: u32 = 1;
const END: u32 = 2;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseCall {
    /// A phase begins.
    Begin {
        /// What it reads and writes at the server; 0 if not known.
        bytes: u64,
        /// How long the program would still take alone, this phase included, if that is known.
        remaining: Option<Nanos>,
    },
    /// It is over.
    End,
}

impl PhaseCall {
    /// The request that says it.
    pub fn request(self) -> RequestHeader {
        let header = RequestHeader::new(Op::Phase, Ino::ROOT);
        match self {
            Self::Begin { bytes, remaining } => {
                RequestHeader { valid: BEGIN, offset: bytes, ino2: remaining.map_or(0, |time| time.0.max(1)), ..header }
            }
            Self::End => RequestHeader { valid: END, ..header },
        }
    }

    /// What a request says; `None` if it says nothing, or two things.
    pub fn read(header: &RequestHeader) -> Option<Self> {
        match header.valid {
            BEGIN => {
                let remaining = (header.ino2 > 0).then_some(Nanos(header.ino2));
                Some(Self::Begin { bytes: header.offset, remaining })
            }
            END => Some(Self::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_one_thing() {
        for call in [
            PhaseCall::Begin { bytes: 0, remaining: None },
            PhaseCall::Begin { bytes: u64::MAX, remaining: Some(Nanos(1)) },
            PhaseCall::End,
        ] {
            assert_eq!((call.request().check(), PhaseCall::read(&call.request())), (Ok(Op::Phase), Some(call)));
        }
        for valid in [0, 3, 4, u32::MAX] {
            assert_eq!(PhaseCall::read(&RequestHeader { valid, ..PhaseCall::End.request() }), None);
        }
    }
}
