//! Control connections, which operators ask by: a thread of its own answers their questions, round-robin over connections.
//!
//! It waits for nobody: an answer that is not taken waits in memory, which is bounded, and the acceptor goes on
//! meanwhile. Each origin has a bounded share of the slots ([`crate::pools`]); beyond it the connection goes that has asked
//! nothing for the longest time.

use crate::clock;
use crate::core::Core;
use crate::identity::Peer;
use crate::operator;
use crate::pools::{Origin, Pools, Slots};
use crate::rejections::Rejection;
use crate::status::About;
use crate::stream::{self, Frame};
use isonomia_proto::control::ControlReply;
use isonomia_proto::setup::{self, CONTROL_REPLY_LEN_MAX, SETUP_HEADER_LEN};
use isonomia_transport::control::seal_frame;
use isonomia_transport::seal::Seals;
use isonomia_units::Nanos;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A connection that asks nothing for this long ends.
const IDLE_MAX: Nanos = Nanos::from_secs(600);
/// An answer must be taken within this time.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(10);
/// Users who are no operators see a status that is as old as this at most, so that asking costs the server little.
const STATUS_FRESH_FOR: Nanos = Nanos::from_millis(100);
/// Answers of users that are not taken yet, in bytes; beyond it they are told to ask again.
const UNTAKEN_BYTES_MAX: usize = 64 << 20;
/// Between two looks at who has been idle for too long.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// See the module.
pub struct Control {
    core: Arc<Core>,
    about: Arc<About>,
    epoll: OwnedFd,
    connections: Mutex<Connections>,
}

struct Connections {
    pools: Pools,
    /// All but the one that is being answered.
    open: HashMap<u64, ControlConnection>,
    next_id: u64,
}

struct ControlConnection {
    socket: OwnedFd,
    peer: Peer,
    /// Its frames have tags.
    seals: Option<Seals>,
    heard: Vec<u8>,
    /// What it is answered, and how much of that has gone.
    answer: Option<(Arc<Vec<u8>>, usize)>,
    deadline: Nanos,
}

/// What the thread remembers from one question to the next.
#[derive(Default)]
struct Answers {
    status: Option<(Nanos, Arc<Vec<u8>>)>,
    untaken: Vec<Weak<Vec<u8>>>,
}

/// The same frames, each with its tag.
fn seal_frames(seals: &mut Seals, frames: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(frames.len());
    let mut rest = frames;
    // They are the server's own, so that none is cut.
    while let Some((header, more)) = rest.split_first_chunk::<SETUP_HEADER_LEN>()
        && let Ok(len) = setup::body_len(header, CONTROL_REPLY_LEN_MAX)
        && let Some((body, more)) = more.split_at_checked(len)
    {
        sealed.extend_from_slice(&seal_frame(&mut seals.sealer, body));
        rest = more;
    }
    sealed
}

impl Control {
    /// No connection is open.
    pub fn new(core: Arc<Core>, about: Arc<About>, slots: Slots) -> Result<Self, Errno> {
        let connections = Connections { pools: Pools::new(slots), open: HashMap::new(), next_id: 0 };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { core, about, epoll, connections: Mutex::new(connections) })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a connection that was welcomed, whose frames have tags if there are `seals`.
    pub fn enter(&self, socket: OwnedFd, peer: Peer, origin: Origin, seals: Option<Seals>) {
        let mut connections = self.connections();
        connections.next_id += 1;
        let id = connections.next_id;
        if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(id), epoll::EventFlags::IN).is_err() {
            return self.core.rejections.count(Rejection::System);
        }
        if let Some(gone) = connections.pools.enter(id, origin) {
            self.core.rejections.count(Rejection::Displaced);
            connections.open.remove(&gone);
        }
        let deadline = clock::now() + IDLE_MAX;
        connections
            .open
            .insert(id, ControlConnection { socket, peer, seals, heard: Vec::new(), answer: None, deadline });
    }

    /// Answers until the server stops.
    pub fn run(&self) {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 64];
        let mut answers = Answers::default();
        let mut look_at = Nanos::ZERO;
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let count = epoll::wait(&self.epoll, &mut events[..], Some(&WAIT)).unwrap_or(0);
            for event in &events[..count] {
                let id = event.data.u64();
                let Some(mut connection) = self.connections().open.remove(&id) else { continue };
                let goes_on = self.advance(id, &mut connection, &mut answers);
                let mut connections = self.connections();
                if goes_on && connections.pools.has(id) {
                    connections.open.insert(id, connection);
                } else {
                    connections.pools.leave(id);
                }
            }
            let now = clock::now();
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.end_idle(now);
            }
        }
    }

    fn end_idle(&self, now: Nanos) {
        let mut connections = self.connections();
        let Connections { pools, open, .. } = &mut *connections;
        open.retain(|id, connection| {
            let stays = connection.deadline > now;
            if !stays {
                self.core.rejections.count(Rejection::Silence);
                pools.leave(*id);
            }
            stays
        });
    }

    /// Goes on with one connection; false at its end.
    fn advance(&self, id: u64, connection: &mut ControlConnection, answers: &mut Answers) -> bool {
        if connection.answer.is_none() {
            let mut question = match stream::receive_frame(&connection.socket, &mut connection.heard) {
                Ok(Frame::Part) => return true,
                Ok(Frame::Whole(question)) => question,
                Ok(Frame::End) => return false,
                Err(error) => {
                    self.core.refused_total.fetch_add(1, Ordering::Relaxed);
                    self.core.rejections.count(Rejection::Protocol);
                    tracing::warn!(%error, "control connection closed");
                    return false;
                }
            };
            self.connections().pools.touch(id);
            let question = match connection.seals.as_mut().map(|seals| seals.opener.open_whole(&mut question)) {
                None => &question,
                Some(Ok(question)) => &*question,
                Some(Err(error)) => {
                    self.core.refused_total.fetch_add(1, Ordering::Relaxed);
                    self.core.rejections.count(Rejection::Protocol);
                    tracing::warn!(%error, "control connection closed");
                    return false;
                }
            };
            let mut answer = self.answer(&connection.peer, question, answers);
            if let Some(seals) = &mut connection.seals {
                answer = Arc::new(seal_frames(seals, &answer));
            }
            connection.answer = Some((answer, 0));
            connection.deadline = clock::now() + ANSWER_WITHIN;
        }
        let Some((bytes, sent)) = &mut connection.answer else { return true };
        match stream::send(&connection.socket, &bytes[*sent..]) {
            Ok(count) => *sent += count,
            Err(_) => return false,
        }
        let flags = if *sent < bytes.len() {
            epoll::EventFlags::OUT
        } else {
            connection.answer = None;
            connection.deadline = clock::now() + IDLE_MAX;
            epoll::EventFlags::IN
        };
        epoll::modify(&self.epoll, &connection.socket, epoll::EventData::new_u64(id), flags).is_ok()
    }

    fn answer(&self, peer: &Peer, question: &[u8], answers: &mut Answers) -> Arc<Vec<u8>> {
        let request = match operator::read(question) {
            Ok(request) => request,
            Err(error) => return Arc::new(operator::frame(&ControlReply::Error(error))),
        };
        let is_status = matches!(request, isonomia_proto::control::ControlRequest::Status);
        if operator::is_operator(peer) || !is_status {
            return Arc::new(operator::answer(&self.core, &self.about, peer, request));
        }
        let now = clock::now();
        if let Some((at, status)) = &answers.status
            && now.since(*at) < STATUS_FRESH_FOR
        {
            return status.clone();
        }
        answers.status = None;
        answers.untaken.retain(|answer| answer.strong_count() > 0);
        let untaken: usize = answers.untaken.iter().filter_map(Weak::upgrade).map(|answer| answer.len()).sum();
        if untaken > UNTAKEN_BYTES_MAX {
            let reason = format!("{untaken} bytes of answers wait to be taken, {UNTAKEN_BYTES_MAX} at most: ask again");
            return Arc::new(operator::frame(&ControlReply::Error(reason)));
        }
        let status = Arc::new(operator::answer(&self.core, &self.about, peer, request));
        answers.untaken.push(Arc::downgrade(&status));
        answers.status = Some((now, status.clone()));
        status
    }
}
