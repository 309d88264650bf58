//! Puts spread files on stable storage.

use super::Stripes;
use crate::files::OpenFile;
use crate::transfer::Side;
use crate::unsynced::Mark;
use crate::{Client, Error};
use isonomia_proto::request::{NO_TARGET, Op, RequestHeader, flag};

impl Client {
    /// Puts all objects on stable storage, and then what the server of the volume has. Under which verifiers that was: those of
    /// the objects' servers, and the volume's.
    pub(crate) fn sync_stripes(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        data_only: bool,
    ) -> Result<(Vec<Mark>, Mark), Error> {
        let mut patience = self.patience();
        let mut known = self.known(file, stripes)?;
        loop {
            let each = 0..file.layout.targets.len();
            let runs = each.map(|index| self.run(Op::Fsync, &file.layout, &known, index));
            let moved = self.exchange(file, runs.collect::<Result<_, _>>()?, &mut Side::Read(&mut []))?;
            if moved.is_stale() {
                known = self.renewed(file, stripes, &mut patience)?;
                continue;
            }
            if let Some((_, error)) = moved.failed {
                return Err(error);
            }
            let mut request = RequestHeader::with_capability(Op::Fsync, &file.capability);
            request.flags = if data_only { flag::DATA_ONLY } else { 0 };
            request.target = NO_TARGET;
            let (_, mark) = self.transact_marked(request, [b"", b""], &mut [])?;
            return Ok((moved.marks, mark));
        }
    }
}
