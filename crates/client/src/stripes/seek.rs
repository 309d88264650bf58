//! Where data and holes of a spread file begin: what its objects say, at their own offsets, put together.

use super::{Known, Stripes};
use crate::files::OpenFile;
use crate::{Client, Error};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::space::Extent;
use rustix::io::Errno;

/// Stripes that are looked at in search of a hole; what lies beyond is taken to be data.
const STRIPES_LOOKED_AT_MAX: usize = 1 << 16;

impl Client {
    pub(crate) fn seek_stripes(
        &self,
        file: &OpenFile,
        stripes: &Stripes,
        offset: u64,
        what: Extent,
    ) -> Result<u64, Error> {
        let known = self.look(file, stripes)?;
        let size = known.objects.end.size_bytes;
        if offset >= size {
            return Err(Error::Server(Errno::NXIO));
        }
        match what {
            Extent::Data => self.next_data(file, &known, offset, size),
            Extent::Hole => self.next_hole(file, &known, offset, size),
        }
    }

    /// Where the next `what` is in an object, at `offset` of it or behind.
    fn seek_object(
        &self,
        file: &OpenFile,
        known: &Known,
        op: Op,
        index: usize,
        offset: u64,
    ) -> Result<Option<u64>, Error> {
        let run = self.run(op, &file.layout, known, index)?;
        let request = RequestHeader { offset, ..run.request };
        match self.session_with(run.server)?.transact(request, [b"", b""], &mut []) {
            Ok((header, _)) => Ok(Some(header.value)),
            Err(Error::Server(Errno::NXIO)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_data(&self, file: &OpenFile, known: &Known, offset: u64, size: u64) -> Result<u64, Error> {
        let mut nearest = None;
        for index in 0..file.layout.targets.len() {
            // Nothing of the object before this is at or behind `offset`.
            let from = file.layout.object_size(index, offset);
            let Some(at) = self.seek_object(file, known, Op::SeekData, index, from)? else { continue };
            let in_file = file.layout.file_offset(index, at);
            nearest = Some(nearest.map_or(in_file, |nearest: u64| nearest.min(in_file)));
        }
        nearest.filter(|at| *at < size).ok_or(Error::Server(Errno::NXIO))
    }

    fn next_hole(&self, file: &OpenFile, known: &Known, offset: u64, size: u64) -> Result<u64, Error> {
        // How far each object is known to be data without a break.
        let mut data_until: Vec<u64> = vec![0; file.layout.targets.len()];
        let mut at = offset;
        for _ in 0..STRIPES_LOOKED_AT_MAX {
            if at >= size {
                break;
            }
            let here = file.layout.spot(at);
            if data_until[here.index] <= here.offset {
                let hole = self.seek_object(file, known, Op::SeekHole, here.index, here.offset)?;
                match hole {
                    Some(hole) if hole > here.offset => data_until[here.index] = hole,
                    _ => return Ok(at),
                }
            }
            let data = data_until[here.index] - here.offset;
            if data < here.run {
                return Ok((at + data).min(size));
            }
            at = at.saturating_add(here.run);
        }
        Ok(at.min(size))
    }
}
