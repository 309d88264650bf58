//! `isonomia reproduce`: the claims of published papers, computed anew.

use crate::arguments::{Papers, ReproduceOptions};
use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_reproduce::{Context, PAPERS, RULE, tally};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub fn reproduce(options: &ReproduceOptions) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second time it ends the program at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let default = Path::new("out/reproduce");
    let papers: Vec<(_, PathBuf)> = match options.papers {
        Papers::One(paper) => vec![(paper, options.out.clone().unwrap_or_else(|| default.join(paper.name)))],
        Papers::All if options.item.is_some() => {
            bail!("ITEM is for one paper (allowed: {})", PAPERS.map(|paper| paper.name).join(", "))
        }
        Papers::All => {
            let dir = options.out.as_deref().unwrap_or(default);
            PAPERS.into_iter().map(|paper| (paper, dir.join(paper.name))).collect()
        }
    };
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{bar:20} {pos}/{len} {msg} ({elapsed})")?);
    let progress = |what: &str, done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    };
    let context = Context::new(options.quick, &stop, &progress);
    let mut summary = Vec::new();
    for (paper, dir) in papers {
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let begin = Instant::now();
        let done = paper.reproduce(options.item.as_deref(), &dir, &provenance(), &context);
        if done.is_err() {
            bar.finish_and_clear();
        }
        let done = done?;
        bar.suspend(|| done.files.iter().for_each(|file| println!("{}", file.display())));
        let claims = tally(done.claims.iter().map(|(_, claim)| claim));
        summary.push(format!("{}, {:.0} s: {claims}", paper.name, begin.elapsed().as_secs_f64()));
    }
    bar.finish_and_clear();
    eprintln!("{RULE}\n\n{}", summary.join("\n"));
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
