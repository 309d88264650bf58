//! Small files that are made once: random numbers for them, and how they are written.

use crate::OpenError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// A random number, for what lies in `dir`.
pub(crate) fn random_number(dir: &Path) -> Result<u64, OpenError> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes).map_err(|e| OpenError::io(dir, e))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Fills `bytes` from the kernel's random numbers.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Writes a small file so that after a crash it has either its old or its new content. What cannot be written takes no space.
pub fn write(dir: &Path, name: &str, content: &[u8]) -> Result<(), OpenError> {
    let path = dir.join(format!("{name}.new"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|e| OpenError::io(&path, e))?;
    let mut file = File::from(fd);
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&path, dir.join(name)))
        .and_then(|()| File::open(dir)?.sync_all());
    written.map_err(|e| {
        // Why it could not be written is what matters.
        let _ = fs::remove_file(&path);
        OpenError::io(&path, e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        // No file can replace it.
        fs::create_dir(dir.path().join("name")).unwrap();
        assert!(write(dir.path(), "name", b"content").is_err());
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["name"]);
    }
}
