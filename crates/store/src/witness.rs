//! How much of the database is known to be on stable storage, kept beside it: what a start must find.
//!
//! Every sync of the journal first puts a number into it, one higher each time. When the sync is done the number goes into
//! `<dir>/synced`; that file itself is synced now and then, so it may lag behind, and never runs ahead. A database that opens with a lower number has lost what it had promised to keep: a journal that was
//! removed, emptied, or overwritten in the middle, or a disk that only said that it had synced. A start is then refused.
//!
//! The file contains 20 decimal digits, 12 spaces, and a checksum of the digits (XXH3-64, 16 hexadecimal digits). Earlier versions
//! wrote digits and a line feed over what was there, and read the first 32 bytes without blanks: either version reads what the
//! other one wrote, and a line feed behind the digits says that what follows it is of another number. A power cut can leave
//! what this version wrote over such a file with the length that it had: one that ends behind the first space is believed, too.
//! A store that was used had a sync before that was noted, so a file with the number 0 is damaged.
//!
//! In the journal such a number stands with a seal that only this server can make ([`Witness::sealed`]). Journals contain what
//! users write, names and attributes, and where a power cut left a part of one, that part could be made to look like a
//! sync which was overwritten before.
//!
//! Each target has a copy in `<target dir>/target.synced`, which is brought up to date with it. Whoever puts back metadata
//! from a backup leaves the targets as they are: a copy that is ahead tells that the metadata are older than the objects. A
//! start is refused then too, as recovery would take objects that the metadata do not know for those of lost creations and
//! remove them. `check` sets them aside.
//!
//! What it cannot see: the loss of changes since the last sync that it knows of, which a power cut would have had the
//! right to; and what was lost from tables, where fjall's checksums are for that.

use crate::capability::CapabilitySigner;
use crate::{OpenError, TargetDir};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_64;

pub(crate) const NAME: &str = "synced";
pub(crate) const NAME_IN_TARGET: &str = "target.synced";
/// Decimal digits of a number.
const DIGITS: usize = 20;
/// Where the checksum begins: what is before it is all that earlier versions read.
const CHECKSUM_AT: usize = 32;
const LEN: usize = CHECKSUM_AT + 17;

pub(crate) struct Witness {
    file: OwnedFd,
    copies: Vec<OwnedFd>,
    /// The highest number that a file had when they were opened, and which.
    highest: (u64, PathBuf),
    signer: CapabilitySigner,
    numbers: Mutex<Numbers>,
    /// Locked while the copies are written: a target that hangs keeps nobody from telling.
    keeping: Mutex<()>,
}

struct Numbers {
    /// In the file.
    told: u64,
    /// In the file on stable storage, and in the copies.
    kept: u64,
}

impl Witness {
    /// Opens the file in `dir`, which is created only where `is_new` says that the store never was used, and its copies.
    /// `key` is the store's own.
    pub fn open(dir: &Path, targets: &[TargetDir], is_new: bool, key: &[u8; 16]) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let (file, told) = open(&path, is_new).map_err(|e| match e {
            Errno::NOENT => OpenError::damaged(&path, "is missing"),
            e => OpenError::io(&path, e),
        })?;
        let told = match told {
            None if is_new => 0,
            Some(0) if !is_new => {
                return Err(OpenError::damaged(&path, "says that the store was never used, and it was"));
            }
            told => told.ok_or_else(|| OpenError::damaged(&path, "does not hold a number as it was written"))?,
        };
        let mut copies = Vec::with_capacity(targets.len());
        let mut highest = (told, path);
        for target in targets {
            let path = target.dir.join(NAME_IN_TARGET);
            let (copy, number) = open(&path, true).map_err(|e| OpenError::io(&path, e))?;
            copies.push(copy);
            // One that cannot be read says nothing, and the next sync writes it anew.
            if let Some(number) = number.filter(|number| !is_new && *number > highest.0) {
                highest = (number, path);
            }
        }
        Ok(Self {
            file,
            signer: CapabilitySigner::new(key),
            copies,
            highest,
            numbers: Mutex::new(Numbers { told, kept: told }),
            keeping: Mutex::new(()),
        })
    }

    /// The number of a sync as it stands in the database: 8 bytes, and as many of a seal.
    pub fn sealed(&self, number: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.signer.seal_number(number).to_le_bytes());
        bytes
    }

    /// The number that [`Self::sealed`] made `bytes` of.
    pub fn unsealed(&self, bytes: &[u8]) -> Option<u64> {
        let number = u64::from_le_bytes(*bytes.first_chunk()?);
        (self.sealed(number) == *bytes).then_some(number)
    }

    /// The number that the database must have reached, from the store's own file.
    pub fn number(&self) -> u64 {
        self.numbers().told
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The highest number that any of the files had when they were opened, and which.
    pub fn highest(&self) -> (u64, &Path) {
        (self.highest.0, &self.highest.1)
    }

    /// Says that the database has `number` on stable storage. A failure leaves the witness behind, which does no harm.
    /// Every sync ends here, so this waits for no target.
    pub fn tell(&self, number: u64) {
        let mut numbers = self.numbers();
        if number > numbers.told && write(&self.file, number).is_ok() {
            numbers.told = number;
        }
    }

    /// Puts what was told on stable storage, and into the copies: one that fails stays behind. Waits for every target.
    pub fn keep(&self) -> Result<(), Errno> {
        let _keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, kept) = {
            let numbers = self.numbers();
            (numbers.told, numbers.kept)
        };
        if told != kept {
            rustix::fs::fdatasync(&self.file)?;
            for copy in &self.copies {
                let _ = write(copy, told).and_then(|()| rustix::fs::fdatasync(copy));
            }
            self.numbers().kept = told;
        }
        Ok(())
    }
}

/// Makes the file anew where it is lost or spoilt. It says that the store was used, and no more.
pub(crate) fn start_anew(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(NAME);
    let written = open(&path, true).and_then(|(file, _)| {
        rustix::fs::ftruncate(&file, 0)?;
        write(&file, 1)?;
        rustix::fs::fsync(&file)
    });
    written.map_err(|e| OpenError::io(&path, e))
}

/// The file at `path`, and the number in it.
fn open(path: &Path, create: bool) -> Result<(OwnedFd, Option<u64>), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | if create { OFlags::CREATE } else { OFlags::empty() };
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
    let mut bytes = [0; LEN + 1];
    let len = rustix::io::pread(&file, &mut bytes, 0)?;
    let number = parse(&bytes[..len]);
    Ok((file, number))
}

/// The number in a file, if it is as it was written.
fn parse(bytes: &[u8]) -> Option<u64> {
    let (digits, rest) = bytes.split_at_checked(DIGITS)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_of_earlier = rest.first() == Some(&b'\n') || rest == b" ";
    let is_of_earlier = is_of_earlier && digits.iter().all(u8::is_ascii_digit);
    (is_of_earlier || bytes == text(number)).then_some(number)
}

fn write(file: &OwnedFd, number: u64) -> Result<(), Errno> {
    rustix::io::pwrite(file, &text(number), 0).map(drop)
}

/// What the file has in it.
pub(crate) fn text(number: u64) -> Vec<u8> {
    let digits = format!("{number:0width$}", width = DIGITS);
    let checksum = XxHash3_64::oneshot(digits.as_bytes());
    format!("{digits:CHECKSUM_AT$}{checksum:016x}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_the_file_is_noticed_and_earlier_versions_read_it() {
        for number in [1, 8, 12_345, u64::MAX] {
            let good = text(number);
            assert_eq!((good.len(), parse(&good)), (LEN, Some(number)));
            assert_eq!(std::str::from_utf8(&good[..32]).unwrap().trim().parse(), Ok(number));
            for at in 0..LEN {
                for bit in 0..8 {
                    let mut changed = good.clone();
                    changed[at] ^= 1 << bit;
                    assert_eq!(parse(&changed), None, "bit {bit} of byte {at}");
                }
                let believed = (at == DIGITS + 1).then_some(number);
                assert_eq!(parse(&good[..at]), believed, "{at} bytes");
            }
            // What an earlier version leaves of it.
            let mut earlier = format!("{:020}\n", 77).into_bytes();
            assert_eq!(parse(&earlier), Some(77));
            earlier.extend_from_slice(&good[earlier.len()..]);
            assert_eq!(parse(&earlier), Some(77));
        }
    }

    #[test]
    fn telling_waits_for_no_target() {
        let dir = tempfile::tempdir().unwrap();
        let witness = Witness::open(dir.path(), &[], true, &[7; 16]).unwrap();
        // As while a copy is being written on a target that hangs.
        let keeping = witness.keeping.lock().unwrap();
        witness.tell(5);
        assert_eq!(witness.number(), 5);
        drop(keeping);
        witness.keep().unwrap();
        assert_eq!(witness.numbers().kept, 5);
    }
}
