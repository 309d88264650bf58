//! What a target has to do with the memory of its host in which files are kept, the page cache.

use serde::Deserialize;
use serde::de::Deserializer;
use std::str::FromStr;

/// What an operator says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// Files go through it, and what is written is brought to the device all the time: see [`crate::write_back`].
    #[default]
    Auto,
    /// Files go through it at the host's own pace.
    Always,
    /// Whole blocks of files go past it (`O_DIRECT`), where the file system can do that; the rest as with `auto`.
    Never,
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
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
