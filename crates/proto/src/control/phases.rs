//! What operators hear of jobs' I/O phases.

use serde::{Deserialize, Serialize};

/// A job's I/O phase over all data targets, in service as the policy counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseStatus {
    /// What the job received since the phase began.
    pub received_ns: u64,
    /// What fair sharing would have served of it by now.
    pub fair_ns: u64,
    /// What it is expected to need.
    pub expected_ns: u64,
    /// How far what the history told of the job's application was off, as a mean factor of at least 1, at the target where it was
    /// off most. None before any of it could be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation_error: Option<f64>,
}

impl PhaseStatus {
    /// Adds what other targets, or another server, say of the same phase.
    pub fn add(&mut self, other: &Self) {
        self.received_ns += other.received_ns;
        self.fair_ns += other.fair_ns;
        self.expected_ns += other.expected_ns;
        let errors = [self.expectation_error, other.expectation_error];
        self.expectation_error = errors.into_iter().flatten().reduce(f64::max);
    }
}

/// What came of a job's I/O phases since it came, each counted at every data target that it was on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenessStatus {
    /// Phases that have ended.
    pub phases_total: u64,
    /// Of these, those that ended later than under fair sharing.
    pub late_total: u64,
    /// By how much in all.
    pub late_ns_total: u64,
}

impl LatenessStatus {
    /// Adds what other targets, or another server, say of the same job.
    pub fn add(&mut self, other: &Self) {
        self.phases_total += other.phases_total;
        self.late_total += other.late_total;
        self.late_ns_total += other.late_ns_total;
    }
}

/// What a server remembers of the I/O phases of applications that recur.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplicationList {
    /// By target, and at each the one that ended a phase last first.
    pub applications: Vec<ApplicationStatus>,
    /// How many more are remembered, which are not told of.
    pub others: u64,
}

/// What a target remembers of an application's I/O phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplicationStatus {
    /// Its number, or `metadata`.
    pub target: String,
    /// Whose application it is.
    pub user: String,
    /// The title of its jobs, or their name where they have none.
    pub application: String,
    /// Phases that it ended since it is remembered.
    pub phases_total: u64,
    /// What its next one is expected to need, in service as the policy counts it.
    pub expected_ns: u64,
    /// The latest phases, which that is expected by.
    pub sizes: u64,
    /// How far what was expected was off, as a mean factor of at least 1; none before any of it could be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation_error: Option<f64>,
}

/// The I/O node that all data targets of a server are under the policy `exclusive`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusiveStatus {
    /// In which order applications get it.
    pub order: String,
    /// The longest that others wait for one grant to end.
    pub lease_ns: u64,
    /// How long an application leaves it idle before its phase is over.
    pub gap_ns: u64,
    /// Everybody is served, because the coordinator is silent.
    pub is_open: bool,
    /// The server that decides, in a cluster.
    #[serde(default)]
    pub coordinator: Option<String>,
    /// Who has it: user and job, or what the job is claimed within.
    #[serde(default)]
    pub holder: Option<String>,
    /// Applications that wait.
    pub waiting: u64,
    /// Grants that ended because the application left the node idle, since the policy was set.
    pub ended_by_gap_total: u64,
    /// Because it said so.
    pub ended_by_program_total: u64,
    /// Because others waited and the lease was over.
    pub ended_by_lease_total: u64,
    /// Because it and another application had a server's targets each and waited for the other's.
    #[serde(default)]
    pub ended_by_crossing_total: u64,
    /// Because the application had gone.
    pub ended_by_leaving_total: u64,
}

/// What became of an application's I/O phases under the policy `exclusive`, since that was set or the application came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExclusiveJobStatus {
    /// `away`, `waiting` or `holding`.
    pub state: String,
    /// How long it has been known.
    pub age_ns: u64,
    /// How long it had the targets.
    pub io_ns: u64,
    /// How long it waited for them.
    pub waited_ns: u64,
    /// The longest wait.
    pub waited_max_ns: u64,
    /// Phases that are over.
    pub phases_total: u64,
    /// Its time over what it would have been without waiting; 1 is undisturbed.
    pub stretch: f64,
}
