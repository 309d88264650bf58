//! Whole directories and trees: `scandir`, `ftw`, `nftw`, which the C library does inside itself.

use crate::calls::real;
use crate::dir::{closedir, fdopendir, opendir, readdir};
use crate::foreign::{CPath, Out};
use crate::hook::{errno_number, fail, failed_with, set_errno_number};
use crate::serve::{Routed, route};
use crate::{cwd, open, stat};
use libc::{DIR, dirent64};
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

pub type Filter = Option<extern "C" fn(*const dirent64) -> c_int>;
pub type Compare = Option<extern "C" fn(*const *const dirent64, *const *const dirent64) -> c_int>;
type CompareAny = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;
pub type Visit = extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;
pub type VisitMore = extern "C" fn(*const c_char, *const libc::stat, c_int, *const Ftw) -> c_int;

/// `struct FTW`.
#[repr(C)]
pub struct Ftw {
    base: c_int,
    level: c_int,
}

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;
/// Levels below the start at most; deeper trees end in ELOOP. Paths are limited to 4096 bytes, so no path is deeper.
const DEPTH_MAX: c_int = 2048;

/// Whether a walk from `path` starts at a file of ours.
pub fn is_ours(path: CPath) -> bool {
    is_ours_at(libc::AT_FDCWD, path)
}

fn is_ours_at(dir: c_int, path: CPath) -> bool {
    path.bytes().is_some_and(|text| matches!(route(dir, text), Ok(Routed::Ours { .. }) | Err(_)))
}

/// The entries of an opened directory one by one; it is closed in the end.
fn for_each_entry(dir: *mut DIR, mut visit: impl FnMut(&dirent64) -> Result<(), c_int>) -> Result<(), c_int> {
    if dir.is_null() {
        return Err(-1);
    }
    let mut result = Ok(());
    while result.is_ok() {
        set_errno_number(0);
        let entry = readdir(dir);
        // SAFETY: `readdir` gives null or an entry that lasts until the next call.
        match unsafe { entry.as_ref() } {
            Some(entry) => result = visit(entry),
            None => {
                result = if errno_number() == 0 { break } else { Err(-1) };
            }
        }
    }
    let failure = errno_number();
    closedir(dir);
    set_errno_number(failure);
    result
}

/// A copy of `entry` in memory from `malloc`.
fn copied(entry: &dirent64) -> *mut dirent64 {
    let len = usize::from(entry.d_reclen);
    // SAFETY: the entry is `d_reclen` bytes long, as `dir` made it, and the fresh memory as well.
    unsafe {
        let copy = libc::malloc(len);
        if !copy.is_null() {
            libc::memcpy(copy, std::ptr::from_ref(entry).cast(), len);
        }
        copy.cast()
    }
}

fn scan(dir: *mut DIR, list: Out<*mut *mut dirent64>, filter: Filter, compare: Compare) -> c_int {
    let mut found: Vec<*mut dirent64> = Vec::new();
    let scanned = for_each_entry(dir, |entry| {
        if filter.is_some_and(|filter| filter(entry) == 0) {
            return Ok(());
        }
        let copy = copied(entry);
        if copy.is_null() {
            return Err(-1);
        }
        found.push(copy);
        Ok(())
    });
    let len = found.len() * size_of::<*mut dirent64>();
    // SAFETY: at least one byte.
    let memory = unsafe { libc::malloc(len.max(1)) };
    if scanned.is_err() || memory.is_null() || c_int::try_from(found.len()).is_err() {
        for copy in found {
            // SAFETY: from `malloc`, and known here only.
            unsafe { libc::free(copy.cast()) };
        }
        // SAFETY: from `malloc`.
        unsafe { libc::free(memory) };
        return -1;
    }
    if compare.is_some() {
        // SAFETY: the elements are as many pointers, and the function takes pointers to them; what it says need not
        // be an order.
        unsafe {
            let compare = std::mem::transmute::<Compare, CompareAny>(compare);
            libc::qsort(found.as_mut_ptr().cast(), found.len(), size_of::<*mut dirent64>(), compare);
        }
    }
    // SAFETY: the memory is as long as the vector's content.
    unsafe { libc::memcpy(memory, found.as_ptr().cast(), len) };
    match list.put(memory.cast()) {
        Ok(()) => found.len() as c_int,
        Err(error) => fail(error.errno()),
    }
}

/// The directory `path` below descriptor `dir`, opened for listing.
fn open_at(dir: c_int, path: CPath) -> *mut DIR {
    let fd = open::openat(dir, path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
    if fd < 0 { std::ptr::null_mut() } else { fdopendir(fd) }
}

pub fn scandir(path: CPath, list: Out<*mut *mut dirent64>, filter: Filter, compare: Compare) -> c_int {
    if is_ours(path) { scan(opendir(path), list, filter, compare) } else { real::scandir(path, list, filter, compare) }
}

pub fn scandirat(dir: c_int, path: CPath, list: Out<*mut *mut dirent64>, filter: Filter, compare: Compare) -> c_int {
    if is_ours_at(dir, path) {
        scan(open_at(dir, path), list, filter, compare)
    } else {
        real::scandirat(dir, path, list, filter, compare)
    }
}

struct Walk<'a> {
    flags: c_int,
    visit: &'a dyn Fn(&CStr, &libc::stat, c_int, &Ftw) -> c_int,
    /// With `FTW_CHDIR`: the working directory at the start, from which relative paths are meant.
    home: Option<CString>,
}

impl Walk<'_> {
    /// `path` as it is reached from wherever the working directory is meanwhile.
    fn reached(&self, path: &CStr) -> CString {
        match &self.home {
            Some(home) if path.to_bytes().first() != Some(&b'/') => {
                CString::new([home.as_bytes(), b"/", path.to_bytes()].concat()).unwrap_or_default()
            }
            _ => path.to_owned(),
        }
    }

    /// Calls the program's function, with `FTW_CHDIR` in the directory that contains the file.
    fn report(&self, path: &CStr, found: &libc::stat, kind: c_int, ftw: &Ftw) -> c_int {
        if self.home.is_some() {
            let reached = self.reached(path);
            let above = || reached.as_bytes().iter().rposition(|b| *b == b'/').map_or(0, |slash| slash.max(1));
            // A directory that is left is reported from inside, by the C library as well.
            let end = if kind == FTW_DP { reached.as_bytes().len() } else { above() };
            let holder = CString::new(&reached.as_bytes()[..end]).unwrap_or_default();
            if cwd::chdir(CPath::new(&holder)) != 0 {
                return -1;
            }
        }
        (self.visit)(path, found, kind, ftw)
    }

    /// Visits `path` and what is below; the first result other than 0 ends the walk.
    fn walk(&self, path: &CStr, level: c_int) -> c_int {
        if level > DEPTH_MAX {
            return fail(Errno::LOOP);
        }
        let base = path.to_bytes().iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        let ftw = Ftw { base: base as c_int, level };
        // SAFETY: zeros are a value of this structure of numbers.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        let physical = self.flags & FTW_PHYS != 0;
        let kind = self.kind(&self.reached(path), &mut found, physical);
        let Some(kind) = kind else { return -1 };
        if kind != FTW_D {
            return self.report(path, &found, kind, &ftw);
        }
        let depth_first = self.flags & FTW_DEPTH != 0;
        if !depth_first {
            let result = self.report(path, &found, FTW_D, &ftw);
            match result {
                0 => {}
                FTW_SKIP_SUBTREE if self.flags & FTW_ACTIONRETVAL != 0 => return 0,
                other => return other,
            }
        }
        let mut names: Vec<CString> = Vec::new();
        let listed = for_each_entry(opendir(CPath::new(&self.reached(path))), |entry| {
            // SAFETY: names in entries end in NUL.
            let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
            Ok(())
        });
        if listed.is_err() {
            return if failed_with(Errno::ACCESS) { self.report(path, &found, FTW_DNR, &ftw) } else { -1 };
        }
        for name in names {
            let separator: &[u8] = if path.to_bytes().ends_with(b"/") { b"" } else { b"/" };
            let Ok(below) = CString::new([path.to_bytes(), separator, name.as_bytes()].concat()) else { continue };
            match self.walk(&below, level + 1) {
                0 => {}
                FTW_SKIP_SIBLINGS if self.flags & FTW_ACTIONRETVAL != 0 => break,
                other => return other,
            }
        }
        if depth_first { self.report(path, &found, FTW_DP, &ftw) } else { 0 }
    }

    fn kind(&self, path: &CStr, found: &mut libc::stat, physical: bool) -> Option<c_int> {
        let look = if physical { stat::lstat } else { stat::stat };
        if look(CPath::new(path), Out::new(found)) == 0 {
            return Some(match found.st_mode & libc::S_IFMT {
                libc::S_IFDIR => FTW_D,
                libc::S_IFLNK => FTW_SL,
                _ => FTW_F,
            });
        }
        if failed_with(Errno::ACCESS) {
            return Some(FTW_NS);
        }
        // A link to nowhere, if the name itself is there.
        let dangling = failed_with(Errno::NOENT) && !physical && stat::lstat(CPath::new(path), Out::new(found)) == 0;
        dangling.then_some(FTW_SLN)
    }
}

fn walk_simple(path: CPath, visit: Visit) -> c_int {
    let visit = |path: &CStr, found: &libc::stat, kind, _: &Ftw| {
        visit(path.as_ptr(), found, if kind == FTW_SLN { FTW_SL } else { kind })
    };
    start(path, 0, &visit)
}

fn walk_more(path: CPath, visit: VisitMore, flags: c_int) -> c_int {
    start(path, flags, &|path: &CStr, found: &libc::stat, kind, ftw: &Ftw| visit(path.as_ptr(), found, kind, ftw))
}

fn start(path: CPath, flags: c_int, visit: &dyn Fn(&CStr, &libc::stat, c_int, &Ftw) -> c_int) -> c_int {
    let Some(text) = path.bytes() else { return fail(Errno::FAULT) };
    let end = text.iter().rposition(|b| *b != b'/').map_or(1, |last| last + 1);
    let Ok(path) = CString::new(&text[..end.min(text.len())]) else { return fail(Errno::INVAL) };
    if flags & FTW_CHDIR == 0 {
        return Walk { flags, visit, home: None }.walk(&path, 0);
    }
    let mut buffer: Vec<c_char> = vec![0; libc::PATH_MAX as usize];
    if cwd::getcwd(buffer.as_mut_ptr(), buffer.len()).is_null() {
        return -1;
    }
    // SAFETY: `getcwd` ended the path with a NUL.
    let home = unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_owned();
    let walk = Walk { flags, visit, home: Some(home.clone()) };
    let result = walk.walk(&path, 0);
    let failure = errno_number();
    let back = cwd::chdir(CPath::new(&home));
    set_errno_number(failure);
    if back == 0 { result } else { -1 }
}

pub fn ftw(path: CPath, visit: Visit, descriptors: c_int) -> c_int {
    if is_ours(path) { walk_simple(path, visit) } else { real::ftw(path, visit, descriptors) }
}

pub fn nftw(path: CPath, visit: VisitMore, descriptors: c_int, flags: c_int) -> c_int {
    if is_ours(path) { walk_more(path, visit, flags) } else { real::nftw(path, visit, descriptors, flags) }
}
