//! Descriptors of this library inside another program's process.
//!
//! A program owns the numbers of its descriptors: it may `dup2` onto any it believes free, and close all it does not
//! know. So what the library keeps open across calls is moved up to numbers that programs do not pick by hand, and
//! [`is_parked`] tells whoever intercepts `close` and `dup2` to leave these alone.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::sync::atomic::{AtomicU8, Ordering};

/// Where numbers are looked for, in this order: a process may have a low limit.
const FLOORS: [i32; 3] = [600, 200, 50];
/// Numbers that are kept track of; the ordinary limit of a process is 1,024.
const TRACKED: usize = 65_536;

/// How many have each number: two for the moment in which one is closed, and counted still, and a thread already has the number
/// again.
static PARKED: [AtomicU8; TRACKED] = [const { AtomicU8::new(0) }; TRACKED];

/// A descriptor at a number that the program does not use, closed when dropped.
#[derive(Debug)]
pub struct Parked(Option<OwnedFd>);

/// Whether the library keeps `number` open. Costs a bounds check and a load.
pub fn is_parked(number: i32) -> bool {
    count(number).is_some_and(|count| count.load(Ordering::Relaxed) > 0)
}

fn count(number: i32) -> Option<&'static AtomicU8> {
    PARKED.get(usize::try_from(number).ok()?)
}

impl Parked {
    /// Moves `descriptor` up.
    pub fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let mut outcome = Err(Errno::MFILE);
        for floor in FLOORS {
            outcome = fcntl_dupfd_cloexec(&descriptor, floor);
            if outcome.is_ok() {
                break;
            }
        }
        let moved = outcome?;
        if let Some(count) = count(moved.as_raw_fd()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self(Some(moved)))
    }
}

impl AsFd for Parked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // Only `drop` takes the descriptor out.
        self.0.as_ref().expect("a parked descriptor is open until it is dropped").as_fd()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take() {
            let number = descriptor.into_raw_fd();
            // Not by the C library's `close`, which may be intercepted to leave parked descriptors alone.
            // SAFETY: the number was owned by `descriptor`, and nobody else closes it.
            unsafe { rustix::io::close(number) };
            if let Some(count) = count(number) {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_descriptor_is_high_closed_on_exec_and_known() {
        let ends = || {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            let parked = Parked::new(reader).unwrap();
            let number = parked.as_fd().as_raw_fd();
            assert!(number >= FLOORS[0] && is_parked(number));
            assert!(rustix::io::fcntl_getfd(&parked).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
            drop(parked);
            assert_eq!(rustix::io::write(&writer, b"x"), Err(Errno::PIPE), "it is closed");
            !is_parked(number)
        };
        // Another thread may have the number at once, but not each time.
        assert!((0..100).any(|_| ends()));
        assert!(!is_parked(-1) && !is_parked(i32::MAX) && !is_parked(0));
    }

    #[test]
    fn a_number_that_is_closed_and_taken_again_at_the_same_time_is_known() {
        let park = || {
            let parked = Parked::new(rustix::pipe::pipe().unwrap().0).unwrap();
            assert!(is_parked(parked.as_fd().as_raw_fd()));
            std::thread::yield_now();
            is_parked(parked.as_fd().as_raw_fd())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..20_000).all(|_| park()))).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        });
    }
}
