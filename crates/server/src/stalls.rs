//! Memory for clients on TCP that stall in the middle of a payload or a reply.
//!
//! Such a client is put aside with what it has: a payload that is not all here, or a reply that is not all gone. Up to
//! [`SMALL_LEN`] the connection has room for that, and pays for it when it is set up. A longer one has memory from when its turn
//! has come until its payload is here and used, or its reply has gone, out of what its user may have ([`crate::usage`]). If there is
//! none, the request waits: its device serves others, and when something is given back it goes on without another turn. So
//! whoever stalls on every connection that he has keeps himself waiting, nobody is cut off for want of memory, and there is a
//! bound to all of it.
//!
//! Who waits has nothing of what he waits for, and who has memory waits for nothing but the device and his client. A client
//! that moves nothing for a while is cut off ([`crate::intake`]).

mod memory;

use crate::requests::{REPLY_LEN_MAX, Work};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Payloads and replies up to this length take no memory but that of their connection.
pub const SMALL_LEN: usize = 64 << 10;
const _: () = assert!(SMALL_LEN >= REPLY_LEN_MAX);

/// Requests that wait for memory: one of a connection at most.
#[derive(Default)]
pub struct Stalls {
    queue: Mutex<Queue>,
    /// Requests that wait, and those that are being looked at whether they have to.
    waiting: AtomicUsize,
    /// Requests that have got their memory.
    ready: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    /// Of each user who has any, in the order in which they are looked at; those of one go in the order in which they came.
    users: VecDeque<(u32, BTreeMap<u64, Box<Work>>)>,
    ready: VecDeque<Box<Work>>,
    last: u64,
}

impl Stalls {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives what is free to those who wait for it; true if anybody got something.
    fn hand_out(&self) -> bool {
        let mut queue = self.queue();
        let before = queue.ready.len();
        for _ in 0..queue.users.len() {
            let Some((uid, mut works)) = queue.users.pop_front() else { break };
            while let Some(entry) = works.first_entry() {
                let pending = &entry.get().pending;
                if !pending.connection.permit.take_for_stall(u64::from(pending.header.len)) {
                    break;
                }
                queue.ready.push_back(entry.remove());
            }
            if !works.is_empty() {
                queue.users.push_back((uid, works));
            }
        }
        let count = queue.ready.len() - before;
        self.ready.store(queue.ready.len(), Ordering::Release);
        self.waiting.fetch_sub(count, Ordering::SeqCst);
        count > 0
    }

    /// A request that has got its memory, and goes on.
    pub fn next_ready(&self) -> Option<Box<Work>> {
        if self.ready.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.queue();
        let work = queue.ready.pop_front();
        self.ready.store(queue.ready.len(), Ordering::Release);
        work
    }

    /// Takes a request out that waits under this number.
    pub fn remove(&self, uid: u32, number: u64) -> Option<Box<Work>> {
        let mut queue = self.queue();
        let at = queue.users.iter().position(|(user, _)| *user == uid)?;
        let works = &mut queue.users.get_mut(at)?.1;
        let work = works.remove(&number)?;
        if works.is_empty() {
            queue.users.remove(at);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(work)
    }
}
