//! What a server can have that hands reads over and does nothing else: a yardstick for what goes through us.
//!
//! One thread finds what programs ask for in memory that it shares with them, has the kernel read it past the page cache
//! (`io_uring`), and wakes who asked, who copies it. Nothing is checked, put into an order, or summed. The programs are threads,
//! between which the kernel changes faster than between processes.

use crate::storage::fio::Load;
use crate::storage::pool::Pool;
use anyhow::{Context, Result, bail};
use io_uring::{IoUring, opcode, types};
use isonomia_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use rustix::event::{EventfdFlags, PollFlags};
use rustix::fs::{Mode, OFlags};
use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Bytes of a read.
const BLOCK: u64 = 4 << 10;
/// Whoever waits looks again after so long, so that nothing hangs.
const LOOK: Duration = Duration::from_millis(100);

/// In place of a slot's number: the server is woken.
const OF_WAKE: u64 = u64::MAX;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const DONE: u32 = 3;
const FAILED: u32 = 4;

/// What one program and the server share: where it is `ASKED` or `TAKEN`, the server and the kernel have the bytes, and the
/// program has them otherwise.
#[repr(C, align(4096))]
struct Slot {
    bytes: UnsafeCell<[u8; BLOCK as usize]>,
    state: AtomicU32,
    file: AtomicUsize,
    offset: AtomicU64,
}

// SAFETY: `state` says who may use the bytes; whoever gives them away stores it with `Release`, and the other loads it with `Acquire`.
unsafe impl Sync for Slot {}

impl Slot {
    fn new() -> Self {
        Self {
            bytes: UnsafeCell::new([0; BLOCK as usize]),
            state: AtomicU32::new(IDLE),
            file: AtomicUsize::new(0),
            offset: AtomicU64::new(0),
        }
    }
}

/// What the server and the programs tell each other besides.
struct Signals {
    /// The server sleeps until a read has ended, or somebody writes to `wake`.
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

/// Random reads per second by the processes of `load`, each from its own part of the plain files of `pool`, for so long.
///
/// # Errors
/// There is no io_uring, or nothing can be read past the page cache.
pub fn reads_per_s(load: &Load, pool: &Pool, time: Nanos) -> Result<f64> {
    let open = |name: &String| {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        rustix::fs::open(pool.plain().join(name), flags, Mode::empty()).with_context(|| name.clone())
    };
    let files = pool.names().iter().map(open).collect::<Result<Vec<OwnedFd>>>()?;
    let ring = IoUring::new((load.processes + 1).next_power_of_two()).context("no io_uring")?;
    // Never freed: should the ring fail, the kernel may still write to them.
    let slots: &'static [Slot] = Vec::leak((0..load.processes).map(|_| Slot::new()).collect());
    let (each, blocks, signals) = (files.len() / slots.len(), pool.file_bytes / BLOCK, Signals::new()?);
    let began = Instant::now();
    let ends = began + Duration::from_nanos(time.0);
    let count = thread::scope(|scope| {
        let (send, receive) = mpsc::channel::<Vec<Thread>>();
        let (files, signals) = (&files, &signals);
        let server = scope.spawn(move || {
            let served = receive.recv().context("nobody asks").and_then(|who| serve(ring, slots, &who, files, signals));
            signals.is_broken.store(served.is_err(), Ordering::Release);
            served
        });
        let program = |(at, slot): (usize, &'static Slot)| {
            scope.spawn(move || {
                let mut random = Pcg32::seed_from_u64(at as u64);
                let mut count = 0_u64;
                while Instant::now() < ends {
                    let (file, block) = (at * each + random.random_range(0..each), random.random_range(0..blocks));
                    ask(slot, file, block * BLOCK, signals)?;
                    count += 1;
                }
                Ok::<u64, anyhow::Error>(count)
            })
        };
        let programs: Vec<_> = slots.iter().enumerate().map(program).collect();
        send.send(programs.iter().map(|one| one.thread().clone()).collect())?;
        let counts: Vec<_> = programs.into_iter().map(|one| one.join().expect("it does not panic")).collect();
        signals.is_over.store(true, Ordering::SeqCst);
        signals.wake();
        server.join().expect("it does not panic")?;
        counts.into_iter().sum::<Result<u64>>()
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// A program's read.
fn ask(slot: &Slot, file: usize, offset: u64, signals: &Signals) -> Result<()> {
    slot.file.store(file, Ordering::Relaxed);
    slot.offset.store(offset, Ordering::Relaxed);
    slot.state.store(ASKED, Ordering::Release);
    signals.wake();
    loop {
        match slot.state.load(Ordering::Acquire) {
            DONE => break,
            FAILED => bail!("a read failed"),
            _ if signals.is_broken.load(Ordering::Acquire) => bail!("the server failed"),
            _ => thread::park_timeout(LOOK),
        }
    }
    let mut own = [0; BLOCK as usize];
    // SAFETY: it is `DONE`, so they are this thread's.
    own.copy_from_slice(unsafe { &*slot.bytes.get() });
    std::hint::black_box(&own);
    Ok(())
}

/// Hands over what is asked for until all is over and answered.
fn serve(mut ring: IoUring, slots: &[Slot], who: &[Thread], files: &[OwnedFd], signals: &Signals) -> Result<()> {
    let (mut in_service, mut is_watching) = (0, false);
    let is_asked = |slot: &Slot| slot.state.load(Ordering::Acquire) == ASKED;
    loop {
        for (slot, name) in slots.iter().zip(0..).filter(|(slot, _)| is_asked(slot)) {
            slot.state.store(TAKEN, Ordering::Relaxed);
            let file = types::Fd(files[slot.file.load(Ordering::Relaxed)].as_raw_fd());
            let read = opcode::Read::new(file, slot.bytes.get().cast(), BLOCK as u32)
                .offset(slot.offset.load(Ordering::Relaxed))
                .build()
                .user_data(name);
            // SAFETY: the file is open for longer than this runs; the bytes are never freed, and nobody else's before the
            // read has ended.
            unsafe { ring.submission().push(&read) }?;
            in_service += 1;
        }
        if !is_watching {
            let wake = types::Fd(signals.wake.as_raw_fd());
            let watch = opcode::PollAdd::new(wake, PollFlags::IN.bits().into()).build().user_data(OF_WAKE);
            // SAFETY: the descriptor is open for longer than this runs.
            unsafe { ring.submission().push(&watch) }?;
            is_watching = true;
        }
        signals.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_over = signals.is_over.load(Ordering::Relaxed);
        if is_over && in_service == 0 {
            return Ok(());
        }
        let is_idle = !is_over && !slots.iter().any(is_asked);
        ring.submit_and_wait(is_idle.into())?;
        signals.is_asleep.store(false, Ordering::Relaxed);
        for done in ring.completion() {
            if done.user_data() == OF_WAKE {
                let _ = rustix::io::read(&signals.wake, &mut [0; 8]);
                is_watching = false;
                continue;
            }
            let at = done.user_data() as usize;
            let state = if done.result() == BLOCK as i32 { DONE } else { FAILED };
            slots[at].state.store(state, Ordering::Release);
            who[at].unpark();
            in_service -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::fio::{Access, Sync};

    #[test]
    fn programs_are_answered_or_told_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::of_plain(dir.path().to_owned(), 4, 1 << 20);
        for name in pool.names() {
            std::fs::write(dir.path().join(name), vec![1; 1 << 20]).unwrap();
        }
        let load = Load {
            access: Access::RandomRead,
            block_bytes: BLOCK,
            processes: 3,
            sync: Sync::Never,
            is_direct: true,
            runs_for: None,
            is_endless: true,
            bytes_max: None,
        };
        let millis = Nanos::from_millis(50);
        match reads_per_s(&load, &pool, millis) {
            Ok(reads) => assert!(reads > 0.0),
            // No io_uring here, or no reads past the page cache.
            Err(error) => isonomia_testbed::skip(&format!("{error:#}")),
        }
        // Half of each file is missing.
        for name in pool.names() {
            std::fs::write(dir.path().join(name), vec![1; 1 << 19]).unwrap();
        }
        assert!(reads_per_s(&load, &pool, millis).is_err());
    }
}
