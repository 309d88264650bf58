//! One sync for all who wait for one: those who come while a sync is under way wait for it to end, and then one of them
//! syncs for all.
//!
//! A sync that began before a change was committed may not cover it, so nobody is content with the one that he finds under
//! way, unless he knows that it does ([`GroupCommit::sync_unless`]). On a device that takes 5 ms for a sync a thread then waits
//! 10 ms at most, however many wait; one after the other they would wait 5 ms for each of those before them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Syncs of one journal.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    state: Mutex<State>,
    has_ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Syncs that began.
    begun: u64,
    /// The last of those that succeeded.
    done: u64,
    is_running: bool,
    /// Threads that wait for one to end.
    waiting: u32,
}

/// The first sync that begins after this was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    wanted: u64,
    /// Somebody was waiting for his turn, who syncs for all as soon as the sync under way has ended, unless there is no need for him any
    /// more.
    pub is_coming: bool,
}

impl GroupCommit {
    /// Returns once a `sync` that began after this was called has succeeded, or with the error of one that this thread
    /// itself did.
    pub fn sync<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.sync_unless(|| false, sync)
    }

    /// The same, or as soon as there is no need for one any more.
    pub fn sync_unless<E>(&self, is_done: impl Fn() -> bool, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if is_done() {
            return Ok(());
        }
        self.sync_since(self.ticket(), is_done, sync)
    }

    /// For [`Self::sync_since`].
    pub fn ticket(&self) -> Ticket {
        let state = self.state();
        Ticket { wanted: state.begun + 1, is_coming: state.is_running && state.waiting > 0 }
    }

    /// As [`Self::sync_unless`], but that a sync is enough that began after the ticket was taken.
    pub fn sync_since<E>(
        &self,
        Ticket { wanted, .. }: Ticket,
        is_done: impl Fn() -> bool,
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state();
        while state.is_running && state.done < wanted && !is_done() {
            state.waiting += 1;
            state = self.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        if state.done >= wanted || is_done() {
            return Ok(());
        }
        state.begun += 1;
        state.is_running = true;
        let number = state.begun;
        drop(state);
        let synced = sync();
        let mut state = self.state();
        state.is_running = false;
        if synced.is_ok() {
            state.done = number;
        }
        if state.waiting > 0 {
            self.has_ended.notify_all();
        }
        synced
    }

    /// Returns once the sync that is under way, if one is, has ended.
    pub fn wait_for_end(&self) {
        let mut state = self.state();
        let begun = state.begun;
        while state.is_running && state.begun == begun {
            state.waiting += 1;
            state = self.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Threads that wait for a sync to end.
    #[cfg(test)]
    pub fn waiting(&self) -> u32 {
        self.state().waiting
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    const WAITING: u32 = 8;

    /// One sync that lasts until all others wait, of which the first `fails` fail; syncs that were done, and errors.
    fn run(fails: u32) -> (u32, u32) {
        let group = GroupCommit::default();
        let (syncs, errors) = (AtomicU32::new(0), AtomicU32::new(0));
        let (began, has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let sync = || {
                    began.send(()).unwrap();
                    while group.state().waiting < WAITING {
                        std::thread::yield_now();
                    }
                    Ok::<(), ()>(())
                };
                group.sync(sync).unwrap();
            });
            has_begun.recv().unwrap();
            for _ in 0..WAITING {
                scope.spawn(|| {
                    let sync = || if syncs.fetch_add(1, SeqCst) < fails { Err(()) } else { Ok(()) };
                    errors.fetch_add(group.sync(sync).is_err().into(), SeqCst);
                });
            }
        });
        (syncs.load(SeqCst), errors.load(SeqCst))
    }

    #[test]
    fn a_sync_does_that_began_after_the_ticket_was_taken() {
        let group = GroupCommit::default();
        let syncs = AtomicU32::new(0);
        let sync = || {
            syncs.fetch_add(1, SeqCst);
            Ok::<(), ()>(())
        };
        let ticket = group.ticket();
        assert!(!ticket.is_coming);
        group.sync(sync).unwrap();
        group.sync_since(ticket, || false, sync).unwrap();
        assert_eq!(syncs.load(SeqCst), 1);
        let during = Mutex::new(None);
        group
            .sync(|| {
                *during.lock().unwrap() = Some(group.ticket());
                sync()
            })
            .unwrap();
        group.sync_since(during.into_inner().unwrap().unwrap(), || false, sync).unwrap();
        assert_eq!(syncs.load(SeqCst), 3, "that one had begun before");
        let failed = group.ticket();
        assert!(group.sync(|| Err(())).is_err());
        group.sync_since(failed, || false, sync).unwrap();
        assert_eq!(syncs.load(SeqCst), 4, "that one failed");
    }

    #[test]
    fn those_who_wait_share_the_next_sync() {
        assert_eq!(run(0), (1, 0));
    }

    #[test]
    fn a_failure_is_told_to_who_saw_it_and_nobody_else_relies_on_it() {
        assert_eq!(run(3), (4, 3));
    }

    #[test]
    fn who_waits_for_the_end_of_a_sync_waits_for_that_one_only() {
        let group = GroupCommit::default();
        group.wait_for_end();
        let (began, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let group = &group;
            scope.spawn(move || {
                let synced = group.sync(|| {
                    began.send(()).unwrap();
                    may_end.recv().map_err(drop)
                });
                synced.unwrap();
            });
            has_begun.recv().unwrap();
            let waits = scope.spawn(|| group.wait_for_end());
            while group.waiting() == 0 {
                std::thread::yield_now();
            }
            assert!(!waits.is_finished());
            end.send(()).unwrap();
        });
        group.wait_for_end();
    }

    #[test]
    fn who_needs_no_more_than_a_sync_that_began_before_waits_for_that_one_only() {
        let group = GroupCommit::default();
        let is_done = AtomicU32::new(0);
        let (began, has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            let (group, is_done) = (&group, &is_done);
            scope.spawn(move || {
                let synced = group.sync(|| {
                    began.send(()).unwrap();
                    while group.waiting() == 0 {
                        std::thread::yield_now();
                    }
                    is_done.store(1, SeqCst);
                    Ok::<(), ()>(())
                });
                synced.unwrap();
            });
            has_begun.recv().unwrap();
            assert_eq!(group.sync_unless(|| is_done.load(SeqCst) > 0, || Err(())), Ok(()));
        });
        assert_eq!(group.sync_unless(|| true, || Err(())), Ok(()), "there is no need for one");
    }

    #[test]
    fn nobody_is_content_with_a_sync_that_began_before() {
        let group = GroupCommit::default();
        let mut syncs = 0;
        for _ in 0..3 {
            let synced: Result<(), ()> = group.sync(|| {
                syncs += 1;
                Ok(())
            });
            synced.unwrap();
        }
        assert_eq!(syncs, 3);
    }
}
