//! A server's state as tables for people.

use crate::turns;
use comfy_table::{CellAlignment, Table, presets};
use isonomia_policy::{PolicySpec, Scheme};
use isonomia_proto::control::{
    JobStatus, LatencyStatus, MetadataFailure, PhaseStatus, RateStatus, ScrubStatus, ShadowStatus, Status, TargetStatus,
};
use isonomia_units::{Bytes, Nanos};
use std::fmt::Write;

/// A device that has had a request for this long is told of: it may hang.
const NO_ANSWER_MIN: Nanos = Nanos::from_secs(5);
/// Classes of rules that are shown at most.
const RATES_SHOWN: usize = 20;

/// Everything `isonomia status` shows.
pub fn status(status: &Status) -> String {
    let mut text = String::new();
    let trust = if status.trust_clients { "; TRUSTS WHAT CLIENTS CLAIM" } else { "" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "isonomia {} server {} (pid {}), up {}, at {}{trust}",
        status.version,
        status.server,
        status.pid,
        seconds(status.uptime_s),
        status.listen.join(" "),
    );
    let _ = writeln!(
        text,
        "policy {} ({}); {} connections, {} refused; rates over {}\n",
        status.policy,
        status.draw,
        status.connections,
        status.refused_total,
        seconds(status.window_s),
    );
    if status.checksums.damaged_total > 0 {
        let _ = writeln!(text, "DAMAGE: blocks were found damaged {} times\n", status.checksums.damaged_total);
    }
    if let Some(failure) = status.metadata_failure {
        let _ = writeln!(text, "{}\n", no_changes(failure));
    }
    for line in status.targets.iter().filter_map(no_answer) {
        let _ = writeln!(text, "{line}\n");
    }
    if let Some(line) = scrub(&status.scrub) {
        let _ = writeln!(text, "{line}\n");
    }
    let _ = writeln!(text, "{}\n", lines(&targets(&status.targets)));
    if status.targets.iter().any(|target| !target.costs.is_empty()) {
        let _ = writeln!(text, "{}\n", lines(&costs(&status.targets)));
    }
    for line in latency_lines(&status.targets) {
        let _ = writeln!(text, "{line}\n");
    }
    if let Some(turns) = turns::shown(status) {
        let _ = writeln!(text, "{turns}");
    }
    text += &rates(&status.rates);
    text += &jobs_or_none(&status.jobs, owes_shares(&status.policy));
    text + &shadow(status.shadow.as_ref())
}

/// What another policy would give, after a blank line; nothing if there is none.
pub fn shadow(shadow: Option<&ShadowStatus>) -> String {
    let Some(shadow) = shadow else { return String::new() };
    let mut table = plain(&["job", "user", "received", "would receive", "difference"], &[0, 1]);
    for job in &shadow.jobs {
        let difference = format!("{:+.1} %", (job.share_would - job.share_had) * 100.0);
        table.add_row([
            job.job.clone(),
            job.user.clone(),
            percent(job.share_had),
            percent(job.share_would),
            difference,
        ]);
    }
    let rows = if shadow.jobs.is_empty() { "nobody received anything lately".to_owned() } else { lines(&table) };
    format!("\nbeside it, without a say: {}\n\n{rows}\n", shadow.policy)
}

/// Those whom rules gave rates and who used any of it lately or were held, and a blank line; nothing if there are none.
pub fn rates(of: &[RateStatus]) -> String {
    let mut table =
        plain(&["rule", "for", "rate", "here", "served now", "waiting", "held for", "jobs held"], &[0, 1, 7]);
    let is_seen = |rate: &&RateStatus| rate.held_ns_total > 0 || rate.per_s >= 0.5 || rate.queued > 0;
    for rate in of.iter().filter(is_seen).take(RATES_SHOWN) {
        let jobs: Vec<_> = rate.jobs.iter().take(3).map(|job| job.job.as_str()).collect();
        table.add_row([
            rate.rule.clone(),
            rate.class.clone(),
            rate.rate.clone(),
            percent(rate.part),
            per_s(rate.per_s, &rate.rate),
            rate.queued.to_string(),
            format!("{}{}", Nanos(rate.held_ns_total), if rate.is_held { " HELD" } else { "" }),
            if jobs.is_empty() { "-".to_owned() } else { jobs.join(" ") },
        ]);
    }
    if table.row_count() == 0 { String::new() } else { format!("{}\n\n", lines(&table)) }
}

/// What is served in a second under a rate, in what that counts.
pub fn per_s(value: f64, rate: &str) -> String {
    if rate.contains("ops/s") { format!("{:.0} ops/s", value.max(0.0).round() + 0.0) } else { throughput(value) }
}

/// The lines of a table of jobs, or one that says that there are none.
pub fn jobs_or_none(of: &[JobStatus], owes_shares: bool) -> String {
    if of.is_empty() {
        return "no job is connected or was in the last minute\n".to_owned();
    }
    let mut text = format!("{}\n", lines(&jobs(of, owes_shares)));
    if of.iter().any(|job| job.phase.is_some() || job.lateness.is_some()) {
        let _ = writeln!(text, "\n{}", lines(&phases(of)));
    }
    text
}

/// What is said of a server whose metadata cannot be changed.
pub fn no_changes(failure: MetadataFailure) -> String {
    let reason = match failure {
        MetadataFailure::Full => "their storage is full",
        MetadataFailure::Failed => "their storage failed, and is tried every second",
        MetadataFailure::Unsynced => {
            "a sync of them failed; when the storage takes their journal again the server ends, and is to be started anew"
        }
    };
    format!("NO CHANGES OF METADATA: {reason}")
}

/// What is said of a target whose device has had a request for long.
pub fn no_answer(target: &TargetStatus) -> Option<String> {
    let oldest = target.oldest_ns.map(Nanos).filter(|oldest| *oldest >= NO_ANSWER_MIN)?;
    let since = seconds(oldest.as_secs_f64());
    Some(format!("NO ANSWER FROM TARGET {} ({}): a request has been there for {since}", target.target, target.dir))
}

fn scrub(scrub: &ScrubStatus) -> Option<String> {
    let period_s = scrub.period_s?;
    let last = match scrub.last_pass_age_s {
        Some(age_s) => format!("the last pass ended {} ago", seconds(age_s)),
        None => "no pass has ended yet".to_owned(),
    };
    let (done, found) = (percent(scrub.progress), scrub.damaged_total);
    Some(format!("scrub every {}: {done} done, {found} damaged blocks found; {last}", seconds(period_s)))
}

fn targets(targets: &[TargetStatus]) -> Table {
    let mut table = plain(
        &["target", "bandwidth", "per op", "queued", "in service", "depth", "dirty", "requests", "busy", "directory"],
        &[0, 9],
    );
    for target in targets {
        table.add_row([
            target.target.clone(),
            target.bandwidth_bytes_per_s.map_or("-".to_owned(), |rate| throughput(rate as f64)),
            if target.per_op_ns == 0 { "-".to_owned() } else { Nanos(target.per_op_ns).to_string() },
            target.queued.to_string(),
            target.in_service.to_string(),
            target.depth.map_or("-".to_owned(), |depth| depth.to_string()),
            target.dirty_bytes.map_or("-".to_owned(), |dirty| Bytes(dirty).to_string()),
            target.requests_total.to_string(),
            Nanos(target.service_ns_total).to_string(),
            if target.dir.is_empty() { "-".to_owned() } else { target.dir.clone() },
        ]);
    }
    table
}

/// A latency class: a line for each target that served requests of it.
fn latency_lines(targets: &[TargetStatus]) -> Vec<String> {
    let classes: Vec<_> = targets.iter().filter_map(|target| Some((target, target.latency.as_ref()?))).collect();
    let used = || classes.iter().filter(|(_, class)| class.requests_total > 0);
    if !classes.is_empty() && used().next().is_none() {
        return vec!["latency class: no requests yet".to_owned()];
    }
    used().map(|(target, class)| latency_line(target, class)).collect()
}

fn latency_line(target: &TargetStatus, class: &LatencyStatus) -> String {
    let time = |ns: u64| Nanos(ns).to_string();
    let p99 = class.p99_ns.map_or("no requests lately".to_owned(), |p99| format!("p99 {}", time(p99)));
    let others = match (class.others_max, class.lost) {
        (None, _) => "others are not held back".to_owned(),
        (Some(max), Some(lost)) => {
            format!("others at most {max} in service, which costs about {} of the work", percent(lost))
        }
        (Some(max), None) => format!("others at most {max} in service, at a cost not known yet"),
    };
    let reason = class.unreachable.as_ref().map(|reason| match reason.alone_ns {
        Some(alone) if alone > class.target_ns => format!("the device alone takes {}", time(alone)),
        _ => format!("beside a single request of others it takes {}", time(reason.beside_one_ns)),
    });
    format!(
        "latency class on {}: {p99}, target {}; {} requests, {} of them beyond their job's share; {others}{}",
        target.target,
        time(class.target_ns),
        class.requests_total,
        class.over_share_total,
        reason.map_or(String::new(), |reason| format!("; NOT REACHABLE: {reason}")),
    )
}

/// What was learnt of the devices of targets.
fn costs(targets: &[TargetStatus]) -> Table {
    let mut table = plain(&["target", "access", "device time per op", "bytes at", "predictions off by"], &[0, 1]);
    for (target, cost) in targets.iter().flat_map(|target| target.costs.iter().map(move |cost| (target, cost))) {
        table.add_row([
            target.target.clone(),
            cost.access.clone(),
            Nanos(cost.per_op_ns).to_string(),
            cost.bandwidth_bytes_per_s.map_or("-".to_owned(), |rate| throughput(rate as f64)),
            cost.error.map_or("-".to_owned(), percent),
        ]);
    }
    table
}

/// Whether a policy owes jobs shares, and does not serve in an order or by rates. True for a policy that this program does
/// not know, as one of a newer server: its shares are then shown.
pub fn owes_shares(policy: &str) -> bool {
    policy.parse::<PolicySpec>().map_or(true, |policy| matches!(policy.scheme(), Scheme::Fair(_) | Scheme::Coflow(_)))
}

fn jobs(jobs: &[JobStatus], owes_shares: bool) -> Table {
    let mut table = plain(
        &[
            "job",
            "proof",
            "user",
            "group",
            "nodes",
            "clients",
            "due",
            "received",
            "throughput",
            "req/s",
            "queued",
            "p50",
            "p99",
        ],
        &[0, 1, 2, 3],
    );
    for job in jobs {
        table.add_row([
            job.job.clone(),
            job.proof.clone(),
            job.user.clone(),
            job.group.clone(),
            job.nodes.to_string(),
            job.clients.to_string(),
            if owes_shares { percent(job.share_due) } else { "-".to_owned() },
            percent(job.share_received),
            throughput(job.throughput_bytes_per_s),
            format!("{:.0}", job.requests_per_s),
            job.queued.to_string(),
            latency(job.latency_p50_us),
            latency(job.latency_p99_us),
        ]);
    }
    table
}

/// The I/O phases that jobs are in, in service of targets: who had less than fair sharing would have given is late by the rest. And
/// what came of those before, each counted at every target.
fn phases(jobs: &[JobStatus]) -> Table {
    let header = ["phase of", "user", "received", "fair sharing", "late by", "ended", "of them late", "late in all"];
    let mut table = plain(&header, &[0, 1]);
    let time = |ns: u64| if ns == 0 { "-".to_owned() } else { Nanos(ns).to_string() };
    for job in jobs.iter().filter(|job| job.phase.is_some() || job.lateness.is_some()) {
        let running = |of: fn(&PhaseStatus) -> String| job.phase.as_ref().map_or("-".to_owned(), of);
        let ended = job.lateness.unwrap_or_default();
        table.add_row([
            job.job.clone(),
            job.user.clone(),
            running(|phase| Nanos(phase.received_ns).to_string()),
            running(|phase| Nanos(phase.fair_ns).to_string()),
            time(job.phase.map_or(0, |phase| phase.fair_ns.saturating_sub(phase.received_ns))),
            ended.phases_total.to_string(),
            ended.late_total.to_string(),
            time(ended.late_ns_total),
        ]);
    }
    table
}

/// A table without lines; columns are right-aligned but for `left`.
pub fn plain(header: &[&str], left: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !left.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table's lines, without blanks at their ends.
pub fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A share, as `33.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A throughput with its unit.
pub fn throughput(bytes_per_s: f64) -> String {
    format!("{}/s", Bytes(bytes_per_s.round() as u64))
}

fn latency(us: f64) -> String {
    Nanos((us * 1000.0).round() as u64).to_string()
}

/// A span of time, in the unit that suits it.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::sample_status;
    use isonomia_proto::control::UnreachableStatus;

    #[test]
    fn a_status_reads_like_this() {
        assert_eq!(status(&sample_status()), include_str!("../tests/status.txt"));
    }

    #[test]
    fn a_device_that_has_had_a_request_for_long_is_told_of() {
        let line = |oldest_ns| no_answer(&TargetStatus { oldest_ns, ..sample_status().targets[1].clone() });
        assert_eq!([line(None), line(Some(4_999_999_999))], [None, None]);
        let told = "NO ANSWER FROM TARGET 0 (/dev/shm/isonomia-x/target-0): a request has been there for 5.0 s";
        assert_eq!(line(Some(5_000_000_000)).as_deref(), Some(told));
    }

    #[test]
    fn a_latency_class_says_what_it_has_and_what_it_costs() {
        let met = LatencyStatus {
            target_ns: 2_000_000,
            p99_ns: Some(1_200_000),
            requests_total: 1234,
            over_share_total: 5,
            others_max: Some(4),
            lost: Some(0.123),
            unreachable: None,
        };
        let with = |class: LatencyStatus| {
            let mut status = sample_status();
            status.targets[1].latency = Some(class);
            super::status(&status)
        };
        let text = with(met.clone());
        let line = "latency class on 0: p99 1.2 ms, target 2 ms; 1234 requests, 5 of them beyond their job's share; others at \
                    most 4 in service, which costs about 12.3 % of the work\n";
        assert!(text.contains(line), "{text}");
        let beside_one_ns = 9_000_000;
        for (alone_ns, reason) in [
            (Some(5_000_000), "NOT REACHABLE: the device alone takes 5 ms\n"),
            (Some(1_000_000), "NOT REACHABLE: beside a single request of others it takes 9 ms\n"),
            (None, "NOT REACHABLE: beside a single request of others it takes 9 ms\n"),
        ] {
            let unreachable = Some(UnreachableStatus { alone_ns, beside_one_ns });
            let text = with(LatencyStatus { others_max: None, unreachable, ..met.clone() });
            assert!(text.contains("others are not held back; ") && text.contains(reason), "{text}");
        }
        let text = with(LatencyStatus { requests_total: 0, ..met });
        assert!(text.contains("latency class: no requests yet\n"), "{text}");
    }

    #[test]
    fn bytes_that_take_no_time_have_no_bandwidth() {
        let mut status = sample_status();
        let learnt = status.targets.iter_mut().find(|target| !target.costs.is_empty()).unwrap();
        learnt.costs[0].bandwidth_bytes_per_s = None;
        let text = super::status(&status);
        let words: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(words.iter().any(|line| line == "1 read-random 85.3 us - 12.5 %"), "{text}");
    }

    #[test]
    fn without_shares_nothing_is_due() {
        for (policy, is_due) in [("fifo", false), ("tbf{job:*=1GiB/s}", false), ("coflow", true), ("of-tomorrow", true)]
        {
            let status = status(&Status { policy: policy.into(), ..sample_status() });
            assert_eq!(status.contains("80.0 %"), is_due, "{policy}");
        }
    }
}
