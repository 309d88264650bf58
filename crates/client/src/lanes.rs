//! Requests for the objects of one file at once: of a spread one on several servers, or of one on several targets of its server.
//!
//! A thread has one line to each server. On each, requests follow each other without waiting, and replies are taken in the order
//! in which the requests were sent, whichever server they went to; so all servers work at the same time. At first lines are taken
//! only to servers to which one is free. A thread waits for a line, or for a server that is away, only when everything else is done
//! and all its lines are given back, and for one server after the other. So no thread has a line while it waits for another one:
//! threads never wait for each other in a circle, and those that wait for a server that is away do not use up the lines to others.

use crate::Error;
use crate::session::{Session, Taken};
use crate::transfer::Side;
use crate::unsynced::Mark;
use isonomia_proto::PAYLOAD_LEN_MAX;
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader, flag};
use isonomia_transport::channel::Channel;
use isonomia_transport::line::Line;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_transport::stream::{Stream, push_until_readable};
use isonomia_units::ServerId;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that lie in one object without a break, or none: then it is one request without a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Where they are in the program's buffer.
    pub start: usize,
    /// How many.
    pub len: usize,
    /// The request for all of them, or more than that, whose offset is that of the first one.
    pub request: RequestHeader,
    /// Whose the object is.
    pub server: ServerId,
}

/// What came of all requests.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Where the first byte that was refused is, and why.
    pub failed: Option<(usize, Error)>,
    /// Up to where in the buffer anything was written.
    pub furthest: usize,
    /// The lowest and the highest number of a last cut that an object told.
    pub cuts: Option<(u64, u64)>,
    /// A request had no answer: what became of it is not known.
    pub is_unanswered: bool,
    /// What was not there to be read.
    pub missing: Vec<Range<usize>>,
    /// Under which verifiers servers did what was asked, each once; none of reads.
    pub marks: Vec<Mark>,
    /// How many requests were done.
    pub done: usize,
}

/// A request that is under way.
struct Sent {
    run: usize,
    within: usize,
    len: usize,
    slot: usize,
}

/// What goes to one server.
struct Lane<'a> {
    session: &'a Session,
    /// None while the server has to be waited for, and after the line broke.
    taken: Option<Taken<'a>>,
    /// From when it began to wait for a line, or the last reply came.
    deadline: Option<Deadline>,
    runs: Vec<Run>,
    /// Which run is next, and how much of it has been sent.
    next: (usize, usize),
    sent: VecDeque<Sent>,
    /// On TCP one request follows the other.
    is_tcp: bool,
    has_failed: bool,
}

/// Sends all requests of `runs`, of which there is at least one, to servers whose sessions `session_of` gives; payloads are taken
/// from, or put into, `side`.
pub(crate) fn exchange<'a>(
    mut runs: Vec<Run>,
    session_of: impl Fn(ServerId) -> Result<&'a Session, Error>,
    side: &mut Side<'_>,
) -> Result<Moved, Error> {
    // Those of one server stay in their order.
    runs.sort_by_key(|run| run.server);
    let by_server = runs.chunk_by(|a, b| a.server == b.server);
    let sessions = by_server.map(|runs| Ok((session_of(runs[0].server)?, runs)));
    // To find a server may take a line to another one, so no line is kept meanwhile.
    let sessions: Vec<_> = sessions.collect::<Result<_, Error>>()?;
    let mut lanes: Vec<Lane<'_>> =
        sessions.into_iter().map(|(session, runs)| Lane::new(session, runs.to_vec())).collect();
    let mut moved = Moved::default();
    // The lanes of what is under way, in the order in which it was sent.
    let mut order: VecDeque<usize> = VecDeque::new();
    loop {
        let mut has_sent = true;
        while has_sent && moved.failed.is_none() {
            has_sent = false;
            for (index, lane) in lanes.iter_mut().enumerate() {
                if !lane.can_send() {
                    continue;
                }
                match lane.send(side) {
                    Ok(()) => {
                        order.push_back(index);
                        has_sent = true;
                    }
                    Err(error) => {
                        order.retain(|other| *other != index);
                        lane.note_break(error, &mut moved);
                    }
                }
            }
        }
        let Some(index) = order.pop_front() else {
            // All that had lines are done.
            lanes.iter_mut().for_each(|lane| lane.taken = None);
            let next = if moved.failed.is_none() { lanes.iter_mut().find(|lane| lane.has_more()) } else { None };
            if let Some(lane) = next {
                lane.wait_for_line(&mut moved);
                continue;
            }
            // After a failure nothing more is sent: what came before it on other lanes may not have been.
            let unsent = lanes.iter().filter_map(Lane::unsent).min();
            if let (Some((first, _)), Some(unsent)) = (&mut moved.failed, unsent) {
                *first = unsent.min(*first);
            }
            return Ok(moved);
        };
        let pushed = push(&mut lanes, index);
        let lane = &mut lanes[index];
        if let Err(error) = pushed.and_then(|()| lane.receive(side, &mut moved)) {
            order.retain(|other| *other != index);
            lane.note_break(error, &mut moved);
        }
    }
}

/// Goes on sending to all servers on TCP, until the reply of the lane at `first` comes, if that is on TCP.
fn push(lanes: &mut [Lane<'_>], first: usize) -> Result<(), Broken> {
    if !lanes[first].is_tcp {
        return Ok(());
    }
    let timeout = lanes[first].session.timeout();
    let under_way = lanes.iter_mut().enumerate().filter_map(|(at, lane)| Some((at != first, lane.stream()?)));
    let mut streams: Vec<(bool, &mut Stream)> = under_way.collect();
    streams.sort_by_key(|(is_other, _)| *is_other);
    let mut streams: Vec<&mut Stream> = streams.into_iter().map(|(_, stream)| stream).collect();
    push_until_readable(&mut streams, timeout).map_err(Broken::Line)
}

impl Moved {
    /// Notes that what is at `at` was refused. Of those that are at one place, the first that was sent counts.
    fn fail(&mut self, at: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(first, _)| at < *first) {
            self.failed = Some((at, error));
        }
    }

    /// Whether an object refused a write because it has done a cut that the client does not know.
    pub fn was_cut(&self) -> bool {
        matches!(self.failed, Some((_, Error::Server(Errno::AGAIN))))
    }

    /// Whether a server did not take the capability, or has removed the object.
    pub fn is_stale(&self) -> bool {
        matches!(self.failed, Some((_, Error::Server(Errno::STALE))))
    }
}

impl<'a> Lane<'a> {
    /// The first byte of the transfer that has not been sent to this server, if there is any left.
    fn unsent(&self) -> Option<usize> {
        let (run, sent) = self.next;
        Some(self.runs.get(run)?.start + sent)
    }

    fn new(session: &'a Session, runs: Vec<Run>) -> Self {
        let taken = session.take_connected();
        let deadline = taken.is_some().then(|| Deadline::after(session.timeout()));
        let (sent, next) = (VecDeque::new(), (0, 0));
        Self { session, taken, deadline, runs, next, sent, is_tcp: false, has_failed: false }
    }

    fn has_more(&self) -> bool {
        !self.has_failed && self.next.0 < self.runs.len()
    }

    fn can_send(&self) -> bool {
        let depth = if self.is_tcp { 1 } else { Channel::DEPTH };
        self.taken.is_some() && self.has_more() && self.sent.len() < depth
    }

    /// Waits until it has a line, however long that takes.
    fn wait_for_line(&mut self, moved: &mut Moved) {
        let deadline = *self.deadline.get_or_insert_with(|| Deadline::after(self.session.timeout()));
        match self.session.take_line(deadline) {
            Ok(taken) => self.taken = Some(taken),
            Err(error) => self.fail(error, moved),
        }
    }

    fn fail(&mut self, error: Error, moved: &mut Moved) {
        self.has_failed = true;
        moved.fail(self.unsent().unwrap_or(0), error);
    }

    fn line(&mut self) -> Result<&mut Line, Broken> {
        let deadline = *self.deadline.get_or_insert_with(|| Deadline::after(self.session.timeout()));
        let taken = self.taken.as_mut().ok_or(Broken::Line(SocketError::Closed))?;
        taken.line(deadline).map_err(Broken::Away)
    }

    /// The connection, if it is one on TCP and a request is under way.
    fn stream(&mut self) -> Option<&mut Stream> {
        if self.sent.is_empty() {
            return None;
        }
        match self.line() {
            Ok(Line::Tcp(stream)) => Some(stream),
            _ => None,
        }
    }

    /// Sends the next request.
    fn send(&mut self, side: &Side<'_>) -> Result<(), Broken> {
        let (at, within) = self.next;
        let run = self.runs[at];
        self.is_tcp = matches!(self.line()?, Line::Tcp(_));
        let most = if self.is_tcp { PAYLOAD_LEN_MAX } else { Channel::PAYLOAD_LEN_MAX };
        let len = (run.len - within).min(most);
        let request = piece(&run, within, len);
        let payload = match side {
            Side::Write(data, _) => &data[run.start + within..][..len],
            Side::Read(_) => &[],
        };
        let before_sleep = self.session.manner().before_sleep;
        let slot = match self.line()? {
            Line::Shared(channel) => {
                channel.stage().copy_from(payload);
                channel.send(&request)
            }
            Line::Tcp(stream) => {
                before_sleep();
                stream.begin(&request, payload).map(|()| 0)
            }
        };
        let slot = slot.map_err(Broken::Line)?;
        self.sent.push_back(Sent { run: at, within, len, slot });
        self.next = if within + len < run.len { (at, within + len) } else { (at + 1, 0) };
        Ok(())
    }

    /// Takes the reply to the request that was sent first.
    fn receive(&mut self, side: &mut Side<'_>, moved: &mut Moved) -> Result<(), Broken> {
        let Some(&Sent { run: at, within, len, slot }) = self.sent.front() else { return Ok(()) };
        let run = self.runs[at];
        let (start, timeout, manner) = (run.start + within, self.session.timeout(), self.session.manner());
        let mark = Mark::of(self.line()?);
        let header = match self.line()? {
            Line::Shared(channel) => {
                let header = channel.wait(slot, timeout, manner).map_err(Broken::Line)?;
                if let (Side::Read(buffer), 0) = (&mut *side, header.errno) {
                    let count = (header.payload_len as usize).min(len);
                    let payload = channel.payload(slot, count).ok_or(Broken::Line(SocketError::Closed))?;
                    payload.copy_to(&mut buffer[start..start + count]);
                }
                header
            }
            Line::Tcp(stream) => {
                let reply: &mut [u8] = match side {
                    Side::Read(buffer) => &mut buffer[start..start + len],
                    Side::Write(..) => &mut [],
                };
                stream.receive(reply, timeout).map_err(Broken::Line)?.0
            }
        };
        self.sent.pop_front();
        self.deadline = Some(Deadline::after(timeout));
        // What was read leaves nothing to sync; a sync reads nothing.
        let is_read = matches!(side, Side::Read(buffer) if !buffer.is_empty());
        if !is_read && header.errno == 0 && !moved.marks.contains(&mark) {
            moved.marks.push(mark);
        }
        self.take(&header, side, start..start + len, moved);
        Ok(())
    }

    fn take(&mut self, header: &ReplyHeader, side: &Side<'_>, range: Range<usize>, moved: &mut Moved) {
        if let Err(error) = self.session.checked(*header, Box::default()) {
            self.has_failed = true;
            return moved.fail(range.start, error);
        }
        moved.done += 1;
        match side {
            Side::Read(_) => {
                let end = range.start + (header.payload_len as usize).min(range.len());
                if end < range.end {
                    moved.missing.push(end..range.end);
                }
            }
            Side::Write(..) => {
                let end = range.start + (header.value as usize).min(range.len());
                moved.furthest = moved.furthest.max(end);
                if end < range.end {
                    // The next attempt tells why.
                    self.has_failed = true;
                    moved.fail(end, Error::Server(Errno::IO));
                }
            }
        }
        let (lowest, highest) = moved.cuts.unwrap_or((header.cuts, header.cuts));
        moved.cuts = Some((lowest.min(header.cuts), highest.max(header.cuts)));
    }

    /// After the line broke: it goes on, with what had no answer, when the other lanes are done.
    fn note_break(&mut self, broken: Broken, moved: &mut Moved) {
        if let Some(first) = self.sent.front() {
            self.next = (first.run, first.within);
            moved.is_unanswered = true;
        }
        self.sent.clear();
        let outcome = match broken {
            Broken::Away(error) => Err(error),
            Broken::Line(error) => {
                self.taken.iter_mut().for_each(Taken::hang_up);
                let deadline = self.deadline.unwrap_or_else(|| Deadline::after(self.session.timeout()));
                self.session.after_loss(error, true, deadline)
            }
        };
        self.taken = None;
        if let Err(error) = outcome {
            self.fail(error, moved);
        }
    }
}

/// Why there is no reply.
enum Broken {
    /// The line broke.
    Line(SocketError),
    /// There is no line to be had.
    Away(Error),
}

/// The request for `len` bytes of a run from its byte `within` on.
fn piece(run: &Run, within: usize, len: usize) -> RequestHeader {
    let mut request = run.request;
    if request.op == Op::Read as u16 || request.op == Op::Write as u16 {
        request.offset += within as u64;
        request.len = len as u32;
        // The cost of an operation is charged once for every PAYLOAD_LEN_MAX bytes, however they are split.
        request.flags |= if within.is_multiple_of(PAYLOAD_LEN_MAX) { 0 } else { flag::CONTINUED };
    }
    request
}
