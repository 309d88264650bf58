//! The metrics that Prometheus scrapes, as one table: name, unit, help, stability.
//!
//! Every value comes from one [`Status`], so a scrape is a consistent picture. Cardinality is bounded: the
//! [`JOBS_MAX`] jobs with the most service have series of their own, all others are summed up under
//! `job="other"`. `docs/reference/metrics.md` is made from the table.

use isonomia_proto::control::{
    ClusterStatus, CostStatus, HeldJob, JobStatus, RateStatus, ShadowJob, Status, TargetStatus,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;

/// Jobs with series of their own.
const JOBS_MAX: usize = 100;
/// The label value of all other jobs together.
const OTHER: &str = "other";

/// Classes of rules with series of their own: those that were held for longest.
const RATES_MAX: usize = 100;

const NANOS_PER_S: f64 = 1e9;
const MICROS_PER_S: f64 = 1e6;

/// Whether dashboards may rely on a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stability {
    /// Name and meaning stay within a major version.
    Stable,
    /// May change in any version.
    Experimental,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// Where values come from, and with which labels.
enum Values {
    /// Always 1; what is of interest is in the labels.
    Info(fn(&Status) -> Vec<(&'static str, String)>),
    Server(fn(&Status) -> f64),
    /// In a cluster only: labels, and the value.
    Cluster(fn(&ClusterStatus) -> Vec<(&'static str, String)>, fn(&ClusterStatus) -> f64),
    /// Counts by reason.
    Reason(fn(&Status) -> &BTreeMap<String, u64>),
    Target(fn(&TargetStatus) -> Option<f64>),
    /// Of each access whose cost was learnt.
    Cost(fn(&CostStatus) -> Option<f64>),
    /// Of each job that another policy would give anything.
    Shadow(fn(&ShadowJob) -> f64),
    /// Of each class of a rule.
    Rate(fn(&RateStatus) -> f64),
    /// Of each job that was held by a rule.
    Held(fn(&HeldJob) -> f64),
    /// How one job's value is had, and how those of several jobs become one.
    Job(fn(&JobStatus) -> f64, fn(f64, f64) -> f64),
}

struct Metric {
    /// Without unit and `_total`, which are appended.
    name: &'static str,
    unit: Option<Unit>,
    kind: Kind,
    stability: Stability,
    help: &'static str,
    values: Values,
}

const fn metric(
    name: &'static str,
    unit: Option<Unit>,
    kind: Kind,
    stability: Stability,
    help: &'static str,
    values: Values,
) -> Metric {
    Metric { name, unit, kind, stability, help, values }
}

#[rustfmt::skip]
static METRICS: &[Metric] = {
    use Kind::{Counter, Gauge};
    use Stability::{Experimental, Stable};
    use Unit::{Bytes, Seconds};
    use Values::{Cluster, Cost, Held, Info, Job, Rate, Reason, Server, Shadow, Target};
    const fn sum(a: f64, b: f64) -> f64 { a + b }
    const fn max(a: f64, b: f64) -> f64 { a.max(b) }
    &[
        metric("isonomia_server_info", None, Gauge, Stable, "Always 1; the labels say what runs", Info(|s| vec![
            ("version", s.version.clone()), ("policy", s.policy.clone()), ("draw", s.draw.clone()),
            ("trust_clients", s.trust_clients.to_string()),
        ])),
        metric("isonomia_cluster_info", None, Gauge, Stable,
            "Always 1 in a cluster; the labels say which server of which cluster this is", Cluster(|c| vec![
                ("cluster", c.name.clone()), ("server", c.server.clone()), ("root", c.root.clone()),
            ], |_| 1.0)),
        metric("isonomia_cluster_epoch", None, Gauge, Stable,
            "Epoch of the cluster file that the server has", Cluster(|_| Vec::new(), |c| f64::from(c.epoch))),
        metric("isonomia_cluster_volumes", None, Gauge, Stable,
            "Volumes that the server has", Cluster(|_| Vec::new(), |c| c.volumes.len() as f64)),
        metric("isonomia_cluster_policy_version", None, Gauge, Stable,
            "Version of the cluster's policy that the server has; 0 as long as none was set",
            Cluster(|_| Vec::new(), |c| c.policy_version as f64)),
        metric("isonomia_cluster_policy_deviates", None, Gauge, Experimental,
            "1 if the server's policy is not the cluster's",
            Cluster(|_| Vec::new(), |c| f64::from(u8::from(c.policy_deviates)))),
        metric("isonomia_cluster_tables_heard", None, Gauge, Experimental,
            "Other servers whose jobs count in what is fair here", Cluster(|_| Vec::new(), |c| f64::from(c.tables_heard))),
        metric("isonomia_controller_here", None, Gauge, Experimental,
            "1 if the server decides for the cluster", Cluster(|_| Vec::new(), |c| f64::from(u8::from(c.controller.is_here)))),
        metric("isonomia_controller_allocation_version", None, Gauge, Experimental,
            "Version of the allocation that the server's targets follow; 0 if they share fairly",
            Cluster(|_| Vec::new(), |c| c.controller.version as f64)),
        metric("isonomia_controller_decisions", None, Counter, Experimental,
            "Decisions for the cluster", Cluster(|_| Vec::new(), |c| c.controller.decisions_total as f64)),
        metric("isonomia_controller_decision", Some(Seconds), Gauge, Experimental,
            "What the last decision took", Cluster(|_| Vec::new(), |c| c.controller.decision_ns as f64 / 1e9)),
        metric("isonomia_controller_without_quorum", None, Counter, Experimental,
            "Intervals without a decision, because too few servers reported",
            Cluster(|_| Vec::new(), |c| c.controller.without_quorum_total as f64)),
        metric("isonomia_controller_refused", None, Counter, Experimental,
            "Control messages of other servers that the server refused: of another term, repeated, late, or none",
            Cluster(|_| Vec::new(), |c| c.controller.refused as f64)),
        metric("isonomia_controller_sent", Some(Bytes), Counter, Experimental,
            "Bytes that the server sent as or to the controller",
            Cluster(|_| Vec::new(), |c| c.controller.sent_bytes as f64)),
        metric("isonomia_server_uptime", Some(Seconds), Gauge, Stable,
            "Time since the server started", Server(|s| s.uptime_s)),
        metric("isonomia_server_workers", None, Gauge, Experimental,
            "Worker threads", Server(|s| f64::from(s.workers))),
        metric("isonomia_connections", None, Gauge, Stable,
            "Open connections of clients", Server(|s| s.connections as f64)),
        metric("isonomia_connections_refused", None, Counter, Stable,
            "Connections refused, or closed because of what they sent", Server(|s| s.refused_total as f64)),
        metric("isonomia_connections_turned_away", None, Counter, Experimental,
            "Connections refused or cut by reason, those that made room for others included", Reason(|s| &s.refused)),
        metric("isonomia_metadata_failed", None, Gauge, Experimental,
            "1 while metadata cannot be changed, because their storage is full or failed",
            Server(|s| f64::from(u8::from(s.metadata_failure.is_some())))),
        metric("isonomia_damaged_blocks", None, Counter, Stable,
            "Times that a block of a file was found damaged", Server(|s| s.checksums.damaged_total as f64)),
        metric("isonomia_renewed_blocks", None, Counter, Experimental,
            "Blocks that were being written at an unclean stop, and summed anew", Server(|s| s.checksums.renewed_total as f64)),
        metric("isonomia_unsettled_files", None, Gauge, Experimental,
            "Files whose checksums are still to be brought to stable storage", Server(|s| s.checksums.unsettled_files as f64)),
        metric("isonomia_scrub_progress_ratio", None, Gauge, Experimental,
            "How much of the bytes of all targets the present passes of the scrub have seen", Server(|s| s.scrub.progress)),
        metric("isonomia_scrub_passes", None, Counter, Experimental,
            "Passes of the scrub that every target has behind it", Server(|s| s.scrub.passes_total as f64)),
        metric("isonomia_scrub_last_pass_age", Some(Seconds), Gauge, Experimental,
            "Time since the last pass of the scrub ended on every target; since the start if none has",
            Server(|s| s.scrub.last_pass_age_s.unwrap_or(s.uptime_s))),
        metric("isonomia_scrub_verified", Some(Bytes), Counter, Experimental,
            "Bytes that the scrub looked at", Server(|s| s.scrub.verified_bytes_total as f64)),
        metric("isonomia_scrub_damaged_blocks", None, Counter, Experimental,
            "Damaged blocks and lost objects that the scrub found, in each pass anew", Server(|s| s.scrub.damaged_total as f64)),
        metric("isonomia_exclusive_held", None, Gauge, Experimental,
            "1 if an application has the data targets to itself, 0 if none has or the policy is another one",
            Server(|s| s.exclusive.as_ref().map_or(0.0, |node| f64::from(u8::from(node.holder.is_some()))))),
        metric("isonomia_exclusive_open", None, Gauge, Experimental,
            "1 if everybody is served because the coordinator of exclusive phases is silent",
            Server(|s| s.exclusive.as_ref().map_or(0.0, |node| f64::from(u8::from(node.is_open))))),
        metric("isonomia_exclusive_waiting_applications", None, Gauge, Experimental,
            "Applications that wait for the data targets", Server(|s| s.exclusive.as_ref().map_or(0.0, |node| node.waiting as f64))),
        metric("isonomia_exclusive_lease_endings", None, Counter, Experimental,
            "Exclusive phases that were cut because others waited and the lease was over, since the policy was set",
            Server(|s| s.exclusive.as_ref().map_or(0.0, |node| node.ended_by_lease_total as f64))),
        metric("isonomia_jobs", None, Gauge, Stable,
            "Jobs that are connected or were in the last minute", Server(|s| s.jobs.len() as f64)),
        metric("isonomia_target_bandwidth_bytes_per_second", None, Gauge, Stable,
            "Bandwidth of the emulated device; absent where none is emulated",
            Target(|t| t.bandwidth_bytes_per_s.map(|rate| rate as f64))),
        metric("isonomia_target_queued_requests", None, Gauge, Stable,
            "Requests that wait for their turn", Target(|t| Some(t.queued as f64))),
        metric("isonomia_target_in_service_requests", None, Gauge, Experimental,
            "Requests whose turn has come and that are not answered yet, without flushes", Target(|t| Some(t.in_service as f64))),
        metric("isonomia_target_depth", None, Gauge, Experimental,
            "How many those may be at most; absent for an emulated device", Target(|t| t.depth.map(|depth| depth as f64))),
        metric("isonomia_target_latency_goal", Some(Seconds), Gauge, Experimental,
            "What 99 of 100 requests of the latency class are to take at most; this and what follows is absent without one",
            Target(|t| t.latency.as_ref().map(|class| class.target_ns as f64 / NANOS_PER_S))),
        metric("isonomia_target_latency_p99", Some(Seconds), Gauge, Experimental,
            "What they took, of those that came within their job's share in the last ten seconds; absent if none came",
            Target(|t| t.latency.as_ref()?.p99_ns.map(|p99| p99 as f64 / NANOS_PER_S))),
        metric("isonomia_target_latency_requests", None, Counter, Experimental,
            "Requests of the latency class that were served since the policy was set",
            Target(|t| t.latency.as_ref().map(|class| class.requests_total as f64))),
        metric("isonomia_target_latency_over_share_requests", None, Counter, Experimental,
            "Those of them that had to wait because their job was ahead of its share as far as the class allows",
            Target(|t| t.latency.as_ref().map(|class| class.over_share_total as f64))),
        metric("isonomia_target_latency_others_depth", None, Gauge, Experimental,
            "How many requests of others may be in service for the sake of the class; absent if that is not limited",
            Target(|t| t.latency.as_ref()?.others_max.map(|max| max as f64))),
        metric("isonomia_target_latency_lost_ratio", None, Gauge, Experimental,
            "Part of the target's work that this costs, estimated; absent if there is nothing to compare",
            Target(|t| t.latency.as_ref()?.lost)),
        metric("isonomia_target_latency_unreachable", None, Gauge, Experimental,
            "1 if the class cannot be served within its target, 0 if it can",
            Target(|t| t.latency.as_ref().map(|class| f64::from(u8::from(class.unreachable.is_some()))))),
        metric("isonomia_target_dirty", Some(Bytes), Gauge, Experimental,
            "Bytes that were acknowledged and are not known to be on the device; absent where the server does not see to that",
            Target(|t| t.dirty_bytes.map(|bytes| bytes as f64))),
        metric("isonomia_target_requests", None, Counter, Stable,
            "Requests served", Target(|t| Some(t.requests_total as f64))),
        metric("isonomia_target_service", Some(Seconds), Counter, Stable,
            "Service that was given, as the policy counts it", Target(|t| Some(t.service_ns_total as f64 / NANOS_PER_S))),
        metric("isonomia_target_busy", Some(Seconds), Counter, Experimental,
            "Time that the device had anything to do; absent of memory and of emulated devices",
            Target(|t| t.busy_ns_total.map(|ns| ns as f64 / NANOS_PER_S))),
        metric("isonomia_target_oldest_request", Some(Seconds), Gauge, Experimental,
            "How long the oldest request at the device has been there, 0 if none is: alert on it, as it grows while a device hangs; absent of memory and of emulated devices",
            Target(|t| t.busy_ns_total.map(|_| t.oldest_ns.unwrap_or(0) as f64 / NANOS_PER_S))),
        metric("isonomia_target_cost_per_operation", Some(Seconds), Gauge, Experimental,
            "Device's time for a request without its bytes, as learnt; absent where nothing was learnt",
            Cost(|c| Some(c.per_op_ns as f64 / NANOS_PER_S))),
        metric("isonomia_target_cost_bandwidth_bytes_per_second", None, Gauge, Experimental,
            "Rate at which the bytes of a request pass, as learnt; absent where they take no time of their own",
            Cost(|c| c.bandwidth_bytes_per_s.map(|rate| rate as f64))),
        metric("isonomia_target_cost_error_ratio", None, Gauge, Experimental,
            "How far predictions of the device's time were off lately, as a part of it", Cost(|c| c.error)),
        metric("isonomia_rule_held", Some(Seconds), Counter, Experimental,
            "Time that those of a class of a rule had requests waiting because of the rule, since the policy was set",
            Rate(|r| r.held_ns_total as f64 / NANOS_PER_S)),
        metric("isonomia_rule_job_held", Some(Seconds), Counter, Experimental,
            "The same of each of the jobs that waited for longest", Held(|j| j.held_ns_total as f64 / NANOS_PER_S)),
        metric("isonomia_rule_moved", Some(Bytes), Counter, Experimental,
            "Bytes that a class of a rule read and wrote since the policy was set", Rate(|r| r.bytes_total as f64)),
        metric("isonomia_rule_operations", None, Counter, Experimental,
            "Operations that it was served", Rate(|r| r.operations_total as f64)),
        metric("isonomia_rule_queued_requests", None, Gauge, Experimental,
            "Requests of it that wait", Rate(|r| r.queued as f64)),
        metric("isonomia_rule_part_ratio", None, Gauge, Experimental,
            "Part of its rate in the whole system that this server has", Rate(|r| r.part)),
        metric("isonomia_shadow_share_ratio", None, Gauge, Experimental,
            "Share of the service that the policy beside the one that is followed would have given the job; absent without one",
            Shadow(|j| j.share_would)),
        metric("isonomia_job_nodes", None, Gauge, Stable,
            "Compute nodes of the job", Job(|j| f64::from(j.nodes), sum)),
        metric("isonomia_job_believed", None, Gauge, Stable,
            "1 if more than the job itself says that it is this job, 0 if it only claims to be; of the others, how many are believed",
            Job(|j| if j.proof == "claim" { 0.0 } else { 1.0 }, sum)),
        metric("isonomia_job_clients", None, Gauge, Stable,
            "Connected client processes", Job(|j| j.clients as f64, sum)),
        metric("isonomia_job_share_due_ratio", None, Gauge, Stable,
            "Share of the service due to the job among the active ones; 0 if idle or under a policy without shares", Job(|j| j.share_due, sum)),
        metric("isonomia_job_share_received_ratio", None, Gauge, Stable,
            "Share of the service that the job received", Job(|j| j.share_received, sum)),
        metric("isonomia_job_phase_received", Some(Seconds), Gauge, Experimental,
            "Service that the job received in its I/O phase; 0 outside of one, or without a fair clock",
            Job(|j| j.phase.map_or(0.0, |phase| phase.received_ns as f64 / NANOS_PER_S), sum)),
        metric("isonomia_job_phase_fair", Some(Seconds), Gauge, Experimental,
            "Service that fair sharing would have given the job in its I/O phase by now; more than received: it is late",
            Job(|j| j.phase.map_or(0.0, |phase| phase.fair_ns as f64 / NANOS_PER_S), sum)),
        metric("isonomia_job_phases", None, Counter, Experimental,
            "I/O phases of the job that ended, each counted at every data target that it was on; 0 without a fair clock, as what follows",
            Job(|j| j.lateness.map_or(0.0, |lateness| lateness.phases_total as f64), sum)),
        metric("isonomia_job_phases_late", None, Counter, Experimental,
            "Those of them that ended later than under fair sharing",
            Job(|j| j.lateness.map_or(0.0, |lateness| lateness.late_total as f64), sum)),
        metric("isonomia_job_phases_late_by", Some(Seconds), Counter, Experimental,
            "By how much they did in all",
            Job(|j| j.lateness.map_or(0.0, |lateness| lateness.late_ns_total as f64 / NANOS_PER_S), sum)),
        metric("isonomia_job_exclusive_phases", None, Counter, Experimental,
            "Exclusive I/O phases that are over; 0 under other policies, as what follows",
            Job(|j| j.exclusive.as_ref().map_or(0.0, |turn| turn.phases_total as f64), sum)),
        metric("isonomia_job_exclusive_io", Some(Seconds), Counter, Experimental,
            "Time that the job's application had the data targets to itself",
            Job(|j| j.exclusive.as_ref().map_or(0.0, |turn| turn.io_ns as f64 / NANOS_PER_S), sum)),
        metric("isonomia_job_exclusive_waited", Some(Seconds), Counter, Experimental,
            "Time that it waited for them",
            Job(|j| j.exclusive.as_ref().map_or(0.0, |turn| turn.waited_ns as f64 / NANOS_PER_S), sum)),
        metric("isonomia_job_exclusive_stretch", None, Gauge, Experimental,
            "Its time over what it would have been without waiting, since it came; the largest of the other jobs",
            Job(|j| j.exclusive.as_ref().map_or(0.0, |turn| turn.stretch), max)),
        metric("isonomia_job_queued_requests", None, Gauge, Stable,
            "Requests that wait for their turn", Job(|j| j.queued as f64, sum)),
        metric("isonomia_job_read", Some(Bytes), Counter, Stable,
            "Bytes read", Job(|j| j.read_bytes_total as f64, sum)),
        metric("isonomia_job_written", Some(Bytes), Counter, Stable,
            "Bytes written", Job(|j| j.written_bytes_total as f64, sum)),
        metric("isonomia_job_requests", None, Counter, Stable,
            "Requests served, metadata operations included", Job(|j| j.requests_total as f64, sum)),
        metric("isonomia_job_service", Some(Seconds), Counter, Stable,
            "Service received, as the policy counts it", Job(|j| j.service_ns_total as f64 / NANOS_PER_S, sum)),
        metric("isonomia_job_latency_p50", Some(Seconds), Gauge, Experimental,
            "Median time from a request's arrival to its reply; the largest median of the other jobs",
            Job(|j| j.latency_p50_us / MICROS_PER_S, max)),
        metric("isonomia_job_latency_p99", Some(Seconds), Gauge, Experimental,
            "99th percentile of the time from a request's arrival to its reply; the largest of the other jobs",
            Job(|j| j.latency_p99_us / MICROS_PER_S, max)),
    ]
};

/// The metrics of `status` in OpenMetrics text.
pub fn render(status: Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot::new(status)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

fn rate_labels(rate: &RateStatus) -> Vec<(&'static str, String)> {
    vec![("rule", rate.rule.clone()), ("for", rate.class.clone())]
}

/// A status whose jobs are sorted, those with the most service first.
#[derive(Debug)]
struct Snapshot(Status);

impl Snapshot {
    fn new(mut status: Status) -> Self {
        status.jobs.sort_by(|a, b| b.service_ns_total.cmp(&a.service_ns_total).then_with(|| a.job.cmp(&b.job)));
        Self(status)
    }

    /// Labels and value of every series of one metric.
    fn series(&self, values: &Values) -> Vec<(Vec<(&'static str, String)>, f64)> {
        let status = &self.0;
        match values {
            Values::Info(labels) => vec![(labels(status), 1.0)],
            Values::Server(value) => vec![(Vec::new(), value(status))],
            Values::Cluster(labels, value) => {
                status.cluster.iter().map(|cluster| (labels(cluster), value(cluster))).collect()
            }
            Values::Reason(counts) => {
                let of = |(reason, count): (&String, &u64)| (vec![("reason", reason.clone())], *count as f64);
                counts(status).iter().map(of).collect()
            }
            Values::Target(value) => {
                let of = |t: &TargetStatus| value(t).map(|value| (vec![("target", t.target.clone())], value));
                status.targets.iter().filter_map(of).collect()
            }
            Values::Cost(value) => {
                let of = |t: &TargetStatus, c: &CostStatus| {
                    let labels = vec![("target", t.target.clone()), ("access", c.access.clone())];
                    value(c).map(|value| (labels, value))
                };
                status.targets.iter().flat_map(|t| t.costs.iter().filter_map(move |c| of(t, c))).collect()
            }
            Values::Shadow(value) => {
                let of = |j: &ShadowJob| (vec![("job", j.job.clone()), ("user", j.user.clone())], value(j));
                let mut jobs: Vec<_> = status.shadow.iter().flat_map(|shadow| &shadow.jobs).collect();
                jobs.sort_by_key(|job| std::cmp::Reverse(job.would_ns));
                jobs.into_iter().take(JOBS_MAX).map(of).collect()
            }
            Values::Rate(value) => {
                let of = |r: &RateStatus| (rate_labels(r), value(r));
                status.rates.iter().take(RATES_MAX).map(of).collect()
            }
            Values::Held(value) => {
                let of = |r: &RateStatus, j: &HeldJob| {
                    let mut labels = rate_labels(r);
                    labels.extend([("job", j.job.clone()), ("user", j.user.clone())]);
                    (labels, value(j))
                };
                let classes = status.rates.iter().take(RATES_MAX);
                classes.flat_map(|r| r.jobs.iter().map(move |j| of(r, j))).collect()
            }
            Values::Job(value, fold) => {
                let (named, others) = status.jobs.split_at(JOBS_MAX.min(status.jobs.len()));
                // All four labels are needed to tell jobs apart: Prometheus rejects a scrape with two equal series.
                let label = |texts: [&str; 4]| {
                    ["job", "user", "group", "within"].into_iter().zip(texts.map(str::to_owned)).collect()
                };
                let labels = |job: &JobStatus| {
                    label([&job.job, &job.user, &job.group, job.within.as_deref().unwrap_or_default()])
                };
                let mut series: Vec<_> = named.iter().map(|job| (labels(job), value(job))).collect();
                if let Some(value) = others.iter().map(value).reduce(fold) {
                    series.push((label([OTHER; 4]), value));
                }
                series
            }
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for metric in METRICS {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let note = match metric.stability {
                Stability::Stable => "",
                Stability::Experimental => " (experimental)",
            };
            let help = format!("{}{note}", metric.help);
            let mut encoder = encoder.encode_descriptor(metric.name, &help, metric.unit.as_ref(), kind)?;
            for (labels, value) in self.series(&metric.values) {
                if labels.is_empty() {
                    encode(&mut encoder, metric.kind, value)?;
                } else {
                    encode(&mut encoder.encode_family(&labels)?, metric.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder, kind: Kind, value: f64) -> Result<(), fmt::Error> {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
        Kind::Gauge => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
pub mod tests;
