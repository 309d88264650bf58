//! `isonomia placement`: which targets new files of a cluster get.

use crate::arguments::{How, PlacementCommand, PlacementOptions, ServerOptions, WholeOptions};
use crate::control::Control;
use crate::table;
use crate::whole::{self, Meant};
use anyhow::{Result, bail};
use isonomia_proto::control::{ControlRequest, PlacementStatus, PlacementTarget};
use isonomia_units::Bytes;
use std::io::Write;

pub fn placement(options: &PlacementOptions) -> Result<()> {
    match &options.command {
        PlacementCommand::Get { whole, json } => get(whole, *json),
        PlacementCommand::Set { server, how } => set(server, *how),
        PlacementCommand::Status { server, json } => status(server, *json),
    }
}

fn get(options: &WholeOptions, json: bool) -> Result<()> {
    let (first, others) = match whole::meant(options)? {
        Meant::One(mut control, _) => (control.placement()?, Vec::new()),
        Meant::All(mut all) => {
            let first = Control::connect(&options.first()?)?.placement()?;
            let seen = all.look();
            let others = seen.iter().filter_map(|seen| {
                let has = match seen.status() {
                    None => None,
                    Some(status) => Some(status.cluster.as_ref()?.placement.clone()),
                };
                (has.as_ref() != Some(&first.placement)).then(|| (seen.member.name.clone(), has))
            });
            let others = others.collect();
            (first, others)
        }
    };
    let mut out = std::io::stdout().lock();
    if json {
        let others: serde_json::Map<_, _> = others.into_iter().map(|(name, has)| (name, has.into())).collect();
        let shown = serde_json::json!({
            "placement": first.placement,
            "is_set": first.is_set,
            "version": first.version,
            "is_possible": first.is_possible,
            "others": others,
        });
        writeln!(out, "{shown:#}")?;
        return Ok(());
    }
    writeln!(out, "{}", said(&first))?;
    for (name, has) in others {
        match has {
            Some(has) => writeln!(out, "{name} has {has}")?,
            None => writeln!(out, "{name} is away")?,
        }
    }
    Ok(())
}

fn said(status: &PlacementStatus) -> String {
    let by = if status.is_set { format!("version {}", status.version) } else { "by the cluster file".to_owned() };
    let but = if status.is_possible { "" } else { "; WITHOUT EFFECT: the servers have no key file in common" };
    format!("{} ({by}){but}", status.placement)
}

fn set(server: &ServerOptions, How(placement): How) -> Result<()> {
    let mut control = Control::connect(server)?;
    let request = ControlRequest::SetPlacement { placement: placement.map(|placement| placement.to_string()) };
    let version = control.set_placement(&request)?;
    let shown = placement.map_or_else(|| "as the cluster file says".to_owned(), |placement| placement.to_string());
    writeln!(std::io::stdout().lock(), "{shown}, version {version}")?;
    Ok(())
}

fn status(server: &ServerOptions, json: bool) -> Result<()> {
    let mut control = Control::connect(server)?;
    let status = control.placement()?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
        return Ok(());
    }
    if status.targets.is_empty() {
        bail!("the cluster has no targets");
    }
    writeln!(out, "{}; {} open files are counted\n", said(&status), status.open_files)?;
    let mut rows = table::plain(&["target", "server", "left", "free", ""], &[1, 4]);
    for target in &status.targets {
        let PlacementTarget { target: number, server, left, free_bytes, .. } = target;
        let left = left.map_or_else(|| "-".to_owned(), |left| format!("{:.0} %", 100.0 * left));
        let free = free_bytes.map_or_else(|| "-".to_owned(), |free| Bytes(free).to_string());
        let remark = match (target.is_retired, target.is_silent) {
            (true, _) => "retired",
            (_, true) => "silent",
            _ => "",
        };
        rows.add_row([number.to_string(), server.clone(), left, free, remark.to_owned()]);
    }
    writeln!(out, "{}", table::lines(&rows))?;
    Ok(())
}
