//! Which descriptors of this process are ours.
//!
//! A two-level array of atomic pointers: looking up a descriptor that is not ours costs a bounds check and one load
//! while no descriptor of its block was ever ours, two loads otherwise. No locks.
//!
//! The kernel's table leads: a descriptor is entered after the kernel made it, and taken out before the kernel
//! closes it.

use crate::description::{Description, FileRef};
use crate::placeholder::Mapping;
use crate::{lock, standard};
use isonomia_client::{Capability, Client, Error, LockKind};
use rustix::io::Errno;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

const BLOCK_LEN: usize = 1024;
/// Descriptors beyond the last block are never ours: an open that gets one fails with EMFILE.
const BLOCKS: usize = 1024;

type Slot = AtomicPtr<Description>;
type Block = [Slot; BLOCK_LEN];

static TABLE: [AtomicPtr<Block>; BLOCKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; BLOCKS];

#[inline]
fn slot(fd: c_int) -> Option<&'static Slot> {
    let index = fd as usize;
    let block = TABLE.get(index / BLOCK_LEN)?.load(Ordering::Acquire);
    // SAFETY: blocks are leaked boxes.
    let block = unsafe { block.as_ref() }?;
    block.get(index % BLOCK_LEN)
}

/// The slot of `fd`, made if need be.
fn slot_or_new(fd: c_int) -> Result<&'static Slot, Errno> {
    let block = TABLE.get(fd as usize / BLOCK_LEN).ok_or(Errno::MFILE)?;
    if block.load(Ordering::Acquire).is_null() {
        let fresh = Box::into_raw(Box::new([const { AtomicPtr::new(std::ptr::null_mut()) }; BLOCK_LEN]));
        if block.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: nobody else has seen this box.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
    slot(fd).ok_or(Errno::MFILE)
}

/// Whether `fd` is ours.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| !slot.load(Ordering::Relaxed).is_null())
}

/// The description behind `fd`, if it is ours.
#[inline]
pub fn find(fd: c_int) -> Option<FileRef> {
    let slot = slot(fd)?;
    loop {
        let description = slot.load(Ordering::Acquire);
        // SAFETY: descriptions are never given back to the allocator.
        let description = unsafe { description.as_ref() }?;
        // An entry that is free, or whose slot has changed since, was closed by another thread.
        if let Some(file_ref) = description.acquire()
            && std::ptr::eq(slot.load(Ordering::Acquire), description)
        {
            return Some(file_ref);
        }
    }
}

/// Enters `fd`, instead of what may have been there.
pub fn install(fd: c_int, file_ref: FileRef) -> Result<(), Errno> {
    let slot = slot_or_new(fd)?;
    let before = slot.swap(file_ref.into_raw(), Ordering::AcqRel);
    if let Some(before) = reclaim(before) {
        lock::descriptor_closed(&before);
    }
    standard::descriptor_changed(fd, true);
    Ok(())
}

/// Takes `fd` out; what it stood for, if it was ours.
pub fn remove(fd: c_int) -> Option<FileRef> {
    let slot = slot(fd)?;
    if slot.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let file_ref = reclaim(slot.swap(std::ptr::null_mut(), Ordering::AcqRel))?;
    standard::descriptor_changed(fd, false);
    lock::descriptor_closed(&file_ref);
    Some(file_ref)
}

/// Passes on a descriptor that the kernel has just made for somebody else. If the number was ours, it was closed
/// behind this library's back.
#[inline]
pub fn fresh(fd: c_int) -> c_int {
    if is_ours(fd) {
        drop(remove(fd));
    }
    fd
}

fn reclaim(description: *mut Description) -> Option<FileRef> {
    // SAFETY: descriptions are never given back; the pointer carried a use.
    unsafe { description.as_ref() }.map(FileRef::from_raw)
}

/// The descriptors from `first` to `last` that are ours.
pub fn ours_between(first: c_int, last: c_int) -> impl Iterator<Item = c_int> {
    let (first, last) = (first.max(0) as usize, last.max(-1) as i64);
    let blocks = first / BLOCK_LEN..BLOCKS;
    blocks
        .filter(|block| TABLE.get(*block).is_some_and(|block| !block.load(Ordering::Acquire).is_null()))
        .flat_map(|block| block * BLOCK_LEN..(block + 1) * BLOCK_LEN)
        .filter(move |fd| *fd >= first && *fd as i64 <= last)
        .map(|fd| fd as c_int)
        .filter(|fd| is_ours(*fd))
}

/// In the child of a fork: every reference was counted for the parent.
pub fn forget_references() {
    ours_between(0, c_int::MAX).filter_map(find).for_each(|file_ref| file_ref.forget_reference());
}

/// Before this process becomes user `uid`: has every open file made out to that user, through the client of the present
/// one. An error if the server does not answer.
pub fn make_out(client: &Client, uid: u32) -> Result<(), Error> {
    for file_ref in ours_between(0, c_int::MAX).filter_map(find) {
        // If the server refuses one file, the others are made out all the same. Without a server none can be.
        if let Err(error @ (Error::TimedOut { .. } | Error::Refused { .. })) = file_ref.make_out(client, uid) {
            return Err(error);
        }
    }
    Ok(())
}

/// This process is user `uid` now.
pub fn user_changed(uid: u32) {
    ours_between(0, c_int::MAX).filter_map(find).for_each(|file_ref| file_ref.user_changed(uid));
}

/// After the user of this process changed: what the client of the one before refers to, the present one refers to as
/// well, before that client ends.
pub fn take_references() {
    for file_ref in ours_between(0, c_int::MAX).filter_map(find) {
        // Without a server no other reference can be taken either, so the rest is left out.
        if let Err(Error::TimedOut { .. } | Error::Refused { .. }) = file_ref.take_along() {
            return;
        }
    }
}

fn locked() -> impl Iterator<Item = FileRef> {
    ours_between(0, c_int::MAX).filter_map(find).filter(FileRef::is_locked)
}

/// Takes references to inherited files that are locked: the locks end with the last process that has one. An error
/// shows at the first use.
pub fn take_locked() {
    for file_ref in locked() {
        // As above.
        if let Err(Error::TimedOut { .. } | Error::Refused { .. }) = file_ref.file() {
            return;
        }
    }
}

/// The locks as of `flock(2)` of open files that this process has.
pub fn whole_locks() -> Vec<(Capability, u64, LockKind)> {
    let uid = rustix::process::geteuid().as_raw();
    // Nothing here asks a server: it is one that wants to know this.
    let lock_of = |file_ref: FileRef| {
        let mapping = file_ref.mapping().ok()?;
        Some((mapping.capability_of(uid)?, mapping.number(), mapping.whole_lock()?))
    };
    let mut all: Vec<_> = locked().filter_map(lock_of).collect();
    // Several descriptors may stand for one open file.
    all.sort_unstable_by_key(|(_, number, _)| *number);
    all.dedup_by_key(|(_, number, _)| *number);
    all
}

/// Before a fork: a child will call [`inherit_locked`].
pub fn expect_heir() {
    each_locked_file_once(|file_ref| {
        drop(file_ref.mapping().map(|mapping| mapping.heirs().fetch_add(1, Ordering::Relaxed)))
    });
}

/// In the child of a fork, after [`forget_references`]: as [`take_locked`], and the parent hears of it.
pub fn inherit_locked() {
    take_locked();
    each_locked_file_once(|file_ref| {
        drop(file_ref.mapping().map(|mapping| mapping.heirs().fetch_sub(1, Ordering::Release)))
    });
}

/// Several descriptors may stand for one open file.
fn each_locked_file_once(visit: impl Fn(&FileRef)) {
    let mut seen = Vec::new();
    for file_ref in locked() {
        let number = file_ref.mapping().map_or(0, Mapping::number);
        if !seen.contains(&number) {
            seen.push(number);
            visit(&file_ref);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_client::{Attr, Layout, OpenFile, Unsynced};
    use isonomia_units::TargetId;
    use std::sync::atomic::AtomicBool;

    fn description(ino: u64) -> FileRef {
        let file = OpenFile {
            capability: Capability { ino, access: 1, generation: 0, mac: 0, ..Capability::ROOT },
            layout: Layout { stripe_bytes: 4096, targets: vec![TargetId(0)], grows: false },
            attr: Attr::default(),
            created: false,
            stripes: None,
            unsynced: Unsynced::default(),
        };
        let (fd, mapping) = crate::placeholder::create(&file, crate::number::fresh().unwrap(), 0, true).unwrap();
        // SAFETY: the descriptor was made for this test.
        unsafe { rustix::io::close(fd) };
        // As if already inherited and never used: dropping it does not talk to a server.
        Description::publish(file, mapping, None)
    }

    fn number(file_ref: &FileRef) -> u64 {
        file_ref.mapping().unwrap().number()
    }

    #[test]
    fn descriptors_are_found_replaced_and_removed() {
        let fd = 900_001;
        assert!(!is_ours(fd) && find(fd).is_none() && remove(fd).is_none());
        let (first, second) = (description(1), description(2));
        let (first_number, second_number) = (number(&first), number(&second));
        install(fd, first.clone()).unwrap();
        install(fd + 1, first).unwrap();
        assert_eq!(find(fd).map(|file_ref| number(&file_ref)), Some(first_number));
        install(fd, second).unwrap();
        assert_eq!(find(fd).map(|file_ref| number(&file_ref)), Some(second_number));
        assert_eq!(ours_between(fd, fd + 5).collect::<Vec<_>>(), [fd, fd + 1]);
        assert_eq!(remove(fd + 1).map(|file_ref| number(&file_ref)), Some(first_number));
        assert!(remove(fd).is_some() && !is_ours(fd));
    }

    #[test]
    fn what_no_table_has_is_refused() {
        for fd in [-1, c_int::MIN, (BLOCK_LEN * BLOCKS) as c_int, c_int::MAX] {
            assert!(!is_ours(fd) && find(fd).is_none());
            assert_eq!(install(fd, description(3)), Err(Errno::MFILE));
        }
    }

    /// Entries of closed descriptions are used again at once, here always for the other descriptor: a look-up that did
    /// not look at its slot a second time would find the other's.
    #[test]
    fn look_ups_race_with_closes() {
        let fds = [900_100, 900_101];
        let inos = |fd: c_int| fd as u64;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..5_000 {
                    let fd = fds[round % 2];
                    install(fd, description(inos(fd))).unwrap();
                    assert!(remove(fd).is_some());
                }
                done.store(true, Ordering::Relaxed);
            });
            for fd in fds {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        if let Some(file_ref) = find(fd) {
                            assert_eq!(file_ref.mapping().unwrap().ino(), inos(fd));
                        }
                    }
                });
            }
        });
        assert!(!fds.iter().any(|fd| is_ours(*fd)));
    }
}
