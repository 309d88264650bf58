//! `isonomia reproduce`: the claims of published papers, computed anew.

use crate::arguments::{Papers, ReproduceOptions};
use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_reproduce::{Context, Cost, PAPERS, RULE, tally};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use twox_hash::XxHash3_64;

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
    let told = Mutex::new(String::new());
    let progress = |what: &str, done: usize, all: usize| {
        // Where no bar is to be seen, each tenth is told once.
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let tenth = format!("{what}: {} %", 10 * (10 * done / all.max(1)));
        if bar.is_hidden() && *told != tenth {
            eprintln!("{tenth}");
            *told = tenth;
        }
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    };
    let context = Context::new(options.quick, &stop, &progress);
    let fingerprint = fingerprint()?;
    let mut summary = vec!["| paper | claims | processor time |".to_owned(), "|---|---|---|".to_owned()];
    let mut processor_s = 0.0;
    let begin = Instant::now();
    for (paper, dir) in papers {
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let done = paper.reproduce(options.item.as_deref(), &dir, &provenance(), Some(&fingerprint), &context);
        if done.is_err() {
            bar.finish_and_clear();
        }
        let done = done?;
        bar.suspend(|| done.files.iter().for_each(|file| println!("{}", file.display())));
        let claims = tally(done.claims.iter().map(|(_, claim)| claim));
        let cost = |cost: &Cost| {
            let kept = if cost.is_kept { ", computed before" } else { "" };
            format!("{} {:.0} s{kept}", cost.study, cost.processor_s)
        };
        let costs: Vec<String> = done.costs.iter().map(cost).collect();
        let of_paper: f64 = done.costs.iter().map(|cost| cost.processor_s).sum();
        processor_s += of_paper;
        summary.push(format!("| {} | {claims} | {of_paper:.0} s: {} |", paper.name, costs.join(", ")));
    }
    bar.finish_and_clear();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let took = begin.elapsed().as_secs_f64();
    summary.push(format!("\n{processor_s:.0} s of processor time; {took:.0} s now, on {cores} processors."));
    let summary = summary.join("\n");
    if matches!(options.papers, Papers::All) {
        let path = options.out.as_deref().unwrap_or(default).join("summary.md");
        std::fs::write(&path, format!("{summary}\n")).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    eprintln!("{RULE}\n\n{summary}");
    Ok(())
}

/// Tells this program from every other: what it computed before, it would compute again.
fn fingerprint() -> Result<String> {
    let program = std::fs::read("/proc/self/exe").context("cannot read this program")?;
    Ok(format!("{:016x}", XxHash3_64::oneshot(&program)))
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
