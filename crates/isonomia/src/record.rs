//! `isonomia record`: every decision of a running server, or of all servers of a cluster, for a while.

use crate::arguments::RecordOptions;
use crate::control::{self, Control};
use crate::log;
use crate::whole::{self, Meant};
use anyhow::{Context, Result, bail};
use isonomia_units::Nanos;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const SPAN_MAX: Nanos = Nanos::from_secs(3600);
/// A server ends it by itself so long after, if this program does not come to it.
const GRACE: Nanos = Nanos::from_secs(10);

/// A server that writes.
struct Writer {
    control: Control,
    /// In a cluster.
    name: Option<String>,
    path: String,
}

pub fn record(options: &RecordOptions) -> Result<()> {
    let file = std::path::absolute(&options.file)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut writers = writers(options, &file)?;
    if options.span > SPAN_MAX {
        bail!("{} is no time to record for (allowed: up to {SPAN_MAX})", options.span);
    }
    begin(&mut writers, options.span + GRACE)?;
    log::say(format_args!("decisions are being recorded"));
    let until = Instant::now() + Duration::from_nanos(options.span.0);
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
    }
    let mut out = std::io::stdout().lock();
    let mut outcome = Ok(());
    for Writer { control, name, path } in &mut writers {
        let whose = name.as_ref().map_or_else(String::new, |name| format!("{name}:"));
        match control.record(None) {
            // It was started anew meanwhile, or could not write: what is there is not what was asked for.
            Err(error) => outcome = Err(error.context(format!("{whose}{path} is not complete"))),
            Ok(()) => writeln!(out, "{whose}{path}")?,
        }
    }
    outcome
}

/// Who is to write, and where.
fn writers(options: &RecordOptions, file: &Path) -> Result<Vec<Writer>> {
    let text = |path: &Path| path.to_str().map(str::to_owned);
    let path = text(file).with_context(|| format!("the path {} is not UTF-8", file.display()))?;
    match whole::meant(&options.whole)? {
        Meant::One(control, _) => Ok(vec![Writer { control, name: None, path }]),
        Meant::All(mut all) => {
            let mut writers = Vec::new();
            for seen in all.look() {
                let name = seen.member.name;
                match seen.found {
                    Ok((mut control, _)) => {
                        control.answer_within(control::TIMEOUT);
                        let path = text(&named(file, &name)).with_context(|| format!("{path} is no name of a file"))?;
                        writers.push(Writer { control, name: Some(name), path });
                    }
                    Err(reason) => log::say(format_args!("{name} is away, and is not recorded: {reason}")),
                }
            }
            if writers.is_empty() {
                bail!("no server answers");
            }
            Ok(writers)
        }
    }
}

/// The file of one of several servers.
fn named(file: &Path, server: &str) -> std::path::PathBuf {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some(ending) => file.with_extension(format!("{server}.{ending}")),
        None => file.with_extension(server),
    }
}

/// Has all of them begin, or none go on.
fn begin(writers: &mut [Writer], span: Nanos) -> Result<()> {
    for at in 0..writers.len() {
        let Writer { control, name, path } = &mut writers[at];
        if let Err(error) = control.record(Some((path, span))) {
            let name = name.clone();
            // What they have written is no record of all.
            for begun in &mut writers[..at] {
                if let Err(error) = begun.control.record(None) {
                    log::say(format_args!("{}: {error:#}", begun.path));
                }
            }
            return Err(match name {
                Some(name) => error.context(name),
                None => error,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_stands_before_the_ending() {
        for (file, expected) in
            [("/a.b/c.jsonl", "/a.b/c.io1.jsonl"), ("/a/c", "/a/c.io1"), ("/a/c.d.e", "/a/c.d.io1.e")]
        {
            assert_eq!(named(Path::new(file), "io1"), Path::new(expected));
        }
    }
}
