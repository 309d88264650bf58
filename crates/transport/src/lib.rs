//! How requests travel between a client and a server.
//!
//! * [`region`]: the shared memory of one client connection, and both sides' views of it.
//! * [`channel`]: the client's end of shared memory. [`stream`]: the client's end of TCP.
//! * [`socket`]: connecting, set-up frames, descriptors in ancillary data, all with deadlines.
//! * [`handshake`]: the client's part of opening a connection. [`key`]: the shared key. [`munge`]: credentials of a host's munge
//!   daemon. [`noise`]: what both sides of TCP do with either. [`seal`]: frames that nobody can change or read on their way.
//! * [`owner`]: who runs the server at the other end.
//! * `patience`: whether a client looks out for a reply or sleeps at once.
//! * [`descriptor`]: keeping the library's descriptors out of the program's way.
//! * [`control`]: an operator's connection. [`control_group`]: the job that the kernel says a process belongs to.
//!
//! The client's ends run inside other people's programs: system calls are direct, no thread is started, every
//! wait has a deadline. The server's loop is in the server.

pub mod address;
pub mod channel;
pub mod control;
pub mod control_group;
pub mod descriptor;
pub mod handshake;
pub mod key;
pub mod line;
pub mod munge;
pub mod noise;
pub mod owner;
mod patience;
pub mod region;
pub mod seal;
pub mod socket;
pub mod stream;

use isonomia_units::Nanos;

/// The monotonic clock, for deadlines.
pub fn monotonic_now() -> Nanos {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
