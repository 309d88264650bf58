//! Integer quantities: amounts of data, spans and points of time, and rates.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub};

/// An amount of data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A span of time, or a point on a clock whose origin the caller chose, in nanoseconds.
///
/// 2^64 ns are 584 years, so sums of measured times do not overflow; all arithmetic saturates anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A rate in bytes per second. Zero is not a rate: [`Rate::new`] refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Bytes {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl Nanos {
    /// The origin of a clock, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Later than every time a clock gives.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// This time in seconds, for display and statistics.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Rate {
    /// `bytes_per_s`, or `None` for zero.
    pub const fn new(bytes_per_s: u64) -> Option<Self> {
        if bytes_per_s == 0 { None } else { Some(Self(bytes_per_s)) }
    }

    /// Bytes per second, at least 1.
    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// How long `bytes` take at this rate, rounded up, saturating.
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        let ns = (u128::from(bytes.0) * 1_000_000_000).div_ceil(u128::from(self.0));
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Self {
        self.since(rhs)
    }
}

macro_rules! text_form {
    ($($ty:ty => $parse:path),*) => {$(
        impl std::str::FromStr for $ty {
            type Err = crate::ParseQuantityError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                $parse(s)
            }
        }
        impl Serialize for $ty {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_u64(self.0)
            }
        }
        impl<'de> Deserialize<'de> for $ty {
            /// Reads text with a unit (`"64MiB"`); a bare number is accepted in the base unit.
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                crate::text::deserialize(d, $parse)
            }
        }
    )*};
}
text_form!(Bytes => crate::text::parse_bytes, Nanos => crate::text::parse_nanos, Rate => crate::text::parse_rate);
