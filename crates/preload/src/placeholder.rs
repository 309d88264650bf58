//! Placeholder descriptors: what the kernel sees instead of an open file.
//!
//! For each open file there is one page in a memory file (`memfd`) that every process which inherits the descriptor
//! maps: the capability, the layout, the status flags, the offset. The program has an `O_PATH` descriptor of that
//! memory file. It is duplicated, inherited, closed on exec, and passed on by the kernel like any descriptor, but
//! reading, writing, or mapping it gives EBADF: a call that this library missed fails loudly and never touches
//! other data. After an exec the library finds the placeholders by their name in `/proc/self/fd` and maps them
//! again ([`adopt`]).
//!
//! A capability is valid for one user. A process that becomes another one has it made out to that user as well before, and
//! leaves that in the page ([`Mapping::add`]): for itself, and for the program that it executes.
//!
//! The page is not trusted beyond the process's own user: whatever stands in it, the server checks the capability.

use crate::position::PositionLock;
use crate::recycle::{self, Spare, Twin};
use isonomia_client::{Attr, Capability, Layout, LockKind, MARKS_MAX, OpenFile, Stripes, Unsynced};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Name of the memory files of open files.
const FILE_NAME: &CStr = c"isonomia-file";
/// How `/proc/self/fd/N` shows them.
const FILE_LINK: &[u8] = b"/memfd:isonomia-file";
/// Says what the page is and which form it has.
const MAGIC: u64 = u64::from_le_bytes(*b"isofile6");
const PAGE_LEN: usize = 4096;
/// Bytes of the longest layout on the wire.
const LAYOUT_LEN_MAX: usize = Layout::encoded_len(Layout::TARGETS_MAX);
/// Other users whom the capability is made out to as well, at once: more replace the earliest.
const OTHERS_MAX: usize = 32;
/// The holder of an entry that is free or about to change. The kernel gives this number to nobody.
const NOBODY: u32 = u32::MAX;

/// What all holders of an open file share.
#[repr(C)]
pub struct Page {
    magic: u64,
    /// Drawn at the open: two descriptors with the same number are the same open file.
    number: u64,
    capability: Capability,
    /// Kind and permissions at the time of the open.
    mode: u32,
    /// Access mode and status flags, as `F_GETFL` gives them.
    flags: AtomicU32,
    offset: AtomicU64,
    position: PositionLock,
    /// Not 0 once it was locked as an open file: a process that inherits it then takes a reference at once, not at its first
    /// use.
    locked: AtomicU32,
    /// Forked children that have not taken their references yet, if it is locked.
    heirs: AtomicU32,
    /// How it is locked as of `flock(2)`: 0 if it is not, 1 shared, 2 exclusive.
    whole: AtomicU32,
    /// Of a spread file; else 0.
    targets_per_server: u16,
    layout_len: u32,
    layout: [u8; LAYOUT_LEN_MAX],
    others: [Other; OTHERS_MAX],
    /// How many others there ever were.
    others_count: AtomicU32,
    /// What was written and has not been put on stable storage, whichever process wrote it.
    unsynced: [AtomicU64; MARKS_MAX],
}

/// What differs between the capability of the opener and that of another user.
#[repr(C)]
struct Other {
    mac: AtomicU64,
    holder: AtomicU32,
}

const _: () = assert!(size_of::<Page>() <= PAGE_LEN);

/// This process's mapping of a [`Page`].
pub struct Mapping(Arc<Mapped>);

/// See [`Mapping`]: there as long as anything is kept in the page ([`Mapping::unsynced`]).
struct Mapped {
    page: NonNull<Page>,
    /// A second descriptor, with which the page can be used again if no other process ever had it: see [`recycle`].
    twin: Option<Twin>,
}

// SAFETY: the page's changing parts are atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn page(&self) -> &Page {
        // SAFETY: mapped until drop.
        unsafe { self.page.as_ref() }
    }
}

impl AsRef<[AtomicU64]> for Mapped {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.page().unsynced
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let spare = self.twin.take().filter(Twin::is_unshared).map(|twin| Spare { page: self.page, twin });
        let is_kept = spare.is_some_and(|spare| recycle::keep(spare).is_none());
        if !is_kept {
            // SAFETY: the mapping was made by `map` with this length and nothing refers to it any more.
            // An error would leave the page mapped, which harms nobody.
            let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_LEN) };
        }
    }
}

/// In the child of a fork: lets go of what is the parent's to use again.
pub fn forget_spares() {
    for Spare { page, .. } in recycle::forget_spares() {
        drop(Mapped { page, twin: None });
    }
}

impl Mapping {
    fn page(&self) -> &Page {
        self.0.page()
    }

    /// Where what was written and has not been put on stable storage is noted for all who have the open file.
    pub fn unsynced(&self) -> Unsynced {
        Unsynced::at(self.0.clone())
    }

    /// The number of the open file.
    pub fn number(&self) -> u64 {
        self.page().number
    }

    /// The inode.
    #[cfg(test)]
    pub fn ino(&self) -> u64 {
        self.page().capability.ino
    }

    pub fn position(&self) -> &PositionLock {
        &self.page().position
    }

    /// The offset, guarded by [`Self::position`].
    pub fn offset(&self) -> &AtomicU64 {
        &self.page().offset
    }

    /// Access mode and status flags.
    pub fn flags(&self) -> &AtomicU32 {
        &self.page().flags
    }

    /// Children that are about to take references.
    pub fn heirs(&self) -> &AtomicU32 {
        &self.page().heirs
    }

    /// How it is locked as of `flock(2)`, whichever process did it.
    pub fn whole_lock(&self) -> Option<LockKind> {
        match self.page().whole.load(Ordering::Relaxed) {
            1 => Some(LockKind::Shared),
            2 => Some(LockKind::Exclusive),
            _ => None,
        }
    }

    /// It is locked like this as of `flock(2)`, or not any more.
    pub fn set_whole_lock(&self, kind: Option<LockKind>) {
        let whole = match kind {
            None => 0,
            Some(LockKind::Shared) => 1,
            Some(LockKind::Exclusive) => 2,
        };
        self.page().whole.store(whole, Ordering::Relaxed);
    }

    /// Whether it was ever locked as an open file; not 0 if so.
    pub fn locked(&self) -> &AtomicU32 {
        &self.page().locked
    }

    /// The capability as user `uid` may use it, if it was made out to that user.
    pub fn capability_of(&self, uid: u32) -> Option<Capability> {
        let page = self.page();
        if page.capability.holder == uid {
            return Some(page.capability);
        }
        page.others.iter().find_map(|other| {
            let is_of_uid = || other.holder.load(Ordering::Acquire) == uid;
            let mac = is_of_uid().then(|| other.mac.load(Ordering::Acquire))?;
            // Another process may be putting another user there.
            is_of_uid().then_some(Capability { mac, holder: uid, ..page.capability })
        })
    }

    /// Keeps the capability of another user, for whoever has the open file.
    pub fn add(&self, capability: &Capability) {
        let page = self.page();
        if self.capability_of(capability.holder).is_some() {
            return;
        }
        let index = page.others_count.fetch_add(1, Ordering::Relaxed) as usize % OTHERS_MAX;
        let other = &page.others[index];
        other.holder.store(NOBODY, Ordering::Release);
        other.mac.store(capability.mac, Ordering::Release);
        other.holder.store(capability.holder, Ordering::Release);
    }

    /// The open file as the client library wants it. Of its attributes only inode and kind are known.
    fn open_file(&self) -> Result<OpenFile, Errno> {
        let page = self.page();
        let layout = page.layout.get(..page.layout_len as usize).ok_or(Errno::BADF)?;
        let layout = Layout::decode(layout).map_err(|_| Errno::BADF)?;
        let attr = Attr { ino: page.capability.ino, mode: page.mode, ..Attr::default() };
        // The server says whether another user's is of any use.
        let capability = self.capability_of(rustix::process::geteuid().as_raw()).unwrap_or(page.capability);
        // What else is known of its stripes its server tells again.
        let stripes = Some(page.targets_per_server).filter(|count| *count > 0).map(Stripes::new).map(Arc::new);
        Ok(OpenFile { capability, layout, attr, created: false, stripes, unsynced: self.unsynced() })
    }
}

/// Makes the placeholder of `file`, the open file of this number: the descriptor for the program and the mapping.
pub fn create(file: &OpenFile, number: u64, flags: u32, close_on_exec: bool) -> Result<(RawFd, Mapping), Errno> {
    if let Some(Spare { page, twin }) = recycle::take() {
        fill(page, number, file, flags);
        let mapped = Mapped { page, twin: Some(twin) };
        let twin = mapped.twin.as_ref().map(Twin::descriptor).ok_or(Errno::BADF)?;
        let fd = if close_on_exec { rustix::io::fcntl_dupfd_cloexec(twin, 0) } else { rustix::io::dup(twin) };
        return Ok((fd?.into_raw_fd(), Mapping(Arc::new(mapped))));
    }
    let memory = Memory::create(FILE_NAME, PAGE_LEN)?;
    let mut mapped = map(memory.fd())?;
    fill(mapped.page, number, file, flags);
    let (fd, named) = memory.into_placeholder(close_on_exec)?;
    mapped.twin = Twin::keep(named);
    Ok((fd, Mapping(Arc::new(mapped))))
}

/// Writes what `file` is into its page, which nobody else knows yet.
fn fill(page: NonNull<Page>, number: u64, file: &OpenFile, flags: u32) {
    let mut layout = Vec::with_capacity(LAYOUT_LEN_MAX);
    file.layout.encode(&mut layout);
    let page = page.as_ptr();
    // SAFETY: the page is mapped, as long as `Page`, zeroed or filled before, and only this thread knows it.
    unsafe {
        (*page).magic = MAGIC;
        (*page).number = number;
        (*page).capability = file.capability;
        (*page).mode = file.attr.mode;
        (*page).flags = AtomicU32::new(flags);
        (*page).offset = AtomicU64::new(0);
        (*page).position = PositionLock::free();
        (*page).locked = AtomicU32::new(0);
        (*page).heirs = AtomicU32::new(0);
        (*page).whole = AtomicU32::new(0);
        (*page).others = [const { Other { mac: AtomicU64::new(0), holder: AtomicU32::new(NOBODY) } }; OTHERS_MAX];
        (*page).others_count = AtomicU32::new(0);
        (*page).unsynced = [const { AtomicU64::new(0) }; MARKS_MAX];
        (*page).targets_per_server = file.stripes.as_ref().map_or(0, |stripes| stripes.targets_per_server());
        (*page).layout_len = layout.len() as u32;
        (&mut (*page).layout)[..layout.len()].copy_from_slice(&layout);
    }
}

/// The open file behind `fd` if it is a placeholder that an earlier program left to this one.
pub fn adopt(fd: RawFd) -> Option<(OpenFile, Mapping)> {
    if !is_link_to(fd, FILE_LINK) {
        return None;
    }
    let memory = Memory::reopen(fd).ok()?;
    if rustix::fs::fstat(memory.fd()).ok()?.st_size != PAGE_LEN as i64 {
        return None;
    }
    let mapping = Mapping(Arc::new(map(memory.fd()).ok()?));
    if mapping.page().magic != MAGIC {
        return None;
    }
    Some((mapping.open_file().ok()?, mapping))
}

/// Whether the kernel shows descriptor `fd` as `link`.
pub fn is_link_to(fd: RawFd, link: &[u8]) -> bool {
    let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 64];
    match rustix::fs::readlinkat_raw(rustix::fs::CWD, proc_path(fd).as_c_str(), &mut buffer) {
        Ok((text, _)) => text.starts_with(link),
        Err(_) => false,
    }
}

fn map(memory: BorrowedFd) -> Result<Mapped, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE_LEN, access, MapFlags::SHARED, memory, 0) }?;
    NonNull::new(address.cast()).map(|page| Mapped { page, twin: None }).ok_or(Errno::NOMEM)
}

/// A descriptor of this library's own, closed by a direct system call and not through the hook of `close`.
pub struct Memory(RawFd);

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: owned, and not used after this.
        unsafe { rustix::io::close(self.0) };
    }
}

impl Memory {
    /// A fresh memory file of `len` zeros.
    pub fn create(name: &CStr, len: usize) -> Result<Self, Errno> {
        let memory = Self(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into_raw_fd());
        rustix::fs::ftruncate(memory.fd(), len as u64)?;
        Ok(memory)
    }

    /// Takes over a descriptor that this library made.
    pub fn owned(fd: OwnedFd) -> Self {
        Self(fd.into_raw_fd())
    }

    /// Opens what `fd` names for reading and writing.
    pub fn reopen(fd: RawFd) -> Result<Self, Errno> {
        Self::open(proc_path(fd).as_c_str(), OFlags::RDWR | OFlags::CLOEXEC)
    }

    /// The same memory by a descriptor for reading only: the kernel executes no file that somebody may write to.
    pub fn for_reading(self) -> Result<Self, Errno> {
        Self::open(proc_path(self.0).as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC)
    }

    fn open(path: &CStr, flags: OFlags) -> Result<Self, Errno> {
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?.into_raw_fd()))
    }

    /// Makes it a descriptor that only names it, under the same number: the lowest that was free, which is
    /// what programs count on. Gives a duplicate as well.
    fn into_placeholder(self, close_on_exec: bool) -> Result<(RawFd, OwnedFd), Errno> {
        let named = Self::open(proc_path(self.0).as_c_str(), OFlags::PATH | OFlags::CLOEXEC)?;
        let flags = if close_on_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
        let number = self.0;
        std::mem::forget(self);
        // SAFETY: owned; given up again below whatever happens.
        let mut placeholder = unsafe { OwnedFd::from_raw_fd(number) };
        let replaced = rustix::io::dup3(named.fd(), &mut placeholder, flags);
        let number = placeholder.into_raw_fd();
        replaced.inspect_err(|_| drop(Self(number)))?;
        // SAFETY: owned, and forgotten in the same breath.
        let duplicate = unsafe { OwnedFd::from_raw_fd(named.0) };
        std::mem::forget(named);
        Ok((number, duplicate))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until drop.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// `/proc/self/fd/N`.
pub struct ProcPath([u8; 32]);

impl ProcPath {
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// The path by which the kernel lets this process reach `fd` again.
pub fn proc_path(fd: RawFd) -> ProcPath {
    let mut path = [0; 32];
    let mut digits = [0; 10];
    let mut rest = fd.unsigned_abs();
    let mut at = digits.len();
    while at > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let bytes = b"/proc/self/fd/".iter().chain(&digits[at..]);
    path.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
    ProcPath(path)
}

/// The descriptors of this process, as the kernel lists them; at most `fds.len()` are stored.
pub fn list_descriptors(fds: &mut [RawFd]) -> Result<usize, Errno> {
    let directory = Memory::open(c"/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
    let mut entries = rustix::fs::RawDir::new(directory.fd(), &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let number = std::str::from_utf8(entry.file_name().to_bytes()).ok().and_then(|name| name.parse().ok());
        let Some(fd) = number else { continue };
        match fds.get_mut(count) {
            Some(entry) => *entry = fd,
            None => break,
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::TargetId;
    use std::os::fd::AsRawFd;

    fn open_file(targets: u16) -> OpenFile {
        let targets = (0..targets).map(TargetId).collect();
        OpenFile {
            capability: Capability { ino: 42, access: 3, generation: 5, mac: 7, ..Capability::ROOT },
            layout: Layout { stripe_bytes: 4096, targets, grows: true },
            attr: Attr { ino: 42, mode: 0o100_644, ..Attr::default() },
            created: true,
            stripes: Some(Arc::new(Stripes::new(16))),
            unsynced: Unsynced::default(),
        }
    }

    #[test]
    fn a_placeholder_is_found_again_and_shares_its_offset() {
        let file = open_file(Layout::TARGETS_MAX as u16);
        let (fd, first) = create(&file, 1, 2, true).unwrap();
        // SAFETY: `create` gave the descriptor to this test.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        let (found, second) = adopt(fd).unwrap();
        assert_eq!(found.capability, file.capability);
        assert_eq!((found.layout, found.stripes), (file.layout, file.stripes));
        assert_eq!(found.attr.mode, file.attr.mode);
        assert_eq!(first.number(), second.number());
        first.offset().store(99, Ordering::Relaxed);
        assert_eq!(second.offset().load(Ordering::Relaxed), 99);
        assert_eq!(second.flags().load(Ordering::Relaxed), 2);
        assert_eq!(rustix::io::write(&owned, b"x"), Err(Errno::BADF));
        assert_eq!(rustix::io::read(&owned, &mut [0; 1]), Err(Errno::BADF));
    }

    #[test]
    fn a_page_keeps_the_capabilities_of_several_users() {
        let file = open_file(1);
        let (fd, mapping) = create(&file, 1, 2, true).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let of = |holder: u32| Capability { mac: 1_000 + u64::from(holder), holder, ..file.capability };
        assert_eq!(mapping.capability_of(0), Some(file.capability), "the opener's");
        let others = 77..77 + OTHERS_MAX as u32;
        others.clone().for_each(|holder| mapping.add(&of(holder)));
        others.clone().for_each(|holder| assert_eq!(mapping.capability_of(holder), Some(of(holder))));
        mapping.add(&of(others.end));
        mapping.add(&of(others.end));
        assert_eq!((mapping.capability_of(77), mapping.capability_of(78)), (None, Some(of(78))));
        // The next program finds its user's, or the opener's.
        mapping.add(&of(own + 1));
        let (found, _) = adopt(fd).unwrap();
        assert_eq!(found.capability, mapping.capability_of(own).unwrap_or(file.capability));
        // SAFETY: `create` gave the descriptor to this test.
        unsafe { rustix::io::close(fd) };
    }

    #[test]
    fn a_page_that_nobody_else_can_have_is_used_again() {
        let close = |fd: RawFd, mapping: Mapping| {
            // SAFETY: `create` gave the descriptor to this test.
            unsafe { rustix::io::close(fd) };
            let page = mapping.0.page;
            drop(mapping);
            page
        };
        let file = open_file(1);
        let (fd, first) = create(&file, 1, 2, true).unwrap();
        first.offset().store(99, Ordering::Relaxed);
        let number = first.number();
        // Other tests may take the page before this one does: what counts is what a page is filled with.
        close(fd, first);
        let (fd, second) =
            create(&OpenFile { attr: Attr { mode: 0o100_600, ..file.attr }, ..file.clone() }, 2, 1, false).unwrap();
        assert_ne!(second.number(), number);
        assert_eq!(second.offset().load(Ordering::Relaxed), 0);
        assert_eq!(second.flags().load(Ordering::Relaxed), 1);
        assert_eq!(adopt(fd).unwrap().0.attr.mode, 0o100_600);
        recycle::begin_generation();
        assert!(second.0.twin.as_ref().is_none_or(|twin| !twin.is_unshared()));
        close(fd, second);
    }

    #[test]
    fn other_descriptors_are_no_placeholders() {
        let other = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        let short = rustix::fs::memfd_create("isonomia-file", MemfdFlags::CLOEXEC).unwrap();
        for fd in [other.as_raw_fd(), short.as_raw_fd(), 1_000_000] {
            assert!(adopt(fd).is_none());
        }
    }

    #[test]
    fn descriptors_are_spelled_and_listed() {
        assert_eq!(proc_path(0).as_c_str(), c"/proc/self/fd/0");
        assert_eq!(proc_path(1_048_575).as_c_str(), c"/proc/self/fd/1048575");
        let mut fds = [0; 256];
        let count = list_descriptors(&mut fds).unwrap();
        assert!([0, 1, 2].iter().all(|fd| fds[..count].contains(fd)));
    }
}
