//! How the targets of new files are chosen, as the cluster file, directories, and operators say it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the targets of a new file are chosen. `Display` and `FromStr` are inverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Files lie on the server of their volume; those of directories that stripe their files, on all servers round-robin.
    #[default]
    Volume,
    /// By a hash of the file's number (rendezvous hashing): nobody has to remember anything.
    Hash,
    /// All targets round-robin.
    RoundRobin,
    /// By chance, each target as likely as the others.
    Random,
    /// The targets where a job has least, and others leave most (TAPP-IO).
    Balanced,
}

/// A word that is no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no placement (allowed: {allowed})", allowed = Placement::ALLOWED)]
pub struct BadPlacement(pub String);

impl Placement {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Volume, Self::Hash, Self::RoundRobin, Self::Random, Self::Balanced];
    /// Their words, for messages.
    pub const ALLOWED: &str = "volume, hash, round-robin, random, balanced";

    /// The word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Hash => "hash",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::Balanced => "balanced",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Placement {
    type Err = BadPlacement;

    fn from_str(text: &str) -> Result<Self, BadPlacement> {
        let found = Self::ALL.into_iter().find(|placement| placement.word() == text);
        found.ok_or_else(|| BadPlacement(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for placement in Placement::ALL {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        let words: Vec<_> = Placement::ALL.map(Placement::word).to_vec();
        assert_eq!(words.join(", "), Placement::ALLOWED);
        let error = "anywhere".parse::<Placement>().unwrap_err().to_string();
        assert_eq!(error, "\"anywhere\" is no placement (allowed: volume, hash, round-robin, random, balanced)");
    }
}
