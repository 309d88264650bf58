//! Placeholders that are used again.
//!
//! Making a placeholder costs about six system calls, more than creating the file on the server. So the page of a
//! closed file, if this process alone ever had it, is kept with a *twin* of its descriptor: duplicating the twin
//! makes the next placeholder.
//!
//! A page is used again only while no other process can have it: every fork and spawn begins a new generation, and
//! pages of an earlier one are given up when they are closed. (A descriptor that a program passes on in a message
//! is never adopted by the receiver, and a child made by a bare system call behind the C library's back is not
//! known about: it may see the next file of this process, with the rights of this process, behind a descriptor that
//! it inherited and that was closed here.)

use crate::placeholder::Page;
use crate::spin::Spin;
use isonomia_client::Parked;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Pages with a twin at once, free or in use: each costs a descriptor.
const TWINS_MAX: usize = 16;

/// A second descriptor of a placeholder, for this library.
pub struct Twin {
    descriptor: Parked,
    generation: u32,
}

/// A page that waits for its next file.
pub struct Spare {
    pub page: NonNull<Page>,
    pub twin: Twin,
}

// SAFETY: whoever takes the spare is the only one to know the page.
unsafe impl Send for Spare {}

static SPARES: Spin<Vec<Spare>> = Spin::new(Vec::new());
static TWINS: AtomicUsize = AtomicUsize::new(0);
static GENERATION: AtomicU32 = AtomicU32::new(0);

impl Drop for Twin {
    fn drop(&mut self) {
        TWINS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Twin {
    /// The right to keep one more twin.
    fn admit() -> bool {
        let more = |count| (count < TWINS_MAX).then_some(count + 1);
        TWINS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Keeps `descriptor`, or closes it if there are twins enough.
    pub fn keep(descriptor: rustix::fd::OwnedFd) -> Option<Self> {
        if !Self::admit() {
            return None;
        }
        match Parked::new(descriptor) {
            Ok(descriptor) => Some(Self { descriptor, generation: GENERATION.load(Ordering::Relaxed) }),
            Err(_) => {
                TWINS.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// The descriptor to duplicate.
    pub fn descriptor(&self) -> &Parked {
        &self.descriptor
    }

    /// Whether this process alone ever had the page.
    pub fn is_unshared(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }
}

/// A page to use again, now of the present generation.
pub fn take() -> Option<Spare> {
    let mut spare = SPARES.lock_soon()?.pop()?;
    spare.twin.generation = GENERATION.load(Ordering::Relaxed);
    Some(spare)
}

/// Keeps a page that nobody uses any more, or gives it back where it cannot be kept.
pub fn keep(spare: Spare) -> Option<Spare> {
    match SPARES.lock_soon() {
        Some(mut spares) => {
            spares.push(spare);
            None
        }
        None => Some(spare),
    }
}

/// To be called whenever the process may get a child: what is open now may be the child's as well.
pub fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The lock of the spares, for [`crate::process`].
pub fn lock_before_fork() {
    begin_generation();
    SPARES.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    SPARES.release();
}

/// In the child of a fork: the spares are the parent's to use again.
pub fn forget_spares() -> Vec<Spare> {
    std::mem::take(&mut *SPARES.lock())
}
