//! `isonomia volume`: the volumes of a cluster.

use crate::arguments::{VolumeCommand, VolumeCreateOptions, VolumeListOptions, VolumeMoveOptions, VolumeOptions};
use crate::control::{self, Control, addresses};
use crate::table;
use anyhow::{Context, Result, bail};
use isonomia_client::{Client, ClientConfig, identity};
use isonomia_transport::key::fresh_nonce;
use isonomia_units::{Bytes, Nanos, ServerId};
use std::io::Write;
use std::time::Duration;

/// How long a volume may take to be made.
const TIMEOUT: Nanos = Nanos::from_secs(30);
/// Between two questions whether a volume has moved.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// The server that gets a volume has this long to say how far it is, at each of its addresses.
const PROGRESS_WITHIN: Nanos = Nanos::from_secs(1);

pub fn volume(options: &VolumeOptions) -> Result<()> {
    match &options.command {
        VolumeCommand::List(options) => list(options),
        VolumeCommand::Create(options) => create(options),
        VolumeCommand::Move(options) => relocate(options),
    }
}

fn list(options: &VolumeListOptions) -> Result<()> {
    let found = Control::connect(&options.server)?.volumes()?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
        return Ok(());
    }
    let mut rows = table::plain(&["volume", "number", "server", "moving"], &[0, 2, 3]);
    for volume in &found.volumes {
        let moving = volume.moving.as_ref().map(|(from, to)| format!("from {from} to {to}"));
        let moving = moving.unwrap_or_default();
        rows.add_row([volume.name.clone(), volume.number.to_string(), volume.server.clone(), moving]);
    }
    writeln!(out, "{}", table::lines(&rows))?;
    Ok(())
}

/// Has a volume moved, and tells on standard error how far it is.
fn relocate(options: &VolumeMoveOptions) -> Result<()> {
    let VolumeMoveOptions { name, to, server } = options;
    let mut control = Control::connect(server)?;
    let nonce = fresh_nonce().context("no random bytes")?;
    let mut told = None;
    let members = control.members()?.servers;
    let Some(chosen) = members.iter().find(|member| member.name == *to) else {
        let names = isonomia_cluster::hosts::compress(members.iter().map(|member| member.name.as_str()));
        bail!("the cluster has no server {to:?} (allowed: {names})");
    };
    let identity = control::identity(&server.reach)?;
    let id = u64::from_le_bytes(std::array::from_fn(|at| nonce[at]));
    while !control.move_volume(name, chosen.number, id)? {
        let number =
            control.volumes()?.volumes.into_iter().find(|volume| volume.name == *name).map(|found| found.number);
        let come = chosen.listen.iter().filter_map(|address| address.parse().ok()).find_map(|address| {
            let status = Control::open(&address, &identity, PROGRESS_WITHIN).ok()?.status().ok()?;
            status.cluster?.moves.into_iter().find(|coming| Some(coming.number) == number)
        });
        let line = match come {
            Some(coming) => format!("{} files and directories, {}", coming.inodes, Bytes(coming.bytes)),
            None => format!("{to} has not begun, or does not answer"),
        };
        if told.as_ref() != Some(&line) {
            crate::log::say(format_args!("moving {name} to {to}: {line}"));
            told = Some(line);
        }
        std::thread::sleep(ASKED_EVERY);
    }
    writeln!(std::io::stdout().lock(), "{name} is on {to}")?;
    Ok(())
}

fn create(options: &VolumeCreateOptions) -> Result<()> {
    let VolumeCreateOptions { name, on, mode, whole } = options;
    let on = match (on.as_deref(), whole.only()?) {
        (Some(one), Some(other)) if one != other => {
            bail!("--on names {one} and --server {other} (allowed: one server)")
        }
        (on, named) => on.or(named).with_context(|| {
            format!(
                "on which server volume {name:?} is to be is not said (allowed: --server NAME; `mkdir` leaves it to the \
                 cluster)"
            )
        })?,
    };
    let server = &whole.first()?;
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !is_name {
        bail!("{name:?} is no name of a volume (allowed: that of a directory in the root, without slashes)");
    }
    let servers = Control::connect(server)?.volumes()?.servers;
    let Some(chosen) = servers.iter().find(|server| server.name == on) else {
        let names = isonomia_cluster::hosts::compress(servers.iter().map(|server| server.name.as_str()));
        bail!("the cluster has no server {on:?} (allowed: {names})");
    };
    let key_file = server.reach.key_file.as_ref().map(|path| path.display().to_string());
    let config = ClientConfig {
        addresses: addresses(server).as_slice().to_vec(),
        timeout: TIMEOUT,
        claims: identity::from_environment(|name| std::env::var(name).ok()),
        key_file,
    };
    let client = Client::new(config).trusting(server.reach.server_user).protected(server.reach.protection.protection());
    let made = client.make_volume(name.as_bytes(), *mode, ServerId(chosen.number));
    made.with_context(|| format!("cannot make volume {name:?} on {on}"))?;
    Ok(())
}
