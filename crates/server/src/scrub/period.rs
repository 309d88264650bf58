//! How often a server looks through its objects.

use isonomia_units::Nanos;
use serde::Deserialize;
use std::str::FromStr;

/// The shortest period that can be asked for.
const PERIOD_MIN: Nanos = Nanos::from_secs(1);

/// How long a pass over all objects is to take; `None` for no scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPeriod(pub Option<Nanos>);

impl Default for ScrubPeriod {
    fn default() -> Self {
        Self(Some(Nanos::from_secs(7 * 24 * 3600)))
    }
}

/// A text that is no period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a period of the scrub: allowed are off and times of at least 1s, such as 7d or 12h")]
pub struct ParseScrubPeriodError(String);

impl FromStr for ScrubPeriod {
    type Err = ParseScrubPeriodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self(None));
        }
        let period = text.parse::<Nanos>().ok().filter(|period| *period >= PERIOD_MIN);
        period.map(|period| Self(Some(period))).ok_or_else(|| ParseScrubPeriodError(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ScrubPeriod {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_time_or_off() {
        assert_eq!("off".parse(), Ok(ScrubPeriod(None)));
        assert_eq!("7d".parse(), Ok(ScrubPeriod::default()));
        assert_eq!("90min".parse(), Ok(ScrubPeriod(Some(Nanos::from_secs(5_400)))));
        for text in ["", "0", "on", "-1d", "999ms", "7 weeks"] {
            let error = text.parse::<ScrubPeriod>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains("7d"), "{error}");
        }
    }
}
