//! What files of several servers take: a volume server asks the data servers that have their objects, and adds up.
//!
//! Its store says once a second which files are to be counted ([`Report::Want`]), a round. What it is told ([`Act::Keep`]) is of
//! the round in which it asked for the file last; whether the file has changed since is for the store to know. Nothing is
//! said twice: where a data server does not answer, the store asks for the file again in a later round.
//!
//! A data server leaves out what it cannot count. Answers to another process of the volume server, to an older question
//! for the file, or of somebody who was not asked, count for nothing.

use crate::objects::{ASKED_MAX, ObjectsId, PARTS_MAX};
use crate::volumes::copy::Ask;
use isonomia_units::{ServerId, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Files of one round at most.
pub const FILES_MAX: usize = 512;
/// Rounds after which nobody waits for an answer any more.
const ROUNDS_MAX: u64 = 8;

const _: () = assert!(FILES_MAX <= ASKED_MAX);

/// Objects of one file, on one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The file's.
    pub objects: ObjectsId,
    /// Index of the stripe and target of each, [`PARTS_MAX`] at most.
    pub places: Vec<(u32, TargetId)>,
}

/// A file that is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its objects.
    pub objects: ObjectsId,
    /// Who has which of them.
    pub places: BTreeMap<ServerId, Vec<(u32, TargetId)>>,
}

/// What the store tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// These are to be counted, [`FILES_MAX`] at most.
    Want {
        /// Each call has a higher one.
        round: u64,
        /// The files.
        files: Vec<Wanted>,
    },
    /// It has counted what [`Act::Count`] asked for.
    Counted {
        /// Who asked.
        asker: ServerId,
        /// What.
        ask: Ask,
        /// Blocks of 512 bytes, of each file that could be counted.
        counted: Vec<(ObjectsId, u64)>,
    },
}

/// What the store has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Count these, and say what they take ([`Report::Counted`]).
    Count {
        /// Who asks.
        asker: ServerId,
        /// What.
        ask: Ask,
        /// Objects that are here.
        files: Vec<Places>,
    },
    /// So many blocks of 512 bytes these files take.
    Keep {
        /// Of [`Report::Want`].
        round: u64,
        /// The files.
        counted: Vec<(ObjectsId, u64)>,
    },
}

/// What servers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// To a data server: how much do these objects take?
    Ask {
        /// Which question.
        ask: Ask,
        /// The objects, [`PARTS_MAX`] at most in all.
        files: Vec<Places>,
    },
    /// The answer: blocks of 512 bytes.
    Counted {
        /// Which question.
        ask: Ask,
        /// The files, [`ASKED_MAX`] at most.
        counted: Vec<(ObjectsId, u64)>,
    },
}

impl Said {
    /// Whether what the types alone do not say holds.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Ask { files, .. } => {
                files.len() <= ASKED_MAX && files.iter().map(|file| file.places.len()).sum::<usize>() <= PARTS_MAX
            }
            Self::Counted { counted, .. } => counted.len() <= ASKED_MAX,
        }
    }
}

/// Files that are being counted.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<ObjectsId, Count>);

#[derive(Debug)]
struct Count {
    round: u64,
    /// Who has not answered.
    left: BTreeSet<ServerId>,
    blocks: u64,
}

impl Counts {
    /// A round begins: the questions for each server, each of them short enough for a message.
    pub fn begin(&mut self, round: u64, files: Vec<Wanted>) -> Vec<(ServerId, Vec<Places>)> {
        self.0.retain(|_, count| count.round + ROUNDS_MAX > round);
        let mut questions: BTreeMap<ServerId, Vec<Vec<Places>>> = BTreeMap::new();
        for Wanted { objects, places } in files.into_iter().take(FILES_MAX) {
            let left = places.keys().copied().collect();
            self.0.insert(objects, Count { round, left, blocks: 0 });
            for (server, places) in places {
                let asked = questions.entry(server).or_default();
                let fits = |files: &&mut Vec<Places>| {
                    files.iter().map(|file| file.places.len()).sum::<usize>() + places.len() <= PARTS_MAX
                };
                match asked.last_mut().filter(fits) {
                    Some(files) => files.push(Places { objects, places }),
                    None => asked.push(vec![Places { objects, places }]),
                }
            }
        }
        questions.into_iter().flat_map(|(server, asked)| asked.into_iter().map(move |files| (server, files))).collect()
    }

    /// `from` has counted; what is complete now.
    pub fn answered(&mut self, from: ServerId, round: u64, counted: Vec<(ObjectsId, u64)>) -> Vec<(ObjectsId, u64)> {
        let mut done = Vec::new();
        for (objects, blocks) in counted {
            let Some(count) = self.0.get_mut(&objects).filter(|count| count.round == round) else { continue };
            if count.left.remove(&from) {
                count.blocks = count.blocks.saturating_add(blocks);
            }
            if count.left.is_empty() {
                done.push((objects, count.blocks));
                self.0.remove(&objects);
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(number: u64) -> ObjectsId {
        ObjectsId { number, generation: 1 }
    }

    fn wanted(number: u64, servers: &[u16], places: usize) -> Wanted {
        let places = |server| (ServerId(server), vec![(0, TargetId(server)); places]);
        Wanted { objects: objects(number), places: servers.iter().copied().map(places).collect() }
    }

    #[test]
    fn what_all_servers_have_counted_is_added_up_once() {
        let mut counts = Counts::default();
        let asked = counts.begin(1, vec![wanted(7, &[1, 2], 1), wanted(8, &[2], 1)]);
        assert_eq!(asked.iter().map(|(server, files)| (server.0, files.len())).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
        assert_eq!(counts.answered(ServerId(1), 1, vec![(objects(7), 8)]), []);
        assert_eq!(counts.answered(ServerId(1), 1, vec![(objects(7), 8)]), [], "twice");
        assert_eq!(counts.answered(ServerId(3), 1, vec![(objects(8), 8)]), [], "who was not asked");
        let both = vec![(objects(7), 16), (objects(8), 0), (objects(9), 5)];
        assert_eq!(counts.answered(ServerId(2), 1, both.clone()), [(objects(7), 24), (objects(8), 0)]);
        assert_eq!(counts.answered(ServerId(2), 1, both), []);
    }

    #[test]
    fn an_older_answer_is_none_and_nobody_waits_for_ever() {
        let mut counts = Counts::default();
        counts.begin(1, vec![wanted(7, &[1], 1), wanted(8, &[1], 1)]);
        counts.begin(2, vec![wanted(7, &[1], 1)]);
        assert_eq!(counts.answered(ServerId(1), 1, vec![(objects(7), 8), (objects(8), 8)]), [(objects(8), 8)]);
        assert_eq!(counts.answered(ServerId(1), 2, vec![(objects(7), 16)]), [(objects(7), 16)]);
        counts.begin(3, vec![wanted(7, &[1], 1)]);
        counts.begin(3 + ROUNDS_MAX, Vec::new());
        assert!(counts.0.is_empty());
    }

    #[test]
    fn a_question_is_as_long_as_a_message_may_be() {
        let mut counts = Counts::default();
        let files = (0..9).map(|number| wanted(number, &[1], PARTS_MAX / 4)).collect();
        let asked = counts.begin(1, files);
        assert_eq!(asked.iter().map(|(_, files)| files.len()).collect::<Vec<_>>(), [4, 4, 1]);
        let ask = Ask { token: 1, number: 1 };
        assert!(asked.into_iter().all(|(_, files)| Said::Ask { ask, files }.is_sound()));
    }
}
