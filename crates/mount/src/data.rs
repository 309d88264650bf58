//! Open files: what is in them.

use crate::clients::errno;
use crate::filesystem::{MountedFiles, Outcome};
use crate::handle::Handle;
use crate::mapping::Fault;
use crate::poller;
use fuser::{FileHandle, INodeNo, LockOwner, ReplyData, Request, WriteFlags};
use isonomia_client::{Attr, Client, Ino, OpenFile, OpenHow, access};
use std::cell::RefCell;
use std::sync::Arc;

/// Moving so many bytes takes longer than waking another thread.
const LONG_LEN: usize = 32 << 10;
/// A copy on the server's behalf answers after this many bytes: programs ask again for the rest.
const COPY_LEN_MAX: u64 = 16 << 20;
/// A copy moves so many bytes at a time.
const COPY_PIECE_LEN: u64 = 1 << 20;

/// Among the flags of an open: the kernel will execute the file. A program cannot set it (`__FMODE_EXEC` in Linux's
/// `include/linux/fs.h`, and no flag of `open(2)`).
const FOR_EXECUTION: i32 = 0x20;

thread_local! {
    /// What a thread reads into, kept between requests so that its pages stay.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on `len` bytes of this thread's own, which contain anything.
pub fn with_buffer<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        work(&mut buffer[..len])
    })
}

impl MountedFiles {
    /// Opens an inode that the kernel has found.
    pub(crate) fn open_file(&self, request: &Request, ino: INodeNo, flags: i32) -> Outcome<FileHandle> {
        let how = OpenHow { access: access_of(flags), truncate: flags & libc::O_TRUNC != 0, ..OpenHow::default() };
        let client = self.permitted(request)?;
        let file = client.open(self.nodes.at(ino), b"", &how).map_err(|e| errno(&e))?;
        Ok(self.keep(file, client))
    }

    /// Creates and opens a file, in one operation. The umask is in `mode` already.
    pub(crate) fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: Option<&[u8]>,
        mode: u32,
        flags: i32,
    ) -> Outcome<(Attr, FileHandle)> {
        let how = OpenHow {
            access: access_of(flags),
            create: name.is_some(),
            unnamed: name.is_none(),
            exclusive: flags & libc::O_EXCL != 0,
            truncate: flags & libc::O_TRUNC != 0,
            // The kernel follows links itself, and looked before it asked.
            no_follow: true,
            mode,
            ..OpenHow::default()
        };
        let client = self.permitted(request)?;
        let file = client.open(self.nodes.at(parent), name.unwrap_or_default(), &how).map_err(|e| errno(&e))?;
        // A trusted mount need not know more of an inode than its number.
        if self.needs_proofs {
            self.nodes.answered(&file.capability);
        }
        Ok((file.attr, self.keep(file, client)))
    }

    fn keep(&self, file: OpenFile, client: Arc<Client>) -> FileHandle {
        let mut handle = Handle::new(file, client);
        if handle.may_write_pages() {
            self.mappings.opened(&mut handle);
        }
        self.handles.add(handle)
    }

    /// Reads for a page of the kernel's.
    pub(crate) fn load_page(&self, request: &Request, handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        if size as usize >= LONG_LEN {
            poller::leave();
        }
        let opened = self.handles.get(handle);
        let found = opened.and_then(|handle| Ok((self.charged(request, &handle.client)?, handle)));
        match found {
            Ok((client, handle)) => {
                let until = self.mappings.deadline();
                self.mappings.fault(Fault { handle, client, offset, size, reply, until });
            }
            Err(errno) => reply.error(fuser::Errno::from_i32(errno.raw_os_error())),
        }
    }

    /// Reads; fewer bytes than the buffer has room for at the end of the file only.
    pub(crate) fn read_file(
        &self,
        request: &Request,
        handle: FileHandle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Outcome<usize> {
        let handle = self.handles.get(handle)?;
        if buffer.len() >= LONG_LEN {
            poller::leave();
        }
        self.charged(request, &handle.client)?.read_at(&handle.file, offset, buffer).map_err(|e| errno(&e))
    }

    /// Writes; at the end of the file, wherever that is by now, if the descriptor appends.
    pub(crate) fn write_file(
        &self,
        request: &Request,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: i32,
    ) -> Outcome<usize> {
        let handle = self.handles.get(handle)?;
        if data.len() >= LONG_LEN {
            poller::leave();
        }
        if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            return self.mappings.write_back(&handle, offset, data);
        }
        let client = self.charged(request, &handle.client)?;
        let written = if flags & libc::O_APPEND != 0 {
            client.append(&handle.file, data).map(|(_, written)| written)
        } else if flags & libc::O_DIRECT != 0 {
            client.write_direct_at(&handle.file, offset, data)
        } else {
            client.write_at(&handle.file, offset, data)
        };
        let written = written.map_err(|e| errno(&e))?;
        if flags & libc::O_DSYNC != 0 {
            let data_only = flags & libc::O_SYNC != libc::O_SYNC;
            handle.sync(&client, data_only)?;
        }
        Ok(written)
    }

    /// Copies between two open files; fewer bytes than asked for at the end of the source, and after
    /// [`COPY_LEN_MAX`].
    pub(crate) fn copy(
        &self,
        request: &Request,
        (from, from_offset): (FileHandle, u64),
        (to, to_offset): (FileHandle, u64),
        len: u64,
    ) -> Outcome<usize> {
        let (from, to) = (self.handles.get(from)?, self.handles.get(to)?);
        let client = self.charged(request, &to.client)?;
        let len = len.min(COPY_LEN_MAX);
        poller::leave();
        with_buffer(COPY_PIECE_LEN as usize, |buffer| {
            let mut done = 0;
            while done < len {
                let piece = &mut buffer[..COPY_PIECE_LEN.min(len - done) as usize];
                let moved = copy_piece(&client, (&from, from_offset + done), (&to, to_offset + done), piece);
                match moved {
                    Ok(0) => break,
                    Ok(moved) => done += moved as u64,
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(errno(&error)),
                }
            }
            Ok(done as usize)
        })
    }

    /// Puts an open file or directory on stable storage.
    pub(crate) fn sync(&self, request: &Request, handle: FileHandle, data_only: bool) -> Outcome<()> {
        let handle = self.handles.get(handle)?;
        let client = self.charged(request, &handle.client)?;
        handle.sync(&client, data_only)
    }

    /// Gives an open file or directory back, and `whole`'s lock of the file as a whole.
    pub(crate) fn close(&self, handle: FileHandle, whole: Option<LockOwner>) {
        let Some(handle) = self.handles.remove(handle) else { return };
        self.locks.file_closed(&handle, whole);
        if handle.may_write_pages() {
            self.mappings.closed(handle.file.capability.ino);
        }
        if Client::must_close(&handle.file) {
            // If it cannot be said now, the end of the session says the same.
            let _ = handle.client.close(&handle.file, 0);
        } else {
            self.closed.add(&handle.client, Ino(handle.file.capability.ino));
        }
    }
}

fn copy_piece(
    client: &Arc<Client>,
    (from, from_offset): (&Handle, u64),
    (to, to_offset): (&Handle, u64),
    piece: &mut [u8],
) -> Result<usize, isonomia_client::Error> {
    let len = client.read_at(&from.file, from_offset, piece)?;
    client.write_at(&to.file, to_offset, &piece[..len])
}

fn access_of(flags: i32) -> u32 {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY if flags & FOR_EXECUTION != 0 => access::READ | access::EXECUTE,
        libc::O_RDONLY => access::READ,
        libc::O_WRONLY => access::WRITE,
        _ => access::READ | access::WRITE,
    }
}
