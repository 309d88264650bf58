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
#[derive(Default)]
struct Signals {
    /// The server sleeps until somebody wakes it.
    is_parked: AtomicBool,
    /// No program asks any more.
    is_over: AtomicBool,
    /// The server has failed.
    is_broken: AtomicBool,
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
    let ring = IoUring::new(load.processes.next_power_of_two()).context("no io_uring")?;
    // Never freed: should the ring fail, the kernel may still write to them.
    let slots: &'static [Slot] = Vec::leak((0..load.processes).map(|_| Slot::new()).collect());
    let (each, blocks, signals) = (files.len() / slots.len(), pool.file_bytes / BLOCK, Signals::default());
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
        let thread_of_server = server.thread().clone();
        let program = |(at, slot): (usize, &'static Slot)| {
            let server = thread_of_server.clone();
            scope.spawn(move || {
                let mut random = Pcg32::seed_from_u64(at as u64);
                let mut count = 0_u64;
                while Instant::now() < ends {
                    let (file, block) = (at * each + random.random_range(0..each), random.random_range(0..blocks));
                    ask(slot, file, block * BLOCK, &server, signals)?;
                    count += 1;
                }
                Ok::<u64, anyhow::Error>(count)
            })
        };
        let programs: Vec<_> = slots.iter().enumerate().map(program).collect();
        send.send(programs.iter().map(|one| one.thread().clone()).collect())?;
        let counts: Vec<_> = programs.into_iter().map(|one| one.join().expect("it does not panic")).collect();
        signals.is_over.store(true, Ordering::SeqCst);
        thread_of_server.unpark();
        server.join().expect("it does not panic")?;
        counts.into_iter().sum::<Result<u64>>()
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// A program's read.
fn ask(slot: &Slot, file: usize, offset: u64, server: &Thread, signals: &Signals) -> Result<()> {
    slot.file.store(file, Ordering::Relaxed);
    slot.offset.store(offset, Ordering::Relaxed);
    slot.state.store(ASKED, Ordering::Release);
    // Either this sees that the server sleeps, or the server sees the request.
    fence(Ordering::SeqCst);
    if signals.is_parked.load(Ordering::Relaxed) && signals.is_parked.swap(false, Ordering::Relaxed) {
        server.unpark();
    }
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
    let mut in_service = 0;
    loop {
        for (slot, name) in slots.iter().zip(0..) {
            if slot.state.load(Ordering::Acquire) == ASKED {
                slot.state.store(TAKEN, Ordering::Relaxed);
                let file = types::Fd(files[slot.file.load(Ordering::Relaxed)].as_raw_fd());
                let read = opcode::Read::new(file, slot.bytes.get().cast(), BLOCK as u32)
                    .offset(slot.offset.load(Ordering::Relaxed))
                    .build()
                    .user_data(name);
                // SAFETY: the file is open for longer than this runs; the bytes are never freed, and nobody else's before
                // the read has ended.
                unsafe { ring.submission().push(&read) }?;
                in_service += 1;
            }
        }
        if in_service == 0 {
            signals.is_parked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if signals.is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !slots.iter().any(|slot| slot.state.load(Ordering::Relaxed) == ASKED) {
                thread::park_timeout(LOOK);
            }
            signals.is_parked.store(false, Ordering::Relaxed);
            continue;
        }
        ring.submit_and_wait(1)?;
        for done in ring.completion() {
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
