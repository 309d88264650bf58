//! `isonomia sim`: a scenario in virtual time, or every point of a sweep.

mod output;
mod trace;

use crate::arguments::SimOptions;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_sim::scenario::{self, Scenarios};
use isonomia_sim::study::{self, Outcome, PointResult, Progress, Slice};
use isonomia_sim::{replay, source};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps of the progress bar for each point.
const STEPS: f64 = 1000.0;

pub fn sim(options: &SimOptions) -> Result<()> {
    if !options.trace.is_empty() {
        return trace::trace(options);
    }
    let Some(path) = &options.scenario else { return replay(options) };
    let text = source::read(path)?;
    let scenarios = scenario::parse(path, &text, options.seed)?;
    let slice = slice(options)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    if let Some(dir) = &options.out {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
    }
    let mut study = Study { options, path, text: &text, scenarios: &scenarios, results: BTreeMap::new() };
    study.run(slice, &stop)?;
    let is_interrupted = stop.load(Ordering::Relaxed);
    study.report()?;
    ensure!(!is_interrupted, "interrupted; what was done is kept");
    Ok(())
}

/// Puts recorded decisions to the same arbiters again; an error if one differs.
fn replay(options: &SimOptions) -> Result<()> {
    let path = options.replay.as_ref().context("neither a scenario nor a record")?;
    let found = replay::replay(path)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &found).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{} calls, {} decisions", found.calls, found.decisions)?;
    }
    match &found.difference {
        None => Ok(()),
        Some(difference) => {
            let (recorded, now) = (&difference.recorded.call, &difference.now.call);
            bail!("{}:{}: recorded was {recorded:?}, now it is {now:?}", path.display(), difference.line)
        }
    }
}

/// The part of the sweep to run: what was asked for, or this task's part of a Slurm array.
fn slice(options: &SimOptions) -> Result<Slice> {
    if let Some(slice) = options.slice {
        return Ok(slice);
    }
    let number = |name: &str| -> Result<Option<usize>> {
        let Ok(text) = std::env::var(name) else { return Ok(None) };
        Ok(Some(text.parse().with_context(|| format!("{name}={text:?} is no number"))?))
    };
    let Some(id) = number("SLURM_ARRAY_TASK_ID")? else { return Ok(Slice::WHOLE) };
    let count = number("SLURM_ARRAY_TASK_COUNT")?.context("SLURM_ARRAY_TASK_COUNT is not set; use --slice I/N")?;
    let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
    match id.checked_sub(first).filter(|index| *index < count) {
        Some(index) => Ok(Slice { index, count }),
        None => bail!("task {id} is not one of {count} from {first} on without gaps; use --slice I/N"),
    }
}

struct Study<'a> {
    options: &'a SimOptions,
    path: &'a Path,
    text: &'a str,
    scenarios: &'a Scenarios,
    results: BTreeMap<usize, PointResult>,
}

impl Study<'_> {
    fn is_sweep(&self) -> bool {
        self.scenarios.points.first().is_some_and(|point| !point.settings.is_empty())
    }

    fn fingerprint(&self, point: usize) -> String {
        study::fingerprint(self.text, self.options.seed, &self.scenarios.points[point].settings)
    }

    /// Runs what is not in the output directory already.
    fn run(&mut self, slice: Slice, stop: &AtomicBool) -> Result<()> {
        if self.is_sweep() {
            self.load_done()?;
        }
        let count = self.scenarios.points.len();
        let wanted = |point: &usize| slice.contains(*point) && !self.results.contains_key(point);
        let numbers: Vec<usize> = (0..count).filter(wanted).collect();
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {eta:>4} left");
            ProgressBar::new((numbers.len() as f64 * STEPS) as u64)
                .with_style(style.unwrap_or(ProgressStyle::default_bar()))
        });
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut failure = None;
        study::run_points(&self.scenarios.points, &numbers, threads, stop, &mut |progress| match progress {
            Progress::Part(done) => {
                if let Some(bar) = &bar {
                    bar.set_position((done * STEPS) as u64);
                }
            }
            Progress::Done(point, outcome) => {
                let kept = match *outcome {
                    // Half a point of a sweep is no point.
                    Ok(outcome) if outcome.is_interrupted() && self.is_sweep() => Ok(()),
                    Ok(outcome) => self.keep(point, outcome),
                    Err(error) => Err(error.into()),
                };
                if let Err(error) = kept {
                    stop.store(true, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        failure.map_or(Ok(()), Err)
    }

    fn keep(&mut self, point: usize, outcome: Outcome) -> Result<()> {
        let settings = self.scenarios.points[point].settings.clone();
        let result = PointResult { point, fingerprint: self.fingerprint(point), settings, outcome };
        if let Some(dir) = self.options.out.as_ref().filter(|_| self.is_sweep()) {
            output::save_atomically(&point_path(dir, result.point), &serde_json::to_vec_pretty(&result)?)?;
        }
        self.results.insert(result.point, result);
        Ok(())
    }

    /// Takes over results of this very sweep that are in the directory: of an interrupted run, or of other tasks.
    fn load_done(&mut self) -> Result<()> {
        let Some(dir) = &self.options.out else { return Ok(()) };
        for point in 0..self.scenarios.points.len() {
            let Ok(bytes) = std::fs::read(point_path(dir, point)) else { continue };
            let found = serde_json::from_slice::<PointResult>(&bytes).ok();
            if let Some(result) = found.filter(|result| result.fingerprint == self.fingerprint(point)) {
                self.results.insert(point, result);
            }
        }
        Ok(())
    }

    /// Prints and saves everything that is there.
    fn report(&mut self) -> Result<()> {
        let mut files = Vec::new();
        if let Some(dir) = &self.options.out {
            if self.is_sweep() {
                // Other tasks may have added points meanwhile: the last one to end writes the whole table.
                self.load_done()?;
                files = output::save_sweep(dir, &self.results)?;
            } else if let Some(result) = self.results.values().next() {
                files = output::save_run(dir, self.path, result)?;
            }
        }
        let mut out = std::io::stdout().lock();
        if self.options.json {
            let whole = if self.is_sweep() {
                serde_json::json!({ "points": self.results.values().collect::<Vec<_>>() })
            } else {
                serde_json::to_value(self.results.values().next().map(|result| &result.outcome))?
            };
            serde_json::to_writer_pretty(&mut out, &whole).map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(out, "{}", output::table(&self.results))?;
        if !files.is_empty() {
            writeln!(out, "\nPlots and data:")?;
        }
        for file in files {
            writeln!(out, "  {}", file.display())?;
        }
        Ok(())
    }
}

fn point_path(dir: &Path, point: usize) -> std::path::PathBuf {
    dir.join(format!("point-{point:05}.json"))
}
