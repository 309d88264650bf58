//! The right to keep a file's pages for writing, as one mount has it: asked for, had, and given back.
//!
//! Who gives it back must first have the kernel drop the file's pages, and that waits for each page which is being read.
//! So a page fault that is kept waiting keeps the dropping waiting, and the other way round. Therefore:
//!
//! 1. While the kernel drops all pages (*sweeping*), faults are answered, and their blocks noted as *loaded*: the pages
//!    may have come behind the sweep.
//! 2. Then faults wait (*closed*), and what was loaded is dropped block by block. A fault for the very block that is
//!    being dropped is answered and noted again, since the dropping may be waiting for it. One for another block waits;
//!    and what it waits for need not be dropped, because there is no such page: the fault is to bring it.
//! 3. Nothing is loaded: the right can go.
//!
//! A program that touches its pages all the time may bring back each block just as it is dropped. Before such blocks are
//! dropped again there is a pause, in which its next fault arrives, and waits.
//!
//! Sans I/O. `F` is a fault.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Pages are no smaller.
pub const BLOCK_LEN: u64 = 4_096;
/// A mapping that was given is kept for so long: the program that had to wait has done what it was about to.
pub const HOLD_MIN: Duration = Duration::from_millis(1);
/// With more blocks than these there is another sweep.
const LOADED_MAX: usize = 1 << 16;

/// Numbers of blocks.
pub type Blocks = RangeInclusive<u64>;

/// See the module.
#[derive(Debug)]
pub struct Lease<F> {
    state: State,
    waiting: Vec<(Blocks, F)>,
    loaded: BTreeSet<u64>,
    /// Loaded while they were dropped.
    reloaded: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// The server is being asked, and perhaps is to be asked once more.
    Asking {
        again: bool,
    },
    /// The server knows that it is wanted.
    Queued,
    Held {
        since: Instant,
    },
    Sweeping,
    Closed,
    Dropping(u64),
}

/// What is to be done next by who gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Have all pages dropped.
    Sweep,
    /// Have the pages of this block dropped.
    Drop(u64),
    /// Wait a moment.
    Pause,
    /// Give it back.
    Return,
}

impl<F> Default for Lease<F> {
    fn default() -> Self {
        let (loaded, reloaded) = (BTreeSet::new(), BTreeSet::new());
        Self { state: State::Absent, waiting: Vec::new(), loaded, reloaded }
    }
}

impl<F> Lease<F> {
    /// A fault for `blocks`: given back if it is to be answered now, else it waits.
    pub fn fault(&mut self, blocks: Blocks, fault: F) -> Option<F> {
        match self.state {
            State::Held { .. } => {}
            State::Sweeping => self.loaded.extend(blocks),
            State::Dropping(block) if blocks.contains(&block) => self.reloaded.extend(blocks),
            _ => {
                self.waiting.push((blocks, fault));
                return None;
            }
        }
        Some(fault)
    }

    /// Whether the server is to be asked for it now, because of faults that wait. One question at a time.
    pub fn ask(&mut self) -> bool {
        let asks = self.state == State::Absent && !self.waiting.is_empty();
        if asks {
            self.state = State::Asking { again: false };
        }
        asks
    }

    /// Whether the server is to be asked now, because it may have given what was asked for before.
    pub fn ask_again(&mut self) -> bool {
        match self.state {
            State::Asking { .. } => {
                self.state = State::Asking { again: true };
                false
            }
            State::Queued => {
                self.state = State::Asking { again: false };
                true
            }
            _ => false,
        }
    }

    /// The server will give it later. Whether it is to be asked once more.
    pub fn queued(&mut self) -> bool {
        let asks = self.state == State::Asking { again: true };
        self.state = if asks { State::Asking { again: false } } else { State::Queued };
        asks
    }

    /// The server has given it. Gives the faults that waited.
    pub fn given(&mut self, now: Instant) -> Vec<F> {
        self.state = State::Held { since: now };
        self.take_waiting(|_| true)
    }

    /// The server does not give it. Gives the faults that waited.
    pub fn refused(&mut self) -> Vec<F> {
        self.state = State::Absent;
        self.take_waiting(|_| true)
    }

    /// Faults that wait, and of which `is_meant` says so: they wait no more.
    pub fn take_waiting(&mut self, is_meant: impl Fn(&F) -> bool) -> Vec<F> {
        self.waiting.extract_if(.., |(_, fault)| is_meant(fault)).map(|(_, fault)| fault).collect()
    }

    /// Whether it is here, be it on its way back.
    pub fn is_here(&self) -> bool {
        !matches!(self.state, State::Absent | State::Asking { .. } | State::Queued)
    }

    /// Whether it is neither here nor asked for.
    pub fn is_absent(&self) -> bool {
        self.state == State::Absent
    }

    /// Whether there is nothing to it.
    pub fn is_idle(&self) -> bool {
        self.state == State::Absent && self.waiting.is_empty()
    }

    /// When it may be given back, if it is here and nobody gives it back yet.
    pub fn returnable_at(&self) -> Option<Instant> {
        match self.state {
            State::Held { since } => Some(since + HOLD_MIN),
            _ => None,
        }
    }

    /// What is to be done next to give it back: each time what was to be done before is done. With [`Next::Return`], it
    /// is on its way until [`Self::returned`].
    pub fn next(&mut self) -> Next {
        match self.state {
            State::Held { .. } | State::Absent | State::Asking { .. } | State::Queued => {
                self.state = State::Sweeping;
                return Next::Sweep;
            }
            State::Sweeping if self.loaded.len() > LOADED_MAX => {
                self.loaded.clear();
                return Next::Sweep;
            }
            State::Sweeping | State::Dropping(_) | State::Closed => self.state = State::Closed,
        }
        for (blocks, _) in &self.waiting {
            for block in blocks.clone() {
                self.loaded.remove(&block);
                self.reloaded.remove(&block);
            }
        }
        if let Some(block) = self.loaded.pop_first() {
            self.state = State::Dropping(block);
            return Next::Drop(block);
        }
        if self.reloaded.is_empty() {
            return Next::Return;
        }
        self.loaded.append(&mut self.reloaded);
        Next::Pause
    }

    /// It is no longer here.
    pub fn returned(&mut self) {
        self.state = State::Absent;
        self.loaded.clear();
        self.reloaded.clear();
    }
}
