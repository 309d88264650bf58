//! A running cluster: every server looks at the objects that it has of striped files.

use super::{FAILED, LEFT, REPAIRED};
use crate::arguments::FsckOptions;
use crate::control::{self, Control};
use crate::whole::{self, Meant};
use anyhow::{Context, Result, ensure};
use isonomia_proto::control::ObjectsChecked;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Between two questions how far a server is.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A server, and what came of it.
struct Looked {
    name: String,
    outcome: Result<ObjectsChecked, String>,
}

pub fn check(options: &FsckOptions) -> Result<ExitCode> {
    // It tells this wish from others', and is not 0.
    let id = rand::random::<u64>() | 1;
    let servers: Vec<(String, Result<Control, String>)> = match whole::meant(&options.whole)? {
        Meant::One(control, status) => {
            let cluster = status.cluster.context(
                "the server is in no cluster: its scrub looks at its objects while it runs, and `isonomia fsck DIR` once it is \
                 stopped",
            )?;
            vec![(cluster.server, Ok(control))]
        }
        Meant::All(mut all) => {
            let seen = all.look().into_iter();
            seen.map(|seen| (seen.member.name, seen.found.map(|(control, _)| control))).collect()
        }
    };
    // All look at the same time, for they answer each other.
    let begun: Vec<_> = servers
        .into_iter()
        .map(|(name, control)| {
            let begin = |mut control: Control| {
                control.answer_within(control::TIMEOUT);
                control.check_objects(id).map(|_| control).map_err(|error| format!("{error:#}"))
            };
            (name, control.and_then(begin))
        })
        .collect();
    let wait = |(name, control): (String, Result<Control, String>)| {
        let wait = |mut control: Control| loop {
            match control.check_objects(id) {
                Ok(found) if found.is_done => return Ok(found),
                Ok(_) => std::thread::sleep(ASK_EVERY),
                Err(error) => return Err(format!("{error:#}")),
            }
        };
        Looked { name, outcome: control.and_then(wait) }
    };
    let looked: Vec<Looked> = begun.into_iter().map(wait).collect();
    ensure!(!looked.is_empty(), "the cluster has no servers");
    for looked in &looked {
        tell(options, looked).context("cannot say what was found")?;
    }
    let found = || looked.iter().filter_map(|looked| looked.outcome.as_ref().ok());
    Ok(if looked.iter().any(|looked| looked.outcome.is_err()) {
        FAILED.into()
    } else if found().any(|found| found.lost > 0) {
        LEFT.into()
    } else if found().any(|found| found.removed > 0) {
        REPAIRED.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn tell(options: &FsckOptions, looked: &Looked) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let Looked { name, outcome } = looked;
    if options.json {
        let line = match outcome {
            Ok(ObjectsChecked { objects, removed, lost, named, .. }) => serde_json::json!({
                "server": name, "objects": objects, "removed": removed, "lost": lost, "named": named, "error": null,
            }),
            Err(error) => serde_json::json!({ "server": name, "error": error }),
        };
        return writeln!(out, "{line}");
    }
    match outcome {
        Ok(ObjectsChecked { objects, removed, lost, named, .. }) => {
            for lost in named {
                writeln!(out, "{name}: {lost}; cannot be repaired")?;
            }
            writeln!(out, "{name}: {objects} objects, {removed} of no file removed, {lost} lost")
        }
        Err(error) => writeln!(
            out,
            "{name}: not looked at, nor whether files of its volumes are there to which objects elsewhere belong: {error}"
        ),
    }
}
