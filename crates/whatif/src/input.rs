//! Input files, as far as they are read at all.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest file that is read, in bytes.
pub const FILE_LEN_MAX: u64 = 256 << 20;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not there, or not for us.
    #[error("cannot open {}: {why}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It broke off.
    #[error("cannot read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is too long.
    #[error("{} is too long (allowed: {FILE_LEN_MAX} bytes)", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
}

/// The bytes of the file at `path`.
///
/// # Errors
/// It cannot be read, or is longer than [`FILE_LEN_MAX`].
pub fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|why| ReadError::Open { path: path.to_owned(), why })?;
    file.take(FILE_LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|why| ReadError::Read { path: path.to_owned(), why })?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(ReadError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// The text of the file at `path`.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, ReadError> {
    String::from_utf8(read(path)?).map_err(|error| {
        let why = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        ReadError::Read { path: path.to_owned(), why }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("/nowhere/case.toml")).unwrap_err();
        assert!(error.to_string().starts_with("cannot open /nowhere/case.toml: "), "{error}");
        let error = read(Path::new("/")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /: "), "{error}");
    }
}
