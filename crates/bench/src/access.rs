//! The calls that are measured: the C library's, or the client library's without any interception.

use anyhow::{Context, Result, ensure};
use isonomia_client::{Client, Ino, OpenFile, OpenHow, access};
use isonomia_units::Nanos;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Permissions of what is created.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// How this process reaches its files.
pub enum Access {
    /// By plain calls below a directory: tmpfs, or a served prefix with the preload library in the process.
    Path(PathBuf),
    /// By the client library.
    Library(Box<Client>),
}

/// An open file.
pub enum File {
    /// A descriptor.
    Path(fs::File),
    /// The library's.
    Library(OpenFile),
}

/// What an open does to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It must not exist; for writing.
    CreateNew,
    /// Created if absent, emptied otherwise; for reading and writing.
    Empty,
}

impl Access {
    /// Creates a directory.
    pub fn create_dir(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Path(dir) => fs::create_dir(dir.join(name)),
            Self::Library(client) => client.mkdir(Ino::ROOT, name.as_bytes(), DIR_MODE).map(drop).map_err(io_error),
        }
    }

    /// Opens a file.
    pub fn open(&self, name: &str, opening: Opening) -> io::Result<File> {
        let is_new = opening == Opening::CreateNew;
        match self {
            Self::Path(dir) => {
                let mut options = fs::OpenOptions::new();
                options.read(!is_new).write(true).create(true).create_new(is_new).truncate(!is_new);
                options.open(dir.join(name)).map(File::Path)
            }
            Self::Library(client) => {
                let how = OpenHow {
                    access: if is_new { access::WRITE } else { access::READ | access::WRITE },
                    create: true,
                    exclusive: is_new,
                    truncate: !is_new,
                    mode: FILE_MODE,
                    ..OpenHow::default()
                };
                client.open(Ino::ROOT, name.as_bytes(), &how).map(File::Library).map_err(io_error)
            }
        }
    }

    /// Closes a file.
    pub fn close(&self, file: File) -> io::Result<()> {
        match (self, file) {
            (Self::Library(client), File::Library(file)) => {
                client.release(Ino(file.capability.ino), 0).map_err(io_error)
            }
            (_, file) => {
                drop(file);
                Ok(())
            }
        }
    }

    /// Looks at a file by its path.
    pub fn stat(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Path(dir) => fs::metadata(dir.join(name)).map(drop),
            Self::Library(client) => client.get_attr(Ino::ROOT, name.as_bytes(), true).map(drop).map_err(io_error),
        }
    }

    /// Removes a file.
    pub fn unlink(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Path(dir) => fs::remove_file(dir.join(name)),
            Self::Library(client) => client.unlink(Ino::ROOT, name.as_bytes()).map_err(io_error),
        }
    }

    /// Says that an I/O phase begins, if that can be said.
    pub fn begin_phase(&self, bytes: u64, remaining: Nanos) -> Result<()> {
        match self {
            Self::Library(client) => Ok(client.begin_phase(bytes, Some(remaining)).map_err(io_error)?),
            Self::Path(_) => Ok(()),
        }
    }

    /// Says that it is over.
    pub fn end_phase(&self) -> Result<()> {
        match self {
            Self::Library(client) => Ok(client.end_phase().map_err(io_error)?),
            Self::Path(_) => Ok(()),
        }
    }

    /// Writes a whole block in one call.
    #[inline]
    pub fn write_at(&self, file: &File, offset: u64, block: &[u8]) -> Result<()> {
        let count = match (self, file) {
            (Self::Library(client), File::Library(file)) => client.write_at(file, offset, block).map_err(io_error),
            (_, File::Path(file)) => file.write_at(block, offset),
            (Self::Path(_), File::Library(_)) => unreachable!("a file is used with the access that opened it"),
        }
        .with_context(|| format!("write of {} bytes at {offset}", block.len()))?;
        ensure!(count == block.len(), "only {count} of {} bytes were written at {offset}", block.len());
        Ok(())
    }

    /// Reads a whole block in one call.
    #[inline]
    pub fn read_at(&self, file: &File, offset: u64, block: &mut [u8]) -> Result<()> {
        let count = match (self, file) {
            (Self::Library(client), File::Library(file)) => client.read_at(file, offset, block).map_err(io_error),
            (_, File::Path(file)) => file.read_at(block, offset),
            (Self::Path(_), File::Library(_)) => unreachable!("a file is used with the access that opened it"),
        }
        .with_context(|| format!("read of {} bytes at {offset}", block.len()))?;
        ensure!(count == block.len(), "only {count} of {} bytes were read at {offset}", block.len());
        Ok(())
    }
}

fn io_error(error: isonomia_client::Error) -> io::Error {
    io::Error::other(error.to_string())
}
