//! Runs that were made: several studies have fluid ones in common, and a study that was broken off goes on from there.

use isonomia_sim::fluid::Outcome;
use isonomia_sim::study::fingerprint;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The directory, in that of a paper's items, of runs of a study that has not been finished.
const UNFINISHED: &str = "unfinished";

/// Runs by all that they depend on.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    known: Mutex<BTreeMap<String, Arc<Outcome>>>,
    /// Where those of the study at work are kept, if they are, and how much processor time was not needed because of that.
    directory: Mutex<(Option<Directory>, f64)>,
}

#[derive(Clone, Debug)]
struct Directory {
    dir: PathBuf,
    program: String,
}

/// A run in a file.
#[derive(Serialize, Deserialize)]
struct Kept<O> {
    program: String,
    key: String,
    processor_s: f64,
    outcome: O,
}

impl Runs {
    /// What `run` gives for `key`, which says all that it depends on; what was run before is not run again.
    pub(crate) fn get<E>(&self, key: String, run: impl FnOnce() -> Result<Outcome, E>) -> Result<Arc<Outcome>, E> {
        if let Some(outcome) = known(&self.known).get(&key) {
            return Ok(outcome.clone());
        }
        let outcome = Arc::new(self.once(&key, run)?);
        known(&self.known).insert(key, outcome.clone());
        Ok(outcome)
    }

    /// The same for what one study alone runs, on one thread, and only once: it is kept until the study is finished, and not in memory.
    pub(crate) fn once<T: Serialize + DeserializeOwned, E>(
        &self,
        key: &str,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let directory = known(&self.directory).0.clone();
        if let Some((outcome, processor_s)) = directory.as_ref().and_then(|directory| directory.read(key)) {
            known(&self.directory).1 += processor_s;
            return Ok(outcome);
        }
        let begin_s = thread_s();
        let outcome = run()?;
        if let Some(directory) = directory {
            directory.write(key, thread_s() - begin_s, &outcome);
        }
        Ok(outcome)
    }

    /// A study begins: what `program`, a fingerprint, runs is kept beside the items in `dir`.
    pub(crate) fn keep(&self, dir: &Path, program: &str) {
        let directory = Directory { dir: dir.join(UNFINISHED), program: program.to_owned() };
        *known(&self.directory) = (Some(directory), 0.0);
    }

    /// The study is finished and its runs need no longer be kept. Gives the processor time of those that had been kept.
    pub(crate) fn finish(&self) -> f64 {
        let (directory, spared_s) = std::mem::take(&mut *known(&self.directory));
        if let Some(directory) = directory {
            // What stays costs space only.
            let _ = std::fs::remove_dir_all(directory.dir);
        }
        spared_s
    }
}

impl Directory {
    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{}.run", fingerprint(&self.program, None, &[(key.to_owned(), String::new())])))
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Option<(T, f64)> {
        // What cannot be read, or is another run's, is run anew.
        let kept: Kept<T> = postcard::from_bytes(&std::fs::read(self.path(key)).ok()?).ok()?;
        (kept.program == self.program && kept.key == key).then_some((kept.outcome, kept.processor_s))
    }

    /// What cannot be written is run anew if the study is broken off.
    fn write<T: Serialize>(&self, key: &str, processor_s: f64, outcome: &T) {
        let kept = Kept { program: self.program.clone(), key: key.to_owned(), processor_s, outcome };
        let (path, part) = (self.path(key), self.path(key).with_extension("part"));
        let Ok(bytes) = postcard::to_stdvec(&kept) else { return };
        let _ = std::fs::create_dir_all(&self.dir);
        if std::fs::write(&part, bytes).is_ok() {
            let _ = std::fs::rename(part, path);
        }
    }
}

/// What is in there is whole: nothing panics between two changes.
fn known<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `runs` had to run `key`.
    fn runs_anew(runs: &Runs, key: &str) -> bool {
        let mut is_run = false;
        let run = || {
            is_run = true;
            Ok::<_, ()>(Outcome { ended_ns: 7, effective_bandwidth: 0.1 + 0.2, ..Outcome::default() })
        };
        let outcome = runs.get(key.to_owned(), run).unwrap();
        assert_eq!((outcome.ended_ns, outcome.effective_bandwidth), (7, 0.1 + 0.2));
        is_run
    }

    #[test]
    fn a_study_that_was_broken_off_goes_on_from_its_last_run() {
        let dir = tempfile::tempdir().unwrap();
        let begun = |program: &str| {
            let runs = Runs::default();
            runs.keep(dir.path(), program);
            runs
        };
        let first = begun("one");
        assert!(runs_anew(&first, "a") && runs_anew(&first, "b"));
        assert!(!runs_anew(&first, "a"), "it is known");
        drop(first);
        let second = begun("one");
        assert!(!runs_anew(&second, "a") && runs_anew(&second, "c"));
        // What is not in common goes the same way.
        let once = |runs: &Runs, value: f64| runs.once("d", || Ok::<_, ()>((value, Some(value)))).unwrap();
        assert_eq!(once(&second, 0.1 + 0.2), (0.1 + 0.2, Some(0.1 + 0.2)));
        assert_eq!(once(&begun("one"), 9.0), (0.1 + 0.2, Some(0.1 + 0.2)), "it is not run again");
        assert_eq!(second.once("e", || Err::<u8, _>("broken off")), Err("broken off"));
        assert_eq!(second.once("e", || Ok::<_, ()>(1)), Ok(1), "what was broken off is not kept");
        assert!(runs_anew(&begun("two"), "a"), "another program");
        // Of a file that was being written when the machine went down nothing is read.
        let half = Directory { dir: dir.path().join(UNFINISHED), program: "one".to_owned() }.path("b");
        std::fs::write(&half, "\u{3}one").unwrap();
        assert!(runs_anew(&begun("one"), "b"));
        assert!(second.finish() >= 0.0);
        assert!(!dir.path().join(UNFINISHED).exists());
        assert!(runs_anew(&begun("one"), "a"), "the study was finished");
        assert!(runs_anew(&Runs::default(), "a"), "nothing is kept unless that is asked for");
    }
}
