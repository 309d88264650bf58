//! What operators set for all servers of a cluster, as the text that the root server gives a version and sends to all: draw and
//! policy, and how new files are placed.
//!
//! What an operator sets is one of the two. The root server puts it together with the other one as that stands there, so that of
//! two operators neither undoes what the other one did.
//!
//! ```text
//! [set=MARK] [place=WORD] [DRAW POLICY]
//! ```
//! The mark tells policies apart that are set one after the other, though they be the same: a server that deviates from the
//! policy goes on with that while only the placement changes.

use isonomia_policy::{Draw, PolicySpec};
use isonomia_units::Placement;
use std::fmt;
use std::str::FromStr;

/// Instead of a placement: as the cluster file says.
pub const AS_FILE: &str = "file";

/// What is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The policy, if one was ever set.
    pub policy: Option<(Draw, PolicySpec)>,
    /// Which of the policies that were set it is; 0 of one that says nothing of that.
    pub mark: u64,
    /// How files are placed, if it was set: `None` within means as the cluster file says.
    pub placement: Option<Option<Placement>>,
}

impl Settings {
    /// A policy is set.
    pub fn policy(draw: Draw, spec: PolicySpec) -> Self {
        Self { policy: Some((draw, spec)), ..Self::default() }
    }

    /// How files are placed is set; `None`: as the cluster file says.
    pub fn placement(placement: Option<Placement>) -> Self {
        Self { placement: Some(placement), ..Self::default() }
    }

    /// These with a change to them, which is told from others by `mark`.
    pub fn changed(self, change: Self, mark: u64) -> Self {
        let (policy, mark) = match change.policy {
            Some(policy) => (Some(policy), mark),
            None => (self.policy, self.mark),
        };
        Self { policy, mark, placement: change.placement.or(self.placement) }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.mark > 0 {
            words.push(format!("set={}", self.mark));
        }
        words.extend(self.placement.map(|place| format!("place={}", place.map_or(AS_FILE, Placement::word))));
        words.extend(self.policy.as_ref().map(|(draw, spec)| format!("{draw} {spec}")));
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Settings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut settings, mut rest) = (Self::default(), text);
        while !rest.is_empty() {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            match word.split_once('=') {
                Some(("set", mark)) => settings.mark = mark.parse().map_err(|_| format!("{word:?} has no number"))?,
                Some(("place", AS_FILE)) => settings.placement = Some(None),
                Some(("place", place)) => {
                    let place = place.parse().map_err(|error: isonomia_units::BadPlacement| error.to_string())?;
                    settings.placement = Some(Some(place));
                }
                _ => {
                    let draw = word.parse().map_err(|error: isonomia_policy::ParseDrawError| error.to_string())?;
                    let spec = after.parse().map_err(|error: isonomia_policy::ParsePolicyError| error.to_string())?;
                    settings.policy = Some((draw, spec));
                    return Ok(settings);
                }
            }
            rest = after;
        }
        let says_something = settings.placement.is_some();
        says_something.then_some(settings).ok_or_else(|| format!("{text:?} sets nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PolicySpec {
        "group{astro=3,bio=1}-then-job-fair+latency{p99=2ms,job:viz}".parse().unwrap()
    }

    #[test]
    fn what_is_kept_is_read() {
        for draw in [Draw::VirtualTime, Draw::Lottery] {
            for placement in [None, Some(None), Some(Some(Placement::Balanced))] {
                for mark in [0, 7] {
                    let settings = Settings { policy: Some((draw, spec())), mark, placement };
                    assert_eq!(settings.to_string().parse(), Ok(settings));
                }
            }
        }
        let alone = Settings::placement(Some(Placement::Hash));
        assert_eq!((alone.to_string(), alone.to_string().parse()), ("place=hash".to_owned(), Ok(alone)));
        for bad in
            ["", "fifo", "lottery", "lottery ", "dice fifo", "lottery of-tomorrow", "place=here", "set=x", "set=3"]
        {
            assert!(bad.parse::<Settings>().is_err(), "{bad}");
        }
    }

    #[test]
    fn neither_change_undoes_the_other() {
        let placed = Settings::default().changed(Settings::placement(Some(Placement::Balanced)), 1);
        let both = placed.clone().changed(Settings::policy(Draw::VirtualTime, spec()), 2);
        assert_eq!((both.mark, both.placement), (2, placed.placement));
        let other = both.clone().changed(Settings::placement(None), 3);
        assert_eq!(other, Settings { placement: Some(None), ..both }, "the policy is not set anew");
    }
}
