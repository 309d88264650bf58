//! Pages of a file that stay in the host's memory.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// A range of a file: whoever writes a part of one of its pages waits for no device that has the rest, even after the host was asked to drop
/// its page cache. Its pages may go again with the value. It costs as much memory as it is long.
#[derive(Debug)]
pub(crate) struct Resident {
    start: NonNull<std::ffi::c_void>,
    len: usize,
}

// SAFETY: nobody looks into the mapping, which belongs to no thread.
unsafe impl Send for Resident {}
// SAFETY: as above.
unsafe impl Sync for Resident {}

impl Resident {
    /// From the page of `begin` to `end`, which are to be in the file; those not in memory yet are read. The host may drop them when it is short of
    /// memory if it lets this process lock none (`RLIMIT_MEMLOCK`).
    pub fn new(file: impl AsFd, begin: u64, end: u64) -> Result<Self, Errno> {
        let begin = begin - begin % rustix::param::page_size() as u64;
        let len = usize::try_from(end.saturating_sub(begin)).map_err(|_| Errno::OVERFLOW)?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a mapping of its own at an address of the host's choosing.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file, begin) }?;
        let resident = Self { start: NonNull::new(start).ok_or(Errno::NOMEM)?, len };
        // SAFETY: the mapping above. What is refused is only less.
        let _ = unsafe { rustix::mm::mlock(start, len) };
        Ok(resident)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SAFETY: the mapping is nobody else's, and nobody has looked into it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pages_in_memory;
    use rustix::fs::Advice;
    use std::os::unix::fs::FileExt as _;

    const PAGE: u64 = 4 << 10;

    #[test]
    fn its_pages_stay_and_go_with_it() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; 64 * PAGE as usize], 0).unwrap();
        file.sync_all().unwrap();
        let drop_and_look = || {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            pages_in_memory(&file, 64)
        };
        if drop_and_look().contains(&true) {
            isonomia_testbed::skip("the host keeps files in memory here");
            return;
        }
        let resident = Resident::new(&file, 20 * PAGE + 5, 30 * PAGE).unwrap();
        let there = drop_and_look();
        assert!(there[20..30].iter().all(|is_there| *is_there) && !there[50..].contains(&true), "{there:?}");
        drop(resident);
        assert!(!drop_and_look().contains(&true));
        assert_eq!(Resident::new(&file, PAGE, PAGE - 1).map(drop), Err(Errno::INVAL));
    }
}
