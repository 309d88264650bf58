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
    /// From the page of `begin` to `end`, which are to be in the file; those not in memory yet are read. If the host does not let this process lock
    /// that much (`RLIMIT_MEMLOCK`), they stay when it is asked to drop its page cache, and may go when it is short of memory.
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
    use rustix::process::Resource;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    const PAGES: usize = 64;

    /// A file on a device, of which the host reads nothing that it is not asked for.
    fn file(page: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; PAGES * page as usize], 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        file
    }

    #[test]
    fn its_pages_stay_and_go_with_it() {
        let page = rustix::param::page_size() as u64;
        let file = file(page);
        let drop_and_look = || {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            pages_in_memory(&file, PAGES)
        };
        if drop_and_look().contains(&true) {
            isonomia_testbed::skip("the host keeps files in memory here");
            return;
        }
        let resident = Resident::new(&file, 20 * page + 5, 30 * page).unwrap();
        let there = drop_and_look();
        assert!(there[20..30].iter().all(|is_there| *is_there), "{there:?}");
        drop(resident);
        assert!(!drop_and_look()[20..30].contains(&true));
        assert_eq!(Resident::new(&file, page, page - 1).map(drop), Err(Errno::INVAL));
    }

    #[test]
    fn its_pages_are_locked() {
        let page = rustix::param::page_size() as u64;
        let resident = Resident::new(file(page), 0, page).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let this = format!("{:08x}-", resident.start.as_ptr() as usize);
        let locked = maps.lines().skip_while(|line| !line.starts_with(&this)).find(|line| line.starts_with("Locked:"));
        if rustix::process::getrlimit(Resource::Memlock).current.is_some_and(|most| most < 8 << 20) {
            isonomia_testbed::skip("this process may lock too little memory");
            return;
        }
        assert!(locked.is_some_and(|line| !line.ends_with(" 0 kB")), "{locked:?}");
    }
}
