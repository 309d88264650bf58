//! Open file descriptions of this process: what its placeholder descriptors stand for.
//!
//! Descriptions live in memory that is reused but never given back, so that a look-up may touch one that is being
//! closed: it counts its use, sees that the slot has changed, and uncounts it.
//!
//! References on the server: each *process* that uses an inode has one reference per description. It is taken by
//! the open, or after fork and exec at the first use ([`FileRef::file`]), and given back with the last descriptor. A
//! process that only passes a descriptor on never connects. One that changes its user is another process to the server
//! ([`crate::connection`]), so a description says which client has the reference. So is its proof of the open another
//! one ([`FileRef::make_out`]).

use crate::connection::{client, is_current};
use crate::placeholder::Mapping;
use crate::spin::Spin;
use isonomia_client::{Capability, Client, Error, OpenFile};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Pauses of 0.2 ms: a child that does not come within about a second has died.
const HEIRS_PAUSES_MAX: u32 = 4_000;

/// One open file description, or a free entry for one.
pub struct Description {
    /// Descriptors and operations that use it; 0 for a free entry.
    references: AtomicU32,
    /// The client for which the server counts a reference; null if there is none.
    holder: AtomicPtr<Client>,
    content: UnsafeCell<Option<Content>>,
}

struct Content {
    /// The open file as it was opened or found.
    file: OpenFile,
    /// As the present user has it; null for `file`.
    present: AtomicPtr<OpenFile>,
    /// The latest of those that other users have.
    of_others: AtomicPtr<OfAnother>,
    mapping: Mapping,
}

/// An open file as another user has it. There are as many as users that the process was while the file was open.
struct OfAnother {
    file: OpenFile,
    before: *mut OfAnother,
}

impl Content {
    fn file(&self) -> &OpenFile {
        // SAFETY: null, or in the list, whose parts stay as long as this does.
        unsafe { self.present.load(Ordering::Acquire).as_ref() }.unwrap_or(&self.file)
    }

    /// Those of other users.
    fn of_others(&self) -> impl Iterator<Item = &OfAnother> {
        // SAFETY: parts of the list stay as long as this does.
        let at = |other: *mut OfAnother| unsafe { other.as_ref() };
        std::iter::successors(at(self.of_others.load(Ordering::Acquire)), move |of| at(of.before))
    }

    /// Goes on with `capability`.
    fn use_capability(&self, capability: Capability) {
        let find = || self.of_others().map(|of| &of.file).find(|file| file.capability == capability);
        if self.file.capability == capability {
            return self.present.store(std::ptr::null_mut(), Ordering::Release);
        }
        if find().is_none() {
            let file = OpenFile { capability, ..self.file.clone() };
            let fresh = Box::into_raw(Box::new(OfAnother { file, before: std::ptr::null_mut() }));
            let put = |before| {
                // SAFETY: nobody else has seen it until it is in the list.
                unsafe { (*fresh).before = before };
                Some(fresh)
            };
            // The closure never refuses.
            let _ = self.of_others.fetch_update(Ordering::AcqRel, Ordering::Acquire, put);
        }
        if let Some(file) = find() {
            self.present.store(std::ptr::from_ref(file).cast_mut(), Ordering::Release);
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut at = *self.of_others.get_mut();
        while !at.is_null() {
            // SAFETY: made from a box, and in no other list.
            at = unsafe { Box::from_raw(at) }.before;
        }
    }
}

/// A counted use of a description: while it lasts, the description stays.
pub struct FileRef(&'static Description);

// SAFETY: `content` changes only while nobody has a reference to the description.
unsafe impl Sync for Description {}

static FREE: Spin<Vec<&'static Description>> = Spin::new(Vec::new());

/// The lock of the free entries, for [`crate::process`].
pub fn lock_before_fork() {
    FREE.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    FREE.release();
}

impl Description {
    /// A description of `file`, to which `holder` has a reference, if anybody.
    pub fn publish(mut file: OpenFile, mapping: Mapping, holder: Option<&'static Client>) -> FileRef {
        // What one process writes another one may sync.
        file.unsynced.join(mapping.unsynced());
        let reused = FREE.lock_soon().and_then(|mut free| free.pop());
        let description = reused.unwrap_or_else(|| {
            Box::leak(Box::new(Self {
                references: AtomicU32::new(0),
                holder: AtomicPtr::new(std::ptr::null_mut()),
                content: UnsafeCell::new(None),
            }))
        });
        // SAFETY: the entry is free and was taken by this thread alone.
        unsafe {
            *description.content.get() = Some(Content {
                file,
                present: AtomicPtr::new(std::ptr::null_mut()),
                of_others: AtomicPtr::new(std::ptr::null_mut()),
                mapping,
            });
        }
        let holder = holder.map_or(std::ptr::null_mut(), |holder| std::ptr::from_ref(holder).cast_mut());
        description.holder.store(holder, Ordering::Relaxed);
        description.references.store(1, Ordering::Release);
        FileRef(description)
    }

    /// Takes a reference unless the entry is free. It may be another file's by now: the caller looks at its slot again.
    pub fn acquire(&'static self) -> Option<FileRef> {
        let more = |references: u32| (references > 0).then(|| references + 1);
        self.references.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok().map(|_| FileRef(self))
    }

    /// Forgets the server's reference: it was counted for the parent of this process.
    pub fn forget_reference(&self) {
        self.holder.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    fn holder(&self) -> Option<&'static Client> {
        // SAFETY: clients are never freed.
        unsafe { self.holder.load(Ordering::Relaxed).as_ref() }
    }
}

impl FileRef {
    /// The open file, with a reference at the server.
    pub fn file(&self) -> Result<&OpenFile, Error> {
        let content = self.content()?;
        let holder = self.0.holder.load(Ordering::Relaxed);
        if holder.is_null() || !is_current(holder) {
            self.adopt(content)?;
        }
        Ok(content.file())
    }

    /// Takes a reference for the present client if one before it has one.
    pub fn take_along(&self) -> Result<(), Error> {
        if self.0.holder().is_some() { self.file().map(|_| ()) } else { Ok(()) }
    }

    #[cold]
    fn adopt(&self, content: &Content) -> Result<(), Error> {
        let client = client()?;
        let adopter = std::ptr::from_ref(client).cast_mut();
        // Of several threads one adopts; the others go on meanwhile on the strength of the capability.
        if self.0.holder.swap(adopter, Ordering::Relaxed) != adopter {
            let adopted = client.adopt(&content.file().capability, content.mapping.number());
            if adopted.is_err() {
                self.forget_reference();
            }
            adopted?;
        }
        Ok(())
    }

    /// What lets an operation begin at it, with a reference at the server.
    pub fn capability(&self) -> Result<Capability, Error> {
        Ok(self.file()?.capability)
    }

    /// The capability as user `uid` may use it; asks for it through `client`, which may.
    pub fn make_out(&self, client: &Client, uid: u32) -> Result<Capability, Error> {
        let content = self.content()?;
        if let Some(capability) = content.mapping.capability_of(uid) {
            return Ok(capability);
        }
        let capability = client.delegate(&content.file().capability, uid)?;
        content.mapping.add(&capability);
        Ok(capability)
    }

    /// The process is user `uid` now: what was made out to that user is used from now on.
    pub fn user_changed(&self, uid: u32) {
        if let Ok(content) = self.content()
            && let Some(capability) = content.mapping.capability_of(uid)
        {
            content.use_capability(capability);
        }
    }

    /// What is shared with other processes.
    pub fn mapping(&self) -> Result<&Mapping, Error> {
        Ok(&self.content()?.mapping)
    }

    /// Access mode and status flags.
    pub fn flags(&self) -> i32 {
        self.mapping().map_or(0, |mapping| mapping.flags().load(Ordering::Relaxed) as i32)
    }

    /// Whether it was ever locked as an open file.
    pub fn is_locked(&self) -> bool {
        self.mapping().is_ok_and(|mapping| mapping.locked().load(Ordering::Relaxed) != 0)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.content().is_ok_and(|content| content.file.attr.mode & libc::S_IFMT == libc::S_IFDIR)
    }

    fn content(&self) -> Result<&Content, Error> {
        // SAFETY: in use, so nobody changes the content.
        unsafe { &*self.0.content.get() }.as_ref().ok_or(Error::Argument(Errno::BADF))
    }

    /// Makes the use a pointer for the descriptor table.
    pub fn into_raw(self) -> *mut Description {
        let description = std::ptr::from_ref(self.0).cast_mut();
        std::mem::forget(self);
        description
    }

    /// The use that [`Self::into_raw`] gave away.
    pub fn from_raw(description: &'static Description) -> Self {
        Self(description)
    }
}

/// A lock ends with the last process that has the open file: a child that inherited it must have said so first.
fn await_heirs(mapping: &Mapping) {
    let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 200_000 };
    for _ in 0..HEIRS_PAUSES_MAX {
        if mapping.heirs().load(Ordering::Acquire) == 0 {
            return;
        }
        // An interrupted pause is a shorter one.
        let _ = rustix::thread::nanosleep(&pause);
    }
}

impl Deref for FileRef {
    type Target = Description;

    fn deref(&self) -> &Description {
        self.0
    }
}

impl Clone for FileRef {
    fn clone(&self) -> Self {
        self.0.references.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for FileRef {
    fn drop(&mut self) {
        if self.0.references.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: that was the last use; a free entry gives no new ones.
        let content = unsafe { (*self.0.content.get()).take() };
        let holder = self.0.holder();
        // In a signal handler that has interrupted another change of the list, the lock is not to be had: then this entry is
        // never used again.
        if let Some(mut free) = FREE.lock_soon() {
            free.push(self.0);
        }
        if let Some(content) = &content {
            await_heirs(&content.mapping);
        }
        // A client that began anew has no references any more. And when the server is away nothing is sent: a program that
        // closes many files would wait out the time-out for each.
        if let (Some(content), Some(holder)) = (content, holder.filter(|holder| holder.is_known() && !holder.is_away()))
        {
            // The server drops the reference with the session at the latest.
            let _ = holder.close(&content.file, content.mapping.number());
        }
    }
}
