//! What the controller and the servers say to each other, and its bytes: one of format ([`FORMAT`]) and then the message as
//! `postcard` writes it.

use isonomia_units::{JobInfo, Nanos, TargetId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The first byte of every message.
pub const FORMAT: u8 = 4;
/// Jobs of one message at most.
pub const JOBS_MAX: usize = 4_096;
/// Rows of one message at most.
pub const ROWS_MAX: usize = 4_096;
/// The longest message in bytes. What a server has to say of itself fits into half of it ([`Meters`](isonomia_policy::exchange::Meters)).
pub const MESSAGE_LEN_MAX: usize = 128 << 10;
/// Rates are counted in parts of a target's time.
pub const PARTS_PER_TARGET: u32 = 1_000_000;

/// Which controller it is: the later one has the higher term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Term {
    /// Epoch of the cluster file by which it is the controller.
    pub epoch: u32,
    /// Grows from one controller of that file to the next.
    pub number: u64,
}

/// The controller asks for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// With all that is to be said.
    Whole {
        /// Who asks.
        term: Term,
        /// From 1 on.
        round: u64,
        /// Everything is to be reported, and not only what has changed.
        wants_all: bool,
        /// The allocation that the server has of this term goes on.
        renews: bool,
    },
    /// Of the controller that asked before, a few rounds later: what has changed is to be reported, and the allocation goes on.
    Next {
        /// The last byte of the term ([`Term::tag`]).
        tag: u8,
        /// The last byte of the round.
        round: u8,
    },
    /// Of the controller that asked before: nothing is to be reported, and the allocation goes on.
    Nothing {
        /// The last byte of the term ([`Term::tag`]).
        tag: u8,
        /// The last byte of the round.
        round: u8,
    },
}

/// What the jobs of one server use of its targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// What was reported before is still true.
    Same {
        /// The last byte of the term.
        tag: u8,
        /// The last byte of the round that is answered.
        round: u8,
        /// The last byte of the number of the report that counts.
        number: u8,
        /// The last byte of the version of the allocation that the server has.
        version: u8,
    },
    /// What has changed since the report before.
    Changes(Changes),
}

/// What has changed at a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Of the controller that asked, or that was heard last.
    pub term: Term,
    /// What is answered; 0 if nobody has asked.
    pub round: u64,
    /// The version of the allocation that the server has; 0 for none.
    pub version: u64,
    /// Counts what the server reports to one controller.
    pub number: u64,
    /// It is all, and not only what has changed.
    pub is_whole: bool,
    /// Jobs that were not told of before, or otherwise: each with a number that the server knows it by from now on.
    pub jobs: Vec<(u32, ReportedJob)>,
    /// Jobs on targets that they did not use before, or of which they now want or have had something else.
    pub rows: Vec<Row>,
    /// Jobs that use a target no more.
    pub gone: Vec<(u32, TargetId)>,
}

/// A job as a server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedJob {
    /// Its name.
    pub name: Arc<str>,
    /// Its user.
    pub user: Arc<str>,
    /// Its group.
    pub group: Arc<str>,
    /// Compute nodes.
    pub nodes: u32,
    /// Priority.
    pub priority: u32,
    /// See [`JobInfo::within`].
    pub within: Option<Arc<str>>,
    /// See [`JobInfo::title`].
    pub title: Option<Arc<str>>,
    /// See [`JobInfo::executable`].
    pub executable: Option<Arc<str>>,
}

/// A job on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number at this server.
    pub job: u32,
    /// The target.
    pub target: TargetId,
    /// What it wants of the target, and had of it.
    pub load: Load,
    /// How far its present I/O phase has come here, if the policy goes by that.
    pub progress: Option<Progress>,
}

/// What a job had of a target in the last while, and whether it wants more: in one byte, for a report has many.
///
/// It is counted in the target's time, as parts and coupons are. Bytes would say less: what they take of a target depends on where
/// they lie and on how many come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load(u8);

/// How far an I/O phase has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Service that it had, in milliseconds.
    pub attained_ms: u64,
    /// Since it began, in milliseconds.
    pub elapsed_ms: u64,
    /// Service that it still needs, in milliseconds, if that is known.
    pub remaining_ms: Option<u64>,
}

/// What the jobs get of the targets of one server, from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Whose decision it is.
    pub term: Term,
    /// Counts the decisions of that controller.
    pub version: u64,
    /// It ends so many milliseconds after it came.
    pub valid_ms: u32,
    /// What was decided.
    pub content: Content,
}

/// A decision, as far as it is about one server. Jobs are named by the numbers that this server gave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Parts of targets.
    Rates {
        /// They are changes to what this version says; 0 if they are all.
        after: u64,
        /// What jobs get of targets.
        rates: Vec<Rate>,
        /// Who gets nothing more of which target.
        gone: Vec<(u32, TargetId)>,
    },
    /// The ranks of jobs in an order, the least first.
    Ranks(Vec<(u32, u32)>),
}

/// What a job is known by on all servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Its user.
    pub user: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// What a job gets of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Its number at the server.
    pub job: u32,
    /// The target.
    pub target: TargetId,
    /// In parts of [`PARTS_PER_TARGET`].
    pub parts: u32,
}

/// Bytes that are no message that this program knows, or one that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Of another format.
    #[error("a message of format {0:?}: this program knows {FORMAT}")]
    Format(Option<u8>),
    /// Not what a message looks like.
    #[error("a message that cannot be read")]
    Malformed,
    /// Too much.
    #[error("a message of {jobs} jobs and {rows} rows ({JOBS_MAX} and {ROWS_MAX} at most)")]
    TooLong {
        /// Jobs.
        jobs: usize,
        /// Rows.
        rows: usize,
    },
    /// It has more bytes than any message of ours.
    #[error("a message of {0} bytes ({MESSAGE_LEN_MAX} at most)")]
    TooManyBytes(usize),
    /// More than the whole of a target.
    #[error("{parts} parts of a target ({PARTS_PER_TARGET} at most)")]
    TooMuch {
        /// What was given.
        parts: u32,
    },
}

impl Term {
    /// Its last byte: what tells it from the terms just before it.
    pub fn tag(self) -> u8 {
        self.number as u8 ^ self.epoch as u8
    }
}

impl Load {
    /// Of a job of which it is not known what it had: it wants all that it can get.
    pub const WANTS_ALL: Self = Self(Self::WANTS_MORE);
    /// The bit that says so. The others are a step, which says what it had.
    const WANTS_MORE: u8 = 0x80;
    /// Steps are as floating-point numbers with so many bits of fraction: the first 32 are one unit apart, those above 3 % to 6 %. In hundredths
    /// of a target, a hundred jobs that do next to nothing would fill it.
    const FRACTION_BITS: u32 = 4;
    const UNIT: u32 = PARTS_PER_TARGET / 2_000;
    /// It stands for the whole target.
    const STEP_MAX: u8 = Self::WANTS_MORE - 1;
    /// A job that wants no more than it has is expected to want up to a quarter more next, or what it had and this.
    const MARGIN: u32 = 4;
    const MARGIN_LEAST: u32 = 2 * Self::UNIT;
    /// What one had that wants more is another amount if it differs by this.
    const OTHER_HAD: u32 = PARTS_PER_TARGET / 4;

    /// Of a job that had `service` of a target in so long a time, and waited for more or did not.
    pub fn of(service: Nanos, window: Nanos, wants_more: bool) -> Self {
        let parts = (u128::from(service.0) * u128::from(PARTS_PER_TARGET)).div_ceil(u128::from(window.0.max(1)));
        Self::with_parts(u32::try_from(parts).unwrap_or(PARTS_PER_TARGET), wants_more)
    }

    fn with_parts(parts: u32, wants_more: bool) -> Self {
        let units = parts.min(PARTS_PER_TARGET).div_ceil(Self::UNIT);
        let shift = units.checked_ilog2().unwrap_or(0).saturating_sub(Self::FRACTION_BITS);
        let step = (shift << Self::FRACTION_BITS) + units.div_ceil(1 << shift);
        let step = u8::try_from(step).map_or(Self::STEP_MAX, |step| step.min(Self::STEP_MAX));
        Self(if wants_more { step | Self::WANTS_MORE } else { step })
    }

    /// What it had, in parts of [`PARTS_PER_TARGET`], rounded up to the next step.
    pub fn had_parts(self) -> u32 {
        let step = self.0 & !Self::WANTS_MORE;
        if step == Self::STEP_MAX {
            return PARTS_PER_TARGET;
        }
        let shift = (u32::from(step) >> Self::FRACTION_BITS).saturating_sub(1);
        ((u32::from(step) - (shift << Self::FRACTION_BITS)) << shift) * Self::UNIT
    }

    /// What it may want until the next report, in the same parts; nothing if that is all that it can get.
    pub fn wanted_parts(self) -> Option<u32> {
        (!self.wants_more()).then(|| self.expected_parts())
    }

    /// Whether it waited for more.
    pub fn wants_more(self) -> bool {
        self.0 & Self::WANTS_MORE != 0
    }

    /// Whether it had next to nothing, the first step or less, and did not wait.
    pub(crate) fn is_least(self) -> bool {
        self.0 <= 1
    }

    /// That of two that are known as one job.
    pub(crate) fn with(self, other: Self) -> Self {
        Self::with_parts(self.had_parts() + other.had_parts(), self.wants_more() || other.wants_more())
    }

    fn expected_parts(self) -> u32 {
        let had = self.had_parts();
        (had + (had / Self::MARGIN).max(Self::MARGIN_LEAST)).min(PARTS_PER_TARGET)
    }

    /// Whether who was told `told` decides otherwise by this: what it had is more than what was expected by that, or so much less. So nobody
    /// who does not wait has more than is counted for long.
    pub(crate) fn wants_other_than(self, told: Self) -> bool {
        let is_above = |one: Self, other: Self| one.had_parts() > other.expected_parts();
        self.wants_more() != told.wants_more() || !self.wants_more() && (is_above(self, told) || is_above(told, self))
    }

    /// Whether it is worth saying to who was told `told` and is told something anyway.
    pub(crate) fn is_other_than(self, told: Self) -> bool {
        self.wants_other_than(told) || self.had_parts().abs_diff(told.had_parts()) >= Self::OTHER_HAD
    }
}

impl JobKey {
    /// Of a job.
    pub fn of(info: &JobInfo) -> Self {
        Self { user: info.user.clone(), name: info.name.clone() }
    }
}

impl From<&ReportedJob> for JobKey {
    fn from(job: &ReportedJob) -> Self {
        Self { user: job.user.clone(), name: job.name.clone() }
    }
}

impl From<&JobInfo> for ReportedJob {
    fn from(info: &JobInfo) -> Self {
        let JobInfo { name, user, group, nodes, priority, within, title, executable } = info.clone();
        Self { name, user, group, nodes, priority, within, title, executable }
    }
}

impl From<&ReportedJob> for JobInfo {
    fn from(job: &ReportedJob) -> Self {
        let ReportedJob { name, user, group, nodes, priority, within, title, executable } = job.clone();
        Self { name, user, group, nodes: nodes.max(1), priority: priority.max(1), within, title, executable }
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // Of numbers and texts there is nothing that cannot be written to memory.
    postcard::to_extend(message, vec![FORMAT]).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    if bytes.len() > MESSAGE_LEN_MAX {
        return Err(BadMessage::TooManyBytes(bytes.len()));
    }
    match bytes.split_first() {
        Some((&FORMAT, body)) => match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(message),
            _ => Err(BadMessage::Malformed),
        },
        first => Err(BadMessage::Format(first.map(|(format, _)| *format))),
    }
}

fn check_len(jobs: usize, rows: usize) -> Result<(), BadMessage> {
    if jobs > JOBS_MAX || rows > ROWS_MAX { Err(BadMessage::TooLong { jobs, rows }) } else { Ok(()) }
}

impl Ask {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// What was sent.
    ///
    /// # Errors
    /// It is nothing of this kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes)
    }
}

impl Report {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// What was sent.
    ///
    /// # Errors
    /// It is nothing of this kind, or makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let report: Self = decode(bytes)?;
        if let Self::Changes(Changes { jobs, rows, gone, .. }) = &report {
            check_len(jobs.len(), rows.len().max(gone.len()))?;
        }
        Ok(report)
    }
}

impl Allocation {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// What was sent.
    ///
    /// # Errors
    /// It is nothing of this kind, or makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let allocation: Self = decode(bytes)?;
        match &allocation.content {
            Content::Rates { rates, gone, .. } => {
                check_len(0, rates.len().max(gone.len()))?;
                if let Some(rate) = rates.iter().find(|rate| rate.parts > PARTS_PER_TARGET) {
                    return Err(BadMessage::TooMuch { parts: rate.parts });
                }
            }
            Content::Ranks(ranks) => check_len(ranks.len(), 0)?,
        }
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changes() -> Changes {
        let job = ReportedJob::from(&JobInfo { nodes: 7, ..JobInfo::new("j", "ada", "astro").claimed_within("p") });
        let progress = Some(Progress { attained_ms: 4, elapsed_ms: 9, remaining_ms: None });
        let load = Load::of(Nanos(1), Nanos(3), true);
        let row = Row { job: 3, target: TargetId(300), load, progress };
        let term = Term { epoch: 3, number: 70_000 };
        let (jobs, gone) = (vec![(3, job)], vec![(2, TargetId(301))]);
        Changes { term, round: 12, version: 4, number: 9, is_whole: false, jobs, rows: vec![row], gone }
    }

    fn allocation() -> Allocation {
        let rates = vec![Rate { job: 3, target: TargetId(300), parts: PARTS_PER_TARGET }];
        let term = Term { epoch: 3, number: 70_000 };
        let content = Content::Rates { after: 3, rates, gone: Vec::new() };
        Allocation { term, version: 4, valid_ms: 16_000, content }
    }

    #[test]
    fn what_is_sent_is_received_and_nothing_else() {
        let ask = Ask::Whole { term: Term { epoch: 1, number: 2 }, round: 3, wants_all: true, renews: false };
        assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        let (next, same) =
            (Ask::Next { tag: 200, round: 250 }, Report::Same { tag: 200, round: 250, number: 255, version: 255 });
        assert_eq!((Ask::decode(&next.encode()), Report::decode(&same.encode())), (Ok(next), Ok(same.clone())));
        assert_eq!((next.encode().len(), same.encode().len()), (4, 6), "all that is said while nothing changes");
        let report = Report::Changes(changes());
        assert_eq!(Report::decode(&report.encode()), Ok(report.clone()));
        assert_eq!(Allocation::decode(&allocation().encode()), Ok(allocation()));
        let bytes = report.encode();
        assert_eq!(Report::decode(&bytes[..bytes.len() - 1]), Err(BadMessage::Malformed));
        assert_eq!(Report::decode(&[&bytes[..], b"x"].concat()), Err(BadMessage::Malformed));
        assert_eq!(Report::decode(&[&[FORMAT + 1], &bytes[1..]].concat()), Err(BadMessage::Format(Some(FORMAT + 1))));
        assert_eq!(Report::decode(&[]), Err(BadMessage::Format(None)));
    }

    #[test]
    fn a_load_is_what_was_had_and_whether_that_was_all_that_is_wanted() {
        let load = |had, wants_more| Load::of(Nanos(had), Nanos(1_000), wants_more);
        let shown = |load: Load| (load.had_parts(), load.wanted_parts());
        assert_eq!(shown(load(401, true)), (416_000, None));
        assert_eq!(shown(load(400, false)), (400_000, Some(500_000)));
        assert_eq!(shown(load(900, false)), (928_000, Some(1_000_000)));
        assert_eq!(shown(load(1, false)), (1_000, Some(2_000)));
        assert_eq!(shown(load(0, false)), (0, Some(1_000)), "it was there");
        assert_eq!(shown(Load::of(Nanos(u64::MAX), Nanos(0), false)), (1_000_000, Some(1_000_000)));
        assert_eq!(shown(Load::WANTS_ALL), (0, None));
        // What is worth saying, and what is so by itself.
        let news = |told, now: Load| (now.is_other_than(told), now.wants_other_than(told));
        assert_eq!(news(load(400, false), load(400, true)), (true, true));
        assert_eq!(news(load(400, false), load(490, false)), (false, false));
        assert_eq!(news(load(400, false), load(500, false)), (true, true));
        assert_eq!(news(load(400, false), load(330, false)), (false, false));
        assert_eq!(news(load(400, false), load(300, false)), (true, true));
        assert_eq!(news(load(10, false), load(12, false)), (false, false));
        assert_eq!(news(load(10, false), load(14, false)), (true, true));
        assert_eq!(news(load(0, false), load(1, false)), (false, false), "a thousandth is no news");
        assert_eq!(news(load(0, false), load(2, false)), (true, true));
        assert_eq!(news(load(400, true), load(600, true)), (false, false));
        assert_eq!(news(load(400, true), load(900, true)), (true, false));
    }

    /// Whatever byte it is: what is told is told again as it was.
    #[test]
    fn steps_grow_by_little() {
        let steps: Vec<u32> = (0..=Load::STEP_MAX).map(|step| Load(step).had_parts()).collect();
        for (step, had) in (0_u8..).zip(&steps) {
            assert_eq!(Load::with_parts(*had, false), Load(step));
            assert_eq!(Load::with_parts(*had, true), Load(step | Load::WANTS_MORE));
        }
        assert!(steps.is_sorted_by(|one, next| one < next && next - one <= (one / 16).max(Load::UNIT)), "{steps:?}");
        assert_eq!((steps[0], steps[usize::from(Load::STEP_MAX)]), (0, PARTS_PER_TARGET));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut long = changes();
        long.rows = vec![long.rows[0]; ROWS_MAX + 1];
        let refused = Report::decode(&Report::Changes(long).encode());
        assert_eq!(refused, Err(BadMessage::TooLong { jobs: 1, rows: ROWS_MAX + 1 }));
        let bytes = [FORMAT; MESSAGE_LEN_MAX + 1];
        assert_eq!(Report::decode(&bytes), Err(BadMessage::TooManyBytes(MESSAGE_LEN_MAX + 1)));
        let mut much = allocation();
        let Content::Rates { rates, .. } = &mut much.content else { unreachable!("it has rates") };
        rates[0].parts += 1;
        assert_eq!(Allocation::decode(&much.encode()), Err(BadMessage::TooMuch { parts: PARTS_PER_TARGET + 1 }));
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200), known in any::<bool>()) {
            let bytes = if known { [&[FORMAT], &bytes[..]].concat() } else { bytes };
            let _ = (Ask::decode(&bytes), Report::decode(&bytes), Allocation::decode(&bytes));
        }
    }
}
