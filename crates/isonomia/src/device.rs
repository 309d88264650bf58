//! `isonomia device profile`: what a device can do, measured before it serves anybody. `isonomia device unlimit`: takes limits away that
//! nobody else will.

mod measure;
mod report;

use crate::arguments::{DeviceCommand, DeviceOptions, ProfileOptions, UnlimitOptions};
use anyhow::{Context, Result};
use isonomia_policy::device::profile::{DeviceProfile, PROFILE_NAME};
use measure::Measurement;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn device(options: &DeviceOptions) -> Result<()> {
    match &options.command {
        DeviceCommand::Profile(options) => profile(options),
        DeviceCommand::Unlimit(options) => unlimit(options),
    }
}

fn profile(options: &ProfileOptions) -> Result<()> {
    let measurement = Measurement::new(&options.dir, Duration::from_secs(options.seconds))
        .with_context(|| format!("cannot measure {}", options.dir.display()))?;
    let is_direct = measurement.is_direct();
    let points = measurement.run().with_context(|| format!("cannot measure {}", options.dir.display()))?;
    let dir = std::path::absolute(&options.dir).unwrap_or_else(|_| options.dir.clone());
    let profile = DeviceProfile::new(dir.display().to_string(), is_direct, points);
    let out = options.out.clone().unwrap_or_else(|| options.dir.join(PROFILE_NAME));
    save(&profile, &out).with_context(|| format!("cannot write {}", out.display()))?;
    if let Some(path) = &options.plot {
        report::plot(&profile).save_as(path)?;
    }
    let mut stdout = std::io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut stdout, &profile).map_err(std::io::Error::from)?;
        writeln!(stdout)?;
    } else {
        writeln!(stdout, "{}\n\nSaved in {}", report::text(&profile), out.display())?;
    }
    Ok(())
}

fn unlimit(options: &UnlimitOptions) -> Result<()> {
    let shown = options.records.display();
    let (mut removed, mut let_go, mut failed) = (0, 0, None);
    let records = match std::fs::read_dir(&options.records) {
        Ok(records) => records.collect::<Result<Vec<_>, _>>().with_context(|| format!("cannot read {shown}"))?,
        // No server of this host has ever set any.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let paths = records.iter().map(|record| record.path());
    let mut records: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "limits")).collect();
    records.sort_unstable();
    for record in records {
        // One that cannot be read must not keep the limits of the others.
        match isonomia_cgroup::remove(&record) {
            Ok(outcome) => (removed, let_go) = (removed + outcome.removed, let_go + outcome.let_go),
            Err(error) => _ = failed.get_or_insert(error),
        }
    }
    let mut stdout = std::io::stdout().lock();
    if options.json {
        writeln!(stdout, "{}", serde_json::json!({ "removed": removed, "not_ours": let_go }))?;
    } else {
        writeln!(stdout, "{removed} limits removed; {let_go} of the record were gone, or somebody else's by now")?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Writes the file as a whole or not at all.
fn save(profile: &DeviceProfile, path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    writeln!(
        file,
        "# Written by `isonomia device profile`. Times are in nanoseconds, bandwidths in bytes per second."
    )?;
    file.write_all(toml::to_string(profile)?.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
