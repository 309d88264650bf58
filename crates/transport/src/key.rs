//! The shared key: both sides show by their handshake that they know it, and it never travels.
//!
//! The key is the content of a file of mode 0600 that belongs to the reader. What the handshake begins with is HMAC-SHA256 of
//! the key over a label, and so is the secret that servers have in common for each epoch.

use crate::descriptor::Parked;
use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::Sha256;

/// Fewer random bytes than this could be guessed.
const KEY_LEN_MIN: usize = 16;
const KEY_LEN_MAX: usize = 4096;

/// A fresh random number that one handshake is bound to.
pub type Nonce = [u8; 32];
/// What both sides of a handshake know before it, and nobody else.
pub type Secret = [u8; 32];

/// Knowledge that both sides share.
#[derive(Clone)]
pub struct Key(Vec<u8>);

/// A key file that is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read key file {path}: {errno}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// Others can read it.
    #[error("key file {path} has mode {mode:04o}: only its owner may read it (chmod 600 {path})")]
    Mode {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// Somebody else could have written it.
    #[error("key file {path} belongs to user {owner}, not to this user or root")]
    Owner {
        /// The file.
        path: String,
        /// Its owner.
        owner: u32,
    },
    /// It is no key.
    #[error(
        "key file {path} has {len} bytes; {KEY_LEN_MIN} to {KEY_LEN_MAX} are allowed (head -c 32 /dev/urandom > {path})"
    )]
    Length {
        /// The file.
        path: String,
        /// Its length.
        len: usize,
    },
}

impl Key {
    /// Reads a key file, refusing one that others can read.
    pub fn read(path: &str) -> Result<Self, KeyError> {
        let read = |errno| KeyError::Read { path: path.to_owned(), errno };
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(Parked::new)
            .map_err(read)?;
        let stat = rustix::fs::fstat(&file).map_err(read)?;
        if stat.st_mode & 0o077 != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode: stat.st_mode & 0o7777 });
        }
        if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(KeyError::Owner { path: path.to_owned(), owner: stat.st_uid });
        }
        let mut bytes = vec![0; KEY_LEN_MAX + 1];
        let mut len = 0;
        while len < bytes.len() {
            match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[len..])).map_err(read)? {
                0 => break,
                n => len += n,
            }
        }
        bytes.truncate(len);
        if !(KEY_LEN_MIN..=KEY_LEN_MAX).contains(&len) {
            return Err(KeyError::Length { path: path.to_owned(), len });
        }
        Ok(Self(bytes))
    }

    /// The secret that the handshake between those who know the key begins with.
    pub fn secret(&self) -> Secret {
        self.code(&[b"isonomia key 1"])
    }

    /// The secret with which servers that know the key make out capabilities for objects to each other's clients, while the
    /// cluster file has this epoch.
    pub fn objects_secret(&self, epoch: u64) -> [u8; 16] {
        let secret = self.code(&[b"isonomia objects 1", &epoch.to_le_bytes()]);
        std::array::from_fn(|at| secret[at])
    }

    fn code(&self, label: &[&[u8]]) -> Secret {
        // Keys of every length are valid for HMAC.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        label.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A fresh nonce from the kernel.
pub fn fresh_nonce() -> Result<Nonce, Errno> {
    let mut nonce = [0; 32];
    let mut filled = 0;
    while filled < nonce.len() {
        filled += rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_is_another_secret() {
        let secret = |byte| Key(vec![byte; 32]).secret();
        assert_eq!(secret(7), secret(7));
        assert_ne!(secret(7), secret(8));
        let of_epoch = |byte, epoch| Key(vec![byte; 32]).objects_secret(epoch);
        assert_eq!(of_epoch(7, 3), of_epoch(7, 3));
        assert!(of_epoch(7, 3) != of_epoch(7, 4) && of_epoch(7, 3) != of_epoch(8, 3));
        assert_ne!(of_epoch(7, 3)[..], secret(7)[..16]);
    }

    #[test]
    fn hmac_is_the_standard_one() {
        // RFC 4231, test case 2: key "Jefe" over "what do ya want for nothing?".
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let got: String = mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(got, expected);
    }
}
