//! A server's state as operators see it.

use crate::clock;
use crate::cluster::Cluster;
use crate::core::Core;
use crate::jobs::{Job, Received};
use crate::phases;
use isonomia_proto::control::{JobStatus, LatenessStatus, MetadataFailure, PhaseStatus, Status};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What a status says besides the state of the core.
#[derive(Clone, Debug)]
pub struct About {
    /// Number of the server.
    pub server: u16,
    /// When it started.
    pub started_at: Nanos,
    /// Directory of the metadata.
    pub dir: String,
    /// Addresses listened on.
    pub listen: Vec<String>,
    /// Whether claims are believed.
    pub trust_clients: bool,
}

/// What one job received within the window, by kind of service.
struct Window {
    job: Arc<Job>,
    from: Received,
    to: Received,
}

impl Window {
    fn data_ns(&self) -> u64 {
        self.to.data_service_ns - self.from.data_service_ns
    }

    fn metadata_ns(&self) -> u64 {
        self.to.metadata_service_ns - self.from.metadata_service_ns
    }

    fn span_s(&self) -> f64 {
        self.to.at.since(self.from.at).as_secs_f64()
    }
}

/// The state now.
pub fn snapshot(core: &Core, about: &About) -> Status {
    let now = clock::now();
    let windows: Vec<Window> = core
        .jobs
        .all()
        .into_iter()
        .map(|job| {
            let (from, to) = job.window(now);
            Window { job, from, to }
        })
        .collect();
    let data_total: u64 = windows.iter().map(Window::data_ns).sum();
    let metadata_total: u64 = windows.iter().map(Window::metadata_ns).sum();
    let (due, of_phases) = (shares_due(core, now), phases(core, now));
    let (policy, draw) = {
        let policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner);
        (policy.spec.to_string(), policy.draw.to_string())
    };
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        server: about.server,
        pid: std::process::id(),
        uptime_s: now.since(about.started_at).as_secs_f64(),
        dir: about.dir.clone(),
        listen: about.listen.clone(),
        trust_clients: about.trust_clients,
        policy,
        draw,
        window_s: windows.iter().map(Window::span_s).fold(0.0, f64::max),
        workers: core.workers as u32,
        connections: core.connections().len() as u64,
        cluster: core.cluster.get().map(|cluster| cluster.status(&core.store)),
        metadata_failure: core.store.metadata_failure().map(|failure| match failure {
            isonomia_store::MetadataFailure::Full => MetadataFailure::Full,
            isonomia_store::MetadataFailure::Failed => MetadataFailure::Failed,
            isonomia_store::MetadataFailure::Unsynced => MetadataFailure::Unsynced,
        }),
        checksums: core.store.objects().checksum_status(),
        scrub: core.scrub.status(now),
        refused_total: core.refused_total.load(Ordering::Relaxed),
        refused: core.rejections.by_reason(),
        shadow: core.shadowing.status(&core.jobs, &core.targets),
        rates: core.rates.status(&core.policy, &core.jobs, &core.targets, now),
        exclusive: core.phases.status(core.cluster.get().and_then(Cluster::coordinator_name)),
        targets: core.targets.iter().map(|target| target.status(now)).collect(),
        jobs: {
            let turns = core.phases.of_applications();
            let status = |w: &Window| JobStatus {
                exclusive: phases::status_of(&w.job, &turns),
                ..job_status(core, w, (&due, &of_phases), data_total, metadata_total)
            };
            windows.iter().map(status).collect()
        },
    }
}

/// The share due to each job: the mean over the data targets on which it is active, or, for a job that is active
/// at none of them, its share of the metadata service.
fn shares_due(core: &Core, now: Nanos) -> HashMap<JobId, f64> {
    let mut sums: HashMap<JobId, (f64, u32)> = HashMap::new();
    for target in core.targets.iter().filter(|t| t.id.is_some()) {
        for (job, share) in target.shares(now) {
            let sum = sums.entry(job).or_default();
            *sum = (sum.0 + share, sum.1 + 1);
        }
    }
    let mut due: HashMap<JobId, f64> = sums.into_iter().map(|(job, (sum, n))| (job, sum / f64::from(n))).collect();
    for target in core.targets.iter().filter(|t| t.id.is_none()) {
        for (job, share) in target.shares(now) {
            due.entry(job).or_insert(share);
        }
    }
    due
}

/// The I/O phase that a job is in, and what came of those that have ended.
type OfPhases = (Option<PhaseStatus>, Option<LatenessStatus>);

/// The I/O phases of jobs, over all data targets.
fn phases(core: &Core, now: Nanos) -> HashMap<JobId, OfPhases> {
    let mut all: HashMap<JobId, OfPhases> = HashMap::new();
    for target in core.targets.iter().filter(|target| !target.is_metadata()) {
        for phase in target.phases() {
            let (running, _) = all.entry(phase.job).or_default();
            running.get_or_insert_default().add(&PhaseStatus {
                received_ns: phase.received.0,
                fair_ns: phase.fair.0,
                expected_ns: phase.expected.0,
                expectation_error: phase.error,
            });
        }
        for of_job in target.lateness(now) {
            let (_, ended) = all.entry(of_job.job).or_default();
            ended.get_or_insert_default().add(&LatenessStatus {
                phases_total: of_job.phases,
                late_total: of_job.late,
                late_ns_total: of_job.late_by.0,
            });
        }
    }
    all
}

/// See [`JobStatus::proof`].
fn proof(info: &JobInfo) -> &'static str {
    match &info.within {
        None => "trust",
        Some(within) if *within == info.name => "cgroup",
        Some(_) => "claim",
    }
}

fn job_status(
    core: &Core,
    window: &Window,
    (due, phases): (&HashMap<JobId, f64>, &HashMap<JobId, OfPhases>),
    data_total: u64,
    metadata_total: u64,
) -> JobStatus {
    let (job, from, to) = (&window.job, &window.from, &window.to);
    let info = job.info();
    let fraction = |part: u64, total: u64| if total == 0 { 0.0 } else { part as f64 / total as f64 };
    let share_received = match window.data_ns() {
        0 => fraction(window.metadata_ns(), metadata_total),
        ns => fraction(ns, data_total),
    };
    let span_s = window.span_s();
    let rate = |n: u64| if span_s > 0.0 { n as f64 / span_s } else { 0.0 };
    let latency = job.latency();
    let (phase, lateness) = phases.get(&job.id).copied().unwrap_or_default();
    JobStatus {
        job: info.name.to_string(),
        user: info.user.to_string(),
        group: info.group.to_string(),
        nodes: info.nodes,
        priority: info.priority,
        proof: proof(&info).to_owned(),
        within: info.within.as_deref().filter(|within| !within.is_empty()).map(str::to_owned),
        clients: job.connections(),
        share_due: due.get(&job.id).copied().unwrap_or(0.0),
        share_received,
        data_service_ns: window.data_ns(),
        metadata_service_ns: window.metadata_ns(),
        phase,
        lateness,
        exclusive: None,
        throughput_bytes_per_s: rate(to.read_bytes + to.written_bytes - from.read_bytes - from.written_bytes),
        requests_per_s: rate(to.requests - from.requests),
        queued: core.targets.iter().filter(|t| !t.is_empty()).map(|t| t.queued_of(job.id)).sum(),
        latency_p50_us: latency.p50_us,
        latency_p99_us: latency.p99_us,
        latency_max_us: latency.max_us,
        read_bytes_total: to.read_bytes,
        written_bytes_total: to.written_bytes,
        requests_total: to.requests,
        service_ns_total: to.data_service_ns + to.metadata_service_ns,
        data_service_ns_total: to.data_service_ns,
    }
}
