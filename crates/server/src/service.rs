//! Serving requests whose turn has come, and answering them.
//!
//! A worker *begins* a request: what does not wait for a device it serves at once, the rest it leaves to the target's
//! engine ([`crate::engine`]), whose threads may wait. Either *completes* it: accounts for it, and answers.

use crate::cluster::Passed;
use crate::connection::{Arrival, Connection, KEPT_BESIDE, Pending, Stalled, StreamState, Way};
use crate::core::Core;
use crate::engine::{Kind, Task};
use crate::execute::{Outcome, Tried};
use crate::jobs::Served as Account;
use crate::operation::{is_for_data, reads_or_writes};
use crate::prices::Prices;
use crate::read_ahead::Piece;
use crate::requests::{Charged, REPLY_LEN_MAX, Served, Work};
use crate::stalls::SMALL_LEN;
use crate::stream::{Head, Moved};
use crate::target::{Action, Target};
use crate::write_back::{Chunk, Paid};
use crate::{clock, execute, fetch, mapping};
use isonomia_memory::{Expected, Sink};
use isonomia_policy::RequestId;
use isonomia_proto::PAYLOAD_LEN_MAX;
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader, reading};
use isonomia_transport::region::ServerRegion;
use isonomia_units::{Bytes, Ino, Nanos};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use zerocopy::IntoBytes;

/// Below this, serving a request takes less time than waking another worker.
const LONG_LEN: u32 = 32 << 10;
/// So much a worker may bring to a device that is fast.
const SHORT_FLUSH: Bytes = Bytes(64 << 10);

impl Core {
    /// Begins a request whose turn has come, at the time `now`. `scratch` is this worker's own buffer.
    pub fn begin(&self, target: &Target, work: Box<Work>, now: Nanos, scratch: &mut Vec<u8>) {
        let Some(mut work) = self.prepare(target, work) else { return };
        let kind = Kind::of(work.pending.op);
        if kind == Kind::Read && target.engine.may_tell() {
            let is_asked_first = self.expects_fetch(target, &work);
            if is_asked_first {
                let Err(unfetched) = self.fetch(target, work, false) else { return };
                work = unfetched;
            }
            match self.read_cached(&work, scratch) {
                Tried::Done(reply, payload) => return self.complete(target, work, reply, payload, clock::now()),
                Tried::WouldWait => {
                    if !is_asked_first {
                        let Err(unfetched) = self.fetch(target, work, true) else { return };
                        work = unfetched;
                    }
                    return self.wait_or_leave(target, work, scratch);
                }
                Tried::Unknown => target.engine.cannot_tell(),
            }
        }
        if kind == Kind::Write && self.is_long_wait(target, &work.pending) {
            return self.leave(target, Task::Serve(work), scratch);
        }
        if target.engine.takes(kind) {
            return self.wait_or_leave(target, work, scratch);
        }
        if work.pending.header.len >= LONG_LEN && !target.is_capped() {
            self.take_long(|| self.serve(target, work, now, scratch));
        } else {
            self.serve(target, work, now, scratch);
        }
    }

    /// Gives back a request that can be served now: others wait for something else, or need not be served any more.
    fn prepare(&self, target: &Target, work: Box<Work>) -> Option<Box<Work>> {
        if work.pending.connection.is_closed() {
            target.give_up(&work.pending, work.id);
            return None;
        }
        if work.pending.op == Op::AwaitMappings {
            target.give_up(&work.pending, work.id);
            mapping::listen(self, work.pending);
            return None;
        }
        let work = if work.pending.op == Op::Fsync { self.sync_later(target, work)? } else { work };
        self.find_stall_memory(target, work)
    }

    /// Whether a write waits for more than what is measured of others: workers are too few to do so. A write past the page cache
    /// waits for the device, and the host lets no others write to the file meanwhile. One to a mapped file waits for the lock of
    /// its segment while all of that is read or written back. One to a file that rests, and was not [kept](crate::first_writes), syncs the database.
    fn is_long_wait(&self, target: &Target, pending: &Pending) -> bool {
        let ino = Ino(pending.header.ino);
        target.is_past_cache(pending.op, &pending.header)
            || self.segments.has(ino)
            || self.store.write_waits(ino)
            || self.is_behind_direct(target, pending.op, &pending.header)
    }

    /// Goes on with a write whose payload came late.
    pub fn begin_stalled(&self, target: &Target, mut stalled: Box<Stalled>) {
        // It begins once more when it is written.
        stalled.pending.change = None;
        if target.engine.takes(Kind::Write) || self.is_long_wait(target, &stalled.pending) {
            self.leave(target, Task::Stalled(stalled), &mut Vec::new());
        } else {
            self.serve_stalled(target, *stalled);
        }
    }

    /// Begins to write back a range whose turn has come.
    pub fn begin_chunk(&self, target: &Target, chunk: Box<Chunk>, id: RequestId, scratch: &mut Vec<u8>) {
        if !chunk.is_to_be_written() {
            return self.write_back(target, &chunk, Some(id));
        }
        self.leave(target, Task::WriteBack(chunk, Some(id)), scratch);
    }

    /// Begins to read ahead what has its turn.
    pub fn begin_piece(&self, target: &Target, piece: Box<Piece>, id: RequestId, scratch: &mut Vec<u8>) {
        self.leave(target, Task::Piece(piece, id), scratch);
    }

    /// Begins with the range of the scrub whose turn has come.
    pub fn begin_scrub(&self, target: &Target, finish_at: Option<Nanos>, scratch: &mut Vec<u8>) {
        self.leave(target, Task::Scrub(finish_at), scratch);
    }

    /// Serves a request that waits for the device if the device is fast and no other worker waits for one; else leaves it to
    /// the target's engine. Handing it to another thread and back takes as long as a flash drive or a file system on a network.
    fn wait_or_leave(&self, target: &Target, mut work: Box<Work>, scratch: &mut Vec<u8>) {
        let (kind, job) = (Kind::of(work.pending.op), work.pending.connection.job.id);
        let is_flush = kind == Kind::Flush;
        // A worker that has reads under way is to hear when they have come.
        let is_soon = self.workers > 1
            && !fetch::are_under_way()
            && target.engine.is_soon(kind)
            && (!is_flush || self.is_short_flush(&work.pending));
        if !is_soon || self.is_worker_waiting.swap(true, Ordering::AcqRel) {
            return self.leave(target, Task::Serve(work), scratch);
        }
        let (id, now) = (work.id, clock::now());
        // Which of several flushes is next, and how many there are at once, is the engine's affair.
        if !is_flush || target.engine.begin_only_flush(now, job) {
            self.enter(target, now, &mut work.pending, id);
            self.take_long(|| self.serve(target, work, now, scratch));
            if is_flush {
                target.engine.end_flush(clock::now(), Some(job), 0);
            }
        } else {
            self.leave(target, Task::Serve(work), scratch);
        }
        self.is_worker_waiting.store(false, Ordering::Release);
    }

    /// Whether this is a flush of so little that it takes no longer than others lately.
    fn is_short_flush(&self, pending: &Pending) -> bool {
        let ino = Ino(pending.header.ino);
        pending.op == Op::Fsync && self.unsynced.of(ino) <= SHORT_FLUSH && !self.segments.has(ino)
    }

    /// Has a thread of the target's engine serve a task; gives it back where there is none and none can be started.
    pub fn submit(&self, target: &Target, task: Task) -> Result<(), Task> {
        let start = || {
            let (own, index) = (self.own.clone(), target.index);
            let name = match index {
                0 => "metadata io".to_owned(),
                index => format!("target {} io", index - 1),
            };
            std::thread::Builder::new().name(name).spawn(move || run_engine(&own, index)).map(drop)
        };
        target.engine.submit(start, task)
    }

    /// Leaves something to the target's engine.
    pub fn leave(&self, target: &Target, task: Task, scratch: &mut Vec<u8>) {
        if let Err(task) = self.submit(target, task) {
            self.take_long(|| self.serve_task(target, task, scratch));
        }
    }

    /// What a thread of an engine does with a task.
    pub fn serve_task(&self, target: &Target, task: Task, scratch: &mut Vec<u8>) {
        match task {
            Task::Serve(mut work) => {
                let (id, now) = (work.id, clock::now());
                self.enter(target, now, &mut work.pending, id);
                self.serve(target, work, now, scratch);
            }
            Task::Stalled(mut stalled) => {
                let id = stalled.id;
                target.enter(clock::now(), &mut stalled.pending, id);
                self.serve_stalled(target, *stalled);
            }
            Task::Scrub(finish_at) => self.serve_scrub(target, finish_at),
            Task::WriteBack(chunk, id) => self.write_back(target, &chunk, id),
            Task::ReadAhead(of, range) => self.read_ahead(target, of, range),
            Task::Piece(piece, id) => self.read_piece(target, &piece, id),
            Task::FirstWrites => self.serve_first_writes(),
        }
    }

    /// Serves further requests of `target` as long as it has any for a thread that may wait. A flush or a range of the scrub it gives back.
    pub fn go_on(&self, target: &Target, scratch: &mut Vec<u8>) -> Option<Task> {
        // Tasks that wait for a thread were taken from the arbiter before, and go first.
        while !self.is_stopping.load(Ordering::Relaxed) && !target.engine.has_waiting() {
            let now = clock::now();
            match target.next_action(now) {
                Action::Serve(work) if self.is_for_worker(target, &work) => self.hand_to_worker(target, work),
                Action::Serve(mut work) => match Kind::of(work.pending.op) {
                    Kind::Read | Kind::Write => {
                        let Some(found) = self.find_stall_memory(target, work) else { continue };
                        work = found;
                        let id = work.id;
                        self.enter(target, now, &mut work.pending, id);
                        self.serve(target, work, now, scratch);
                    }
                    Kind::Other => self.begin(target, work, now, scratch),
                    Kind::Flush => {
                        if let Some(work) = self.prepare(target, work) {
                            return Some(self.to_be_queued(target, Task::Serve(work)));
                        }
                    }
                },
                Action::Answer(served) => self.answer_served(&served, now),
                Action::WriteBack(chunk, id) => self.write_back(target, &chunk, Some(id)),
                Action::ReadAhead(piece, id) => self.read_piece(target, &piece, id),
                Action::Scrub(finish_at) => return Some(self.to_be_queued(target, Task::Scrub(finish_at))),
                Action::Scrubbed(scrubbing) => self.scrubbed(target, &scrubbing, now),
                // There is a chunk of that job now: whose turn it is is found out once more.
                Action::KeepFree(job, _) if self.write_back_more(target, job, now) => {}
                Action::KeepFree(..) | Action::WaitUntil(_) => {
                    // A worker asks again, learns until when, and wakes up then.
                    self.ring();
                    return None;
                }
                Action::Idle => return None,
            }
        }
        None
    }

    /// What a thread does not go on with by itself. Somebody else is to ask `target` for more: it may have room, and this thread be busy
    /// for long, or find that it is no flush's turn.
    fn to_be_queued(&self, target: &Target, task: Task) -> Task {
        self.tell_of_arrivals(!target.is_empty());
        task
    }

    /// Keeps what a stream is in the middle of. If the connection was closed meanwhile it is given up, since nobody would go on
    /// with it.
    fn set_stalled(&self, connection: &Connection, state: &Mutex<StreamState>, stalled: StreamState) {
        let mut guard = lock(state);
        if connection.is_closed() {
            drop(guard);
            self.give_up_stalled(connection.permit.uid(), stalled);
        } else {
            // The request has the memory for what is kept: only who closes the connection gives that back, and waits for `guard`.
            debug_assert!(stalled.kept_bytes() <= SMALL_LEN + KEPT_BESIDE || connection.permit.has_for_stall());
            *guard = stalled;
        }
    }

    /// Serves a request, waiting for the device if need be, and notes how long it took since `begun`.
    fn serve(&self, target: &Target, mut work: Box<Work>, begun: Nanos, scratch: &mut Vec<u8>) {
        // It may have waited for a thread.
        if !work.pending.begin() {
            return target.give_up(&work.pending, work.id);
        }
        let Pending { op, header, .. } = &work.pending;
        // What neither reads nor writes is measured in any case, where it is done. Writes past the page cache, and those that
        // wait for them, say nothing of the others.
        let is_measured =
            reads_or_writes(*op) && !target.is_past_cache(*op, header) && !self.is_behind_direct(target, *op, header);
        let pace = target.engine.pace(Kind::of(*op)).filter(|_| is_measured);
        let Some(pace) = pace else { return self.serve_now(target, work, begun, scratch) };
        pace.measure(begun, || {
            self.bring_block(target, &mut work, scratch);
            let bytes = u64::from(work.pending.header.len) + work.pending.neighbours.0;
            self.serve_now(target, work, begun, scratch);
            bytes
        });
    }

    /// Whether it is a write that waits for another one, past the page cache, rather than for the device.
    fn is_behind_direct(&self, target: &Target, op: Op, header: &RequestHeader) -> bool {
        // Elsewhere, as in memory, nothing is looked up for each write.
        target.takes_direct && op == Op::Write && execute::is_behind_direct_write(self, header)
    }

    /// Reads what is in memory.
    pub fn read_cached(&self, work: &Work, scratch: &mut Vec<u8>) -> Tried {
        let Pending { connection, slot, header, .. } = &work.pending;
        match &connection.way {
            Way::Shared(shared) => {
                let read = |sink: Sink<'_>| execute::read_cached(self, connection, header, sink);
                let (mut tried, compared) = read_to_slot(&shared.region, *slot, header, read);
                if let Tried::Done(reply, _) = &mut tried {
                    reply.value = compared;
                }
                tried
            }
            Way::Stream(_) => {
                scratch.resize(PAYLOAD_LEN_MAX, 0);
                let mut tried = execute::read_cached(self, connection, header, (&mut *scratch).into());
                if let Tried::Done(reply, payload) = &mut tried {
                    payload.extend_from_slice(&scratch[..reply.payload_len as usize]);
                }
                tried
            }
        }
    }

    fn serve_now(&self, target: &Target, mut work: Box<Work>, begun: Nanos, scratch: &mut Vec<u8>) {
        let connection = work.pending.connection.clone();
        match &connection.way {
            Way::Shared(shared) => {
                let (slot, op, header) = (work.pending.slot, work.pending.op, work.pending.header);
                let buffer = shared.region.buffer(slot);
                let mut small = [0; size_of::<u64>()];
                let (reply, payload, now) = match op {
                    Op::Read => {
                        let read = |sink: Sink<'_>| execute::read(self, &connection, &header, sink);
                        let (reply, compared) = read_to_slot(&shared.region, slot, &header, read);
                        (ReplyHeader { value: compared, ..reply }, &[][..], clock::now())
                    }
                    Op::Write => {
                        let payload = buffer.first(header.len as usize);
                        let mode = target.write_mode(&header);
                        let is_behind = self.is_behind_direct(target, op, &header);
                        let reply = execute::write(self, &connection, &header, (payload.into(), mode), &mut small);
                        let now = clock::now();
                        work.pending.is_for_device &= !target.is_kept(now.since(begun), is_behind, &header);
                        (reply, &small[..reply.payload_len as usize], now)
                    }
                    _ => {
                        work.pending.names = shared.region.copy_names(slot, header.names_len());
                        scratch.resize(scratch.len().max(REPLY_LEN_MAX), 0);
                        let (outcome, now) =
                            self.execute(target, &mut work.pending, begun, &mut scratch[..REPLY_LEN_MAX]);
                        match outcome {
                            Outcome::Served(reply) => (reply, &scratch[..reply.payload_len as usize], now),
                            Outcome::Passed(what) => return self.pass_on(target, *work, what),
                        }
                    }
                };
                buffer.copy_from(payload);
                self.complete(target, work, reply, Vec::new(), now);
            }
            Way::Stream(state) => self.serve_stream(target, work, begun, state, scratch),
        }
    }

    /// Does what is neither a read nor a write, notes how long it took since `begun`, and tells what time it is now.
    fn execute(&self, target: &Target, pending: &mut Pending, begun: Nanos, room: &mut [u8]) -> (Outcome, Nanos) {
        let Pending { connection, header, op, names, .. } = &*pending;
        let outcome = execute::serve(self, connection, header, *op, names, room);
        let now = clock::now();
        let took = now.since(begun);
        let kind = Kind::of(*op);
        // What else the device is told or asked takes as long as it takes, and no worker waits for that.
        let pace = target.engine.pace(kind).filter(|_| kind != Kind::Flush || *op == Op::Fsync);
        if let Some(pace) = pace {
            pace.note(took, 0);
        }
        pending.took = took;
        (outcome, now)
    }

    /// Leaves a request to the cluster, which answers it.
    fn pass_on(&self, target: &Target, mut work: Work, what: Passed) {
        // Nothing else that is passed on changes what is in files.
        work.pending.change.take_if(|_| !matches!(what, Passed::Cut { .. }));
        target.give_up(&work.pending, work.id);
        if let Some(cluster) = self.cluster.get() {
            cluster.pass(self, work.pending, what);
        }
    }

    fn serve_stream(
        &self,
        target: &Target,
        mut work: Box<Work>,
        begun: Nanos,
        state: &Mutex<StreamState>,
        scratch: &mut Vec<u8>,
    ) {
        let tag_len = work.pending.connection.tag_len();
        scratch.resize(PAYLOAD_LEN_MAX + tag_len, 0);
        let (header, op, connection) = (work.pending.header, work.pending.op, work.pending.connection.clone());
        if op != Op::Write {
            let reply = match op {
                Op::Read => execute::read(self, &connection, &header, (&mut scratch[..PAYLOAD_LEN_MAX]).into()),
                _ => match self.execute(target, &mut work.pending, begun, &mut scratch[..REPLY_LEN_MAX]).0 {
                    Outcome::Served(reply) => reply,
                    Outcome::Passed(what) => return self.pass_on(target, *work, what),
                },
            };
            let payload = scratch[..reply.payload_len as usize].to_vec();
            return self.complete(target, work, reply, payload, clock::now());
        }
        let (payload, mut arrival) = (&mut scratch[..header.len as usize + tag_len], Arrival::default());
        match arrival.go_on(&connection, payload, true) {
            Ok(Moved::All) => {
                // It is all in this thread's own memory.
                self.give_back_stall_memory(&connection);
                let (payload, mut small) = (&scratch[..header.len as usize], [0; size_of::<u64>()]);
                let mode = target.write_mode(&header);
                let is_behind = self.is_behind_direct(target, op, &header);
                let reply = execute::write(self, &connection, &header, (payload.into(), mode), &mut small);
                let payload = small[..reply.payload_len as usize].to_vec();
                let now = clock::now();
                work.pending.is_for_device &= !target.is_kept(now.since(begun), is_behind, &header);
                self.complete(target, work, reply, payload, now);
            }
            Ok(Moved::Part) => {
                let Work { pending, id, finish_at } = *work;
                // The client keeps it waiting, not the device.
                target.set_aside(clock::now(), id);
                let (payload, since) = (payload.to_vec(), clock::now());
                let stalled = Stalled { pending, id, finish_at, payload, arrival, since };
                self.set_stalled(&connection, state, StreamState::Payload(Box::new(stalled)));
                // What came since the last attempt makes no event of its own: the kernel tells of it once (edge-triggered).
                self.advance_stream(&connection, since);
            }
            Err(end) => {
                self.end_stream(&connection, &end);
                target.give_up(&work.pending, work.id);
            }
        }
    }

    /// Accounts for a request that was served by `now` and answers it, or leaves that to the emulated device.
    pub fn complete(&self, target: &Target, mut work: Box<Work>, reply: ReplyHeader, payload: Vec<u8>, now: Nanos) {
        // It has changed what it changes, however much later it is answered.
        work.pending.change = None;
        let Work { pending, id, finish_at } = &*work;
        // Only now is it known that the client may read this, and how much there was.
        let is_read = pending.op == Op::Read && reply.errno == 0;
        let paid = if is_read { self.look_for_stream(target, now, pending, reply.payload_len) } else { Nanos::ZERO };
        if let Some(at) = finish_at.filter(|at| *at > now) {
            let Work { pending, id, .. } = *work;
            return target.answer_at(at, Served { pending, id, reply, payload });
        }
        let wrote = self.count_pages(target, now, pending, &reply);
        let unpaid = wrote.map_or(paid, |wrote| wrote.unpaid);
        let charged = self.account_for_device(target, now, pending, (*id, unpaid), &reply);
        let pages = target.write_back.as_ref().filter(|_| wrote.is_some_and(|wrote| wrote.is_ahead));
        let Some(pages) = pages else {
            return self.account_and_answer(pending, &reply, &payload, charged, now);
        };
        let Work { pending, id, .. } = *work;
        let paid = Paid { served: Served { pending, id, reply, payload }, charged };
        if let Some(paid) = pages.delay(paid) {
            self.answer_paid(&paid, now);
        }
    }

    /// Completes a request, and learns from it what the device takes. Gives what it is charged, without the part of its work
    /// that is `unpaid`, or was paid before.
    fn account_for_device(
        &self,
        target: &Target,
        now: Nanos,
        pending: &Pending,
        (id, unpaid): (RequestId, Nanos),
        reply: &ReplyHeader,
    ) -> Charged {
        let served = target.complete(now, pending, id, unpaid);
        if let Some(prices) = target.prices.as_ref().filter(|_| reads_or_writes(pending.op)) {
            if pending.op == Op::Read {
                pending.connection.job.misses.note(pending.is_for_device);
            }
            if let Some((served, worth)) = served.filter(|_| reply.errno == 0)
                && let Some(attributed) = served.attributed
            {
                prices.set_worth(worth);
                let bytes = Bytes(pending.bytes.0 + pending.neighbours.0);
                prices.learn(now, pending.access, bytes, attributed);
            }
        }
        let ahead = pending.cost.since(pending.owed);
        let is_divided = target.prices.as_ref().is_some_and(Prices::is_by_time);
        // Other policies do not correct what they charged.
        let service = served.filter(|_| is_divided).map_or(ahead, |(served, _)| served.service);
        Charged { service, is_by_time: is_divided && served.is_some_and(|(served, _)| served.attributed.is_some()) }
    }

    /// Answers a request whose device is done.
    pub fn answer_served(&self, served: &Served, now: Nanos) {
        // The part that paid a debt is in the account since the debt was made.
        let charged = Charged { service: served.pending.cost.since(served.pending.owed), is_by_time: false };
        self.account_and_answer(&served.pending, &served.reply, &served.payload, charged, now);
    }

    /// Answers a request whose charge is known.
    pub fn answer_paid(&self, paid: &Paid, now: Nanos) {
        let Served { pending, reply, payload, .. } = &paid.served;
        self.account_and_answer(pending, reply, payload, paid.charged, now);
    }

    fn account_and_answer(&self, pending: &Pending, reply: &ReplyHeader, payload: &[u8], charged: Charged, now: Nanos) {
        self.phases.look(&self.bell);
        let moved = |op| if pending.op == op && reply.errno == 0 { u64::from(pending.header.len) } else { 0 };
        let read_bytes = if pending.op == Op::Read { u64::from(reply.payload_len) } else { 0 };
        self.settle(pending, reply, charged);
        pending.connection.job.record(&Account {
            read_bytes,
            written_bytes: moved(Op::Write),
            cost: charged.service,
            is_metadata: !is_for_data(pending.op),
            latency: now.since(pending.arrived),
        });
        self.answer(pending, reply, payload);
    }

    /// Answers a request that was kept.
    pub fn answer_late(&self, pending: &Pending, reply: &ReplyHeader, payload: &[u8]) {
        if let Way::Shared(shared) = &pending.connection.way {
            shared.region.buffer(pending.slot).copy_from(payload);
        }
        self.answer(pending, reply, payload);
    }

    fn answer(&self, pending: &Pending, reply: &ReplyHeader, payload: &[u8]) {
        let connection = &pending.connection;
        if connection.is_closed() {
            return;
        }
        // Another process may have the directory by now: the reply might say what is not true any more, or acknowledge what that
        // process does not have.
        if self.store.fence().check().is_err() {
            return self.close(connection, Some(&"the directory is not known to be this server's any more"));
        }
        match &connection.way {
            Way::Shared(shared) => {
                shared.serving.fetch_and(!(1 << pending.slot), Ordering::AcqRel);
                shared.region.finish(pending.slot, reply, pending.is_for_device);
            }
            Way::Stream(state) => {
                match connection.send(reply.as_bytes(), payload) {
                    Ok(rest) if rest.is_empty() => {
                        // Before the next request can begin, because that takes memory of its own.
                        self.give_back_stall_memory(connection);
                        *lock(state) = StreamState::Head(Head::default());
                    }
                    Ok(rest) => {
                        self.set_stalled(connection, state, StreamState::Reply { rest, since: clock::now() });
                    }
                    Err(end) => return self.end_stream(connection, &end),
                }
                // What came while the reply went out makes no event of its own: the kernel tells of it once (edge-triggered).
                self.advance_stream(connection, clock::now());
            }
        }
    }

    fn serve_stalled(&self, target: &Target, stalled: Stalled) {
        let Stalled { mut pending, id, finish_at, mut payload, .. } = stalled;
        // Without the room for a tag.
        payload.truncate(pending.header.len as usize);
        if !pending.begin() {
            return target.give_up(&pending, id);
        }
        let mut small = [0; size_of::<u64>()];
        let written = ((&payload).into(), target.write_mode(&pending.header));
        let reply = execute::write(self, &pending.connection, &pending.header, written, &mut small);
        drop(payload);
        self.give_back_stall_memory(&pending.connection);
        let (work, payload) = (Work { pending, id, finish_at }, small[..reply.payload_len as usize].to_vec());
        self.complete(target, Box::new(work), reply, payload, clock::now());
    }
}

/// Has `read` fill a slot's buffer. Tells besides how many blocks the client has to compare, if it said that it would.
fn read_to_slot<T>(
    region: &ServerRegion,
    slot: usize,
    header: &RequestHeader,
    read: impl FnOnce(Sink<'_>) -> T,
) -> (T, u64) {
    let expected = Expected::new(region.sums(slot));
    let sink = Sink::from(region.buffer(slot));
    let compares = header.valid & reading::COMPARES != 0;
    let done = read(if compares { sink.comparing(&expected) } else { sink });
    (done, expected.count() as u64)
}

/// What a thread of the engine of target number `target` does.
fn run_engine(core: &Weak<Core>, target: usize) {
    let Some(core) = core.upgrade() else { return };
    let target = &core.targets[target];
    target.engine.run(|task, scratch| core.serve_task(target, task, scratch), |scratch| core.go_on(target, scratch));
}

fn lock(state: &Mutex<StreamState>) -> MutexGuard<'_, StreamState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
