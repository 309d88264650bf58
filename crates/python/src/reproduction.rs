//! The claims of published papers, computed anew.

use crate::{json, refuse};
use isonomia_reproduce::{Context, PAPERS, Paper};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often Python is asked whether the user wants to go on.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Every paper: its word, its title, and the words for its items.
#[pyfunction]
pub fn papers() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let items = |paper: &Paper| paper.studies.iter().flat_map(|study| study.items.iter().copied()).collect();
    PAPERS.iter().map(|paper| (paper.name, paper.title, items(paper))).collect()
}

/// Computes an item of a paper, or all, and writes into `out`, which must be there: what was written, as JSON.
/// `provenance` is JSON.
#[pyfunction]
pub fn reproduce(
    py: Python<'_>,
    paper: &str,
    item: Option<&str>,
    out: PathBuf,
    quick: bool,
    provenance: &str,
) -> PyResult<String> {
    let Some(paper) = PAPERS.iter().find(|known| known.name == paper) else {
        let names: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
        return Err(refuse(format!("paper {paper:?} is unknown (allowed: {})", names.join(", "))));
    };
    let provenance: serde_json::Value = serde_json::from_str(provenance).map_err(refuse)?;
    py.detach(|| json(&unless_interrupted(|stop| run(paper, item, &out, quick, &provenance, stop))?))
}

fn run(
    paper: &Paper,
    item: Option<&str>,
    out: &Path,
    quick: bool,
    provenance: &serde_json::Value,
    stop: &AtomicBool,
) -> PyResult<Vec<PathBuf>> {
    let context = Context::new(quick, stop, &|_, _, _| ());
    paper.reproduce(item, out, provenance, None, &context).map(|done| done.files).map_err(refuse)
}

/// What `work` gives. Meanwhile this thread, which may be the one that hears of Ctrl-C, asks for it; then `work` is
/// told to stop, and the interrupt is what comes out.
fn unless_interrupted<T: Send>(work: impl FnOnce(&AtomicBool) -> PyResult<T> + Send) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let stop = &stop;
        let worker = scope.spawn(move || {
            let done = work(stop);
            // The other side waits for nothing else.
            let _ = sender.send(());
            done
        });
        let mut interrupt = None;
        while let Err(RecvTimeoutError::Timeout) = receiver.recv_timeout(SIGNALS_EVERY) {
            interrupt = interrupt.or_else(|| Python::attach(|py| py.check_signals()).err());
            stop.fetch_or(interrupt.is_some(), Ordering::Relaxed);
        }
        let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        interrupt.map_or(done, Err)
    })
}
