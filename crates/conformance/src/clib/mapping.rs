//! Files read by mapping them into memory.

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;

/// At most `len` bytes from `offset` on, from a private mapping of the file. What is behind its end is not touched.
pub(super) fn read(file: &OwnedFd, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mapped_len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
    // SAFETY: a new mapping where the system likes to have it takes no memory from anybody.
    let mapped = unsafe { mmap(None, mapped_len, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, file, offset as i64) }?;
    let size = fstat(file).map(|found| found.st_size.max(0) as u64);
    let bytes = size.map(|size| {
        let there = size.saturating_sub(offset).min(len as u64) as usize;
        // SAFETY: that much of the mapping lies before the end of the file, which nobody cuts meanwhile.
        unsafe { std::slice::from_raw_parts(mapped.cast::<u8>().as_ptr(), there) }.to_vec()
    });
    // SAFETY: it was mapped above, and nothing refers to it any more.
    unsafe { munmap(mapped, len) }?;
    bytes
}
