//! Writable shared mappings: at most one session has that of a file.

use crate::{Client, Error, OpenFile};
use isonomia_proto::fs::Capability;
use isonomia_proto::mapping::{HAD, NEWS_LEN_MAX, News};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_units::{Ino, Nanos};

impl Client {
    /// Takes the mapping of a file for this session, or waits for it: whether it is there, and the session's number. To
    /// be asked again when [`Self::await_mappings`] tells of a change. `had_it` if the server gave it before, and this
    /// asks whether it is still there: ESTALE if it is not, and others may have had it since. A server that has just started
    /// believes who says so, and answers others with EAGAIN.
    pub fn take_mapping(&self, file: &Capability, had_it: bool) -> Result<(bool, u64), Error> {
        let mut reply = [0; NEWS_LEN_MAX];
        let valid = if had_it { HAD } else { 0 };
        let request = RequestHeader { valid, ..RequestHeader::with_capability(Op::TakeMapping, file) };
        let header = self.transact(request, [b"", b""], &mut reply)?;
        let news = self.news(&reply, header.payload_len)?;
        Ok((header.value != 0, news.session))
    }

    /// Gives the mapping of `ino` back, or waits for it no more.
    pub fn give_mapping(&self, ino: Ino) -> Result<(), Error> {
        self.transact(RequestHeader::new(Op::GiveMapping, ino), [b"", b""], &mut []).map(|_| ())
    }

    /// Writes what was stored in the mapping of a file, as [`Self::write_at`]; the server does so only while the session
    /// of this number has the mapping: not this one's, if whose job is charged is not who took it. EAGAIN if nobody has it
    /// (a server that has just started, or lost the session: to be taken again); EIO if another session has it.
    pub fn write_back(&self, file: &OpenFile, session: u64, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.transfer_write_back(file, session, offset, data)
    }

    /// How the session's mappings stand once they are no longer as they were at version `seen`, or after `most`, which is
    /// to be shorter than the time-out.
    pub fn await_mappings(&self, seen: u64, most: Nanos) -> Result<News, Error> {
        let request = RequestHeader { offset: seen, ino2: most.0, ..RequestHeader::new(Op::AwaitMappings, Ino::ROOT) };
        let mut reply = [0; NEWS_LEN_MAX];
        let header = self.transact(request, [b"", b""], &mut reply)?;
        self.news(&reply, header.payload_len)
    }

    fn news(&self, reply: &[u8], len: u32) -> Result<News, Error> {
        reply.get(..len as usize).and_then(News::decode).ok_or_else(|| self.malformed())
    }
}
