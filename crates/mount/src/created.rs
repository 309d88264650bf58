//! What the kernel asks about a file that it has just had created.
//!
//! With `default_permissions` the kernel checks, before `open` returns, whether the caller may open what he has created. For that it asks
//! for the attributes, though it was given them with the file, unless it may keep attributes for a while, which no mount allows for files
//! by default. The thread that created the file waits for the answer inside `open`. So what is true of the file
//! when it is created is true within that call, and the server need not be asked again.

use isonomia_client::Attr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kernel asks within some microseconds. Where it does not (a security module refused the open), what is kept here must not answer a
/// later question.
const KEPT_FOR: Duration = Duration::from_millis(1);
/// Threads that create at the same moment; of more, some answers come from the server.
const KEPT_MAX: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Kept {
    thread: u32,
    until: Instant,
    attr: Attr,
}

/// Files of which the kernel is about to ask.
#[derive(Debug, Default)]
pub struct Created(Mutex<Vec<Kept>>);

impl Created {
    /// The thread `thread` of a program, which is not 0, created a file that has these attributes.
    pub fn note(&self, now: Instant, thread: u32, attr: Attr) {
        if thread == 0 {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|kept| kept.thread != thread && kept.until > now);
        if all.len() < KEPT_MAX {
            all.push(Kept { thread, until: now + KEPT_FOR, attr });
        }
    }

    /// The attributes of `ino`, if `thread` has just created it and did not ask before.
    pub fn take(&self, now: Instant, thread: u32, ino: u64) -> Option<Attr> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|kept| kept.thread == thread)?;
        let kept = all.swap_remove(at);
        (kept.attr.ino == ino && kept.until > now).then_some(kept.attr)
    }
}

#[cfg(test)]
mod tests {
    //! Who asks, of what, how often, and when.

    use super::*;

    fn attr(ino: u64) -> Attr {
        Attr { ino, ..Attr::default() }
    }

    #[test]
    fn the_thread_that_created_a_file_is_answered_once() {
        let (created, now) = (Created::default(), Instant::now());
        created.note(now, 7, attr(40));
        assert!(created.take(now, 8, 40).is_none(), "another thread");
        assert_eq!(created.take(now, 7, 40).map(|attr| attr.ino), Some(40));
        assert!(created.take(now, 7, 40).is_none(), "it is another call");
        created.note(now, 7, attr(40));
        assert!(created.take(now, 7, 41).is_none(), "another file");
        assert!(created.take(now, 7, 40).is_none(), "the thread asked of something else first");
        created.note(now, 7, attr(40));
        assert!(created.take(now + KEPT_FOR, 7, 40).is_none(), "too late");
        created.note(now, 0, attr(40));
        assert!(created.take(now, 0, 40).is_none(), "nobody knows which thread");
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (created, now) = (Created::default(), Instant::now());
        (1..=1_000).for_each(|thread| created.note(now, thread, attr(5)));
        assert_eq!(created.0.lock().unwrap().len(), KEPT_MAX);
        created.note(now + KEPT_FOR, 1, attr(5));
        assert_eq!(created.0.lock().unwrap().len(), 1);
    }
}
