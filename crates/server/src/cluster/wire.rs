//! What one server sends to another in a request ([`isonomia_proto::request::Op::Peer`]): a message of the protocol, or a
//! change that a user or an operator may make and the root server decides; and the question for a piece of a volume that moves.

use isonomia_cluster::peer::{BadMessage, Envelope, FORMAT};
use isonomia_cluster::request::{Answer, Refusal, Request};
use isonomia_planning::coordinator::{Publication, Report};
use isonomia_policy::exchange::{Row, TARGETS_MAX, Table, rates};
use isonomia_proto::XATTR_VALUE_LEN_MAX;
use isonomia_store::PieceCursor;
use isonomia_units::{Edition, JobInfo, VolumeId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is sent.
#[derive(Debug, PartialEq, Eq)]
pub enum ToPeer {
    /// As the protocol says: whoever gets it confirms that and nothing else.
    Message(Envelope),
    /// A change of a volume or of the policy; it is answered by a [`Verdict`].
    Request(Request),
}

/// Which piece of a volume that comes is wanted; it is the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPiece {
    /// The volume.
    pub volume: VolumeId,
    /// The piece.
    pub cursor: PieceCursor,
}

impl WantedPiece {
    /// Which kind it is, for the header.
    pub const KIND: u32 = 2;

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).unwrap_or_default()
    }

    /// What was sent.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (format, body) = bytes.split_first()?;
        if *format == FORMAT { postcard::from_bytes(body).ok() } else { None }
    }
}

/// What the jobs of the sender have of its targets, and what these have left; it is confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTable {
    /// Which of the sender's tables it is.
    pub edition: Edition,
    /// The jobs.
    pub table: Table,
    /// Free bytes of each target; of none, as long as it is not known.
    pub free_bytes: Vec<u64>,
}

impl JobTable {
    /// Which kind it is, for the header.
    pub const KIND: u32 = 3;
    /// The same, of what jobs have of the metadata services.
    pub const OF_METADATA: u32 = 11;

    /// Kind and bytes of a table.
    pub fn encode(edition: Edition, table: &Table, free_bytes: &[u64]) -> (u32, Vec<u8>) {
        (Self::KIND, postcard::to_extend(&SentTable::new(edition, table, free_bytes), vec![FORMAT]).unwrap_or_default())
    }

    /// What was sent.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (format, body) = bytes.split_first()?;
        match postcard::take_from_bytes(body) {
            Ok((SentTable { edition, window_ns, jobs, targets, free_bytes }, []))
                if *format == FORMAT && free_bytes.len() <= TARGETS_MAX =>
            {
                let table = Table { window_ns, jobs: jobs.into_iter().map(JobInfo::from).collect(), targets };
                Some(Self { edition, table, free_bytes })
            }
            _ => None,
        }
    }
}

/// The kind of a message with a table of rates, for the header; it is confirmed.
pub const RATE_TABLE: u32 = 7;

/// Kind and bytes of what the sender's classes have of the rates of rules, and which of its tables it is.
pub fn encode_rates(edition: Edition, table: &rates::Table) -> (u32, Vec<u8>) {
    (RATE_TABLE, postcard::to_extend(&(edition, table), vec![FORMAT]).unwrap_or_default())
}

/// What was sent.
pub fn decode_rates(bytes: &[u8]) -> Option<(Edition, rates::Table)> {
    decoded(bytes)
}

/// What an I/O node tells the coordinator of exclusive phases; it is confirmed.
pub struct PhaseReport;

impl PhaseReport {
    /// Which kind it is, for the header.
    pub const KIND: u32 = 8;

    /// Kind and bytes of a report. One that would be too long leaves out those who do not wait, and then those who came last.
    pub fn encode(mut report: Report) -> (u32, Vec<u8>) {
        loop {
            let bytes = postcard::to_extend(&report, vec![FORMAT]).unwrap_or_default();
            if bytes.len() <= XATTR_VALUE_LEN_MAX || report.applications.is_empty() {
                return (Self::KIND, bytes);
            }
            report.applications.truncate(report.applications.len() * 3 / 4);
        }
    }

    /// What was sent.
    pub fn decode(bytes: &[u8]) -> Option<Report> {
        decoded(bytes)
    }
}

/// Who has an I/O node; it is confirmed.
pub struct PhaseGrant;

impl PhaseGrant {
    /// Which kind it is, for the header.
    pub const KIND: u32 = 9;

    /// Kind and bytes.
    pub fn encode(publication: &Publication) -> (u32, Vec<u8>) {
        (Self::KIND, postcard::to_extend(publication, vec![FORMAT]).unwrap_or_default())
    }

    /// What was sent.
    pub fn decode(bytes: &[u8]) -> Option<Publication> {
        decoded(bytes)
    }
}

/// All of what was sent, and nothing else.
fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (format, body) = bytes.split_first()?;
    postcard::take_from_bytes(body).ok().filter(|(_, rest)| *format == FORMAT && rest.is_empty()).map(|(of, _)| of)
}

/// A table as it is sent. (The form of [`JobInfo`] in files leaves out what is not there, which this encoding cannot.)
#[derive(Serialize, Deserialize)]
struct SentTable {
    edition: Edition,
    window_ns: u64,
    jobs: Vec<SentJob>,
    targets: Vec<Vec<Row>>,
    free_bytes: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct SentJob {
    name: Arc<str>,
    user: Arc<str>,
    group: Arc<str>,
    nodes: u32,
    priority: u32,
    within: Option<Arc<str>>,
}

impl SentTable {
    fn new(edition: Edition, table: &Table, free_bytes: &[u64]) -> Self {
        let jobs = table.jobs.iter().cloned().map(|info| {
            let JobInfo { name, user, group, nodes, priority, within, .. } = info;
            SentJob { name, user, group, nodes, priority, within }
        });
        let (window_ns, targets, free_bytes) = (table.window_ns, table.targets.clone(), free_bytes.to_vec());
        Self { edition, window_ns, jobs: jobs.collect(), targets, free_bytes }
    }
}

impl From<SentJob> for JobInfo {
    fn from(job: SentJob) -> Self {
        let SentJob { name, user, group, nodes, priority, within } = job;
        // As a job has them that a client names.
        let (nodes, priority) = (nodes.max(1), priority.max(1));
        Self { nodes, priority, within, ..Self::new(&name, &user, &group) }
    }
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is made.
    Done,
    /// So is this volume.
    Volume(VolumeId),
    /// It is not, or not yet: an errno.
    Failed(u32),
    /// The policy is set, with this version.
    PolicySet(u64),
}

impl ToPeer {
    const MESSAGE: u32 = 0;
    const REQUEST: u32 = 1;

    /// Which of the two it is, for the header, and its bytes.
    pub fn encode(&self) -> (u32, Vec<u8>) {
        match self {
            Self::Message(envelope) => (Self::MESSAGE, envelope.encode()),
            Self::Request(request) => (Self::REQUEST, postcard::to_extend(request, vec![FORMAT]).unwrap_or_default()),
        }
    }

    /// What was sent.
    pub fn decode(kind: u32, bytes: &[u8]) -> Result<Self, BadMessage> {
        if kind == Self::MESSAGE {
            return Envelope::decode(bytes).map(Self::Message);
        }
        match (kind, bytes.split_first()) {
            (Self::REQUEST, Some((&FORMAT, body))) => match postcard::take_from_bytes(body) {
                Ok((request, [])) if is_decided_by_root(&request) => Ok(Self::Request(request)),
                _ => Err(BadMessage::Malformed),
            },
            (_, first) => Err(BadMessage::Format(first.map(|(format, _)| *format))),
        }
    }
}

impl Verdict {
    /// That of the root server's node.
    pub fn of(result: Result<Answer, Refusal>) -> Self {
        let errno = match result {
            Ok(Answer::Volume { key, .. }) => return Self::Volume(key.number),
            Ok(Answer::PolicySet { version }) => return Self::PolicySet(version),
            Ok(Answer::Done | Answer::Listed(_)) => return Self::Done,
            Err(Refusal::NotFound) => Errno::NOENT,
            Err(Refusal::Exists) => Errno::EXIST,
            Err(Refusal::NoNumbers) => Errno::NOSPC,
            Err(Refusal::UnknownServer) => Errno::NODEV,
            Err(Refusal::FileSystem(errno)) => return Self::Failed(errno.unsigned_abs()),
            Err(Refusal::TimedOut) => Errno::TIMEDOUT,
            // Whoever asked is not the root server, or this one is not any more.
            Err(Refusal::Refer(_) | Refusal::Busy | Refusal::EpochBehind | Refusal::NotOwner | Refusal::Starting) => {
                Errno::AGAIN
            }
            Err(Refusal::PolicyTooLong(_)) => Errno::INVAL,
        };
        Self::failed(errno)
    }

    /// Failure with this errno.
    pub fn failed(errno: Errno) -> Self {
        Self::Failed(errno.raw_os_error().unsigned_abs())
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Of these bytes; failure if they are none.
    pub fn decode(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).unwrap_or(Self::failed(Errno::PROTO))
    }
}

/// What changes nothing is no matter of other servers.
fn is_decided_by_root(request: &Request) -> bool {
    match request {
        Request::Make { .. } | Request::Remove { .. } | Request::Rename { .. } => true,
        Request::Move { .. } | Request::SetPolicy { .. } => true,
        Request::LookUp { .. } | Request::WhereIs { .. } | Request::List { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_cluster::request::RenameHow;
    use isonomia_cluster::volumes::VolumeName;
    use isonomia_policy::exchange::{Meters, Usage};
    use isonomia_units::{JobId, NAME_LEN_MAX, Nanos};
    use proptest::prelude::*;

    #[test]
    fn what_is_sent_is_received() {
        let name = |text: &[u8]| VolumeName::try_from(text).unwrap();
        let how = RenameHow::Exchange;
        for request in [
            Request::Remove { name: name(b"b"), found: Some(VolumeId(3)) },
            Request::Rename { from: name(b"c"), found: None, to: name(b"d"), how },
            Request::SetPolicy { text: "virtual-time fifo".into() },
        ] {
            let sent = ToPeer::Request(request);
            let (kind, bytes) = sent.encode();
            assert_eq!(ToPeer::decode(kind, &bytes), Ok(sent));
            assert!(ToPeer::decode(kind, &bytes[..bytes.len() - 1]).is_err() && ToPeer::decode(7, &bytes).is_err());
            assert_eq!(
                ToPeer::decode(kind, &[&[FORMAT + 1], &bytes[1..]].concat()),
                Err(BadMessage::Format(Some(FORMAT + 1)))
            );
        }
        let (kind, bytes) = ToPeer::Request(Request::WhereIs { number: VolumeId(1), referred: false }).encode();
        assert_eq!(ToPeer::decode(kind, &bytes), Err(BadMessage::Malformed));
        for verdict in [
            Verdict::Done,
            Verdict::Volume(VolumeId(7)),
            Verdict::failed(Errno::NOTEMPTY),
            Verdict::PolicySet(u64::MAX),
        ] {
            assert_eq!(Verdict::decode(&verdict.encode()), verdict);
        }
    }

    #[test]
    fn a_table_of_jobs_is_received() {
        let job = |at: usize| {
            let within = (at % 2 == 1).then(|| "proof".into());
            JobInfo { within, nodes: 7, priority: 3, ..JobInfo::new(&format!("j{at}"), "ada", "astro") }
        };
        let row = |job| Row { job, service_ns: u64::MAX, is_short: job == 1, fair_end_ns: u64::MAX };
        let targets = vec![(0..3).map(row).collect(), Vec::new()];
        let table = Table { window_ns: 9, jobs: (0..3).map(job).collect(), targets };
        let edition = Edition { process: 3, number: u64::MAX };
        let (kind, bytes) = JobTable::encode(edition, &table, &[u64::MAX, 0]);
        let sent = JobTable { edition, table, free_bytes: vec![u64::MAX, 0] };
        assert_eq!((kind, JobTable::decode(&bytes)), (JobTable::KIND, Some(sent.clone())));
        let many = JobTable::encode(edition, &sent.table, &[0; TARGETS_MAX + 1]).1;
        assert_eq!(JobTable::decode(&many), None, "more targets than a server has");
        assert_eq!(JobTable::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(JobTable::decode(&[&bytes[..], b"x"].concat()), None);
    }

    /// As many as a server tells of, with the longest names, fit into a message.
    #[test]
    fn a_table_fits_a_message() {
        let name = |at: u32| format!("{at:0>0$}", NAME_LEN_MAX);
        for name_of in [&name as &dyn Fn(u32) -> String, &|at| at.to_string()] {
            let mut meters = Meters::new(2, Nanos::from_millis(500));
            let usage = |at: u64| {
                let had = |job: u32| {
                    (JobId(job), Usage { service: Nanos(at * u64::from(job)), waited: Nanos(at), fair_end: Nanos::MAX })
                };
                [(0..9999).map(had).collect(), (0..9999).map(had).collect()]
            };
            let info = |job: JobId| Some(JobInfo::new(&name_of(job.0), &name_of(job.0), "g"));
            meters.table(Nanos(1), usage(1), info);
            let own = meters.table(Nanos(1_000_000_000), usage(1_000_000), info);
            let (_, bytes) =
                JobTable::encode(Edition { process: u64::MAX, number: u64::MAX }, &own.table, &[u64::MAX; TARGETS_MAX]);
            assert!(bytes.len() <= XATTR_VALUE_LEN_MAX && !own.table.jobs.is_empty(), "{}", bytes.len());
            own.table.check().unwrap();
            assert_eq!(own.table.jobs[0].name, name_of(9998).into(), "who uses the most is told of first");
        }
    }

    proptest! {
        #[test]
        fn decoding_is_total(kind in 0..4u32, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (ToPeer::decode(kind, &bytes), Verdict::decode(&bytes), JobTable::decode(&bytes), decode_rates(&bytes));
        }
    }
}
