//! Extended attributes.

use crate::clients::errno;
use crate::filesystem::{MountedFiles, Outcome};
use fuser::{INodeNo, Request};
use isonomia_client::XattrHow;
use rustix::io::Errno;

/// What names begin with that the server knows. The kernel and programs ask for others all the time, such as
/// `security.capability` whenever a program is executed: they need not wait for the server's refusal.
const KNOWN: &[u8] = b"user.";

fn check_known(name: &[u8]) -> Outcome<()> {
    if name.starts_with(KNOWN) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

impl MountedFiles {
    /// The value of `name` into `room`; gives its length, only that if there is no room.
    pub(crate) fn value(&self, request: &Request, ino: INodeNo, name: &[u8], room: &mut [u8]) -> Outcome<usize> {
        check_known(name)?;
        self.permitted(request)?.get_xattr(self.nodes.at(ino), b"", false, name, room).map_err(|e| errno(&e))
    }

    /// The names into `room`, each with a NUL after it: as [`Self::value`].
    pub(crate) fn value_names(&self, request: &Request, ino: INodeNo, room: &mut [u8]) -> Outcome<usize> {
        self.permitted(request)?.list_xattrs(self.nodes.at(ino), b"", false, room).map_err(|e| errno(&e))
    }

    /// Sets `name`, with the flags of `setxattr(2)`.
    pub(crate) fn set_value(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Outcome<()> {
        check_known(name)?;
        let how = XattrHow::from_flags(flags).ok_or(Errno::INVAL)?;
        self.permitted(request)?.set_xattr(self.nodes.at(ino), b"", false, name, value, how).map_err(|e| errno(&e))
    }

    pub(crate) fn remove_value(&self, request: &Request, ino: INodeNo, name: &[u8]) -> Outcome<()> {
        check_known(name)?;
        self.permitted(request)?.remove_xattr(self.nodes.at(ino), b"", false, name).map_err(|e| errno(&e))
    }
}
