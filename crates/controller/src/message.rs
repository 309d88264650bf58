//! What the controller and the servers say to each other, and its bytes: one of format ([`FORMAT`]) and then the message as
//! `postcard` writes it.

use isonomia_units::{JobInfo, TargetId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The first byte of every message.
pub const FORMAT: u8 = 1;
/// Jobs of one message at most.
pub const JOBS_MAX: usize = 4_096;
/// Rows of one message at most.
pub const ROWS_MAX: usize = 4_096;
/// The longest message in bytes.
pub const MESSAGE_LEN_MAX: usize = 64 << 10;
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

/// The controller begins a round: who has jobs that do I/O, reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Who asks.
    pub term: Term,
    /// From 1 on.
    pub round: u64,
}

/// What the jobs of one server have of its targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of the controller that asked.
    pub term: Term,
    /// What is answered; 0 if nobody has asked, and a job has begun to do I/O.
    pub round: u64,
    /// The version of the allocation that the server holds; 0 for none.
    pub version: u64,
    /// Over which time service was counted, in nanoseconds.
    pub window_ns: u64,
    /// The jobs that did I/O in it. Empty: there are none, and the server need not be asked again soon.
    pub jobs: Vec<ReportedJob>,
    /// What each had of each target.
    pub rows: Vec<Row>,
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
    /// Its place in [`Report::jobs`].
    pub job: u32,
    /// The target.
    pub target: TargetId,
    /// Service that it had in the window, in microseconds.
    pub service_us: u64,
    /// Its requests waited so long that it would use more.
    pub is_short: bool,
    /// How far its present I/O phase has come here, if the policy goes by that.
    pub progress: Option<Progress>,
}

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

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// As in this version, which the server has.
    As(u64),
    /// Parts of targets.
    Rates {
        /// The jobs.
        jobs: Vec<JobKey>,
        /// What each gets of each target that it uses.
        rates: Vec<Rate>,
    },
    /// The places of jobs in an order, the least first.
    Ranks(Vec<(JobKey, u32)>),
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
    /// Its place among the jobs of the message.
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
    /// A row names a job that is not in the message.
    #[error("a row names job {job} of {jobs}")]
    UnknownJob {
        /// What it names.
        job: u32,
        /// Jobs of the message.
        jobs: usize,
    },
    /// More than the whole of a target.
    #[error("{parts} parts of a target ({PARTS_PER_TARGET} at most)")]
    TooMuch {
        /// What was given.
        parts: u32,
    },
}

impl JobKey {
    /// Of a job.
    pub fn of(info: &JobInfo) -> Self {
        Self { user: info.user.clone(), name: info.name.clone() }
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
    match bytes.split_first() {
        Some((&FORMAT, body)) => match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(message),
            _ => Err(BadMessage::Malformed),
        },
        first => Err(BadMessage::Format(first.map(|(format, _)| *format))),
    }
}

fn check_rows(jobs: usize, rows: impl ExactSizeIterator<Item = u32>) -> Result<(), BadMessage> {
    let mut rows = rows;
    if jobs > JOBS_MAX || rows.len() > ROWS_MAX {
        return Err(BadMessage::TooLong { jobs, rows: rows.len() });
    }
    match rows.find(|job| *job as usize >= jobs) {
        Some(job) => Err(BadMessage::UnknownJob { job, jobs }),
        None => Ok(()),
    }
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
        check_rows(report.jobs.len(), report.rows.iter().map(|row| row.job))?;
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
            Content::As(_) => {}
            Content::Rates { jobs, rates } => {
                check_rows(jobs.len(), rates.iter().map(|rate| rate.job))?;
                if let Some(rate) = rates.iter().find(|rate| rate.parts > PARTS_PER_TARGET) {
                    return Err(BadMessage::TooMuch { parts: rate.parts });
                }
            }
            Content::Ranks(ranks) => check_rows(ranks.len(), std::iter::empty::<u32>())?,
        }
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report() -> Report {
        let job = ReportedJob::from(&JobInfo { nodes: 7, ..JobInfo::new("j", "ada", "astro").claimed_within("p") });
        let progress = Some(Progress { attained_ms: 4, elapsed_ms: 9, remaining_ms: None });
        let row = Row { job: 0, target: TargetId(300), service_us: 77, is_short: true, progress };
        let term = Term { epoch: 3, number: 70_000 };
        Report { term, round: 12, version: 4, window_ns: 5, jobs: vec![job], rows: vec![row] }
    }

    fn allocation() -> Allocation {
        let jobs = vec![JobKey { user: "ada".into(), name: "j".into() }];
        let rates = vec![Rate { job: 0, target: TargetId(300), parts: PARTS_PER_TARGET }];
        let term = Term { epoch: 3, number: 70_000 };
        Allocation { term, version: 4, valid_ms: 16_000, content: Content::Rates { jobs, rates } }
    }

    #[test]
    fn what_is_sent_is_received_and_nothing_else() {
        let ask = Ask { term: Term { epoch: 1, number: 2 }, round: 3 };
        assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        assert_eq!(ask.encode().len(), 4, "it is sent to every server every interval");
        assert_eq!(Report::decode(&report().encode()), Ok(report()));
        assert_eq!(Allocation::decode(&allocation().encode()), Ok(allocation()));
        let bytes = report().encode();
        assert_eq!(Report::decode(&bytes[..bytes.len() - 1]), Err(BadMessage::Malformed));
        assert_eq!(Report::decode(&[&bytes[..], b"x"].concat()), Err(BadMessage::Malformed));
        assert_eq!(Report::decode(&[&[FORMAT + 1], &bytes[1..]].concat()), Err(BadMessage::Format(Some(FORMAT + 1))));
        assert_eq!(Report::decode(&[]), Err(BadMessage::Format(None)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut stray = report();
        stray.rows[0].job = 1;
        assert_eq!(Report::decode(&stray.encode()), Err(BadMessage::UnknownJob { job: 1, jobs: 1 }));
        let mut long = report();
        long.rows = vec![long.rows[0]; ROWS_MAX + 1];
        assert_eq!(Report::decode(&long.encode()), Err(BadMessage::TooLong { jobs: 1, rows: ROWS_MAX + 1 }));
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
