//! The client's end of shared memory: several requests may be under way, one thread at a time uses it.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::handshake::{self, HandshakeError, Identity};
use crate::monotonic_now;
use crate::patience::Patience;
use crate::region::{ClientRegion, SLOT_LEN, SLOTS, SUMS_LEN};
use crate::socket::{self, Deadline, SocketError};
use isonomia_memory::{BLOCK_LEN, SharedBytes};
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_units::{Nanos, ServerId};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Looks at a slot before the first yield: about the time of the shortest round trip.
const SPINS: u32 = 200;
/// How long a waiting client yields before it sleeps. Below one wake-up of an idle core (10–25 µs), both sides
/// would settle into sleeping for every request.
const YIELD_FOR: Nanos = Nanos::from_micros(60);
/// A yield that takes longer let another thread run: alone it takes a tenth of this.
const OTHERS_RAN: Nanos = Nanos::from_micros(5);
/// Between two looks at whether the server lives.
const SLEEP_NS_MAX: u64 = 100_000_000;

/// How a thread waits for the server.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Whether others on this machine wait for this very thread: then it gives them its processor at once, instead of
    /// first spinning for the time of the shortest round trip.
    pub shares_cores: bool,
    /// Called before it sleeps.
    pub before_sleep: fn(),
}

impl Default for Manner {
    fn default() -> Self {
        Self { shares_cores: false, before_sleep: || {} }
    }
}

/// A connection through shared memory.
#[derive(Debug)]
pub struct Channel {
    region: ClientRegion,
    socket: Parked,
    server: ServerId,
    session: u64,
    verifier: u64,
    file_system: u64,
    under_way: usize,
    /// The operation that each slot was last used for.
    operations: [u16; SLOTS],
    patience: Patience,
}

impl Channel {
    /// Requests that can be under way at once.
    pub const DEPTH: usize = SLOTS;
    /// Largest payload of one request.
    pub const PAYLOAD_LEN_MAX: usize = SLOT_LEN;

    /// Opens a connection and its memory.
    pub fn open(address: &Address, identity: &Identity, deadline: Deadline) -> Result<Self, HandshakeError> {
        let (connection, region) = handshake::open_shared(address, identity, deadline)?;
        let welcome = &connection.welcome;
        Ok(Self {
            region,
            server: ServerId(welcome.server),
            session: welcome.session,
            verifier: welcome.verifier,
            file_system: welcome.file_system,
            socket: connection.socket,
            under_way: 0,
            operations: [0; SLOTS],
            patience: Patience::default(),
        })
    }

    /// The number of the server.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Whether the server has ended the connection, as far as this host knows.
    pub fn is_ended(&self) -> bool {
        socket::is_ended(self.socket.as_fd())
    }

    /// The number of the session with it.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The server's verifier.
    pub fn verifier(&self) -> u64 {
        self.verifier
    }

    /// Which file system it is one of.
    pub fn file_system(&self) -> u64 {
        self.file_system
    }

    /// The buffer for the names or payload of the next request. At most [`Self::DEPTH`] may be under way.
    pub fn stage(&self) -> SharedBytes<'_> {
        debug_assert!(self.under_way < SLOTS);
        self.region.buffer(self.region.next_slot())
    }

    /// Sends the request whose names or payload were staged; gives the slot that its reply will be in.
    pub fn send(&mut self, request: &RequestHeader) -> Result<usize, SocketError> {
        let slot = self.region.next_slot();
        self.under_way += 1;
        self.operations[slot] = request.op;
        if self.region.post(request) {
            match rustix::net::send(&self.socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                // If the socket's buffer is full the server has bytes to read, which wakes it just as well.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(slot)
    }

    /// Waits for the reply in `slot`; slots must be waited for in the order they were sent. The wait goes on
    /// past `timeout` as long as the server shows that it lives.
    pub fn wait(&mut self, slot: usize, timeout: Nanos, manner: Manner) -> Result<ReplyHeader, SocketError> {
        // The last parts of a transfer come with the first: that nobody had to wait for them tells nothing.
        if self.region.is_done(slot) {
            return Ok(self.take(slot));
        }
        let op = self.operations[slot % SLOTS];
        let looks = self.patience.looks_for(op, monotonic_now);
        let spins = if !looks || manner.shares_cores { 0 } else { SPINS };
        for _ in 0..spins {
            std::hint::spin_loop();
            if self.region.is_done(slot) {
                return Ok(self.take_soon(slot));
            }
        }
        let start = monotonic_now();
        let mut looked = start;
        let mut others_ran = false;
        while looks && looked.since(start) < YIELD_FOR {
            rustix::thread::sched_yield();
            if self.region.is_done(slot) {
                return Ok(self.take_soon(slot));
            }
            let now = monotonic_now();
            // Threads for which others wait, as those of a mount, are few: what runs meanwhile is who waits for them.
            others_ran |= !manner.shares_cores && now.since(looked) >= OTHERS_RAN;
            looked = now;
        }
        if others_ran {
            self.patience.note_crowd();
        }
        (manner.before_sleep)();
        let mut deadline = Deadline::after(timeout);
        let mut tick = self.region.alive_tick();
        loop {
            self.region.sleep(slot, SLEEP_NS_MAX);
            if self.region.is_done(slot) {
                self.patience.note(op, monotonic_now().since(start), self.region.is_by_device(slot));
                return Ok(self.take(slot));
            }
            if self.is_ended() {
                return Err(SocketError::Closed);
            }
            let now = self.region.alive_tick();
            if now != tick {
                tick = now;
                deadline = Deadline::after(timeout);
            }
            deadline.left().ok_or(SocketError::TimedOut)?;
        }
    }

    /// Takes the reply in `slot`, which came before this side slept.
    fn take_soon(&mut self, slot: usize) -> ReplyHeader {
        self.patience.note_seen(self.operations[slot % SLOTS]);
        self.take(slot)
    }

    fn take(&mut self, slot: usize) -> ReplyHeader {
        self.under_way -= 1;
        self.region.reply(slot)
    }

    /// The first `len` bytes of the reply's payload in `slot`, until that slot is used again.
    pub fn payload(&self, slot: usize, len: usize) -> Option<SharedBytes<'_>> {
        (len <= SLOT_LEN).then(|| self.region.buffer(slot).first(len))
    }

    /// Takes a reply's payload in `slot` to all of `to`. False if one of its first blocks, so many as the reply says are to be
    /// `compared`, is not what the server expects; `None` if no payload is that long.
    pub fn take_payload(&self, slot: usize, compared: u64, to: &mut [u8]) -> Option<bool> {
        let payload = self.payload(slot, to.len())?;
        let count = usize::try_from(compared).unwrap_or(usize::MAX).min(to.len() / BLOCK_LEN);
        let (first, rest) = to.split_at_mut(count * BLOCK_LEN);
        let mut agrees = true;
        if count > 0 {
            let mut sums = [0; SUMS_LEN];
            self.region.sums(slot).copy_to(&mut sums);
            let (sums, _) = sums.as_chunks();
            payload.copy_to_with_sums(first, |number, sum| {
                agrees &= sums.get(number).is_some_and(|expected| u64::from_ne_bytes(*expected) == sum);
            });
        }
        payload.after(first.len()).copy_to(rest);
        Some(agrees)
    }

    /// The descriptor that the server sent before its last reply; `None` if this process can have no more of them.
    pub fn receive_descriptor(&mut self, timeout: Nanos) -> Result<Option<Parked>, SocketError> {
        let received = socket::receive_descriptor(self.socket.as_fd(), Deadline::after(timeout))?;
        Ok(received.and_then(|descriptor| Parked::new(descriptor).ok()))
    }

    /// Whether no request is under way.
    pub fn is_quiet(&self) -> bool {
        self.under_way == 0
    }
}
