//! Whether the files of a database are all there, looked at before the engine may change any of them.
//!
//! fjall (3.1) keeps the list of its tables in the one that it numbers 0, then one directory for each of ours, made in the order of
//! [`Table`] when the store is. `current` in it names its version: the first eight bytes, little-endian, are the number
//! of a file `vN`. A table without `current` it creates anew, empty.

use super::SYNCED;
use crate::engine::{TABLES_COUNT, Table};
use crate::journal::{self, Part};
use crate::owner;
use crate::witness::Witness;
use crate::{OpenError, StoreConfig, StoreError};
use std::path::Path;

/// Refuses a database that was used and lacks something, and takes away what an opening that never ended left of a new one, if
/// `is_new` says that the store never was opened in full. To be called before anything else is done in the store's directory:
/// what is refused can be put back.
pub(crate) fn check(config: &StoreConfig, witness: &Witness, is_new: bool) -> Result<(), OpenError> {
    let dir = owner::database_dir(&config.dir);
    if is_new && witness.number() == 0 {
        return remove_unfinished(&dir);
    }
    check_used(&dir, config, witness)
}

/// The same of a database that was used, in the directory `dir`.
pub(crate) fn check_used(dir: &Path, config: &StoreConfig, witness: &Witness) -> Result<(), OpenError> {
    if !dir.is_dir() {
        return Err(OpenError::damaged(dir, "is missing"));
    }
    check_tables(dir)?;
    check_journals(dir, witness, |source| OpenError::Recovery { dir: config.dir.clone(), source })
}

/// Removes what the first opening of a store left when it was killed or lost power: the engine, which says last that its
/// files are complete, would stumble over them. No sync was ever told, so nobody was promised what is in there.
fn remove_unfinished(dir: &Path) -> Result<(), OpenError> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(OpenError::io(dir, e)),
        _ => Ok(()),
    }
}

/// Refuses tables that the engine would take for ones that it has not made yet, and make anew without a word.
fn check_tables(dir: &Path) -> Result<(), OpenError> {
    let missing = |path: &Path| Err(OpenError::damaged(path, "is missing"));
    let version = dir.join("version");
    if !version.exists() {
        return missing(&version);
    }
    for number in 0..=TABLES_COUNT {
        let table = dir.join("keyspaces").join(number.to_string());
        let current = table.join("current");
        let bytes = match std::fs::read(&current) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return missing(&current),
            Err(e) => return Err(OpenError::io(&current, e)),
        };
        let Some(version) = bytes.first_chunk::<8>() else {
            return Err(OpenError::damaged(&current, "is too short"));
        };
        let version = table.join(format!("v{}", u64::from_le_bytes(*version)));
        if !version.exists() {
            return missing(&version);
        }
    }
    Ok(())
}

/// Refuses journals that make no sense somewhere before the last sync. Behind it that is what a power cut may leave.
fn check_journals(dir: &Path, witness: &Witness, fail: impl Fn(StoreError) -> OpenError) -> Result<(), OpenError> {
    let (mut is_synced_behind, mut highest) = (false, None);
    let journals = journal::look(dir, |part, key, value| {
        if key != SYNCED.as_bytes() {
            return;
        }
        match part {
            // What a user wrote could look like one there.
            Part::Behind => {
                is_synced_behind |= witness.unsealed(value).is_some_and(|number| number <= witness.number());
            }
            Part::Whole => highest = highest.max(value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))),
        }
    });
    let journals = journals.map_err(&fail)?;
    if journals.is_empty() {
        return Err(OpenError::damaged(dir, "has no journal"));
    }
    let last = journals.len() - 1;
    for (index, journal) in journals.iter().enumerate() {
        let Some(at) = journal.resumes_at else { continue };
        let what = format!("makes no sense from byte {} to byte {at}", journal.end);
        // One that is not the last was synced before the next was begun.
        if is_synced_behind || index < last {
            return Err(OpenError::damaged(&journal.path, what));
        }
        tracing::error!(journal = %journal.path.display(), "{what}, after the last sync: changes behind that are lost");
    }
    // Journals go in the order in which they were begun: where there is a sync, there is every later one, or else it is lost. If there
    // is none, the last one may have gone to a table with its journal.
    let known = highest.or_else(|| (!has_tables(dir, Table::Numbers)).then_some(0));
    if let Some(number) = known.filter(|number| *number < witness.number()) {
        return Err(OpenError::damaged(dir, super::lacks_syncs(number, witness)));
    }
    // The database would take some kinds of half a batch for damage.
    journals[last].cut().map_err(fail)
}

/// Whether anything of a table of ours ever was written to a file of its own.
fn has_tables(dir: &Path, table: Table) -> bool {
    let tables = dir.join("keyspaces").join((table as usize + 1).to_string()).join("tables");
    // Where that cannot be told it may be.
    std::fs::read_dir(tables).map_or(true, |mut entries| entries.next().is_some())
}
