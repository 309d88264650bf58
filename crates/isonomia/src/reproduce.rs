//! `isonomia reproduce`: the claims of published papers, computed anew.

use crate::arguments::ReproduceOptions;
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_reproduce::Context;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn reproduce(options: &ReproduceOptions) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second time it ends the program at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let default = Path::new("out/reproduce").join(options.paper.name);
    let dir = options.out.as_ref().unwrap_or(&default);
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{bar:20} {pos}/{len} {msg} ({elapsed})")?);
    let progress = |what: &str, done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    };
    let context = Context::new(options.quick, &stop, &progress);
    let done = options.paper.reproduce(options.item.as_deref(), dir, &provenance(), &context);
    bar.finish_and_clear();
    let files = done?;
    for file in files {
        println!("{}", file.display());
    }
    Ok(())
}

fn provenance() -> serde_json::Value {
    let system = rustix::system::uname();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": system.nodename().to_string_lossy(),
        "kernel": system.release().to_string_lossy(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
    })
}
