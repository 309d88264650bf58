//! Quantities in scenarios: always text with a unit, for a bare `10` says nothing.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// A quantity written as text with a unit, or `"0"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity<T>(pub T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
            type Value = Quantity<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text with a unit, such as \"10ms\", \"64MiB\", or \"2GiB/s\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let is_plain = text.trim() != "0" && text.trim_end().ends_with(|c: char| c.is_ascii_digit());
                if is_plain {
                    return Err(E::custom(format!("{text:?} has no unit (such as ms, MiB, GiB/s)")));
                }
                text.parse().map(Quantity).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text(PhantomData))
    }
}

/// A word that is read by its own parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}
