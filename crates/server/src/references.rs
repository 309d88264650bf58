//! What the rest of the server does for sessions: taking references, giving them back, ending what goes with them.

use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use crate::locks::{Family, Lock, Owner, Scope};
use crate::mapping;
use crate::mappings::SessionId;
use crate::refusal::Refusal;
use crate::sessions::{self, Left, Reserved, SessionKey};
use isonomia_store::StoreError;
use isonomia_units::{Ino, Nanos};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;

impl Core {
    /// One connection of the session less; with the last, the session gives up what it has.
    pub fn leave_session(&self, key: SessionKey) {
        // Whoever freezes a volume must find what the session has written: in the table of sessions, or, because it waits for
        // this passage to end, where it is put below.
        let _passage = self.store.namespace().passage();
        // The same holds for its open files, whose locks are given up by whoever finds them nowhere.
        let mut queue = self.release_queue.lock();
        let Some((session, left)) = self.sessions.leave(key) else { return };
        let was_noted = left.was_noted;
        if was_noted {
            self.holders.ended(key, session.clone());
        }
        let has_next_program = session.hands_over.load(Ordering::Relaxed);
        let too_many = queue.keep(clock::now(), key, left, has_next_program);
        drop(queue);
        if !was_noted {
            // It may have a request for lease events all the same.
            self.end_mappings((key.0, session.number));
        }
        self.phases.forget_session(&self.bell, session.number);
        too_many.into_iter().for_each(|left| self.give_back(&left));
        self.caretaker.get().into_iter().for_each(Thread::unpark);
    }

    /// Takes all mappings from a session that has ended, and tells those who wait for them.
    fn end_mappings(&self, session: SessionId) {
        self.mappings.end(session).into_iter().for_each(|told| mapping::answer(self, told));
    }

    /// To be called after a lock or a mapping was given to a session that turns out to have ended: it gives up what it has
    /// once more.
    pub fn session_ended(&self, key: SessionKey, session: Arc<sessions::Session>) {
        self.holders.ended(key, session);
        self.caretaker.get().into_iter().for_each(Thread::unpark);
    }

    /// Notes who will have a lock: the session, or all that have the open file.
    pub fn note_holders(&self, connection: &Connection, ino: Ino, owner: Owner) {
        self.holders.note(&self.store, connection.session_key, &connection.session);
        if let Owner::File(number) = owner
            && !self.locks.has_file_lock(ino, number)
        {
            let sessions = self.sessions.of_reference(ino, number);
            sessions.into_iter().for_each(|(key, session)| self.holders.note(&self.store, key, &session));
        }
    }

    /// Notes a session that has come to have an open file which is locked.
    pub fn note_if_locked(&self, connection: &Connection, ino: Ino, number: u64) {
        if self.locks.has_file_lock(ino, number) {
            self.holders.note(&self.store, connection.session_key, &connection.session);
        }
    }

    /// Has sessions that have ended give up their locks and mappings, and tells new ones when they may have any. Afterwards it
    /// is time for [`Self::release_due`]. May wait for the storage.
    pub fn end_holders(&self, now: Nanos) -> Result<(), StoreError> {
        let has = |session: &sessions::Session, (uid, _): SessionKey| {
            // Locks of open files end with the references that the session had. These are not looked through here, so if there
            // are any such locks, some may be the session's.
            let has_locks = self.locks.are_there_any_of_files() || self.locks.has_any(Scope::Session(session.number));
            has_locks || self.mappings.any_of((uid, session.number))
        };
        let mounts = self.cut_off_mounts();
        let is_unfinished = |session: &sessions::Session, key| {
            self.unfinished.has_any(key) || self.is_mount_unfinished(session, &mounts)
        };
        let ended = self.holders.strike(&self.store, now, (has, is_unfinished))?;
        self.locks.release_all(ended.iter().map(|(_, session)| Scope::Session(session.number)));
        for ((uid, _), session) in ended {
            self.end_mappings((uid, session.number));
        }
        Ok(())
    }

    /// Whether the lock in the way belongs to a process whose connections have ended, so that it will be given up when the server
    /// has noted that. On a local file system such a lock is free as soon as anybody can know of the process's end.
    pub fn is_given_up_soon(&self, ino: Ino, family: Family, wanted: &Lock) -> bool {
        match self.locks.conflict(ino, family, wanted).map(|lock| lock.owner) {
            None => true,
            Some(Owner::Process { session, .. }) => {
                !self.is_any_there(&[session])
                    && !self.unfinished.has_any_of(session)
                    && !self.is_kept_by_mount(session)
            }
            Some(Owner::File(number)) => {
                let sessions = self.sessions.of_reference(ino, number);
                let numbers: Vec<u64> = sessions.iter().map(|(_, session)| session.number).collect();
                !self.is_any_there(&numbers) && !self.is_held_back(ino, number)
            }
        }
    }

    /// Registers a reference that the store has counted for the session in the room that was `reserved` for it, or gives it
    /// back to the store: the session has ended meanwhile.
    pub fn add_reference(&self, reserved: Reserved<'_>, ino: Ino, number: u64) -> Result<(), Refusal> {
        let taken = reserved.take(ino, number, self.store.namespace().lost_writes(ino));
        if taken.is_err() {
            self.store.release(ino)?;
        }
        Ok(taken?)
    }

    /// Gives back one reference of the session to `ino` as the open file `number`, if it has one.
    pub fn release(&self, connection: &Connection, ino: Ino, number: u64) -> Result<(), StoreError> {
        if connection.session.release(ino, number) {
            self.store.release(ino)?;
            self.file_closed(ino, number);
        } else if connection.session.forget_writer(ino) {
            self.lost_writer(ino);
        }
        Ok(())
    }

    /// Notes that the session is given a capability to write the objects of a spread file.
    pub fn add_writer(&self, connection: &Connection, ino: Ino) -> Result<(), Refusal> {
        self.store.note_writer(ino, clock::wall())?;
        Ok(connection.session.add_writer(ino)?)
    }

    /// Has a spread file cut that may have bytes behind its end of which nobody will tell.
    pub fn lost_writer(&self, ino: Ino) {
        match self.store.namespace().note_loose(ino) {
            Ok(()) => {}
            // It is gone, or elsewhere.
            Err(StoreError::Stale) => return,
            Err(error) => tracing::warn!(%ino, %error, "a file that lost a writer cannot be looked at"),
        }
        if let Some(cluster) = self.cluster.get() {
            cluster.has_loose();
        }
    }

    fn give_back(&self, left: &Left) {
        // Before the references are given back: with the last one the inode may leave the memory.
        left.writes.iter().for_each(|ino| self.lost_writer(*ino));
        for ((ino, number), count) in left.references.iter().copied() {
            for _ in 0..count {
                if let Err(error) = self.store.release(ino) {
                    tracing::warn!(%ino, %error, "cannot give back a reference");
                }
            }
            self.file_closed(ino, number);
        }
    }

    /// A session gave up the open file `number`: if it was the last, its locks go.
    pub fn file_closed(&self, ino: Ino, number: u64) {
        let is_had = || self.sessions.any_has_reference(ino, number) || self.is_held_back(ino, number);
        if self.locks.has_file_lock(ino, number) && !is_had() {
            self.locks.release_all([Scope::File(number)]);
        }
    }

    /// Whether a session that has ended, and still changes something, had this open file.
    fn is_held_back(&self, ino: Ino, number: u64) -> bool {
        self.release_queue.of_reference(ino, number).into_iter().any(|key| self.unfinished.has_any(key))
    }

    /// Gives back what sessions had that ended long enough before `now`, if it is noted that they have no locks.
    pub fn release_due(&self, now: Nanos) {
        let _passage = self.store.namespace().passage();
        // What was unfinished when notes were struck out may be finished by now.
        let is_unfinished = |key| self.unfinished.has_any(key) || self.holders.is_to_be_struck(key);
        self.release_queue.due(now, is_unfinished).iter().for_each(|left| self.give_back(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute;
    use crate::limits::{Limits, LimitsConfig};
    use crate::locks::Span;
    use crate::sessions::MountKey;
    use crate::target::Action;
    use crate::testing;
    use crate::unfinished::FINISHED_WITHIN;
    use crate::usage::Usage;
    use isonomia_proto::request::{Op, OpenReply, ReplyHeader, RequestHeader, flag, lock};
    use isonomia_units::JobInfo;
    use rustix::event::{EventfdFlags, eventfd};
    use std::sync::Arc;
    use zerocopy::FromBytes;

    const KEY: SessionKey = (0, 7);

    struct Fixture {
        core: std::sync::Arc<Core>,
        usage: Arc<Usage>,
        _dir: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let core = testing::core(dir.path(), true);
            let limits = Limits::settle(&LimitsConfig::default(), 20_000, 0, 8 << 30).unwrap();
            core.holders.begin(clock::now());
            Self { core, usage: Arc::new(Usage::new(limits)), _dir: dir }
        }

        /// A connection of the session of [`KEY`].
        fn connect(&self) -> Arc<Connection> {
            self.connect_as(KEY)
        }

        fn connect_as(&self, key: SessionKey) -> Arc<Connection> {
            self.connect_of(key, None)
        }

        fn connect_of(&self, key: SessionKey, mount: Option<MountKey>) -> Arc<Connection> {
            let job = self.core.jobs.join(JobInfo::new("j", "u", "g")).unwrap().job;
            let permit = self.usage.take(key.0, false, 0).unwrap();
            let session = self.core.sessions.join(key);
            mount.iter().for_each(|mount| _ = session.mount.set(*mount));
            let connection = Arc::new(Connection { mount, ..Connection::of_root(job, session, key, permit) });
            self.core.unfinished.enter(&connection);
            connection
        }

        /// Serves a request as a worker does that saw the connection open, also if it has been closed since.
        fn serve(&self, connection: &Connection, header: RequestHeader, names: &[u8]) -> (ReplyHeader, Vec<u8>) {
            let mut room = vec![0; 16 << 10];
            let header = RequestHeader { path_len: names.len() as u16, ..header };
            let op = header.check().unwrap();
            let outcome = execute::serve(&self.core, connection, &header, op, names, &mut room);
            let execute::Outcome::Served(reply) = outcome else { panic!("there is no cluster") };
            room.truncate(reply.payload_len as usize);
            (reply, room)
        }

        fn create(&self, connection: &Connection, name: &[u8]) -> (ReplyHeader, Option<OpenReply>) {
            let mut header = RequestHeader::new(Op::Open, Ino::ROOT);
            (header.flags, header.len, header.mode, header.owner) = (flag::CREATE, 3, 0o600, 5);
            let (reply, payload) = self.serve(connection, header, name);
            (reply, OpenReply::read_from_prefix(&payload).ok().map(|(opened, _)| opened))
        }

        /// Whether nobody has the file open: without its name it is gone.
        fn is_free(&self, ino: u64, name: &[u8]) -> bool {
            self.core.release_due(clock::now());
            let caller = &isonomia_store::Caller::ROOT;
            self.core.store.unlink(caller, Ino::ROOT, name, clock::wall()).unwrap();
            self.core.store.get_attr(caller, Ino(ino), b"", false).is_err()
        }
    }

    #[test]
    fn a_request_that_is_served_while_its_session_ends_leaves_no_reference() {
        let fixture = Fixture::new();
        let other = fixture.connect();
        let (_, opened) = fixture.create(&other, b"kept");
        let kept = opened.unwrap().capability;
        fixture.core.close(&other, None);

        // For each request that registers something: a worker has seen the connection open, the connection is closed, and
        // the worker goes on to serve the request.
        let connection = fixture.connect();
        fixture.core.close(&connection, None);
        let (reply, _) = fixture.create(&connection, b"created");
        assert_ne!(reply.errno, 0);
        let (reply, _) = fixture.serve(&connection, RequestHeader::with_capability(Op::Adopt, &kept), b"");
        assert_ne!(reply.errno, 0);
        let root = &isonomia_store::Caller::ROOT;
        assert!(fixture.core.store.get_attr(root, Ino::ROOT, b"created", false).is_err(), "nobody is there to have it");
        assert!(fixture.is_free(kept.ino, b"kept"));
    }

    #[test]
    fn an_open_that_is_one_too_many_makes_and_cuts_nothing() {
        let fixture = Fixture::new();
        let connection = fixture.connect();
        let (_, opened) = fixture.create(&connection, b"kept");
        let (ino, root) = (Ino(opened.unwrap().capability.ino), isonomia_store::Caller::ROOT);
        fixture.core.store.write(ino, 0, b"content", clock::wall()).unwrap();
        while connection.session.add_reference(ino, 1).is_ok() {}
        let (reply, _) = fixture.create(&connection, b"made");
        assert_eq!(reply.errno, rustix::io::Errno::MFILE.raw_os_error() as u32);
        let mut header = RequestHeader::new(Op::Open, Ino::ROOT);
        (header.flags, header.len) = (flag::CREATE | flag::TRUNCATE, 3);
        assert_eq!(fixture.serve(&connection, header, b"kept").0.errno, reply.errno);
        let attr = |name| fixture.core.store.get_attr(&root, Ino::ROOT, name, false);
        assert!(attr(b"made").is_err());
        assert_eq!(attr(b"kept").unwrap().size_bytes, 7);
        assert!(connection.session.release(ino, 1));
        assert_eq!(fixture.serve(&connection, header, b"kept").0.errno, 0);
        assert_eq!(attr(b"kept").unwrap().size_bytes, 0);
    }

    #[test]
    fn what_was_registered_before_the_end_goes_with_it() {
        let fixture = Fixture::new();
        let connection = fixture.connect();
        let (_, opened) = fixture.create(&connection, b"f");
        let ino = opened.unwrap().capability.ino;
        fixture.core.close(&connection, None);
        assert!(fixture.is_free(ino, b"f"));
    }

    #[test]
    fn nobody_else_gets_a_lock_while_its_owner_still_writes() {
        let fixture = Fixture::new();
        let (connection, has_whole) = (fixture.connect(), lock::EXCLUSIVE | lock::WHOLE | lock::OPEN_FILE);
        let (_, opened) = fixture.create(&connection, b"f");
        let capability = opened.unwrap().capability;
        for valid in [lock::EXCLUSIVE, has_whole] {
            let header = RequestHeader { valid, owner: 5, ..RequestHeader::with_capability(Op::Lock, &capability) };
            assert_eq!(fixture.serve(&connection, header, b"").0.errno, 0);
        }
        // A worker has begun to write, and waits for the device.
        let change = connection.changes.begin(&connection.is_closed).unwrap();
        fixture.core.close(&connection, None);
        let ends = || {
            fixture.core.end_holders(clock::now()).unwrap();
            fixture.core.release_due(clock::now());
        };
        ends();
        assert!(fixture.core.locks.are_there_any_of_files() && fixture.core.unfinished.has_any(KEY));
        assert!(fixture.core.locks.has_any(Scope::Session(connection.session.number)));
        drop(change);
        ends();
        assert!(!fixture.core.locks.are_there_any());
        assert!(connection.changes.begin(&connection.is_closed).is_none(), "what comes now would come after others");
    }

    #[test]
    fn nobody_else_gets_a_mounts_lock_while_another_client_of_it_may_write() {
        let fixture = Fixture::new();
        let keeper = fixture.connect_of(KEY, Some(1));
        let others = [(8, 1), (9, 1), (10, 2)].map(|(client, mount)| fixture.connect_of((0, client), Some(mount)));
        let [writing, idle, of_another] = &others;
        let stranger = fixture.connect_as((0, 11));
        let (_, opened) = fixture.create(&keeper, b"f");
        let capability = opened.unwrap().capability;
        let exclusive =
            RequestHeader { valid: lock::EXCLUSIVE, ..RequestHeader::with_capability(Op::Lock, &capability) };
        assert_eq!(fixture.serve(&keeper, exclusive, b"").0.errno, 0);
        let change = writing.changes.begin(&writing.is_closed).unwrap();
        fixture.core.close(&keeper, None);
        // The keeper comes again before anybody has looked.
        let again = fixture.connect_of(KEY, Some(1));
        fixture.core.end_holders(clock::now()).unwrap();
        assert!(writing.is_closed() && idle.is_closed());
        assert!(!of_another.is_closed() && !stranger.is_closed() && !again.is_closed());
        let has_lock = || fixture.core.locks.has_any(Scope::Session(keeper.session.number));
        assert!(has_lock(), "a write is under way");
        // Who is cut off comes again, and is left alone.
        let next = fixture.connect_of((0, 9), Some(1));
        drop(change);
        fixture.core.end_holders(clock::now()).unwrap();
        assert!(!has_lock() && !next.is_closed());

        // A session without locks ends without that.
        fixture.core.close(&again, None);
        fixture.core.end_holders(clock::now()).unwrap();
        assert!(!next.is_closed());
    }

    #[test]
    fn a_process_waits_until_the_end_of_its_connection_is_noticed() {
        let fixture = Fixture::new();
        let (unfinished, now) = (&fixture.core.unfinished, Nanos::from_secs(50));
        let (connection, other) = (fixture.connect(), fixture.connect());
        // Nobody is at its other end, and it is not closed yet.
        assert!(unfinished.holds_back(KEY, now) && !unfinished.has_any(KEY) && !unfinished.holds_back((0, 8), now));
        let change = connection.changes.begin(&connection.is_closed).unwrap();
        let others = other.changes.begin(&other.is_closed).unwrap();
        fixture.core.close(&connection, None);
        fixture.core.close(&other, None);
        unfinished.sweep();
        assert!(
            unfinished.holds_back(KEY, now)
                && unfinished.has_any(KEY)
                && unfinished.has_any_of(connection.session.number)
        );
        // The device hangs: the process waits for no longer than it may, however often it has tried meanwhile.
        assert!(unfinished.holds_back(KEY, now + FINISHED_WITHIN - Nanos(1)));
        assert!(!unfinished.holds_back(KEY, now + FINISHED_WITHIN) && unfinished.has_any(KEY));
        drop((change, others));
        assert!(!unfinished.holds_back(KEY, now) && !unfinished.has_any_of(connection.session.number));
        unfinished.sweep();
    }

    #[test]
    fn whoever_waits_for_the_end_of_a_connection_is_told_of_it() {
        let fixture = Fixture::new();
        let (unfinished, bell) = (&fixture.core.unfinished, eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        unfinished.set_bell(bell.try_clone().unwrap());
        let is_rung = || rustix::io::read(&bell, &mut [0; 8]).is_ok();
        let connection = fixture.connect();
        fixture.core.close(&connection, None);
        assert!(!unfinished.holds_back(KEY, Nanos::ZERO) && !is_rung(), "nobody waited");
        let (connection, other) = (fixture.connect(), fixture.connect());
        assert!(unfinished.holds_back(KEY, Nanos::ZERO) && !is_rung());
        fixture.core.close(&connection, None);
        assert!(is_rung());
        fixture.core.close(&other, None);
        assert!(!is_rung(), "he has been told, and not asked since");
    }

    #[test]
    fn nobody_waits_for_what_is_done_and_answered_later() {
        let fixture = Fixture::new();
        let (target, info, now) = (&fixture.core.targets[1], JobInfo::new("j", "u", "g"), clock::now());
        let job = fixture.core.jobs.join(info.clone()).unwrap().job;
        target.set_job(now, job.id, &info);
        target.enqueue(now, testing::write(&job)).unwrap();
        let Action::Serve(mut work) = target.next_action(now) else { panic!("it is the only one") };
        let connection = work.pending.connection.clone();
        assert!(work.pending.begin() && connection.changes.are_any_left());
        // The emulated device takes an hour.
        work.finish_at = Some(now + Nanos::from_secs(3_600));
        fixture.core.complete(target, work, ReplyHeader::ok(0, 1, 0), Vec::new(), now);
        assert_eq!(target.status(now).in_service, 1, "it is not answered");
        assert!(!connection.changes.are_any_left());
    }

    #[test]
    fn a_lock_that_is_shared_stays_while_one_who_has_gone_still_writes() {
        let fixture = Fixture::new();
        let (gone, there) = (fixture.connect(), fixture.connect_as((0, 8)));
        let (_, opened) = fixture.create(&gone, b"f");
        let capability = opened.unwrap().capability;
        let (ino, at) =
            (Ino(capability.ino), |op| RequestHeader { owner: 5, ..RequestHeader::with_capability(op, &capability) });
        assert_eq!(fixture.serve(&there, at(Op::Adopt), b"").0.errno, 0);
        let whole = RequestHeader { valid: lock::EXCLUSIVE | lock::WHOLE | lock::OPEN_FILE, ..at(Op::Lock) };
        assert_eq!(fixture.serve(&gone, whole, b"").0.errno, 0);
        let change = gone.changes.begin(&gone.is_closed).unwrap();
        fixture.core.close(&gone, None);
        let ends = || {
            fixture.core.end_holders(clock::now()).unwrap();
            fixture.core.release_due(clock::now());
        };
        ends();
        fixture.core.release(&there, ino, 5).unwrap();
        let wanted = Lock { owner: Owner::File(6), span: Span::ALL, is_exclusive: true, user: 0, pid: 1 };
        assert!(fixture.core.locks.conflict(ino, Family::Whole, &wanted).is_some());
        assert!(!fixture.core.is_given_up_soon(ino, Family::Whole, &wanted), "nobody knows how long the device takes");
        drop(change);
        ends();
        assert!(fixture.core.locks.conflict(ino, Family::Whole, &wanted).is_none());
    }

    #[test]
    fn a_request_that_is_served_while_its_session_ends_leaves_no_lock() {
        let fixture = Fixture::new();
        let (connection, other) = (fixture.connect(), fixture.connect());
        let (_, opened) = fixture.create(&connection, b"f");
        let capability = opened.unwrap().capability;
        fixture.core.close(&other, None);
        for valid in [lock::EXCLUSIVE, lock::EXCLUSIVE | lock::WHOLE] {
            let header = RequestHeader { valid, ..RequestHeader::with_capability(Op::Lock, &capability) };
            assert_eq!(fixture.serve(&connection, header, b"").0.errno, 0);
        }
        fixture.core.close(&connection, None);
        let header = RequestHeader { valid: lock::EXCLUSIVE, ..RequestHeader::with_capability(Op::Lock, &capability) };
        fixture.serve(&connection, header, b"");
        fixture.core.end_holders(clock::now()).unwrap();
        assert!(!fixture.core.locks.are_there_any());
    }
}
