//! How new files of a directory are striped, as text: the value of the extended attribute [`XATTR`].
//!
//! `count=4 size=1MiB servers=io1,io2,io3,io4`: words in any order, with a blank between them. Of a file that there is, the value
//! also says its targets. `place=balanced` says how the targets of new files are chosen, where the cluster has them chosen otherwise.

use crate::fs::Layout;
use isonomia_units::{Bytes, Placement, TargetId};
use std::fmt;
use std::str::FromStr;

/// Directories have it where new files are striped otherwise than by default, and files whose bytes are spread.
pub const XATTR: &[u8] = b"user.isonomia.layout";
/// Without another size.
pub const STRIPE_BYTES_DEFAULT: u64 = 1 << 20;
/// What a size may be.
pub const SIZES_ALLOWED: &str = "a multiple of 4KiB, to 1TiB";
/// The largest stripe.
pub const STRIPE_BYTES_MAX: u64 = 1 << 40;
/// The longest text.
pub const TEXT_LEN_MAX: usize = 16 << 10;

/// How files are striped. `Display` and `FromStr` are inverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Objects of a file, each on a target of its own: 1 to [`Layout::TARGETS_MAX`].
    pub count: usize,
    /// Bytes on one target before the next takes over: a multiple of [`Layout::STRIPE_ALIGN_BYTES`].
    pub stripe_bytes: u64,
    /// Names of the servers whose targets are used; empty for all of them.
    pub servers: Vec<String>,
    /// The very targets, in order, and nothing to choose; empty if they are chosen.
    pub targets: Vec<TargetId>,
    /// How targets are chosen; as the cluster says, if it is not said.
    pub place: Option<Placement>,
    /// A file is on one target while it is small, and on `count` of them once it is large: [`Layout::grows`].
    pub grows: bool,
}

/// A text that is no striping.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStriping {
    /// Too long.
    #[error("{0} bytes are too long for a layout (allowed: {TEXT_LEN_MAX})")]
    Length(usize),
    /// Not `key=value`, or an unknown key, or one that was there before.
    #[error(
        "{0:?} is no part of a layout (allowed, each once: count=N size=SIZE servers=NAME,NAME targets=N,N place=WORD \
         grow=yes)"
    )]
    Word(String),
    /// A count that is none.
    #[error("count={0:?} (allowed: 1 to {max})", max = Layout::TARGETS_MAX)]
    Count(String),
    /// A size that is none.
    #[error("size={0:?} (allowed: {SIZES_ALLOWED})")]
    Size(String),
    /// Targets that are none, or not as many as `count` says.
    #[error("targets={0:?} (allowed: as many different numbers as count says)")]
    Targets(String),
    /// A placement that is none.
    #[error("place={0:?} (allowed: {allowed})", allowed = Placement::ALLOWED)]
    Place(String),
    /// Something else than that it grows.
    #[error("grow={0:?} (allowed: yes)")]
    Grow(String),
}

impl Striping {
    /// Over `count` targets, with the default size.
    pub const fn over(count: usize) -> Self {
        Self {
            count,
            stripe_bytes: STRIPE_BYTES_DEFAULT,
            servers: Vec::new(),
            targets: Vec::new(),
            place: None,
            grows: false,
        }
    }

    /// What a stripe may be.
    pub fn size(text: &str) -> Result<u64, BadStriping> {
        let bad = || BadStriping::Size(text.to_owned());
        let Bytes(bytes) = text.parse().map_err(|_| bad())?;
        let is_allowed = bytes > 0 && bytes.is_multiple_of(Layout::STRIPE_ALIGN_BYTES) && bytes <= STRIPE_BYTES_MAX;
        if is_allowed { Ok(bytes) } else { Err(bad()) }
    }
}

impl FromStr for Striping {
    type Err = BadStriping;

    fn from_str(text: &str) -> Result<Self, BadStriping> {
        if text.len() > TEXT_LEN_MAX {
            return Err(BadStriping::Length(text.len()));
        }
        let (mut count, mut size, mut servers, mut targets) = (None, None, None, None);
        let (mut place, mut grow) = (None, None);
        for word in text.split_ascii_whitespace() {
            let bad = || BadStriping::Word(word.to_owned());
            let (key, value) = word.split_once('=').ok_or_else(bad)?;
            let before = match key {
                "count" => count.replace(value),
                "size" => size.replace(value),
                "servers" => servers.replace(value),
                "targets" => targets.replace(value),
                "place" => place.replace(value),
                "grow" => grow.replace(value),
                _ => return Err(bad()),
            };
            if before.is_some() || value.is_empty() {
                return Err(bad());
            }
        }
        if let Some(other) = grow.filter(|word| *word != "yes") {
            return Err(BadStriping::Grow(other.to_owned()));
        }
        let numbers = |list: &str| {
            let numbers: Option<Vec<TargetId>> = list.split(',').map(|one| one.parse().ok().map(TargetId)).collect();
            let is_different = |numbers: &Vec<TargetId>| {
                let mut sorted = numbers.clone();
                sorted.sort_unstable();
                sorted.is_sorted_by(|a, b| a < b)
            };
            numbers.filter(is_different).ok_or_else(|| BadStriping::Targets(list.to_owned()))
        };
        let numbers = targets.map(numbers).transpose()?.unwrap_or_default();
        let count = match count {
            None => numbers.len().max(1),
            Some(text) => text.parse().map_err(|_| BadStriping::Count(text.to_owned()))?,
        };
        if !(1..=Layout::TARGETS_MAX).contains(&count) {
            return Err(BadStriping::Count(count.to_string()));
        }
        if !numbers.is_empty() && numbers.len() != count {
            return Err(BadStriping::Targets(targets.unwrap_or_default().to_owned()));
        }
        Ok(Self {
            count,
            stripe_bytes: size.map_or(Ok(STRIPE_BYTES_DEFAULT), Self::size)?,
            servers: servers.map_or_else(Vec::new, |list: &str| list.split(',').map(str::to_owned).collect()),
            targets: numbers,
            place: place.map(|word| word.parse().map_err(|_| BadStriping::Place(word.to_owned()))).transpose()?,
            grows: grow.is_some(),
        })
    }
}

impl fmt::Display for Striping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Exactly: as many of the largest unit as there are.
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let exact = units.into_iter().find(|(_, bits)| self.stripe_bytes.is_multiple_of(1 << bits));
        let (unit, bits) = exact.unwrap_or(("B", 0));
        write!(f, "count={} size={}{unit}", self.count, self.stripe_bytes >> bits)?;
        if !self.servers.is_empty() {
            write!(f, " servers={}", self.servers.join(","))?;
        }
        if !self.targets.is_empty() {
            let numbers: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
            write!(f, " targets={}", numbers.join(","))?;
        }
        if let Some(place) = self.place {
            write!(f, " place={place}")?;
        }
        if self.grows {
            f.write_str(" grow=yes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_missing_is_the_default() {
        let striping: Striping = "count=3".parse().unwrap();
        assert_eq!(striping, Striping::over(3));
        assert_eq!("size=64KiB targets=5,3".parse::<Striping>().unwrap().to_string(), "count=2 size=64KiB targets=5,3");
        assert_eq!(
            " size=1048576  servers=a,b ".parse::<Striping>().unwrap().to_string(),
            "count=1 size=1MiB servers=a,b"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Striping>().unwrap_err().to_string();
        assert_eq!(error("count=0"), "count=\"0\" (allowed: 1 to 1024)");
        assert_eq!(error("count=many"), "count=\"many\" (allowed: 1 to 1024)");
        assert_eq!(error("size=5000"), "size=\"5000\" (allowed: a multiple of 4KiB, to 1TiB)");
        assert!(error("count=1 count=2").contains("\"count=2\" is no part of a layout"));
        assert!(error("colour=red").contains("allowed, each once: count=N"));
        assert!(error("count=2 targets=1").contains("as many different numbers as count says"));
        assert!(error("targets=1,1").contains("targets"));
        assert_eq!(error("grow=slowly"), "grow=\"slowly\" (allowed: yes)");
        assert_eq!(error("place=here"), "place=\"here\" (allowed: volume, hash, round-robin, random, balanced)");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            count in 1..=Layout::TARGETS_MAX,
            pages in 1..1u64 << 28,
            servers in proptest::collection::vec("[a-z][a-z0-9-]{0,5}", 0..4),
            is_chosen: bool,
            place in proptest::option::of(proptest::sample::select(Placement::ALL.to_vec())),
            grows: bool,
        ) {
            let targets = if is_chosen { Vec::new() } else { (0..count as u16).map(TargetId).collect() };
            let striping = Striping { count, stripe_bytes: pages * 4096, servers, targets, place, grows };
            prop_assert_eq!(striping.to_string().parse(), Ok(striping));
        }

        #[test]
        fn reading_is_total(text in "[a-z=, 0-9]{0,40}") {
            let _ = text.parse::<Striping>();
        }
    }
}
