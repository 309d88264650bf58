//! Who a client is, for permissions and for sharing: what the kernel or a key proves, and which claims count.
//!
//! On a Unix socket the kernel names user and groups, and the control group of the process its job, if root put it into
//! one. On TCP the key proves that the peer may act for the owner of the server, or munge names user and group, and the
//! server's own name service the other groups. Root, and the server's own user, may ask for others where the kernel or munge
//! names them: that is how a mount serves all users of a host.
//!
//! Everything else is a claim. The scheduler's environment names job and nodes, and the `--job` option a job: they divide
//! what is proven among the parts of it ([`JobInfo::within`]), and take nothing from others. An account counts if the user
//! is a member of the group of that name. Any other claim counts only on a server that was started to trust its clients.

use crate::names::Who;
use isonomia_proto::setup::{Claims, Hello, PRINCIPAL_GROUPS_MAX};
use isonomia_transport::control_group::{IoGroup, Process};
use isonomia_units::{JobInfo, NAME_LEN_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The job of a client that names none.
const UNNAMED_JOB: &str = "interactive";
/// Supplementary groups among which an account is looked for.
const ACCOUNT_GROUPS_MAX: usize = 256;
/// Supplementary groups that are kept; Linux allows as many.
const GROUPS_MAX: usize = 65_536;

/// The user and groups that permissions are checked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// How a client reached this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Through a Unix socket: the kernel vouches for this.
    Local(Credentials),
    /// Through TCP, with a proof of the key that belongs to this user.
    Keyed(Credentials),
    /// Through TCP, with a credential: munge vouches for user and group, the name service for the other groups.
    Munged(Credentials),
}

/// What a client is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// For permissions.
    pub credentials: Credentials,
    /// It may ask for others, so it could have any file: what it says of its use of a file is believed.
    pub may_ask_for_others: bool,
    /// For sharing.
    pub job: JobInfo,
    /// Whether the peer is root or the server's own user, whoever it asks for: it need not prove what it may.
    pub is_trusted: bool,
}

/// A hello that cannot be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inadmissible {
    /// A name is longer than allowed or has control characters.
    #[error("the {0} name is longer than {NAME_LEN_MAX} bytes, empty, or has control characters")]
    Name(&'static str),
    /// A peer that may not ask for others does.
    #[error("user {0} may not ask for others: root and the server's user may, on a Unix socket or by munge")]
    OnBehalf(String),
    /// More supplementary groups than a server keeps.
    #[error("more than {PRINCIPAL_GROUPS_MAX} supplementary groups")]
    Groups,
    /// A job of no nodes or no priority.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

/// Decides what `peer`, which said `hello` to a server of user `server_uid`, is taken for.
///
/// `name` gives the names of users and groups, without waiting for any, and `proven_job` the job that the peer's process is
/// in by its control group.
pub fn admit(
    peer: &Peer,
    hello: &Hello,
    trust: bool,
    server_uid: u32,
    name: &dyn Fn(Who) -> String,
    proven_job: impl FnOnce(u32) -> Option<String>,
) -> Result<Admission, Inadmissible> {
    let claims = &hello.claims;
    check_claims(claims)?;
    let credentials = match peer {
        Peer::Local(credentials) | Peer::Munged(credentials) => credentials.clone(),
        Peer::Keyed(_) if trust => Credentials { uid: hello.uid, gid: hello.gid, groups: Vec::new() },
        Peer::Keyed(owner) => owner.clone(),
    };
    let may_ask_for_others = match peer {
        Peer::Local(vouched) | Peer::Munged(vouched) => vouched.uid == 0 || vouched.uid == server_uid,
        Peer::Keyed(_) => trust,
    };
    // Whoever has the key is the server's own user.
    let is_trusted = may_ask_for_others || matches!(peer, Peer::Keyed(_));
    let credentials = match &claims.on_behalf_of {
        None => credentials,
        Some(_) if !may_ask_for_others => return Err(Inadmissible::OnBehalf(credentials.uid.to_string())),
        Some(principal) => Credentials { uid: principal.uid, gid: principal.gid, groups: principal.groups.clone() },
    };
    let trusted = |claim: &Option<String>| claim.clone().filter(|_| trust);
    let proven = match (&claims.on_behalf_of, peer) {
        _ if trust => None,
        (Some(_), _) => claims.proven_job.clone(),
        (None, Peer::Local(vouched)) => proven_job(vouched.uid),
        (None, Peer::Keyed(_) | Peer::Munged(_)) => None,
    };
    let scheduler = claims.scheduler.as_ref();
    let user = trusted(&claims.user).unwrap_or_else(|| name(Who::User(credentials.uid)));
    let is_member = |account: &String| {
        let mut groups =
            [credentials.gid].into_iter().chain(credentials.groups.iter().copied().take(ACCOUNT_GROUPS_MAX));
        groups.any(|gid| name(Who::Group(gid)) == *account)
    };
    let account = || scheduler.and_then(|s| s.account.clone()).filter(|account| trust || is_member(account));
    let group = trusted(&claims.group).or_else(account).unwrap_or_else(|| name(Who::Group(credentials.gid)));
    let job_name = claims.job.clone().or_else(|| proven.clone()).or_else(|| scheduler.map(|s| s.job.clone()));
    let nodes = claims.nodes.filter(|_| trust).or_else(|| scheduler.and_then(|s| s.nodes)).unwrap_or(1);
    let job = JobInfo {
        nodes,
        priority: claims.priority.filter(|_| trust).unwrap_or(1),
        title: claims.title.as_deref().map(Into::into),
        executable: claims.executable.as_deref().map(Into::into),
        ..JobInfo::new(job_name.as_deref().unwrap_or(UNNAMED_JOB), &user, &group)
    };
    let job = if trust { job } else { job.claimed_within(proven.as_deref().unwrap_or_default()) };
    Ok(Admission { credentials, may_ask_for_others, is_trusted, job })
}

fn check_claims(claims: &Claims) -> Result<(), Inadmissible> {
    let scheduler = claims.scheduler.as_ref();
    let names = [
        ("job", claims.job.as_ref()),
        ("user", claims.user.as_ref()),
        ("group", claims.group.as_ref()),
        ("proven job", claims.proven_job.as_ref()),
        ("title", claims.title.as_ref()),
        ("executable", claims.executable.as_ref()),
        ("job", scheduler.map(|s| &s.job)),
        ("account", scheduler.and_then(|s| s.account.as_ref())),
    ];
    for (what, name) in names {
        let bad = |n: &String| n.is_empty() || n.len() > NAME_LEN_MAX || n.chars().any(char::is_control);
        if name.is_some_and(bad) {
            return Err(Inadmissible::Name(what));
        }
    }
    if claims.on_behalf_of.as_ref().is_some_and(|principal| principal.groups.len() > PRINCIPAL_GROUPS_MAX) {
        return Err(Inadmissible::Groups);
    }
    let nodes = [claims.nodes, scheduler.and_then(|s| s.nodes)];
    if nodes.contains(&Some(0)) {
        return Err(Inadmissible::Zero("nodes"));
    }
    if claims.priority == Some(0) { Err(Inadmissible::Zero("priority")) } else { Ok(()) }
}

/// The job that the process at the other end of a Unix socket, which runs as `uid`, is in by its control group.
pub fn proven_job(socket: &impl AsRawFd, uid: u32) -> Option<String> {
    let process = Process::open(u32::try_from(ucred(socket).ok()?.pid).ok()?).ok()?;
    // Its number may have been given to another process since it connected.
    let is_the_one = match peer_handle(socket) {
        Some(handle) => !has_ended(&handle),
        // A kernel before 6.5 cannot tell. Then it is at least one of the same user, so that what is proven is his.
        None => process.owner() == Ok(uid),
    };
    process.job(uid).filter(|_| is_the_one)
}

/// Where the kernel limits what the process at the other end of a Unix socket, which runs as `uid` and is proven to be of this job, does with
/// block devices.
pub fn io_groups(socket: &impl AsRawFd, uid: u32, job: &str) -> Vec<IoGroup> {
    let pid = ucred(socket).ok().and_then(|ucred| u32::try_from(ucred.pid).ok());
    let process = pid.and_then(|pid| Process::open(pid).ok());
    process.map_or_else(Vec::new, |process| process.io_groups(uid, job))
}

/// A handle on the process that connected: no other process ever has it.
fn peer_handle(socket: &impl AsRawFd) -> Option<OwnedFd> {
    use nix::libc;
    /// From Linux 6.5 on; not yet in every C library.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut handle: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to an integer of that size.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut handle).cast(), &raw mut len)
    };
    // SAFETY: the kernel has made a descriptor that nobody else knows.
    (outcome == 0 && handle >= 0).then(|| unsafe { OwnedFd::from_raw_fd(handle) })
}

fn has_ended(handle: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&now)), Ok(0))
}

fn ucred(socket: &impl AsRawFd) -> std::io::Result<nix::libc::ucred> {
    use nix::libc;
    let mut ucred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to a struct of that size.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut ucred).cast(), &raw mut len)
    };
    if outcome == 0 { Ok(ucred) } else { Err(std::io::Error::last_os_error()) }
}

/// The kernel's word on who is at the other end of a Unix socket.
pub fn peer_credentials(socket: &impl AsRawFd) -> std::io::Result<Credentials> {
    use nix::libc;
    let ucred = ucred(socket)?;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut len = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of the vector.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if outcome == 0 {
            groups.truncate(len as usize / size_of::<libc::gid_t>());
            return Ok(Credentials { uid: ucred.uid, gid: ucred.gid, groups });
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(GROUPS_MAX.min(len as usize / size_of::<libc::gid_t>() + 1).max(groups.len() + 1), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::look_up;
    use isonomia_proto::setup::{Principal, Role, SchedulerJob};

    fn hello(claims: Claims) -> Hello {
        Hello { claims, pid: 1, uid: 4321, gid: 4321, ..Hello::new(Role::SharedMemory, 1) }
    }

    fn local() -> Peer {
        Peer::Local(Credentials { uid: 1_234_567, gid: 1_234_568, groups: vec![5] })
    }

    fn everything() -> Claims {
        Claims {
            job: Some("j1".into()),
            user: Some("root".into()),
            group: Some("astro".into()),
            nodes: Some(64),
            priority: Some(9),
            title: Some("lammps".into()),
            executable: Some("lmp".into()),
            ..Claims::default()
        }
    }

    /// The user of the server in these tests.
    const SERVER: u32 = 2_000_000;

    fn admit(peer: &Peer, hello: &Hello, trust: bool) -> Result<Admission, Inadmissible> {
        super::admit(peer, hello, trust, SERVER, &look_up, |_| None)
    }

    /// As [`admit`], of a process in the control group of job 71.
    fn admit_in_71(claims: Claims) -> JobInfo {
        super::admit(&local(), &hello(claims), false, SERVER, &look_up, |_| Some("71".to_owned())).unwrap().job
    }

    /// By what [`everything`] says of title and program.
    fn called(job: JobInfo) -> JobInfo {
        JobInfo { title: Some("lammps".into()), executable: Some("lmp".into()), ..job }
    }

    fn claimed(name: &str, group: &str) -> JobInfo {
        JobInfo::new(name, "1234567", group).claimed_within("")
    }

    #[test]
    fn root_and_the_servers_user_ask_for_others_and_nobody_else() {
        let principal = Principal { uid: 1_234_567, gid: 1_234_568, groups: vec![7, 8] };
        let claims = Claims { job: Some("j1".into()), on_behalf_of: Some(principal), ..Claims::default() };
        let other = Credentials { uid: 1_234_567, gid: 1_234_568, groups: vec![7, 8] };
        let of = |uid| Credentials { uid, gid: uid, groups: vec![0] };
        for uid in [0, SERVER] {
            let got = admit(&Peer::Local(of(uid)), &hello(claims.clone()), false).unwrap();
            assert_eq!(got.credentials, other);
            assert!(
                got.may_ask_for_others
                    && admit(&Peer::Local(of(uid)), &hello(Claims::default()), false).unwrap().may_ask_for_others
            );
            assert_eq!(got.job, claimed("j1", "1234568"), "charged to the user, not to the mount");
            let claims = Claims { job: None, proven_job: Some("71".into()), ..claims.clone() };
            let got = admit(&Peer::Local(of(uid)), &hello(claims), false).unwrap();
            assert_eq!(got.job, JobInfo::new("71", "1234567", "1234568").claimed_within("71"), "found by the mount");
        }
        // A group of root's is not root, and the key of a server is not a user's password.
        let refused = Inadmissible::OnBehalf("1000001".to_owned());
        for trust in [false, true] {
            assert_eq!(admit(&Peer::Local(of(1_000_001)), &hello(claims.clone()), trust), Err(refused.clone()));
        }
        assert_eq!(admit(&Peer::Keyed(of(1_000_001)), &hello(claims.clone()), false), Err(refused));
        assert_eq!(admit(&Peer::Keyed(of(1_000_001)), &hello(claims), true).unwrap().credentials, other);
    }

    #[test]
    fn without_trust_the_kernel_decides() {
        let got = admit(&local(), &hello(everything()), false).unwrap();
        assert_eq!(got.job, called(claimed("j1", "1234568")));
        assert_eq!(got.credentials, Credentials { uid: 1_234_567, gid: 1_234_568, groups: vec![5] });
        assert!(!got.may_ask_for_others);
    }

    #[test]
    fn with_trust_claims_count_for_sharing_and_never_for_local_permissions() {
        let got = admit(&local(), &hello(everything()), true).unwrap();
        assert!(!got.is_trusted, "what he says of himself proves nothing about files");
        assert_eq!(got.job, called(JobInfo { nodes: 64, priority: 9, ..JobInfo::new("j1", "root", "astro") }));
        assert_eq!(got.credentials.uid, 1_234_567);
    }

    #[test]
    fn the_schedulers_environment_counts_where_options_do_not() {
        let scheduler = SchedulerJob {
            scheduler: "slurm".into(),
            job: "c1/77".into(),
            nodes: Some(4),
            account: Some("bio".into()),
        };
        let claims = Claims { nodes: Some(64), scheduler: Some(scheduler), ..Claims::default() };
        let got = admit(&local(), &hello(claims.clone()), false).unwrap();
        assert_eq!(got.job, JobInfo { nodes: 4, ..claimed("c1/77", "1234568") }, "nobody is in group bio");
        let got = admit(&local(), &hello(claims), true).unwrap();
        assert_eq!(got.job, JobInfo { nodes: 64, ..JobInfo::new("c1/77", "1234567", "bio") });
    }

    #[test]
    fn an_account_counts_for_the_members_of_its_group() {
        let scheduler = |account: &str| SchedulerJob { account: Some(account.into()), ..SchedulerJob::default() };
        let claims = |account| Claims {
            scheduler: Some(SchedulerJob { job: "1".into(), ..scheduler(account) }),
            ..Claims::default()
        };
        let group_of = |groups: Vec<u32>, account| {
            let peer = Peer::Local(Credentials { uid: 1_234_567, gid: 1_234_568, groups });
            admit(&peer, &hello(claims(account)), false).unwrap().job.group.to_string()
        };
        // Every system has a group of number 0.
        let zero = look_up(Who::Group(0));
        assert_eq!(group_of(vec![5, 0], &zero), zero);
        assert_eq!(group_of(vec![5], &zero), "1234568");
    }

    #[test]
    fn a_control_group_proves_the_job_and_claims_divide_it() {
        let proven = |name: &str| JobInfo::new(name, "1234567", "1234568").claimed_within("71");
        let scheduler = SchedulerJob { job: "ada/99".into(), nodes: Some(1_000), ..SchedulerJob::default() };
        let claims = Claims { scheduler: Some(scheduler), ..Claims::default() };
        assert_eq!(admit_in_71(claims), JobInfo { nodes: 1_000, ..proven("71") }, "the environment names another one");
        assert_eq!(admit_in_71(Claims { job: Some("part".into()), ..Claims::default() }), proven("part"));
        let claims = Claims { proven_job: Some("72".into()), ..Claims::default() };
        assert_eq!(admit_in_71(claims.clone()), proven("71"), "nobody proves his own");
        assert_eq!(admit(&local(), &hello(claims), false).unwrap().job, claimed(UNNAMED_JOB, "1234568"));
    }

    #[test]
    fn the_process_at_the_other_end_is_found_while_it_lives() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, _theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(u32::try_from(ucred(&ours).unwrap().pid), Ok(std::process::id()));
        // Only newer kernels have handles.
        if let Some(handle) = peer_handle(&ours) {
            assert!(!has_ended(&handle));
        }
        let process = Process::open(std::process::id()).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(proven_job(&ours, uid), process.job(uid));
    }

    #[test]
    fn a_key_proves_its_owner_and_nobody_else() {
        let owner = Credentials { uid: 1_000_001, gid: 1_000_001, groups: vec![] };
        let peer = Peer::Keyed(owner.clone());
        let got = admit(&peer, &hello(everything()), false).unwrap();
        assert_eq!((got.credentials, got.may_ask_for_others), (owner, false));
        let got = admit(&peer, &hello(everything()), true).unwrap();
        assert_eq!((got.credentials.uid, got.may_ask_for_others), (4321, true));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let refuse = |claims| admit(&local(), &hello(claims), true).unwrap_err();
        let long = Claims { job: Some("x".repeat(256)), ..Claims::default() };
        assert_eq!(refuse(long), Inadmissible::Name("job"));
        assert_eq!(refuse(Claims { group: Some("a\nb".into()), ..Claims::default() }), Inadmissible::Name("group"));
        assert_eq!(refuse(Claims { nodes: Some(0), ..Claims::default() }), Inadmissible::Zero("nodes"));
        let crowd = Principal { uid: 1, gid: 1, groups: vec![1; PRINCIPAL_GROUPS_MAX + 1] };
        assert_eq!(refuse(Claims { on_behalf_of: Some(crowd), ..Claims::default() }), Inadmissible::Groups);
        assert_eq!(refuse(Claims { priority: Some(0), ..Claims::default() }), Inadmissible::Zero("priority"));
    }
}
