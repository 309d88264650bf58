//! Which mappings this mount has or waits for, which of them are to be given back, and what the server knows of it.
//!
//! Sans I/O, as [`crate::lease`], of which there is one for each file. `F` is a fault. What is done about it is done by
//! [`crate::mapping`].

use crate::lease::Lease;
use isonomia_client::{Capability, Unsynced};
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// See the module.
pub struct Table<F> {
    /// Of every inode that is open for reading and writing.
    pub files: HashMap<u64, File<F>>,
    /// To be given back, and from when on.
    pub recalled: BTreeSet<(Instant, u64)>,
    /// Faults that wait.
    pub waiting: usize,
    /// The number of the session that the mappings were taken in; 0 if none was.
    pub session: u64,
    /// Some mapping is doubtful.
    pub has_doubts: bool,
    /// The mount ends.
    pub is_over: bool,
}

/// What is known of one inode.
pub struct File<F> {
    /// The right to its pages.
    pub lease: Lease<F>,
    /// Open files for reading and writing.
    pub writers: usize,
    /// What it was opened with.
    pub capability: Capability,
    /// Where all these open files note what was written back and not synced: the kernel does that through any of them.
    pub written_back: Unsynced,
    /// The number of the session that has the mapping, while it is here. LeaseEvents of another may be on its way.
    pub session: u64,
    /// It is to be given back, and among `recalled` from when it is here until that begins.
    pub is_recalled: bool,
    /// What the server knows.
    pub validity: Validity,
}

/// What the server knows of a mapping that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// That it is here.
    Known,
    /// Perhaps nothing: it has forgotten the session.
    Doubtful,
    /// That another mount has it: what programs have written to it here, and is not written back, is lost.
    Lost,
}

impl<F> Default for Table<F> {
    fn default() -> Self {
        let (files, recalled) = (HashMap::new(), BTreeSet::new());
        Self { files, recalled, waiting: 0, session: 0, has_doubts: false, is_over: false }
    }
}

impl<F> Table<F> {
    /// A file was opened for reading and writing.
    pub fn opened(&mut self, capability: &Capability) -> Unsynced {
        let new = || File {
            lease: Lease::default(),
            writers: 0,
            capability: *capability,
            written_back: Unsynced::default(),
            session: 0,
            is_recalled: false,
            validity: Validity::Known,
        };
        let file = self.files.entry(capability.ino).or_insert_with(new);
        file.writers += 1;
        file.written_back.clone()
    }

    /// A file that was [`Self::opened`] is closed; whether its mapping is to be given back.
    pub fn closed(&mut self, ino: u64) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return false };
        file.writers -= 1;
        if file.writers > 0 {
            return false;
        }
        self.forget_if_unused(ino);
        let remains = self.files.contains_key(&ino);
        if remains {
            self.recall(ino);
        }
        remains
    }

    /// The server knows this session. If it has known another one before, it has forgotten all mappings of that.
    pub fn meet(&mut self, session: u64) {
        let before = std::mem::replace(&mut self.session, session);
        if before != session && before != 0 {
            for file in self.files.values_mut().filter(|file| file.lease.is_here() && file.validity == Validity::Known)
            {
                file.validity = Validity::Doubtful;
                self.has_doubts = true;
            }
        }
    }

    /// A mapping is here. Gives the faults that waited for it.
    pub fn given(&mut self, ino: u64, session: u64, now: Instant) -> Vec<F> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        file.session = session;
        let faults = file.lease.given(now);
        // The server may have recalled the mapping before its answer, which gives it, was seen here.
        self.list_if_recalled(ino);
        faults
    }

    /// It is not known whether a mapping was given: it is to be given back at once. Gives the faults that waited for it.
    pub fn unsure(&mut self, ino: u64, now: Instant) -> Vec<F> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        self.recalled.insert((now, ino));
        file.lease.unsure()
    }

    /// A mapping is wanted elsewhere, or of no more use: it is to be given back when that may be.
    pub fn recall(&mut self, ino: u64) {
        let Some(file) = self.files.get_mut(&ino).filter(|file| !file.lease.is_absent()) else { return };
        file.is_recalled = true;
        self.list_if_recalled(ino);
    }

    /// Notes when a recalled mapping may be given back, which is known only once it is here.
    fn list_if_recalled(&mut self, ino: u64) {
        let Some(file) = self.files.get(&ino).filter(|file| file.is_recalled) else { return };
        self.recalled.extend(file.lease.returnable_at().map(|at| (at, ino)));
    }

    /// A mapping is no longer here. Gives what to ask for it with, if faults wait for it.
    pub fn returned(&mut self, ino: u64) -> Option<Capability> {
        let file = self.files.get_mut(&ino)?;
        file.lease.returned();
        (file.is_recalled, file.validity) = (false, Validity::Known);
        let asks = file.lease.ask().then_some(file.capability);
        self.forget_if_unused(ino);
        asks
    }

    fn forget_if_unused(&mut self, ino: u64) {
        if self.files.get(&ino).is_some_and(|file| file.writers == 0 && file.lease.is_idle()) {
            self.files.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::GRANTED_MIN;

    /// A table with one file, whose mapping is neither here nor asked for.
    fn table() -> Table<()> {
        let mut table = Table::default();
        table.opened(&Capability { ino: 7, ..Capability::default() });
        table
    }

    #[test]
    fn what_is_not_here_is_not_given_back() {
        let mut table = table();
        table.recall(7);
        table.recall(8);
        assert!(table.recalled.is_empty() && !table.files[&7].is_recalled);
    }

    #[test]
    fn what_was_recalled_on_its_way_here_is_given_back_in_its_time() {
        let mut table = table();
        let now = Instant::now();
        table.files.get_mut(&7).unwrap().is_recalled = true;
        assert!(table.given(7, 3, now).is_empty());
        assert_eq!(table.recalled.first(), Some(&(now + GRANTED_MIN, 7)));
        table.recall(7);
        assert_eq!(table.recalled.len(), 1, "once, however often it is recalled");
        assert_eq!(table.files[&7].session, 3);
    }

    #[test]
    fn what_may_be_here_is_given_back_at_once_and_known_to_no_server() {
        let mut table = table();
        table.meet(3);
        table.files.get_mut(&7).unwrap().lease.queued();
        let now = Instant::now();
        assert!(table.unsure(7, now).is_empty());
        assert_eq!(table.recalled.first(), Some(&(now, 7)));
        table.recall(7);
        table.meet(4);
        assert!(!table.has_doubts && table.recalled.len() == 1);
        assert!(table.closed(7), "until it is given back it is kept");
        assert_eq!((table.returned(7), table.files.len()), (None, 0));
    }

    #[test]
    fn a_server_that_forgot_a_session_leaves_its_mappings_in_doubt() {
        let mut table = table();
        table.meet(3);
        table.given(7, 3, Instant::now());
        table.meet(3);
        assert!(!table.has_doubts && table.files[&7].validity == Validity::Known);
        table.meet(4);
        assert!(table.has_doubts && table.files[&7].validity == Validity::Doubtful);
    }
}
