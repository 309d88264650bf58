//! Open files and directories, by the numbers that the kernel knows them under.

use crate::clients::errno;
use fuser::FileHandle;
use isonomia_client::{Client, OpenFile, Unsynced, access};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// An open file, and the client that has it open on the server.
pub struct Handle {
    /// What the server gave.
    pub file: OpenFile,
    /// The opener's client.
    pub client: Arc<Client>,
    /// Who locked through it.
    pub lockers: Lockers,
    /// Where it is noted, for all who have the file open for reading and writing, that pages were written back and not synced: the
    /// kernel writes them back through any of these, whoever stored.
    pub written_back: Unsynced,
}

/// Owners of locks that were taken through one open file.
#[derive(Default)]
pub struct Lockers {
    /// Of bytes.
    pub bytes: Mutex<Vec<u64>>,
    /// It was locked as a whole.
    pub whole: AtomicBool,
}

impl Handle {
    /// An open file that nobody has locked.
    pub fn new(file: OpenFile, client: Arc<Client>) -> Self {
        Self { file, client, lockers: Lockers::default(), written_back: Unsynced::default() }
    }

    /// Puts it on stable storage, on behalf of `client`; EIO also for what was written back and may have been lost since.
    pub fn sync(&self, client: &Client, data_only: bool) -> Result<(), Errno> {
        self.written_back.give_to(&self.file.unsynced);
        client.sync(&self.file, data_only).map_err(|error| errno(&error))
    }

    /// Whether it may be mapped shared and writable: the kernel demands that it can be read, too.
    pub fn may_write_pages(&self) -> bool {
        const BOTH: u32 = access::READ | access::WRITE;
        self.file.capability.access & BOTH == BOTH
    }
}

/// All that is open. As many as the kernel lets programs open.
#[derive(Default)]
pub struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    /// Keeps `handle`; gives its number.
    pub fn add(&self, handle: Handle) -> FileHandle {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        FileHandle(number)
    }

    /// What stands under `number`. The kernel uses no number that it was not given.
    pub fn get(&self, number: FileHandle) -> Result<Arc<Handle>, Errno> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number.0).cloned().ok_or(Errno::BADF)
    }

    /// Forgets `number`.
    pub fn remove(&self, number: FileHandle) -> Option<Arc<Handle>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number.0)
    }
}
