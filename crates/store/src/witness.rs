//! How much of the database is known to be on stable storage, kept beside it: what a start must find.
//!
//! Every sync of the journal first puts a number into it, one higher each time. When the sync is done the number goes into
//! `<dir>/synced`, 20 decimal digits and a line feed; that file itself is synced now and then, so it may lag behind, and
//! never runs ahead. A database that opens with a lower number has lost what it had promised to keep: a journal that was
//! removed, emptied, or overwritten in the middle, or a disk that only said that it had synced. A start is then refused.
//!
//! In the journal such a number stands with a seal that only this server can make ([`Witness::sealed`]). Journals hold what
//! users write, names and attributes, and where a power cut left a part of one, that part could be made to look like a
//! sync which was overwritten before.
//!
//! What it cannot see: the loss of changes since the last sync that it knows of, which a power cut would have had the
//! right to; and what was lost from tables, where fjall's checksums are for that.

use crate::OpenError;
use crate::capability::Sealer;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

pub(crate) const NAME: &str = "synced";

pub(crate) struct Witness {
    file: OwnedFd,
    sealer: Sealer,
    numbers: Mutex<Numbers>,
}

struct Numbers {
    /// In the file.
    told: u64,
    /// In the file on stable storage.
    kept: u64,
}

impl Witness {
    /// Opens the file in `dir`; it is created only where `is_new` says that the store never was used. `key` is the store's
    /// own.
    pub fn open(dir: &Path, is_new: bool, key: &[u8; 16]) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let fail = |e: Errno| OpenError::io(&path, e);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | if is_new { OFlags::CREATE } else { OFlags::empty() };
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|e| match e {
            Errno::NOENT => OpenError::damaged(&path, "is missing"),
            e => fail(e),
        })?;
        let mut bytes = [0; 32];
        let len = rustix::io::pread(&file, &mut bytes, 0).map_err(fail)?;
        let told = std::str::from_utf8(&bytes[..len]).ok().and_then(|text| text.trim().parse().ok());
        let told = match told {
            None if is_new => 0,
            told => told.ok_or_else(|| OpenError::damaged(&path, "does not hold a number"))?,
        };
        Ok(Self { file, sealer: Sealer::new(key), numbers: Mutex::new(Numbers { told, kept: told }) })
    }

    /// The number of a sync as it stands in the database: 8 bytes, and as many of a seal.
    pub fn sealed(&self, number: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sealer.seal_number(number).to_le_bytes());
        bytes
    }

    /// The number that [`Self::sealed`] made `bytes` of.
    pub fn unsealed(&self, bytes: &[u8]) -> Option<u64> {
        let number = u64::from_le_bytes(*bytes.first_chunk()?);
        (self.sealed(number) == *bytes).then_some(number)
    }

    /// The number that the database must have reached.
    pub fn number(&self) -> u64 {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).told
    }

    /// Says that the database has `number` on stable storage. A failure leaves the witness behind, which does no harm.
    pub fn tell(&self, number: u64) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if number > numbers.told && rustix::io::pwrite(&self.file, format!("{number:020}\n").as_bytes(), 0).is_ok() {
            numbers.told = number;
        }
    }

    /// Puts what was told on stable storage.
    pub fn keep(&self) -> Result<(), Errno> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.told != numbers.kept {
            rustix::fs::fdatasync(&self.file)?;
            numbers.kept = numbers.told;
        }
        Ok(())
    }
}
