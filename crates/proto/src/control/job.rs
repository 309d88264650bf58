//! What the status tells of one job.

use super::{ExclusiveJobStatus, LatenessStatus, PhaseStatus};
use serde::{Deserialize, Serialize};

fn claim() -> String {
    "claim".to_owned()
}

/// One job's state; rates and shares are those of the last [`Status::window_s`](super::Status::window_s).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job's name.
    pub job: String,
    /// Who it is charged to.
    pub user: String,
    /// Group (account, project).
    pub group: String,
    /// Compute nodes.
    pub nodes: u32,
    /// Priority.
    pub priority: u32,
    /// Who says that it is this job: `cgroup`, by the control group that the kernel has its processes in; `claim`, only the
    /// job itself; `trust`, the same on a server that trusts its clients.
    #[serde(default = "claim")]
    pub proof: String,
    /// The proven job that a claimed one is a part of, if there is one.
    #[serde(default)]
    pub within: Option<String>,
    /// Connected client processes.
    pub clients: u64,
    /// Fraction of the service due to it among the active jobs: 0 when it is idle or the policy has no shares.
    pub share_due: f64,
    /// Fraction of the service that it received.
    pub share_received: f64,
    /// Service of targets that it received, as `data_service_ns_total` counts it; so that shares can be computed over several servers.
    #[serde(default)]
    pub data_service_ns: u64,
    /// The same of the metadata service.
    #[serde(default)]
    pub metadata_service_ns: u64,
    /// Bytes read and written per second.
    pub throughput_bytes_per_s: f64,
    /// Requests per second, metadata operations included.
    pub requests_per_s: f64,
    /// How far its I/O phase has come, if it is in one and there is a fair clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseStatus>,
    /// What came of its I/O phases, if there is a fair clock and one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessStatus>,
    /// Its turns, under a policy that gives the data targets to one application at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<ExclusiveJobStatus>,
    /// Requests that wait for their turn.
    pub queued: u64,
    /// From arrival to reply, median.
    pub latency_p50_us: f64,
    /// 99th percentile.
    pub latency_p99_us: f64,
    /// Largest since the start.
    pub latency_max_us: f64,
    /// Since the start.
    pub read_bytes_total: u64,
    /// Since the start.
    pub written_bytes_total: u64,
    /// Since the start, metadata operations included.
    pub requests_total: u64,
    /// Service cost since the start.
    pub service_ns_total: u64,
    /// The part of it at data targets, which is what a policy divides there: of a real device, its time at what that is worth. The rest, metadata
    /// operations that wait, is plain time, so only this part shows the shares of a device.
    #[serde(default)]
    pub data_service_ns_total: u64,
}
