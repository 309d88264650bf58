//! Entries of a walk: files with their names, paths, kinds, and attributes.

use crate::foreign::{CPath, Out};
use crate::hook::{errno_number, set_errno_number};
use crate::stat;
use std::ffi::{CStr, c_char, c_int, c_short, c_ushort, c_void};

/// What an entry is (`fts_info`).
pub mod kind {
    use std::ffi::c_ushort;
    pub const DIRECTORY: c_ushort = 1;
    pub const CYCLE: c_ushort = 2;
    pub const OTHER: c_ushort = 3;
    pub const UNREADABLE: c_ushort = 4;
    pub const DOT: c_ushort = 5;
    pub const DIRECTORY_LEFT: c_ushort = 6;
    pub const ERROR: c_ushort = 7;
    pub const REGULAR: c_ushort = 8;
    pub const BEFORE_ROOTS: c_ushort = 9;
    pub const NO_STAT: c_ushort = 10;
    pub const NO_STAT_ASKED: c_ushort = 11;
    pub const LINK: c_ushort = 12;
    pub const DANGLING: c_ushort = 13;
}

/// What the program wants of an entry (`fts_set`).
pub mod instruction {
    use std::ffi::c_ushort;
    pub const AGAIN: c_ushort = 1;
    pub const FOLLOW: c_ushort = 2;
    pub const NONE: c_ushort = 3;
    pub const SKIP: c_ushort = 4;
}

/// Levels of what the roots lie in and of the roots.
pub const LEVEL_ABOVE: c_short = -1;
pub const LEVEL_ROOT: c_short = 0;

/// `FTSENT` up to its name, which follows at once.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    pub parent: *mut Entry,
    pub link: *mut Entry,
    number: i64,
    pointer: *mut c_void,
    access_path: *mut c_char,
    path: *mut c_char,
    pub errno: c_int,
    unused_descriptor: c_int,
    path_len: c_ushort,
    name_len: c_ushort,
    ino: libc::ino_t,
    pub device: libc::dev_t,
    nlink: libc::nlink_t,
    pub level: c_short,
    pub info: c_ushort,
    flags: c_ushort,
    pub instruction: c_ushort,
    stat: *mut libc::stat,
    name: [c_char; 0],
}

/// The entry behind `entry`; the walk keeps its entries until they are freed by [`free`].
pub fn at<'a>(entry: *mut Entry) -> Option<&'a mut Entry> {
    // SAFETY: entries are made by `Entry::create`, reachable until freed, and the walk is one thread's.
    unsafe { entry.as_mut() }
}

impl Entry {
    /// An entry with its name, path, and attributes in one piece of memory; null if there is none.
    pub fn create(name: &[u8], path: &[u8]) -> *mut Self {
        let name_at = size_of::<Self>();
        let path_at = name_at + name.len() + 1;
        let stat_at = (path_at + path.len() + 1).next_multiple_of(align_of::<libc::stat>());
        // SAFETY: zeroed memory as long as everything that is put into it; a zeroed entry is a value.
        unsafe {
            let memory = libc::calloc(1, stat_at + size_of::<libc::stat>()).cast::<u8>();
            let entry = memory.cast::<Self>();
            if entry.is_null() {
                return entry;
            }
            memory.add(name_at).copy_from_nonoverlapping(name.as_ptr(), name.len());
            memory.add(path_at).copy_from_nonoverlapping(path.as_ptr(), path.len());
            (*entry).path = memory.add(path_at).cast();
            (*entry).access_path = (*entry).path;
            (*entry).stat = memory.add(stat_at).cast();
            (*entry).path_len = path.len() as c_ushort;
            (*entry).name_len = name.len() as c_ushort;
            (*entry).instruction = instruction::NONE;
            entry
        }
    }

    pub fn path(&self) -> &CStr {
        // SAFETY: `create` ended it with a NUL; programs may look but not write.
        unsafe { CStr::from_ptr(self.path) }
    }

    pub fn name(&self) -> &CStr {
        // SAFETY: the name and its NUL follow the entry.
        unsafe { CStr::from_ptr(std::ptr::from_ref(self).add(1).cast()) }
    }

    /// Leaves the last component of a root as its name, once the walk has come to it.
    pub fn shorten_name(&mut self) {
        let name = self.name().to_bytes().to_vec();
        let Some(slash) = name.iter().rposition(|b| *b == b'/').filter(|slash| *slash > 0 || name.len() > 1) else {
            return;
        };
        let last = &name[slash + 1..];
        // SAFETY: the shorter name and its NUL fit where the longer one was.
        unsafe {
            let start = std::ptr::from_mut(self).add(1).cast::<u8>();
            start.copy_from_nonoverlapping(last.as_ptr(), last.len());
            start.add(last.len()).write(0);
        }
        self.name_len = last.len() as c_ushort;
    }

    /// Looks at the file and says what it is.
    pub fn look(&mut self, follow: bool) -> c_ushort {
        let path = CPath::new(self.path());
        // SAFETY: `create` made room for the attributes.
        let found = unsafe { &mut *self.stat };
        let looked = if follow { stat::stat(path, Out::new(found)) } else { stat::lstat(path, Out::new(found)) };
        if looked != 0 {
            let failure = errno_number();
            if follow && stat::lstat(path, Out::new(found)) == 0 {
                set_errno_number(0);
                return kind::DANGLING;
            }
            self.errno = failure;
            // SAFETY: zeros are a value of this structure of numbers.
            *found = unsafe { std::mem::zeroed() };
            return kind::NO_STAT;
        }
        match found.st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                (self.device, self.ino, self.nlink) = (found.st_dev, found.st_ino, found.st_nlink);
                if matches!(self.name().to_bytes(), b"." | b"..") { kind::DOT } else { self.directory_kind() }
            }
            libc::S_IFLNK => kind::LINK,
            libc::S_IFREG => kind::REGULAR,
            _ => kind::OTHER,
        }
    }

    /// A directory that the walk is in already, by way of a link, is a cycle.
    fn directory_kind(&mut self) -> c_ushort {
        let mut above = self.parent;
        while let Some(entry) = at(above).filter(|entry| entry.level >= LEVEL_ROOT) {
            if (entry.ino, entry.device) == (self.ino, self.device) {
                self.cycle = above;
                return kind::CYCLE;
            }
            above = entry.parent;
        }
        kind::DIRECTORY
    }
}

pub fn free(entry: *mut Entry) {
    // SAFETY: from `calloc`, and unlinked by the caller.
    unsafe { libc::free(entry.cast()) };
}

pub fn free_list(mut entry: *mut Entry) {
    while let Some(next) = at(entry).map(|entry| entry.link) {
        free(entry);
        entry = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FTSENT` of glibc on 64-bit machines.
    #[test]
    fn the_structure_is_the_c_librarys() {
        use std::mem::offset_of;
        assert_eq!(size_of::<Entry>(), 112);
        assert_eq!([offset_of!(Entry, path_len), offset_of!(Entry, info), offset_of!(Entry, stat)], [64, 98, 104]);
    }
}
