//! The offset and the length of an open file.

use crate::calls::real;
use crate::description::FileRef;
use crate::foreign::CPath;
use crate::serve::{by_fd, by_path, refusal};
use isonomia_client::{Change, Client, Error, Extent, FileKind, SpaceChange, access};
use libc::off64_t;
use rustix::io::Errno;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// Moves the offset.
pub fn seek(client: &Client, file_ref: &FileRef, offset: off64_t, whence: c_int) -> Result<off64_t, Error> {
    let mapping = file_ref.mapping()?;
    let size = || Ok::<_, Error>(client.get_attr(file_ref.capability()?, b"", false)?.size_bytes as i64);
    let _lock = mapping.position().lock();
    let current = mapping.offset().load(Ordering::Relaxed) as i64;
    let target = match whence {
        libc::SEEK_SET => Some(offset),
        libc::SEEK_CUR => current.checked_add(offset),
        libc::SEEK_END => size()?.checked_add(offset),
        libc::SEEK_DATA => Some(extent(client, file_ref, offset, Extent::Data)?),
        libc::SEEK_HOLE => Some(extent(client, file_ref, offset, Extent::Hole)?),
        _ => return Err(refusal(Errno::INVAL)),
    };
    let target = target.ok_or(refusal(Errno::OVERFLOW))?;
    if target < 0 {
        return Err(refusal(Errno::INVAL));
    }
    mapping.offset().store(target as u64, Ordering::Relaxed);
    Ok(target)
}

/// Where the next data or hole begins.
fn extent(client: &Client, file_ref: &FileRef, offset: off64_t, what: Extent) -> Result<off64_t, Error> {
    let offset = u64::try_from(offset).map_err(|_| refusal(Errno::NXIO))?;
    client.seek_extent(file_ref.file()?, offset, what).map(|found| found as off64_t)
}

/// The checks are in the kernel's order, and so are the errors.
fn change_space(client: &Client, file_ref: &FileRef, mode: c_int, offset: off64_t, len: off64_t) -> Result<(), Error> {
    if offset < 0 || len <= 0 {
        return Err(refusal(Errno::INVAL));
    }
    // What the kernel's file systems know besides is not served.
    let change = SpaceChange::from_mode(mode as u32).ok_or(refusal(Errno::OPNOTSUPP))?;
    let file = file_ref.file()?;
    if file.capability.access & access::WRITE == 0 {
        return Err(refusal(Errno::BADF));
    }
    offset.checked_add(len).ok_or(refusal(Errno::FBIG))?;
    client.change_space(file, change, offset as u64, len as u64)
}

fn truncate_fd(client: &Client, file_ref: &FileRef, size: off64_t) -> Result<c_int, Error> {
    let size = u64::try_from(size).map_err(|_| refusal(Errno::INVAL))?;
    let file = file_ref.file()?;
    match (file_ref.flags() & libc::O_PATH != 0, file.capability.access & access::WRITE != 0) {
        (true, _) => Err(refusal(Errno::BADF)),
        (false, false) => Err(refusal(Errno::INVAL)),
        (false, true) => client.truncate(file, size).map(|_| 0),
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

/// Makes room for what will be written. Where the server's disks cannot do that the file becomes as long as asked all the
/// same, which is what `posix_fallocate` promises of sizes.
fn make_room(client: &Client, file_ref: &FileRef, offset: off64_t, len: off64_t) -> Result<(), Error> {
    let made = change_space(client, file_ref, 0, offset, len);
    if !made.as_ref().is_err_and(|error| error.errno() == Errno::OPNOTSUPP) {
        return made;
    }
    let end = offset as u64 + len as u64;
    if client.get_attr(file_ref.capability()?, b"", false)?.size_bytes < end {
        client.truncate(file_ref.file()?, end)?;
    }
    Ok(())
}

/// `posix_fallocate` returns its error instead of setting `errno`.
fn allocate(fd: c_int, offset: off64_t, len: off64_t, real: impl FnOnce() -> c_int) -> c_int {
    by_fd(
        fd,
        |client, file_ref| {
            Ok(make_room(client, file_ref, offset, len).map_or_else(|error| error.errno().raw_os_error(), |()| 0))
        },
        real,
    )
}

pub fn lseek(fd: c_int, offset: off64_t, whence: c_int) -> off64_t {
    by_fd(fd, |client, file_ref| seek(client, file_ref, offset, whence), || real::lseek(fd, offset, whence))
}

pub fn ftruncate(fd: c_int, size: off64_t) -> c_int {
    by_fd(fd, |client, file_ref| truncate_fd(client, file_ref, size), || real::ftruncate(fd, size))
}

pub fn truncate(path: CPath, size: off64_t) -> c_int {
    truncate_path(path, size, |path| real::truncate(path, size))
}

pub fn fallocate(fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int {
    by_fd(
        fd,
        |client, file_ref| change_space(client, file_ref, mode, offset, len).map(|()| 0),
        || real::fallocate(fd, mode, offset, len),
    )
}

pub fn posix_fallocate(fd: c_int, offset: off64_t, len: off64_t) -> c_int {
    allocate(fd, offset, len, || real::posix_fallocate(fd, offset, len))
}

pub fn posix_fallocate64(fd: c_int, offset: off64_t, len: off64_t) -> c_int {
    allocate(fd, offset, len, || real::posix_fallocate64(fd, offset, len))
}

pub fn posix_fadvise(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int {
    by_fd(fd, |_, _| Ok(0), || real::posix_fadvise(fd, offset, len, advice))
}

pub fn readahead(fd: c_int, offset: off64_t, count: usize) -> libc::ssize_t {
    by_fd(fd, |_, _| Ok(0), || real::readahead(fd, offset, count))
}
