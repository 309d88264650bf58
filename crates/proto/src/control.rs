//! What operators ask and set: JSON in set-up frames, over a connection with [`crate::setup::Role::Control`].
//!
//! The same types are what `isonomia status --json` prints; fields are added, not renamed.

mod failure;
mod job;
mod phases;
mod placement;
mod tried;

pub use failure::MetadataFailure;
pub use job::JobStatus;
pub use phases::{
    ApplicationList, ApplicationStatus, ExclusiveJobStatus, ExclusiveStatus, LatenessStatus, PhaseStatus,
};
pub use placement::{PlacementStatus, PlacementTarget};
pub use tried::{HeldJob, RateStatus, ShadowJob, ShadowStatus};

use crate::ledger::LedgerStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A question or a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Who gets what: answered with [`Status`].
    Status,
    /// Sets the sharing policy of every target; takes effect at once, nothing queued is dropped. In a cluster it is set for
    /// all servers: the root server decides it, and the reply has its version. Allowed to the server's user and to root.
    SetPolicy {
        /// The policy in its textual form, for example `user-then-size-fair`.
        policy: String,
        /// `virtual-time` or `lottery`; unchanged if absent.
        draw: Option<String>,
        /// In a cluster, for this server alone: until the cluster's policy is set the next time, or the server ends.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        only_here: bool,
        /// Only if this, in canonical form, is the policy of the server that is asked: another operator may have been faster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<String>,
    },
    /// Has another policy decide beside the one that is followed, without a say; or none any more. Of this server alone, until it
    /// ends. Answered with [`ControlReply::Done`]. Allowed to the server's user and to root.
    SetShadow {
        /// The policy in its textual form.
        policy: Option<String>,
    },
    /// Has every decision written to a file on the server's host from now on; or no more. Arbiters are made anew, with the policy as it is.
    /// Answered with [`ControlReply::Done`]. Allowed to the server's user and to root.
    Record {
        /// An absolute path where there is nothing yet, and for how long, in nanoseconds: an hour at most.
        to: Option<(String, u64)>,
    },
    /// Which servers the cluster has, and where they listen: answered with [`ControlReply::Members`].
    Members,
    /// Has a volume moved to another server: answered with [`ControlReply::VolumeMoved`], to be asked again until it is done.
    /// Asked to go where it comes from, it is given up. Allowed to the server's user and to root.
    MoveVolume {
        /// Its name.
        name: String,
        /// The server's number.
        to: u16,
        /// Drawn by who asks, and the same each time: it tells this wish from an earlier one.
        id: u64,
    },
    /// How new files are placed: answered with [`ControlReply::Placement`].
    Placement,
    /// Sets how the targets of new files are chosen, for all servers of the cluster: the root server decides it. Answered with
    /// [`ControlReply::PlacementSet`]. Allowed to the server's user and to root.
    SetPlacement {
        /// Its word, as in the cluster file; as that says if absent.
        placement: Option<String>,
    },
    /// Who is owed what for having been throttled: answered with [`ControlReply::Ledger`] by the server that decides for the
    /// cluster, if its policy is one that owes.
    Ledger,
    /// What this server remembers of the phases of applications that recur: answered with [`ControlReply::Applications`]. Allowed
    /// to the server's user and to root.
    Applications,
    /// Which volumes the cluster has, as far as this server knows: answered with [`ControlReply::Volumes`].
    Volumes,
    /// Has the server look at every object that it has of striped files. Those that belong to no file are removed, as they are
    /// without being asked for, only sooner. Answered at once with [`ControlReply::ObjectsChecked`], to be asked again until it
    /// is done. Allowed to the server's user and to root.
    CheckObjects {
        /// Drawn by who asks, and the same each time: it tells this wish from an earlier one. Not 0.
        id: u64,
    },
    /// Writes a copy of the metadata to a directory of the server's host, while everything goes on. Answered at once with
    /// [`ControlReply::Backup`]: to be asked again until it is done. Allowed to the server's user and to root.
    Backup {
        /// An absolute path where there is nothing yet, below a directory that exists.
        dir: String,
        /// Drawn by who asks, and the same each time: it tells this copy from an earlier one of the same name.
        id: u64,
    },
    /// Reads the cluster file again, which has to be this one, and takes it if it is newer. Answered with
    /// [`ControlReply::Reloaded`]. Allowed to the server's user and to root.
    Reload {
        /// Its epoch.
        epoch: u32,
        /// Tells files of one epoch apart, in hexadecimal digits.
        fingerprint: String,
        /// Says whether it would be taken, and changes nothing.
        is_trial: bool,
    },
}

/// The answer to a [`ControlRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// The state of the server, but for its jobs, which follow in [`Self::Jobs`].
    Status(Box<Status>),
    /// Some of the jobs of the status before it, in frames of their own, so that a status may have any length.
    Jobs {
        /// In the order of their names.
        jobs: Vec<JobStatus>,
        /// None follow.
        is_last: bool,
    },
    /// The cluster file that was asked for is taken, or would be.
    Reloaded {
        /// The server had it before.
        is_known: bool,
        /// It changes the server's own addresses, directory or targets, which count from its next start on.
        needs_restart: bool,
    },
    /// The policy is now this.
    Policy {
        /// Canonical form.
        policy: String,
        /// The draw.
        draw: String,
        /// The version that all servers of the cluster are to follow; not there if it is the policy of one server alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        /// What is strange about it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// It is done.
    Done,
    /// A volume is to move.
    VolumeMoved {
        /// It is there.
        is_done: bool,
    },
    /// The servers of the cluster.
    Members(MemberList),
    /// A copy of the metadata is being written, or it is done.
    Backup {
        /// Syncs that the copy has, once it is there and on stable storage.
        syncs: Option<u64>,
    },
    /// The volumes of the cluster.
    Volumes(VolumeList),
    /// How new files are placed.
    Placement(Box<PlacementStatus>),
    /// It is set.
    PlacementSet {
        /// The version that all servers of the cluster are to have.
        version: u64,
    },
    /// Coupons and node-hours.
    Ledger(Box<LedgerStatus>),
    /// Applications that recur.
    Applications(ApplicationList),
    /// Objects are being looked at, or were.
    ObjectsChecked(ObjectsChecked),
    /// Not done, for this reason.
    Error(String),
}

/// What a look at a server's objects of striped files has found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsChecked {
    /// All of it is over.
    pub is_done: bool,
    /// Objects that were looked at.
    pub objects: u64,
    /// Those of no file, which were removed.
    pub removed: u64,
    /// Those that cannot be used: their file is not where it should be, or cannot be read.
    pub lost: u64,
    /// Some of these, a line each.
    pub named: Vec<String>,
}

/// The servers of a cluster, as its file names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberList {
    /// Name of the file system.
    pub name: String,
    /// Epoch of the cluster file that the server has.
    pub epoch: u32,
    /// Name of the root server.
    pub root: String,
    /// By number.
    pub servers: Vec<ListedServer>,
}

/// A server of a cluster, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedServer {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// Its addresses, in the order in which they are to be tried.
    pub listen: Vec<String>,
}

/// The volumes of a cluster, and its servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeList {
    /// By name.
    pub volumes: Vec<VolumeEntry>,
    /// By number.
    pub servers: Vec<ServerName>,
}

/// A volume, and the server that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeEntry {
    /// Its name in the root directory, in which bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// The server's name.
    pub server: String,
    /// The servers that it leaves and goes to, if it is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<(String, String)>,
}

/// A server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerName {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// Targets that new files may get.
    #[serde(default)]
    pub targets: u16,
}

/// A server's part in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Name of the file system.
    pub name: String,
    /// Name of this server.
    pub server: String,
    /// Name of the root server.
    pub root: String,
    /// Epoch of the cluster file that the server has.
    pub epoch: u32,
    /// Servers in that file.
    pub servers: u32,
    /// Tells files of one epoch apart, in hexadecimal digits.
    pub fingerprint: String,
    /// The volumes that this server has, by name.
    #[serde(default)]
    pub volumes: Vec<VolumeStatus>,
    /// Version of the cluster's policy that this server has; 0 as long as none was ever set.
    #[serde(default)]
    pub policy_version: u64,
    /// Its own policy is another one: it was set for this server alone, or this server does not understand the cluster's.
    #[serde(default)]
    pub policy_deviates: bool,
    /// How often servers tell each other of their jobs, in nanoseconds; 0 if they do not.
    #[serde(default)]
    pub exchange_ns: u64,
    /// Other servers whose tables of jobs count here at present.
    #[serde(default)]
    pub tables_heard: u32,
    /// Volumes that come to this server.
    #[serde(default)]
    pub moves: Vec<MoveStatus>,
    /// What is decided for all servers at once.
    #[serde(default)]
    pub controller: ControllerStatus,
    /// How the targets of new files are chosen, where no directory says otherwise.
    #[serde(default)]
    pub placement: String,
    /// The time of day there, in seconds since 1970; 0 of a server that does not tell.
    #[serde(default)]
    pub clock_s: u64,
}

/// What is decided for all servers of a cluster at once, as one of them sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerStatus {
    /// The policy is one that a controller decides.
    pub is_needed: bool,
    /// This server is the one that decides.
    pub is_here: bool,
    /// The one that this server listens to, if it was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its term: that of a later controller is higher.
    pub term: u64,
    /// Version of the allocation that is followed; 0 if the targets share fairly.
    pub version: u64,
    /// It ends after this time unless it is renewed, in nanoseconds.
    pub valid_ns: u64,
    /// Between two decisions, in nanoseconds.
    pub interval_ns: u64,
    /// Of the controller: rounds begun since it is one.
    pub rounds_total: u64,
    /// Decisions.
    pub decisions_total: u64,
    /// Rounds without one, because too few servers reported.
    pub without_quorum_total: u64,
    /// Rounds without one, because it could not be computed.
    pub failed_total: u64,
    /// Servers that have been silent for some rounds, and are not waited for.
    pub absent: u32,
    /// Jobs of the last decision.
    pub jobs: u32,
    /// What computing the last decision took, in nanoseconds.
    pub decision_ns: u64,
    /// Bytes of messages of this kind that this server sent,
    pub sent_bytes: u64,
    /// and received.
    pub received_bytes: u64,
    /// Control messages of other servers that were refused: of another term, repeated, late, or none.
    pub refused: u64,
    /// Why this server decides nothing though it is its turn: its ledger cannot be read or stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How far it is with a volume that comes to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveStatus {
    /// Its number.
    pub number: u16,
    /// The number of the server that it comes from.
    pub from: u16,
    /// Files and directories that have come since the server began, or went on, with it.
    pub inodes: u64,
    /// Bytes of files that have.
    pub bytes: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name in the root directory, in which bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Its number.
    pub number: u16,
}

/// A server's state at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Number of the server.
    pub server: u16,
    /// Process id.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Where the metadata lie.
    pub dir: String,
    /// Addresses that are listened on.
    pub listen: Vec<String>,
    /// Whether claims of clients are believed.
    pub trust_clients: bool,
    /// The sharing policy, canonical.
    pub policy: String,
    /// How the next request is drawn.
    pub draw: String,
    /// Seconds that rates, shares received, and latencies look back.
    pub window_s: f64,
    /// Worker threads.
    pub workers: u32,
    /// Open connections of clients.
    pub connections: u64,
    /// Connections closed because of what they sent, since the start.
    pub refused_total: u64,
    /// Connections that were refused or cut, by reason, since the start.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// The part in a cluster, if the server is in one.
    #[serde(default)]
    pub cluster: Option<ClusterStatus>,
    /// Why metadata cannot be changed, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_failure: Option<MetadataFailure>,
    /// What is known of the blocks of files.
    #[serde(default)]
    pub checksums: ChecksumStatus,
    /// What looking through all objects in the background came to.
    #[serde(default)]
    pub scrub: ScrubStatus,
    /// What another policy would give, if one decides beside the one that is followed.
    #[serde(default)]
    pub shadow: Option<ShadowStatus>,
    /// How those fare that the policy's rules give rates, those that were held for longest first.
    #[serde(default)]
    pub rates: Vec<RateStatus>,
    /// Who has the data targets, under a policy that gives them to one application at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<ExclusiveStatus>,
    /// Every target, and the metadata service first, which is arbitrated like one.
    pub targets: Vec<TargetStatus>,
    /// Every job that is connected or was in the last minute, by name.
    pub jobs: Vec<JobStatus>,
}

/// What a server found out about the blocks of files since it opened its store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumStatus {
    /// Blocks are summed when they are written, and verified when they are read.
    pub is_on: bool,
    /// Times that a block was found damaged: lost, or not what was written. Each read of it counts.
    pub damaged_total: u64,
    /// Blocks that were being written when the server stopped uncleanly, and were summed anew.
    pub renewed_total: u64,
    /// Files that were written, and whose checksums are still to be brought to stable storage.
    pub unsettled_files: u64,
    /// Memory for checksums.
    pub memory_bytes: u64,
}

/// How far the server is with looking through all objects, and what it found since its start. Each target has a pass of
/// its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Seconds that a pass is to take; nothing if there are none.
    pub period_s: Option<f64>,
    /// How much of the bytes of all targets the present passes have seen, from 0 to 1.
    pub progress: f64,
    /// Passes that every target has behind it.
    pub passes_total: u64,
    /// Seconds since the last pass ended: of the target for which that is longest ago. Nothing until each has ended one.
    pub last_pass_age_s: Option<f64>,
    /// Bytes that were looked at.
    pub verified_bytes_total: u64,
    /// Damaged blocks, and lost objects, that were found; in each pass anew.
    pub damaged_total: u64,
}

/// One target's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// `metadata`, or the target's number.
    pub target: String,
    /// Where its objects lie.
    pub dir: String,
    /// The emulated device's bandwidth, if it is capped.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// The emulated device's time for each operation.
    pub per_op_ns: u64,
    /// Requests that wait for their turn.
    pub queued: u64,
    /// Requests whose turn has come and that are not answered yet, without flushes.
    pub in_service: u64,
    /// How many those may be at most; `None` for an emulated device.
    pub depth: Option<u64>,
    /// How the policy's latency class fares; `None` if the policy has none.
    #[serde(default)]
    pub latency: Option<LatencyStatus>,
    /// Requests served since the start.
    pub requests_total: u64,
    /// Service cost since the start.
    pub service_ns_total: u64,
    /// How long its device had anything to do since the start; `None` where that is not measured: of memory, of an
    /// emulated device and of the metadata service.
    #[serde(default)]
    pub busy_ns_total: Option<u64>,
    /// How long the oldest of the requests is at its device that are there, flushes among them; `None` if none is, or where
    /// `busy_ns_total` is not measured either.
    #[serde(default)]
    pub oldest_ns: Option<u64>,
    /// What was learnt of what its device takes, for each kind of access that there was lately.
    #[serde(default)]
    pub costs: Vec<CostStatus>,
    /// Bytes that were acknowledged and are not known to be on the device; `None` where the server does not see to that.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// About how many there may be: beyond that, replies of writes wait.
    #[serde(default)]
    pub dirty_bytes_max: Option<u64>,
}

/// What requests of one kind cost a device: a time for each, and for its bytes. It is the time that the device gives to one
/// of those that it serves at once, so of n that are served together each costs an n-th of the time that it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostStatus {
    /// `read-random`, `read-sequential`, `write-random` or `write-sequential`.
    pub access: String,
    /// For a request.
    pub per_op_ns: u64,
    /// At which its bytes pass; `None` where they take no time of their own.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// How far predictions were off lately: the sum of the differences over the sum of what it was.
    pub error: Option<f64>,
}

/// A latency class at one target, since the policy was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// What 99 of 100 requests are to take at most, from arrival to reply.
    pub target_ns: u64,
    /// What they took: of the last requests that came within their job's share, 1024 of the last ten seconds at most.
    pub p99_ns: Option<u64>,
    /// Requests of the class that were served.
    pub requests_total: u64,
    /// Those of them that had to wait because their job was ahead of its share as far as the class allows.
    pub over_share_total: u64,
    /// How many requests of others may be in service; `None` if as many as the target has.
    pub others_max: Option<u64>,
    /// Part of the target's work that this costs, 0 to 1: what was done last with such a limit, against what was done last
    /// without. `None` if there is nothing to compare.
    pub lost: Option<f64>,
    /// Why the target is given up for now.
    pub unreachable: Option<UnreachableStatus>,
}

/// What keeps a latency class from its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachableStatus {
    /// The longest that requests took while nobody else was in service; `None` if too few came to say.
    pub alone_ns: Option<u64>,
    /// Their median beside one request of others at a time.
    pub beside_one_ns: u64,
}
