//! The offset and the length of an open file.

use crate::calls::real;
use crate::description::Held;
use crate::foreign::CPath;
use crate::serve::{by_fd, by_path, refusal};
use isonomia_client::{Change, Client, Error, FileKind, access};
use libc::off64_t;
use rustix::io::Errno;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// Moves the offset; a file is one piece of data without holes as far as `SEEK_DATA` and `SEEK_HOLE` are concerned.
pub fn seek(client: &Client, held: &Held, offset: off64_t, whence: c_int) -> Result<off64_t, Error> {
    let mapping = held.mapping()?;
    let size = || Ok::<_, Error>(client.get_attr(held.capability()?, b"", false)?.size_bytes as i64);
    let _turn = mapping.position().lock();
    let current = mapping.offset().load(Ordering::Relaxed) as i64;
    let target = match whence {
        libc::SEEK_SET => Some(offset),
        libc::SEEK_CUR => current.checked_add(offset),
        libc::SEEK_END => size()?.checked_add(offset),
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let size = size()?;
            if offset < 0 || offset >= size {
                return Err(refusal(Errno::NXIO));
            }
            Some(if whence == libc::SEEK_DATA { offset } else { size })
        }
        _ => return Err(refusal(Errno::INVAL)),
    };
    let target = target.ok_or(refusal(Errno::OVERFLOW))?;
    if target < 0 {
        return Err(refusal(Errno::INVAL));
    }
    mapping.offset().store(target as u64, Ordering::Relaxed);
    Ok(target)
}

fn truncate_fd(client: &Client, held: &Held, size: off64_t) -> Result<c_int, Error> {
    let size = u64::try_from(size).map_err(|_| refusal(Errno::INVAL))?;
    let file = held.file()?;
    match (held.flags() & libc::O_PATH != 0, file.capability.access & access::WRITE != 0) {
        (true, _) => Err(refusal(Errno::BADF)),
        (false, false) => Err(refusal(Errno::INVAL)),
        (false, true) => client.set_size(&file.capability, size).map(|_| 0),
    }
}

fn truncate_path(path: CPath, size: off64_t, real: impl FnOnce(CPath) -> c_int) -> c_int {
    let serve = |client: &Client, at, path: &[u8]| {
        let size = u64::try_from(size).map_err(|_| refusal(Errno::INVAL))?;
        let kind = client.get_attr(at, path, true)?.kind();
        match kind {
            FileKind::Directory => return Err(refusal(Errno::ISDIR)),
            FileKind::Regular => {}
            _ => return Err(refusal(Errno::INVAL)),
        }
        client.set_attr(at, path, true, &Change { size_bytes: Some(size), ..Change::default() }).map(|_| 0)
    };
    by_path(libc::AT_FDCWD, path, serve, |_, path| real(path))
}

/// Reserves nothing, but makes the file as long as asked: what `posix_fallocate` promises of sizes.
fn grow(client: &Client, held: &Held, offset: off64_t, len: off64_t) -> Result<(), Error> {
    let end = offset.checked_add(len).ok_or(refusal(Errno::FBIG))?;
    if offset < 0 || len <= 0 {
        return Err(refusal(Errno::INVAL));
    }
    let file = held.file()?;
    if file.capability.access & access::WRITE == 0 {
        return Err(refusal(Errno::BADF));
    }
    if client.get_attr(held.capability()?, b"", false)?.size_bytes < end as u64 {
        client.set_size(&file.capability, end as u64)?;
    }
    Ok(())
}

/// `posix_fallocate` returns its error instead of setting `errno`.
fn posix_grow(fd: c_int, offset: off64_t, len: off64_t, real: impl FnOnce() -> c_int) -> c_int {
    by_fd(
        fd,
        |client, held| Ok(grow(client, held, offset, len).map_or_else(|error| error.errno().raw_os_error(), |()| 0)),
        real,
    )
}

pub fn lseek(fd: c_int, offset: off64_t, whence: c_int) -> off64_t {
    by_fd(fd, |client, held| seek(client, held, offset, whence), || real::lseek(fd, offset, whence))
}

pub fn ftruncate(fd: c_int, size: off64_t) -> c_int {
    by_fd(fd, |client, held| truncate_fd(client, held, size), || real::ftruncate(fd, size))
}

pub fn truncate(path: CPath, size: off64_t) -> c_int {
    truncate_path(path, size, |path| real::truncate(path, size))
}

pub fn posix_fallocate(fd: c_int, offset: off64_t, len: off64_t) -> c_int {
    posix_grow(fd, offset, len, || real::posix_fallocate(fd, offset, len))
}

pub fn posix_fallocate64(fd: c_int, offset: off64_t, len: off64_t) -> c_int {
    posix_grow(fd, offset, len, || real::posix_fallocate64(fd, offset, len))
}

pub fn posix_fadvise(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int {
    by_fd(fd, |_, _| Ok(0), || real::posix_fadvise(fd, offset, len, advice))
}

pub fn readahead(fd: c_int, offset: off64_t, count: usize) -> libc::ssize_t {
    by_fd(fd, |_, _| Ok(0), || real::readahead(fd, offset, count))
}
