//! The shared memory of one connection.
//!
//! The server makes it (a sealed memfd of fixed size) and sends it with its welcome; the client maps it. So a client has
//! no descriptor to send, and a server can refuse to be sent any: closing a stranger's could take for ever. It
//! has [`SLOTS`] slots, used one after the other, each with a request header, a reply header, and a buffer of
//! [`SLOT_LEN`] bytes for names and payload:
//!
//! | bytes | written by | content |
//! |---|---|---|
//! | 0 | client | number of requests posted so far, wrapping: request `n` is in slot `n % SLOTS` |
//! | 64 | server | 1 while the server does not look at this region: ring the socket after posting |
//! | 128 | server | counts up about once a second: the server lives |
//! | 256 + 256·i | both | slot `i`: state, whether the client sleeps on it, reply header (+64), request header (+128) |
//! | 1536 + 512·i | server | slot `i`: sums of blocks of a read that the client compares (`isonomia_memory::Expected`) |
//! | 4096 + i·`SLOT_LEN` | both | buffer of slot `i` |
//!
//! A write's payload lies in the client's buffer until the server's policy has picked the request.
//!
//! Either side may be hostile or dying, so neither trusts a byte: each copies headers, names and payloads once
//! ([`SharedBytes`]) and uses the copies, and indexes by its own counters; the size cannot change under it because of
//! the seals. A client that breaks the order of posts and replies gets [`Violation`] and is cut off.

use isonomia_memory::{Expected, SharedBytes};
use isonomia_proto::PROTOCOL_VERSION;
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use std::ffi::c_void;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Requests that one connection can have under way.
pub const SLOTS: usize = 4;
/// Bytes of one slot's buffer: large enough to make little of the cost of a request, small enough that a transfer
/// stays in the caches on its way (64, 128, 512 KiB and 1 MiB were slower).
pub const SLOT_LEN: usize = 256 << 10;
/// Bytes of the whole region.
pub const REGION_LEN: usize = BUFFERS_AT + SLOTS * SLOT_LEN;

const POSTED_AT: usize = 0;
const AWAY_AT: usize = 64;
const ALIVE_AT: usize = 128;
const SLOTS_AT: usize = 256;
const SLOT_STRIDE: usize = 256;
const SLEEPING_IN_SLOT: usize = 4;
const REPLY_IN_SLOT: usize = 64;
const REQUEST_IN_SLOT: usize = 128;
const SUMS_AT: usize = 1536;
/// Bytes of the sums of one slot's blocks.
pub const SUMS_LEN: usize = Expected::sums_len(SLOT_LEN);
const BUFFERS_AT: usize = 4096;
// Client and server of one version agree on all of the above: what changes it needs a new version.
const _: () = assert!(PROTOCOL_VERSION == 18 && REGION_LEN == (1 << 20) + 4096 && SLOTS == 4 && SUMS_LEN == 512);
const _: () = assert!(SLOTS_AT + SLOTS * SLOT_STRIDE <= SUMS_AT && SUMS_AT + SLOTS * SUMS_LEN <= BUFFERS_AT);
const _: () = assert!(REQUEST_IN_SLOT + RequestHeader::LEN <= SLOT_STRIDE);

/// A slot's state while its request waits or is served.
const STATE_POSTED: u32 = 1;
/// A slot's state when the reply is there …
const STATE_DONE: u32 = 2;
/// … and when it had to wait for a device.
const STATE_DONE_BY_DEVICE: u32 = 3;

/// A client that does not keep to the protocol of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// More requests posted than there are slots.
    #[error("{0} requests posted at once, {SLOTS} at most")]
    TooMany(u32),
    /// A slot was posted again before its reply.
    #[error("slot {0} posted again before its reply")]
    SlotBusy(usize),
}

/// Memory that a server sent and that the client does not map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// It could shrink, or is no memory at all.
    #[error("shared memory is not sealed against changes of its size")]
    NotSealed,
    /// It has another size.
    #[error("shared memory of {0} bytes, {REGION_LEN} expected")]
    Size(u64),
    /// The system refused.
    #[error("shared memory: {0}")]
    System(Errno),
}

/// A mapped region; unmapped when dropped.
#[derive(Debug)]
struct Mapping(NonNull<u8>);

// SAFETY: the mapping is valid for its whole life and belongs to no thread; all access goes through atomics,
// volatile copies, or shared bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: impl AsFd) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                REGION_LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        NonNull::new(address.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4) && at + 4 <= BUFFERS_AT);
        // SAFETY: inside the mapping, aligned, and only ever accessed as an atomic.
        unsafe { &*self.0.as_ptr().add(at).cast::<AtomicU32>() }
    }

    fn state(&self, slot: usize) -> &AtomicU32 {
        self.word(slot_at(slot))
    }

    fn sleeping(&self, slot: usize) -> &AtomicU32 {
        self.word(slot_at(slot) + SLEEPING_IN_SLOT)
    }

    fn shared(&self, slot: usize) -> SharedBytes<'_> {
        // SAFETY: of one of the slots, so the buffer lies inside the mapping, which lives as long as `self`; and neither side has
        // another way to it.
        unsafe { SharedBytes::new(self.0.add(BUFFERS_AT + (slot % SLOTS) * SLOT_LEN), SLOT_LEN) }
    }

    fn sums(&self, slot: usize) -> SharedBytes<'_> {
        // SAFETY: as above; they lie between the headers of the slots and the buffers.
        unsafe { SharedBytes::new(self.0.add(SUMS_AT + (slot % SLOTS) * SUMS_LEN), SUMS_LEN) }
    }

    fn request(&self, slot: usize) -> *mut RequestHeader {
        // SAFETY: inside the mapping.
        unsafe { self.0.as_ptr().add(slot_at(slot) + REQUEST_IN_SLOT).cast() }
    }

    fn reply(&self, slot: usize) -> *mut ReplyHeader {
        // SAFETY: inside the mapping.
        unsafe { self.0.as_ptr().add(slot_at(slot) + REPLY_IN_SLOT).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no reference outlives `self`. A failure leaves it mapped.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast::<c_void>(), REGION_LEN) };
    }
}

fn slot_at(slot: usize) -> usize {
    SLOTS_AT + (slot % SLOTS) * SLOT_STRIDE
}

/// The client's view.
#[derive(Debug)]
pub struct ClientRegion {
    map: Mapping,
    posted: u32,
}

impl ClientRegion {
    /// Maps what a server sent, after checking that it cannot be pulled away.
    pub fn map(fd: impl AsFd) -> Result<Self, RegionError> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| RegionError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(RegionError::NotSealed);
        }
        let stat = rustix::fs::fstat(&fd).map_err(RegionError::System)?;
        if stat.st_size as u64 != REGION_LEN as u64 {
            return Err(RegionError::Size(stat.st_size as u64));
        }
        let map = Mapping::new(&fd).map_err(RegionError::System)?;
        Ok(Self { map, posted: 0 })
    }

    /// The slot that the next [`Self::post`] uses. It must have been waited for since its last use.
    pub fn next_slot(&self) -> usize {
        self.posted as usize % SLOTS
    }

    /// A slot's buffer. A server that keeps to the order touches it between post and reply only, but one that does not may change
    /// it at any moment, so it is copied from and to.
    pub fn buffer(&self, slot: usize) -> SharedBytes<'_> {
        self.map.shared(slot)
    }

    /// The sums that the server expects of a slot's blocks, once [`Self::is_done`].
    pub fn sums(&self, slot: usize) -> SharedBytes<'_> {
        self.map.sums(slot)
    }

    /// Posts `request` in [`Self::next_slot`]. True: the server sleeps and must be rung.
    pub fn post(&mut self, request: &RequestHeader) -> bool {
        let slot = self.next_slot();
        // SAFETY: inside the mapping and aligned; the server does not read it before `posted` moves on.
        unsafe { self.map.request(slot).write_volatile(*request) };
        self.map.state(slot).store(STATE_POSTED, Ordering::Relaxed);
        self.posted = self.posted.wrapping_add(1);
        self.map.word(POSTED_AT).store(self.posted, Ordering::Release);
        // Pairs with the fence in `ServerRegion::leave`: either the server sees the request, or we see it away.
        fence(Ordering::SeqCst);
        let away = self.map.word(AWAY_AT);
        away.load(Ordering::Relaxed) != 0 && away.swap(0, Ordering::Relaxed) != 0
    }

    /// Whether the reply is in `slot`.
    pub fn is_done(&self, slot: usize) -> bool {
        matches!(self.map.state(slot).load(Ordering::Acquire), STATE_DONE | STATE_DONE_BY_DEVICE)
    }

    /// The reply in `slot`, once [`Self::is_done`].
    pub fn reply(&self, slot: usize) -> ReplyHeader {
        // SAFETY: inside the mapping and aligned; every bit pattern is a header.
        unsafe { self.map.reply(slot).read_volatile() }
    }

    /// Whether a device was waited for before the reply in `slot` came.
    pub fn is_by_device(&self, slot: usize) -> bool {
        self.map.state(slot).load(Ordering::Relaxed) == STATE_DONE_BY_DEVICE
    }

    /// Sleeps until the reply may be in `slot`, at most `nanos`.
    pub fn sleep(&self, slot: usize, nanos: u64) {
        let state = self.map.state(slot);
        self.map.sleeping(slot).store(1, Ordering::Relaxed);
        // Pairs with the fence in `ServerRegion::finish`: either it sees us asleep, or we see the reply.
        fence(Ordering::SeqCst);
        if state.load(Ordering::Acquire) == STATE_POSTED {
            let timeout =
                futex::Timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
            // Every outcome (woken, changed, timed out, signal) means: look again.
            let _ = futex::wait(state, futex::Flags::empty(), STATE_POSTED, Some(&timeout));
        }
        self.map.sleeping(slot).store(0, Ordering::Relaxed);
    }

    /// A number that changes while the server lives.
    pub fn alive_tick(&self) -> u32 {
        self.map.word(ALIVE_AT).load(Ordering::Relaxed)
    }
}

/// The server's view.
#[derive(Debug)]
pub struct ServerRegion {
    map: Mapping,
}

impl ServerRegion {
    /// A fresh region, and the descriptor to send to the client.
    pub fn create() -> Result<(Self, OwnedFd), Errno> {
        let fd = rustix::fs::memfd_create(c"isonomia-channel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, REGION_LEN as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = Mapping::new(&fd)?;
        Ok((Self { map }, fd))
    }

    /// The next request after the `seen` ones, if any. `serving` has a bit for each slot without reply.
    pub fn poll(&self, seen: &mut u32, serving: u32) -> Result<Option<(usize, RequestHeader)>, Violation> {
        let posted = self.map.word(POSTED_AT).load(Ordering::Acquire);
        let pending = posted.wrapping_sub(*seen);
        if pending == 0 {
            return Ok(None);
        }
        if pending > SLOTS as u32 {
            return Err(Violation::TooMany(pending));
        }
        let slot = *seen as usize % SLOTS;
        if serving & 1 << slot != 0 {
            return Err(Violation::SlotBusy(slot));
        }
        *seen = seen.wrapping_add(1);
        // SAFETY: inside the mapping and aligned; every bit pattern is a header, and the copy is what is checked.
        Ok(Some((slot, unsafe { self.map.request(slot).read_volatile() })))
    }

    /// A slot's buffer. The client may change it at any moment, so it is copied from and to.
    pub fn buffer(&self, slot: usize) -> SharedBytes<'_> {
        self.map.shared(slot)
    }

    /// Where to tell the client the sums that it is to compare a slot's blocks with.
    pub fn sums(&self, slot: usize) -> SharedBytes<'_> {
        self.map.sums(slot)
    }

    /// A copy of the first `len` bytes of a slot's buffer: names, which must not change while they are walked.
    pub fn copy_names(&self, slot: usize, len: usize) -> Vec<u8> {
        self.buffer(slot).first(len).to_vec()
    }

    /// Puts the reply into `slot`, says whether a device was waited for, and wakes the client if it sleeps.
    pub fn finish(&self, slot: usize, reply: &ReplyHeader, is_by_device: bool) {
        // SAFETY: inside the mapping and aligned; the client reads it after the state changed.
        unsafe { self.map.reply(slot).write_volatile(*reply) };
        let state = self.map.state(slot);
        state.store(if is_by_device { STATE_DONE_BY_DEVICE } else { STATE_DONE }, Ordering::Release);
        // Pairs with the fence in `ClientRegion::sleep`.
        fence(Ordering::SeqCst);
        if self.map.sleeping(slot).load(Ordering::Relaxed) != 0 {
            let _ = futex::wake(state, futex::Flags::empty(), NonZeroU32::MIN.get());
        }
    }

    /// Tells the client that the server looks at this region no longer, so that the client rings the socket after its next
    /// request. False if a request has come meanwhile: then the client was told nothing, and the server must look.
    pub fn leave(&self, seen: u32) -> bool {
        let away = self.map.word(AWAY_AT);
        away.store(1, Ordering::Relaxed);
        // Pairs with the fence in `ClientRegion::post`.
        fence(Ordering::SeqCst);
        if self.map.word(POSTED_AT).load(Ordering::Acquire) == seen {
            return true;
        }
        away.store(0, Ordering::Relaxed);
        false
    }

    /// Says that this region is looked at again.
    pub fn come_back(&self) {
        self.map.word(AWAY_AT).store(0, Ordering::Relaxed);
    }

    /// Shows the client that the server lives.
    pub fn tick(&self) {
        self.map.word(ALIVE_AT).fetch_add(1, Ordering::Relaxed);
    }
}

/// The client may keep its descriptor of the memory for ever. Pages that the server touched first are charged to the server,
/// so they are taken out of the memory when the connection ends; pages that the client touches after that are charged to the
/// client.
impl Drop for ServerRegion {
    fn drop(&mut self) {
        let address = self.map.0.as_ptr().cast::<c_void>();
        // SAFETY: all of a mapping that is still there, and nobody here refers to its content any more. The memory is
        // sealed against further seals, so the client cannot keep the pages from going.
        let _ = unsafe { rustix::mm::madvise(address, REGION_LEN, Advice::LinuxRemove) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_proto::request::Op;
    use isonomia_units::Ino;

    fn pair() -> (ClientRegion, ServerRegion) {
        let (server, fd) = ServerRegion::create().unwrap();
        (ClientRegion::map(fd).unwrap(), server)
    }

    #[test]
    fn a_request_and_its_reply_cross() {
        let (mut client, server) = pair();
        let slot = client.next_slot();
        client.buffer(slot).copy_from(b"abc");
        let request = RequestHeader { path_len: 3, seq: 9, ..RequestHeader::new(Op::GetAttr, Ino::ROOT) };
        assert!(!client.post(&request), "the server is looking");
        let mut seen = 0;
        let (got, header) = server.poll(&mut seen, 0).unwrap().unwrap();
        assert_eq!((got, header), (slot, request));
        assert_eq!(server.copy_names(got, header.names_len()), b"abc");
        assert!(!client.is_done(slot));
        server.finish(got, &ReplyHeader::ok(9, 5, 0), true);
        assert!(client.is_done(slot) && client.is_by_device(slot));
        assert_eq!(client.reply(slot), ReplyHeader::ok(9, 5, 0));
        assert_eq!(server.poll(&mut seen, 0), Ok(None));
    }

    #[test]
    fn a_server_that_is_away_is_rung_once() {
        let (mut client, server) = pair();
        assert!(server.leave(0));
        let request = RequestHeader::new(Op::StatFs, Ino::ROOT);
        assert!(client.post(&request));
        assert!(!client.post(&request));
        assert!(!server.leave(0), "requests are waiting");
    }

    #[test]
    fn breaking_the_order_is_noticed() {
        let (mut client, server) = pair();
        let request = RequestHeader::new(Op::StatFs, Ino::ROOT);
        for _ in 0..=SLOTS {
            let _ = client.post(&request);
        }
        assert_eq!(server.poll(&mut 0, 0), Err(Violation::TooMany(SLOTS as u32 + 1)));
        assert_eq!(server.poll(&mut 1, 0b10), Err(Violation::SlotBusy(1)));
    }

    #[test]
    fn what_a_client_keeps_of_a_connection_that_ended_takes_no_memory() {
        let (server, fd) = ServerRegion::create().unwrap();
        let blocks = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_blocks;
        server.buffer(0).copy_from(&[7; SLOT_LEN]);
        assert!(blocks(&fd) >= (SLOT_LEN / 512) as i64);
        let kept = ClientRegion::map(&fd).unwrap();
        assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE), Err(Errno::PERM));
        drop(server);
        assert_eq!(blocks(&fd), 0);
        drop(kept);
    }

    #[test]
    fn memory_that_could_vanish_is_refused() {
        let fd = rustix::fs::memfd_create(c"x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, REGION_LEN as u64).unwrap();
        assert!(matches!(ClientRegion::map(fd), Err(RegionError::NotSealed)));
        let fd = rustix::fs::memfd_create(c"x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(ClientRegion::map(fd), Err(RegionError::Size(4096))));
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(matches!(ClientRegion::map(reader), Err(RegionError::NotSealed)));
    }
}
