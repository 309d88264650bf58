//! The C library: wherever the paths lead.

mod mapping;
mod xattr;

use crate::model::PAGE_LEN;
use crate::{Actor, Attr, Operation, Outcome, RenameHow, SLOTS};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, open, readlink, renameat2};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmodat, fstat, lstat, mknod, stat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{
    AccessFlags, Gid, Uid, UnlinkatFlags, Whence, access, chown, dup, fsync, ftruncate, linkat, lseek, mkdir, read,
    symlinkat, truncate, unlinkat, write,
};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// An actor that calls the C library.
#[derive(Debug, Default)]
pub struct CLibrary {
    root: String,
    slots: [Option<OwnedFd>; SLOTS],
}

fn mode(bits: u32) -> Mode {
    Mode::from_bits_truncate(bits)
}

#[allow(clippy::useless_conversion, reason = "links are counted in 32 bits on some machines")]
fn attr(stat: &FileStat) -> Outcome {
    let attr = Attr {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: stat.st_nlink.into(),
        size: stat.st_size.max(0) as u64,
        mtime: None,
    };
    Outcome::Attr(attr.comparable(stat.st_mtime))
}

fn names(mut dir: Dir) -> Result<Outcome, Errno> {
    let names = dir.iter().map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec()));
    Ok(Outcome::of_names(names.collect::<Result<Vec<_>, Errno>>()?))
}

impl Actor for CLibrary {
    fn begin(&mut self, root: &str) {
        *self = Self { root: root.to_owned(), ..Self::default() };
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        self.run(operation).unwrap_or_else(|errno| Outcome::Failed(errno as i32))
    }
}

impl CLibrary {
    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::EBADF)
    }

    fn run(&mut self, operation: &Operation) -> Result<Outcome, Errno> {
        match operation {
            Operation::Open { slot, path, how } => {
                let access = match (how.read, how.write) {
                    (true, true) => OFlag::O_RDWR,
                    (false, true) => OFlag::O_WRONLY,
                    _ => OFlag::O_RDONLY,
                };
                let mut flags = access | OFlag::O_CLOEXEC;
                flags.set(OFlag::O_APPEND, how.append);
                flags.set(OFlag::O_CREAT, how.create);
                flags.set(OFlag::O_EXCL, how.exclusive);
                flags.set(OFlag::O_TRUNC, how.truncate);
                flags.set(OFlag::O_NOFOLLOW, how.no_follow);
                flags.set(OFlag::O_DIRECTORY, how.directory);
                self.slots[*slot] = None;
                self.slots[*slot] = Some(open(self.path(path).as_str(), flags, mode(how.mode))?);
            }
            Operation::Duplicate { slot, to } => {
                let duplicate = dup(self.slot(*slot)?)?;
                self.slots[*to] = Some(duplicate);
            }
            Operation::Close { slot } => drop(self.slots[*slot].take().ok_or(Errno::EBADF)?),
            Operation::Read { slot, len } => {
                let mut buffer = vec![0; *len];
                let len = read(self.slot(*slot)?, &mut buffer)?;
                return Ok(Outcome::of_bytes(&buffer[..len]));
            }
            Operation::Write { slot, len, fill } => {
                return Ok(Outcome::Count(write(self.slot(*slot)?, &vec![*fill; *len])? as u64));
            }
            Operation::ReadAt { slot, offset, len } => {
                let mut buffer = vec![0; *len];
                let len = pread(self.slot(*slot)?, &mut buffer, *offset as i64)?;
                return Ok(Outcome::of_bytes(&buffer[..len]));
            }
            Operation::WriteAt { slot, offset, len, fill } => {
                return Ok(Outcome::Count(pwrite(self.slot(*slot)?, &vec![*fill; *len], *offset as i64)? as u64));
            }
            Operation::MapRead { slot, page, len } => {
                return Ok(Outcome::of_bytes(&mapping::read(self.slot(*slot)?, page * PAGE_LEN, *len)?));
            }
            // File systems differ in what the position in a directory means.
            Operation::Seek { slot, .. } | Operation::SeekEnd { slot }
                if SFlag::from_bits_truncate(fstat(self.slot(*slot)?)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR => {}
            Operation::Seek { slot, to } => {
                return Ok(Outcome::Count(lseek(self.slot(*slot)?, *to as i64, Whence::SeekSet)? as u64));
            }
            Operation::SeekEnd { slot } => {
                return Ok(Outcome::Count(lseek(self.slot(*slot)?, 0, Whence::SeekEnd)? as u64));
            }
            Operation::Resize { slot, size } => ftruncate(self.slot(*slot)?, *size as i64)?,
            Operation::Truncate { path, size } => truncate(self.path(path).as_str(), *size as i64)?,
            Operation::Sync { slot } => fsync(self.slot(*slot)?)?,
            Operation::StatSlot { slot } => return Ok(attr(&fstat(self.slot(*slot)?)?)),
            Operation::Stat { path, follow } => {
                let look = if *follow { stat } else { lstat };
                return Ok(attr(&look(self.path(path).as_str())?));
            }
            Operation::Access { path, mask } => {
                access(self.path(path).as_str(), AccessFlags::from_bits_truncate(*mask as i32))?;
            }
            Operation::Mkdir { path, mode: bits } => mkdir(self.path(path).as_str(), mode(*bits))?,
            Operation::Socket { path, mode: bits } => {
                mknod(self.path(path).as_str(), SFlag::S_IFSOCK, mode(*bits), 0)?;
            }
            Operation::Rmdir { path } => unlinkat(AT_FDCWD, self.path(path).as_str(), UnlinkatFlags::RemoveDir)?,
            Operation::Unlink { path } => unlinkat(AT_FDCWD, self.path(path).as_str(), UnlinkatFlags::NoRemoveDir)?,
            Operation::Rename { path, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::RENAME_NOREPLACE,
                    RenameHow::Exchange => RenameFlags::RENAME_EXCHANGE,
                };
                renameat2(AT_FDCWD, self.path(path).as_str(), AT_FDCWD, self.path(to).as_str(), flags)?;
            }
            Operation::Link { path, to } => {
                let (path, to) = (self.path(path), self.path(to));
                linkat(AT_FDCWD, path.as_str(), AT_FDCWD, to.as_str(), AtFlags::empty())?;
            }
            Operation::Symlink { text, path } => symlinkat(text.as_str(), AT_FDCWD, self.path(path).as_str())?,
            Operation::Readlink { path } => {
                let text = readlink(self.path(path).as_str())?;
                return Ok(Outcome::Text(String::from_utf8_lossy(text.as_bytes()).into_owned()));
            }
            Operation::List { path } => {
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                return names(Dir::open(self.path(path).as_str(), flags, Mode::empty())?);
            }
            Operation::ListSlot { slot } => {
                let dir = Dir::from_fd(dup(self.slot(*slot)?)?)?;
                lseek(self.slot(*slot)?, 0, Whence::SeekSet)?;
                return names(dir);
            }
            Operation::Chmod { path, mode: bits } => {
                fchmodat(AT_FDCWD, self.path(path).as_str(), mode(*bits), FchmodatFlags::FollowSymlink)?;
            }
            Operation::Chown { path, uid, gid } => {
                chown(self.path(path).as_str(), uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
            }
            Operation::Times { path, secs } => {
                let time = TimeSpec::new(*secs, 0);
                utimensat(AT_FDCWD, self.path(path).as_str(), &time, &time, UtimensatFlags::FollowSymlink)?;
            }
            Operation::SetXattr { path, name, len, fill, how } => {
                xattr::set(&self.path(path), name, &vec![*fill; *len], *how)?;
            }
            Operation::GetXattr { path, name } => {
                return Ok(Outcome::of_bytes(&xattr::get(&self.path(path), name)?));
            }
            Operation::ListXattrs { path } => return Ok(Outcome::of_terminated_names(&xattr::list(&self.path(path))?)),
            Operation::RemoveXattr { path, name } => xattr::remove(&self.path(path), name)?,
        }
        Ok(Outcome::Done)
    }
}
