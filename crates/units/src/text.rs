//! Quantities as people write them: `64MiB`, `1.5 GB`, `20us`, `2GiB/s`.
//!
//! Binary and decimal prefixes are told apart (`MiB` = 2^20, `MB` = 10^6), as storage operators need; a unit
//! that is not known is refused with the list of those that are.

use crate::{Bytes, Nanos, Rate};
use serde::de::{Error as _, Visitor};
use std::fmt;

/// Why a quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not a {what}: {reason} (allowed: a number with one of {allowed})")]
pub struct ParseQuantityError {
    input: String,
    what: &'static str,
    reason: &'static str,
    allowed: &'static str,
}

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];
const SIZE_ALLOWED: &str = "B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB";
const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const TIME_ALLOWED: &str = "ns, us, ms, s, min, h, d";
const RATE_ALLOWED: &str = "B/s, kB/s, MB/s, GB/s, TB/s, PB/s, KiB/s, MiB/s, GiB/s, TiB/s, PiB/s";

/// Reads an amount of data. A number without a unit is bytes.
pub fn parse_bytes(s: &str) -> Result<Bytes, ParseQuantityError> {
    parse(s, "size", SIZE_UNITS, SIZE_ALLOWED).map(Bytes)
}

/// Reads a span of time. A number without a unit is nanoseconds.
pub fn parse_nanos(s: &str) -> Result<Nanos, ParseQuantityError> {
    parse(s, "time", TIME_UNITS, TIME_ALLOWED).map(Nanos)
}

/// Reads a rate. A number without a unit is bytes per second; zero is refused.
pub fn parse_rate(s: &str) -> Result<Rate, ParseQuantityError> {
    let fail = |reason| ParseQuantityError { input: s.to_owned(), what: "rate", reason, allowed: RATE_ALLOWED };
    let trimmed = s.trim();
    let size = match trimmed.strip_suffix("/s") {
        Some(size) => size,
        None if trimmed.bytes().all(|b| b.is_ascii_digit()) => trimmed,
        None => return Err(fail("it does not end in /s")),
    };
    let n = parse(size, "rate", SIZE_UNITS, RATE_ALLOWED)?;
    Rate::new(n).ok_or_else(|| fail("it is zero"))
}

fn parse(
    input: &str,
    what: &'static str,
    units: &[(&str, u64)],
    allowed: &'static str,
) -> Result<u64, ParseQuantityError> {
    let fail = |reason| ParseQuantityError { input: input.to_owned(), what, reason, allowed };
    let trimmed = input.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..split], trimmed[split..].trim_start());
    if number.is_empty() {
        return Err(fail("it does not begin with a number"));
    }
    let factor = if unit.is_empty() {
        1
    } else {
        units.iter().find(|(name, _)| *name == unit).ok_or_else(|| fail("its unit is unknown"))?.1
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| fail("it is too large"));
    }
    let fractional = number.parse::<f64>().map_err(|_| fail("its number cannot be read"))?;
    let product = fractional * factor as f64;
    if product >= u64::MAX as f64 {
        return Err(fail("it is too large"));
    }
    Ok(product.round() as u64)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scaled(self.0 as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"]))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scaled(self.0 as f64, 1000.0, &["ns", "us", "ms", "s"]))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.bytes_per_s()))
    }
}

/// `value` with three significant digits at most and the largest unit that keeps it at or above one.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let mut text = format!("{value:.digits$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text} {}", units[unit])
}

pub(crate) fn deserialize<'de, D, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, ParseQuantityError>,
) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
{
    struct Quantity<T>(fn(&str) -> Result<T, ParseQuantityError>);
    impl<T> Visitor<'_> for Quantity<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text such as \"64MiB\", or a whole number in the base unit")
        }
        fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<T, E> {
            (self.0)(v).map_err(E::custom)
        }
        fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<T, E> {
            (self.0)(&v.to_string()).map_err(E::custom)
        }
        fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<T, E> {
            u64::try_from(v).map_err(|_| E::custom(format!("{v} is negative"))).and_then(|v| self.visit_u64(v))
        }
    }
    deserializer.deserialize_any(Quantity(parse)).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_operators_write() {
        assert_eq!(parse_bytes("64MiB"), Ok(Bytes(64 << 20)));
        assert_eq!(parse_bytes("1.5 GB"), Ok(Bytes(1_500_000_000)));
        assert_eq!(parse_bytes("512"), Ok(Bytes(512)));
        assert_eq!(parse_nanos("20us"), Ok(Nanos(20_000)));
        assert_eq!(parse_nanos("1.5ms"), Ok(Nanos(1_500_000)));
        assert_eq!(parse_rate("2GiB/s").map(Rate::bytes_per_s), Ok(2 << 30));
        assert_eq!(parse_rate("100").map(Rate::bytes_per_s), Ok(100));
    }

    #[test]
    fn names_what_is_wrong_and_what_is_allowed() {
        let text = |e: ParseQuantityError| e.to_string();
        assert!(text(parse_bytes("64 Mib").unwrap_err()).contains("unit is unknown (allowed: a number with one of B,"));
        assert!(text(parse_rate("2GiB").unwrap_err()).contains("does not end in /s"));
        assert!(text(parse_rate("0MB/s").unwrap_err()).contains("zero"));
        assert!(text(parse_nanos("-3s").unwrap_err()).contains("does not begin with a number"));
        assert!(text(parse_bytes("99999999999TiB").unwrap_err()).contains("too large"));
        assert!(text(parse_bytes("1.2.3MB").unwrap_err()).contains("cannot be read"));
    }

    #[test]
    fn prints_the_largest_fitting_unit() {
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes::mib(100).to_string(), "100 MiB");
        assert_eq!(Nanos::from_micros(20).to_string(), "20 us");
        assert_eq!(Rate::new(2 << 30).map(|r| r.to_string()).as_deref(), Some("2 GiB/s"));
    }

    proptest! {
        #[test]
        fn never_panics_on_any_text(s in "\\PC{0,24}") {
            let _ = (parse_bytes(&s), parse_nanos(&s), parse_rate(&s));
        }

        #[test]
        fn printed_sizes_read_back_within_half_a_per_cent(n in 0u64..1 << 60) {
            let back = parse_bytes(&Bytes(n).to_string()).unwrap().0;
            prop_assert!((back as f64 - n as f64).abs() <= 0.005 * n as f64, "{n} became {back}");
        }

        #[test]
        fn time_for_is_the_exact_ceiling(bytes in 0u64..1 << 40, rate in 1u64..1 << 40) {
            let rate = Rate::new(rate).unwrap();
            let ns = u128::from(rate.time_for(Bytes(bytes)).0);
            let work = u128::from(bytes) * 1_000_000_000;
            prop_assert!(ns * u128::from(rate.bytes_per_s()) >= work);
            prop_assert!(ns == 0 || (ns - 1) * u128::from(rate.bytes_per_s()) < work);
        }
    }
}
