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
//! A program that touches its pages all the time may bring back each block, and its neighbours, just as it is dropped.
//! When that was seen, there is a pause before every further block, in which the program's next fault arrives, and waits.
//!
//! Sans I/O. `F` is a fault.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Pages are no smaller.
pub const BLOCK_LEN: u64 = 4_096;
/// A mapping that was given is kept for so long: the program that had to wait has done what it was about to.
pub const GRANTED_MIN: Duration = Duration::from_millis(1);
/// The pause before a block is dropped that came back once, and the longest: it grows each time.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);
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
    /// How often what was reloaded had to be dropped again, and whether there was a pause since the last block.
    rounds: u32,
    has_paused: bool,
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
    /// The server was asked, and its answer was lost: it is given back, in case it was given, before it is asked for again.
    Unsure,
    Granted {
        since: Instant,
    },
    Sweeping,
    Closed,
    Dropping(u64),
}

/// The next step of giving it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Have all pages dropped.
    Sweep,
    /// Have the pages of this block dropped.
    Drop(u64),
    /// Wait so long.
    Pause(Duration),
    /// Give it back.
    Return,
}

impl<F> Default for Lease<F> {
    fn default() -> Self {
        let (loaded, reloaded) = (BTreeSet::new(), BTreeSet::new());
        Self { state: State::Absent, waiting: Vec::new(), loaded, reloaded, rounds: 0, has_paused: false }
    }
}

impl<F> Lease<F> {
    /// A fault for `blocks`: given back if it is to be answered now, else it waits.
    pub fn fault(&mut self, blocks: Blocks, fault: F) -> Option<F> {
        match self.state {
            State::Granted { .. } => {}
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
        self.state = State::Granted { since: now };
        self.take_waiting(|_| true)
    }

    /// The server does not give it. Gives the faults that waited.
    pub fn refused(&mut self) -> Vec<F> {
        self.state = State::Absent;
        self.take_waiting(|_| true)
    }

    /// The server may have given it, or not. Gives the faults that waited. It is to be given back; there are no pages.
    pub fn unsure(&mut self) -> Vec<F> {
        self.state = State::Unsure;
        self.take_waiting(|_| true)
    }

    /// Faults that wait, and of which `is_meant` says so: they wait no more.
    pub fn take_waiting(&mut self, is_meant: impl Fn(&F) -> bool) -> Vec<F> {
        self.waiting.extract_if(.., |(_, fault)| is_meant(fault)).map(|(_, fault)| fault).collect()
    }

    /// Whether it is here, be it on its way back.
    pub fn is_here(&self) -> bool {
        !matches!(self.state, State::Absent | State::Asking { .. } | State::Queued | State::Unsure)
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
            State::Granted { since } => Some(since + GRANTED_MIN),
            _ => None,
        }
    }

    /// What is to be done next to give it back: each time what was to be done before is done. With [`Next::Return`], it
    /// is on its way until [`Self::returned`].
    pub fn next(&mut self) -> Next {
        match self.state {
            State::Unsure => return Next::Return,
            State::Granted { .. } | State::Absent | State::Asking { .. } | State::Queued => {
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
        if self.loaded.is_empty() && !self.reloaded.is_empty() {
            self.loaded.append(&mut self.reloaded);
            self.rounds += 1;
            self.has_paused = false;
        }
        let Some(first) = self.loaded.first().copied() else { return Next::Return };
        if self.rounds > 0 && !self.has_paused {
            self.has_paused = true;
            return Next::Pause(PAUSE_MAX.min(PAUSE_MIN * self.rounds));
        }
        self.has_paused = false;
        self.loaded.remove(&first);
        self.state = State::Dropping(first);
        Next::Drop(first)
    }

    /// It is no longer here.
    pub fn returned(&mut self) {
        self.state = State::Absent;
        self.rounds = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: usize = 6;

    /// A page as the kernel has it. One that is being read is locked, and the dropping of pages waits for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Page {
        Absent,
        Locked,
        Present,
    }

    /// What drops pages, in the kernel: from one page to another.
    #[derive(Debug)]
    struct Walk {
        at: usize,
        end: usize,
    }

    /// A kernel, a program that touches pages, and who gives the lease back.
    struct World {
        lease: Lease<Blocks>,
        pages: [Page; PAGES],
        /// Faults that the mount has not seen yet.
        on_the_way: Vec<Blocks>,
        /// Faults that are being answered.
        answering: Vec<Blocks>,
        walk: Option<Walk>,
        is_returned: bool,
    }

    impl World {
        /// A mount that has the lease, and some pages.
        fn new(pages: [Page; PAGES]) -> Self {
            let mut lease = Lease::default();
            assert_eq!(lease.fault(0..=0, 0..=0), None);
            assert!(lease.ask());
            lease.given(Instant::now());
            Self { lease, pages, on_the_way: vec![], answering: vec![], walk: None, is_returned: false }
        }

        /// The program touches a page. If it is not there, it is read, and up to `ahead` that follow.
        fn touch(&mut self, page: usize, ahead: usize) {
            let absent = self.pages[page..].iter().take(1 + ahead).take_while(|page| **page == Page::Absent).count();
            if absent > 0 {
                self.pages[page..page + absent].fill(Page::Locked);
                self.on_the_way.push(page as u64..=(page + absent - 1) as u64);
            }
        }

        /// The mount sees the first fault that is on the way.
        fn arrive(&mut self) {
            if !self.on_the_way.is_empty() {
                let blocks = self.on_the_way.remove(0);
                self.answering.extend(self.lease.fault(blocks.clone(), blocks));
            }
        }

        /// An answer is there.
        fn answer(&mut self) {
            if let Some(blocks) = self.answering.pop() {
                self.pages[*blocks.start() as usize..=*blocks.end() as usize].fill(Page::Present);
            }
        }

        /// Who gives the lease back takes one step, unless it waits for a page.
        fn step(&mut self) {
            match &mut self.walk {
                Some(walk) if walk.at < walk.end => {
                    if self.pages[walk.at] != Page::Locked {
                        self.pages[walk.at] = Page::Absent;
                        walk.at += 1;
                    }
                    return;
                }
                _ if self.is_returned => return,
                _ => {}
            }
            self.walk = match self.lease.next() {
                Next::Sweep => Some(Walk { at: 0, end: PAGES }),
                Next::Drop(block) => Some(Walk { at: block as usize, end: block as usize + 1 }),
                Next::Pause(_) => {
                    while !self.on_the_way.is_empty() {
                        self.arrive();
                    }
                    None
                }
                Next::Return => {
                    self.is_returned = true;
                    None
                }
            };
        }
    }

    fn page() -> impl Strategy<Value = Page> {
        prop_oneof![Just(Page::Absent), Just(Page::Present)]
    }

    proptest! {
        #[test]
        fn it_goes_without_a_page_and_whatever_the_program_does(
            pages in proptest::array::uniform6(page()),
            steps in proptest::collection::vec((0..8u8, 0..PAGES, 0..3usize), 0..200),
            restless in 0..PAGES,
        ) {
            let mut world = World::new(pages);
            for (kind, page, ahead) in steps {
                match kind {
                    0 | 1 => world.touch(page, ahead),
                    2 | 3 => world.arrive(),
                    4 => world.answer(),
                    _ => world.step(),
                }
            }
            // Everybody goes on, and the program touches one page as soon as it is gone.
            for _ in 0..400 {
                if world.is_returned {
                    break;
                }
                world.touch(restless, 1);
                world.step();
                world.answer();
                world.arrive();
            }
            prop_assert!(world.is_returned, "{:?} {:?}", world.lease, world.walk);
            prop_assert!(world.answering.is_empty());
            prop_assert!(!world.pages.contains(&Page::Present), "{:?}", world.pages);
            // It is asked for again if, and only if, faults wait for it.
            world.lease.returned();
            let waits = !world.lease.is_idle();
            prop_assert_eq!(world.lease.ask(), waits);
        }
    }

    #[test]
    fn one_question_is_asked_at_a_time() {
        let mut lease = Lease::default();
        assert!(!lease.ask() && !lease.ask_again(), "nobody wants it");
        assert_eq!(lease.fault(3..=4, "a"), None);
        assert!(lease.ask() && !lease.ask());
        assert_eq!(lease.fault(5..=5, "b"), None);
        assert!(!lease.ask_again(), "a question is under way");
        assert!(lease.queued(), "what was heard meanwhile was not the answer to it");
        assert!(!lease.queued());
        assert!(lease.ask_again());
        let now = Instant::now();
        assert_eq!(lease.given(now), ["a", "b"]);
        assert_eq!(lease.returnable_at(), Some(now + GRANTED_MIN));
        assert_eq!(lease.fault(9..=9, "c"), Some("c"));
        assert!(!lease.ask_again() && lease.is_here());
    }

    #[test]
    fn who_waits_in_vain_is_let_go() {
        let mut lease = Lease::default();
        assert_eq!((lease.fault(0..=0, 1), lease.fault(0..=0, 2), lease.fault(1..=1, 3)), (None, None, None));
        assert!(lease.ask());
        assert_eq!(lease.take_waiting(|fault| *fault == 2), [2]);
        assert_eq!(lease.refused(), [1, 3]);
        assert!(lease.is_idle() && lease.is_absent() && !lease.ask());
    }

    #[test]
    fn what_may_have_been_given_is_given_back_before_it_is_asked_for_again() {
        let mut lease = Lease::default();
        assert_eq!(lease.fault(0..=0, "a"), None);
        assert!(lease.ask());
        assert_eq!(lease.unsure(), ["a"]);
        assert_eq!(lease.fault(0..=0, "b"), None, "it waits");
        assert!(!lease.ask() && !lease.ask_again() && !lease.is_here() && !lease.is_absent() && !lease.is_idle());
        assert_eq!(lease.next(), Next::Return, "without a page, none is dropped");
        lease.returned();
        assert!(lease.ask());
    }

    #[test]
    fn too_many_pages_behind_a_sweep_are_swept() {
        let mut lease = Lease::default();
        lease.given(Instant::now());
        assert_eq!(lease.next(), Next::Sweep);
        assert_eq!(lease.fault(0..=LOADED_MAX as u64, ()), Some(()));
        assert_eq!(lease.next(), Next::Sweep);
        assert_eq!(lease.fault(7..=7, ()), Some(()));
        assert_eq!(lease.next(), Next::Drop(7));
        assert_eq!(lease.fault(8..=8, ()), None);
        assert_eq!((lease.next(), lease.next()), (Next::Return, Next::Return));
    }
}
