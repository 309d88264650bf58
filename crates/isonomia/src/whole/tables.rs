//! A whole cluster as tables for people.

use super::summary::{Report, ServerReport, State};
use crate::table;
use isonomia_proto::control::Status;
use isonomia_units::Bytes;
use std::fmt::Write;

const NONE: &str = "-";

/// Everything `isonomia status` shows of a cluster.
pub fn text(report: &Report<'_>) -> String {
    let mut text = head(report);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{}\n", table::lines(&servers(report)));
    text += &notes(report);
    let owes = report.policy.is_none_or(|policy| table::owes_shares(policy.policy));
    text += &table::rates(&report.rates);
    text += &table::jobs_or_none(&report.jobs, owes);
    text += &table::shadow(report.shadow.as_ref());
    text
}

/// Everything `isonomia policy get` shows of a cluster.
pub fn policies(report: &Report<'_>) -> String {
    let mut rows = table::plain(&["server", "policy", "draw", "version", "note"], &[0, 1, 2, 4]);
    for server in &report.servers {
        let status = server.status;
        let version = status.and_then(|status| status.cluster.as_ref()).map(|cluster| cluster.policy_version);
        rows.add_row([
            server.name.to_owned(),
            status.map_or(NONE.to_owned(), |status| status.policy.clone()),
            status.map_or(NONE.to_owned(), |status| status.draw.clone()),
            version.map_or(NONE.to_owned(), |version| version.to_string()),
            policy_note(report, server).unwrap_or_default(),
        ]);
    }
    format!("{}\n\n{}\n", policy_line(report), table::lines(&rows))
}

fn head(report: &Report<'_>) -> String {
    let (all, answer) = (report.servers.len(), report.servers.iter().filter(|server| server.status.is_some()).count());
    let Report { cluster, epoch, root, .. } = report;
    format!(
        "cluster {cluster} epoch {epoch}, root on {root}; {answer} of {all} servers answer\n{}\n",
        policy_line(report)
    )
}

fn policy_line(report: &Report<'_>) -> String {
    match report.policy {
        None => "policy unknown: no server answers".to_owned(),
        Some(policy) if policy.version == 0 => {
            "no policy is set for the cluster: each server has the one that it was started with".to_owned()
        }
        Some(policy) => format!("policy {} ({}), version {}", policy.policy, policy.draw, policy.version),
    }
}

/// What is worth knowing of a server's policy.
fn policy_note(report: &Report<'_>, server: &ServerReport<'_>) -> Option<String> {
    let Some(status) = server.status else { return Some(format!("away: {}", server.reason.unwrap_or("no answer"))) };
    let cluster = status.cluster.as_ref()?;
    let newest = report.policy.map_or(0, |policy| policy.version);
    if cluster.policy_deviates {
        Some("deviates until the cluster's policy is set again, or its own end".to_owned())
    } else if cluster.policy_version < newest {
        Some(format!("has not taken version {newest} yet"))
    } else {
        None
    }
}

fn servers(report: &Report<'_>) -> comfy_table::Table {
    let header = [
        "server",
        "number",
        "state",
        "up",
        "connections",
        "jobs",
        "queued",
        "in service",
        "throughput",
        "dirty",
        "volumes",
    ];
    let mut rows = table::plain(&header, &[0, 2]);
    for server in &report.servers {
        let ServerReport { name, number, state, status, .. } = server;
        let shown = match state {
            State::Answers => "answers",
            State::Away => "away",
        };
        let cell = |of: &dyn Fn(&Status) -> String| status.map_or(NONE.to_owned(), of);
        let in_targets = |of: fn(&isonomia_proto::control::TargetStatus) -> u64| {
            cell(&|status| status.targets.iter().map(of).sum::<u64>().to_string())
        };
        rows.add_row([
            (*name).to_owned(),
            number.to_string(),
            shown.to_owned(),
            cell(&|status| table::seconds(status.uptime_s)),
            cell(&|status| status.connections.to_string()),
            cell(&|status| status.jobs.len().to_string()),
            in_targets(|target| target.queued),
            in_targets(|target| target.in_service),
            cell(&|status| table::throughput(status.jobs.iter().map(|job| job.throughput_bytes_per_s).sum())),
            cell(&|status| Bytes(status.targets.iter().filter_map(|target| target.dirty_bytes).sum()).to_string()),
            cell(&|status| status.cluster.as_ref().map_or(0, |cluster| cluster.volumes.len()).to_string()),
        ]);
    }
    rows
}

/// A line for each server of which something is worth saying.
fn notes(report: &Report<'_>) -> String {
    let mut lines = String::new();
    for server in &report.servers {
        let name = server.name;
        if let Some(note) = policy_note(report, server) {
            let _ = writeln!(lines, "{name}: {note}");
        }
        let Some(status) = server.status else { continue };
        if let Some(failure) = status.metadata_failure {
            let _ = writeln!(lines, "{name}: {}", table::no_changes(failure));
        }
        for line in status.targets.iter().filter_map(table::no_answer) {
            let _ = writeln!(lines, "{name}: {line}");
        }
        if status.checksums.damaged_total > 0 {
            let _ =
                writeln!(lines, "{name}: DAMAGE: blocks were found damaged {} times", status.checksums.damaged_total);
        }
        if status.trust_clients {
            let _ = writeln!(lines, "{name}: TRUSTS WHAT CLIENTS CLAIM");
        }
        if let Some(cluster) = &status.cluster
            && cluster.epoch != report.epoch
        {
            let _ = writeln!(lines, "{name}: has epoch {} of the cluster file", cluster.epoch);
        }
    }
    if !lines.is_empty() {
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::summary::report;
    use super::super::{MemberList, Seen};
    use super::*;
    use isonomia_proto::control::ListedServer;

    #[test]
    fn servers_that_are_away_are_shown_with_the_reason() {
        let member = |name: &str, number| ListedServer { name: name.into(), number, listen: Vec::new() };
        let servers = vec![member("io01", 1), member("io02", 2)];
        let members = MemberList { name: "scratch".into(), epoch: 3, root: "io01".into(), servers };
        let away = |member: &ListedServer| Seen { member: member.clone(), found: Err("no answer in time".into()) };
        let seen: Vec<Seen> = members.servers.iter().map(away).collect();
        let report = report(&members, &seen);
        let text = text(&report);
        assert!(text.starts_with("cluster scratch epoch 3, root on io01; 0 of 2 servers answer\n"), "{text}");
        assert!(text.contains("io02: away: no answer in time\n"), "{text}");
        assert!(policies(&report).contains("io01    -       -           -  away: no answer in time"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["servers"][1]["state"], "away");
    }
}
