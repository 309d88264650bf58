//! The process's umask, which is applied here because the server does not know it.

use crate::calls::real;
use libc::mode_t;
use rustix::fs::{Mode, OFlags};
use std::sync::atomic::{AtomicU32, Ordering};

/// Says that the umask has not been read yet.
const UNKNOWN: u32 = u32::MAX;
/// Used if the kernel does not tell: nobody else may write.
const FALLBACK: u32 = 0o022;

static UMASK: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The current umask.
pub fn current() -> mode_t {
    match UMASK.load(Ordering::Relaxed) {
        UNKNOWN => {
            let umask = from_kernel().unwrap_or(FALLBACK);
            // A call of `umask` in another thread meanwhile knows better.
            UMASK.compare_exchange(UNKNOWN, umask, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(umask)
        }
        known => known,
    }
}

/// The line `Umask:` of `/proc/self/status`, among its first; asking by `umask(2)` would change it for a moment.
fn from_kernel() -> Option<u32> {
    let status = rustix::fs::open(c"/proc/self/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 512];
    let len = rustix::io::read(&status, &mut text).ok()?;
    let line = text[..len].split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Umask:"))?;
    u32::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 8).ok()
}

pub fn umask(mask: mode_t) -> mode_t {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
    real::umask(mask)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_tells_the_umask() {
        let before = rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o027));
        assert_eq!(super::from_kernel(), Some(0o027));
        rustix::process::umask(before);
    }
}
