//! Spread files: those whose bytes are in objects that several servers have.
//!
//! The server of the file's volume has its size, and makes out a capability for the objects; the servers that have them know
//! neither size nor name. So clients have to keep rules, by which every client sees the right size once a write has returned,
//! and no byte reappears that was cut off:
//!
//! * A *write* goes to the objects, each of which says the number of its last cut. If the end moved beyond the size that this
//!   client knows, or a number is not the one that it knows, the volume's server is told before the write returns: the end, and the
//!   lowest number. If a cut has begun since, the first one counts. If that made the file shorter, the write came before it, and is done: it is never
//!   written a second time what others may have seen. Other cuts, as after a stop of the server or for a writer who is gone, leave the file the size
//!   that was told: what lies behind the size that this client knew is gone with them, nobody has seen it, and it is written
//!   again. If the server does not know any more which it was, the write fails (EIO). While a file is being cut it does not grow: the volume's server is told again.
//! * An object that has not done a cut of which this client knows will lose what lies behind that: this part is written again.
//! * A write says which was the last cut that the client knows, and an object that has done a later one refuses it: the client
//!   asks the volume's server, and writes again. It writes everything again, also what other objects had taken before that cut and
//!   somebody may have read: of what is left otherwise one part would have come before the cut, and the other after it, and be there
//!   without the first.
//! * An *append* has its position by the server of the volume. If the file was made shorter meanwhile, the position may be another
//!   append's by now: nothing is written there, and it takes another one.
//! * Who may have written behind the end and cannot tell of it, because a server did not answer, has the file cut to the size that it
//!   has. The volume's server does that by itself when a process ends that has the file open.
//! * A *read* that goes beyond the size that this client knows asks the volume's server for the size first. Where bytes are
//!   missing below the size, it asks whether the file was cut meanwhile: if not, they are zeros.
//! * *Times*, and what the file takes, are the volume's server's: it is told of a write that changes no size as well, [`TOLD_FOR`] after
//!   the last time, and with it of the blocks that were written since.
//! * A capability expires. A client that is refused for that asks the volume's server for a new one.
//!
//! What is known of a file is kept with it ([`Stripes`]), and may be old: then it is the number of a cut that shows it, or bytes
//! that are missing.

mod known;
mod patience;
mod seek;
mod sync;

use crate::files::OpenFile;
use crate::lanes::{self, Moved, Run};
use crate::session::Session;
use crate::transfer::{Purpose, Side};
use crate::unsynced::Mark;
use crate::{Client, Error};
use isonomia_proto::fs::Layout;
use isonomia_proto::object::{FileEnd, FileObjects, find, server_of, told};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_proto::space::{SpaceChange, blocks_touched};
use isonomia_transport::monotonic_now;
use isonomia_units::{Ino, Nanos, TargetId};
use known::Known;
pub use known::Stripes;
pub(crate) use patience::Patience;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes;

/// Bytes that are moved at once at most: a longer transfer is several.
const AT_ONCE_LEN_MAX: usize = 64 << 20;
/// How long the time of a write is right for later ones: no longer than that of the kernel's clock for the times of local files.
const TOLD_FOR: Nanos = Nanos::from_millis(4);

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Where the program says.
    Given,
    /// Where the server of the volume has made room, and it stood after the cut of this number. EAGAIN if it may have been
    /// cut off since.
    Reserved(u64),
}

/// What a write has to do before it returns.
enum Settled {
    Done,
    /// It is done, and cut off by now. Objects that had done that cut before may have some of it behind the end.
    CutOff,
    /// What is behind this position of the file is to be done again.
    AgainFrom(u64),
}

impl Client {
    fn known(&self, file: &OpenFile, stripes: &Stripes) -> Result<Known, Error> {
        stripes.known(file).map_or_else(|| self.look(file, stripes), Ok)
    }

    /// Asks the server of the volume.
    fn look(&self, file: &OpenFile, stripes: &Stripes) -> Result<Known, Error> {
        self.look_at_cuts(file, stripes).map(|(_, known)| known)
    }

    /// The same, with the number of the last cut that may have made the file shorter.
    fn look_at_cuts(&self, file: &OpenFile, stripes: &Stripes) -> Result<(u64, Known), Error> {
        let request = RequestHeader::with_capability(Op::FindObjects, &file.capability);
        let mut reply = vec![0; FileObjects::len(file.layout.targets.len())];
        let header = self.transact(request, [b"", b""], &mut reply)?;
        let is_whole = header.payload_len as usize == reply.len();
        let found = FileObjects::decode(&reply).filter(|(.., rest)| is_whole && rest.is_empty());
        let (objects, codes, _) = found.ok_or_else(|| self.malformed(Ino(request.ino)))?;
        let known = Known { objects, codes: codes.into(), told_at: Nanos::ZERO };
        stripes.learn(known.clone());
        Ok((header.value, known))
    }

    /// Asks the server of the volume where the file ends: for who reads, and has what it takes to get at the objects.
    fn look_at_end(&self, file: &OpenFile, stripes: &Stripes) -> Result<FileEnd, Error> {
        let mut request = RequestHeader::with_capability(Op::FindObjects, &file.capability);
        request.valid = find::END_ONLY;
        let (_, end, _) = self.ask_for_end(request)?;
        stripes.learn_end(end, Nanos::ZERO);
        Ok(end)
    }

    /// Tells the server of the volume what changes the file, and is answered with its end.
    fn end_after(&self, file: &OpenFile, request: RequestHeader) -> Result<(ReplyHeader, FileEnd), Error> {
        let (header, end, mark) = self.ask_for_end(request)?;
        file.unsynced.note(mark);
        Ok((header, end))
    }

    fn ask_for_end(&self, request: RequestHeader) -> Result<(ReplyHeader, FileEnd, Mark), Error> {
        let mut reply = [0; size_of::<FileEnd>()];
        let (header, mark) = self.transact_marked(request, [b"", b""], &mut reply)?;
        let is_whole = header.payload_len as usize == reply.len();
        let end = FileEnd::read_from_bytes(&reply).ok().filter(|_| is_whole);
        end.map(|end| (header, end, mark)).ok_or_else(|| self.malformed(Ino(request.ino)))
    }

    /// After a server refused the capability: another one, a moment later.
    fn renewed(&self, file: &OpenFile, stripes: &Stripes, patience: &mut Patience) -> Result<Known, Error> {
        let known = self.look(file, stripes)?;
        patience.pause(Errno::STALE)?;
        Ok(known)
    }

    /// Requests for `len` bytes at `offset` of the file.
    fn runs(&self, op: Op, layout: &Layout, known: &Known, offset: u64, len: usize) -> Result<Vec<Run>, Error> {
        let mut runs = Vec::new();
        let mut start = 0;
        while start < len {
            let spot = layout.spot(offset + start as u64);
            let run_len = (len - start).min(usize::try_from(spot.run).unwrap_or(usize::MAX));
            let run = self.run(op, layout, known, spot.index)?;
            let request = RequestHeader { offset: spot.offset, ..run.request };
            runs.push(Run { start, len: run_len, request, ..run });
            start += run_len;
        }
        Ok(runs)
    }

    /// A request for an object of the file.
    fn run(&self, op: Op, layout: &Layout, known: &Known, index: usize) -> Result<Run, Error> {
        let Known { objects, codes, .. } = known;
        let target = layout.targets.get(index).copied().unwrap_or(TargetId(0));
        let server = u16::try_from(objects.targets_per_server).ok().and_then(|count| server_of(target, count));
        let found = server.zip(codes.get(index));
        let (server, code) = found.ok_or_else(|| self.malformed(Ino(objects.capability.number)))?;
        let capability = objects.capability_for(index as u16, target, *code);
        Ok(Run { start: 0, len: 0, request: RequestHeader::of_object(op, &capability), server })
    }

    fn exchange(&self, file: &OpenFile, runs: Vec<Run>, side: &mut Side<'_>) -> Result<Moved, Error> {
        let moved = lanes::exchange(runs, |server| self.session_with(server), side)?;
        if let Side::Write(..) = side {
            moved.marks.iter().for_each(|mark| file.unsynced.note(*mark));
        }
        Ok(moved)
    }

    pub(crate) fn write_stripes(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        offset: u64,
        (data, purpose): (&[u8], Purpose),
        position: Position,
    ) -> Result<usize, Error> {
        let mut done = 0;
        for part in data.chunks(AT_ONCE_LEN_MAX) {
            match self.write_part(file, stripes, offset + done as u64, (part, purpose), position) {
                Ok(count) => {
                    done += count;
                    if count < part.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_part(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        offset: u64,
        (data, purpose): (&[u8], Purpose),
        position: Position,
    ) -> Result<usize, Error> {
        if stripes.owes_cut() {
            self.have_cut(file, stripes);
        }
        let mut is_loose = false;
        let outcome = self.write_whole(file, stripes, offset, (data, purpose), position, &mut is_loose);
        if is_loose {
            self.have_cut(file, stripes);
        }
        outcome
    }

    /// Has what lies behind the end cut off: what this client has begun to write, and will not tell of.
    fn have_cut(&self, file: &OpenFile, stripes: &Stripes) {
        let request = RequestHeader {
            valid: told::BEHIND,
            ino2: u64::MAX,
            ..RequestHeader::with_capability(Op::TellSize, &file.capability)
        };
        // Where that cannot be said now it is said before the next write, when the file is closed ([`Client::close`]), or by
        // the end of this process.
        let is_away = self.session_of(Ino(file.capability.ino)).is_ok_and(Session::is_away);
        let is_told = !is_away && self.end_after(file, request).is_ok();
        stripes.owes_cut.store(!is_told, Ordering::Relaxed);
    }

    /// `is_loose` says afterwards whether objects may have bytes behind the end that were not told.
    fn write_whole(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        offset: u64,
        (data, purpose): (&[u8], Purpose),
        mut position: Position,
        is_loose: &mut bool,
    ) -> Result<usize, Error> {
        let mut patience = self.patience();
        let mut known = self.known(file, stripes)?;
        let mut is_unanswered = false;
        // Up to where earlier rounds wrote of which nothing was told, up to where was told, and what is not to be written again.
        let (mut untold_to, mut told_to, mut kept) = (0, 0, 0);
        loop {
            let cuts = match position {
                Position::Given => known.objects.end.cuts,
                Position::Reserved(cuts) => cuts,
            };
            let (from, rest) = (offset + kept as u64, data.get(kept..).unwrap_or_default());
            let mut runs = self.runs(Op::Write, &file.layout, &known, from, rest.len())?;
            let side = &mut Side::Write(rest, purpose);
            for run in &mut runs {
                side.mark(&mut run.request);
                run.request.ino2 = cuts.saturating_add(1);
            }
            *is_loose |= offset + data.len() as u64 > known.objects.end.size_bytes;
            let moved = self.exchange(file, runs, side)?;
            is_unanswered |= moved.is_unanswered;
            untold_to = untold_to.max(kept + moved.furthest);
            if moved.is_stale() {
                known = self.renewed(file, stripes, &mut patience)?;
                continue;
            }
            if moved.was_cut() {
                (position, known) = self.after_cut(file, stripes, (position, cuts), &mut patience)?;
                kept = 0;
                continue;
            }
            if moved.furthest > 0 {
                // Also of what is behind a piece that failed: nothing may lie behind the end.
                let end = from + moved.furthest as u64;
                // Who made room has counted it.
                let blocks = match position {
                    Position::Given => blocks_touched(from, moved.furthest as u64),
                    Position::Reserved(_) => 0,
                };
                match (self.settle(file, stripes, (&known, end), (moved.cuts, blocks), &mut patience)?, position) {
                    (Settled::AgainFrom(position), Position::Given) => {
                        let before = usize::try_from(position.saturating_sub(offset)).unwrap_or(usize::MAX);
                        let written = kept + moved.failed.as_ref().map_or(rest.len(), |(at, _)| *at);
                        kept = kept.max(before.min(written));
                        known = self.look(file, stripes)?;
                        continue;
                    }
                    (Settled::CutOff, Position::Given) => {}
                    // Room that was made is told of, and no object had done a later cut when it was filled: that was before
                    // any that has begun since.
                    _ => told_to = kept + moved.furthest,
                }
            }
            *is_loose &= is_unanswered && moved.failed.is_some() || untold_to > told_to;
            return match moved.failed {
                Some((0, error)) if kept == 0 => Err(error),
                Some((at, _)) => Ok(kept + at),
                None => Ok(data.len()),
            };
        }
    }

    /// An object has done a later cut than the one of number `cuts` that this client knew: what is known now, and where to write. EAGAIN if the room that
    /// was made may be another's by now.
    fn after_cut(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        (position, cuts): (Position, u64),
        patience: &mut Patience,
    ) -> Result<(Position, Known), Error> {
        let (shortened, known) = self.look_at_cuts(file, stripes)?;
        if known.objects.end.cuts <= cuts {
            // An older copy of the file's metadata was put back. With one more cut they agree again.
            self.have_cut(file, stripes);
        }
        let position = match position {
            Position::Reserved(cuts) if shortened > cuts => return Err(Error::Server(Errno::AGAIN)),
            Position::Reserved(_) => Position::Reserved(known.objects.end.cuts),
            Position::Given => position,
        };
        patience.pause(Errno::TIMEDOUT)?;
        Ok((position, known))
    }

    /// What is to be done after objects were changed, up to `end` of the file and this many blocks at most, and told these numbers
    /// of their last cuts.
    fn settle(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        (known, end): (&Known, u64),
        (cuts, blocks): (Option<(u64, u64)>, u64),
        patience: &mut Patience,
    ) -> Result<Settled, Error> {
        let Some((lowest, highest)) = cuts else { return Ok(Settled::Done) };
        let FileEnd { cuts, size_bytes } = known.objects.end;
        if lowest < cuts && end > size_bytes {
            patience.pause(Errno::TIMEDOUT)?;
            return Ok(Settled::AgainFrom(size_bytes));
        }
        let now = monotonic_now();
        if highest <= cuts && end <= size_bytes && now.since(known.told_at) < TOLD_FOR {
            stripes.keep_untold(blocks);
            return Ok(Settled::Done);
        }
        // Before what is known of the file nothing is said of an object that is behind it.
        let lowest = if end <= size_bytes { lowest.max(cuts) } else { lowest };
        let request = RequestHeader {
            offset: end,
            ino2: lowest,
            len: stripes.take_untold(blocks),
            ..RequestHeader::with_capability(Op::TellSize, &file.capability)
        };
        loop {
            let (header, end_now) = self.end_after(file, request)?;
            stripes.learn_end(end_now, if header.value == told::TAKEN { now } else { Nanos::ZERO });
            match header.value {
                told::AGAIN => patience.pause(Errno::TIMEDOUT)?,
                told::CUT => {
                    return match header.cuts {
                        // What is within the size is not touched by a cut that leaves that.
                        _ if end <= size_bytes => Ok(Settled::Done),
                        told::KEPT => Ok(Settled::AgainFrom(size_bytes)),
                        told::SHORTENED if highest > lowest => Ok(Settled::CutOff),
                        told::SHORTENED => Ok(Settled::Done),
                        // The server was started again since: it may have been cut off by that, or by a program.
                        _ => Err(Error::Server(Errno::IO)),
                    };
                }
                _ => return Ok(Settled::Done),
            }
        }
    }

    pub(crate) fn read_stripes(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        let mut done = 0;
        for part in buffer.chunks_mut(AT_ONCE_LEN_MAX) {
            let len = part.len();
            match self.read_part(file, stripes, offset + done as u64, part) {
                Ok(count) => {
                    done += count;
                    if count < len {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_part(&self, file: &OpenFile, stripes: &Stripes, offset: u64, part: &mut [u8]) -> Result<usize, Error> {
        let mut patience = self.patience();
        let mut known = self.known(file, stripes)?;
        loop {
            if offset.saturating_add(part.len() as u64) > known.objects.end.size_bytes {
                known.objects.end = self.look_at_end(file, stripes)?;
            }
            let there = known.objects.end.size_bytes.saturating_sub(offset);
            let len = part.len().min(usize::try_from(there).unwrap_or(usize::MAX));
            if len == 0 {
                return Ok(0);
            }
            let runs = self.runs(Op::Read, &file.layout, &known, offset, len)?;
            let moved = self.exchange(file, runs, &mut Side::Read(&mut part[..len]))?;
            if moved.is_stale() {
                known = self.renewed(file, stripes, &mut patience)?;
                continue;
            }
            if !moved.missing.is_empty() {
                let end = self.look_at_end(file, stripes)?;
                if end.cuts != known.objects.end.cuts {
                    known.objects.end = end;
                    patience.pause(Errno::TIMEDOUT)?;
                    continue;
                }
                moved.missing.iter().for_each(|range| part[range.clone()].fill(0));
            }
            return match moved.failed {
                Some((0, error)) => Err(error),
                Some((at, _)) => Ok(at),
                None => Ok(len),
            };
        }
    }

    /// Writes to where the server of the volume has made room at the end.
    pub(crate) fn append_stripes(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        data: &[u8],
    ) -> Result<(u64, usize), Error> {
        let data = &data[..data.len().min(u32::MAX as usize)];
        let mut patience = self.patience();
        let mut request = RequestHeader::with_capability(Op::ReserveAppend, &file.capability);
        request.len = data.len() as u32;
        request.target = file.layout.locate(0).0.0;
        loop {
            let appended = self.end_after(file, request).and_then(|(header, end)| {
                stripes.learn_end(end, monotonic_now());
                let position = Position::Reserved(end.cuts);
                Ok((header.value, self.write_stripes(file, stripes, header.value, (data, Purpose::Plain), position)?))
            });
            match appended {
                Err(Error::Server(Errno::AGAIN)) => patience.pause(Errno::TIMEDOUT)?,
                appended => return appended,
            }
        }
    }

    pub(crate) fn change_stripes_space(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        change: SpaceChange,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        let mut patience = self.patience();
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(Error::Argument(Errno::FBIG))?;
        let mut known = self.known(file, stripes)?;
        loop {
            let mut runs = Vec::new();
            for index in 0..file.layout.targets.len() {
                let (from, to) = (file.layout.object_size(index, offset), file.layout.object_size(index, end));
                if from < to {
                    let mut run = self.run(Op::Fallocate, &file.layout, &known, index)?;
                    (run.request.offset, run.request.ino2) = (from, to - from);
                    run.request.valid = change.mode();
                    runs.push(run);
                }
            }
            if runs.is_empty() {
                return Err(Error::Argument(Errno::INVAL));
            }
            let moved = self.exchange(file, runs, &mut Side::Write(&[], Purpose::Plain))?;
            if moved.is_stale() {
                known = self.renewed(file, stripes, &mut patience)?;
                continue;
            }
            // What room was made for counts although it is not written to.
            let blocks = if change == SpaceChange::PunchHole { 0 } else { blocks_touched(offset, len) };
            let told = (moved.cuts, blocks);
            if let Some((_, error)) = moved.failed {
                if !moved.is_unanswered {
                    // Some may have changed: they are to be counted.
                    let _ = self.settle(file, stripes, (&known, 0), told, &mut patience);
                }
                return Err(error);
            }
            let end = if change.grows() { end } else { 0 };
            match self.settle(file, stripes, (&known, end), told, &mut patience)? {
                Settled::Done => return Ok(()),
                Settled::CutOff => {
                    self.have_cut(file, stripes);
                    return Ok(());
                }
                // The part before the end is done again as well, which changes nothing.
                Settled::AgainFrom(_) => known = self.look(file, stripes)?,
            }
        }
    }
}
