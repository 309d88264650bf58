//! The keys of a store, in `<dir>/secret`: 16 random bytes with which capabilities are made, 16 that order directories, and
//! a checksum (XXH3-64, little-endian) of both. Under other keys no name would be found, and no open file: so a file that is
//! missing, short or changed is damage.
//!
//! A file without the checksum, as earlier versions wrote it, gets one when it is read. Those versions read both.

use crate::OpenError;
use crate::durable;
use std::fs;
use std::io;
use std::path::Path;
use twox_hash::XxHash3_64;

pub(crate) const NAME: &str = "secret";
const KEYS_LEN: usize = 32;
const LEN: usize = KEYS_LEN + 8;

/// The keys of one store.
#[derive(Clone, Copy)]
pub(crate) struct Secret {
    pub capability: [u8; 16],
    pub names: [u8; 16],
}

impl Secret {
    /// Reads the keys in `dir`; makes them where the store `is_new`.
    pub fn read(dir: &Path, is_new: bool) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound && is_new => return Self::replace(dir),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(OpenError::damaged(&path, "is missing")),
            Err(e) => return Err(OpenError::io(&path, e)),
        };
        let keys = bytes.first_chunk().ok_or_else(|| OpenError::damaged(&path, "is too short"))?;
        if bytes.len() == KEYS_LEN {
            durable::write(dir, NAME, &with_checksum(keys))?;
        } else if bytes != with_checksum(keys) {
            return Err(OpenError::damaged(&path, "is not what was written: its checksum is another"));
        }
        Ok(Self::of(keys))
    }

    /// Makes new keys, instead of those that there are.
    pub fn replace(dir: &Path) -> Result<Self, OpenError> {
        let mut keys = [0; KEYS_LEN];
        durable::fill_random(&mut keys).map_err(|e| OpenError::io(&dir.join(NAME), e))?;
        durable::write(dir, NAME, &with_checksum(&keys))?;
        Ok(Self::of(&keys))
    }

    fn of(keys: &[u8; KEYS_LEN]) -> Self {
        let (mut capability, mut names) = ([0; 16], [0; 16]);
        capability.copy_from_slice(&keys[..16]);
        names.copy_from_slice(&keys[16..]);
        Self { capability, names }
    }
}

fn with_checksum(keys: &[u8; KEYS_LEN]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..KEYS_LEN].copy_from_slice(keys);
    bytes[KEYS_LEN..].copy_from_slice(&XxHash3_64::oneshot(keys).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_any_change_of_their_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let made = Secret::read(dir.path(), true).unwrap();
        let read = Secret::read(dir.path(), false).unwrap();
        assert_eq!((read.capability, read.names), (made.capability, made.names));
        let path = dir.path().join(NAME);
        let good = fs::read(&path).unwrap();
        for at in 0..LEN {
            let mut changed = good.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(Secret::read(dir.path(), false).is_err(), "byte {at}");
        }
        for len in (0..LEN).filter(|len| *len != KEYS_LEN).chain([LEN + 1]) {
            let mut changed = good.clone();
            changed.resize(len, 0);
            fs::write(&path, &changed).unwrap();
            assert!(Secret::read(dir.path(), false).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn keys_without_a_checksum_get_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let keys: Vec<u8> = (0..KEYS_LEN as u8).collect();
        fs::write(&path, &keys).unwrap();
        assert_eq!(Secret::read(dir.path(), false).unwrap().names, keys[16..]);
        assert_eq!(fs::read(&path).unwrap().len(), LEN);
        assert_eq!(Secret::read(dir.path(), false).unwrap().names, keys[16..]);
    }
}
