//! From a path to an inode.
//!
//! Paths are relative to a directory, their components parted by `/` (leading ones mean nothing: the client has cut
//! the mount point off); the empty path is the starting inode itself. `..` of the root is the root. A slash at the
//! end asks for a directory. Everything here runs under the namespace lock.

use crate::inode::Inode;
use crate::permission::MAY_EXECUTE;
use crate::record::Body;
use crate::{Caller, Namespace, StoreError};
use isonomia_proto::PATH_LEN_MAX;
use isonomia_units::Ino;
use std::borrow::Cow;
use std::sync::Arc;

/// Symbolic links followed on one path at most, as in Linux.
pub const SYMLINKS_MAX: usize = 40;

/// The texts of all links that are followed on one path, in bytes at most: so much longer can a walk become than its path.
pub(crate) const LINK_TEXTS_LEN_MAX: usize = 4 * PATH_LEN_MAX;

/// A path walked up to its last component.
pub(crate) struct Location {
    pub dir: Arc<Inode>,
    pub last: Last,
    /// The path ended in a slash.
    pub slash: bool,
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Name(Vec<u8>),
    Dot,
    DotDot,
    /// The path was empty.
    Itself,
}

/// One walk: how many links it has followed, and how long their texts were.
struct Walk<'s, 'c> {
    namespace: &'s Namespace,
    caller: &'c Caller<'c>,
    links: usize,
    texts_len: usize,
}

/// What a walk stands at before its last component.
struct Step<'p> {
    dir: Arc<Inode>,
    last: &'p [u8],
    slash: bool,
}

impl Namespace {
    /// The inode at `path`; `follow` says what a symbolic link at its end means.
    pub(crate) fn resolve(
        &self,
        caller: &Caller<'_>,
        at: u64,
        path: &[u8],
        follow: bool,
    ) -> Result<Arc<Inode>, StoreError> {
        let start = self.load(at)?;
        if path.is_empty() {
            if start.ino == Ino::ROOT.0 {
                self.check_root_is_here()?;
            }
            return Ok(start);
        }
        let location = self.locate_from(caller, start, path, if follow { Follow::Always } else { Follow::Slash })?;
        self.inode_at(&location)?.ok_or(StoreError::NotFound)
    }

    /// The directory and name that `path` ends in, existing or not; a link there is not followed.
    pub(crate) fn locate(&self, caller: &Caller<'_>, at: u64, path: &[u8]) -> Result<Location, StoreError> {
        self.locate_from(caller, self.load(at)?, path, Follow::Never)
    }

    /// Like [`Self::locate`], but on through symbolic links at the end: where `O_CREAT` creates.
    pub(crate) fn locate_followed(&self, caller: &Caller<'_>, at: u64, path: &[u8]) -> Result<Location, StoreError> {
        self.locate_from(caller, self.load(at)?, path, Follow::NoSlash)
    }

    /// What stands at a location; with a slash at the end it must be a directory.
    pub(crate) fn inode_at(&self, location: &Location) -> Result<Option<Arc<Inode>>, StoreError> {
        let found = match &location.last {
            Last::Itself | Last::Dot => Some(location.dir.clone()),
            Last::DotDot => Some(self.parent(&location.dir)?),
            Last::Name(name) => match self.look_up(&location.dir, name)? {
                Some(entry) => {
                    let inode = self.load(entry.ino)?;
                    inode.note_found_in(location.dir.ino);
                    Some(inode)
                }
                None => None,
            },
        };
        match found {
            Some(inode) if location.slash && !inode.record().is_dir() => Err(StoreError::NotDirectory),
            other => Ok(other),
        }
    }

    fn parent(&self, dir: &Inode) -> Result<Arc<Inode>, StoreError> {
        let Body::Directory { parent, .. } = dir.record().body else { return Err(StoreError::NotDirectory) };
        self.load(parent)
    }

    fn locate_from(
        &self,
        caller: &Caller<'_>,
        start: Arc<Inode>,
        path: &[u8],
        follow: Follow,
    ) -> Result<Location, StoreError> {
        if path.len() > PATH_LEN_MAX {
            return Err(StoreError::NameTooLong);
        }
        if path.contains(&0) {
            return Err(StoreError::Invalid);
        }
        let mut walk = Walk { namespace: self, caller, links: 0, texts_len: 0 };
        let (mut dir, mut rest) = (start, Cow::Borrowed(path));
        loop {
            let step = match walk.descend(dir, &rest)? {
                Outcome::Last(step) => step,
                Outcome::Link { dir: from, rest: text } => {
                    (dir, rest) = (from, Cow::Owned(text));
                    continue;
                }
            };
            let Step { dir: here, last: step_last, slash } = step;
            let last = match step_last {
                b"" => Last::Itself,
                b"." => Last::Dot,
                b".." => Last::DotDot,
                name => Last::Name(name.to_vec()),
            };
            if !self.is_in_cluster() {
                // Everything is here.
            } else if here.ino == Ino::ROOT.0 {
                self.check_in_root(&last, &from_root(step_last, slash))?;
            } else if last == Last::DotDot && self.parent(&here)?.ino == Ino::ROOT.0 {
                self.check_in_root(&last, b".")?;
            }
            let follow_here = match follow {
                Follow::Always => true,
                Follow::Slash => slash,
                Follow::NoSlash => !slash,
                Follow::Never => false,
            };
            if let (true, Last::Name(name)) = (follow_here, &last)
                && let Some(text) = walk.link_at(&here, name)?
            {
                rest = Cow::Owned(walk.splice(&text, if slash { b"/" } else { b"" })?);
                dir = here;
                continue;
            }
            return Ok(Location { dir: here, last, slash });
        }
    }
}

#[derive(Clone, Copy)]
enum Follow {
    Always,
    /// A slash at the end makes even `lstat` follow.
    Slash,
    /// A slash at the end asks for a directory, which `open` does not create: it wants to see the slash.
    NoSlash,
    Never,
}

enum Outcome<'p> {
    Last(Step<'p>),
    Link { dir: Arc<Inode>, rest: Vec<u8> },
}

impl Walk<'_, '_> {
    /// Goes through all components but the last, or up to a symbolic link on the way.
    fn descend<'p>(&mut self, mut dir: Arc<Inode>, path: &'p [u8]) -> Result<Outcome<'p>, StoreError> {
        let mut rest = trim_slashes(path);
        if rest.is_empty() {
            let slash = !path.is_empty();
            return Ok(Outcome::Last(Step { dir, last: b"", slash }));
        }
        loop {
            self.check_search(&dir)?;
            let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            let more = trim_slashes(after);
            // A link may lead further up than this file system goes; the caller's own `..` at the root stays there.
            if name == b".." && self.links > 0 && dir.ino == Ino::ROOT.0 {
                return Err(StoreError::Outside(rest.to_vec()));
            }
            if more.is_empty() {
                return Ok(Outcome::Last(Step { dir, last: name, slash: !after.is_empty() }));
            }
            dir = match name {
                b"." => dir,
                b".." => self.namespace.parent(&dir)?,
                name => {
                    let entry = self.namespace.look_up(&dir, name)?;
                    if dir.ino == Ino::ROOT.0 && self.namespace.is_in_cluster() {
                        let volume = entry.map(|entry| Ino(entry.ino).volume());
                        self.namespace.check_on_the_way(volume, name, rest)?;
                    }
                    let next = self.namespace.load(entry.ok_or(StoreError::NotFound)?.ino)?;
                    if let Body::Symlink(text) = &next.record().body {
                        return Ok(Outcome::Link { dir, rest: self.splice(text, after)? });
                    }
                    next
                }
            };
            rest = more;
        }
    }

    fn check_search(&self, dir: &Inode) -> Result<(), StoreError> {
        let record = dir.record();
        if !record.is_dir() {
            return Err(StoreError::NotDirectory);
        }
        self.caller.check(&record, MAY_EXECUTE)
    }

    fn link_at(&self, dir: &Inode, name: &[u8]) -> Result<Option<Arc<[u8]>>, StoreError> {
        let Some(entry) = self.namespace.look_up(dir, name)? else { return Ok(None) };
        match &self.namespace.load(entry.ino)?.record().body {
            Body::Symlink(text) => Ok(Some(text.clone())),
            _ => Ok(None),
        }
    }

    /// What is left to walk after a link with this text, before `after` (empty or beginning with a slash).
    fn splice(&mut self, text: &[u8], after: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.links += 1;
        self.texts_len += text.len();
        if self.links > SYMLINKS_MAX || self.texts_len > LINK_TEXTS_LEN_MAX {
            return Err(StoreError::TooManyLinks);
        }
        let rest = [text, after].concat();
        if text.first() == Some(&b'/') { Err(StoreError::Outside(rest)) } else { Ok(rest) }
    }
}

/// What a location in the root directory is called in a path from the root: nothing if it is the root itself.
fn from_root(last: &[u8], slash: bool) -> Vec<u8> {
    [last, if slash && !last.is_empty() { b"/" } else { b"" }].concat()
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    &path[start..]
}
