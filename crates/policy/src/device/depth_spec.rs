//! How many requests a target has in service at once: a number that an operator states, or one that is found.

use super::{Completion, DepthControl};
use isonomia_units::{JobId, Nanos};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// The most that a target has in service at once: as many threads may wait for its device.
pub const DEPTH_MAX: usize = 256;
/// What is tried first.
const DEPTH_FIRST: usize = 8;

/// What an operator says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DepthSpec {
    /// Found by trial: see [`DepthControl`].
    #[default]
    Auto,
    /// This many, 1 to [`DEPTH_MAX`].
    Fixed(usize),
}

/// A text that is no depth.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a depth: allowed are auto and numbers from 1 to {DEPTH_MAX}")]
pub struct ParseDepthError(String);

impl FromStr for DepthSpec {
    type Err = ParseDepthError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(depth) if (1..=DEPTH_MAX).contains(&depth) => Ok(Self::Fixed(depth)),
            _ if text == "auto" => Ok(Self::Auto),
            _ => Err(ParseDepthError(text.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for DepthSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DepthVisitor)
    }
}

/// A number, or a text.
struct DepthVisitor;

impl Visitor<'_> for DepthVisitor {
    type Value = DepthSpec;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"auto\" or a number from 1 to {DEPTH_MAX}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<DepthSpec, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<DepthSpec, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<DepthSpec, E> {
        text.parse().map_err(E::custom)
    }
}

/// The depth of one target.
#[derive(Debug)]
pub enum Depth {
    /// It stays. Nothing serves many at once here: the target is memory, or an emulated device.
    Fixed(usize),
    /// A device serves so many at once, as an operator says.
    Told(usize),
    /// How many it serves at once is found.
    Found(DepthControl),
}

impl Depth {
    /// As an operator wants it.
    pub fn new(spec: DepthSpec) -> Self {
        match spec {
            DepthSpec::Auto => Self::Found(DepthControl::new(DEPTH_FIRST, DEPTH_MAX)),
            DepthSpec::Fixed(depth) => Self::Told(depth),
        }
    }

    /// Requests that may be in service now.
    pub fn limit(&self) -> usize {
        match self {
            Self::Fixed(depth) | Self::Told(depth) => *depth,
            Self::Found(control) => control.limit(),
        }
    }

    /// The same, if it is that of a device that serves many at once.
    pub fn of_device(&self) -> Option<usize> {
        match self {
            Self::Fixed(_) => None,
            Self::Told(_) | Self::Found(_) => Some(self.limit()),
        }
    }

    /// What [`Self::limit`] is apart from trials.
    pub fn settled(&self) -> usize {
        match self {
            Self::Fixed(depth) | Self::Told(depth) => *depth,
            Self::Found(control) => control.depth(),
        }
    }

    /// See [`DepthControl::begun`].
    pub fn begun(&mut self, now: Nanos, job: JobId) {
        if let Self::Found(control) = self {
            control.begun(now, job);
        }
    }

    /// See [`DepthControl::pause`].
    pub fn pause(&mut self, now: Nanos) {
        if let Self::Found(control) = self {
            control.pause(now);
        }
    }

    /// See [`DepthControl::resume`].
    pub fn resume(&mut self, now: Nanos) {
        if let Self::Found(control) = self {
            control.resume(now);
        }
    }

    /// See [`DepthControl::completed`].
    pub fn completed(&mut self, now: Nanos, done: Completion) {
        if let Self::Found(control) = self {
            control.completed(now, done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_is_a_number_or_auto() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Settings {
            depth: DepthSpec,
        }
        let read = |text: &str| serde_json::from_str::<Settings>(text).map(|settings| settings.depth);
        assert_eq!(read("{\"depth\": 32}").unwrap(), DepthSpec::Fixed(32));
        assert_eq!(read("{\"depth\": \"auto\"}").unwrap(), DepthSpec::Auto);
        for bad in ["0", "257", "-1", "\"many\"", "1.5"] {
            let error = read(&format!("{{\"depth\": {bad}}}")).unwrap_err().to_string();
            assert!(error.contains("auto") && error.contains("256"), "{error}");
        }
    }
}
