//! Locks that this process has, so that it can have them again after its server was started anew.
//!
//! A server that starts knows of no locks. For a moment it gives them to those only who had them ([`lock::CLAIMED`]). A session that
//! comes to a server which has nothing of it any more ([`Line::session`]) claims what stands here first, before anything else
//! is asked on any of its lines. What it does not get is *lost*: somebody else may have locked it meanwhile. Then reads and writes of
//! the file fail (EIO) until the lock is given up or the file closed: the program believes that it still has the lock.
//!
//! Locks of open files ([`crate::LockOwner::File`]) may be shared with other processes. Those as of `flock(2)` a host of this library can
//! know better than it does: see [`Shared`].
//!
//! [`Line::session`]: isonomia_transport::line::Line::session

use crate::lock::LockKind;
use crate::{Error, LockOwner, LockRange};
use isonomia_proto::fs::Capability;
use isonomia_proto::request::{RequestHeader, lock};
use isonomia_units::{Ino, ServerId};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The locks as of `flock(2)` of open files that this process shares with others, whichever of them took it: the file, the
/// number of the open file, and the kind. Where there is such a function nothing else is believed of these.
pub type Shared = fn() -> Vec<(Capability, u64, LockKind)>;

/// One of them: the request by which it was got, for these bytes, and from whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnLock {
    /// `None` if it is not known who has it.
    pub server: Option<ServerId>,
    pub request: RequestHeader,
    pub is_lost: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OwnLocks {
    is_busy: AtomicBool,
    all: UnsafeCell<Vec<OwnLock>>,
    count: AtomicUsize,
    lost: AtomicUsize,
}

// SAFETY: `all` is touched only by the thread that changed `is_busy` from false to true, or by the only one of a forked child.
unsafe impl Sync for OwnLocks {}

/// First and last byte.
fn span(request: &RequestHeader) -> (u64, u64) {
    let is_to_end = request.ino2 == 0 || request.valid & lock::WHOLE != 0;
    (request.offset, if is_to_end { u64::MAX } else { request.offset.saturating_add(request.ino2 - 1) })
}

impl OwnLock {
    /// Whether `request` is about locks of the same file, owner and family.
    fn is_beside(&self, request: &RequestHeader) -> bool {
        let of =
            |request: &RequestHeader| (request.ino, request.owner, request.valid & (lock::OPEN_FILE | lock::WHOLE));
        of(&self.request) == of(request)
    }

    /// The same lock of these bytes only.
    fn of_bytes(&self, (start, last): (u64, u64)) -> Self {
        let len = if last == u64::MAX { 0 } else { last - start + 1 };
        Self { request: RequestHeader { offset: start, ino2: len, ..self.request }, ..*self }
    }

    fn is_shared(&self) -> bool {
        self.request.valid & (lock::OPEN_FILE | lock::WHOLE) == lock::OPEN_FILE | lock::WHOLE
    }
}

impl OwnLocks {
    fn with<T>(&self, what: impl FnOnce(&mut Vec<OwnLock>) -> T) -> T {
        while self.is_busy.load(Ordering::Relaxed) || self.is_busy.swap(true, Ordering::Acquire) {
            rustix::thread::sched_yield();
        }
        // SAFETY: `is_busy` is ours until below.
        let all = unsafe { &mut *self.all.get() };
        let done = what(all);
        self.count.store(all.len(), Ordering::Relaxed);
        self.lost.store(all.iter().filter(|own| own.is_lost).count(), Ordering::Relaxed);
        self.is_busy.store(false, Ordering::Release);
        done
    }

    /// In the child of a fork, by its only thread: locks of bytes are the parent's, and of the others it knows nothing.
    pub fn forget_all(&self) {
        // SAFETY: there is no other thread. Another one of the parent may have been changing what is here when it forked: so
        // that is neither read nor dropped.
        unsafe { self.all.get().write(Vec::new()) };
        self.is_busy.store(false, Ordering::Relaxed);
        self.with(|_| ());
    }

    /// The server has given what `request` asks for; whether its owner had any of that before.
    pub fn put(&self, server: Option<ServerId>, request: &RequestHeader) -> bool {
        let has_replaced = self.cut(request);
        self.with(|all| all.push(OwnLock { server, request: *request, is_lost: false }));
        has_replaced
    }

    /// What `request` names was given up; whether there was any.
    pub fn cut(&self, request: &RequestHeader) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let (start, last) = span(request);
        self.with(|all| {
            let met: Vec<OwnLock> = all
                .extract_if(.., |own| {
                    let (first, end) = span(&own.request);
                    own.is_beside(request) && first <= last && start <= end
                })
                .collect();
            for own in &met {
                let (first, end) = span(&own.request);
                if first < start {
                    all.push(own.of_bytes((first, start - 1)));
                }
                if end > last {
                    all.push(own.of_bytes((last + 1, end)));
                }
            }
            !met.is_empty()
        })
    }

    /// Whether the owner has lost any of what `request` asks for.
    pub fn is_lost(&self, request: &RequestHeader) -> bool {
        let (start, last) = span(request);
        self.lost.load(Ordering::Relaxed) > 0
            && self.with(|all| {
                all.iter().filter(|own| own.is_lost && own.is_beside(request)).any(|own| {
                    let (first, end) = span(&own.request);
                    first <= last && start <= end
                })
            })
    }

    /// The open file `number` is closed.
    pub fn file_closed(&self, ino: Ino, number: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let is_its = |own: &OwnLock| own.request.valid & lock::OPEN_FILE != 0 && own.request.owner == number;
            self.with(|all| all.retain(|own| own.request.ino != ino.0 || !is_its(own)));
        }
    }

    /// What is to be claimed from `server`.
    pub fn of_server(&self, server: ServerId, shared: Option<Shared>) -> Vec<OwnLock> {
        let found = shared.map(|shared| {
            let locks = shared().into_iter().map(|(file, number, kind)| {
                let request = crate::lock::request(&file, LockOwner::File(number), LockRange::Whole, Some(kind));
                OwnLock { server: None, request, is_lost: false }
            });
            locks.collect::<Vec<_>>()
        });
        let is_its = |own: &&OwnLock| own.server == Some(server) && !(found.is_some() && own.is_shared());
        let mut all: Vec<OwnLock> =
            self.with(|all| all.iter().filter(is_its).filter(|own| !own.is_lost).copied().collect());
        all.extend(found.into_iter().flatten());
        all
    }

    /// The server did not give it again. What another thread has given up meanwhile is not lost.
    pub fn lose(&self, lost: &OwnLock) {
        // Of those of which others tell nothing else is known.
        if lost.server.is_none() {
            self.cut(&lost.request);
            return self.with(|all| all.push(OwnLock { is_lost: true, ..*lost }));
        }
        let (start, last) = span(&lost.request);
        self.with(|all| {
            for index in 0..all.len() {
                let own = all[index];
                let (first, end) = span(&own.request);
                if !own.is_beside(&lost.request) || first > last || start > end {
                    continue;
                }
                all[index] = OwnLock { is_lost: true, ..own.of_bytes((first.max(start), end.min(last))) };
                if first < start {
                    all.push(own.of_bytes((first, start - 1)));
                }
                if end > last {
                    all.push(own.of_bytes((last + 1, end)));
                }
            }
        });
    }

    /// EIO if a lock of the file was lost.
    pub fn check(&self, ino: Ino) -> Result<(), Error> {
        if self.lost.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let is_lost = self.with(|all| all.iter().any(|own| own.is_lost && own.request.ino == ino.0));
        if is_lost { Err(Error::Server(Errno::IO)) } else { Ok(()) }
    }

    /// Whether a process's lock of bytes is exclusive at this one.
    pub fn has_byte(&self, ino: Ino, byte: u64) -> bool {
        let is_it = |own: &OwnLock| {
            let (first, last) = span(&own.request);
            let family = own.request.valid & (lock::OPEN_FILE | lock::WHOLE | lock::EXCLUSIVE | lock::SHARED);
            own.request.ino == ino.0 && family == lock::EXCLUSIVE && (first..=last).contains(&byte)
        };
        !self.is_empty() && self.with(|all| all.iter().any(is_it))
    }

    /// Whether any may be of `server`: also those of which it is not known whose they are.
    pub fn may_be_of(&self, server: Option<ServerId>) -> bool {
        self.with(|all| all.iter().any(|own| own.server.is_none() || server.is_none() || own.server == server))
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(owner: LockOwner, start: u64, len: u64, kind: LockKind) -> RequestHeader {
        let file = Capability { ino: 7, ..Capability::default() };
        crate::lock::request(&file, owner, LockRange::Bytes { start, len }, Some(kind))
    }

    fn spans(locks: &OwnLocks) -> Vec<(u64, u64)> {
        let mut spans: Vec<_> = locks.of_server(ServerId(1), None).iter().map(|lock| span(&lock.request)).collect();
        spans.sort_unstable();
        spans
    }

    #[test]
    fn what_is_given_up_is_not_claimed() {
        let locks = OwnLocks::default();
        let (own, file) = (LockOwner::Process(0), LockOwner::File(5));
        assert!(!locks.put(Some(ServerId(1)), &request(own, 10, 90, LockKind::Exclusive)));
        assert!(
            locks.put(Some(ServerId(1)), &request(own, 20, 10, LockKind::Shared)),
            "a part of it is of another kind now"
        );
        locks.put(Some(ServerId(2)), &request(file, 0, 0, LockKind::Shared));
        assert_eq!(spans(&locks), [(10, 19), (20, 29), (30, 99)]);
        locks.cut(&request(own, 15, 10, LockKind::Shared));
        locks.cut(&request(file, 50, 0, LockKind::Shared));
        assert_eq!(spans(&locks), [(10, 14), (25, 29), (30, 99)]);
        assert!(locks.may_be_of(Some(ServerId(2))) && !locks.may_be_of(Some(ServerId(3))));
        assert_eq!(locks.of_server(ServerId(2), None).len(), 1);
        locks.file_closed(Ino(7), 6);
        locks.file_closed(Ino(7), 5);
        assert_eq!(locks.of_server(ServerId(2), None).len(), 0);
        locks.cut(&request(own, 0, 0, LockKind::Shared));
        assert!(locks.is_empty());
    }

    #[test]
    fn a_byte_is_locked_by_an_exclusive_lock_of_the_process() {
        let locks = OwnLocks::default();
        assert!(!locks.has_byte(Ino(7), 10));
        locks.put(Some(ServerId(1)), &request(LockOwner::File(5), 0, 0, LockKind::Exclusive));
        locks.put(Some(ServerId(1)), &request(LockOwner::Process(0), 0, 0, LockKind::Shared));
        assert!(!locks.has_byte(Ino(7), 10));
        locks.put(Some(ServerId(1)), &request(LockOwner::Process(0), 10, 2, LockKind::Exclusive));
        let found = [9, 10, 11, 12].map(|byte| locks.has_byte(Ino(7), byte));
        assert_eq!(found, [false, true, true, false]);
        assert!(!locks.has_byte(Ino(8), 10));
    }

    #[test]
    fn what_is_lost_closes_the_file_until_it_is_given_up() {
        let locks = OwnLocks::default();
        let own = LockOwner::Process(0);
        locks.put(Some(ServerId(1)), &request(own, 10, 90, LockKind::Exclusive));
        locks.check(Ino(7)).unwrap();
        let given_up =
            OwnLock { server: Some(ServerId(1)), request: request(own, 100, 9, LockKind::Shared), is_lost: false };
        locks.lose(&given_up);
        locks.check(Ino(7)).unwrap();
        let [lock] = locks.of_server(ServerId(1), None)[..] else { panic!("there is one") };
        locks.lose(&lock);
        assert_eq!(locks.check(Ino(7)).unwrap_err().errno(), Errno::IO);
        locks.check(Ino(8)).unwrap();
        let is_lost = |owner, start| locks.is_lost(&request(owner, start, 5, LockKind::Shared));
        assert!(is_lost(own, 95) && !is_lost(own, 100) && !is_lost(LockOwner::File(5), 95));
        assert_eq!(spans(&locks), [], "it is not claimed twice");
        locks.cut(&request(own, 0, 50, LockKind::Shared));
        locks.check(Ino(7)).unwrap_err();
        locks.put(Some(ServerId(1)), &request(own, 0, 0, LockKind::Shared));
        locks.check(Ino(7)).unwrap();
        locks.forget_all();
        assert!(locks.is_empty());
    }

    #[test]
    fn of_shared_locks_those_are_believed_who_share_them() {
        let locks = OwnLocks::default();
        let file = Capability { ino: 7, ..Capability::default() };
        let whole =
            |number| crate::lock::request(&file, LockOwner::File(number), LockRange::Whole, Some(LockKind::Shared));
        locks.put(Some(ServerId(1)), &whole(5));
        locks.put(Some(ServerId(1)), &request(LockOwner::File(5), 0, 1, LockKind::Shared));
        let shared: Shared = || vec![(Capability { ino: 9, ..Capability::default() }, 6, LockKind::Exclusive)];
        let claimed: Vec<_> = locks.of_server(ServerId(1), Some(shared)).iter().map(|lock| lock.request.ino).collect();
        assert_eq!(claimed, [7, 9], "the bytes, and what the others tell");
        assert_eq!(locks.of_server(ServerId(1), None).len(), 2);
    }
}
