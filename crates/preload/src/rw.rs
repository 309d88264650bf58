//! Reading and writing.
//!
//! Transfers at the file's own offset take the lock of [`crate::position`], so they take effect one after the other
//! in all processes that share the open file. Positioned transfers take no lock. Nothing is allocated, except where
//! several buffers travel together: those of an append, which must arrive in one piece, and short ones.

use crate::calls::real;
use crate::description::FileRef;
use crate::foreign::{Buffer, Data, In, part_buffer, part_data, parts};
use crate::serve::{by_fd, refusal};
use crate::sqlite;
use isonomia_client::{Client, Error, OpenFile, access};
use libc::{iovec, off64_t, size_t, ssize_t};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::c_int;
use std::iter::Peekable;
use std::sync::atomic::Ordering;

/// The most that one call transfers, as in the kernel.
const TRANSFER_LEN_MAX: usize = 0x7fff_f000;
/// Buffers of one call travel together up to this length: each by itself would wait for its turn, and for the device. In memory
/// copying more of them takes longer than a request does.
const TOGETHER_LEN_MAX: usize = 256 << 10;

fn readable(file_ref: &FileRef) -> Result<&OpenFile, Error> {
    let file = file_ref.file()?;
    match (file_ref.flags() & libc::O_PATH != 0, file_ref.is_directory()) {
        (false, true) => Err(refusal(Errno::ISDIR)),
        (false, false) if file.capability.access & access::READ != 0 => Ok(file),
        _ => Err(refusal(Errno::BADF)),
    }
}

fn writable(file_ref: &FileRef) -> Result<&OpenFile, Error> {
    let file = file_ref.file()?;
    if file.capability.access & access::WRITE != 0 { Ok(file) } else { Err(refusal(Errno::BADF)) }
}

fn position(offset: off64_t) -> Result<u64, Error> {
    u64::try_from(offset).map_err(|_| refusal(Errno::INVAL))
}

fn whole<T>(bytes: Option<T>) -> Result<T, Error> {
    bytes.ok_or(refusal(Errno::FAULT))
}

/// What is synchronous by its flags is on stable storage before the write returns.
fn settle(client: &Client, file_ref: &FileRef, file: &OpenFile) -> Result<(), Error> {
    let flags = file_ref.flags();
    match (flags & libc::O_SYNC == libc::O_SYNC, flags & libc::O_DSYNC != 0) {
        (false, false) => Ok(()),
        (all, _) => client.sync(file, !all),
    }
}

/// Reads part after part from `offset` until one stays short; the bytes read. An error after some bytes is left for
/// the next call to meet.
fn read_parts(
    client: &Client,
    file: &OpenFile,
    mut offset: u64,
    buffers: impl Iterator<Item = (Buffer, size_t)>,
) -> Result<usize, Error> {
    let mut buffers = buffers.peekable();
    let mut total = 0;
    while let Some(first) = buffers.next() {
        let (others, mut together) = others_beside(first.1, &mut buffers);
        let wanted = if others.is_empty() { whole(first.0.bytes(first.1)) } else { Ok(&mut together[..]) };
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => return if total > 0 { Ok(total) } else { Err(error) },
        };
        let len = wanted.len();
        let room = len.min(TRANSFER_LEN_MAX - total);
        let count = match client.read_at(file, offset, &mut wanted[..room]) {
            Ok(count) => count,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        };
        if !others.is_empty() {
            scatter(&together[..count], std::iter::once(first).chain(others))?;
        }
        total += count;
        offset += count as u64;
        if count < len {
            break;
        }
    }
    Ok(total)
}

/// Whether a buffer of `len` bytes travels with those before it, of which the first has `first` bytes and all have `together`.
fn go_together(first: usize, together: usize, len: usize) -> bool {
    first.max(len) < TOGETHER_LEN_MAX && together + len <= TOGETHER_LEN_MAX
}

/// The buffers that are to be filled together with one of `first` bytes, and room for what all of them get; none without memory
/// for it.
fn others_beside(
    first: usize,
    buffers: &mut Peekable<impl Iterator<Item = (Buffer, size_t)>>,
) -> (Vec<(Buffer, size_t)>, Vec<u8>) {
    let (mut others, mut together) = (Vec::new(), Vec::new());
    let mut len = first;
    while let Some(next) = buffers.next_if(|(_, next)| {
        let mut has_room = || others.try_reserve(1).and_then(|()| together.try_reserve(len + next)).is_ok();
        go_together(first, len, *next) && has_room()
    }) {
        len += next.1;
        others.push(next);
    }
    if !others.is_empty() {
        together.resize(len, 0);
    }
    (others, together)
}

/// Puts `bytes` into one buffer after the other. A program's buffers may overlie each other, so each is looked at alone.
fn scatter(mut bytes: &[u8], buffers: impl Iterator<Item = (Buffer, size_t)>) -> Result<(), Error> {
    for (buffer, len) in buffers {
        let (begin, rest) = bytes.split_at(len.min(bytes.len()));
        whole(buffer.bytes(begin.len()))?.copy_from_slice(begin);
        bytes = rest;
    }
    Ok(())
}

/// The bytes of `first`, with those of the buffers that travel with it; without memory for them it goes alone.
fn with_others<'a>(
    first: &'a [u8],
    parts: &mut Peekable<impl Iterator<Item = Result<&'a [u8], Error>>>,
) -> Cow<'a, [u8]> {
    let mut together = Vec::new();
    let mut len = first.len();
    while let Some(Ok(next)) = parts.next_if(|next| {
        let mut has_room = |next: usize| together.try_reserve(len + next - together.len()).is_ok();
        next.as_ref().is_ok_and(|next| go_together(first.len(), len, next.len()) && has_room(next.len()))
    }) {
        if together.is_empty() {
            together.extend_from_slice(first);
        }
        together.extend_from_slice(next);
        len += next.len();
    }
    if len > first.len() { Cow::Owned(together) } else { Cow::Borrowed(first) }
}

/// As [`read_parts`], writing.
fn write_parts<'a>(
    client: &Client,
    file_ref: &FileRef,
    file: &OpenFile,
    mut offset: u64,
    parts: impl Iterator<Item = Result<&'a [u8], Error>>,
) -> Result<usize, Error> {
    let is_direct = file_ref.flags() & libc::O_DIRECT != 0;
    let mut parts = parts.peekable();
    let mut total = 0;
    while let Some(data) = parts.next() {
        let data = match data {
            Ok(data) => with_others(data, &mut parts),
            Err(error) => return if total > 0 { Ok(total) } else { Err(error) },
        };
        let len = data.len().min(TRANSFER_LEN_MAX - total);
        if i64::try_from(offset).ok().and_then(|offset| offset.checked_add(len as i64)).is_none() {
            return if total > 0 { Ok(total) } else { Err(refusal(Errno::FBIG)) };
        }
        if offset == 0 {
            sqlite::check(client, file, &data)?;
        }
        let written = match is_direct {
            true => client.write_direct_at(file, offset, &data[..len]),
            false => client.write_at(file, offset, &data[..len]),
        };
        let count = match written {
            Ok(count) => count,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        };
        total += count;
        offset += count as u64;
        if count < data.len() {
            break;
        }
    }
    Ok(total)
}

/// Reads at the open file's own offset.
pub fn read_on(
    client: &Client,
    file_ref: &FileRef,
    buffers: impl Iterator<Item = (Buffer, size_t)>,
) -> Result<ssize_t, Error> {
    let file = readable(file_ref)?;
    let mapping = file_ref.mapping()?;
    let _lock = mapping.position().lock();
    let offset = mapping.offset().load(Ordering::Relaxed);
    let count = read_parts(client, file, offset, buffers)?;
    mapping.offset().store(offset + count as u64, Ordering::Relaxed);
    Ok(count as ssize_t)
}

/// Writes at the open file's own offset, or at its end.
pub fn write_on<'a>(
    client: &Client,
    file_ref: &FileRef,
    data: impl Iterator<Item = Result<&'a [u8], Error>>,
) -> Result<ssize_t, Error> {
    let file = writable(file_ref)?;
    let mapping = file_ref.mapping()?;
    let _lock = mapping.position().lock();
    let (offset, count) = if file_ref.flags() & libc::O_APPEND != 0 {
        append(client, file, data)?
    } else {
        let offset = mapping.offset().load(Ordering::Relaxed);
        (offset, write_parts(client, file_ref, file, offset, data)?)
    };
    mapping.offset().store(offset + count as u64, Ordering::Relaxed);
    settle(client, file_ref, file)?;
    Ok(count as ssize_t)
}

fn append<'a>(
    client: &Client,
    file: &OpenFile,
    mut data: impl Iterator<Item = Result<&'a [u8], Error>>,
) -> Result<(u64, usize), Error> {
    let first = data.next().transpose()?.unwrap_or(&[]);
    match data.next().transpose()? {
        None => client.append(file, &first[..first.len().min(TRANSFER_LEN_MAX)]),
        Some(second) => {
            let mut joined = [first, second].concat();
            for part in data {
                joined.extend_from_slice(part?);
            }
            joined.truncate(TRANSFER_LEN_MAX);
            client.append(file, &joined)
        }
    }
}

/// Reads at `offset`.
fn read_from(
    client: &Client,
    file_ref: &FileRef,
    offset: off64_t,
    buffers: impl Iterator<Item = (Buffer, size_t)>,
) -> Result<ssize_t, Error> {
    Ok(read_parts(client, readable(file_ref)?, position(offset)?, buffers)? as ssize_t)
}

/// Writes at `offset`; at the end, as Linux does, if the file is open for appending.
fn write_to<'a>(
    client: &Client,
    file_ref: &FileRef,
    offset: off64_t,
    data: impl Iterator<Item = Result<&'a [u8], Error>>,
) -> Result<ssize_t, Error> {
    let file = writable(file_ref)?;
    let offset = position(offset)?;
    let count = if file_ref.flags() & libc::O_APPEND != 0 {
        append(client, file, data)?.1
    } else {
        write_parts(client, file_ref, file, offset, data)?
    };
    settle(client, file_ref, file)?;
    Ok(count as ssize_t)
}

fn one_buffer(buffer: Buffer, len: size_t) -> impl Iterator<Item = (Buffer, size_t)> {
    std::iter::once((buffer, len.min(TRANSFER_LEN_MAX)))
}

fn one_data<'a>(data: Data, len: size_t) -> impl Iterator<Item = Result<&'a [u8], Error>> {
    std::iter::once(whole(data.bytes(len.min(TRANSFER_LEN_MAX))))
}

fn buffers(iov: In<iovec>, count: c_int) -> Result<impl Iterator<Item = (Buffer, size_t)>, Error> {
    Ok(parts(iov, count)?.iter().map(|part| (part_buffer(part), part.iov_len)))
}

fn pieces<'a>(iov: In<iovec>, count: c_int) -> Result<impl Iterator<Item = Result<&'a [u8], Error>>, Error> {
    Ok(parts(iov, count)?.iter().map(|part| whole(part_data(part).bytes(part.iov_len))))
}

#[inline]
pub fn read(fd: c_int, buffer: Buffer, len: size_t) -> ssize_t {
    by_fd(fd, |client, file_ref| read_on(client, file_ref, one_buffer(buffer, len)), || real::read(fd, buffer, len))
}

pub fn __read_chk(fd: c_int, buffer: Buffer, len: size_t, room: size_t) -> ssize_t {
    // Where the buffer is too small, the real function ends the program with its own message.
    let fits = len <= room;
    let serve = |client: &'static Client, file_ref: &FileRef| read_on(client, file_ref, one_buffer(buffer, len));
    if fits {
        by_fd(fd, serve, || real::__read_chk(fd, buffer, len, room))
    } else {
        real::__read_chk(fd, buffer, len, room)
    }
}

#[inline]
pub fn write(fd: c_int, data: Data, len: size_t) -> ssize_t {
    by_fd(fd, |client, file_ref| write_on(client, file_ref, one_data(data, len)), || real::write(fd, data, len))
}

pub fn readv(fd: c_int, iov: In<iovec>, count: c_int) -> ssize_t {
    by_fd(fd, |client, file_ref| read_on(client, file_ref, buffers(iov, count)?), || real::readv(fd, iov, count))
}

pub fn writev(fd: c_int, iov: In<iovec>, count: c_int) -> ssize_t {
    by_fd(fd, |client, file_ref| write_on(client, file_ref, pieces(iov, count)?), || real::writev(fd, iov, count))
}

#[inline]
pub fn pread(fd: c_int, buffer: Buffer, len: size_t, offset: off64_t) -> ssize_t {
    by_fd(
        fd,
        |client, file_ref| read_from(client, file_ref, offset, one_buffer(buffer, len)),
        || real::pread(fd, buffer, len, offset),
    )
}

/// Where the buffer is too small, the real function ends the program with its own message.
fn pread_checked(
    fd: c_int,
    buffer: Buffer,
    len: size_t,
    offset: off64_t,
    room: size_t,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if len > room {
        return real();
    }
    by_fd(fd, |client, file_ref| read_from(client, file_ref, offset, one_buffer(buffer, len)), real)
}

pub fn __pread_chk(fd: c_int, buffer: Buffer, len: size_t, offset: off64_t, room: size_t) -> ssize_t {
    pread_checked(fd, buffer, len, offset, room, || real::__pread_chk(fd, buffer, len, offset, room))
}

pub fn __pread64_chk(fd: c_int, buffer: Buffer, len: size_t, offset: off64_t, room: size_t) -> ssize_t {
    pread_checked(fd, buffer, len, offset, room, || real::__pread64_chk(fd, buffer, len, offset, room))
}

#[inline]
pub fn pwrite(fd: c_int, data: Data, len: size_t, offset: off64_t) -> ssize_t {
    by_fd(
        fd,
        |client, file_ref| write_to(client, file_ref, offset, one_data(data, len)),
        || real::pwrite(fd, data, len, offset),
    )
}

pub fn preadv(fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t) -> ssize_t {
    by_fd(
        fd,
        |client, file_ref| read_from(client, file_ref, offset, buffers(iov, count)?),
        || real::preadv(fd, iov, count, offset),
    )
}

pub fn pwritev(fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t) -> ssize_t {
    by_fd(
        fd,
        |client, file_ref| write_to(client, file_ref, offset, pieces(iov, count)?),
        || real::pwritev(fd, iov, count, offset),
    )
}

/// Flags that may be ignored: hints, or what applies to every transfer anyway.
const READ_HINTS: c_int = libc::RWF_HIPRI;
/// As [`READ_HINTS`]; the synchronous ones are carried out.
const WRITE_HINTS: c_int = libc::RWF_HIPRI | libc::RWF_SYNC | libc::RWF_DSYNC;

pub fn preadv2(fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
    let serve = |client: &'static Client, file_ref: &FileRef| match (flags & !READ_HINTS, offset) {
        (0, -1) => read_on(client, file_ref, buffers(iov, count)?),
        (0, _) => read_from(client, file_ref, offset, buffers(iov, count)?),
        _ => Err(refusal(Errno::OPNOTSUPP)),
    };
    by_fd(fd, serve, || real::preadv2(fd, iov, count, offset, flags))
}

pub fn pwritev2(fd: c_int, iov: In<iovec>, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
    let serve = |client: &'static Client, file_ref: &FileRef| match (flags & !WRITE_HINTS, offset) {
        (0, -1) => write_on(client, file_ref, pieces(iov, count)?),
        (0, _) => write_to(client, file_ref, offset, pieces(iov, count)?),
        _ => Err(refusal(Errno::OPNOTSUPP)),
    };
    let served = by_fd(fd, serve, || real::pwritev2(fd, iov, count, offset, flags));
    if served > 0 && flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
        by_fd(fd, |client, file_ref| client.sync(file_ref.file()?, false).map(|()| served), || served)
    } else {
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::Opaque;

    /// How many bytes travel together of parts of these lengths, of reads and of writes.
    fn together(lens: &[usize]) -> Vec<usize> {
        let bytes = vec![7; *lens.iter().max().unwrap()];
        let mut parts = lens.iter().map(|len| Ok(&bytes[..*len])).peekable();
        let mut written = Vec::new();
        while let Some(first) = parts.next() {
            written.push(with_others(first.unwrap(), &mut parts).len());
        }
        let nowhere = Opaque(std::ptr::null_mut()).to_fill();
        let mut buffers = lens.iter().map(|len| (nowhere, *len)).peekable();
        let mut read = Vec::new();
        while let Some((_, first)) = buffers.next() {
            let (others, room) = others_beside(first, &mut buffers);
            assert_eq!(first + others.iter().map(|(_, len)| len).sum::<usize>(), room.len().max(first));
            read.push(room.len().max(first));
        }
        assert_eq!(read, written);
        written
    }

    #[test]
    fn short_buffers_travel_together_and_long_ones_alone() {
        assert_eq!(together(&[3]), [3]);
        assert_eq!(together(&[0]), [0]);
        assert_eq!(together(&[0, 1, 0, 2, 0]), [3]);
        let long = TOGETHER_LEN_MAX;
        assert_eq!(together(&[1, long, 2, 3, long, long, 0]), [1, long, 5, long, long, 0]);
        let part = 50 << 10;
        assert_eq!(together(&[part; 11]), [5 * part, 5 * part, part]);
        assert_eq!(together(&[4096; 256]), [long; 4]);
    }

    #[test]
    fn what_is_wrong_with_a_part_keeps_none_of_those_before_it() {
        let mut parts = [Ok(&b"ab"[..]), Ok(b"c"), Err(refusal(Errno::FAULT)), Ok(b"d")].into_iter().peekable();
        let first = parts.next().unwrap().unwrap();
        assert_eq!(&*with_others(first, &mut parts), b"abc");
        assert!(parts.next().unwrap().is_err());
    }

    #[test]
    fn buffers_are_filled_in_order_as_far_as_there_are_bytes_also_where_they_overlie_each_other() {
        let mut memory = *b"........";
        let begin = memory.as_mut_ptr();
        let at = |offset| Opaque(begin.wrapping_add(offset).cast()).to_fill();
        let buffers = [(at(0), 3), (at(3), 0), (at(2), 3), (at(6), 2)];
        scatter(b"abcdefg", buffers.into_iter()).unwrap();
        assert_eq!(&memory, b"abdef.g.");
    }
}
