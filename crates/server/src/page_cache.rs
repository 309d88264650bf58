//! What a target has to do with the memory of its host in which files are kept, the page cache.
//!
//! With `auto` files go through it, but for long writes of programs that opened their file with `O_DIRECT` ([`is_direct`]): who
//! asks for that has nothing in mind for which these bytes should be in memory, and by way of memory a device takes them twice
//! as slowly as it could. Such a write is served by a thread that waits for the device, is charged for the device's time, and leaves
//! nothing to be written back.

use isonomia_proto::request::{RequestHeader, flag};
use isonomia_proto::writing;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::str::FromStr;

/// What an operator says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// Files go through it, and what is written is brought to the device all the time: see [`crate::write_back`]. Long writes past it
    /// where programs ask for that.
    #[default]
    Auto,
    /// Files go through it at the host's own pace.
    Always,
    /// Whole blocks of files go past it (`O_DIRECT`), where the file system can do that; the rest as with `auto`.
    Never,
}

/// A shorter write takes less time to memory than a device needs to begin, and is brought there with what lies beside it.
const DIRECT_LEN_MIN: u32 = 256 << 10;
/// Of what goes past the page cache offset and length are multiples of this.
const DIRECT_ALIGN: u32 = 4096;

/// Whether a write goes past the page cache where the target can do that. An append does not: where it will be is not known yet.
pub fn is_direct(header: &RequestHeader) -> bool {
    header.valid & writing::DIRECT != 0
        && header.flags & flag::APPEND == 0
        && header.len >= DIRECT_LEN_MIN
        && header.len.is_multiple_of(DIRECT_ALIGN)
        && header.offset.is_multiple_of(DIRECT_ALIGN.into())
}

/// A text that says nothing about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' says nothing about the page cache: allowed are auto, always and never")]
pub struct ParsePageCacheError(String);

impl FromStr for PageCache {
    type Err = ParsePageCacheError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(ParsePageCacheError(text.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for PageCache {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PageCacheVisitor)
    }
}

/// A text.
struct PageCacheVisitor;

impl Visitor<'_> for PageCacheVisitor {
    type Value = PageCache;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"auto\", \"always\" or \"never\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PageCache, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_proto::request::Op;
    use isonomia_units::Ino;

    #[test]
    fn what_is_none_of_the_words_is_told_what_is_allowed() {
        #[derive(Debug, Deserialize)]
        struct Target {
            cache: PageCache,
        }
        let of = |text: &str| toml::from_str::<Target>(text);
        assert_eq!(of("cache = \"never\"").unwrap().cache, PageCache::Never);
        for text in ["cache = true", "cache = 1", "cache = \"no\""] {
            let error = of(text).unwrap_err().to_string();
            assert!(["auto", "always", "never"].iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn only_long_writes_of_whole_blocks_go_past_the_page_cache() {
        let long = RequestHeader {
            valid: writing::DIRECT,
            offset: 4096,
            len: DIRECT_LEN_MIN,
            ..RequestHeader::new(Op::Write, Ino(7))
        };
        assert!(is_direct(&long));
        let others = [
            RequestHeader { valid: 0, ..long },
            RequestHeader { len: DIRECT_LEN_MIN - 4096, ..long },
            RequestHeader { len: DIRECT_LEN_MIN + 512, ..long },
            RequestHeader { offset: 512, ..long },
            RequestHeader { flags: flag::APPEND, ..long },
        ];
        assert!(!others.iter().any(is_direct));
    }
}
