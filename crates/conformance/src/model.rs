//! A file system as POSIX and Linux's manual pages describe it, in memory, as simple as can be: what all others must be
//! like. It shares nothing with the store.
//!
//! It keeps what cannot be wrong rather than what is fast: a file is the list of writes to it; numbers of links and `..`
//! are counted and searched in the directories each time they are asked for; inodes are never forgotten, so that one that
//! was unlinked while open needs no care. Where POSIX leaves a choice it takes Linux's: in what order errors are found,
//! who gets the bytes of an `O_APPEND` file's `pwrite`, links of a directory.
//!
//! Where local file systems and servers legitimately differ, it has neither's way:
//! - set-ID bits of files are not kept: a server clears them at every write, Linux leaves the superuser's;
//! - access and change times are not kept, and a time of modification only until the next modification;
//! - sizes of directories, and positions in them, mean something else everywhere;
//! - of what a kernel adds to POSIX to protect its users, `fs.protected_symlinks` and its kin of `proc_sys_fs(5)`, a server
//!   does `fs.protected_hardlinks` only.
//!
//! Sources: POSIX.1-2024 (IEEE Std 1003.1), the pages of the calls; `path_resolution(7)`, `inode(7)`, `symlink(7)`,
//! `xattr(7)`, and the calls' pages in section 2.

mod contents;
mod names;
mod open;
mod tree;
mod walk;

pub use contents::Contents;
pub use tree::Person;

use crate::{Actor, Attr, Operation, Outcome, SLOTS};
use nix::errno::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tree::{FileSystem, Id, Kind};

/// Bytes of a page of memory.
pub const PAGE_LEN: u64 = 4096;

/// A process that works on a file system it may share with others.
#[derive(Debug)]
pub struct Model {
    files: Rc<RefCell<FileSystem>>,
    who: Person,
    umask: u32,
    root: String,
    slots: [Option<Rc<RefCell<Open>>>; SLOTS],
}

/// An open file: what descriptors that were duplicated share.
#[derive(Debug)]
struct Open {
    id: Id,
    read: bool,
    write: bool,
    append: bool,
    at: u64,
}

impl Model {
    /// Processes of these people, all on one file system that is empty.
    pub fn processes(people: &[Person], umask: u32) -> Vec<Self> {
        let files = Rc::new(RefCell::new(FileSystem::default()));
        let process = |who: &Person| Self {
            files: Rc::clone(&files),
            who: *who,
            umask,
            root: String::new(),
            slots: Default::default(),
        };
        people.iter().map(process).collect()
    }

    fn slot(&self, slot: usize) -> Result<Rc<RefCell<Open>>, Errno> {
        self.slots[slot].clone().ok_or(Errno::EBADF)
    }

    fn run(&mut self, operation: &Operation) -> Result<Outcome, Errno> {
        let files = Rc::clone(&self.files);
        let mut files = files.borrow_mut();
        let (who, umask, root) = (self.who, self.umask, self.root.clone());
        let at = |path: &str| format!("{root}/{path}");
        match operation {
            Operation::Open { slot, path, how } => {
                self.slots[*slot] = None;
                let id = files.open(&who, &at(path), how, how.mode & !umask)?;
                let open = Open { id, read: how.read, write: how.write, append: how.append, at: 0 };
                self.slots[*slot] = Some(Rc::new(RefCell::new(open)));
            }
            Operation::Duplicate { slot, to } => self.slots[*to] = Some(self.slot(*slot)?),
            Operation::Close { slot } => drop(self.slots[*slot].take().ok_or(Errno::EBADF)?),
            Operation::Read { slot, len } => {
                let open = self.slot(*slot)?;
                let mut open = open.borrow_mut();
                let bytes = open.read(&files, open.at, *len as u64)?;
                open.at += bytes.len() as u64;
                return Ok(Outcome::of_bytes(&bytes));
            }
            Operation::ReadAt { slot, offset, len } => {
                let bytes = self.slot(*slot)?.borrow().read(&files, *offset, *len as u64)?;
                return Ok(Outcome::of_bytes(&bytes));
            }
            Operation::Write { slot, len, fill } => {
                let open = self.slot(*slot)?;
                let mut open = open.borrow_mut();
                open.at = open.write(&mut files, open.at, *len as u64, *fill)?;
                return Ok(Outcome::Count(*len as u64));
            }
            Operation::WriteAt { slot, offset, len, fill } => {
                self.slot(*slot)?.borrow().write(&mut files, *offset, *len as u64, *fill)?;
                return Ok(Outcome::Count(*len as u64));
            }
            Operation::MapRead { slot, page, len } => {
                let open = self.slot(*slot)?;
                let open = open.borrow();
                if !open.read {
                    return Err(Errno::EACCES);
                }
                let bytes = open.read(&files, page * PAGE_LEN, *len as u64);
                return bytes.map(|bytes| Outcome::of_bytes(&bytes)).map_err(|_| Errno::ENODEV);
            }
            Operation::Seek { slot, .. } | Operation::SeekEnd { slot }
                if files.inode(self.slot(*slot)?.borrow().id).is_directory() => {}
            Operation::Seek { slot, to } => {
                self.slot(*slot)?.borrow_mut().at = *to;
                return Ok(Outcome::Count(*to));
            }
            Operation::SeekEnd { slot } => {
                let open = self.slot(*slot)?;
                let end = files.inode(open.borrow().id).size();
                open.borrow_mut().at = end;
                return Ok(Outcome::Count(end));
            }
            Operation::Resize { slot, size } => {
                let open = self.slot(*slot)?;
                if !open.borrow().write {
                    return Err(Errno::EINVAL);
                }
                files.resize(open.borrow().id, *size);
            }
            Operation::Truncate { path, size } => files.truncate(&who, &at(path), *size)?,
            Operation::Sync { slot } => drop(self.slot(*slot)?),
            Operation::StatSlot { slot } => return Ok(attr(&files, self.slot(*slot)?.borrow().id)),
            Operation::Stat { path, follow } => return Ok(attr(&files, files.find(&who, &at(path), *follow)?)),
            Operation::Access { path, mask } => {
                let found = files.find(&who, &at(path), true)?;
                files.may(&who, found, *mask)?;
            }
            Operation::Mkdir { path, mode } => {
                files.make(&who, &at(path), Kind::Directory(BTreeMap::new()), mode & !umask)?;
            }
            Operation::Socket { path, mode } => files.make(&who, &at(path), Kind::Socket, mode & !umask)?,
            Operation::Symlink { text, path } => files.make(&who, &at(path), Kind::Symlink(text.clone()), 0o777)?,
            Operation::Rmdir { path } => files.rmdir(&who, &at(path))?,
            Operation::Unlink { path } => files.unlink(&who, &at(path))?,
            Operation::Rename { path, to, how } => files.rename(&who, &at(path), &at(to), *how)?,
            Operation::Link { path, to } => files.link(&who, &at(path), &at(to))?,
            Operation::Readlink { path } => return Ok(Outcome::Text(files.readlink(&who, &at(path))?)),
            Operation::List { path } => {
                let dir = files.find(&who, &at(path), true)?;
                files.names(dir)?;
                files.may(&who, dir, tree::READ)?;
                return list(&files, dir);
            }
            Operation::ListSlot { slot } => return list(&files, self.slot(*slot)?.borrow().id),
            Operation::Chmod { path, mode } => files.chmod(&who, &at(path), *mode)?,
            Operation::Chown { path, uid, gid } => files.chown(&who, &at(path), *uid, *gid)?,
            Operation::Times { path, secs } => files.set_time(&who, &at(path), *secs)?,
            Operation::SetXattr { path, name, len, fill, how } => {
                files.set_xattr(&who, &at(path), name, (*fill, *len), *how)?;
            }
            Operation::GetXattr { path, name } => return Ok(Outcome::of_bytes(&files.xattr(&who, &at(path), name)?)),
            Operation::ListXattrs { path } => {
                let found = files.find(&who, &at(path), true)?;
                return Ok(Outcome::Names(files.inode(found).xattrs.keys().cloned().collect()));
            }
            Operation::RemoveXattr { path, name } => files.remove_xattr(&who, &at(path), name)?,
        }
        Ok(Outcome::Done)
    }
}

impl Actor for Model {
    fn begin(&mut self, root: &str) {
        self.root = root.to_owned();
        self.slots = Default::default();
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        self.run(operation).unwrap_or_else(|errno| Outcome::Failed(errno as i32))
    }
}

impl Open {
    fn read(&self, files: &FileSystem, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        if !self.read {
            return Err(Errno::EBADF);
        }
        match &files.inode(self.id).kind {
            Kind::File(contents) => Ok(contents.read(at, len)),
            _ => Err(Errno::EISDIR),
        }
    }

    /// Writes, at the end of the file if it appends; gives the position behind.
    fn write(&self, files: &mut FileSystem, at: u64, len: u64, fill: u8) -> Result<u64, Errno> {
        if !self.write {
            return Err(Errno::EBADF);
        }
        if len == 0 {
            return Ok(at);
        }
        let inode = files.inode_mut(self.id);
        let Kind::File(contents) = &mut inode.kind else { return Err(Errno::EISDIR) };
        let at = if self.append { contents.size() } else { at };
        contents.write(at, len, fill);
        inode.mtime = None;
        Ok(at + len)
    }
}

fn attr(files: &FileSystem, id: Id) -> Outcome {
    let inode = files.inode(id);
    Outcome::Attr(Attr {
        mode: inode.mode(),
        uid: inode.uid,
        gid: inode.gid,
        nlink: files.links(id),
        size: inode.size(),
        mtime: inode.mtime,
    })
}

fn list(files: &FileSystem, dir: Id) -> Result<Outcome, Errno> {
    Ok(Outcome::Names(files.names(dir)?.keys().cloned().collect()))
}
