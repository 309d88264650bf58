//! The client library, with positions and the umask kept here as the preload client and the kernel keep them.

use crate::{Actor, Attr, Operation, Outcome, RenameHow, SLOTS};
use isonomia_client::{Change, Client, Error, Ino, OpenFile, OpenHow, TimeChange, Timestamp, access};
use rustix::io::Errno;
use std::sync::Arc;

/// An actor that calls the client library.
pub struct Library {
    client: Arc<Client>,
    root: Ino,
    umask: u32,
    slots: [Option<Open>; SLOTS],
}

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
        Self { client, root: Ino::ROOT, umask, slots: Default::default() }
    }

    fn close(&mut self, slot: usize) -> Result<(), Error> {
        let open = self.slots[slot].take().ok_or(Error::Argument(Errno::BADF))?;
        self.client.release(Ino(open.file.attr.ino), 0)
    }
}

impl Actor for Library {
    fn begin(&mut self, root: &str) {
        for slot in 0..SLOTS {
            let _ = self.close(slot);
        }
        let attr = self.client.get_attr(Ino::ROOT, root.trim_start_matches('/').as_bytes(), true);
        self.root = Ino(attr.expect("the directory is there").ino);
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        self.run(operation).unwrap_or_else(|error| Outcome::Failed(error.errno().raw_os_error()))
    }
}

fn attr(attr: &isonomia_client::Attr) -> Outcome {
    Outcome::Attr(Attr::new(attr.mode, attr.nlink.into(), attr.size_bytes, attr.mtime.secs))
}

fn require(condition: bool, errno: Errno) -> Result<(), Error> {
    if condition { Ok(()) } else { Err(Error::Argument(errno)) }
}

impl Open {
    fn is_directory(&self) -> bool {
        self.file.attr.mode & 0o170_000 == 0o040_000
    }

    fn may_read(&self) -> Result<(), Error> {
        require(self.read, Errno::BADF)?;
        require(!self.is_directory(), Errno::ISDIR)
    }
}

impl Library {
    fn slot(&mut self, slot: usize) -> Result<(&Client, &mut Open), Error> {
        let open = self.slots[slot].as_mut().ok_or(Error::Argument(Errno::BADF))?;
        Ok((&self.client, open))
    }

    fn run(&mut self, operation: &Operation) -> Result<Outcome, Error> {
        let root = self.root;
        match operation {
            Operation::Open { slot, path, how } => {
                if self.slots[*slot].is_some() {
                    self.close(*slot)?;
                }
                let read = how.read || !how.write;
                let asked = OpenHow {
                    access: if read { access::READ } else { 0 } | if how.write { access::WRITE } else { 0 },
                    create: how.create,
                    exclusive: how.exclusive,
                    truncate: how.truncate,
                    no_follow: how.no_follow,
                    directory: how.directory,
                    mode: how.mode & !self.umask,
                    ..OpenHow::default()
                };
                let file = self.client.open(root, path.as_bytes(), &asked)?;
                self.slots[*slot] = Some(Open { file, read, write: how.write, append: how.append, at: 0 });
            }
            Operation::Close { slot } => self.close(*slot)?,
            Operation::Read { slot, len } => {
                let (client, open) = self.slot(*slot)?;
                open.may_read()?;
                let mut buffer = vec![0; *len];
                let len = client.read_at(&open.file, open.at, &mut buffer)?;
                open.at += len as u64;
                return Ok(Outcome::of_bytes(&buffer[..len]));
            }
            Operation::Write { slot, len, fill } => {
                let (client, open) = self.slot(*slot)?;
                require(open.write, Errno::BADF)?;
                let data = vec![*fill; *len];
                let (at, count) = if open.append && *len > 0 {
                    client.append(&open.file, &data)?
                } else {
                    (open.at, client.write_at(&open.file, open.at, &data)?)
                };
                open.at = at + count as u64;
                return Ok(Outcome::Count(count as u64));
            }
            Operation::ReadAt { slot, offset, len } => {
                let (client, open) = self.slot(*slot)?;
                open.may_read()?;
                let mut buffer = vec![0; *len];
                let len = client.read_at(&open.file, *offset, &mut buffer)?;
                return Ok(Outcome::of_bytes(&buffer[..len]));
            }
            Operation::WriteAt { slot, offset, len, fill } => {
                let (client, open) = self.slot(*slot)?;
                require(open.write, Errno::BADF)?;
                let data = vec![*fill; *len];
                // Linux appends, whatever the offset.
                let count = match open.append && *len > 0 {
                    true => client.append(&open.file, &data)?.1,
                    false => client.write_at(&open.file, *offset, &data)?,
                };
                return Ok(Outcome::Count(count as u64));
            }
            Operation::Seek { slot, .. } | Operation::SeekEnd { slot } if self.slot(*slot)?.1.is_directory() => {}
            Operation::Seek { slot, to } => {
                let (_, open) = self.slot(*slot)?;
                open.at = *to;
                return Ok(Outcome::Count(*to));
            }
            Operation::SeekEnd { slot } => {
                let (client, open) = self.slot(*slot)?;
                open.at = client.get_attr(Ino(open.file.attr.ino), b"", true)?.size_bytes;
                return Ok(Outcome::Count(open.at));
            }
            Operation::Resize { slot, size } => {
                let (client, open) = self.slot(*slot)?;
                require(open.write, Errno::INVAL)?;
                client.set_size(&open.file.capability, *size)?;
            }
            Operation::Truncate { path, size } => {
                let change = Change { size_bytes: Some(*size), ..Change::default() };
                self.client.set_attr(root, path.as_bytes(), true, &change)?;
            }
            Operation::Sync { slot } => {
                let (client, open) = self.slot(*slot)?;
                client.sync(&open.file, false)?;
            }
            Operation::StatSlot { slot } => {
                let (client, open) = self.slot(*slot)?;
                return Ok(attr(&client.get_attr(Ino(open.file.attr.ino), b"", true)?));
            }
            Operation::Stat { path, follow } => {
                return Ok(attr(&self.client.get_attr(root, path.as_bytes(), *follow)?));
            }
            Operation::Mkdir { path, mode } => {
                self.client.mkdir(root, path.as_bytes(), *mode & !self.umask)?;
            }
            Operation::Rmdir { path } => self.client.rmdir(root, path.as_bytes())?,
            Operation::Unlink { path } => self.client.unlink(root, path.as_bytes())?,
            Operation::Rename { path, to, how } => {
                let how = match how {
                    RenameHow::Replace => isonomia_client::RenameHow::Replace,
                    RenameHow::NoReplace => isonomia_client::RenameHow::NoReplace,
                    RenameHow::Exchange => isonomia_client::RenameHow::Exchange,
                };
                self.client.rename(root, path.as_bytes(), root, to.as_bytes(), how)?;
            }
            Operation::Link { path, to } => {
                self.client.link(root, path.as_bytes(), false, root, to.as_bytes())?;
            }
            Operation::Symlink { text, path } => {
                self.client.symlink(text.as_bytes(), root, path.as_bytes())?;
            }
            Operation::Readlink { path } => {
                let text = self.client.readlink(root, path.as_bytes())?;
                return Ok(Outcome::Text(String::from_utf8_lossy(&text).into_owned()));
            }
            Operation::List { path } => return self.list(path),
            Operation::Chmod { path, mode } => {
                let change = Change { mode: Some(*mode), ..Change::default() };
                self.client.set_attr(root, path.as_bytes(), true, &change)?;
            }
            Operation::Times { path, secs } => {
                let time = Timestamp::new(*secs, 0).map(TimeChange::At);
                let change = Change { atime: time, mtime: time, ..Change::default() };
                self.client.set_attr(root, path.as_bytes(), true, &change)?;
            }
        }
        Ok(Outcome::Done)
    }

    fn list(&self, path: &str) -> Result<Outcome, Error> {
        let how = OpenHow { access: access::READ, directory: true, ..OpenHow::default() };
        let dir = self.client.open(self.root, path.as_bytes(), &how)?;
        let ino = Ino(dir.attr.ino);
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let entries = self.client.read_dir(ino, cookie)?;
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            names.extend(entries.into_iter().map(|entry| entry.name));
        }
        self.client.release(ino, 0)?;
        Ok(Outcome::of_names(names))
    }
}
