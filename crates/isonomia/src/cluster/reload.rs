//! `isonomia cluster reload`: all running servers take a newer cluster file, or none does.

use super::members::{self, Member};
use crate::arguments::MembersOptions;
use crate::table;
use anyhow::Result;
use isonomia_cluster::Map;
use isonomia_server::usable_cluster_file;
use isonomia_transport::handshake::Identity;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// What became of asking one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It has the file, from now on or since before.
    Taken,
    /// It would take it, but others would not.
    Willing,
    /// It does not take it.
    Refused,
    /// It does not answer, or somebody else does.
    NoAnswer,
}

impl Outcome {
    fn words(self) -> &'static str {
        match self {
            Self::Taken => "has it",
            Self::Willing => "would take it",
            Self::Refused => "refuses it",
            Self::NoAnswer => "no answer",
        }
    }
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    server: &'a str,
    outcome: Outcome,
    address: String,
    reason: Option<String>,
}

pub fn reload(options: &MembersOptions) -> Result<ExitCode> {
    let map = usable_cluster_file(&options.file)?;
    let identity = members::identity(options)?;
    let mut lines = ask(&map, &identity, true);
    if lines.iter().all(|line| line.outcome != Outcome::Refused) {
        lines = ask(&map, &identity, false);
    }
    let is_good = lines.iter().all(|line| line.outcome == Outcome::Taken);
    let mut out = std::io::stdout().lock();
    if options.json {
        let report = serde_json::json!({ "name": map.name(), "epoch": map.epoch(), "ok": is_good, "servers": lines });
        writeln!(out, "{report:#}")?;
    } else {
        let mut table = table::plain(&["server", "outcome", "address", "reason"], &[0, 1, 2, 3]);
        for line in &lines {
            let reason = line.reason.clone().unwrap_or_default();
            table.add_row([line.server.to_owned(), line.outcome.words().to_owned(), line.address.clone(), reason]);
        }
        writeln!(
            out,
            "{} epoch {} by {}\n\n{}",
            map.name(),
            map.epoch(),
            options.file.display(),
            table::lines(&table)
        )?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ask<'m>(map: &'m Map, identity: &Identity, is_trial: bool) -> Vec<Line<'m>> {
    members::each(map, identity, |server, member| {
        let (outcome, address, reason) = match member {
            Member::Absent(address, reason) | Member::Other(address, reason) => {
                (Outcome::NoAnswer, address, Some(reason))
            }
            Member::Present(mut control, _, address) => match control.reload(map, is_trial) {
                Ok((is_known, needs_restart)) => {
                    let outcome = if is_trial && !is_known { Outcome::Willing } else { Outcome::Taken };
                    let restart = "its own addresses, directory or targets change: start it again";
                    (outcome, address, needs_restart.then(|| restart.to_owned()))
                }
                Err(error) => (Outcome::Refused, address, Some(format!("{error:#}"))),
            },
        };
        Line { server: &server.name, outcome, address, reason }
    })
}
