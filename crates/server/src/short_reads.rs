//! Short reads: who serves them, and what is read with them in the same request of the device
//! ([`isonomia_policy::device::read_ahead::short`]).

use crate::clock;
use crate::connection::Pending;
use crate::core::Core;
use crate::execute;
use crate::pages::PagesOf;
use crate::requests::Work;
use crate::target::Target;
use isonomia_policy::device::read_ahead::Manner;
use isonomia_policy::device::read_ahead::short::{AROUND_BYTES, BLOCK_BYTES};
use isonomia_proto::request::Op;
use isonomia_store::{HostPages, PAGES_LEN_MAX};
use isonomia_units::Bytes;

impl Core {
    /// Whether a worker does not have to wait for this read, and a thread would.
    pub fn is_for_worker(&self, target: &Target, work: &Work) -> bool {
        let Pending { op, header, connection, .. } = &work.pending;
        let is_short = *op == Op::Read && u64::from(header.len) <= PAGES_LEN_MAX;
        is_short
            && self.fetches.are_on()
            && target.engine.may_tell()
            && execute::host_pages(self, connection, header).is_some()
    }

    /// The pages that a read waits for, or the block that they are in, if all of that is to be read.
    pub fn with_neighbours(&self, target: &Target, work: &mut Work, pages: HostPages) -> HostPages {
        let Pending { connection, header, neighbours, .. } = &mut work.pending;
        if pages.len <= BLOCK_BYTES / 2
            && let Some(streams) = &target.read_ahead
            && target.read_ahead_manner(clock::now(), connection.job.id) == Manner::AtOnce
            && let Some(around_bytes) = pages.block(AROUND_BYTES).and_then(|around| around.cached_bytes())
            && let Some(block) = pages.block(BLOCK_BYTES)
            && let Some(missing_bytes) =
                streams.missing_of_block(PagesOf::request(header), around_bytes, pages.len, || block.cached_bytes())
        {
            *neighbours = Bytes(missing_bytes);
            return block;
        }
        pages
    }

    /// Has the host read the block of a read that waits, if that is to be read, where it does not tell what is in memory: there each
    /// read waits for a request of its own.
    pub fn bring_neighbours(&self, target: &Target, work: &mut Work) {
        let header = &work.pending.header;
        if work.pending.op != Op::Read || target.engine.may_tell() || target.read_ahead.is_none() {
            return;
        }
        let Some(pages) = execute::host_pages(self, &work.pending.connection, header) else { return };
        let pages = self.with_neighbours(target, work, pages);
        if work.pending.neighbours > Bytes(0) {
            pages.read(&mut [0; BLOCK_BYTES as usize]);
        }
    }
}
