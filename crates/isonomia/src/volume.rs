//! `isonomia volume`: the volumes of a cluster.

use crate::arguments::{VolumeCommand, VolumeCreateOptions, VolumeListOptions, VolumeOptions};
use crate::control::{Control, address};
use crate::table;
use anyhow::{Context, Result, bail};
use isonomia_client::{Client, ClientConfig, identity};
use isonomia_units::{Nanos, ServerId};
use std::io::Write;

/// How long a volume may take to be made.
const TIMEOUT: Nanos = Nanos::from_secs(30);

pub fn volume(options: &VolumeOptions) -> Result<()> {
    match &options.command {
        VolumeCommand::List(options) => list(options),
        VolumeCommand::Create(options) => create(options),
    }
}

fn list(options: &VolumeListOptions) -> Result<()> {
    let found = Control::connect(&options.server)?.volumes()?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
        return Ok(());
    }
    let mut rows = table::plain(&["volume", "number", "server"], &[0, 2]);
    for volume in &found.volumes {
        rows.add_row([volume.name.clone(), volume.number.to_string(), volume.server.clone()]);
    }
    writeln!(out, "{}", table::lines(&rows))?;
    Ok(())
}

fn create(options: &VolumeCreateOptions) -> Result<()> {
    let VolumeCreateOptions { name, on, mode, server } = options;
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !is_name {
        bail!("{name:?} is no name of a volume (allowed: that of a directory in the root, without slashes)");
    }
    let servers = Control::connect(server)?.volumes()?.servers;
    let Some(chosen) = servers.iter().find(|server| server.name == *on) else {
        let names = isonomia_cluster::hosts::compress(servers.iter().map(|server| server.name.as_str()));
        bail!("the cluster has no server {on:?} (allowed: {names})");
    };
    let key_file = server.reach.key_file.as_ref().map(|path| path.display().to_string());
    let config = ClientConfig {
        addresses: vec![address(server)],
        timeout: TIMEOUT,
        claims: identity::from_environment(|name| std::env::var(name).ok()),
        key_file,
    };
    let client = Client::new(config).trusting(server.reach.server_user).protected(server.reach.protection.protection());
    let made = client.make_volume(name.as_bytes(), *mode, ServerId(chosen.number));
    made.with_context(|| format!("cannot make volume {name:?} on {on}"))?;
    Ok(())
}
