//! `isonomia fsck`: a stopped server's directory is checked, and repaired if asked for.

use crate::arguments::FsckOptions;
use crate::log;
use anyhow::{Context, Result, bail};
use isonomia_server::{Config, METADATA, TargetConfig, store_config};
use isonomia_store::{Check, Checked, Finding, OpenError, known_targets};
use std::io::Write;
use std::process::ExitCode;

/// Everything that was found was repaired.
const REPAIRED: u8 = 1;
/// Something is left.
const LEFT: u8 = 4;
/// The check could not be done.
const FAILED: u8 = 8;

pub fn fsck(options: &FsckOptions) -> ExitCode {
    match check(options) {
        Ok(Checked { repairable: 0, left: 0, .. }) => ExitCode::SUCCESS,
        Ok(Checked { left: 0, .. }) if options.repair => REPAIRED.into(),
        Ok(_) => LEFT.into(),
        Err(error) => {
            log::say(format_args!("{error:#}"));
            if let Some(OpenError::Recovery { .. } | OpenError::Damaged { .. }) = error.downcast_ref() {
                log::say(format_args!(
                    "what cannot be opened is not repaired: put back a copy of the metadata, then --repair"
                ));
            }
            FAILED.into()
        }
    }
}

fn check(options: &FsckOptions) -> Result<Checked> {
    let mut config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let metadata = options.dir.join(METADATA);
    match known_targets(&metadata) {
        Ok(Some((server, targets))) => {
            config.server = server;
            let count = targets.iter().map(|target| usize::from(target.0) + 1).max().unwrap_or(1);
            config.targets.resize(config.targets.len().max(count), TargetConfig::default());
        }
        // The check finds out what can be done about that.
        Ok(None) | Err(OpenError::Damaged { .. }) if isonomia_store::database_dir(&metadata).is_dir() => {}
        Ok(None) => bail!("{} holds no store that a server used", metadata.display()),
        Err(error) => return Err(error.into()),
    }
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
    let checked = check.run(&store_config(&config, &options.dir))?;
    failed.map_or(Ok(()), Err).context("cannot say what was found")?;
    summarize(&mut out, options, &checked).context("cannot say what was found")?;
    Ok(checked)
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
