//! What is read with short reads from a disk.

use crate::running::page_counts::{longest_file, page_counts};
use crate::running::{Running, create, start};
use isonomia_client::{Client, Ino, OpenFile};
use isonomia_server::TargetConfig;
use isonomia_testbed::skip;
use rustix::fs::Advice;
use std::fs::File;

const PAGE: usize = 4096;
const PAGES: usize = 512;

/// How many pages of it are in memory; `None` if the host does not tell.
fn cached(file: &File) -> Option<usize> {
    page_counts(file, PAGES * PAGE).map(|counts| counts.cached)
}

/// A server with a target on a disk, and two jobs, each with a file there, one of which is long.
struct Jobs {
    _running: Running,
    disk: tempfile::TempDir,
    one: (Client, OpenFile),
    other: (Client, OpenFile),
}

impl Jobs {
    fn start(policy: &str) -> Self {
        let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir = disk.path().to_owned();
        let running = start(|config| {
            config.policy = policy.parse().unwrap();
            config.targets = vec![TargetConfig { dir: Some(dir), ..TargetConfig::default() }];
        });
        let [one, other] = ["one", "other"].map(|job| running.client_of_job(job));
        let file = one.open(Ino::ROOT, b"file", &create()).unwrap();
        one.write_at(&file, 0, &vec![1; PAGES * PAGE]).unwrap();
        one.sync(&file, false).unwrap();
        let small = other.open(Ino::ROOT, b"small", &create()).unwrap();
        other.write_at(&small, 0, &[1]).unwrap();
        // Or it would use the target once more, when that is brought to the disk.
        other.sync(&small, false).unwrap();
        Self { _running: running, disk, one: (one, file), other: (other, small) }
    }

    /// Reads half of the pages, those that a generator comes to, no two of which are a stream; gives how many of all are in memory
    /// before and then, if the host tells.
    fn read_half(&self, object: &File, is_alone: bool) -> Option<(usize, usize)> {
        rustix::fs::fadvise(object, 0, None, Advice::DontNeed).unwrap();
        let before = cached(object);
        let (mut page, mut block) = (0, [0; PAGE]);
        for _ in 0..PAGES / 2 {
            page = (page * 5 + 3) % PAGES;
            if !is_alone {
                self.other.0.read_at(&self.other.1, 0, &mut block[..1]).unwrap();
            }
            assert_eq!(self.one.0.read_at(&self.one.1, (page * PAGE) as u64, &mut block[..]).unwrap(), PAGE);
        }
        before.zip(cached(object))
    }
}

#[test]
fn neighbours_are_read_with_short_reads_of_who_is_alone_or_pays_for_them() {
    if rustix::param::page_size() != PAGE {
        return skip("the host has longer pages");
    }
    // By some policies a job pays for the device's time, by others for the bytes that it asks for; and where small requests have a time
    // in which they are to be served, nobody has anything read that he did not ask for.
    for (policy, are_paid, is_class) in
        [("job-fair", true, false), ("fifo", false, false), ("job-fair+latency{p99=5ms,job:other}", false, true)]
    {
        // What the machine does besides may keep the server from it once, but not each time.
        let mut found = (0..3).map(|_| has_blocks_read(policy, are_paid, is_class));
        match found.find(|found| *found != Some(false)) {
            Some(None) => return skip("the host does not tell what it has in memory, or keeps it"),
            found => assert_eq!(found, Some(Some(true)), "{policy}: no block is read"),
        }
    }
}

/// Whether blocks are read where most is in memory, or nothing is to be read; `None` if the host does not tell what it has in memory.
fn has_blocks_read(policy: &str, are_paid: bool, is_class: bool) -> Option<bool> {
    let jobs = Jobs::start(policy);
    let object = File::open(longest_file(jobs.disk.path())).unwrap();
    let (before, shared) = jobs.read_half(&object, false)?;
    if before > 0 {
        return None;
    }
    let is_more = |cached: usize| cached > PAGES / 2 + 10;
    // The host may have dropped some meanwhile, for want of memory.
    assert!(if are_paid { is_more(shared) } else { shared <= PAGES / 2 }, "{policy}: {shared}");
    if is_class {
        return Some(true);
    }
    // The other one is gone a second later.
    crate::running::eventually(
        "neighbours are read",
        || matches!(jobs.read_half(&object, true), Some((0, alone)) if is_more(alone)),
    );
    who_waits_for_nothing_has_nothing_read_with_it(&jobs.one, &object);
    Some(who_finds_most_in_memory_has_blocks_read_too(&jobs.one, &object))
}

/// A read that waits is not begun by trying whether it does: whether a block was read.
fn who_finds_most_in_memory_has_blocks_read_too((one, file): &(Client, OpenFile), object: &File) -> bool {
    const BLOCK: usize = 16;
    rustix::fs::fadvise(object, 0, None, Advice::DontNeed).unwrap();
    rustix::fs::fadvise(object, 0, None, Advice::Random).unwrap();
    // Of every other block all is there, which is four times as much as it takes.
    let mut bytes = [0; BLOCK * PAGE];
    for start in (0..PAGES).step_by(2 * BLOCK) {
        assert_eq!(rustix::io::pread(object, &mut bytes, (start * PAGE) as u64), Ok(bytes.len()));
    }
    assert_eq!(cached(object), Some(PAGES / 2));
    let mut read = |page: usize| {
        assert_eq!(one.read_at(file, (page * PAGE) as u64, &mut bytes[..PAGE]).unwrap(), PAGE);
    };
    // Of seven reads one waits. As a rule nobody expects the first one to, and on a busy machine what it has the host read may be there within the
    // very call that asks for what is in memory; then the next one is not expected either.
    // And after the first four it is a file of which most is read, of which windows are read ahead.
    let (mut before, mut blocks) = (PAGES / 2, 0);
    for start in (0..4).map(|pair| pair * 2 * BLOCK) {
        [11, 3, 7, 14, 5, 9].into_iter().for_each(|page| read(start + page));
        read(start + BLOCK + 8);
        let after = cached(object).unwrap();
        assert!([before + 1, before + BLOCK].contains(&after), "{before} to {after}");
        blocks += usize::from(after == before + BLOCK);
        before = after;
    }
    blocks > 0
}

/// Even if his reads mostly waited before.
fn who_waits_for_nothing_has_nothing_read_with_it((one, file): &(Client, OpenFile), object: &File) {
    let mut block = [0; PAGE];
    for _ in 0..100 {
        rustix::fs::fadvise(object, 0, None, Advice::DontNeed).unwrap();
        assert_eq!(one.read_at(file, ((PAGES - 1) * PAGE) as u64, &mut block[..]).unwrap(), PAGE);
    }
    rustix::fs::fadvise(object, 0, None, Advice::DontNeed).unwrap();
    rustix::fs::fadvise(object, 0, None, Advice::Random).unwrap();
    // Backwards, as that is no stream.
    let places = (PAGES / 2..PAGES).step_by(2).rev().map(|page| (page * PAGE) as u64);
    places.clone().for_each(|at| assert_eq!(rustix::io::pread(object, &mut block, at), Ok(PAGE)));
    assert_eq!(cached(object), Some(PAGES / 4));
    places.for_each(|at| assert_eq!(one.read_at(file, at, &mut block[..]).unwrap(), PAGE));
    assert_eq!(cached(object), Some(PAGES / 4));
}
