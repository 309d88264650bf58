//! The file of the checksums of an object.

use super::{Place, SidecarFault, read_at};
use crate::checksum::{HEADER_LEN, Header, ObjectId, PAGE_BYTES, blocks_of, entry_offset, place_of};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a sidecar that are brought to memory when it is first looked at: all of it, of an object of up to 32 MiB. They cost a
/// device little more than the first of them.
const FIRST_BYTES: u64 = 64 << 10;

pub(super) fn open_sidecar(place: &Place<'_>) -> Result<OwnedFd, SidecarFault> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(place.dir, place.object.sidecar_name(), flags, Mode::empty()) {
        Ok(sidecar) => Ok(sidecar),
        Err(Errno::NOENT) => Err(SidecarFault::Damaged("the file of checksums is missing")),
        Err(errno) => Err(SidecarFault::Host(errno)),
    }
}

/// Has the host bring these pages to memory, one behind the other, without waiting for them; and if `is_first` the header with
/// those that follow it. Where a device has many requests at once, header and entries then take as long as one of them.
pub(super) fn fetch_pages(sidecar: &OwnedFd, pages: &[u64], is_first: bool) {
    // Where it cannot, whoever reads them waits for each.
    let fetch = |offset, len| rustix::fs::fadvise(sidecar, offset, NonZeroU64::new(len), Advice::WillNeed);
    let page_bytes = PAGE_BYTES as u64;
    let mut fetched = 0;
    if is_first && !pages.is_empty() {
        fetched = FIRST_BYTES / page_bytes;
        let _ = fetch(0, FIRST_BYTES);
    }
    if let (Some(first), Some(last)) = (pages.iter().find(|page| **page >= fetched), pages.last())
        && (is_first || first < last)
    {
        let _ = fetch(first * page_bytes, (last + 1 - first) * page_bytes);
    }
}

/// Cuts the sidecar of an object to entries of the first `end` blocks, if there is one.
pub(crate) fn shorten(place: &Place<'_>, end: u64) -> Result<(), Errno> {
    let sidecar = match open_sidecar(place) {
        Ok(sidecar) => sidecar,
        Err(SidecarFault::Damaged(_)) => return Ok(()),
        Err(SidecarFault::Host(errno)) => return Err(errno),
    };
    let wanted = if end == 0 { 0 } else { entry_offset(end) };
    if rustix::fs::fstat(&sidecar)?.st_size as u64 > wanted {
        place.fence.check()?;
        rustix::fs::ftruncate(&sidecar, wanted)?;
    }
    Ok(())
}

/// The last block, from `from` on, that has an entry in the sidecar; of one that is missing or illegible there is none.
pub(crate) fn last_entry(place: &Place<'_>, from: u64) -> Result<Option<u64>, Errno> {
    let look = || -> Result<Option<u64>, SidecarFault> {
        let sidecar = open_sidecar(place)?;
        let blocks = stored_blocks(&sidecar, &read_header(&sidecar, place.object)?)?;
        if blocks <= from {
            return Ok(None);
        }
        let mut page = place_of(blocks - 1).0;
        loop {
            let (start, _) = blocks_of(page);
            let entries = read_page(&sidecar, page, blocks)?;
            let used = &entries[..entries.len().min(blocks.saturating_sub(start) as usize)];
            if let Some(last) = used.iter().rposition(|entry| entry.load(Relaxed) != 0) {
                return Ok(Some(start + last as u64).filter(|last| *last >= from));
            }
            if start <= from {
                return Ok(None);
            }
            page -= 1;
        }
    };
    match look() {
        Ok(last) => Ok(last),
        Err(SidecarFault::Damaged(_)) => Ok(None),
        Err(SidecarFault::Host(errno)) => Err(errno),
    }
}

/// As many blocks as have entries by the header of a sidecar, and by its length.
pub(super) fn stored_blocks(sidecar: &OwnedFd, header: &Header) -> Result<u64, SidecarFault> {
    let len = rustix::fs::fstat(sidecar).map_err(SidecarFault::Host)?.st_size as u64;
    Ok(header.blocks.min(len.saturating_sub(HEADER_LEN as u64) / size_of::<u64>() as u64))
}

/// The header of an open sidecar, if it is that of `object`.
pub(super) fn read_header(sidecar: &OwnedFd, object: ObjectId) -> Result<Header, SidecarFault> {
    let mut bytes = [0; HEADER_LEN];
    let got = read_at(sidecar, 0, &mut bytes).map_err(SidecarFault::Host)?;
    match Header::decode(&bytes[..got]) {
        Ok(header) if header.object == object => Ok(header),
        Ok(_) => Err(SidecarFault::Damaged("the file of checksums is of another object")),
        Err(_) => Err(SidecarFault::Damaged("the header of the file of checksums is damaged")),
    }
}

pub(super) fn read_page(sidecar: &OwnedFd, page: u64, blocks: u64) -> Result<Vec<AtomicU64>, SidecarFault> {
    let (start, len) = blocks_of(page);
    if start >= blocks {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; len * size_of::<u64>()];
    let got = read_at(sidecar, entry_offset(start), &mut bytes).map_err(SidecarFault::Host)?;
    if ((blocks - start) as usize).min(len) * size_of::<u64>() > got {
        return Err(SidecarFault::Damaged("the file of checksums was cut"));
    }
    let (words, _) = bytes[..got].as_chunks::<8>();
    let used = words.iter().rposition(|word| *word != [0; 8]).map_or(0, |last| last + 1);
    Ok(words[..used].iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pages_in_memory;
    use std::io::Write;
    use std::time::{Duration, Instant};

    const PAGES: usize = 64;

    /// What comes to memory of a file of which nothing is there, by calls for these pages one after the other, when the pages that are wanted are there.
    fn fetched(calls: &[&[u64]], is_first: bool, wanted: &[usize]) -> Option<Vec<bool>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; PAGES * PAGE_BYTES]).unwrap();
        file.sync_all().unwrap();
        let file = OwnedFd::from(file);
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if pages_in_memory(&file, PAGES).contains(&true) {
            isonomia_testbed::skip("the host keeps files in memory here");
            return None;
        }
        calls.iter().for_each(|pages| fetch_pages(&file, pages, is_first));
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let there = pages_in_memory(&file, PAGES);
            if wanted.iter().all(|page| there[*page]) || Instant::now() > until {
                return Some(there);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn header_and_entries_come_at_once() {
        let Some(there) = fetched(&[&[40, 41]], true, &[0, 15, 40, 41]) else { return };
        assert!(there[0] && there[15] && there[40] && there[41] && !there[30] && !there[60], "{there:?}");
    }

    #[test]
    fn what_is_wanted_later_comes_alone() {
        let Some(there) = fetched(&[&[40, 41]], false, &[40, 41]) else { return };
        assert!(there[40] && there[41] && !there[0] && !there[30], "{there:?}");
        // For one page the read itself does; what is asked for after it has come.
        let Some(there) = fetched(&[&[20], &[50, 51]], false, &[50, 51]) else { return };
        assert!(there[50] && there[51] && !there[20], "{there:?}");
    }
}
