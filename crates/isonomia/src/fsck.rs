//! `isonomia fsck`: a stopped server's directory is checked, and repaired if asked for; or a running cluster.

mod running;

use crate::arguments::FsckOptions;
use crate::log;
use anyhow::{Context, Result, bail};
use isonomia_server::{Config, METADATA, TargetConfig, store_config, usable_cluster_file};
use isonomia_store::{Check, Checked, Finding, OpenError, StoreConfig, known_targets};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Everything that was found was repaired.
const REPAIRED: u8 = 1;
/// Something is left.
const LEFT: u8 = 4;
/// The check could not be done.
const FAILED: u8 = 8;

pub fn fsck(options: &FsckOptions) -> ExitCode {
    let Some(dir) = &options.dir else {
        return running::check(options).unwrap_or_else(|error| {
            log::say(format_args!("{error:#}"));
            FAILED.into()
        });
    };
    match check(options, dir) {
        Ok(Checked { repairable: 0, left: 0, .. }) => ExitCode::SUCCESS,
        Ok(Checked { left: 0, .. }) if options.repair => REPAIRED.into(),
        Ok(_) => LEFT.into(),
        Err(error) => {
            log::say(format_args!("{error:#}"));
            if let Some(OpenError::InUse { .. }) = error.downcast_ref() {
                log::say(format_args!(
                    "stop that server, and no other: those of a cluster go on, and its clients wait. Without a directory, \
                     `isonomia fsck --server ADDR` checks a cluster that runs"
                ));
            }
            if let Some(OpenError::Recovery { .. } | OpenError::Damaged { .. }) = error.downcast_ref() {
                log::say(format_args!(
                    "what cannot be opened is not repaired: put back a copy of the metadata, then --repair"
                ));
            }
            FAILED.into()
        }
    }
}

fn check(options: &FsckOptions, dir: &Path) -> Result<Checked> {
    let store = store_of(options, dir)?;
    let mut out = std::io::stdout().lock();
    let mut failed = None;
    let mut finding = |finding: &Finding| {
        if let Err(error) = tell(&mut out, options, finding) {
            failed = Some(error);
        }
    };
    let mut progress = |done, of| tracing::info!(done, of, "files looked at");
    let mut check =
        Check { repair: options.repair, data: options.data, finding: &mut finding, progress: &mut progress };
    let checked = check.run(&store)?;
    failed.map_or(Ok(()), Err).context("cannot say what was found")?;
    summarize(&mut out, options, &checked).context("cannot say what was found")?;
    Ok(checked)
}

/// Where the store lies: the options say so, and what it says of itself.
fn store_of(options: &FsckOptions, dir: &Path) -> Result<StoreConfig> {
    let mut config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let metadata = dir.join(METADATA);
    let known = match known_targets(&metadata) {
        Ok(Some(known)) => Some(known),
        // The check finds out what can be done about that.
        Ok(None) | Err(OpenError::Damaged { .. }) if isonomia_store::database_dir(&metadata).is_dir() => None,
        Ok(None) => bail!("{} holds no store that a server used", metadata.display()),
        Err(error) => return Err(error.into()),
    };
    if let Some(path) = &options.cluster {
        let map = usable_cluster_file(path)?;
        let name = match (&options.name, &known) {
            (Some(name), _) => name.clone(),
            (None, Some((server, _))) => {
                let found = map.server(*server);
                found
                    .map(|found| found.name.to_string())
                    .with_context(|| format!("{} knows no server {server}, whose directory that is", path.display()))?
            }
            (None, None) => bail!("the directory does not say which server's it is: --name NAME does"),
        };
        config.join(path, &name)?;
        return Ok(store_config(&config, dir));
    }
    let Some((server, targets)) = known else { return Ok(store_config(&config, dir)) };
    config.server = server;
    // Those of a server of a cluster do not begin at 0.
    let first = targets.iter().map(|target| target.0).min().unwrap_or(0);
    let count = targets.iter().map(|target| usize::from(target.0 - first) + 1).max().unwrap_or(1);
    config.targets.resize(config.targets.len().max(count), TargetConfig::default());
    let mut store = store_config(&config, dir);
    let ids = store.targets.iter_mut().map(|target| &mut target.id);
    let ids = ids.chain(&mut store.direct).chain(&mut store.direct_on_request).chain(&mut store.reads_as_asked);
    ids.for_each(|id| id.0 += first);
    Ok(store)
}

fn tell(out: &mut impl Write, options: &FsckOptions, finding: &Finding) -> std::io::Result<()> {
    let Finding { kind, ino, what, repair } = finding;
    let is_repaired = options.repair && repair.is_some();
    if options.json {
        let ino = ino.map(|ino| ino.0);
        let line = serde_json::json!({
            "finding": kind, "inode": ino, "what": what, "repair": repair, "repaired": is_repaired,
        });
        return writeln!(out, "{line}");
    }
    match repair {
        Some(repair) if options.repair => writeln!(out, "{kind}: {what}; repaired: {repair}"),
        Some(repair) => writeln!(out, "{kind}: {what}; --repair would {repair}"),
        None => writeln!(out, "{kind}: {what}; cannot be repaired"),
    }
}

fn summarize(out: &mut impl Write, options: &FsckOptions, checked: &Checked) -> std::io::Result<()> {
    let Checked { inodes, names, objects, bytes, repairable, left, .. } = *checked;
    if options.json {
        let line = serde_json::json!({
            "inodes": inodes, "names": names, "objects": objects, "bytes": bytes,
            "repairable": repairable, "repaired": if options.repair { repairable } else { 0 }, "left": left,
        });
        return writeln!(out, "{line}");
    }
    let outcome = match (repairable, left) {
        (0, 0) => "nothing is wrong".to_owned(),
        (n, left) if options.repair => format!("{n} repaired, {left} left"),
        (n, left) => format!("{} found, {n} can be repaired", n + left),
    };
    writeln!(out, "{inodes} inodes, {names} names, {objects} objects: {outcome}")
}
