//! `isonomia backup`: a copy of a running server's metadata.

use crate::arguments::BackupOptions;
use crate::control::Control;
use anyhow::{Context, Result};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Between two questions whether it is done.
const ASKED_EVERY: Duration = Duration::from_millis(100);

pub fn backup(options: &BackupOptions) -> Result<()> {
    let dir = std::path::absolute(&options.dir).with_context(|| format!("{}", options.dir.display()))?;
    let dir = dir.to_str().with_context(|| format!("{} is not UTF-8", dir.display()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40;
    let mut control = Control::connect(&options.server)?;
    while !control.backup(dir, id)? {
        std::thread::sleep(ASKED_EVERY);
    }
    writeln!(std::io::stdout(), "{dir}")?;
    Ok(())
}
