//! Which writes are kept, and how they go on.

use crate::connection::Pending;
use crate::core::Core;
use crate::engine::Task;
use crate::execute;
use isonomia_proto::request::Op;
use isonomia_store::ObjectPlace;
use isonomia_units::Ino;
use std::collections::BTreeSet;

impl Core {
    /// Keeps a write to a file that rests until it may be queued; gives back what need not wait, or could not.
    pub(crate) fn keep_first_write(&self, pending: Pending) -> Option<Pending> {
        if pending.op != Op::Write || !execute::is_first_write(self, &pending.connection, &pending.header) {
            return Some(pending);
        }
        self.first_writes.keep(pending, || self.submit(&self.targets[0], Task::FirstWrites).is_ok())
    }

    /// Has all files known as being written that are about to be, and queues their writes, until none is left.
    pub fn serve_first_writes(&self) {
        loop {
            let waiting = self.first_writes.take();
            if waiting.is_empty() {
                return;
            }
            let (mut files, mut objects) = (BTreeSet::new(), BTreeSet::new());
            // Nobody waits for what was asked on a connection that was closed meanwhile.
            for Pending { header, .. } in waiting.iter().filter(|pending| !pending.connection.is_closed()) {
                if header.is_for_object() {
                    objects.insert(ObjectPlace::of(&header.object_capability()));
                } else {
                    files.insert(Ino(header.ino));
                }
            }
            let (files, objects): (Vec<_>, Vec<_>) = (files.into_iter().collect(), objects.into_iter().collect());
            // Each write tries what failed once more, and tells its program.
            let _ = self.store.begin_writing(&files, &objects);
            waiting.into_iter().for_each(|pending| self.queue_kept(pending));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, testing};
    use isonomia_proto::fs::{Capability, access};
    use isonomia_proto::request::RequestHeader;
    use isonomia_store::{Caller, OpenHow};
    use isonomia_testbed::skip;
    use isonomia_units::{JobInfo, Nanos};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    const COUNT: usize = 20;

    /// Files that rest; nothing where the directory is in memory, which has nothing to wait for.
    fn at_rest(core: &Core) -> Option<Vec<Capability>> {
        if core.store.objects().is_volatile() {
            skip("temporary directories are in memory");
            return None;
        }
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let open = |number: usize| {
            let name = number.to_string();
            let opened = core.store.open_file(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &how, clock::wall()).unwrap();
            core.store.write(opened.ino, 0, b"first", clock::wall()).unwrap();
            opened.capability
        };
        let files = (0..COUNT).map(open).collect();
        (0..2).for_each(|_| core.store.settle().unwrap());
        Some(files)
    }

    /// A write to the beginning of a file, by a job that the target knows.
    fn writes(core: &Core) -> impl Fn(&Capability) -> Pending {
        let info = JobInfo::new("j", "u", "g");
        let job = core.jobs.join(info.clone()).unwrap().job;
        core.targets[1].set_job(Nanos::ZERO, job.id, &info);
        move |file| {
            let header = RequestHeader { len: 1, ..RequestHeader::with_capability(Op::Write, file) };
            Pending { header, ..testing::write(&job) }
        }
    }

    #[test]
    fn writes_to_files_that_rest_are_queued_once_these_are_known_as_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let core = testing::core(dir.path(), false);
        let Some(files) = at_rest(&core) else { return };
        let write = writes(&core);
        for file in &files {
            assert!(core.keep_first_write(write(file)).is_none());
        }
        while core.targets[1].waiting() < COUNT {
            std::thread::yield_now();
        }
        assert!(!files.iter().any(|file| core.store.rests(Ino(file.ino))));
        assert!(core.keep_first_write(write(&files[0])).is_some(), "another one has nothing to wait for");
        core.targets[0].engine.stop();
    }

    #[test]
    fn a_write_whose_connection_is_closed_meanwhile_is_not_queued_and_what_it_owed_is_owed_again() {
        let dir = tempfile::tempdir().unwrap();
        let core = testing::core(dir.path(), false);
        let Some(files) = at_rest(&core) else { return };
        let write = Pending { owed: Nanos(7), ..writes(&core)(&files[0]) };
        let connection = write.connection.clone();
        // Before a thread takes it.
        assert!(core.first_writes.keep(write, || true).is_none());
        connection.is_closed.store(true, Ordering::Release);
        core.serve_first_writes();
        assert!(core.targets[1].is_empty() && core.store.rests(Ino(files[0].ino)));
        assert_eq!(connection.job.debts.take(false), Nanos(7));
    }

    #[test]
    fn who_may_not_write_changes_nothing_and_where_there_is_no_thread_nobody_waits_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let core: Arc<Core> = testing::core(dir.path(), false);
        let Some(files) = at_rest(&core) else { return };
        let write = writes(&core);
        let forged = Capability { mac: 1, ..files[0] };
        assert!(core.keep_first_write(write(&forged)).is_some());
        core.targets[0].engine.stop();
        assert!(core.keep_first_write(write(&files[0])).is_some());
        assert!(core.first_writes.take().is_empty());
        assert!(core.store.rests(Ino(files[0].ino)));
    }
}
