//! Open directories: listing them.

use crate::attr::file_type;
use crate::clients::errno;
use crate::filesystem::{MountedFiles, Outcome};
use crate::handle::Handle;
use fuser::{FileHandle, INodeNo, ReplyDirectory, Request};
use isonomia_client::{DirEntry, OpenHow, access};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl MountedFiles {
    /// Opens a directory for listing; the caller must be allowed to read it.
    pub(crate) fn open_directory(&self, request: &Request, ino: INodeNo) -> Outcome<FileHandle> {
        let how = OpenHow { access: access::READ, directory: true, ..OpenHow::default() };
        let client = self.permitted(request)?;
        let file = client.open(self.nodes.at(ino), b"", &how).map_err(|e| errno(&e))?;
        Ok(self.handles.add(Handle::new(file, client)))
    }

    /// Fills `reply` with entries after the cookie `offset`. Nothing is kept between calls, so that every listing
    /// shows what is there now.
    pub(crate) fn list(&self, handle: FileHandle, offset: u64, reply: &mut ReplyDirectory) -> Outcome<()> {
        let handle = self.handles.get(handle)?;
        let mut cookie = offset;
        loop {
            let page = match handle.client.read_open_dir(&handle.file.capability, cookie).map_err(|e| errno(&e)) {
                Ok(page) => page,
                // What was listed before an error counts.
                Err(_) if cookie != offset => return Ok(()),
                // A directory that was removed is empty.
                Err(Errno::NOENT | Errno::STALE) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let Some(last) = page.last() else { return Ok(()) };
            cookie = last.cookie;
            let mut is_full = |entry: &DirEntry| {
                let name = OsStr::from_bytes(&entry.name);
                reply.add(INodeNo(entry.ino.0), entry.cookie, file_type(entry.kind), name)
            };
            if page.iter().any(&mut is_full) {
                return Ok(());
            }
        }
    }
}
