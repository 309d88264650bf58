//! Bytes that say whose they are: every 16 of them name a file, the operation that wrote them, and their offset.
//!
//! They are text, so that a dump can be read and none is zero: a zero in a file is a hole or a loss.

use std::fmt;

const RECORD_BYTES: u64 = 16;

/// The bytes that operation `version` writes to file `file` (its number, not its inode) at `offset`.
pub fn bytes(file: u32, version: u32, offset: u64, size_bytes: u64) -> Vec<u8> {
    let first = offset / RECORD_BYTES;
    let last = (offset + size_bytes).div_ceil(RECORD_BYTES);
    let text: String = (first..last).map(|record| text_of(file, version, record)).collect();
    let skip = (offset % RECORD_BYTES) as usize;
    text.into_bytes()[skip..skip + size_bytes as usize].to_vec()
}

fn text_of(file: u32, version: u32, record: u64) -> String {
    format!("F{:03x}v{:04x}o{:06x}", file & 0xfff, version & 0xffff, record & 0xff_ffff)
}

/// What bytes found at some place say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Zeros,
    /// Numbers of the file and of the operation, and the offset that they were written for.
    Written {
        file: u32,
        version: u32,
        offset: u64,
    },
    Unknown,
}

/// Whose the byte at `offset` is.
pub fn origin(bytes: &[u8], offset: u64) -> Origin {
    if bytes.get(offset as usize) == Some(&0) {
        return Origin::Zeros;
    }
    let start = (offset / RECORD_BYTES * RECORD_BYTES) as usize;
    let Some(record) = bytes.get(start..start + RECORD_BYTES as usize) else { return Origin::Unknown };
    let Ok(text) = std::str::from_utf8(record) else { return Origin::Unknown };
    let field = |from: usize, to: usize| text.get(from..to).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (field(1, 4), field(5, 9), field(10, 16)) {
        (Some(file), Some(version), Some(record)) => {
            Origin::Written { file: file as u32, version: version as u32, offset: record * RECORD_BYTES }
        }
        _ => Origin::Unknown,
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => write!(f, "zeros"),
            Self::Written { file, version, offset } => {
                write!(f, "what operation {version} wrote to file {file} at {offset}")
            }
            Self::Unknown => write!(f, "bytes that nobody wrote whole"),
        }
    }
}

#[test]
fn bytes_name_their_origin() {
    let all = bytes(7, 300, 0, 100);
    assert_eq!(bytes(7, 300, 37, 20), all[37..57]);
    assert_eq!(origin(&all, 40), Origin::Written { file: 7, version: 300, offset: 32 });
    assert_eq!(origin(&[0; 64], 40), Origin::Zeros);
    assert_eq!(origin(&all, 99), Origin::Unknown);
}
