//! Puts files on stable storage.

use crate::files::OpenFile;
use crate::lanes::{self, Moved, Run};
use crate::session::Notice;
use crate::transfer::Side;
use crate::unsynced::{self, Mark};
use crate::{Client, Error};
use isonomia_proto::fs::FileKind;
use isonomia_proto::request::{NO_TARGET, Op, RequestHeader, flag};
use isonomia_proto::syncing;
use isonomia_units::{Ino, ServerId};
use rustix::io::Errno;

impl Client {
    /// Puts data (and with `data_only` unset all attributes) on stable storage. EIO, once, if what was written through this
    /// open file may have been lost with the host of a server ([`crate::unsynced`]), or with `data_only` unset what this client did to
    /// names and attributes.
    pub fn sync(&self, file: &OpenFile, data_only: bool) -> Result<(), Error> {
        let written = file.unsynced.take();
        let changed = if data_only { Vec::new() } else { self.changed.take() };
        let answered = match &file.stripes {
            Some(stripes) => self.sync_stripes(file, stripes, data_only),
            None => self.sync_targets(file, data_only),
        };
        let (objects, last) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                file.unsynced.put_back(written);
                self.changed.put_back(changed);
                return Err(error);
            }
        };
        let (changed, elsewhere) = unsynced::of_those_who(&[last], changed);
        self.changed.put_back(elsewhere);
        let is_lost = unsynced::is_any_lost(&written, &objects)
            || [written, changed].iter().any(|marks| unsynced::is_any_lost(marks, &[last]));
        if is_lost {
            let text =
                "a server's host has failed: what was written before and not synced may be lost, and fsync fails once";
            (self.conduct().notice)(Notice::Warning(text));
            return Err(Error::Server(Errno::IO));
        }
        Ok(())
    }

    /// As [`Self::sync`] of the data of a file whose memory of the server's is mapped: what is stored there nobody notes, so it
    /// counts as not synced from the mapping's beginning to its end.
    pub fn sync_mapped(&self, file: &OpenFile) -> Result<(), Error> {
        let mapped = file.unsynced.look();
        let outcome = self.sync(file, true);
        file.unsynced.put_back(mapped);
        outcome
    }

    /// All of the file's targets at once, and with the last one what else the server has of the file; or, if that cannot be, that
    /// after all others. Under which verifiers that was.
    fn sync_targets(&self, file: &OpenFile, data_only: bool) -> Result<(Vec<Mark>, Mark), Error> {
        let mut request = RequestHeader::with_capability(Op::Fsync, &file.capability);
        request.flags = if data_only { flag::DATA_ONLY } else { 0 };
        let (last, before) = match file.layout.targets.split_last() {
            Some((last, before)) if file.attr.kind() == FileKind::Regular => (last.0, before),
            _ => (NO_TARGET, &[][..]),
        };
        let last = RequestHeader { target: last, ..request };
        let mut marks = Vec::new();
        if !before.is_empty() {
            request.flags |= flag::CONTINUED;
            let mut requests: Vec<_> =
                before.iter().map(|target| RequestHeader { target: target.0, ..request }).collect();
            requests.push(RequestHeader { valid: syncing::TOGETHER, ..last });
            let moved = self.sync_at_once(file, &requests)?;
            if let ([mark], None) = (&moved.marks[..], &moved.failed) {
                return Ok((Vec::new(), *mark));
            }
            // The last one comes too soon, or the server was started anew meanwhile.
            marks = moved.marks;
        }
        let last = self.transact_marked(last, [b"", b""], &mut [])?.1;
        Ok((marks, last))
    }

    /// Sends these requests for a file's targets, each without waiting for those before. All are done then, but perhaps
    /// the last one, which may have come too soon.
    fn sync_at_once(&self, file: &OpenFile, requests: &[RequestHeader]) -> Result<Moved, Error> {
        self.at_server(Ino(file.capability.ino), |session| {
            // All have this session, whichever server it is with.
            let run = |request: &RequestHeader| Run { start: 0, len: 0, request: *request, server: ServerId(0) };
            let runs = requests.iter().map(run).collect();
            let moved = lanes::exchange(runs, |_| Ok(session), &mut Side::Read(&mut []))?;
            // EAGAIN is answered to none but the last.
            match moved.failed {
                Some((_, Error::Server(Errno::AGAIN))) if moved.done + 1 == requests.len() => Ok(moved),
                Some((_, error)) => Err(error),
                None => Ok(moved),
            }
        })
    }
}
