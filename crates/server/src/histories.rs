//! What is remembered of the sizes of applications' phases ([`SizeHistory`]), kept from one process of the server to the next.
//!
//! Each target's is a file in the directory `history` beside the metadata, called as the target, that is replaced as a whole. The settler,
//! which may wait for the storage, writes it when phases have ended since, no oftener than [`WRITE_EVERY`] and [`WRITTEN_PER_S`] say; and
//! a stop does. A kill loses what ended since: some seconds' worth, or about a minute's of a history that is full.
//!
//! It is no part of the store: without it phases are foretold worse for a while, and no file is lost. So nothing about it keeps a server
//! from starting, and a copy of the metadata is without it. A file that cannot be used is put aside under another name, and nobody removes it.
//!
//! Sizes are times of the target's service. Where a device of another speed replaces it, what is foretold is as wrong until phases
//! have ended there.

use crate::clock;
use crate::target::Target;
use isonomia_policy::{BadHistory, HISTORY_BYTES_MAX, HistoryExport, KnownApplication, SizeHistory};
use isonomia_proto::control::{ApplicationList, ApplicationStatus};
use isonomia_store::{OpenError, Store, write_durably};
use isonomia_units::Nanos;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// In the directory of the metadata; the store knows the name.
const DIRECTORY: &str = "history";
/// Between two writings of a target's history at least.
const WRITE_EVERY: Nanos = Nanos::from_secs(5);
/// And as long as its bytes take at this rate, so that long ones do not keep the storage busy.
const WRITTEN_PER_S: u64 = 1 << 20;
/// Files of a target that are put aside.
const ASIDE_MAX: u32 = 9;
/// Applications that operators are told of at most, over all targets: they fit into one answer.
const TOLD_MAX: usize = 4_096;
/// So many are looked at while a target waits.
const PORTION: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct Histories {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    dir: PathBuf,
    /// In the order of the targets; none before they were looked for.
    files: Vec<HistoryFile>,
}

/// The file of one target.
#[derive(Debug)]
struct HistoryFile {
    name: String,
    /// Phases that had been recorded when it was written or read.
    records: u64,
    /// It is not written again before this.
    not_before: Nanos,
    /// It could not be written the last time.
    is_failing: bool,
    /// What lies there cannot be used, nor put aside.
    is_in_the_way: bool,
}

/// Why a file is no history.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it is no file")]
    NoFile,
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Bad(#[from] BadHistory),
}

#[derive(Debug, thiserror::Error)]
enum Unwritten {
    #[error("its directory: {error}")]
    Directory { error: io::Error },
    #[error(transparent)]
    File(#[from] OpenError),
}

impl Histories {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the targets go on with what earlier processes learnt, as it lies in the directory of the metadata.
    pub fn load(&self, metadata: &Path, targets: &[Target]) {
        let dir = metadata.join(DIRECTORY);
        let load = |target: &Target| {
            let name = target.id.map_or_else(|| "metadata".to_owned(), |id| format!("target-{}", id.0));
            let path = dir.join(&name);
            let (mut records, mut is_in_the_way) = (0, false);
            match read(&path) {
                Ok(None) => {}
                Ok(Some(history)) => {
                    records = history.records();
                    target.remember(history);
                }
                Err(error) => is_in_the_way = !put_aside(&path, &error),
            }
            HistoryFile { name, records, not_before: Nanos::ZERO, is_failing: false, is_in_the_way }
        };
        let files = targets.iter().map(load).collect();
        *self.state() = State { dir, files };
    }

    /// Writes what has changed and was not written just now. May wait for the storage.
    pub fn write_due(&self, targets: &[Target], store: &Store) {
        let now = clock::now();
        self.write((targets, store), now, |file| file.not_before <= now);
    }

    /// Writes what has changed. May wait for the storage.
    pub fn write_all(&self, targets: &[Target], store: &Store) {
        self.write((targets, store), clock::now(), |_| true);
    }

    fn write(&self, (targets, store): (&[Target], &Store), now: Nanos, is_due: impl Fn(&HistoryFile) -> bool) {
        let mut state = self.state();
        let State { dir, files } = &mut *state;
        for (file, target) in files.iter_mut().zip(targets) {
            if file.is_in_the_way || !is_due(file) || target.phases_recorded(now) == file.records {
                continue;
            }
            // The directory may be another process's by now. And what room is left is kept for names and sizes.
            if !store.fence().is_valid() || store.is_full() {
                return;
            }
            file.write(dir, target, now);
        }
    }
}

impl HistoryFile {
    fn write(&mut self, dir: &Path, target: &Target, now: Nanos) {
        let mut export = HistoryExport::default();
        while target.export_history(&mut export) {}
        let records = export.records();
        let bytes = export.finish();
        self.not_before = now + WRITE_EVERY + Nanos::from_millis(bytes.len() as u64 * 1_000 / WRITTEN_PER_S);
        let written = create(dir).and_then(|()| Ok(write_durably(dir, &self.name, &bytes)?));
        match written {
            Ok(()) => (self.records, self.is_failing) = (records, false),
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let file = dir.join(&self.name);
                    tracing::warn!(file = %file.display(), %error, "what was learnt of applications' phases cannot be kept");
                }
            }
        }
    }
}

fn create(dir: &Path) -> Result<(), Unwritten> {
    let created = match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        created => created,
    };
    let named = created.and_then(|()| dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all()));
    named.map_err(|error| Unwritten::Directory { error })
}

/// The history in a file; nothing if there is no file.
fn read(path: &Path) -> Result<Option<SizeHistory>, Unusable> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(found) if !found.is_file() => return Err(Unusable::NoFile),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    // One byte more than any has: then it is too long.
    File::open(path)?.take(HISTORY_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(SizeHistory::import(&bytes)?))
}

/// Makes room for a new file, and tells what is wrong with this one; false if there is no room.
fn put_aside(path: &Path, error: &Unusable) -> bool {
    let name = path.file_name().unwrap_or_default().display();
    let mut paths = (1..=ASIDE_MAX).map(|number| path.with_file_name(format!("{name}.unusable-{number}")));
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let put =
        paths.find(is_free).ok_or_else(|| io::Error::other("as many files as there may be are put aside already"));
    match put.and_then(|free| fs::rename(path, &free).map(|()| free)) {
        Ok(free) => {
            tracing::error!(
                file = %path.display(),
                put_aside = %free.display(),
                %error,
                "what was learnt of applications' phases cannot be used and begins anew"
            );
            true
        }
        Err(reason) => {
            tracing::error!(
                file = %path.display(),
                %error,
                %reason,
                "what was learnt of applications' phases cannot be used and begins anew; it is not kept, for the file cannot be put aside"
            );
            false
        }
    }
}

/// What is remembered of applications, for operators: of each target those that ended a phase last.
pub fn known(targets: &[Target]) -> ApplicationList {
    let now = clock::now();
    let most = (TOLD_MAX / targets.len()).max(1);
    let mut list = ApplicationList::default();
    for target in targets {
        // What has just ended as well.
        target.phases_recorded(now);
        let shown = target.name();
        let (mut before, mut told) = (u64::MAX, 0);
        while told < most {
            let some = target.known_before(before, PORTION.min(most - told));
            let Some(last) = some.last() else { break };
            before = last.recorded;
            told += some.len();
            list.applications.extend(some.iter().map(|known| status_of(&shown, known)));
        }
        list.others += target.applications_known().saturating_sub(told) as u64;
    }
    list
}

fn status_of(target: &str, known: &KnownApplication) -> ApplicationStatus {
    // As the arbiters call it.
    let (user, name) = known.application.split_once('\0').unwrap_or(("", &known.application));
    ApplicationStatus {
        target: target.to_owned(),
        user: user.to_owned(),
        application: name.to_owned(),
        phases_total: known.phases,
        expected_ns: known.expected.size,
        sizes: known.expected.sizes as u64,
        expectation_error: known.expected.error,
    }
}
