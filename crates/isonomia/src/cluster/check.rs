//! `isonomia cluster check`: a cluster file and everything that is wrong with it.

use crate::arguments::CheckOptions;
use crate::table;
use anyhow::Result;
use isonomia_cluster::Map;
use isonomia_cluster::map::{Finding, Server, Severity};
use isonomia_server::{read_cluster_file, usable_cluster_file};
use isonomia_units::TargetId;
use std::io::Write;
use std::process::ExitCode;

pub fn check(options: &CheckOptions) -> Result<ExitCode> {
    let (map, mut findings) = read_cluster_file(&options.file)?;
    if let (Some(map), Some(old)) = (&map, &options.against) {
        findings.extend(usable_cluster_file(old)?.difference(map));
    }
    let is_good = findings.iter().all(|finding| finding.severity != Severity::Error);
    let mut out = std::io::stdout().lock();
    if options.json {
        let findings: Vec<_> = findings.iter().map(finding_as_json).collect();
        let mut report = serde_json::json!({ "ok": is_good, "findings": findings });
        if let (Some(map), Some(report)) = (&map, report.as_object_mut()) {
            report.insert("cluster".to_owned(), map_as_json(map));
        }
        writeln!(out, "{report:#}")?;
    } else {
        for finding in &findings {
            let line = finding.line.map_or(String::new(), |line| format!("{line}:"));
            writeln!(out, "{}:{line} {}: {}", options.file.display(), finding.severity, finding.what)?;
        }
        if let (Some(map), true) = (&map, is_good) {
            writeln!(out, "{}", shown(map))?;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn finding_as_json(finding: &Finding) -> serde_json::Value {
    serde_json::json!({ "severity": finding.severity.to_string(), "line": finding.line, "what": finding.what })
}

fn map_as_json(map: &Map) -> serde_json::Value {
    let server = |server: &Server| {
        let target = |target: &isonomia_cluster::map::Target| serde_json::json!({ "number": target.id, "dir": target.dir, "retired": target.retired });
        serde_json::json!({
            "number": server.number,
            "name": server.name,
            "listen": server.listen,
            "dir": server.dir,
            "targets": server.targets.iter().map(target).collect::<Vec<_>>(),
            "router": server.router,
            "rack": server.rack,
            "weight": server.weight,
            "retired": server.retired,
        })
    };
    serde_json::json!({
        "name": map.name(),
        "epoch": map.epoch(),
        "root": map.root().name,
        "fingerprint": format!("{:016x}", map.fingerprint()),
        "servers": map.servers().iter().map(server).collect::<Vec<_>>(),
    })
}

fn shown(map: &Map) -> String {
    let mut table = table::plain(
        &["server", "number", "targets", "weight", "router", "rack", "dir", "addresses"],
        &[0, 2, 4, 5, 6, 7],
    );
    for server in map.servers() {
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().unwrap_or("-").to_owned();
        let addresses: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
        table.add_row([
            server.name.to_string(),
            server.number.to_string(),
            numbers(server.targets.iter().map(|target| target.id)),
            if server.retired { "retired".to_owned() } else { server.weight.to_string() },
            text(&server.router),
            text(&server.rack),
            server.dir.as_ref().map_or("in memory".to_owned(), |dir| dir.display().to_string()),
            addresses.join(" "),
        ]);
    }
    format!(
        "{} epoch {}: {} servers, {} targets, root on {}\n\n{}",
        map.name(),
        map.epoch(),
        map.servers().len(),
        map.servers().iter().map(|server| server.targets.len()).sum::<usize>(),
        map.root().name,
        table::lines(&table),
    )
}

/// The targets of a server have numbers that follow each other.
fn numbers(mut targets: impl DoubleEndedIterator<Item = TargetId>) -> String {
    match (targets.next(), targets.next_back()) {
        (Some(first), Some(last)) => format!("{first}-{last}"),
        (Some(only), None) => only.to_string(),
        (None, _) => "-".to_owned(),
    }
}
