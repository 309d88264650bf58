//! What a paper consists of here, and how its items are computed and written.

use crate::chart::Chart;
use crate::claims::{self, Claim};
use crate::data::Data;
use crate::runs::Runs;
use crate::table::Table;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A paper whose claims can be computed anew.
#[derive(Debug)]
pub struct Paper {
    /// Its word on a command line.
    pub name: &'static str,
    /// Title and venue.
    pub title: &'static str,
    /// What is computed, in order.
    pub studies: &'static [Study],
}

/// Items that come out of one computation.
#[derive(Debug)]
pub struct Study {
    /// The word for all of its items.
    pub name: &'static str,
    /// The word for each item, such as `fig10`.
    pub items: &'static [&'static str],
    /// What is computed.
    pub about: &'static str,
    /// Computes the items, in their order.
    pub run: fn(&Context) -> Result<Vec<Finding>, Stopped>,
}

/// What came out for one item.
#[derive(Clone, Debug)]
pub struct Finding {
    /// One of [`Study::items`].
    pub item: &'static str,
    /// What it shows.
    pub title: String,
    /// Everything that was chosen, seeds among it.
    pub configuration: serde_json::Value,
    /// The raw data.
    pub data: Data,
    /// What of it is shown as a table, if anything.
    pub table: Option<Table>,
    /// How its data is drawn.
    pub charts: Vec<Chart>,
    /// What the paper says of it, and what came of that.
    pub claims: Vec<Claim>,
}

/// What was computed of a paper.
#[derive(Clone, Debug)]
pub struct Reproduced {
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Each claim with its item.
    pub claims: Vec<(String, Claim)>,
    /// What each study cost, those that were computed before among them.
    pub costs: Vec<Cost>,
}

/// What a study cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Its name.
    pub study: String,
    /// Seconds of processor time, of all threads.
    pub processor_s: f64,
    /// It was computed before, by the same program.
    #[serde(skip)]
    pub is_kept: bool,
}

/// What is read again of an item that was computed before.
#[derive(Deserialize)]
struct Kept {
    fingerprint: Option<String>,
    quick: bool,
    cost: Cost,
    claims: Vec<Claim>,
}

/// How much to compute, whom to tell, and when to stop.
pub struct Context<'a> {
    /// A first look: fewer points and seeds.
    pub quick: bool,
    /// Runs that were made.
    runs: Runs,
    /// What is being computed.
    part: Mutex<String>,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(&str, usize, usize) + Sync),
}

/// Somebody asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// Why a paper was not computed to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReproduceError {
    /// No item or study of that name.
    #[error("{paper} has no item {item:?} (allowed: {allowed})")]
    UnknownItem {
        /// The paper's word.
        paper: &'static str,
        /// What was asked for.
        item: String,
        /// Every word there is.
        allowed: String,
    },
    /// Somebody asked to stop; what was finished is written.
    #[error("stopped; {} items were finished before", done.len())]
    Stopped {
        /// The finished items.
        done: Vec<&'static str>,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl<'a> Context<'a> {
    /// `progress` hears what is being done, how much of it is done, and of how much.
    pub fn new(quick: bool, stop: &'a AtomicBool, progress: &'a (dyn Fn(&str, usize, usize) + Sync)) -> Self {
        Self { quick, runs: Runs::default(), part: Mutex::default(), stop, progress }
    }

    /// One that computes all, tells nobody, and is never stopped.
    pub fn quiet() -> Context<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Context::new(false, &NEVER, &|_, _, _| ())
    }

    /// Whether to go on; asked every few milliseconds.
    ///
    /// # Errors
    /// Somebody asked to stop.
    pub fn go_on(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// What `run` gives for `key`, which says all that it depends on; what was run before is not run again.
    pub(crate) fn fluid<E>(
        &self,
        key: String,
        run: impl FnOnce() -> Result<isonomia_sim::fluid::Outcome, E>,
    ) -> Result<Arc<isonomia_sim::fluid::Outcome>, E> {
        self.runs.get(key, run)
    }

    /// The same for what one study alone runs, on one thread, and once.
    pub(crate) fn once<T: Serialize + DeserializeOwned, E>(
        &self,
        key: &str,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.runs.once(key, run)
    }

    /// Tells that `done` of `all` steps of `what` are done.
    pub fn tell(&self, what: &str, done: usize, all: usize) {
        let part = self.part.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.progress)(&format!("{part}: {what}"), done, all);
    }

    /// Tells which study comes now.
    fn begin(&self, part: String) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }
}

impl Paper {
    /// Computes `item` (a study, one of its items, or all if `None`) and writes into `dir`, which must be there: for
    /// each item its data as CSV and JSON, as soon as it is finished, its table, if it has one, and the claims of all as
    /// `claims.md`. `provenance` goes into every JSON file. A study of which all items are there with this `fingerprint`,
    /// which tells the program that computed them, is not computed again, nor are long runs of one that was broken off; without one,
    /// everything is.
    ///
    /// # Errors
    /// There is no such item, a file cannot be written, or the context was told to stop.
    pub fn reproduce(
        &self,
        item: Option<&str>,
        dir: &Path,
        provenance: &serde_json::Value,
        fingerprint: Option<&str>,
        context: &Context,
    ) -> Result<Reproduced, ReproduceError> {
        let wanted = self.wanted(item)?;
        let mut costs = Vec::new();
        let mut files = Vec::new();
        let mut done = Vec::new();
        let mut claims: Vec<(String, Claim)> = Vec::new();
        for study in self.studies.iter().filter(|study| study.items.iter().any(|item| wanted.contains(item))) {
            let wanted_here: Vec<_> = study.items.iter().copied().filter(|item| wanted.contains(item)).collect();
            if let Some(kept) = wanted_here.iter().map(|item| kept(dir, item, fingerprint, context.quick)).collect() {
                let kept: Vec<Kept> = kept;
                costs.extend(kept.first().map(|kept| Cost { is_kept: true, ..kept.cost.clone() }));
                for (item, kept) in wanted_here.into_iter().zip(kept) {
                    files.extend(paths(dir, item).into_iter().filter(|path| path.exists()));
                    done.push(item);
                    claims.extend(kept.claims.into_iter().map(|claim| (item.to_owned(), claim)));
                }
                continue;
            }
            context.begin(format!("{} {}", self.name, study.name));
            if let Some(fingerprint) = fingerprint {
                context.runs.keep(dir, fingerprint);
            }
            let begin_s = processor_s();
            let findings = (study.run)(context).map_err(|Stopped| ReproduceError::Stopped { done: done.clone() })?;
            let processor_s = processor_s() - begin_s + context.runs.finish();
            let cost = Cost { study: study.name.to_owned(), processor_s, is_kept: false };
            for finding in findings.into_iter().filter(|finding| wanted.contains(&finding.item)) {
                let more = json!({ "provenance": provenance, "fingerprint": fingerprint, "quick": context.quick, "cost": cost });
                files.extend(self.save(&finding, dir, more)?);
                done.push(finding.item);
                claims.extend(finding.claims.into_iter().map(|claim| (finding.item.to_owned(), claim)));
            }
            costs.push(cost);
            write(&dir.join("claims.md"), &claims::report(self.title, &claims, context.quick))?;
        }
        write(&dir.join("claims.md"), &claims::report(self.title, &claims, context.quick))?;
        files.push(dir.join("claims.md"));
        Ok(Reproduced { files, claims, costs })
    }

    fn wanted(&self, item: Option<&str>) -> Result<Vec<&'static str>, ReproduceError> {
        let words = |study: &'static Study| {
            let items = study.items.iter().copied().filter(|item| *item != study.name);
            std::iter::once(study.name).chain(items)
        };
        let is_wanted = |study: &Study, name: &str| item.is_none_or(|item| item == study.name || item == name);
        let items = self
            .studies
            .iter()
            .flat_map(|study| study.items.iter().copied().filter(move |name| is_wanted(study, name)));
        let wanted: Vec<_> = items.collect();
        if wanted.is_empty() {
            let allowed: Vec<_> = self.studies.iter().flat_map(words).collect();
            let item = item.unwrap_or_default().to_owned();
            return Err(ReproduceError::UnknownItem { paper: self.name, item, allowed: allowed.join(", ") });
        }
        Ok(wanted)
    }

    fn save(&self, finding: &Finding, dir: &Path, more: serde_json::Value) -> Result<Vec<PathBuf>, ReproduceError> {
        let [csv, json, table] = paths(dir, finding.item);
        let mut files = vec![csv.clone(), json.clone()];
        write(&csv, &finding.data.csv())?;
        if let Some(shown) = &finding.table {
            write(&table, &shown.to_string())?;
            files.push(table);
        }
        let mut value = json!({
            "paper": self.name,
            "item": finding.item,
            "title": finding.title,
            "configuration": finding.configuration,
            "claims": finding.claims,
            "rule": claims::RULE,
            "charts": finding.charts,
            "columns": finding.data.columns(),
            "rows": finding.data.rows(),
        });
        if let (Some(value), serde_json::Value::Object(more)) = (value.as_object_mut(), more) {
            value.extend(more);
        }
        // The last of them, because it says that the item is there.
        write(&json, &format!("{value:#}\n"))?;
        Ok(files)
    }
}

/// The files of an item: data, the same with all that was chosen, and its table.
fn paths(dir: &Path, item: &str) -> [PathBuf; 3] {
    [".csv", ".json", ".md"].map(|ending| dir.join(format!("{item}{ending}")))
}

/// An item that the same program has computed before.
fn kept(dir: &Path, item: &str, fingerprint: Option<&str>, quick: bool) -> Option<Kept> {
    let fingerprint = fingerprint?;
    let [_, json, _] = paths(dir, item);
    // What cannot be read, or is of another form, is computed anew.
    let kept: Kept = serde_json::from_str(&std::fs::read_to_string(json).ok()?).ok()?;
    (kept.fingerprint.as_deref() == Some(fingerprint) && kept.quick == quick).then_some(kept)
}

fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn write(path: &Path, text: &str) -> Result<(), ReproduceError> {
    std::fs::write(path, text).map_err(|error| ReproduceError::Write { path: path.to_owned(), error })
}
