//! What a server can have that hands calls over and does nothing else: a yardstick for what goes through us.
//!
//! One thread finds what programs ask for in memory that it shares with them, does it, and wakes who asked, who copies what was read.
//! What waits for the device it has the kernel do meanwhile (`io_uring`); what is written to the page cache it writes itself. Nothing
//! is checked, put into an order, or summed. The programs are threads, between which the kernel changes faster than between processes.

use crate::storage::fio::{Access, Load, Sync as Flush};
use crate::storage::pool::Pool;
use anyhow::{Context, Result, bail};
use io_uring::{IoUring, opcode, types};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg32;
use rustix::event::{EventfdFlags, PollFlags};
use rustix::fs::{Mode, OFlags};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// What `O_DIRECT` asks of buffers.
const ALIGNMENT: usize = 4 << 10;
/// Whoever waits looks again after so long, so that nothing hangs.
const LOOK: Duration = Duration::from_millis(100);

/// In place of a slot's number: the server is woken.
const OF_WAKE: u64 = u64::MAX;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const DONE: u32 = 3;
const FAILED: u32 = 4;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FDATASYNC: u32 = 2;
const FSYNC: u32 = 3;

/// What one program and the server share: where it is `ASKED` or `TAKEN`, the server and the kernel have the bytes, and the
/// program has them otherwise.
struct Slot {
    bytes: NonNull<u8>,
    len: usize,
    state: AtomicU32,
    call: AtomicU32,
    file: AtomicUsize,
    offset: AtomicU64,
}

// SAFETY: the bytes are never freed, and `state` says who may use them; whoever gives them away stores it with `Release`, and the
// other loads it with `Acquire`.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// With `len` bytes.
    fn new(len: usize) -> Result<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGNMENT)?;
        // SAFETY: of a size that is not zero.
        let bytes = unsafe { alloc_zeroed(layout) };
        let Some(bytes) = NonNull::new(bytes) else { handle_alloc_error(layout) };
        Ok(Self {
            bytes,
            len,
            state: AtomicU32::new(IDLE),
            call: AtomicU32::new(READ),
            file: AtomicUsize::new(0),
            offset: AtomicU64::new(0),
        })
    }
}

/// What the server and the programs tell each other besides.
struct Signals {
    /// The server sleeps until a call has ended, or somebody writes to `wake`.
    is_asleep: AtomicBool,
    wake: OwnedFd,
    /// No program asks any more.
    is_over: AtomicBool,
    /// The server has failed.
    is_broken: AtomicBool,
}

impl Signals {
    fn new() -> Result<Self> {
        let no = || AtomicBool::new(false);
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { is_asleep: no(), wake, is_over: no(), is_broken: no() })
    }

    /// To be called after what the server is to see.
    fn wake(&self) {
        // Either this sees that the server sleeps, or the server sees what has changed.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            // It cannot be full: the server empties it whenever it wakes.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// Calls per second that read or write, of the processes of `load`, each on its own part of the plain files of `pool`.
///
/// # Errors
/// There is no io_uring, or the files cannot be read or written so.
pub fn calls_per_s(load: &Load, pool: &Pool) -> Result<f64> {
    let open = |name: &String| {
        let way = if load.access.is_write() { OFlags::RDWR } else { OFlags::RDONLY };
        let past = if load.is_direct { OFlags::DIRECT } else { OFlags::empty() };
        rustix::fs::open(pool.plain().join(name), way | past | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| name.clone())
    };
    let files = pool.names().iter().map(open).collect::<Result<Vec<OwnedFd>>>()?;
    let ring = IoUring::new((load.processes + 1).next_power_of_two()).context("no io_uring")?;
    let len = usize::try_from(load.block_bytes)?;
    // Never freed: should the ring fail, the kernel may still write to them.
    let slots: &'static [Slot] = Vec::leak((0..load.processes).map(|_| Slot::new(len)).collect::<Result<_>>()?);
    let (each, signals) = (files.len() / slots.len(), Signals::new()?);
    let plans: Vec<_> = (0..slots.len()).map(|at| plan(load, pool.file_bytes, at * each..(at + 1) * each)).collect();
    let began = Instant::now();
    let ends = load.runs_for.map(|time| began + Duration::from_nanos(time.0));
    let count = thread::scope(|scope| {
        let (send, receive) = mpsc::channel::<Vec<Thread>>();
        let (files, signals) = (&files, &signals);
        let server = scope.spawn(move || {
            let served = receive.recv().context("nobody asks").and_then(|who| {
                let mut server = Server { ring, slots, who: &who, files, signals, is_direct: load.is_direct };
                server.serve()
            });
            signals.is_broken.store(served.is_err(), Ordering::Release);
            served
        });
        let doing = (load.access.is_write(), load.sync);
        let program = |(slot, plan): (&'static Slot, Vec<(usize, u64)>)| {
            scope.spawn(move || run_program(slot, &plan, doing, ends, signals))
        };
        let programs: Vec<_> = slots.iter().zip(plans).map(program).collect();
        send.send(programs.iter().map(|one| one.thread().clone()).collect())?;
        let counts: Vec<_> = programs.into_iter().map(|one| one.join().expect("it does not panic")).collect();
        signals.is_over.store(true, Ordering::SeqCst);
        signals.wake();
        server.join().expect("it does not panic")?;
        counts.into_iter().sum::<Result<u64>>()
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// The files and offsets that a program goes through: its files one after the other, each block once.
fn plan(load: &Load, file_bytes: u64, files: Range<usize>) -> Vec<(usize, u64)> {
    let mut random = Pcg32::seed_from_u64(files.start as u64);
    let blocks = |file| {
        let mut offsets: Vec<_> = (0..file_bytes / load.block_bytes).map(|at| (file, at * load.block_bytes)).collect();
        if matches!(load.access, Access::RandomRead | Access::RandomWrite) {
            offsets.shuffle(&mut random);
        }
        offsets
    };
    let count_max = load.bytes_max.map_or(usize::MAX, |bytes| (bytes / load.block_bytes) as usize);
    let mut plan: Vec<_> = files.flat_map(blocks).collect();
    plan.truncate(count_max);
    plan
}

/// What a program does: goes through `plan` until it ends or it is time; how many calls that were, without those that sync.
fn run_program(
    slot: &Slot,
    plan: &[(usize, u64)],
    (is_write, sync): (bool, Flush),
    ends: Option<Instant>,
    signals: &Signals,
) -> Result<u64> {
    let mut own = vec![1; slot.len];
    let mut count = 0;
    for (file, offset) in plan {
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            break;
        }
        let call = if is_write { WRITE } else { READ };
        ask(slot, call, (*file, *offset), signals, &mut own)?;
        count += 1;
        if let Flush::Every(writes) = sync
            && count % u64::from(writes) == 0
        {
            ask(slot, FDATASYNC, (*file, 0), signals, &mut own)?;
        }
    }
    if sync == Flush::AtEnd {
        let mut touched: Vec<_> = plan[..count as usize].iter().map(|(file, _)| *file).collect();
        touched.dedup();
        for file in touched {
            ask(slot, FSYNC, (file, 0), signals, &mut own)?;
        }
    }
    Ok(count)
}

/// A program's call; what is read comes to `own`, and what is written is of it.
fn ask(slot: &Slot, call: u32, (file, offset): (usize, u64), signals: &Signals, own: &mut [u8]) -> Result<()> {
    if call == WRITE {
        // SAFETY: it is not asked for, so they are this thread's.
        unsafe { slot.bytes.copy_from_nonoverlapping(NonNull::from_mut(own).cast(), slot.len.min(own.len())) };
    }
    slot.call.store(call, Ordering::Relaxed);
    slot.file.store(file, Ordering::Relaxed);
    slot.offset.store(offset, Ordering::Relaxed);
    slot.state.store(ASKED, Ordering::Release);
    signals.wake();
    loop {
        match slot.state.load(Ordering::Acquire) {
            DONE => break,
            FAILED => bail!("a call failed"),
            _ if signals.is_broken.load(Ordering::Acquire) => bail!("the server failed"),
            _ => thread::park_timeout(LOOK),
        }
    }
    if call == READ {
        // SAFETY: it is `DONE`, so they are this thread's.
        unsafe { slot.bytes.copy_to_nonoverlapping(NonNull::from_mut(own).cast(), slot.len.min(own.len())) };
        std::hint::black_box(own);
    }
    Ok(())
}

struct Server<'a> {
    ring: IoUring,
    slots: &'static [Slot],
    who: &'a [Thread],
    files: &'a [OwnedFd],
    signals: &'a Signals,
    is_direct: bool,
}

impl Server<'_> {
    /// Hands over what is asked for until all is over and answered.
    fn serve(&mut self) -> Result<()> {
        let (slots, signals) = (self.slots, self.signals);
        let (mut in_service, mut is_watching) = (0, false);
        let is_asked = |slot: &Slot| slot.state.load(Ordering::Acquire) == ASKED;
        loop {
            for (at, slot) in slots.iter().enumerate().filter(|(_, slot)| is_asked(slot)) {
                slot.state.store(TAKEN, Ordering::Relaxed);
                if self.begin(at, slot)? {
                    in_service += 1;
                }
            }
            if !is_watching {
                let wake = types::Fd(signals.wake.as_raw_fd());
                let watch = opcode::PollAdd::new(wake, PollFlags::IN.bits().into()).build().user_data(OF_WAKE);
                // SAFETY: the descriptor is open for longer than this runs.
                unsafe { self.ring.submission().push(&watch) }?;
                is_watching = true;
            }
            signals.is_asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let is_over = signals.is_over.load(Ordering::Relaxed);
            if is_over && in_service == 0 {
                return Ok(());
            }
            let is_idle = !is_over && !slots.iter().any(is_asked);
            self.ring.submit_and_wait(is_idle.into())?;
            signals.is_asleep.store(false, Ordering::Relaxed);
            for done in self.ring.completion() {
                if done.user_data() == OF_WAKE {
                    let _ = rustix::io::read(&signals.wake, &mut [0; 8]);
                    is_watching = false;
                    continue;
                }
                let at = done.user_data() as usize;
                let is_sync = slots[at].call.load(Ordering::Relaxed) >= FDATASYNC;
                let expected = if is_sync { 0 } else { slots[at].len as i32 };
                answer(&slots[at], &self.who[at], done.result() == expected);
                in_service -= 1;
            }
        }
    }

    /// Begins with what is asked for in slot number `at`; false if that is done and answered.
    fn begin(&mut self, at: usize, slot: &Slot) -> Result<bool> {
        let (call, file) = (slot.call.load(Ordering::Relaxed), &self.files[slot.file.load(Ordering::Relaxed)]);
        let (descriptor, len) = (types::Fd(file.as_raw_fd()), u32::try_from(slot.len)?);
        let offset = slot.offset.load(Ordering::Relaxed);
        let entry = match call {
            READ => opcode::Read::new(descriptor, slot.bytes.as_ptr(), len).offset(offset).build(),
            WRITE if self.is_direct => opcode::Write::new(descriptor, slot.bytes.as_ptr(), len).offset(offset).build(),
            WRITE => {
                // SAFETY: it is `TAKEN`, so they are the server's.
                let bytes = unsafe { std::slice::from_raw_parts(slot.bytes.as_ptr(), slot.len) };
                let written = rustix::io::pwrite(file.as_fd(), bytes, offset);
                answer(slot, &self.who[at], written == Ok(slot.len));
                return Ok(false);
            }
            FDATASYNC => opcode::Fsync::new(descriptor).flags(types::FsyncFlags::DATASYNC).build(),
            _ => opcode::Fsync::new(descriptor).build(),
        };
        // SAFETY: the file is open for longer than this runs; the bytes are never freed, and nobody else's before the call has ended.
        unsafe { self.ring.submission().push(&entry.user_data(at as u64)) }?;
        Ok(true)
    }
}

/// Tells a program what came of its call.
fn answer(slot: &Slot, who: &Thread, is_done: bool) {
    slot.state.store(if is_done { DONE } else { FAILED }, Ordering::Release);
    who.unpark();
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Nanos;

    const BLOCK: u64 = 4 << 10;

    fn load(access: Access, sync: Flush) -> Load {
        Load {
            access,
            block_bytes: BLOCK,
            processes: 3,
            sync,
            is_direct: !access.is_write(),
            runs_for: Some(Nanos::from_millis(50)),
            is_endless: false,
            bytes_max: None,
        }
    }

    /// What comes of it, or nothing where there is no io_uring, or no reads past the page cache.
    fn measured(load: &Load, pool: &Pool) -> Option<f64> {
        calls_per_s(load, pool).inspect_err(|error| isonomia_testbed::skip(&format!("{error:#}"))).ok()
    }

    #[test]
    fn programs_are_answered_or_told_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::of_plain(dir.path().to_owned(), 4, 1 << 20);
        for name in pool.names() {
            std::fs::write(dir.path().join(name), vec![7; 1 << 20]).unwrap();
        }
        let reading = load(Access::RandomRead, Flush::Never);
        let Some(reads) = measured(&reading, &pool) else { return };
        assert!(reads > 0.0);
        let flushing = load(Access::RandomWrite, Flush::Every(1));
        assert!(measured(&flushing, &pool).is_some_and(|writes| writes > 0.0));
        // All that there is to write, and nothing more: each of three programs writes a half of its file.
        let bulk = Load { runs_for: None, bytes_max: Some(1 << 19), ..load(Access::SequentialWrite, Flush::AtEnd) };
        for name in pool.names() {
            std::fs::write(dir.path().join(name), vec![7; 1 << 20]).unwrap();
        }
        assert!(measured(&bulk, &pool).is_some());
        for (name, half) in pool.names().into_iter().zip([1 << 19, 1 << 19, 1 << 19, 0]) {
            let bytes = std::fs::read(dir.path().join(name)).unwrap();
            assert!(bytes[..half].iter().all(|byte| *byte == 1) && bytes[half..].iter().all(|byte| *byte == 7));
        }
        // Half of each file is missing.
        for name in pool.names() {
            std::fs::write(dir.path().join(name), vec![1; 1 << 19]).unwrap();
        }
        let whole = Load { runs_for: None, ..reading };
        assert!(calls_per_s(&whole, &pool).is_err());
    }

    #[test]
    fn each_block_of_a_file_comes_once_before_the_next_file() {
        let load = Load { bytes_max: Some(24 << 10), ..load(Access::RandomRead, Flush::Never) };
        let mut found = plan(&load, 16 << 10, 2..4);
        assert_eq!(found.len(), 6);
        assert!(found[..4].iter().all(|(file, _)| *file == 2) && found[4..].iter().all(|(file, _)| *file == 3));
        found[..4].sort_unstable();
        assert_eq!(found[..4], [(2, 0), (2, BLOCK), (2, 2 * BLOCK), (2, 3 * BLOCK)]);
    }
}
