//! Holes of the host's files.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Where the first byte from `offset` on is that is in no hole, if any; `offset` where the host does not tell.
pub(crate) fn next_data(fd: impl AsFd, offset: u64) -> Result<Option<u64>, Errno> {
    match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
        Err(e) => Err(e),
    }
}

/// The bytes of a file but for the hole that it ends with, if any: a young journal has some KiB of batches and a hole of 64 MiB,
/// which takes longer to read than everything else that opening a store does.
pub(crate) fn read_to_last_data(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    while let Some(start) = next_data(&file, bytes.len() as u64)? {
        let end = match rustix::fs::seek(&file, SeekFrom::Hole(start)) {
            // A host that does not tell holes from zeros.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => u64::MAX,
            found => found?,
        };
        let hole_len = start as usize - bytes.len();
        bytes.try_reserve(hole_len)?;
        bytes.resize(start as usize, 0);
        rustix::fs::seek(&file, SeekFrom::Start(start))?;
        if (&file).take(end - start).read_to_end(&mut bytes)? == 0 {
            break;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn of_a_file_with_holes_all_but_the_last_one_is_read() {
        let whole: Vec<u8> = (0..200_000u32).map(|n| (n % 251 + 1) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.jnl");
        let file = File::create(&path).unwrap();
        let read = || read_to_last_data(&path).unwrap();
        assert!(read().is_empty());
        file.set_len(64 << 20).unwrap();
        assert!(read().iter().all(|byte| *byte == 0) && read().len() <= 64 << 20);
        // A hole in the middle, as a disk leaves it that wrote in another order, and one at the end.
        let hole = 65_536..131_072;
        let mut expected = whole.clone();
        expected[hole.clone()].fill(0);
        file.write_all_at(&whole[..hole.start], 0).unwrap();
        file.write_all_at(&whole[hole.end..], hole.end as u64).unwrap();
        let found = read();
        assert!(found.starts_with(&expected) && found[expected.len()..].iter().all(|byte| *byte == 0));
        if next_data(&file, 32 << 20).unwrap().is_none() {
            assert!(found.len() < 32 << 20, "of the hole at the end nothing is read");
        }
        file.set_len(whole.len() as u64).unwrap();
        assert_eq!(read(), expected, "one that ends with data");
    }
}
