//! `isonomia record`: every decision of a running server, for a while.

use crate::arguments::RecordOptions;
use crate::control::Control;
use crate::log;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub fn record(options: &RecordOptions) -> Result<()> {
    let file = std::path::absolute(&options.file)?;
    let path = file.to_str().with_context(|| format!("the path {} is not UTF-8", file.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut control = Control::connect(&options.server)?;
    control.record(Some((path, options.span)))?;
    log::say(format_args!("decisions are being recorded"));
    let until = Instant::now() + Duration::from_nanos(options.span.0);
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
    }
    // The server ends it by itself if this program does not come to it.
    let ended = control.record(None);
    if Instant::now() < until {
        ended?;
    }
    writeln!(std::io::stdout(), "{path}")?;
    Ok(())
}
