//! What each user takes of the server: connections, the memory that they share with it, and what it keeps of open files and of
//! clients that stall. Each of these has its own bound, so that whoever has all of one that he may have still has the others.
//!
//! A user may have up to a limit, and never more than is still free: so one user gets half, two a third each, and however many there are, the
//! next one finds as much as each of them has. The server's own user and root, who could take everything anyhow, leave an
//! eighth to the others.

use crate::limits::Limits;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of everything that operators leave to users.
const LEFT_BY_OPERATORS: u64 = 8;

/// What is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    connections: u64,
    memory_bytes: u64,
    stall_bytes: u64,
    file_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Usage {
    limits: Limits,
    /// Of everybody, and of each user who has anything.
    taken: Mutex<(Taken, HashMap<u32, Taken>)>,
}

/// The permit of one connection, out of those of its user; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    usage: Arc<Usage>,
    uid: u32,
    is_operator: bool,
    memory_bytes: u64,
    /// Memory that its request has taken for the case that the client stalls.
    stall_bytes: AtomicU64,
}

/// A user has as much as he may, or nothing is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "user {uid} has {has} {what} and may not have more: {most} at most (limits.{key}_per_user), and as many as are \
     left, now {free} of {all} (limits.{key})"
)]
pub struct Exceeded {
    uid: u32,
    what: &'static str,
    key: &'static str,
    has: u64,
    most: u64,
    free: u64,
    all: u64,
}

impl Exceeded {
    /// Whether it is memory that was asked too much of, not connections.
    pub fn is_memory(&self) -> bool {
        self.key == "memory"
    }
}

impl Usage {
    /// Nothing is taken.
    pub fn new(limits: Limits) -> Self {
        Self { limits, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, (Taken, HashMap<u32, Taken>)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one more connection of `uid`, which shares so much memory.
    pub fn take(self: &Arc<Self>, uid: u32, is_operator: bool, memory_bytes: u64) -> Result<Permit, Exceeded> {
        self.add(uid, is_operator, Taken { connections: 1, memory_bytes, ..Taken::default() })?;
        let stall_bytes = AtomicU64::new(0);
        Ok(Permit { usage: self.clone(), uid, is_operator, memory_bytes, stall_bytes })
    }

    fn add(&self, uid: u32, is_operator: bool, more: Taken) -> Result<(), Exceeded> {
        let limits = &self.limits;
        let mut taken = self.taken();
        let (all, users) = &mut *taken;
        let has = users.get(&uid).copied().unwrap_or_default();
        let check = |(what, key), has: u64, wants: u64, in_use: u64, most: u64, max: u64| {
            let free = max.saturating_sub(in_use);
            let fits = if is_operator {
                in_use + wants <= max - max / LEFT_BY_OPERATORS
            } else {
                // The first of a user always fits, if anything is left.
                wants <= free && has + wants <= most && (has == 0 || has + wants <= free)
            };
            if fits || wants == 0 { Ok(()) } else { Err(Exceeded { uid, what, key, has, most, free, all: max }) }
        };
        let connections = ("connections", "connections");
        let (most, max) = (limits.connections_per_user, limits.connections);
        check(connections, has.connections, more.connections, all.connections, most, max)?;
        let memory = ("bytes of shared memory", "memory");
        let (most, max) = (limits.memory_bytes_per_user, limits.memory_bytes);
        check(memory, has.memory_bytes, more.memory_bytes, all.memory_bytes, most, max)?;
        let stalls = ("bytes for clients that stall", "memory");
        let (most, max) = (limits.stall_bytes.div_ceil(2), limits.stall_bytes);
        check(stalls, has.stall_bytes, more.stall_bytes, all.stall_bytes, most, max)?;
        let files = ("bytes for open files", "memory");
        let (most, max) = (limits.file_bytes.div_ceil(2), limits.file_bytes);
        check(files, has.file_bytes, more.file_bytes, all.file_bytes, most, max)?;
        for taken in [all, users.entry(uid).or_default()] {
            taken.file_bytes += more.file_bytes;
            taken.stall_bytes += more.stall_bytes;
            taken.connections += more.connections;
            taken.memory_bytes += more.memory_bytes;
        }
        Ok(())
    }

    fn give_back(&self, uid: u32, less: Taken) {
        let mut taken = self.taken();
        let (all, users) = &mut *taken;
        let Some(own) = users.get_mut(&uid) else { return };
        for taken in [all, &mut *own] {
            taken.connections -= less.connections;
            taken.memory_bytes -= less.memory_bytes;
            taken.stall_bytes -= less.stall_bytes;
            taken.file_bytes -= less.file_bytes;
        }
        if *own == Taken::default() {
            users.remove(&uid);
        }
    }
}

/// The account for what outlives a connection.
#[derive(Clone, Debug)]
pub struct Account {
    usage: Arc<Usage>,
    uid: u32,
    is_operator: bool,
}

impl Account {
    /// Takes so much memory for open files; false if the user may not have it.
    pub fn take_for_files(&self, file_bytes: u64) -> bool {
        self.usage.add(self.uid, self.is_operator, Taken { file_bytes, ..Taken::default() }).is_ok()
    }

    /// Gives so much of that back.
    pub fn give_back_for_files(&self, file_bytes: u64) {
        self.usage.give_back(self.uid, Taken { file_bytes, ..Taken::default() });
    }
}

impl Permit {
    /// The account that it is of.
    pub fn account(&self) -> Account {
        Account { usage: self.usage.clone(), uid: self.uid, is_operator: self.is_operator }
    }

    /// One more permit of the same user, for what takes a descriptor as a connection does, and so much memory.
    pub fn beside(&self, memory_bytes: u64) -> Result<Self, Exceeded> {
        self.usage.take(self.uid, self.is_operator, memory_bytes)
    }

    /// Takes as much memory as makes it `memory_bytes` in all, unless it has that.
    pub fn grow(&mut self, memory_bytes: u64) -> Result<(), Exceeded> {
        let more = memory_bytes.saturating_sub(self.memory_bytes);
        self.usage.add(self.uid, self.is_operator, Taken { memory_bytes: more, ..Taken::default() })?;
        self.memory_bytes += more;
        Ok(())
    }

    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Takes so many bytes in case that the client stalls in the middle of a request; false if the user may not have them now.
    pub fn take_for_stall(&self, bytes: u64) -> bool {
        let fits = self.usage.add(self.uid, self.is_operator, Taken { stall_bytes: bytes, ..Taken::default() }).is_ok();
        if fits {
            self.stall_bytes.fetch_add(bytes, Ordering::SeqCst);
        }
        fits
    }

    /// Whether it has any of these.
    pub fn has_for_stall(&self) -> bool {
        self.stall_bytes.load(Ordering::SeqCst) > 0
    }

    /// Gives these back; false if it had none.
    pub fn give_back_for_stall(&self) -> bool {
        // Most requests are short.
        let bytes = if self.has_for_stall() { self.stall_bytes.swap(0, Ordering::SeqCst) } else { 0 };
        if bytes > 0 {
            self.usage.give_back(self.uid, Taken { stall_bytes: bytes, ..Taken::default() });
        }
        bytes > 0
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let stall_bytes = self.stall_bytes.load(Ordering::SeqCst);
        let (connections, memory_bytes) = (1, self.memory_bytes);
        self.usage.give_back(self.uid, Taken { connections, memory_bytes, stall_bytes, file_bytes: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitsConfig;

    fn usage(text: &str) -> Arc<Usage> {
        let config: LimitsConfig = toml::from_str(text).unwrap();
        Arc::new(Usage::new(Limits::settle(&config, 20_000, 0, 8 << 30).unwrap()))
    }

    fn fill(usage: &Arc<Usage>, uid: u32) -> Vec<Permit> {
        std::iter::from_fn(|| usage.take(uid, false, 1).ok()).collect()
    }

    #[test]
    fn one_user_gets_half_two_a_third_and_somebody_always_something() {
        let usage = usage("connections = 120");
        let first = fill(&usage, 1);
        assert_eq!(first.len(), 60);
        drop(first);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        while let (Ok(a), Ok(b)) = (usage.take(1, false, 1), usage.take(2, false, 1)) {
            first.push(a);
            second.push(b);
        }
        assert!((39..=41).contains(&first.len()), "{}", first.len());
        let third = fill(&usage, 3);
        assert!((19..=21).contains(&third.len()), "{}", third.len());
        let rest: Vec<Vec<Permit>> = (4..100).map(|uid| fill(&usage, uid)).take_while(|got| !got.is_empty()).collect();
        assert!(rest.len() >= 5, "{} more users got something", rest.len());
        drop((first, second, third, rest));
        assert_eq!(*usage.taken(), (Taken::default(), HashMap::new()));
    }

    #[test]
    fn memory_for_stalls_is_each_users_own_and_given_back() {
        let usage = usage("memory = \"64MiB\"");
        let permits = |uid, is_operator| -> Vec<Permit> {
            let one = || usage.take(uid, is_operator, 1).unwrap();
            std::iter::repeat_with(one).take_while(|permit| permit.take_for_stall(1 << 20)).take(100).collect()
        };
        let hostile = permits(5, false);
        assert_eq!(hostile.len(), 32, "half of 64 MiB");
        assert_eq!(permits(6, false).len(), 16);
        assert_eq!(permits(0, true).len(), 24, "operators leave an eighth");
        assert!(hostile[0].has_for_stall() && hostile[0].give_back_for_stall());
        assert!(!hostile[0].has_for_stall() && !hostile[0].give_back_for_stall());
        assert!(hostile[1].take_for_stall(1 << 20) && !hostile[2].take_for_stall(1));
        drop(hostile);
        assert_eq!(*usage.taken(), (Taken::default(), HashMap::new()));
    }

    #[test]
    fn operators_leave_something_and_memory_is_counted_apart() {
        let usage = usage("connections = 80\nmemory = \"1000B\"\nmemory_per_user = \"300B\"");
        let own: Vec<_> = std::iter::from_fn(|| usage.take(0, true, 0).ok()).collect();
        assert_eq!(own.len(), 70);
        assert!(usage.take(5, false, 0).is_ok());
        drop(own);
        let _permit = usage.take(5, false, 200).unwrap();
        let error = usage.take(5, false, 200).unwrap_err();
        assert!(error.is_memory());
        let text = error.to_string();
        assert!(text.contains("user 5 has 200 bytes of shared memory") && text.contains("300 at most"), "{text}");
        assert!(text.contains("limits.memory_per_user") && text.contains("800 of 1000"), "{text}");
    }
}
