//! Pauses that a signal interrupts, also one that comes between two of them.
//!
//! A call that waits asks the server again and again, and pauses in between. A signal whose handler runs while it asks would
//! be missed: the next pause does not know of it. So signals with handlers are blocked while the call asks, and delivered
//! while it pauses. All others act as ever: a process that a signal ends is not kept by a server that does not answer.

use crate::calls::real;
use crate::foreign::In;
use crate::hook::failed_with;
use rustix::io::Errno;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Signals that an instruction causes, or that a handler is for which may not return: never blocked.
const OF_INSTRUCTIONS: [c_int; 7] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];

/// While this lives, handlers of signals that come to this thread run in [`Self::pause`] only.
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    /// From now on.
    pub fn new() -> Self {
        let mut handled = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the set is the call's to fill.
        let mut handled = unsafe {
            libc::sigemptyset(handled.as_mut_ptr());
            handled.assume_init()
        };
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| !OF_INSTRUCTIONS.contains(signal)) {
            if has_handler(signal) {
                // SAFETY: the set is this function's own, and the signal exists.
                unsafe { libc::sigaddset(&raw mut handled, signal) };
            }
        }
        // SAFETY: both sets are this function's own, and the call fills the second.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const handled, before.as_mut_ptr());
            before.assume_init()
        };
        Self { before }
    }

    /// Pauses for so long at most; true if a handler ran, of a signal that came now or since the last pause.
    pub fn pause(&self, nanos: u64) -> bool {
        let timeout = libc::timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
        let ready = real::ppoll(std::ptr::null_mut(), 0, &raw const timeout, In::new(&self.before));
        ready < 0 && failed_with(Errno::INTR)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is what the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn has_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call only fills `action`, and does so where it succeeds.
    let handler = unsafe {
        (libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0).then(|| action.assume_init().sa_sigaction)
    };
    handler.is_some_and(|handler| handler != libc::SIG_DFL && handler != libc::SIG_IGN)
}
