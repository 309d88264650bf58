//! Reading the journals of the database, to see where they end and whether that is where they should.
//!
//! fjall appends batches to `<n>.jnl`, the highest `n` being the one in use. When it opens a database it takes the batches
//! up to the first position that makes no sense and cuts off the rest: after a crash that is half a batch, or zeros of the
//! file's first allocation. Where whole batches follow such a position something was overwritten, and cutting would lose
//! them; so this looks first.
//!
//! A batch is a start (1, number of items (4), sequence number (8)), its items (2, kind (1), compression (1), keyspace (8),
//! length of the key (2), of the value (4), of the stored value (4), key, value; or 4, keyspace (8)) and an end (3, XXH3
//! checksum of the items (8), `FJL` 3). Numbers are little-endian. The checksum does not cover the sequence number, which
//! decides what of two values is the newer one; but each batch has a higher one than those before it, so a change that
//! matters shows.

use crate::StoreError;
use crate::checksum::is_zero;
use crate::holes::read_to_last_data;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";
/// Without compression, which is not used.
const PLAIN: u8 = 0;

/// What a look at one journal found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub path: PathBuf,
    /// Bytes of whole batches from the beginning on.
    pub end: u64,
    /// Where the next whole batch begins behind a position where none is.
    pub resumes_at: Option<u64>,
}

/// Where in a journal an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Before the first position that makes no sense.
    Whole,
    /// Behind it.
    Behind,
}

/// All journals in `dir`, in order.
pub(crate) fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(numbered(dir)?.into_iter().map(|(_, path)| path).collect())
}

/// The same, and the number of each; the last one is in use.
pub(crate) fn numbered(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Where the journal of this number is.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.jnl"))
}

/// Looks at all journals in `dir`, in order; calls `each` with the key and the value of every item.
pub(crate) fn look(dir: &Path, mut each: impl FnMut(Part, &[u8], &[u8])) -> Result<Vec<Journal>, StoreError> {
    let mut journals = Vec::new();
    for path in paths(dir).map_err(|source| StoreError::Io { path: dir.to_owned(), source })? {
        let bytes = read_to_last_data(&path).map_err(|e| StoreError::Io { path: path.clone(), source: e })?;
        let (end, resumes_at) = parse(&bytes, &mut each);
        journals.push(Journal { path, end: end as u64, resumes_at: resumes_at.map(|at| at as u64) });
    }
    Ok(journals)
}

impl Journal {
    /// Cuts off what follows the whole batches.
    pub fn cut(&self) -> Result<(), StoreError> {
        let fail = |e: io::Error| StoreError::host(&self.path, Errno::from_io_error(&e).unwrap_or(Errno::IO));
        let file = fs::File::options().write(true).open(&self.path).map_err(fail)?;
        file.set_len(self.end).and_then(|()| file.sync_all()).map_err(fail)
    }
}

/// Goes through the bytes of a journal; calls `each` with the key and the value of every item. Gives where the whole batches
/// end, and where the next one begins behind a position where none is.
pub fn parse(bytes: &[u8], each: &mut impl FnMut(Part, &[u8], &[u8])) -> (usize, Option<usize>) {
    let (end, mut broken) = batches(bytes, 0, |key, value| each(Part::Whole, key, value));
    let mut resumes_at = None;
    // No batch begins among the zeros behind all of them.
    let last = without_zeros(bytes).len();
    while let Some(at) = (broken..last).find(|at| bytes[*at] == START && batch(bytes, *at, |_, _| ()).is_ok()) {
        resumes_at = resumes_at.or(Some(at));
        (_, broken) = batches(bytes, at, |key, value| each(Part::Behind, key, value));
    }
    (end, resumes_at)
}

/// All but the zeros at the end, as far as these are whole pages: most of a young journal is zeros.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some((before, last)) = rest.split_last_chunk::<4096>()
        && is_zero(last)
    {
        rest = before;
    }
    rest
}

/// Goes through whole batches from `at` on: the end of the last one, and where it stops to make sense.
fn batches(bytes: &[u8], at: usize, mut each: impl FnMut(&[u8], &[u8])) -> (usize, usize) {
    let mut end = at;
    let mut last = None;
    loop {
        let mut items = Vec::new();
        match batch(bytes, end, |key, value| items.push((key, value))) {
            Ok((_, number)) if last.is_some_and(|last| number <= last) => return (end, end + 1),
            Ok((next, number)) => (end, last) = (next, Some(number)),
            Err(broken) => return (end, broken),
        }
        items.into_iter().for_each(|(key, value)| each(key, value));
    }
}

/// The end of the batch that begins at `at`, and its sequence number; otherwise where it stops to make sense.
fn batch<'b>(bytes: &'b [u8], at: usize, mut each: impl FnMut(&'b [u8], &'b [u8])) -> Result<(usize, usize), usize> {
    let mut reader = Reader { bytes, at };
    if reader.take(1) != Some(&[START]) {
        return Err(at);
    }
    let count = reader.number(4).ok_or(at)?;
    let number = reader.number(8).ok_or(at)?;
    let first = reader.at;
    for _ in 0..count {
        let here = reader.at;
        item(&mut reader, &mut each).ok_or(here)?;
    }
    let here = reader.at;
    let checksum = twox_hash::XxHash3_64::oneshot(&bytes[first..here]).to_le_bytes();
    let is_whole =
        reader.take(1) == Some(&[END]) && reader.take(8) == Some(&checksum) && reader.take(4) == Some(TRAILER);
    if is_whole { Ok((reader.at, number)) } else { Err(here) }
}

fn item<'b>(reader: &mut Reader<'b>, each: &mut impl FnMut(&'b [u8], &'b [u8])) -> Option<()> {
    match reader.take(1)? {
        [ITEM] => {
            let [kind, compression] = reader.take(2)? else { return None };
            reader.take(8)?;
            let key_len = reader.number(2)?;
            let (value_len, stored_len) = (reader.number(4)?, reader.number(4)?);
            if *kind > 4 || *compression != PLAIN || value_len != stored_len {
                return None;
            }
            each(reader.take(key_len)?, reader.take(stored_len)?);
            Some(())
        }
        [CLEAR] => reader.take(8).map(drop),
        _ => None,
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn number(&mut self, len: usize) -> Option<usize> {
        Some(self.take(len)?.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What fjall wrote: one batch for each number.
    fn journal(batches: u64) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(dir.path()).open().unwrap();
        let table = db.keyspace("numbers", fjall::KeyspaceCreateOptions::default).unwrap();
        for i in 0..batches {
            let mut batch = db.batch();
            batch.insert(&table, "synced", i.to_le_bytes());
            batch.insert(&table, i.to_be_bytes(), vec![7; (i * 37 % 3000) as usize]);
            batch.remove(&table, "absent");
            batch.commit().unwrap();
        }
        db.persist(fjall::PersistMode::SyncAll).unwrap();
        drop((table, db));
        let mut bytes = fs::read(dir.path().join("0.jnl")).or_else(|_| fs::read(dir.path().join("1.jnl"))).unwrap();
        // Of the zeros behind it a few are enough.
        bytes.truncate(bytes.iter().rposition(|b| *b != 0).unwrap() + 5000);
        (dir, bytes)
    }

    fn synced(bytes: &[u8]) -> (Vec<u64>, usize, Option<usize>) {
        let mut seen = Vec::new();
        let (end, resumes_at) = parse(bytes, &mut |part, key, value| {
            if part == Part::Whole && key == b"synced" {
                seen.push(u64::from_le_bytes(value.try_into().unwrap()));
            }
        });
        (seen, end, resumes_at)
    }

    #[test]
    fn reads_what_the_database_writes() {
        let (dir, bytes) = journal(100);
        let (seen, end, resumes_at) = synced(&bytes);
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert!(bytes[end..].iter().all(|b| *b == 0) && resumes_at.is_none());
        let journals = look(dir.path(), |_, _, _| ()).unwrap();
        assert_eq!((journals.len(), journals[0].end), (1, end as u64));
    }

    #[test]
    fn half_a_batch_at_the_end_is_no_damage_and_anything_else_is() {
        let (_dir, bytes) = journal(100);
        let (_, end, _) = synced(&bytes);
        for cut in (1..5000).step_by(113) {
            let (seen, whole, resumes_at) = synced(&bytes[..end - cut]);
            assert!(whole <= end - cut && seen.len() < 100 && resumes_at.is_none());
        }
        for at in (0..end - 8192).step_by(4096) {
            let mut damaged = bytes.clone();
            damaged[at..at + 4096].fill(0);
            let (seen, _, resumes_at) = synced(&damaged);
            assert!(resumes_at.is_some() && seen.len() < 100, "{at}");
        }
    }

    #[test]
    fn a_batch_that_claims_another_position_in_the_order_is_damage() {
        let (_dir, bytes) = journal(10);
        let (_, end, _) = synced(&bytes);
        let starts: Vec<usize> =
            std::iter::successors(Some(0), |at| batch(&bytes, *at, |_, _| ()).ok().map(|(next, _)| next))
                .take_while(|at| *at < end)
                .collect();
        for (index, start) in starts.iter().enumerate().skip(1) {
            for (byte, value) in [(0, 0), (7, 1)] {
                let mut damaged = bytes.clone();
                let position = start + 5 + byte;
                assert_ne!(std::mem::replace(&mut damaged[position], value), value);
                let (seen, found, _) = synced(&damaged);
                // With a higher number the last one is still the last.
                let is_harmless = index + 1 == starts.len() && value > 0;
                assert_eq!((found < end, seen.len() < 10), (!is_harmless, !is_harmless), "{index}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn whatever_a_disk_gives_is_read_to_where_it_makes_sense(
            changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 0..20),
            noise in proptest::collection::vec(any::<u8>(), 0..400),
            cut in any::<u32>(),
        ) {
            static REAL: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| journal(20).1);
            let mut bytes = REAL.clone();
            for (at, value) in changes {
                let at = at as usize % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(cut as usize % (bytes.len() + 1));
            for bytes in [[&bytes[..], &noise].concat(), noise] {
                let (end, resumes_at) = parse(&bytes, &mut |_, _, _| ());
                prop_assert!(end <= bytes.len() && resumes_at.is_none_or(|at| at > end && at < bytes.len()));
                prop_assert_eq!(parse(&bytes[..end], &mut |_, _, _| ()), (end, None));
            }
        }
    }
}
