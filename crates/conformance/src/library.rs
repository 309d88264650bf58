//! The client library, with positions and the umask kept here as the preload client and the kernel keep them.

use crate::model::PAGE_LEN;
use crate::{Actor, Attr, Operation, Outcome, RenameHow, SLOTS, XattrHow};
use isonomia_client::{Capability, Change, Client, Error, Ino, OpenFile, OpenHow, TimeChange, Timestamp, access};
use rustix::io::Errno;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

const SOCKET: u32 = 0o140_000;
/// Room for values of extended attributes and lists of their names: more than the operations have.
const ROOM: usize = 1 << 14;

/// An actor that calls the client library.
pub struct Library {
    client: Arc<Client>,
    root: String,
    umask: u32,
    slots: [Option<Rc<RefCell<Open>>>; SLOTS],
}

/// An open file: what descriptors that were duplicated share.
struct Open {
    file: OpenFile,
    read: bool,
    write: bool,
    append: bool,
    at: u64,
}

impl Library {
    /// An actor that creates files without the permissions in `umask`.
    pub fn new(client: Arc<Client>, umask: u32) -> Self {
        Self { client, root: String::new(), umask, slots: Default::default() }
    }

    fn close(&mut self, slot: usize) -> Result<(), Error> {
        let open = self.slots[slot].take().ok_or(Error::Argument(Errno::BADF))?;
        // Whoever is the last to close it releases it.
        match Rc::into_inner(open) {
            Some(open) => self.client.release(open.into_inner().ino(), 0),
            None => Ok(()),
        }
    }
}

impl Actor for Library {
    fn begin(&mut self, root: &str) {
        for slot in 0..SLOTS {
            let _ = self.close(slot);
        }
        self.root = root.to_owned();
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        self.run(operation).unwrap_or_else(|error| Outcome::Failed(error.errno().raw_os_error()))
    }
}

fn attr(attr: &isonomia_client::Attr) -> Outcome {
    let comparable = Attr {
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink.into(),
        size: attr.size_bytes,
        mtime: None,
    };
    Outcome::Attr(comparable.comparable(attr.mtime.secs))
}

fn require(condition: bool, errno: Errno) -> Result<(), Error> {
    if condition { Ok(()) } else { Err(Error::Argument(errno)) }
}

impl Open {
    fn ino(&self) -> Ino {
        Ino(self.file.attr.ino)
    }

    fn is_directory(&self) -> bool {
        self.file.attr.mode & 0o170_000 == 0o040_000
    }

    fn read(&self, client: &Client, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        require(self.read, Errno::BADF)?;
        require(!self.is_directory(), Errno::ISDIR)?;
        let mut buffer = vec![0; len];
        let len = client.read_at(&self.file, offset, &mut buffer)?;
        buffer.truncate(len);
        Ok(buffer)
    }

    /// Writes; gives where it did. Who appends does so whatever the offset.
    fn write(&self, client: &Client, offset: u64, data: &[u8]) -> Result<(u64, usize), Error> {
        require(self.write, Errno::BADF)?;
        match self.append && !data.is_empty() {
            true => client.append(&self.file, data),
            false => Ok((offset, client.write_at(&self.file, offset, data)?)),
        }
    }
}

impl Library {
    fn slot(&self, slot: usize) -> Result<RefMut<'_, Open>, Error> {
        Ok(self.slots[slot].as_ref().ok_or(Error::Argument(Errno::BADF))?.borrow_mut())
    }

    fn path(&self, path: &str) -> Vec<u8> {
        format!("{}/{path}", self.root).into_bytes()
    }

    fn change(&self, path: &str, change: &Change) -> Result<(), Error> {
        self.client.set_attr(Ino::ROOT, &self.path(path), true, change).map(drop)
    }

    fn run(&mut self, operation: &Operation) -> Result<Outcome, Error> {
        let (root, client) = (Ino::ROOT, Arc::clone(&self.client));
        match operation {
            Operation::Open { slot, path, how } => {
                if self.slots[*slot].is_some() {
                    self.close(*slot)?;
                }
                let asked = OpenHow {
                    access: if how.read { access::READ } else { 0 } | if how.write { access::WRITE } else { 0 },
                    create: how.create,
                    exclusive: how.exclusive,
                    truncate: how.truncate,
                    no_follow: how.no_follow,
                    directory: how.directory,
                    mode: how.mode & !self.umask,
                    ..OpenHow::default()
                };
                let file = client.open(root, &self.path(path), &asked)?;
                let open = Open { file, read: how.read, write: how.write, append: how.append, at: 0 };
                self.slots[*slot] = Some(Rc::new(RefCell::new(open)));
            }
            Operation::Duplicate { slot, to } => {
                let open = Rc::clone(self.slots[*slot].as_ref().ok_or(Error::Argument(Errno::BADF))?);
                if self.slots[*to].is_some() {
                    self.close(*to)?;
                }
                self.slots[*to] = Some(open);
            }
            Operation::Close { slot } => self.close(*slot)?,
            Operation::Read { slot, len } => {
                let mut open = self.slot(*slot)?;
                let bytes = open.read(&client, open.at, *len)?;
                open.at += bytes.len() as u64;
                return Ok(Outcome::of_bytes(&bytes));
            }
            Operation::Write { slot, len, fill } => {
                let mut open = self.slot(*slot)?;
                let (at, count) = open.write(&client, open.at, &vec![*fill; *len])?;
                open.at = at + count as u64;
                return Ok(Outcome::Count(count as u64));
            }
            Operation::ReadAt { slot, offset, len } => {
                return Ok(Outcome::of_bytes(&self.slot(*slot)?.read(&client, *offset, *len)?));
            }
            Operation::WriteAt { slot, offset, len, fill } => {
                let (_, count) = self.slot(*slot)?.write(&client, *offset, &vec![*fill; *len])?;
                return Ok(Outcome::Count(count as u64));
            }
            // The library maps nothing: what a client would have to fill a mapping with.
            Operation::MapRead { slot, page, len } => {
                let open = self.slot(*slot)?;
                require(open.read, Errno::ACCESS)?;
                require(!open.is_directory(), Errno::NODEV)?;
                return Ok(Outcome::of_bytes(&open.read(&client, page * PAGE_LEN, *len)?));
            }
            Operation::Seek { slot, .. } | Operation::SeekEnd { slot } if self.slot(*slot)?.is_directory() => {}
            Operation::Seek { slot, to } => {
                self.slot(*slot)?.at = *to;
                return Ok(Outcome::Count(*to));
            }
            Operation::SeekEnd { slot } => {
                let mut open = self.slot(*slot)?;
                open.at = client.get_attr(open.file.capability, b"", true)?.size_bytes;
                return Ok(Outcome::Count(open.at));
            }
            Operation::Resize { slot, size } => {
                let open = self.slot(*slot)?;
                require(open.write, Errno::INVAL)?;
                client.truncate(&open.file, *size)?;
            }
            Operation::Truncate { path, size } => {
                self.change(path, &Change { size_bytes: Some(*size), ..Change::default() })?;
            }
            Operation::Sync { slot } => client.sync(&self.slot(*slot)?.file, false)?,
            Operation::StatSlot { slot } => {
                let open = self.slot(*slot)?;
                return Ok(attr(&client.get_attr(open.file.capability, b"", true)?));
            }
            Operation::Stat { path, follow } => {
                return Ok(attr(&client.get_attr(root, &self.path(path), *follow)?));
            }
            Operation::Access { path, mask } => client.access(root, &self.path(path), *mask, true)?,
            Operation::Mkdir { path, mode } => {
                client.mkdir(root, &self.path(path), *mode & !self.umask)?;
            }
            Operation::Socket { path, mode } => {
                client.mknod(root, &self.path(path), SOCKET | *mode & !self.umask, 0)?;
            }
            Operation::Rmdir { path } => client.rmdir(root, &self.path(path))?,
            Operation::Unlink { path } => client.unlink(root, &self.path(path))?,
            Operation::Rename { path, to, how } => {
                let how = match how {
                    RenameHow::Replace => isonomia_client::RenameHow::Replace,
                    RenameHow::NoReplace => isonomia_client::RenameHow::NoReplace,
                    RenameHow::Exchange => isonomia_client::RenameHow::Exchange,
                };
                client.rename(root, &self.path(path), root, &self.path(to), how)?;
            }
            Operation::Link { path, to } => {
                client.link(root, &self.path(path), false, root, &self.path(to))?;
            }
            Operation::Symlink { text, path } => {
                client.symlink(text.as_bytes(), root, &self.path(path))?;
            }
            Operation::Readlink { path } => {
                let text = client.readlink(root, &self.path(path))?;
                return Ok(Outcome::Text(String::from_utf8_lossy(&text).into_owned()));
            }
            Operation::List { path } => {
                let how = OpenHow { access: access::READ, directory: true, ..OpenHow::default() };
                let dir = client.open(root, &self.path(path), &how)?;
                let names = self.list(dir.capability)?;
                client.release(Ino(dir.attr.ino), 0)?;
                return Ok(names);
            }
            Operation::ListSlot { slot } => {
                let open = self.slot(*slot)?;
                require(open.is_directory(), Errno::NOTDIR)?;
                // What is removed has no names: the C library makes that of the kernel's answer, which this is.
                return match self.list(open.file.capability) {
                    Err(error) if error.errno() == Errno::NOENT => Ok(Outcome::Names(Vec::new())),
                    listed => listed,
                };
            }
            Operation::Chmod { path, mode } => {
                self.change(path, &Change { mode: Some(*mode), ..Change::default() })?;
            }
            Operation::Chown { path, uid, gid } => {
                self.change(path, &Change { uid: *uid, gid: *gid, ..Change::default() })?;
            }
            Operation::Times { path, secs } => {
                let time = Timestamp::new(*secs, 0).map(TimeChange::At);
                self.change(path, &Change { atime: time, mtime: time, ..Change::default() })?;
            }
            Operation::SetXattr { path, name, len, fill, how } => {
                let how =
                    isonomia_client::XattrHow { create: *how == XattrHow::Create, replace: *how == XattrHow::Replace };
                client.set_xattr(root, &self.path(path), true, name.as_bytes(), &vec![*fill; *len], how)?;
            }
            Operation::GetXattr { path, name } => {
                let mut value = vec![0; ROOM];
                let len = client.get_xattr(root, &self.path(path), true, name.as_bytes(), &mut value)?;
                return Ok(Outcome::of_bytes(&value[..len]));
            }
            Operation::ListXattrs { path } => {
                let mut names = vec![0; ROOM];
                let len = client.list_xattrs(root, &self.path(path), true, &mut names)?;
                return Ok(Outcome::of_terminated_names(&names[..len]));
            }
            Operation::RemoveXattr { path, name } => {
                client.remove_xattr(root, &self.path(path), true, name.as_bytes())?;
            }
        }
        Ok(Outcome::Done)
    }

    fn list(&self, dir: Capability) -> Result<Outcome, Error> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let entries = self.client.read_dir(dir, cookie)?;
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            names.extend(entries.into_iter().map(|entry| entry.name));
        }
        Ok(Outcome::of_names(names))
    }
}
