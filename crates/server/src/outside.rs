//! Limits for programs that write to a local device outside of Isonomia, by their control groups.
//!
//! What a job is allocated of the targets is also what it may have of the device that they lie on, whichever way it takes: while the
//! controller's allocation applies, the control groups of each job that is proven by one have a limit of that part of what the device
//! does (`[cgroup]` in the configuration). A job that was allocated nothing has a hundredth, as at the targets
//! ([`isonomia_controller::parts`]). Jobs that no control group of a scheduler proves, and jobs that no allocation names, have no limit:
//! the group of a service is shared by all whom it works for, so that a limit for one of them would be one for the others. With the
//! allocation the limits go: when it ends without being renewed, when the policy changes, and when the server stops. What a server that
//! was killed left is removed when it starts again ([`isonomia_cgroup`]).
//!
//! A job that is in several groups (of cgroup v1, where a limit applies to one group alone) has an equal part of its limit in each. A group
//! that several jobs share has the sum of theirs.

use crate::clock;
use crate::config::CgroupConfig;
use isonomia_cgroup::{Device, Group, Layout, Limit, Limits, LimitsError};
use isonomia_transport::control_group::IoGroup;
use isonomia_units::{JobInfo, Nanos, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where records lie of the limits that servers of this host have set.
pub const RECORDS: &str = "/run/isonomia-limits";
/// Jobs whose groups are remembered; when there are more, those that have no part of the device are forgotten,
const JOBS_MAX: usize = 4_096;
/// so often at most.
const FORGET_EVERY: Nanos = Nanos::from_secs(1);
/// Groups of one job at most.
const GROUPS_PER_JOB_MAX: usize = 256;

/// Who is limited: all that is proven as one job of one user.
type Proven = (Arc<str>, Arc<str>);

/// See the module.
#[derive(Debug)]
pub struct Outside {
    read: Option<Rate>,
    write: Option<Rate>,
    known: Mutex<Known>,
    /// Groups have come since limits were set.
    has_changed: AtomicBool,
    /// The part of the device that each has.
    parts: Mutex<BTreeMap<Proven, f64>>,
    limits: Mutex<Limits>,
    /// Why not all limits could be set the last time. It is told once, and not at every allocation.
    complaint: Mutex<Option<String>>,
}

/// The control groups of jobs.
#[derive(Debug, Default)]
struct Known {
    groups: BTreeMap<Proven, BTreeSet<Group>>,
    /// When jobs were forgotten.
    forgot_at: Option<Nanos>,
}

/// Why a server that is to set limits does not start.
#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    /// Nothing is to be limited.
    #[error("[cgroup] says neither `read` nor `write` (allowed: what the device does, such as write = \"2GiB/s\")")]
    NoRate,
    /// There is nobody who would say how much.
    #[error("[cgroup] is about what the controller of a cluster allocates, and this server is in no cluster")]
    NoCluster,
    /// The device is none.
    #[error(
        "[cgroup] device {0:?} is no block device (allowed: one in /dev, MAJOR:MINOR, or nothing for that of the first target)"
    )]
    NoDevice(PathBuf),
    /// The directory of targets is on none.
    #[error("{0} is on no block device: [cgroup] has to name one with `device`")]
    NoBlockDevice(PathBuf),
    /// A job's part of the device is what it has of the targets, which is not the same on each device.
    #[error(
        "[cgroup] limits device {device} by the targets on it, and these are not: {others} (allowed: all targets on one device)"
    )]
    SeveralDevices {
        /// The one that is to be limited.
        device: Device,
        /// Directories of targets.
        others: String,
    },
    /// The record cannot be made, or limits that were left cannot be removed.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The directory of records cannot be made.
    #[error("cannot make {path} for the record of limits: {error}")]
    Records {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// The record of a server with this directory.
pub fn record_of(config: Option<&CgroupConfig>, dir: &Path) -> PathBuf {
    let default = || Path::new(RECORDS).join(format!("{}.limits", name_of(dir)));
    config.and_then(|config| config.record.clone()).unwrap_or_else(default)
}

/// A name that no other directory has, and that a directory has however it is spelt.
fn name_of(dir: &Path) -> String {
    let real = dir.canonicalize().or_else(|_| std::path::absolute(dir)).unwrap_or_else(|_| dir.to_owned());
    let mut name = String::new();
    for byte in real.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or(real.as_os_str().as_bytes()) {
        match byte {
            b'/' => name.push('-'),
            b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => name.push(char::from(*byte)),
            // Writing to a text cannot fail.
            _ => _ = write!(name, "%{byte:02x}"),
        }
    }
    name
}

impl Outside {
    /// For a server with this directory, whose targets lie in `targets`, one at least. Removes the limits that an earlier process left.
    ///
    /// # Errors
    /// Nothing can be limited by this configuration.
    pub fn new(config: &CgroupConfig, dir: &Path, targets: &[PathBuf]) -> Result<Self, OutsideError> {
        if config.read.is_none() && config.write.is_none() {
            return Err(OutsideError::NoRate);
        }
        let device = match &config.device {
            Some(named) => device_of(named).ok_or_else(|| OutsideError::NoDevice(named.clone()))?,
            None => {
                let first = targets.first().map_or(dir, PathBuf::as_path);
                device_below(first).ok_or_else(|| OutsideError::NoBlockDevice(first.to_owned()))?
            }
        };
        one_device(device, targets.iter().map(|target| (target.as_path(), device_below(target))))?;
        let record = record_of(Some(config), dir);
        if let Some(path) = record.parent() {
            let made = std::fs::create_dir_all(path);
            made.map_err(|error| OutsideError::Records { path: path.to_owned(), error })?;
        }
        let limits = Limits::open(&record, device)?;
        tracing::info!(%device, record = %record.display(), "control groups of jobs are limited by their allocations");
        Ok(Self {
            read: config.read,
            write: config.write,
            known: Mutex::default(),
            has_changed: AtomicBool::new(false),
            parts: Mutex::default(),
            limits: Mutex::new(limits),
            complaint: Mutex::default(),
        })
    }

    /// A process of this job, which its control group proves, is in these groups.
    pub fn enter(&self, user: &Arc<str>, job: &Arc<str>, groups: Vec<IoGroup>) {
        self.enter_at(clock::now(), user, job, groups);
    }

    fn enter_at(&self, now: Nanos, user: &Arc<str>, job: &Arc<str>, groups: Vec<IoGroup>) {
        if groups.is_empty() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let proven = (user.clone(), job.clone());
        if known.groups.len() >= JOBS_MAX && !known.groups.contains_key(&proven) {
            if known.forgot_at.is_none_or(|at| now.0.saturating_sub(at.0) >= FORGET_EVERY.0) {
                known.forgot_at = Some(now);
                let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
                known.groups.retain(|proven, _| parts.contains_key(proven));
            }
            if known.groups.len() >= JOBS_MAX {
                return;
            }
        }
        let of_job = known.groups.entry(proven).or_default();
        if of_job.len() >= GROUPS_PER_JOB_MAX {
            of_job.retain(|group| group.dir.exists());
        }
        let layout = |is_unified| if is_unified { Layout::V2 } else { Layout::V1 };
        let groups = groups.into_iter().map(|group| Group { dir: group.dir.into(), layout: layout(group.is_unified) });
        let count = of_job.len();
        of_job.extend(groups.take(GROUPS_PER_JOB_MAX.saturating_sub(count)));
        self.has_changed.fetch_or(of_job.len() > count, Ordering::Relaxed);
    }

    /// Each of these jobs has this part of the device (0 to 1), the others as much as they like. Jobs that are within one proof
    /// have their parts together.
    pub fn allow<'j>(&self, parts: impl IntoIterator<Item = (&'j JobInfo, f64)>) {
        let mut of_proven: BTreeMap<Proven, f64> = BTreeMap::new();
        for (job, part) in parts {
            if let Some(within) = job.within.as_ref().filter(|within| !within.is_empty()) {
                *of_proven.entry((job.user.clone(), within.clone())).or_default() += part;
            }
        }
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&of_proven);
        self.set(&of_proven);
    }

    /// Limits groups that have come since the parts were told.
    pub fn refresh(&self) {
        if self.has_changed.swap(false, Ordering::Relaxed) {
            // Who comes in must not wait for the kernel, so the lock is not kept.
            let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.set(&parts);
        }
    }

    fn set(&self, parts: &BTreeMap<Proven, f64>) {
        let wanted = self.wanted(parts);
        let set = self.limits.lock().unwrap_or_else(PoisonError::into_inner).set(&wanted);
        let mut complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *complaint, set.err().map(|error| error.to_string()));
        if let Some(error) = complaint.as_ref().filter(|error| before.as_ref() != Some(error)) {
            tracing::error!(%error, "a control group is not limited as it should be");
        }
    }

    /// What the groups that are there may have of the device.
    fn wanted(&self, parts: &BTreeMap<Proven, f64>) -> BTreeMap<Group, Limit> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_groups: BTreeMap<&Group, f64> = BTreeMap::new();
        for (proven, part) in parts {
            let groups = known.groups.get(proven).into_iter().flatten();
            let living: Vec<&Group> = groups.filter(|group| group.dir.exists()).collect();
            // Who has the whole device has it in each of his groups: there is nobody to limit him for.
            let each = if *part < 1.0 { *part / living.len() as f64 } else { 1.0 };
            living.into_iter().for_each(|group| *of_groups.entry(group).or_default() += each);
        }
        let limited = of_groups.into_iter().filter(|(_, part)| *part < 1.0);
        let limited = limited.map(|(group, part)| {
            let scale = |rate: Option<Rate>| Rate::new(((rate?.bytes_per_s() as f64 * part) as u64).max(1));
            (group.clone(), Limit { read: scale(self.read), write: scale(self.write) })
        });
        limited.collect()
    }
}

/// The device that is called so: a file in `/dev`, or its numbers.
fn device_of(named: &Path) -> Option<Device> {
    if let Some(device) = named.to_str().and_then(|text| text.parse().ok()) {
        return Some(device);
    }
    let found = std::fs::metadata(named).ok()?;
    let is_block = rustix::fs::FileType::from_raw_mode(found.mode()) == rustix::fs::FileType::BlockDevice;
    is_block.then(|| numbers(found.rdev())).map(whole)
}

/// The device that a directory lies on; a file system in memory is on none.
fn device_below(dir: &Path) -> Option<Device> {
    let device = numbers(std::fs::metadata(dir).ok()?.dev());
    (device.major != 0).then(|| whole(device))
}

/// Whether targets are on this device all, or none: a volume of a device has numbers of its own, and whoever has named the device knows
/// what is below.
fn one_device<'a>(
    device: Device,
    targets: impl IntoIterator<Item = (&'a Path, Option<Device>)>,
) -> Result<(), OutsideError> {
    let (on, off): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(_, found)| *found == Some(device));
    if on.is_empty() || off.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = off.iter().map(|(dir, _)| dir.display().to_string()).collect();
    Err(OutsideError::SeveralDevices { device, others: others.join(", ") })
}

fn numbers(device: u64) -> Device {
    Device { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
}

/// The disk that a partition is of: the kernel limits whole devices only.
fn whole(device: Device) -> Device {
    let dir = format!("/sys/dev/block/{device}");
    let is_partition = Path::new(&dir).join("partition").exists();
    let above = || std::fs::read_to_string(format!("{dir}/../dev")).ok()?.trim().parse().ok();
    if is_partition { above().unwrap_or(device) } else { device }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "blkio.throttle.write_bps_device";

    /// A directory with what looks like control groups, for a device that writes a million bytes a second.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> (Self, Outside) {
            let home = Self(tempfile::tempdir().unwrap());
            let record = Some(home.0.path().join("record"));
            let config = CgroupConfig { device: Some("8:0".into()), read: None, write: Rate::new(1_000_000), record };
            let outside = Outside::new(&config, home.0.path(), &[home.0.path().to_owned()]).unwrap();
            (home, outside)
        }

        fn group(&self, name: &str) -> IoGroup {
            let dir = self.0.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join(FILE), "").unwrap();
            IoGroup { dir: dir.display().to_string(), is_unified: false }
        }

        fn text(&self, name: &str) -> String {
            std::fs::read_to_string(self.0.path().join(name).join(FILE)).unwrap()
        }
    }

    fn of(user: &str, name: &str, within: Option<&str>) -> JobInfo {
        JobInfo { within: within.map(Arc::from), ..JobInfo::new(name, user, "astro") }
    }

    #[test]
    fn a_job_has_its_part_of_the_device_in_all_its_groups_together() {
        let (home, outside) = Home::new();
        let [user, job, other]: [Arc<str>; 3] = ["ada", "71", "72"].map(Arc::from);
        outside.enter(&user, &job, vec![home.group("a"), home.group("b")]);
        outside.enter(&user, &other, vec![home.group("c")]);
        let of = |name, within| of("ada", name, within);
        let (whole, part, claimed) = (of("71", Some("71")), of("step", Some("71")), of("72", Some("")));
        outside.allow([(&whole, 0.25), (&part, 0.25), (&claimed, 0.5)]);
        let texts = ["a", "b", "c"].map(|name| home.text(name));
        assert_eq!(texts, ["8:0 250000\n", "8:0 250000\n", ""], "nothing is proven of the third");
        // A group that comes later has its part as well.
        outside.enter(&user, &job, vec![home.group("d")]);
        outside.refresh();
        assert_eq!(home.text("d"), "8:0 166666\n");
        outside.allow([(&of("72", Some("72")), 0.125)]);
        assert_eq!(
            ["a", "b", "c"].map(|name| home.text(name).lines().next().unwrap_or("").to_owned()),
            ["8:0 0", "8:0 0", "8:0 125000"]
        );
        outside.allow([]);
        assert!(home.text("c").starts_with("8:0 0\n"));
    }

    #[test]
    fn a_group_that_jobs_share_has_their_parts_together() {
        let (home, outside) = Home::new();
        let shared = home.group("shared");
        let job: Arc<str> = "71".into();
        for user in ["ada", "bob"] {
            outside.enter(&user.into(), &job, vec![shared.clone()]);
        }
        let (ada, bob) = (of("ada", "71", Some("71")), of("bob", "71", Some("71")));
        outside.allow([(&ada, 0.5), (&bob, 0.125)]);
        assert_eq!(home.text("shared"), "8:0 625000\n");
        outside.allow([(&ada, 0.5), (&bob, 0.5)]);
        assert!(home.text("shared").starts_with("8:0 0\n"), "together they have all");
    }

    #[test]
    fn jobs_without_a_part_make_room_for_others() {
        let (home, outside) = Home::new();
        let user: Arc<str> = "ada".into();
        let enter = |at, job: &str, groups| outside.enter_at(Nanos::from_secs(at), &user, &job.into(), groups);
        let gone = || vec![IoGroup { dir: "/nowhere".to_owned(), is_unified: false }];
        enter(1, "kept", vec![home.group("kept")]);
        outside.allow([(&of("ada", "kept", Some("kept")), 0.5)]);
        (1..JOBS_MAX).for_each(|number| enter(1, &number.to_string(), gone()));
        let count = || outside.known.lock().unwrap().groups.len();
        enter(9, "new", vec![home.group("new")]);
        assert_eq!(count(), 2, "only the job that has a part is still known");
        (2..JOBS_MAX).for_each(|number| enter(9, &number.to_string(), gone()));
        enter(9, "soon", gone());
        assert_eq!(count(), JOBS_MAX, "it has just been tidied");
        enter(10, "later", gone());
        assert_eq!(count(), 2);
        assert_eq!(home.text("kept"), "8:0 500000\n");
    }

    #[test]
    fn what_the_kernel_refuses_is_told_once() {
        let (home, outside) = Home::new();
        let group = home.group("a");
        let file = home.0.path().join("a").join(FILE);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        outside.enter(&"ada".into(), &"71".into(), vec![group]);
        let job = of("ada", "71", Some("71"));
        let complaint = || outside.complaint.lock().unwrap().clone();
        outside.allow([(&job, 0.5)]);
        let first = complaint();
        assert!(first.as_ref().is_some_and(|error| error.contains(FILE)), "{first:?}");
        outside.allow([(&job, 0.25)]);
        assert_eq!(complaint(), first, "the same is not told again");
        outside.allow([]);
        assert_eq!(complaint(), None);
    }

    #[test]
    fn a_configuration_that_limits_nothing_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let refused = |config: CgroupConfig| {
            Outside::new(&config, home.path(), &[home.path().to_owned()]).unwrap_err().to_string()
        };
        assert!(refused(CgroupConfig::default()).starts_with("[cgroup] says neither `read` nor `write`"));
        let config = CgroupConfig { write: Rate::new(1), device: Some("/dev/null".into()), ..CgroupConfig::default() };
        assert!(refused(config).starts_with("[cgroup] device \"/dev/null\" is no block device"));
    }

    #[test]
    fn each_directory_has_a_record_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join("a/b-c")).unwrap();
        std::os::unix::fs::symlink(at.join("a"), at.join("link")).unwrap();
        let record = |dir: &str| record_of(None, &at.join(dir));
        assert_eq!(record("a/b-c"), record("a/../a/./b-c/"));
        assert_eq!(record("a/b-c"), record("link/b-c"));
        assert_ne!(record("a/b-c"), record("a-b/c"));
        assert_ne!(record("a/b%2dc"), record("a/b-c"));
        assert_eq!(record_of(None, Path::new("/no-such/dir")), Path::new(RECORDS).join("no%2dsuch-dir.limits"));
    }

    #[test]
    fn targets_on_several_devices_are_refused_by_name() {
        let [disk, other] = [0, 16].map(|minor| Device { major: 8, minor });
        let check =
            |found: [Option<Device>; 3]| one_device(disk, ["/a", "/b", "/c"].map(Path::new).into_iter().zip(found));
        assert!(check([Some(disk); 3]).is_ok());
        assert!(check([Some(other), Some(other), None]).is_ok(), "volumes of the device that was named");
        let error = check([Some(disk), Some(other), None]).unwrap_err().to_string();
        assert!(error.contains("8:0") && error.contains("these are not: /b, /c"), "{error}");
    }
}
