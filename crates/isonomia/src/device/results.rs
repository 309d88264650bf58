//! The files that a profile is written to. That they can be written is seen before anything is measured, which takes its time.

use anyhow::{Context, Result};
use isonomia_plot::Plot;
use isonomia_policy::device::profile::DeviceProfile;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Fails where [`save`] would. What is there stays as it is, and nothing is left behind.
pub fn check_replaceable(path: &Path) -> Result<()> {
    let made = if path.is_dir() { Err(ErrorKind::IsADirectory.into()) } else { tempfile::tempfile_in(parent(path)) };
    made.map(drop).with_context(|| unwritten(path))
}

/// Fails where [`draw`] would, which writes to what is there. That stays as it is, and nothing is left behind.
pub fn check_writable(path: &Path) -> Result<()> {
    let opened = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => tempfile::tempfile_in(parent(path)),
        opened => opened,
    };
    opened.map(drop).with_context(|| unwritten(path))
}

/// Writes the file as a whole or not at all.
pub fn save(profile: &DeviceProfile, path: &Path) -> Result<()> {
    let write = || -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(parent(path))?;
        writeln!(
            file,
            "# Written by `isonomia device profile`. Times are in nanoseconds, bandwidths in bytes per second."
        )?;
        file.write_all(toml::to_string(profile)?.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| unwritten(path))
}

/// Draws the plot.
pub fn draw(plot: &Plot, path: &Path) -> Result<()> {
    plot.save_as(path).with_context(|| unwritten(path))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unwritten(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_policy::Access;
    use isonomia_policy::device::profile::ProfilePoint;
    use isonomia_units::{Bytes, Nanos};

    #[test]
    fn what_can_be_written_is_told_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept.toml");
        std::fs::write(&kept, "kept").unwrap();
        for check in [check_writable, check_replaceable] {
            check(&kept).unwrap();
            check(&dir.path().join("new.toml")).unwrap();
            for path in [dir.path(), &dir.path().join("missing/new.toml"), &kept.join("new.toml")] {
                let error = format!("{:#}", check(path).unwrap_err());
                assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
            }
        }
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
        let names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["kept.toml"]);
    }

    #[test]
    fn a_profile_is_read_as_it_was_written_also_without_a_bandwidth() {
        let points = [Bytes::kib(4), Bytes::mib(1)].map(|bytes| ProfilePoint {
            access: Access::ReadRandom,
            bytes,
            depth: 1,
            requests_per_s: 200.0,
            p50: Nanos::from_millis(5),
            p99: Nanos::from_millis(5),
        });
        let profile = DeviceProfile::new("/d".into(), true, points.to_vec());
        assert_eq!(profile.costs[&Access::ReadRandom].bandwidth, None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profile.toml");
        save(&profile, &path).unwrap();
        assert_eq!(toml::from_str::<DeviceProfile>(&std::fs::read_to_string(&path).unwrap()).unwrap(), profile);
    }
}
