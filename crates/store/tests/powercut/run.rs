//! One run of a workload on a store: what was done, when in the disk's log, and what the store must hold after it.

use crate::bench::Bench;
use crate::model::{Attributes, Change, History, Names, Step};
use crate::objects::Objects;
use crate::pattern;
use crate::workload::{self, Operation, Present, SpaceOperation};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_proto::space::SpaceChange;
use isonomia_store::{Caller, OpenHow, RenameHow, SetAttr, Store, StoreError, TimeChange, WriteMode, XattrHow};
use isonomia_units::Ino;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const ROOT: Caller<'static> = Caller::ROOT;
/// Between two rounds of the keeper.
const KEEPER_RESTS: Duration = Duration::from_millis(2);
/// Permission bits of new files.
const MODE: u32 = 0o644;

/// An operation with its place in the disk's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Done {
    pub operation: Operation,
    /// Writes and flushes before it began.
    pub begun: usize,
    /// Writes and flushes when it returned.
    pub ended: usize,
}

/// Everything that is known of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub seed: u64,
    pub done: Vec<Done>,
    /// Names and attributes before every operation, and after the last one.
    pub names: Vec<Names>,
    /// The lives of all files by their inodes.
    pub histories: BTreeMap<u64, History>,
    /// Modification times in seconds by their inodes; `None` where the store took the host's after a kill.
    pub times: BTreeMap<u64, Vec<(Step, Option<i64>)>>,
    /// Operations that put all names and attributes on stable storage.
    pub synced: Vec<Step>,
    /// Inode numbers with the operations that were told them.
    pub numbers: Vec<(Step, u64)>,
    pub objects: Objects,
}

/// The time that operation `step` is done at: long before that of the host.
pub fn time_of(step: Step) -> Timestamp {
    Timestamp::new(1_000_000 + step as i64, 0).unwrap()
}

/// How operation `step` writes: half of them past the page cache, as far as they are whole blocks.
pub fn mode_of(step: Step) -> WriteMode {
    if step.is_multiple_of(2) { WriteMode::Direct } else { WriteMode::Usual }
}

impl Run {
    /// Does `steps` operations or a few more from `seed` on a new store; with an even seed the periodic work is done beside
    /// them, as in a server.
    pub fn record(bench: &mut Bench, seed: u64, steps: usize) -> Self {
        bench.mount().unwrap();
        bench.disk.begin();
        let mut worker = Worker {
            run: Self { seed, names: vec![Names::default()], ..Self::default() },
            bench,
            store: None,
            keeper: None,
            held: VecDeque::new(),
            now: Names::default(),
        };
        let mut chance = Pcg64::seed_from_u64(seed);
        worker.perform(Operation::Begin);
        while worker.run.done.len() < steps {
            for operation in workload::next(&worker.present(), &mut chance) {
                worker.perform(operation);
            }
        }
        let run = std::mem::take(&mut worker.run);
        worker.stop_keeper();
        drop(worker);
        bench.unmount();
        bench.disk.keep();
        run
    }

    /// How many operations had returned when the disk was at `position`.
    pub fn done_at(&self, position: usize) -> usize {
        self.done.partition_point(|done| done.ended <= position)
    }

    /// How many operations are in the journal for good when the disk is at `position`.
    pub fn kept_at(&self, position: usize) -> usize {
        let done = self.done_at(position);
        self.synced.iter().rev().find(|step| **step < done).map_or(0, |step| step + 1)
    }

    /// How many operations had begun and may have had an effect when the disk was at `position`.
    pub fn begun_at(&self, position: usize) -> usize {
        self.done.partition_point(|done| done.begun < position).max(self.done_at(position))
    }
}

/// A thread that does what a server's keeper does, again and again.
struct Keeper {
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Keeper {
    fn start(store: Arc<Store>) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stopping = is_stopping.clone();
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                store.flush_dirty().unwrap();
                store.objects().remove_unused().unwrap();
                store.settle().unwrap();
                std::thread::park_timeout(KEEPER_RESTS);
            }
        });
        Self { is_stopping, thread }
    }
}

struct Worker<'b> {
    run: Run,
    bench: &'b mut Bench,
    store: Option<Arc<Store>>,
    keeper: Option<Keeper>,
    held: VecDeque<u64>,
    now: Names,
}

impl Worker<'_> {
    fn perform(&mut self, operation: Operation) {
        let step = self.run.done.len();
        let begun = self.bench.disk.position();
        if let Err(error) = self.carry_out(&operation, step) {
            panic!("seed {}, operation {step}, {operation:?}: {error}", self.run.seed);
        }
        let ended = self.bench.disk.position();
        self.run.done.push(Done { operation, begun, ended });
        self.run.names.push(self.now.clone());
    }

    fn carry_out(&mut self, operation: &Operation, step: Step) -> Result<(), StoreError> {
        let is_restart = matches!(operation, Operation::Restart { .. });
        if is_restart {
            self.stop_keeper();
        }
        if let Some(store) = self.store.take() {
            self.act(&store, operation, step, time_of(step))?;
            if !is_restart {
                self.store = Some(store);
                return Ok(());
            }
        }
        let store = Arc::new(Store::open(&self.bench.config()).unwrap());
        if self.run.seed.is_multiple_of(2) {
            self.keeper = Some(Keeper::start(store.clone()));
        }
        self.store = Some(store);
        Ok(())
    }

    fn stop_keeper(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.is_stopping.store(true, Ordering::Relaxed);
            keeper.thread.thread().unpark();
            keeper.thread.join().unwrap();
        }
    }

    fn act(&mut self, store: &Store, operation: &Operation, step: Step, time: Timestamp) -> Result<(), StoreError> {
        match operation {
            Operation::Begin => {}
            Operation::Open { name, truncate } => self.open(store, name, *truncate, step)?,
            Operation::Write { name, offset, size_bytes } => {
                let bytes = pattern::bytes(self.history(name).file, step as u32, *offset, *size_bytes);
                let written = store.write_as(mode_of(step), self.ino(name), *offset, &bytes, time)?;
                assert_eq!(written as u64, *size_bytes, "a write is whole");
                self.changed(name, step, Change::Write { offset: *offset, size_bytes: *size_bytes });
            }
            Operation::Append { name, size_bytes } => {
                let offset = self.history(name).size_after(step);
                let bytes = pattern::bytes(self.history(name).file, step as u32, offset, *size_bytes);
                assert_eq!(store.append(self.ino(name), &bytes, time)?, (offset, *size_bytes as usize));
                self.changed(name, step, Change::Write { offset, size_bytes: *size_bytes });
            }
            Operation::Resize { name, size_bytes } => {
                store.set_size(self.ino(name), *size_bytes, time)?;
                self.changed(name, step, Change::Resize(*size_bytes));
            }
            Operation::Space { name, offset, size_bytes, what } => {
                let (size, end) = (self.history(name).size_after(step), offset + size_bytes);
                let how = match what {
                    SpaceOperation::Punch => SpaceChange::PunchHole,
                    SpaceOperation::Zero => SpaceChange::ZeroRange { keep_size: true },
                    SpaceOperation::ZeroAndGrow => SpaceChange::ZeroRange { keep_size: false },
                    SpaceOperation::AllocateAndGrow => SpaceChange::Allocate { keep_size: false },
                };
                store.change_space(self.ino(name), *offset, *size_bytes, how, time)?;
                let from = if *what == SpaceOperation::AllocateAndGrow { size.max(*offset) } else { *offset };
                let to = if what.grows() { end } else { end.min(size) };
                match to.checked_sub(from).filter(|len| *len > 0) {
                    Some(size_bytes) => self.changed(name, step, Change::Zeros { offset: from, size_bytes }),
                    None => self.timed(name, step),
                }
            }
            Operation::CreateUnnamed { name, size_bytes } => self.create_unnamed(store, name, *size_bytes, step)?,
            Operation::Symlink { name } if self.now.symlinks.remove(name).is_some() => {
                store.unlink(&ROOT, Ino::ROOT, name.as_bytes(), time)?;
            }
            Operation::Symlink { name } => {
                let text = format!("made by operation {step}");
                let made = store.symlink(&ROOT, text.as_bytes(), Ino::ROOT, name.as_bytes(), time)?;
                self.run.numbers.push((step, made.ino));
                self.now.symlinks.insert(name.clone(), text);
            }
            Operation::Fsync { name, data_only } => {
                let (ino, targets) = (self.ino(name), self.bench.config().targets);
                let sync_bytes = || targets.iter().try_for_each(|target| store.fsync_target(ino, Some(target.id)));
                // As a server does it for a program, of all targets at once or of one after the other, and as the store does it.
                match step % 4 {
                    0 => store.fsync(ino, *data_only)?,
                    1 | 2 if store.fsync_together(ino, *data_only, sync_bytes)? => {}
                    _ => {
                        sync_bytes()?;
                        store.fsync_with_attributes(ino, *data_only, sync_bytes)?;
                    }
                }
                self.run.synced.push(step);
                self.history(name).synced.push(step);
                // Else its times may be older, where all that was written had been synced before.
                if !data_only {
                    self.history(name).fsynced.push(step);
                }
            }
            Operation::FsyncNames => {
                store.fsync(Ino::ROOT, false)?;
                self.run.synced.push(step);
            }
            Operation::Close => {
                if let Some(ino) = self.held.pop_front() {
                    store.release(Ino(ino))?;
                }
            }
            Operation::Rename { from, to } => {
                self.rename(store, from, to, RenameHow::Replace, time)?;
                let moved = self.now.files.remove(from).unwrap();
                // Two names of one file: both stay.
                if self.now.files.get(to) == Some(&moved) {
                    self.now.files.insert(from.clone(), moved);
                }
                self.now.files.insert(to.clone(), moved);
                self.forget_nameless();
            }
            Operation::Exchange { one, other } => {
                self.rename(store, one, other, RenameHow::Exchange, time)?;
                let (first, second) = (self.now.files[one], self.now.files[other]);
                self.now.files.extend([(one.clone(), second), (other.clone(), first)]);
            }
            Operation::Link { from, to } => {
                store.link(&ROOT, Ino::ROOT, from.as_bytes(), false, Ino::ROOT, to.as_bytes(), time)?;
                self.now.files.insert(to.clone(), self.now.files[from]);
            }
            Operation::Unlink { name } => {
                store.unlink(&ROOT, Ino::ROOT, name.as_bytes(), time)?;
                self.now.files.remove(name);
                self.forget_nameless();
            }
            Operation::MakeDir { name } => {
                let made = store.mkdir(&ROOT, Ino::ROOT, name.as_bytes(), 0o755, time)?;
                self.run.numbers.push((step, made.ino));
                self.now.dirs.insert(name.clone(), made.mode);
            }
            Operation::RemoveDir { name } => {
                store.rmdir(&ROOT, Ino::ROOT, name.as_bytes(), time)?;
                self.now.dirs.remove(name);
            }
            Operation::SetMode { name, mode } => {
                let change = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                let attr = store.set_attr(&ROOT, self.ino(name), b"", true, &change, time)?;
                self.attributes(name).mode = attr.mode;
            }
            Operation::SetTime { name } => {
                let change = SetAttr { mtime: Some(TimeChange::Now), ..SetAttr::default() };
                store.set_attr(&ROOT, self.ino(name), b"", true, &change, time)?;
                self.timed(name, step);
            }
            Operation::SetXattr { name, key, value } => {
                let (key_bytes, value_bytes) = (key.as_bytes(), value.as_bytes());
                store.set_xattr(&ROOT, self.ino(name), b"", true, key_bytes, value_bytes, XattrHow::Either, time)?;
                self.attributes(name).xattrs.insert(key.clone(), value.clone());
            }
            Operation::RemoveXattr { name, key } => {
                store.namespace().remove_xattr(&ROOT, self.ino(name), b"", true, key.as_bytes(), time)?;
                self.attributes(name).xattrs.remove(key);
            }
            Operation::Object { slot, what } => {
                let targets = self.bench.config().targets.len();
                if self.run.objects.act(store, targets, *slot, *what, step)? {
                    self.run.synced.push(step);
                }
            }
            Operation::Periodic => {
                store.flush_dirty()?;
                store.objects().remove_unused()?;
            }
            Operation::Settle => store.settle()?,
            Operation::PeriodicSync => {
                store.sync()?;
                self.run.synced.push(step);
            }
            Operation::Writeback { number } => write_back(self.bench.root(), *number),
            Operation::WriteAllBack => {
                rustix::fs::syncfs(open_host(self.bench.root()).unwrap()).unwrap();
                self.all_synced(step);
            }
            Operation::Restart { is_clean } => {
                let held = std::mem::take(&mut self.held);
                if *is_clean {
                    held.into_iter().try_for_each(|ino| store.release(Ino(ino)))?;
                    store.close()?;
                    self.all_synced(step);
                } else {
                    self.run.times.values_mut().for_each(|times| times.push((step, None)));
                }
            }
        }
        Ok(())
    }

    fn create_unnamed(&mut self, store: &Store, name: &str, size_bytes: u64, step: Step) -> Result<(), StoreError> {
        let (dir, _) = name.rsplit_once('/').unwrap_or((".", name));
        let access = access::READ | access::WRITE;
        let how = OpenHow { access, unnamed: true, mode: MODE, ..OpenHow::default() };
        let opened = store.open_file(&ROOT, Ino::ROOT, dir.as_bytes(), &how, time_of(step))?;
        let (ino, file) = (opened.ino, self.run.histories.len() as u32);
        self.held.push_back(ino.0);
        self.run.numbers.push((step, ino.0));
        let bytes = pattern::bytes(file, step as u32, 0, size_bytes);
        assert_eq!(store.write(ino, 0, &bytes, time_of(step))? as u64, size_bytes, "a write is whole");
        store.link(&ROOT, ino, b"", false, Ino::ROOT, name.as_bytes(), time_of(step))?;
        self.run.histories.insert(ino.0, History { file, ..History::default() });
        self.now.files.insert(name.to_owned(), ino.0);
        self.now.attributes.insert(ino.0, Attributes { mode: opened.attr.mode, ..Attributes::default() });
        self.changed(name, step, Change::Write { offset: 0, size_bytes });
        Ok(())
    }

    fn open(&mut self, store: &Store, name: &str, truncate: bool, step: Step) -> Result<(), StoreError> {
        let access = access::READ | access::WRITE;
        let how = OpenHow { access, create: true, truncate, mode: MODE, ..OpenHow::default() };
        let opened = store.open_file(&ROOT, Ino::ROOT, name.as_bytes(), &how, time_of(step))?;
        let ino = opened.ino.0;
        self.held.push_back(ino);
        self.run.numbers.push((step, ino));
        let known = self.now.files.insert(name.to_owned(), ino);
        assert!(known.is_none_or(|known| known == ino) && opened.created == known.is_none(), "{name} is inode {ino}");
        if opened.created {
            let file = self.run.histories.len() as u32;
            let earlier = self.run.histories.insert(ino, History { file, ..History::default() });
            assert!(earlier.is_none(), "inode {ino} exists twice");
            self.now.attributes.insert(ino, Attributes { mode: opened.attr.mode, ..Attributes::default() });
            self.timed(name, step);
        } else if truncate {
            self.changed(name, step, Change::Resize(0));
        }
        Ok(())
    }

    fn rename(&self, store: &Store, from: &str, to: &str, how: RenameHow, time: Timestamp) -> Result<(), StoreError> {
        store.rename(&ROOT, Ino::ROOT, from.as_bytes(), Ino::ROOT, to.as_bytes(), how, time)
    }

    fn ino(&self, name: &str) -> Ino {
        Ino(self.now.files[name])
    }

    fn history(&mut self, name: &str) -> &mut History {
        self.run.histories.get_mut(&self.now.files[name]).unwrap()
    }

    fn attributes(&mut self, name: &str) -> &mut Attributes {
        self.now.attributes.get_mut(&self.now.files[name]).unwrap()
    }

    fn changed(&mut self, name: &str, step: Step, change: Change) {
        self.history(name).changes.push((step, change));
        self.timed(name, step);
    }

    fn timed(&mut self, name: &str, step: Step) {
        self.run.times.entry(self.now.files[name]).or_default().push((step, Some(time_of(step).secs)));
    }

    fn all_synced(&mut self, step: Step) {
        self.run.synced.push(step);
        self.run.objects.all_synced(step);
        for ino in self.now.attributes.keys() {
            self.run.histories.get_mut(ino).unwrap().synced.push(step);
        }
    }

    fn forget_nameless(&mut self) {
        let files = &self.now.files;
        self.now.attributes.retain(|ino, _| files.values().any(|named| named == ino));
    }

    fn present(&mut self) -> Present {
        let last = self.run.done.len();
        let size = |ino: &u64| self.run.histories[ino].size_after(last);
        let xattrs = |(name, ino): (&String, &u64)| -> Vec<(String, String)> {
            self.now.attributes[ino].xattrs.keys().map(|key| (name.clone(), key.clone())).collect()
        };
        Present {
            files: self.now.files.iter().map(|(name, ino)| (name.clone(), size(ino))).collect(),
            dirs: self.now.dirs.keys().cloned().collect(),
            symlinks: self.now.symlinks.keys().cloned().collect(),
            held: self.held.len(),
            xattrs: self.now.files.iter().flat_map(xattrs).collect(),
            objects: self.run.objects.sizes(),
        }
    }
}

fn open_host(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
}

/// What the kernel may do at any time: brings a file of the database, any file, or the bytes of several files to the
/// disk; only the first two with a flush.
fn write_back(root: &Path, number: u32) {
    let mut files = Vec::new();
    host_files(root, &mut files);
    let in_database = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "db");
    let mut chance = Pcg64::seed_from_u64(u64::from(number));
    match chance.random_range(0..4) {
        0 => files.retain(in_database),
        1 => {}
        _ => {
            files.retain(|_| chance.random_bool(0.5));
            return files.iter().for_each(|path| write_out(path));
        }
    }
    // The database may have removed it meanwhile.
    if let Some(Ok(file)) = files.choose(&mut chance).map(|path| open_host(path)) {
        rustix::fs::fdatasync(file).unwrap();
    }
}

/// Brings the bytes of a file to the disk, without a flush and without what the file system knows of the file.
fn write_out(path: &Path) {
    let Ok(file) = open_host(path) else { return };
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers only, and the descriptor is open.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
    assert_eq!(result, 0, "{}: {}", path.display(), std::io::Error::last_os_error());
}

fn host_files(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { host_files(&path, files) } else { files.push(path) }
    }
}
