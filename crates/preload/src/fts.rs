//! `fts`: walks over trees, which the C library does inside itself.
//!
//! A walk that starts at a path of ours, or at several of which one is, is done here over the hooks of `opendir` and
//! `stat`, which serve both sides. It never changes the working directory: as with `FTS_NOCHDIR`, `fts_accpath` is
//! `fts_path`. Otherwise it goes as the C library's: the same order, the same kinds, the same instructions.
//!
//! The structures are the C library's, because programs read them. A walk of ours is told by [`MAGIC`] instead of a
//! descriptor that it does not use.

mod entry;

use crate::calls::real;
use crate::dir::{self, closedir, readdir};
use crate::foreign::CPath;
use crate::hook::{errno_number, fail, set_errno, set_errno_number};
use crate::walk::is_ours;
pub use entry::Entry;
use entry::{LEVEL_ABOVE, LEVEL_ROOT, at, free, free_list, instruction, kind};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int, c_ushort, c_void};
use std::ptr::null_mut;

/// Instead of the descriptor of the directory where a walk began.
const MAGIC: c_int = c_int::MIN + 0x0150;

/// Longest path that is walked, without its NUL.
const PATH_LEN_MAX: usize = c_ushort::MAX as usize;

/// What `fts_set` returns for an instruction that there is not: not -1 in the C library.
const BAD_INSTRUCTION: c_int = 1;

mod option {
    use std::ffi::c_int;
    pub const FOLLOW_ROOTS: c_int = 0x1;
    pub const LOGICAL: c_int = 0x2;
    pub const NO_CHDIR: c_int = 0x4;
    pub const NO_STAT: c_int = 0x8;
    pub const SEE_DOT: c_int = 0x20;
    pub const ONE_DEVICE: c_int = 0x40;
    pub const ALLOWED: c_int = 0xff;
    /// The children that are listed have names only.
    pub const NAMES_ONLY: c_int = 0x100;
    /// An error ended the walk.
    pub const STOPPED: c_int = 0x200;
}

/// `FTS`.
#[repr(C)]
pub struct Walk {
    current: *mut Entry,
    children: *mut Entry,
    array: *mut *mut Entry,
    device: libc::dev_t,
    path: *mut c_char,
    magic: c_int,
    path_len: c_int,
    item_count: c_int,
    compare: Compare,
    options: c_int,
}

pub type Compare = Option<extern "C" fn(*const c_void, *const c_void) -> c_int>;

/// Why children are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// To walk into them.
    Enter,
    /// For `fts_children`.
    Show { names_only: bool },
}

/// The walk behind `walk` if it is one of ours.
fn ours<'a>(walk: *mut Walk) -> Option<&'a mut Walk> {
    // SAFETY: the caller vouches for a walk of either kind, used by one thread at a time; both are this structure.
    unsafe { walk.as_mut() }.filter(|walk| walk.magic == MAGIC)
}

impl Walk {
    fn has(&self, option: c_int) -> bool {
        self.options & option != 0
    }

    /// Links the entries, in the order that the program wants.
    fn in_order(&self, mut entries: Vec<*mut Entry>) -> *mut Entry {
        if let Some(compare) = self.compare
            && entries.len() > 1
        {
            // SAFETY: the elements are as many pointers; the program's function sees pointers to them. It may be no
            // order at all, which the C library's function puts up with.
            unsafe {
                libc::qsort(
                    entries.as_mut_ptr().cast(),
                    entries.len(),
                    size_of::<*mut Entry>(),
                    std::mem::transmute::<Compare, Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>>(
                        Some(compare),
                    ),
                );
            }
        }
        entries.iter().rev().fold(null_mut(), |rest, entry| {
            if let Some(linked) = at(*entry) {
                linked.link = rest;
            }
            *entry
        })
    }

    /// An error that ends the walk.
    fn stop<T>(&mut self, errno: Errno) -> *mut T {
        self.options |= option::STOPPED;
        fail(errno)
    }

    /// The children of the current directory, linked; null if there are none or they cannot be listed.
    fn list(&mut self, why: Listing) -> *mut Entry {
        let Some(above) = at(self.current).map(|current| current.path().to_owned()) else { return null_mut() };
        let stream = dir::opendir(CPath::new(&above));
        if stream.is_null() {
            if let (Some(current), Listing::Enter) = (at(self.current), why) {
                (current.info, current.errno) = (kind::UNREADABLE, errno_number());
            }
            return null_mut();
        }
        let mut found: Vec<*mut Entry> = Vec::new();
        let mut failure = None;
        // SAFETY: `readdir` gives null or an entry that lasts until the next call.
        while let Some(next) = unsafe { readdir(stream).as_ref() } {
            // SAFETY: names in entries end in NUL.
            let name = unsafe { CStr::from_ptr(next.d_name.as_ptr()) }.to_bytes();
            if !self.has(option::SEE_DOT) && matches!(name, b"." | b"..") {
                continue;
            }
            match self.child(above.to_bytes(), name, next.d_type, why) {
                Ok(child) => found.push(child),
                Err(errno) => {
                    failure = Some(errno);
                    break;
                }
            }
        }
        closedir(stream);
        if let Some(errno) = failure {
            found.into_iter().for_each(free);
            self.set_kind(kind::ERROR);
            return self.stop(errno);
        }
        if found.is_empty() && why == Listing::Enter {
            self.set_kind(kind::DIRECTORY_LEFT);
        }
        self.in_order(found)
    }

    fn set_kind(&self, info: c_ushort) {
        if let Some(current) = at(self.current) {
            current.info = info;
        }
    }

    /// A child of the current directory, whose path is `above`.
    fn child(&self, above: &[u8], name: &[u8], d_type: u8, why: Listing) -> Result<*mut Entry, Errno> {
        let level = at(self.current).map_or(LEVEL_ROOT, |current| current.level);
        let above = above.strip_suffix(b"/").unwrap_or(above);
        let path = [above, b"/", name].concat();
        if path.len() > PATH_LEN_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let made = Entry::create(name, &path);
        let child = at(made).ok_or(Errno::NOMEM)?;
        (child.parent, child.level) = (self.current, level + 1);
        let may_lead_on = matches!(d_type, libc::DT_DIR | libc::DT_UNKNOWN) || self.has(option::LOGICAL);
        let names_only = why == Listing::Show { names_only: true };
        child.info = if names_only || self.has(option::NO_STAT) && !may_lead_on {
            kind::NO_STAT_ASKED
        } else {
            child.look(self.has(option::LOGICAL))
        };
        Ok(made)
    }

    /// Frees the children that were listed and not walked into.
    fn forget_children(&mut self) {
        free_list(std::mem::replace(&mut self.children, null_mut()));
    }

    /// The next entry, as `fts_read` gives it.
    fn read(&mut self) -> *mut Entry {
        let Some(current) = at(self.current).filter(|_| !self.has(option::STOPPED)) else { return null_mut() };
        match std::mem::replace(&mut current.instruction, instruction::NONE) {
            instruction::AGAIN => {
                current.info = current.look(self.has(option::LOGICAL));
                return self.current;
            }
            instruction::FOLLOW if matches!(current.info, kind::LINK | kind::DANGLING) => {
                current.info = current.look(true);
                return self.current;
            }
            instruction::SKIP if current.info == kind::DIRECTORY => return self.leave_out(current),
            _ => {}
        }
        if current.info == kind::DIRECTORY {
            if self.has(option::ONE_DEVICE) && current.device != self.device {
                return self.leave_out(current);
            }
            if self.has(option::NAMES_ONLY) {
                self.options &= !option::NAMES_ONLY;
                self.forget_children();
            }
            if self.children.is_null() {
                self.children = self.list(Listing::Enter);
                if self.children.is_null() {
                    return if self.has(option::STOPPED) { null_mut() } else { self.current };
                }
            }
            self.current = std::mem::replace(&mut self.children, null_mut());
            return self.arrive();
        }
        self.go_on()
    }

    /// Gives a directory a second time instead of what is in it.
    fn leave_out(&mut self, current: &mut Entry) -> *mut Entry {
        self.forget_children();
        current.info = kind::DIRECTORY_LEFT;
        self.current
    }

    /// From the current entry to the next one beside it, or to the directory above.
    fn go_on(&mut self) -> *mut Entry {
        while let Some(done) = at(self.current) {
            let (next, parent) = (done.link, done.parent);
            free(self.current);
            if let Some(entry) = at(next) {
                self.current = next;
                if entry.level == LEVEL_ROOT {
                    entry.shorten_name();
                    self.device = entry.device;
                } else if entry.instruction == instruction::SKIP {
                    continue;
                }
                return self.arrive();
            }
            self.current = parent;
            let Some(above) = at(parent) else { break };
            if above.level == LEVEL_ABOVE {
                free(parent);
                self.current = null_mut();
                set_errno_number(0);
                return null_mut();
            }
            above.info = if above.errno == 0 { kind::DIRECTORY_LEFT } else { kind::ERROR };
            return self.current;
        }
        null_mut()
    }

    /// At an entry that the program may have said to follow when it saw it among the children.
    fn arrive(&mut self) -> *mut Entry {
        if let Some(entry) = at(self.current)
            && entry.level > LEVEL_ROOT
            && entry.instruction == instruction::FOLLOW
        {
            entry.instruction = instruction::NONE;
            entry.info = entry.look(true);
        }
        self.current
    }

    /// The children of the current entry, as `fts_children` gives them.
    fn show(&mut self, how: c_int) -> *mut Entry {
        if how != 0 && how != option::NAMES_ONLY {
            return fail(Errno::INVAL);
        }
        set_errno_number(0);
        let Some(current) = at(self.current).filter(|_| !self.has(option::STOPPED)) else { return null_mut() };
        match current.info {
            kind::BEFORE_ROOTS => return current.link,
            kind::DIRECTORY => {}
            _ => return null_mut(),
        }
        self.forget_children();
        let names_only = how == option::NAMES_ONLY;
        if names_only {
            self.options |= option::NAMES_ONLY;
        }
        self.children = self.list(Listing::Show { names_only });
        self.children
    }

    fn close(&mut self) {
        self.forget_children();
        while let Some(entry) = at(self.current) {
            let next = if entry.link.is_null() { entry.parent } else { entry.link };
            free(self.current);
            self.current = next;
        }
        self.magic = 0;
    }
}

/// The paths of a list that ends in null.
fn roots(list: *const CPath) -> Vec<CPath> {
    let mut paths = Vec::new();
    let mut at = list;
    while !list.is_null() {
        // SAFETY: the caller vouches for a list that ends in null, which was not met yet.
        let path = unsafe { at.read() };
        if path.bytes().is_none() {
            break;
        }
        paths.push(path);
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
    paths
}

fn open(paths: &[CPath], options: c_int, compare: Compare) -> *mut Walk {
    if options & !option::ALLOWED != 0 {
        return fail(Errno::INVAL);
    }
    let options = if options & option::LOGICAL != 0 { options | option::NO_CHDIR } else { options };
    let before = Entry::create(b"", b"");
    let parent = Entry::create(b"", b"");
    let (Some(first), Some(above)) = (at(before), at(parent)) else {
        [before, parent].into_iter().for_each(free);
        return fail(Errno::NOMEM);
    };
    (above.level, first.info, first.parent) = (LEVEL_ABOVE, kind::BEFORE_ROOTS, parent);
    let mut walk = Walk {
        current: before,
        children: null_mut(),
        array: null_mut(),
        device: 0,
        path: null_mut(),
        magic: MAGIC,
        path_len: 0,
        item_count: 0,
        compare,
        options,
    };
    let mut found = Vec::with_capacity(paths.len());
    for path in paths.iter().filter_map(|path| path.bytes()) {
        let errno = match path.len() {
            0 => Some(Errno::NOENT),
            1..=PATH_LEN_MAX => None,
            _ => Some(Errno::NAMETOOLONG),
        };
        let root = if errno.is_none() { Entry::create(path, path) } else { null_mut() };
        let Some(entry) = at(root) else {
            found.into_iter().for_each(free);
            walk.close();
            return fail(errno.unwrap_or(Errno::NOMEM));
        };
        (entry.level, entry.parent) = (LEVEL_ROOT, parent);
        let follow = walk.has(option::FOLLOW_ROOTS | option::LOGICAL);
        entry.info = entry.look(follow);
        if entry.info == kind::DOT {
            entry.info = kind::DIRECTORY;
        }
        found.push(root);
    }
    if compare.is_some() {
        // As the C library hands them to the comparison.
        found.reverse();
    }
    first.link = walk.in_order(found);
    Box::into_raw(Box::new(walk))
}

pub fn fts_open(paths: *const CPath, options: c_int, compare: Compare) -> *mut Walk {
    let list = roots(paths);
    if list.iter().any(|path| is_ours(*path)) {
        open(&list, options, compare)
    } else {
        real::fts_open(paths, options, compare)
    }
}

pub fn fts_read(walk: *mut Walk) -> *mut Entry {
    match ours(walk) {
        Some(walk) => walk.read(),
        None => real::fts_read(walk),
    }
}

pub fn fts_children(walk: *mut Walk, how: c_int) -> *mut Entry {
    match ours(walk) {
        Some(walk) => walk.show(how),
        None => real::fts_children(walk, how),
    }
}

pub fn fts_set(walk: *mut Walk, entry: *mut Entry, what: c_int) -> c_int {
    if ours(walk).is_none() {
        return real::fts_set(walk, entry, what);
    }
    match (at(entry), c_ushort::try_from(what)) {
        (Some(entry), Ok(what @ 0..=instruction::SKIP)) => {
            entry.instruction = what;
            0
        }
        _ => {
            set_errno(Errno::INVAL);
            BAD_INSTRUCTION
        }
    }
}

pub fn fts_close(walk: *mut Walk) -> c_int {
    let Some(ours) = ours(walk) else { return real::fts_close(walk) };
    ours.close();
    // SAFETY: made by `open`, and the program gives it up.
    drop(unsafe { Box::from_raw(walk) });
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FTS` of glibc on 64-bit machines.
    #[test]
    fn the_structure_is_the_c_librarys() {
        use std::mem::offset_of;
        assert_eq!([offset_of!(Walk, magic), offset_of!(Walk, compare), offset_of!(Walk, options)], [40, 56, 64]);
    }
}
