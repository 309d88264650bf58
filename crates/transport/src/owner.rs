//! Who runs the server at the other end of a Unix socket: the client's question before it sends anything.
//!
//! A server gets the client's requests and data, and programs below the prefix are executed as it gives them. So a client
//! talks to a server of its own user, of root, or of the one user that it was told of, and to no other. The kernel
//! says who it is: whoever had the socket listen (`SO_PEERCRED`). On TCP the key answers the question, or munge, which lets
//! only that user read the credential.

use crate::descriptor::Parked;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fmt;

/// Where the system's own users are.
const USERS: &str = "/etc/passwd";
/// It is read up to here.
const USERS_LEN_MAX: usize = 1 << 20;

/// A server that is not talked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} listens there, allowed are {}: nothing was sent (--server-user or ISONOMIA_SERVER_USER names the user \
     that runs the server)",
    Name(*found), Accepted(*expected)
)]
pub struct Stranger {
    /// Who runs it.
    pub found: u32,
    /// Who else than this user and root might have.
    pub expected: Option<u32>,
}

/// A text that names no user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no user (allowed: a number, or a name in {USERS})")]
pub struct UnknownUser(String);

/// A user as people know it.
struct Name(u32);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match users().find_map(|(name, uid)| (uid == self.0).then_some(name)) {
            Some(name) => write!(f, "user {name} ({})", self.0),
            None => write!(f, "user {}", self.0),
        }
    }
}

/// Those who would have been accepted, with the third if there is one.
struct Accepted(Option<u32>);

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(uid) => write!(f, "this user, root, and {}", Name(uid)),
            None => f.write_str("this user and root"),
        }
    }
}

/// The user of this name or number.
pub fn user(text: &str) -> Result<u32, UnknownUser> {
    let named = || users().find_map(|(name, uid)| (name == text).then_some(uid));
    text.parse().ok().or_else(named).ok_or_else(|| UnknownUser(text.chars().take(64).collect()))
}

/// Refuses a server that is run by somebody else than this user, root, and `expected`.
pub(crate) fn check(socket: BorrowedFd<'_>, expected: Option<u32>) -> Result<(), Refusal> {
    let found = peer_user(socket).map_err(Refusal::System)?;
    check_user(found, expected).map_err(Refusal::Stranger)
}

/// The same of a server that user `found` runs.
pub(crate) fn check_user(found: u32, expected: Option<u32>) -> Result<(), Stranger> {
    if found == 0 || found == geteuid().as_raw() || Some(found) == expected {
        Ok(())
    } else {
        Err(Stranger { found, expected })
    }
}

/// Why [`check`] lets nobody through.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    System(Errno),
    Stranger(Stranger),
}

/// The user that had the socket at the other end listen.
fn peer_user(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    // Process, user, group. Not by way of a type whose process cannot be 0, which it is for one in another namespace.
    let mut credentials = [0_u32; 3];
    let mut len = size_of_val(&credentials) as u32;
    let outcome: isize;
    // Not by way of the C library either, whose function the preload library stands before.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &len): the kernel writes at most `len` bytes, the
    // size of the array, and `len` itself; the call changes the named registers only.
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") 55_isize => outcome, in("rdi") socket.as_raw_fd() as isize, in("rsi") 1, in("rdx") 17,
            in("r10") credentials.as_mut_ptr(), in("r8") &raw mut len, lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0", inlateout("x0") socket.as_raw_fd() as isize => outcome, in("x8") 209, in("x1") 1, in("x2") 17,
            in("x3") credentials.as_mut_ptr(), in("x4") &raw mut len, options(nostack),
        );
    }
    match i32::try_from(-outcome) {
        Ok(error) if error > 0 => Err(Errno::from_raw_os_error(error)),
        _ => Ok(credentials[1]),
    }
}

/// Names and numbers of the system's own users. None where they cannot be read.
fn users() -> impl Iterator<Item = (String, u32)> {
    let text = read_users().unwrap_or_default();
    let entries: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
        })
        .collect();
    entries.into_iter()
}

fn read_users() -> Result<String, Errno> {
    let file = Parked::new(rustix::fs::open(USERS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)?;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() < USERS_LEN_MAX {
        match rustix::io::retry_on_intr(|| rustix::io::read(file.as_fd(), &mut part))? {
            0 => break,
            n => bytes.extend_from_slice(&part[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn the_kernel_names_the_user_at_the_other_end() {
        let (ours, _theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(peer_user(ours.as_fd()), Ok(geteuid().as_raw()));
        assert_eq!(check(ours.as_fd(), None), Ok(()));
        let file = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!(peer_user(file.as_fd()), Err(Errno::NOTSOCK));
    }

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((user("root"), user("4711")), (Ok(0), Ok(4_711)));
        let error = user("no such user").unwrap_err().to_string();
        assert!(error.contains("\"no such user\"") && error.contains("a number"), "{error}");
    }

    #[test]
    fn a_stranger_is_named_with_those_who_are_none() {
        let text = Stranger { found: 0, expected: Some(4_294_000_001) }.to_string();
        assert!(
            text.starts_with("user root (0) listens there, allowed are this user, root, and user 4294000001:"),
            "{text}"
        );
        assert!(text.contains("ISONOMIA_SERVER_USER"), "{text}");
    }
}
