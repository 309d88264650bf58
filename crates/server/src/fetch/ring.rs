//! The kernel's word on when pages have come to memory: an io_uring of one thread.
//!
//! The kernel is asked to read them. What it reads goes [nowhere](NOWHERE): whoever hears that they have come takes them from the
//! host's memory by a read of his own, under the locks and with the checksums of any other read. So no memory that
//! belongs to a request, a client, or a connection is ever the kernel's to write to, whoever ends before the kernel is done.

use io_uring::{IoUring, opcode, types};
use isonomia_policy::device::read_ahead::short::BLOCK_BYTES;
use isonomia_store::{HostPages, PAGES_LEN_MAX};
use isonomia_units::Nanos;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What has to be in memory for the host to have a page there, however large the page is.
const PAGE_BYTES_MIN: u64 = 4096;
/// `IORING_ENTER_GETEVENTS`: run what the kernel has left to this thread.
const GET_EVENTS: u32 = 1;
/// Instead of a name, in epoll: of the ring …
const OF_RING: u64 = 0;
/// … and of the events of all threads.
const OF_ALL: u64 = 1;

/// Bytes that are asked for at once at most: those of a read, or of the block that it is in.
const ASKED_BYTES_MAX: u64 = if BLOCK_BYTES > PAGES_LEN_MAX { BLOCK_BYTES } else { PAGES_LEN_MAX };

/// Where the kernel puts what it reads: memory that is always there, and that nobody looks at.
struct Nowhere(UnsafeCell<[u8; ASKED_BYTES_MAX as usize]>);

// SAFETY: nothing in this process ever reads or writes it.
unsafe impl Sync for Nowhere {}

static NOWHERE: Nowhere = Nowhere(UnsafeCell::new([0; ASKED_BYTES_MAX as usize]));

/// See the module.
pub struct Ring {
    ring: IoUring,
    /// Files of what was asked for and the kernel has not taken yet, in order. It keeps them open itself from then on.
    untaken: VecDeque<Arc<OwnedFd>>,
    /// The ring, and what all threads wait for.
    events: OwnedFd,
}

impl Ring {
    /// Of this thread, for `entries` at once; `all` is the epoll instance that all threads wait at. Fails where the kernel has
    /// none, has an older one than this needs (5.19), or does not give it to this process.
    pub fn new(entries: u32, all: &OwnedFd) -> io::Result<Self> {
        // Nobody is interrupted for what has come: this thread looks often enough.
        let ring = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries)?;
        // Where a file system does not do it asynchronously, the kernel has threads of its own wait: as many as requests.
        let _ = ring.submitter().register_iowq_max_workers(&mut [entries, 0]);
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        // SAFETY: it is open as long as `ring`.
        let own = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        epoll::add(&events, own, epoll::EventData::new_u64(OF_RING), flags)?;
        epoll::add(&events, all, epoll::EventData::new_u64(OF_ALL), flags)?;
        Ok(Self { ring, untaken: VecDeque::new(), events })
    }

    /// Asks for pages under a name; false if there are too many already.
    pub fn ask(&mut self, name: u64, pages: HostPages) -> bool {
        // Of one page one byte is enough: less to copy.
        let is_one = pages.offset % PAGE_BYTES_MIN + pages.len <= PAGE_BYTES_MIN;
        let len = if is_one { 1 } else { pages.len.min(ASKED_BYTES_MAX) as u32 };
        let file = types::Fd(pages.file.as_raw_fd());
        let entry = opcode::Read::new(file, NOWHERE.0.get().cast(), len).offset(pages.offset).build().user_data(name);
        // SAFETY: the descriptor is open until the kernel has taken the entry, because `untaken` has it; the memory is that of a
        // static, as long as the longest read, and nobody else uses it.
        let is_pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        if is_pushed {
            self.untaken.push_back(pages.file);
        }
        is_pushed
    }

    /// Has the kernel take what was asked for.
    pub fn submit(&mut self) -> io::Result<()> {
        let taken = self.ring.submit()?;
        self.untaken.drain(..taken.min(self.untaken.len()));
        Ok(())
    }

    /// Whether the kernel has not taken all that was asked for.
    pub fn has_untaken(&self) -> bool {
        !self.untaken.is_empty()
    }

    /// Calls `each` with the names of those pages that have come, or that the kernel cannot read: the read that follows finds that out.
    pub fn take(&mut self, mut each: impl FnMut(u64)) {
        if self.ring.submission().taskrun() {
            // SAFETY: it submits nothing, and has no argument.
            let _ = unsafe { self.ring.submitter().enter::<()>(0, 0, GET_EVENTS, None) };
        }
        self.ring.completion().for_each(|entry| each(entry.user_data()));
    }

    /// Sleeps until pages have come, `timeout` is over, or something else has; true for the last.
    pub fn wait(&self, timeout: Nanos) -> bool {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let timeout = Timespec { tv_sec: (timeout.0 / 1_000_000_000) as _, tv_nsec: (timeout.0 % 1_000_000_000) as _ };
        // The kernel interrupts it for pages that have come: then it fails, and whoever called it looks.
        let count = epoll::wait(&self.events, &mut events[..], Some(&timeout)).unwrap_or(0);
        events[..count].iter().any(|event| event.data.u64() == OF_ALL)
    }
}
