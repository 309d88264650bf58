//! What the host has of a file in its page cache.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// In pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCounts {
    pub cached: usize,
    /// Those that nobody has begun to write to the device.
    pub dirty: usize,
}

/// Of the first `len` bytes of a file; `None` if the host does not tell.
pub fn page_counts(file: &File, len: usize) -> Option<PageCounts> {
    let range = [0_u64, len as u64];
    let mut found = [0_u64; 5];
    // SAFETY: `cachestat` is given as much as it takes, and gives as much as there is place for.
    let outcome = unsafe { libc::syscall(451, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
    (outcome == 0).then_some(PageCounts { cached: found[0] as usize, dirty: found[1] as usize })
}

/// The longest file below `dir`.
pub fn longest_file(dir: &Path) -> PathBuf {
    let longest = |path: PathBuf| (std::fs::metadata(&path).unwrap().len(), path);
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let place = if entry.file_type().unwrap().is_dir() { &mut dirs } else { &mut found };
            place.push(entry.path());
        }
    }
    found.into_iter().map(longest).max().unwrap().1
}
