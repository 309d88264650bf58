//! What the system's name service says of users and groups, asked by threads of their own ([`crate::inquiries`]).
//!
//! Without names users go by their numbers. Without groups nobody is let in who needs them: a group can take rights away, too.

use crate::inquiries::{Found, Inquiries, Terms};
use isonomia_units::Nanos;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use rustix::fd::OwnedFd;
use std::ffi::CString;
use std::sync::Arc;

/// Names hardly ever change, and none is worse than an old one.
const NAMES: Terms = Terms { fresh_for: Nanos::from_secs(300), valid_for: Nanos::MAX };
/// Who is taken out of a group is to lose it soon, also while the name service is away.
const GROUPS: Terms = Terms { fresh_for: Nanos::from_secs(60), valid_for: Nanos::from_secs(600) };

/// Whose name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
}

impl Who {
    /// What it goes by without a name.
    pub fn number(self) -> String {
        match self {
            Self::User(id) | Self::Group(id) => id.to_string(),
        }
    }
}

/// Something that finds names.
pub trait LookUp: Fn(Who) -> String + Send + 'static {}

impl<F: Fn(Who) -> String + Send + 'static> LookUp for F {}

/// The name that the system's name service has, which may take as long as it likes to answer; the number as text if there
/// is none.
pub fn look_up(who: Who) -> String {
    let name = match who {
        Who::User(id) => User::from_uid(Uid::from_raw(id)).ok().flatten().map(|user| user.name),
        Who::Group(id) => Group::from_gid(Gid::from_raw(id)).ok().flatten().map(|group| group.name),
    };
    name.unwrap_or_else(|| who.number())
}

/// The groups that the system's name service has user `uid` in: none if it does not know him. Nothing if it does not answer.
fn look_up_groups(uid: u32) -> Option<Arc<[u32]>> {
    let Some(user) = User::from_uid(Uid::from_raw(uid)).ok()? else { return Some(Arc::default()) };
    let groups = getgrouplist(&CString::new(user.name).ok()?, user.gid).ok()?;
    Some(groups.into_iter().map(Gid::as_raw).collect())
}

/// The names of users and groups.
#[derive(Debug)]
pub struct Names(Inquiries<Who, String>);

impl Names {
    /// Names that `look_up` finds; see [`Inquiries::new`].
    pub fn new(look_up: impl LookUp, bell: OwnedFd) -> std::io::Result<Self> {
        Inquiries::new("names", NAMES, move |who| Some(look_up(who)), bell).map(Self)
    }

    /// The name of `who`; `None` if it has only just been asked for.
    pub fn get(&self, who: Who, now: Nanos) -> Option<String> {
        match self.0.get(who, now) {
            Found::Known(name) => Some(name),
            Found::Asked => None,
            Found::Failed | Found::Overloaded => Some(who.number()),
        }
    }
}

/// The groups of users whom no kernel vouches for.
pub type Groups = Inquiries<u32, Arc<[u32]>>;

/// The groups that the name service has users in; see [`Inquiries::new`].
pub fn groups(bell: OwnedFd) -> std::io::Result<Groups> {
    Inquiries::new("groups", GROUPS, look_up_groups, bell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_no_name_goes_by_the_number() {
        assert_eq!(look_up(Who::User(0)), "root");
        assert_eq!(look_up(Who::User(1_234_567)), "1234567");
        assert_eq!(look_up(Who::Group(1_234_568)), "1234568");
    }

    #[test]
    fn root_is_in_its_own_group_and_strangers_are_in_none() {
        assert!(look_up_groups(0).unwrap().contains(&0));
        assert_eq!(look_up_groups(1_234_567).as_deref(), Some(&[][..]));
    }
}
