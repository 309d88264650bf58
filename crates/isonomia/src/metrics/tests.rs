//! What is rendered, of states that other tests show too.

use super::*;
use isonomia_proto::control::{ControllerStatus, LatenessStatus, PhaseStatus, ScrubStatus};

pub fn sample_job(job: &str, nodes: u32, share: f64, service_ms: u64) -> JobStatus {
    JobStatus {
        job: job.into(),
        user: "ada".into(),
        group: "astro".into(),
        nodes,
        priority: 1,
        proof: if nodes > 1 { "cgroup" } else { "claim" }.into(),
        within: None,
        clients: u64::from(nodes),
        share_due: share,
        share_received: share + 0.001,
        phase: (nodes > 1).then_some(PhaseStatus {
            received_ns: 3_000_000,
            fair_ns: 1_000_000,
            expected_ns: 9_000_000,
            expectation_error: Some(1.25),
        }),
        lateness: (nodes > 1).then_some(LatenessStatus { phases_total: 8, late_total: 2, late_ns_total: 5_000_000 }),
        exclusive: None,
        throughput_bytes_per_s: share * f64::from(1 << 30),
        requests_per_s: share * 1024.0,
        queued: u64::from(nodes) - 1,
        latency_p50_us: 970.0,
        latency_p99_us: 4_870.0,
        latency_max_us: 20_000.0,
        read_bytes_total: 5,
        written_bytes_total: service_ms << 20,
        requests_total: service_ms,
        service_ns_total: service_ms * 1_000_000,
        data_service_ns_total: service_ms * 1_000_000,
        data_service_ns: 0,
        metadata_service_ns: 0,
    }
}

pub fn sample_cluster(policy_version: u64, policy_deviates: bool) -> ClusterStatus {
    ClusterStatus {
        clock_s: 1,
        name: "scratch".into(),
        server: "io02".into(),
        root: "io01".into(),
        epoch: 7,
        servers: 2,
        fingerprint: "0".into(),
        volumes: Vec::new(),
        policy_version,
        policy_deviates,
        exchange_ns: 500_000_000,
        tables_heard: 1,
        moves: Vec::new(),
        controller: ControllerStatus::default(),
        placement: "volume".into(),
    }
}

fn cost(access: &str, per_op_ns: u64, bandwidth_bytes_per_s: Option<u64>, error: Option<f64>) -> CostStatus {
    CostStatus { access: access.into(), per_op_ns, bandwidth_bytes_per_s, error }
}

pub fn sample_status() -> Status {
    let target = |target: &str, dir: &str, bandwidth, per_op_ns| TargetStatus {
        target: target.into(),
        dir: dir.into(),
        bandwidth_bytes_per_s: bandwidth,
        per_op_ns,
        queued: 3,
        in_service: 2,
        depth: Some(16),
        latency: None,
        requests_total: 12_345,
        service_ns_total: 12_000_000_000,
        busy_ns_total: None,
        oldest_ns: None,
        costs: Vec::new(),
        dirty_bytes: Some(24 << 20),
        dirty_bytes_max: Some(512 << 20),
    };
    let learnt = TargetStatus {
        bandwidth_bytes_per_s: None,
        per_op_ns: 0,
        busy_ns_total: Some(11_500_000_000),
        oldest_ns: Some(12_300_000_000),
        costs: vec![
            cost("read-random", 85_300, Some(1_230 << 20), Some(0.125)),
            cost("write-sequential", 12_000, Some(410 << 20), None),
        ],
        ..target("1", "/scratch/isonomia", None, 0)
    };
    Status {
        version: "0.1.0".into(),
        server: 0,
        pid: 4711,
        uptime_s: 61.25,
        dir: "/dev/shm/isonomia-x".into(),
        listen: vec!["unix:/run/user/7/isonomia.sock".into()],
        trust_clients: true,
        policy: "size-fair".into(),
        draw: "virtual-time".into(),
        window_s: 1.0,
        workers: 2,
        connections: 5,
        cluster: None,
        exclusive: None,
        refused_total: 1,
        refused: BTreeMap::from([("connections".to_owned(), 4), ("protocol".to_owned(), 1)]),
        metadata_failure: None,
        checksums: Default::default(),
        shadow: None,
        rates: Vec::new(),
        scrub: ScrubStatus {
            period_s: Some(604_800.0),
            progress: 0.251,
            passes_total: 3,
            last_pass_age_s: Some(90_000.0),
            verified_bytes_total: 5 << 30,
            damaged_total: 0,
        },
        targets: vec![
            target("metadata", "", None, 0),
            target("0", "/dev/shm/isonomia-x/target-0", Some(1 << 30), 10_000),
            learnt,
        ],
        jobs: vec![sample_job("large", 4, 0.8, 9_600), sample_job("small", 1, 0.2, 2_400)],
    }
}

fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
}

#[test]
fn values_carry_their_unit_and_labels() {
    let text = render(sample_status()).unwrap();
    assert!(text.contains("isonomia_server_uptime_seconds 61.25\n"), "{text}");
    assert!(text.contains("isonomia_target_service_seconds_total{target=\"0\"} 12.0\n"), "{text}");
    assert!(
        text.contains("isonomia_job_share_due_ratio{job=\"large\",user=\"ada\",group=\"astro\",within=\"\"} 0.8\n")
    );
    assert_eq!(lines(&text, "isonomia_target_bandwidth_bytes_per_second").len(), 1);
    let error = lines(&text, "isonomia_target_cost_error_ratio");
    assert_eq!(error, ["isonomia_target_cost_error_ratio{target=\"1\",access=\"read-random\"} 0.125"]);
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn jobs_beyond_the_bound_are_summed_under_one_label() {
    let mut status = sample_status();
    // The most served come last, to see that order of arrival does not matter.
    status.jobs = (0..250).map(|n| sample_job(&format!("j{n}"), 2, 0.004, n)).collect();
    let text = render(status).unwrap();
    let service = lines(&text, "isonomia_job_service_seconds_total");
    assert_eq!(service.len(), JOBS_MAX + 1);
    assert!(service[0].contains("\"j249\""));
    assert!(!service.iter().any(|line| line.contains("\"j149\"")));
    let others: f64 = (0..150).map(|n| f64::from(n) / 1000.0).sum();
    let (labels, value) = service[JOBS_MAX].rsplit_once(' ').unwrap();
    assert!(labels.ends_with("{job=\"other\",user=\"other\",group=\"other\",within=\"other\"}"), "{labels}");
    assert!((value.parse::<f64>().unwrap() - others).abs() < 1e-9);
    let p99 = lines(&text, "isonomia_job_latency_p99_seconds");
    assert!(p99[JOBS_MAX].ends_with(" 0.00487"), "{}", p99[JOBS_MAX]);
}

#[test]
fn who_claims_to_be_a_job_is_another_series() {
    let mut status = sample_status();
    let proven = JobStatus { proof: "cgroup".into(), within: Some("large".into()), ..status.jobs[0].clone() };
    status.jobs = vec![JobStatus { proof: "claim".into(), ..status.jobs[0].clone() }, proven];
    let text = render(status).unwrap();
    let believed = lines(&text, "isonomia_job_believed");
    assert_eq!(believed.len(), 2);
    assert!(believed.iter().any(|line| line.contains("within=\"large\"} 1")), "{believed:?}");
    assert!(believed.iter().any(|line| line.contains("within=\"\"} 0")), "{believed:?}");
}

#[test]
fn a_server_of_a_cluster_says_which_one_it_is() {
    let alone = render(sample_status()).unwrap();
    assert!(!alone.lines().any(|line| line.starts_with("isonomia_cluster")), "{alone}");
    let text = render(Status { cluster: Some(sample_cluster(4, true)), ..sample_status() }).unwrap();
    let info = "isonomia_cluster_info{cluster=\"scratch\",server=\"io02\",root=\"io01\"} 1";
    assert!(text.contains(info), "{text}");
    assert!(text.contains("isonomia_cluster_policy_version 4") && text.contains("isonomia_cluster_epoch 7"), "{text}");
}

#[test]
fn names_from_clients_cannot_break_a_line() {
    let mut status = sample_status();
    status.jobs[0].job = "a\"} 7\nisonomia_fake 1".into();
    let text = render(status).unwrap();
    assert!(!text.lines().any(|line| line.starts_with("isonomia_fake")));
}

/// `UPDATE_REFERENCE=1 cargo test -p isonomia` writes the page's table anew.
#[test]
fn the_reference_page_has_the_table() {
    let mut table = "| metric | kind | labels | stability | meaning |\n|---|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let unit = metric.unit.as_ref().map_or(String::new(), |unit| format!("_{}", unit.as_str()));
        let (suffix, kind) = match metric.kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
        };
        let labels = match metric.values {
            Values::Info(_) => "version, policy, draw, trust_clients",
            Values::Server(_) => "",
            Values::Cluster(labels, _) => {
                if labels(&sample_cluster(0, false)).is_empty() {
                    ""
                } else {
                    "cluster, server, root"
                }
            }
            Values::Reason(_) => "reason",
            Values::Target(_) => "target",
            Values::Cost(_) => "target, access",
            Values::Shadow(_) => "job, user",
            Values::Rate(_) => "rule, for",
            Values::Held(_) => "rule, for, job, user",
            Values::Job(..) => "job, user, group, within",
        };
        let stability = format!("{:?}", metric.stability).to_lowercase();
        table += &format!("| `{}{unit}{suffix}` | {kind} | {labels} | {stability} | {} |\n", metric.name, metric.help);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let mut page = std::fs::read_to_string(path).unwrap();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        page.truncate(page.find("| metric |").unwrap_or(page.len()));
        page += &table;
        std::fs::write(path, &page).unwrap();
    }
    assert!(page.ends_with(&table), "{path} lacks this table:\n{table}");
}
