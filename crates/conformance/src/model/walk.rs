//! From a path to a name in a directory, as path_resolution(7) has it.

use super::tree::{FileSystem, Id, Kind, Person, ROOT, SEARCH};
use nix::errno::Errno;
use std::collections::VecDeque;

const LINKS_MAX: usize = 40;

/// Where a path leads: to a name in a directory, be there something of that name or not.
#[derive(Debug)]
pub struct Location {
    /// The directory; whoever walked here may search it.
    pub dir: Id,
    /// The last component.
    pub last: Last,
    /// Whether slashes follow it: then it can be a directory only.
    pub slash: bool,
}

/// The last component of a path.
#[derive(Debug)]
pub enum Last {
    /// A name.
    Name(String),
    /// `.` or `..`, and the directory that it is.
    Dots(Dots, Id),
}

/// A component that is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dots {
    /// `.`
    One,
    /// `..`
    Two,
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is.
    Always,
    /// Only with slashes after it.
    BeforeSlash,
    /// Only without slashes after it.
    WithoutSlash,
    /// It is not.
    Never,
}

impl FileSystem {
    /// Where `path` leads. Texts of symbolic links are relative.
    pub(super) fn locate(&self, who: &Person, path: &str, follow: Follow) -> Result<Location, Errno> {
        let mut components = parts(path);
        let mut slash = path.ends_with('/');
        let (mut dir, mut links) = (ROOT, 0);
        while let Some(component) = components.pop_front() {
            self.may(who, dir, SEARCH)?;
            let is_last = components.is_empty();
            let last = match component.as_str() {
                "." => Last::Dots(Dots::One, dir),
                ".." => Last::Dots(Dots::Two, self.parent(dir)),
                _ => Last::Name(component),
            };
            let follows = match follow {
                Follow::Always => true,
                Follow::BeforeSlash => slash,
                Follow::WithoutSlash => !slash,
                Follow::Never => false,
            };
            if is_last && !follows {
                return Ok(Location { dir, last, slash });
            }
            let location = Location { dir, last, slash };
            let found = self.at(&location)?;
            match found.map(|found| (found, &self.inode(found).kind)) {
                Some((_, Kind::Symlink(text))) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::ELOOP);
                    }
                    slash |= is_last && text.ends_with('/');
                    components = parts(text).into_iter().chain(components).collect();
                }
                _ if is_last => return Ok(location),
                Some((found, Kind::Directory(_))) => dir = found,
                Some(_) => return Err(Errno::ENOTDIR),
                None => return Err(Errno::ENOENT),
            }
        }
        Ok(Location { dir, last: Last::Dots(Dots::One, dir), slash })
    }

    /// What is at a location.
    pub(super) fn at(&self, location: &Location) -> Result<Option<Id>, Errno> {
        match &location.last {
            Last::Name(name) => self.look(location.dir, name),
            Last::Dots(_, dir) => Ok(Some(*dir)),
        }
    }

    /// The inode that a path leads to.
    pub(super) fn find(&self, who: &Person, path: &str, follow: bool) -> Result<Id, Errno> {
        let location = self.locate(who, path, if follow { Follow::Always } else { Follow::BeforeSlash })?;
        let found = self.at(&location)?.ok_or(Errno::ENOENT)?;
        if location.slash && !self.inode(found).is_directory() { Err(Errno::ENOTDIR) } else { Ok(found) }
    }
}

fn parts(path: &str) -> VecDeque<String> {
    path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
