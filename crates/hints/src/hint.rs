//! What is said to the preload client.

use crate::mpi::{Handle, Mpi};
use crate::symbol::of_process;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::transmute;

/// `void isonomia_hint(const char *path, uint32_t rank, uint32_t ranks, uint32_t shared, uint64_t expected_bytes)`: a
/// hint for files that this process creates under `path`, until one without ranks takes it back.
type Tell = extern "C" fn(*const c_char, u32, u32, u32, u64);

/// Names of file systems that ROMIO takes in front of a path.
const FILE_SYSTEMS: [&[u8]; 11] =
    [b"ufs", b"nfs", b"xfs", b"testfs", b"panfs", b"lustre", b"gpfs", b"pvfs2", b"daos", b"ime", b"quobyte"];

/// Which process of how many is going to use a file, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint {
    rank: u32,
    ranks: u32,
    shared: bool,
    expected_bytes: u64,
}

/// A hint that the client has; it is taken back when this is dropped.
pub struct Given {
    tell: Tell,
    path: CString,
}

impl Given {
    /// The path that it is for.
    pub fn path(&self) -> &CStr {
        &self.path
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        (self.tell)(self.path.as_ptr(), 0, 0, 0, 0);
    }
}

/// The client of this process, if there is one to tell.
pub struct Client(Tell);

impl Client {
    /// The client that is preloaded.
    pub fn find() -> Option<Self> {
        let address = of_process(c"isonomia_hint");
        // SAFETY: the preload client's function of this name has this signature.
        (!address.is_null()).then(|| Self(unsafe { transmute::<*mut c_void, Tell>(address) }))
    }

    /// Says what MPI knows of a file that the processes of `comm` open together.
    pub fn tell_of_mpi_file(&self, path: &[u8], mpi: &Mpi, comm: Handle, info: Handle) -> Option<Given> {
        let (rank, ranks) = mpi.rank_and_size(comm)?;
        let shared = ranks > 1;
        let (rank, ranks) =
            if shared { (rank, ranks) } else { mpi.rank_and_size(mpi.world()).unwrap_or((rank, ranks)) };
        let expected_bytes = mpi.file_size(info).unwrap_or(0);
        self.tell(without_file_system(path), Hint { rank, ranks, shared, expected_bytes })
    }

    /// Says that this process creates a file of its own, one process of as many as MPI has.
    pub fn tell_of_own_file(&self, path: &[u8], mpi: Option<Mpi>) -> Option<Given> {
        let (rank, ranks) = mpi.and_then(|mpi| mpi.rank_and_size(mpi.world())).unwrap_or((0, 1));
        self.tell(path, Hint { rank, ranks, shared: false, expected_bytes: 0 })
    }

    fn tell(&self, path: &[u8], hint: Hint) -> Option<Given> {
        let path = CString::new(path).ok()?;
        (self.0)(path.as_ptr(), hint.rank, hint.ranks, u32::from(hint.shared), hint.expected_bytes);
        Some(Given { tell: self.0, path })
    }
}

/// The path without the name of a file system that ROMIO may have in front of it.
fn without_file_system(path: &[u8]) -> &[u8] {
    match path.iter().position(|b| *b == b':') {
        Some(colon) if FILE_SYSTEMS.contains(&&path[..colon]) => &path[colon + 1..],
        _ => path,
    }
}

/// The bytes of a string of C; none for a null pointer.
///
/// # Safety
/// `text` is null, or ends in NUL and stays as it is while the result is used.
pub unsafe fn bytes_of_c<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The bytes of a string of Fortran, without the blanks that fill it.
///
/// # Safety
/// `text` is null, or has `len` bytes that stay as they are while the result is used.
pub unsafe fn bytes_of_fortran<'a>(text: *const c_char, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) }.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_file_systems_are_no_part_of_a_path() {
        for (given, path) in [
            ("ufs:/isonomia/x", "/isonomia/x"),
            ("lustre:x", "x"),
            ("/isonomia/ufs:x", "/isonomia/ufs:x"),
            ("12:30", "12:30"),
            ("ufs", "ufs"),
            ("", ""),
        ] {
            assert_eq!(without_file_system(given.as_bytes()), path.as_bytes(), "{given}");
        }
    }

    #[test]
    fn strings_of_fortran_are_filled_with_blanks() {
        // SAFETY: the pointers are to as many bytes as said, or null.
        unsafe {
            assert_eq!(bytes_of_fortran(c"/a b   ".as_ptr(), 7), Some(&b"/a b"[..]));
            assert_eq!(bytes_of_fortran(c"   ".as_ptr(), 3), Some(&b""[..]));
            assert_eq!(bytes_of_fortran(std::ptr::null(), 3), None);
        }
    }
}
