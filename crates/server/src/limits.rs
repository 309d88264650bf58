//! How much a server takes on: what the configuration says, else what follows from the descriptors and the memory that
//! the process may use. `docs/reference/limits.md` has all limits in one table.

use crate::pools::Slots;
use isonomia_units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use std::path::Path;

/// Below this many descriptors a server says so when it starts.
const DESCRIPTORS_WANTED: u64 = 16_384;
/// Descriptors of the server itself: listeners, epolls, bells, files that are open for a moment, metrics.
const OWN_DESCRIPTORS: u64 = 96;
/// Descriptors of each target, apart from its objects.
const TARGET_DESCRIPTORS: u64 = 3;
/// Descriptors that a worker has open at one moment: its ring and what it sleeps at; and of what it serves an object's second one, its
/// sums, a directory.
const WORKER_DESCRIPTORS: u64 = 5;
/// Fewer open objects are of no use to the threads of one server.
const OPEN_OBJECTS_MIN: u64 = 16;
/// A connection that is being set up has its socket and the descriptor of its memory.
const PENDING_DESCRIPTORS: u64 = 2;
/// Of the memory that the process may use, the part that may be shared with clients, unless the configuration says more.
const MEMORY_PART: u64 = 4;
/// Of the memory that may be shared with clients, how much there is beside it for those on TCP that stall, and as much for open files.
const BESIDE_PART: u64 = 4;
/// The least of each.
const BESIDE_BYTES_MIN: u64 = 64 << 20;
/// Jobs that may be known at once, unless the configuration says otherwise.
const JOBS: u32 = 8_192;
/// Those of one user.
const JOBS_PER_USER: u32 = 1_024;

/// The section `limits` of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Connections of clients at once; what the descriptors allow, if absent.
    pub connections: Option<u64>,
    /// Those of one user; half of all, if absent.
    pub connections_per_user: Option<u64>,
    /// Memory that all clients share with the server; a quarter of what the process may use, if absent.
    pub memory: Option<Bytes>,
    /// That of one user; half of all, if absent.
    pub memory_per_user: Option<Bytes>,
    /// Object files kept open at once; a quarter of the descriptors, and 16,384 at most, if absent.
    pub open_objects: Option<u64>,
    /// Jobs known at once.
    pub jobs: Option<u32>,
    /// Those of one user.
    pub jobs_per_user: Option<u32>,
}

/// What may be at once. No field is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients.
    pub connections: u64,
    /// Connections of one user.
    pub connections_per_user: u64,
    /// Bytes that clients share with the server.
    pub memory_bytes: u64,
    /// Bytes that one user shares with the server.
    pub memory_bytes_per_user: u64,
    /// Bytes for payloads and replies on TCP, in case that their clients stall.
    pub stall_bytes: u64,
    /// Bytes for what is kept of open files.
    pub file_bytes: u64,
    /// Jobs that are known.
    pub jobs: usize,
    /// Jobs of one user that are known.
    pub jobs_per_user: usize,
    /// Connections that are being set up.
    pub pending: Slots,
    /// Control connections.
    pub control: Slots,
}

impl Limits {
    /// The limits of a process that may use so many descriptors, of which `kept` are the store's, and so much memory.
    /// The error says which configured limit is beyond what the descriptors allow.
    pub fn settle(config: &LimitsConfig, descriptors: u64, kept: u64, memory_bytes: u64) -> Result<Self, String> {
        let part = |of: u64, least: u64, most: u64| (descriptors / of).clamp(least, most) as usize;
        let pending = Slots {
            operators: part(128, 8, 64),
            users: part(32, 16, 512),
            per_user: part(128, 8, 64),
            addresses: part(64, 16, 256),
            per_address: part(128, 8, 32),
            keyed: 1,
        };
        let control = Slots {
            operators: part(256, 4, 32),
            users: part(64, 8, 128),
            per_user: 8,
            addresses: 1,
            per_address: 1,
            keyed: part(256, 4, 32),
        };
        let set_up = PENDING_DESCRIPTORS * pending.total() as u64 + control.total() as u64;
        let room = descriptors.saturating_sub(OWN_DESCRIPTORS + kept + set_up).max(1);
        let connections = config.connections.unwrap_or(room);
        if connections > room {
            return Err(format!("limits.connections is {connections}, and {descriptors} descriptors leave {room}"));
        }
        let memory = config.memory.map_or(memory_bytes / MEMORY_PART, |bytes| bytes.0);
        let beside = (memory / BESIDE_PART).max(BESIDE_BYTES_MIN);
        let jobs = config.jobs.unwrap_or(JOBS);
        let limits = Self {
            connections,
            connections_per_user: config.connections_per_user.unwrap_or(connections.div_ceil(2)),
            memory_bytes: memory,
            memory_bytes_per_user: config.memory_per_user.map_or(memory.div_ceil(2), |bytes| bytes.0),
            stall_bytes: beside,
            file_bytes: beside,
            jobs: jobs as usize,
            jobs_per_user: config.jobs_per_user.unwrap_or(JOBS_PER_USER.min(jobs)) as usize,
            pending,
            control,
        };
        let named = [
            ("connections", limits.connections),
            ("connections_per_user", limits.connections_per_user),
            ("memory", limits.memory_bytes),
            ("memory_per_user", limits.memory_bytes_per_user),
            ("jobs", limits.jobs as u64),
            ("jobs_per_user", limits.jobs_per_user as u64),
        ];
        match named.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(format!("limits.{name} must be at least 1")),
            None => Ok(limits),
        }
    }
}

/// How many object files the store keeps open: as configured, else `default`. Half of the descriptors at most; the error
/// says what is allowed.
pub fn open_objects(config: &LimitsConfig, descriptors: u64, default: usize) -> Result<usize, String> {
    let allowed = OPEN_OBJECTS_MIN..=(descriptors / 2).max(OPEN_OBJECTS_MIN);
    match config.open_objects {
        None => Ok(default),
        Some(wanted) if allowed.contains(&wanted) => Ok(usize::try_from(wanted).unwrap_or(default)),
        Some(wanted) => Err(format!(
            "limits.open_objects is {wanted}, and {descriptors} descriptors allow {} to {}",
            allowed.start(),
            allowed.end()
        )),
    }
}

/// Descriptors that the store keeps open: `objects` of files, those of its database, and some for each target and worker.
pub fn descriptors_of_store(objects: usize, targets: usize, workers: usize) -> u64 {
    let of_parts = TARGET_DESCRIPTORS * targets as u64 + WORKER_DESCRIPTORS * workers as u64;
    (objects + isonomia_store::DATABASE_FILES_MAX) as u64 + of_parts
}

/// Raises the limit of descriptors as far as the system lets this process; gives what it is then.
pub fn raise_descriptors() -> u64 {
    let had = getrlimit(Resource::Nofile);
    if had.current != had.maximum
        && let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: had.maximum, maximum: had.maximum })
    {
        tracing::warn!(%errno, current = had.current, maximum = had.maximum, "cannot raise the limit of descriptors");
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if descriptors < DESCRIPTORS_WANTED {
        tracing::warn!(descriptors, wanted = DESCRIPTORS_WANTED, "few descriptors (LimitNOFILE): few clients at once");
    }
    descriptors
}

/// Memory that this process may use: the machine's, or that of its control group where that is less.
pub fn usable_memory_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let total = read(Path::new("/proc/meminfo")).and_then(|info| total_of(&info));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    total.into_iter().chain(limit_of_groups(&groups, read)).min().unwrap_or(u64::MAX)
}

/// The least limit of memory of a process in `groups` (`/proc/self/cgroup`), in the unified hierarchy or in the one for
/// memory of version 1. A group is inside of all above it.
fn limit_of_groups(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for dir in Path::new(group.trim_start_matches('/')).ancestors() {
            let limit = read(&Path::new(root).join(dir).join(name)).and_then(|text| text.trim().parse().ok());
            least = least.into_iter().chain(limit).min();
        }
    }
    least
}

fn total_of(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    rest.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{LOCKS_PER_USER_MAX, WAITING_PER_USER_MAX};
    use crate::sessions::{REFERENCES_PER_SESSION_MAX, REFERENCES_PER_USER_MAX};

    /// A number as the page has it: `8,192`.
    fn grouped(number: u64) -> String {
        let rest = number % 1_000;
        if number < 1_000 { rest.to_string() } else { format!("{},{rest:03}", grouped(number / 1_000)) }
    }

    fn settle(config: &LimitsConfig, descriptors: u64) -> Result<Limits, String> {
        Limits::settle(config, descriptors, descriptors / 4 + 131, 8 << 30)
    }

    #[test]
    fn descriptors_are_shared_out_and_never_more_than_there_are() {
        for descriptors in [1_024, 4_096, 20_000, 1 << 20] {
            let limits = settle(&LimitsConfig::default(), descriptors).unwrap();
            let set_up = 2 * limits.pending.total() + limits.control.total();
            let all = limits.connections + set_up as u64 + descriptors / 4 + 131 + OWN_DESCRIPTORS;
            assert_eq!(all, descriptors);
            assert!(limits.connections > descriptors / 4, "{limits:?}");
            assert_eq!(limits.connections_per_user, limits.connections.div_ceil(2));
            assert_eq!(limits.memory_bytes, 2 << 30);
        }
    }

    #[test]
    fn the_configuration_decides_within_what_there_is() {
        let config: LimitsConfig = toml::from_str("connections = 100\nmemory = \"1GiB\"\njobs = 10\n").unwrap();
        let limits = settle(&config, 20_000).unwrap();
        assert_eq!((limits.connections, limits.connections_per_user), (100, 50));
        assert_eq!((limits.memory_bytes, limits.memory_bytes_per_user), (1 << 30, 1 << 29));
        assert_eq!((limits.jobs, limits.jobs_per_user), (10, 10));
        let refused = |text: &str| settle(&toml::from_str(text).unwrap(), 4_096).unwrap_err();
        assert!(refused("connections = 5000").contains("limits.connections is 5000, and 4096 descriptors leave"));
        assert_eq!(refused("jobs_per_user = 0"), "limits.jobs_per_user must be at least 1");
    }

    #[test]
    fn open_objects_are_as_configured_up_to_half_of_the_descriptors() {
        let asked = |text: &str| open_objects(&toml::from_str(text).unwrap(), 100_000, 16_384);
        assert_eq!(asked(""), Ok(16_384));
        assert_eq!(asked("open_objects = 50000"), Ok(50_000));
        assert_eq!(asked("open_objects = 16"), Ok(16));
        let refused = "limits.open_objects is 50001, and 100000 descriptors allow 16 to 50000";
        assert_eq!(asked("open_objects = 50001"), Err(refused.to_owned()));
        assert!(asked("open_objects = 15").is_err());
    }

    #[test]
    fn the_reference_page_has_the_numbers() {
        let page = include_str!("../../../docs/reference/limits.md");
        let [least, most] =
            [1, u64::MAX >> 1].map(|descriptors| settle(&LimitsConfig::default(), descriptors).unwrap());
        let range = |of: fn(&Limits) -> usize| format!(", {} to {} |", of(&least), of(&most));
        for (row, limit) in [
            ("connections in set-up of operators of the host", range(|l| l.pending.operators)),
            ("of other users of the host", range(|l| l.pending.users)),
            ("of one of them", range(|l| l.pending.per_user)),
            ("of strangers on TCP", range(|l| l.pending.addresses)),
            ("of one address (of IPv6, a network of 64 bits)", range(|l| l.pending.per_address)),
            ("control connections of operators of the host", range(|l| l.control.operators)),
            ("of those who know the key", range(|l| l.control.keyed)),
            ("of other users of the host", range(|l| l.control.users)),
            ("of one of them", format!("| {} |", most.control.per_user)),
            ("jobs known", grouped(most.jobs as u64)),
            ("of one user", grouped(most.jobs_per_user as u64)),
            (
                "open files of a session: of a process, or of a user's job on a mount",
                grouped(REFERENCES_PER_SESSION_MAX),
            ),
            (
                "of a user, in all sessions, with those that are kept for the next program",
                grouped(REFERENCES_PER_USER_MAX),
            ),
            ("locks of a user", grouped(LOCKS_PER_USER_MAX as u64)),
            ("owners of locks of a user that wait", grouped(WAITING_PER_USER_MAX as u64)),
            ("requests queued at a target", grouped(isonomia_policy::QUEUED_MAX as u64)),
            ("tables of the database kept open", grouped(isonomia_store::DATABASE_FILES_MAX as u64)),
            ("inodes and names kept in memory", grouped(isonomia_store::CACHED_INODES_MAX as u64)),
            ("objects kept open", grouped(isonomia_store::OPEN_OBJECTS_MAX as u64)),
            ("names of a file", grouped(u64::from(isonomia_store::LINKS_MAX))),
        ] {
            let begin = format!("| {row} | ");
            let found = page.lines().any(|line| line.starts_with(&begin) && line.contains(&limit));
            assert!(found, "no row of {row:?} has {limit:?}");
        }
        assert!(page.contains(&format!("{} of its own", OWN_DESCRIPTORS)));
        assert!(page.contains(&format!("{}\nfor the tables", isonomia_store::DATABASE_FILES_MAX)));
    }

    #[test]
    fn the_least_limit_of_the_groups_counts_in_both_versions() {
        let files = [
            ("/sys/fs/cgroup/a/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "3000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000\n"),
        ];
        let read =
            |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
        assert_eq!(limit_of_groups("0::/a/b/c\n", read), Some(3_000));
        assert_eq!(limit_of_groups("0::/a\n", read), None);
        assert_eq!(limit_of_groups("5:cpu:/job\n4:hugetlb,memory:/job/step\n0::/a/b\n", read), Some(2_000));
        assert_eq!(limit_of_groups("4:memory:/\n", read), Some(9_223_372_036_854_771_712));
        assert_eq!(limit_of_groups("nonsense", read), None);
    }

    #[test]
    fn the_memory_of_the_machine_is_known() {
        assert_eq!(total_of("MemTotal:       24663228 kB\nMemFree: 1 kB\n"), Some(24_663_228 << 10));
        assert!(usable_memory_bytes() < 1 << 50);
    }
}
