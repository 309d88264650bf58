//! Inodes, the directories that name them, and who may do what with them.

use super::contents::Contents;
use nix::errno::Errno;
use std::collections::BTreeMap;

/// The number of an inode.
pub type Id = usize;

/// The root directory.
pub const ROOT: Id = 0;

/// Search a directory, execute a file; bits of a mode as in `access(2)`.
pub const SEARCH: u32 = 1;
/// Make and remove names in a directory, change a file.
pub const WRITE: u32 = 2;
/// List a directory, read a file.
pub const READ: u32 = 4;

const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const NAME_LEN_MAX: usize = 255;

/// A process's user and groups.
#[derive(Clone, Copy, Debug)]
pub struct Person {
    /// User; 0 is the superuser.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// A file or whatever else has names.
#[derive(Debug)]
pub struct Inode {
    /// What it is.
    pub kind: Kind,
    /// The lowest twelve bits of the mode.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The time of the last modification if somebody set it, otherwise it is the present.
    pub mtime: Option<i64>,
    /// Extended attributes: the byte that each value consists of, and how often.
    pub xattrs: BTreeMap<String, (u8, usize)>,
}

/// Kinds of inodes.
#[derive(Debug)]
pub enum Kind {
    File(Contents),
    Directory(BTreeMap<String, Id>),
    Symlink(String),
    Socket,
}

/// All inodes there ever were: what has no name any more may still be open.
#[derive(Debug)]
pub struct FileSystem {
    inodes: Vec<Inode>,
}

impl Person {
    pub(super) fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(super) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    pub(super) fn owns(&self, inode: &Inode) -> bool {
        self.is_root() || self.uid == inode.uid
    }

    /// Access is checked with the bits of the first class that fits: owner, group, others. The superuser may do
    /// everything but execute what nobody may.
    pub(super) fn may(&self, inode: &Inode, access: u32) -> Result<(), Errno> {
        let shift = match () {
            () if self.uid == inode.uid => 6,
            () if self.is_in(inode.gid) => 3,
            () => 0,
        };
        let granted = if !self.is_root() {
            inode.permissions >> shift
        } else if inode.is_directory() || inode.permissions & 0o111 != 0 {
            READ | WRITE | SEARCH
        } else {
            READ | WRITE
        };
        if access & !granted == 0 { Ok(()) } else { Err(Errno::EACCES) }
    }
}

impl Inode {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    pub(super) fn is_sticky(&self) -> bool {
        self.permissions & STICKY != 0
    }

    /// Kind and permissions, as `stat` gives them.
    pub(super) fn mode(&self) -> u32 {
        let kind = match self.kind {
            Kind::File(_) => 0o100_000,
            Kind::Directory(_) => 0o040_000,
            Kind::Symlink(_) => 0o120_000,
            Kind::Socket => 0o140_000,
        };
        kind | self.permissions
    }

    pub(super) fn size(&self) -> u64 {
        match &self.kind {
            Kind::File(contents) => contents.size(),
            Kind::Symlink(text) => text.len() as u64,
            Kind::Directory(_) | Kind::Socket => 0,
        }
    }

    /// Sets the permissions; who is not in the group cannot have set-group-ID. What set-ID bits of files become when
    /// these are written is not modelled, so they have none.
    pub(super) fn set_permissions(&mut self, who: &Person, bits: u32) {
        let allowed = if self.is_directory() { 0o7777 } else { 0o1777 };
        let for_group = if who.is_root() || who.is_in(self.gid) { 0 } else { SET_GID };
        self.permissions = bits & allowed & !for_group;
    }
}

impl Default for FileSystem {
    /// A root directory that everybody may read.
    fn default() -> Self {
        let kind = Kind::Directory(BTreeMap::new());
        let root = Inode { kind, permissions: 0o755, uid: 0, gid: 0, mtime: None, xattrs: BTreeMap::new() };
        Self { inodes: vec![root] }
    }
}

impl FileSystem {
    /// An inode.
    pub fn inode(&self, id: Id) -> &Inode {
        &self.inodes[id]
    }

    pub(super) fn inode_mut(&mut self, id: Id) -> &mut Inode {
        &mut self.inodes[id]
    }

    pub(super) fn may(&self, who: &Person, id: Id, access: u32) -> Result<(), Errno> {
        who.may(self.inode(id), access)
    }

    /// What names a directory has.
    pub(super) fn names(&self, dir: Id) -> Result<&BTreeMap<String, Id>, Errno> {
        match &self.inode(dir).kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What `name` stands for in a directory.
    pub(super) fn look(&self, dir: Id, name: &str) -> Result<Option<Id>, Errno> {
        if name.len() > NAME_LEN_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(self.names(dir)?.get(name).copied())
    }

    /// Whatever names an inode: the directory, once for each name.
    fn namers(&self, id: Id) -> impl Iterator<Item = Id> {
        let names = (0..self.inodes.len()).filter_map(|dir| self.names(dir).ok().map(|names| (dir, names)));
        names.flat_map(move |(dir, names)| names.values().filter(move |named| **named == id).map(move |_| dir))
    }

    /// `..` of a directory; the root's is the root.
    pub(super) fn parent(&self, dir: Id) -> Id {
        self.namers(dir).next().unwrap_or(ROOT)
    }

    /// Names of an inode. A directory has one, its `.`, and the `..` of each directory in it, until it is removed.
    pub(super) fn links(&self, id: Id) -> u64 {
        let named = self.namers(id).count() as u64;
        match &self.inode(id).kind {
            Kind::Directory(_) if named == 0 && id != ROOT => 0,
            Kind::Directory(names) => 2 + names.values().filter(|id| self.inode(**id).is_directory()).count() as u64,
            _ => named,
        }
    }

    /// A new inode with a name in `dir`. A set-group-ID directory gives its group, and to directories that bit too.
    pub(super) fn create(&mut self, who: &Person, dir: Id, name: &str, kind: Kind, permissions: u32) -> Id {
        let parent = self.inode(dir);
        let inherits = parent.permissions & SET_GID != 0;
        let is_directory = matches!(kind, Kind::Directory(_));
        let inode = Inode {
            kind,
            permissions: permissions & 0o1777 | if inherits && is_directory { SET_GID } else { 0 },
            uid: who.uid,
            gid: if inherits { parent.gid } else { who.gid },
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        self.inodes.push(inode);
        let id = self.inodes.len() - 1;
        self.set_name(dir, name, Some(id));
        id
    }

    /// Makes `name` stand for `id`, or for nothing: a modification of the directory.
    pub(super) fn set_name(&mut self, dir: Id, name: &str, id: Option<Id>) {
        let inode = self.inode_mut(dir);
        inode.mtime = None;
        let Kind::Directory(names) = &mut inode.kind else { unreachable!("a name was looked up in it") };
        match id {
            Some(id) => names.insert(name.to_owned(), id),
            None => names.remove(name),
        };
    }

    /// Whether a directory is `ancestor` or lies below it.
    pub(super) fn is_below(&self, dir: Id, ancestor: Id) -> bool {
        dir == ancestor || dir != ROOT && self.is_below(self.parent(dir), ancestor)
    }
}
