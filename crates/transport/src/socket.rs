//! Sockets with deadlines: connecting, whole messages, descriptors in ancillary data.
//!
//! All sockets are non-blocking; what would block polls until its deadline.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::monotonic_now;
use crate::seal::Forged;
use isonomia_proto::setup::{self, BadFrame, SETUP_HEADER_LEN};
use isonomia_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Why a conversation on a socket ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The system refused.
    #[error(transparent)]
    System(#[from] Errno),
    /// The peer is gone.
    #[error("connection closed by the peer")]
    Closed,
    /// The deadline passed.
    #[error("no answer in time")]
    TimedOut,
    /// The peer sent what is no frame.
    #[error(transparent)]
    Frame(#[from] BadFrame),
    /// The host's name means nothing.
    #[error("cannot resolve {0}")]
    Resolve(String),
    /// Something between the peer and this side changes what is said.
    #[error(transparent)]
    Forged(#[from] Forged),
}

/// A point in time after which nobody waits any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Nanos);

/// Between two ticks of the coarse clock of a Linux that ticks seldom, 100 times a second.
const TICK_MAX: Nanos = Nanos::from_millis(10);

/// A connection of which nothing comes is looked after this often, and given up after so many times without an answer.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVES: u32 = 3;

impl Deadline {
    /// `span` from now.
    pub fn after(span: Nanos) -> Self {
        Self(monotonic_now() + span)
    }

    /// `span` from now, or up to [`TICK_MAX`] later: for the cost of a clock that ticks only now and then.
    pub fn after_about(span: Nanos) -> Self {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let now = Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs());
        Self(now + TICK_MAX + span)
    }

    /// The time left; `None` when it has passed.
    pub fn left(self) -> Option<Nanos> {
        let left = self.0.since(monotonic_now());
        if left == Nanos::ZERO { None } else { Some(left) }
    }
}

/// How long somebody waits.
pub trait Until {
    /// The time left, at least for now.
    ///
    /// # Errors
    /// [`SocketError::TimedOut`] when there is none.
    fn time_left(&mut self) -> Result<Nanos, SocketError>;
}

impl Until for Deadline {
    fn time_left(&mut self) -> Result<Nanos, SocketError> {
        self.left().ok_or(SocketError::TimedOut)
    }
}

impl<U: Until> Until for &mut U {
    fn time_left(&mut self) -> Result<Nanos, SocketError> {
        (**self).time_left()
    }
}

/// Connects to `address`. The socket is non-blocking and closed on `exec`.
pub fn connect(address: &Address, deadline: Deadline) -> Result<Parked, SocketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match address {
        Address::Unix(path) => connect_unix(&SocketAddrUnix::new(path.as_str())?, deadline),
        Address::Tcp(endpoint) => {
            let resolved = endpoint.to_socket_addrs().map_err(|_| SocketError::Resolve(endpoint.clone()))?;
            let mut last = SocketError::Resolve(endpoint.clone());
            for target in resolved {
                let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = Parked::new(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)?;
                match finish_connect(&socket, &target, deadline) {
                    Ok(()) => {
                        sockopt::set_tcp_nodelay(&socket, true)?;
                        notice_loss(&socket)?;
                        return Ok(socket);
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// Has the kernel ask whether the other end is still there while nothing comes from it: a host that lost its power says no farewell,
/// and who waits for a reply on it may do so for long.
fn notice_loss(socket: &Parked) -> Result<(), SocketError> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVES)?;
    Ok(())
}

/// Waits in the line of those who want into a full queue of the listener: whoever asks again and again instead, as a
/// non-blocking socket makes one do, is overtaken by all who wait.
fn connect_unix(path: &SocketAddrUnix, deadline: Deadline) -> Result<Parked, SocketError> {
    let flags = SocketFlags::CLOEXEC;
    let socket = Parked::new(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)?;
    loop {
        let left = deadline.left().ok_or(SocketError::TimedOut)?;
        // Rounded up: none at all would mean to wait for ever.
        let wait = Duration::from_micros(left.0.div_ceil(1_000));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(wait))?;
        match rustix::net::connect(&socket, path) {
            Ok(()) => break,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

fn finish_connect(socket: &Parked, target: &SocketAddr, deadline: Deadline) -> Result<(), SocketError> {
    match rustix::net::connect(socket, target) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    wait(socket.as_fd(), PollFlags::OUT, deadline)?;
    sockopt::socket_error(socket)?.map_err(SocketError::System)
}

/// Waits until `socket` is ready for `what`, or has an error or an end, which the next call on it will tell.
pub fn wait(socket: BorrowedFd<'_>, what: PollFlags, mut until: impl Until) -> Result<(), SocketError> {
    loop {
        let left = until.time_left()?;
        let timeout = Timespec { tv_sec: (left.0 / 1_000_000_000) as _, tv_nsec: (left.0 % 1_000_000_000) as _ };
        match poll(&mut [PollFd::from_borrowed_fd(socket, what)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether the peer of a TCP connection is on this host.
pub fn is_loopback(socket: BorrowedFd<'_>) -> bool {
    let peer = rustix::net::getpeername(socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// Whether the peer has closed the connection.
pub fn is_ended(socket: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)], Some(&now)), Ok(1..))
}

/// Whether the peer of a Unix socket has not yet received all that was sent to it.
pub fn has_unread(socket: BorrowedFd<'_>) -> bool {
    /// `SIOCOUTQ` of Linux's `include/uapi/linux/sockios.h`, on x86-64 and AArch64.
    const OUTPUT_QUEUE: rustix::ioctl::Opcode = 0x5411;
    // SAFETY: the kernel writes an integer of this size.
    let asked = unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<OUTPUT_QUEUE, i32>::new()) };
    asked.is_ok_and(|bytes| bytes > 0)
}

/// Sends all parts, one after the other.
pub fn send_all(socket: BorrowedFd<'_>, parts: &[&[u8]], until: impl Until) -> Result<(), SocketError> {
    send_parts(socket, parts, None, until)
}

/// Sends `bytes` with a descriptor attached to the first of them.
pub fn send_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
    deadline: Deadline,
) -> Result<(), SocketError> {
    send_parts(socket, &[bytes], Some(descriptor), deadline)
}

/// Parts of one message at most: header, two names, payload.
const PARTS_MAX: usize = 4;

fn send_parts(
    socket: BorrowedFd<'_>,
    parts: &[&[u8]],
    mut descriptor: Option<BorrowedFd<'_>>,
    mut until: impl Until,
) -> Result<(), SocketError> {
    let total: usize = parts.iter().map(|p| p.len()).sum();
    let mut sent = 0;
    while sent < total {
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        let mut skip = sent;
        let mut used = 0;
        for part in parts {
            if skip < part.len() {
                slices[used] = IoSlice::new(&part[skip..]);
                used += 1;
            }
            skip = skip.saturating_sub(part.len());
        }
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights: [BorrowedFd<'_>; 1];
        if let Some(fd) = descriptor {
            rights = [fd];
            ancillary.push(SendAncillaryMessage::ScmRights(&rights));
        }
        match rustix::net::sendmsg(socket, &slices[..used], &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => {
                sent += n;
                descriptor = None;
            }
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, &mut until)?,
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Sends as much of both parts, one after the other, as the socket takes at once; how many bytes.
pub fn send_some(socket: BorrowedFd<'_>, parts: [&[u8]; 2]) -> Result<usize, SocketError> {
    let slices = parts.map(IoSlice::new);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until the first of `sockets` is ready for what it is to be ready for, or has an error or an end, or any of the others is;
/// whether the first is.
pub fn wait_for_first(sockets: &mut [PollFd<'_>], mut until: impl Until) -> Result<bool, SocketError> {
    loop {
        let left = until.time_left()?;
        let timeout = Timespec { tv_sec: (left.0 / 1_000_000_000) as _, tv_nsec: (left.0 % 1_000_000_000) as _ };
        match poll(sockets, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                let is_done = PollFlags::IN | PollFlags::ERR | PollFlags::HUP;
                return Ok(sockets.first().is_some_and(|first| first.revents().intersects(is_done)));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Attempts to receive before the first sleep. One costs about a microsecond, a wake-up ten or more.
const RECEIVE_SPINS: u32 = 50;

/// Receives exactly `buffer.len()` bytes.
pub fn receive_all(socket: BorrowedFd<'_>, buffer: &mut [u8], until: impl Until) -> Result<(), SocketError> {
    receive_both(socket, [buffer, &mut []], until)
}

/// Receives as many bytes as fill both buffers, one after the other.
pub fn receive_both(
    socket: BorrowedFd<'_>,
    [first, second]: [&mut [u8]; 2],
    mut until: impl Until,
) -> Result<(), SocketError> {
    let total = first.len() + second.len();
    let mut received = 0;
    let mut idle = 0;
    while received < total {
        let outcome = match received.checked_sub(first.len()) {
            Some(in_second) => rustix::net::recv(socket, &mut second[in_second..], RecvFlags::DONTWAIT).map(|(n, _)| n),
            None if second.is_empty() => {
                rustix::net::recv(socket, &mut first[received..], RecvFlags::DONTWAIT).map(|(n, _)| n)
            }
            None => {
                let mut slices = [IoSliceMut::new(&mut first[received..]), IoSliceMut::new(second)];
                let mut nothing_attached = RecvAncillaryBuffer::new(&mut []);
                rustix::net::recvmsg(socket, &mut slices, &mut nothing_attached, RecvFlags::DONTWAIT).map(|m| m.bytes)
            }
        };
        match outcome {
            Ok(0) | Err(Errno::CONNRESET) => return Err(SocketError::Closed),
            Ok(n) => {
                received += n;
                idle = 0;
            }
            Err(Errno::AGAIN) if idle < RECEIVE_SPINS => {
                idle += 1;
                rustix::thread::sched_yield();
            }
            Err(Errno::AGAIN) => wait(socket, PollFlags::IN, &mut until)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives one set-up frame, and the descriptor that is attached to its first byte, if there is one.
pub fn receive_frame_with_descriptor(
    socket: BorrowedFd<'_>,
    len_max: usize,
    deadline: Deadline,
) -> Result<(Vec<u8>, Option<OwnedFd>), SocketError> {
    let mut header = [0; SETUP_HEADER_LEN];
    let (first, descriptor) = receive_some(socket, &mut header, deadline)?;
    receive_all(socket, &mut header[first..], deadline)?;
    Ok((receive_body(socket, &header, len_max, deadline)?, descriptor))
}

/// Receives one byte with the descriptor that is attached to it; `None` if this process can have no more descriptors.
pub fn receive_descriptor(socket: BorrowedFd<'_>, deadline: Deadline) -> Result<Option<OwnedFd>, SocketError> {
    receive_some(socket, &mut [0], deadline).map(|(_, descriptor)| descriptor)
}

/// Receives at least one byte of `buffer`, and what is attached to it.
fn receive_some(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    deadline: Deadline,
) -> Result<(usize, Option<OwnedFd>), SocketError> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let count = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Ok(message) if message.bytes == 0 => return Err(SocketError::Closed),
            Ok(message) => break message.bytes,
            Err(Errno::AGAIN) => wait(socket, PollFlags::IN, deadline)?,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Err(SocketError::Closed),
            Err(errno) => return Err(errno.into()),
        }
    };
    let descriptor = ancillary.drain().find_map(|attached| match attached {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((count, descriptor))
}

/// Receives one set-up frame and gives its body, of `len_max` bytes at most.
pub fn receive_frame(socket: BorrowedFd<'_>, len_max: usize, deadline: Deadline) -> Result<Vec<u8>, SocketError> {
    let mut header = [0; SETUP_HEADER_LEN];
    receive_all(socket, &mut header, deadline)?;
    receive_body(socket, &header, len_max, deadline)
}

fn receive_body(
    socket: BorrowedFd<'_>,
    header: &[u8; SETUP_HEADER_LEN],
    len_max: usize,
    deadline: Deadline,
) -> Result<Vec<u8>, SocketError> {
    let mut body = vec![0; setup::body_len(header, len_max)?];
    receive_all(socket, &mut body, deadline)?;
    Ok(body)
}
