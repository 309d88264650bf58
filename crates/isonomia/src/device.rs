//! `isonomia device profile`: what a device can do, measured before it serves anybody. `isonomia device unlimit`: takes limits away that
//! nobody else will.

mod measure;
mod report;
mod results;
mod throttle;

use crate::arguments::{DeviceCommand, DeviceOptions, ProfileOptions, UnlimitOptions};
use anyhow::{Context, Result};
use isonomia_policy::device::profile::{DeviceProfile, PROFILE_NAME};
use measure::{Measurement, Way};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use throttle::Throttle;

pub fn device(options: &DeviceOptions) -> Result<()> {
    match &options.command {
        DeviceCommand::Profile(options) => profile(options),
        DeviceCommand::Unlimit(options) => unlimit(options),
    }
}

fn profile(options: &ProfileOptions) -> Result<()> {
    let unmeasured = || format!("cannot measure {}", options.dir.display());
    // That something can be written to the directory itself is seen when it is measured.
    options.out.as_deref().map_or(Ok(()), results::check_replaceable)?;
    options.plot.as_deref().map_or(Ok(()), results::check_writable)?;
    let out = options.out.clone().unwrap_or_else(|| options.dir.join(PROFILE_NAME));
    let measurement = Measurement::new(&options.dir, Duration::from_secs(options.seconds)).with_context(unmeasured)?;
    let way = measurement.way();
    let points = measurement.run().with_context(unmeasured)?;
    let dir = std::path::absolute(&options.dir).unwrap_or_else(|_| options.dir.clone());
    let profile = DeviceProfile::new(dir.display().to_string(), way == Way::Direct, points);
    // What was measured is shown in any case: it took its time.
    let saved = results::save(&profile, &out);
    let drawn = options.plot.as_ref().map_or(Ok(()), |path| results::draw(&report::plot(&profile), path));
    let mut stdout = std::io::stdout().lock();
    let note = Throttle::of(&options.dir).and_then(|throttle| throttle.note(&profile));
    if options.json {
        serde_json::to_writer_pretty(&mut stdout, &profile).map_err(std::io::Error::from)?;
        writeln!(stdout)?;
        // It is for people, and about the host: no part of the profile.
        note.iter().for_each(|note| eprintln!("{note}"));
    } else {
        writeln!(stdout, "{}", report::text(&profile, way))?;
        if let Some(note) = note {
            writeln!(stdout, "\n{note}")?;
        }
        if saved.is_ok() {
            writeln!(stdout, "\nSaved in {}", out.display())?;
        }
    }
    saved.and(drawn)
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
