//! Short reads: who serves them, and what is read with them in the same request of the device
//! ([`isonomia_policy::device::read_ahead::short`]).

use crate::clock;
use crate::connection::Pending;
use crate::core::Core;
use crate::execute;
use crate::pages::PagesOf;
use crate::requests::Work;
use crate::target::Target;
use isonomia_policy::Access;
use isonomia_policy::device::chunks::SMALL_READ;
use isonomia_policy::device::read_ahead::short::{self, AROUND_BYTES, BLOCK_BYTES};
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

    /// Whether the host says that it has not all that a short read asks for. It is asked, and the read not just tried: even a read that may not wait has
    /// the host begin to read what is missing of it (`filemap_get_pages`, `mm/filemap.c`), and the rest of its block would be two more requests.
    pub fn is_missing(&self, work: &Work) -> bool {
        let Pending { connection, header, .. } = &work.pending;
        let pages = || execute::host_pages(self, connection, header);
        u64::from(header.len) <= PAGES_LEN_MAX
            && pages().is_some_and(|pages| pages.cached_bytes().is_some_and(|bytes| bytes < pages.len))
    }

    /// The block that is to be read instead of the `pages` of a read, if these are not in memory and it is.
    pub fn block_of(&self, target: &Target, work: &mut Work, pages: &HostPages) -> Option<HostPages> {
        let Pending { connection, header, neighbours, .. } = &mut work.pending;
        *neighbours = Bytes(0);
        let streams = target.read_ahead.as_ref()?;
        // Where the speed is told a read costs what was told, whatever is read with it.
        if target.prices.is_none() || pages.cached_bytes()? >= pages.len {
            return None;
        }
        if !target.may_read_blocks(clock::now(), connection.job.id) {
            return None;
        }
        let (around, block) = (pages.block(AROUND_BYTES)?, pages.block(BLOCK_BYTES)?);
        let (of, around_bytes) = (PagesOf::request(header), around.cached_bytes()?);
        let is_slow = target.prices.as_ref()?.time_of(Access::ReadRandom, SMALL_READ) > short::SLOW;
        let may_drop = is_slow && streams.may_drop() && block.is_clean();
        let read = streams.block(of, around_bytes, pages.len, may_drop, || block.cached_bytes())?;
        *neighbours = Bytes(read.beside_bytes);
        if read.is_dropped {
            streams.measure_drop(|| block.forget());
            // Pages that a program of the host has mapped, for instance, are not dropped.
            let kept_bytes = block.cached_bytes().unwrap_or(0);
            *neighbours = Bytes(read.beside_bytes.saturating_sub(kept_bytes));
        }
        Some(block)
    }

    /// Has the host read the block of a read that waits, if that is to be read, where it does not tell what is in memory: there each
    /// read waits for a request of its own.
    pub fn bring_block(&self, target: &Target, work: &mut Work, scratch: &mut Vec<u8>) {
        let Pending { connection, header, op, .. } = &work.pending;
        let is_short = *op == Op::Read && u64::from(header.len) <= PAGES_LEN_MAX;
        if !is_short || target.engine.may_tell() || target.read_ahead.is_none() {
            return;
        }
        let Some(pages) = execute::host_pages(self, connection, header) else { return };
        if let Some(block) = self.block_of(target, work, &pages) {
            scratch.resize(scratch.len().max(BLOCK_BYTES as usize), 0);
            block.read(scratch);
        }
    }
}
