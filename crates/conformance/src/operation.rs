//! Operations and their outcomes.

use serde::{Deserialize, Serialize};

/// Files that an actor has open at once, at most.
pub const SLOTS: usize = 3;

/// What an actor is asked to do next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Action {
    /// To go on in this directory, with nothing open.
    Begin(String),
    /// To do this.
    Do(Operation),
}

/// What rename does when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameHow {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Exchanges the two.
    Exchange,
}

/// What setting an extended attribute does when it exists, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrHow {
    /// Sets it.
    Either,
    /// Fails if it exists.
    Create,
    /// Fails if it does not.
    Replace,
}

/// How a file is opened; `mode` is of one that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are the flags of open(2)")]
pub struct OpenHow {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub no_follow: bool,
    pub directory: bool,
    pub mode: u32,
}

/// One call. Paths are relative to the actor's directory; a slot that is not open gives `EBADF`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are the parameters of the calls")]
pub enum Operation {
    Open { slot: usize, path: String, how: OpenHow },
    Duplicate { slot: usize, to: usize },
    Close { slot: usize },
    Read { slot: usize, len: usize },
    Write { slot: usize, len: usize, fill: u8 },
    ReadAt { slot: usize, offset: u64, len: usize },
    WriteAt { slot: usize, offset: u64, len: usize, fill: u8 },
    MapRead { slot: usize, page: u64, len: usize },
    Seek { slot: usize, to: u64 },
    SeekEnd { slot: usize },
    Resize { slot: usize, size: u64 },
    Truncate { path: String, size: u64 },
    Sync { slot: usize },
    StatSlot { slot: usize },
    Stat { path: String, follow: bool },
    Access { path: String, mask: u32 },
    Mkdir { path: String, mode: u32 },
    Socket { path: String, mode: u32 },
    Rmdir { path: String },
    Unlink { path: String },
    Rename { path: String, to: String, how: RenameHow },
    Link { path: String, to: String },
    Symlink { text: String, path: String },
    Readlink { path: String },
    List { path: String },
    ListSlot { slot: usize },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: Option<u32>, gid: Option<u32> },
    Times { path: String, secs: i64 },
    SetXattr { path: String, name: String, len: usize, fill: u8, how: XattrHow },
    GetXattr { path: String, name: String },
    ListXattrs { path: String },
    RemoveXattr { path: String, name: String },
}

/// Bytes, as runs of equal ones.
pub type Runs = Vec<(u8, usize)>;

/// What can be compared of an inode's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Kind and permissions; without the set-ID bits of files.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; of a directory, also those its children know it by.
    pub nlink: u64,
    /// Bytes; 0 for a directory.
    pub size: u64,
    /// The time of the last modification, if it was set to one long ago.
    pub mtime: Option<i64>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are the results of the calls")]
pub enum Outcome {
    Done,
    Count(u64),
    Bytes(Runs),
    Attr(Attr),
    Names(Vec<String>),
    Text(String),
    Failed(i32),
}

/// Times before this were set by somebody.
const LONG_AGO: i64 = 1_000_000_000;

impl Attr {
    /// What can be compared of what `stat` says, `secs` being the time of the last modification.
    pub fn comparable(self, secs: i64) -> Self {
        let mtime = (secs < LONG_AGO).then_some(secs);
        match self.mode & 0o170_000 {
            0o040_000 => Self { size: 0, mtime, ..self },
            // A server clears them at every write, Linux leaves the superuser's.
            _ => Self { mode: self.mode & !0o6000, mtime, ..self },
        }
    }
}

impl Outcome {
    /// Of bytes that were read.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut runs: Runs = Vec::new();
        for &byte in bytes {
            match runs.last_mut() {
                Some((last, count)) if *last == byte => *count += 1,
                _ => runs.push((byte, 1)),
            }
        }
        Self::Bytes(runs)
    }

    /// Of names that were listed, in any order. `.` and `..` may be among them, or not.
    pub fn of_names(names: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let names = names.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
        let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
        names.sort();
        Self::Names(names)
    }

    /// Of names each of which has a NUL after it, in any order.
    pub fn of_terminated_names(names: &[u8]) -> Self {
        Self::of_names(names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec))
    }
}
