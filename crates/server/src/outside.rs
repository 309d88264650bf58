//! Limits for programs that write to a local device outside of Isonomia, by their control groups.
//!
//! What a job is allocated of the targets is also what it may have of the device that they lie on, whichever way it takes: while the
//! controller's allocation holds, the control groups of each job that is proven by one have a limit of that part of what the device
//! does (`[cgroup]` in the configuration). Jobs that no control group proves, and jobs that were allocated nothing, have none. With the
//! allocation the limits go: when it ends without being renewed, when the policy changes, and when the server stops. What a server that
//! was killed left is removed when it starts again ([`isonomia_cgroup`]).
//!
//! A job that is in several groups (of cgroup v1, where a limit holds for one group alone) has an equal part of its limit in each.

use crate::config::CgroupConfig;
use isonomia_cgroup::{Device, Group, Layout, Limit, Limits, LimitsError};
use isonomia_transport::control_group::IoGroup;
use isonomia_units::{JobInfo, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where records lie of the limits that servers of this host have set.
pub const RECORDS: &str = "/run/isonomia-limits";
/// Jobs whose groups are remembered; when there are more, those that have no limit are forgotten.
const JOBS_MAX: usize = 4_096;
/// Groups of one job at most.
const GROUPS_PER_JOB_MAX: usize = 256;

/// Who is limited: all that is proven as one job of one user.
type Proven = (Arc<str>, Arc<str>);

/// See the module.
#[derive(Debug)]
pub struct Outside {
    read: Option<Rate>,
    write: Option<Rate>,
    groups: Mutex<BTreeMap<Proven, BTreeSet<Group>>>,
    /// Groups have come since limits were set.
    has_news: AtomicBool,
    /// The part of the device that each has.
    parts: Mutex<BTreeMap<Proven, f64>>,
    limits: Mutex<Limits>,
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
    let named = dir.to_string_lossy().trim_matches('/').replace('/', "-");
    let default = || Path::new(RECORDS).join(format!("{named}.limits"));
    config.and_then(|config| config.record.clone()).unwrap_or_else(default)
}

impl Outside {
    /// For a server with this directory, whose targets lie in `targets`. Removes the limits that an earlier process left.
    ///
    /// # Errors
    /// Nothing can be limited by this configuration.
    pub fn new(config: &CgroupConfig, dir: &Path, targets: &Path) -> Result<Self, OutsideError> {
        if config.read.is_none() && config.write.is_none() {
            return Err(OutsideError::NoRate);
        }
        let device = match &config.device {
            Some(named) => device_of(named).ok_or_else(|| OutsideError::NoDevice(named.clone()))?,
            None => device_below(targets).ok_or_else(|| OutsideError::NoBlockDevice(targets.to_owned()))?,
        };
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
            groups: Mutex::default(),
            has_news: AtomicBool::new(false),
            parts: Mutex::default(),
            limits: Mutex::new(limits),
        })
    }

    /// A process of this job, which its control group proves, is in these groups.
    pub fn enter(&self, user: &Arc<str>, job: &Arc<str>, groups: Vec<IoGroup>) {
        let mut known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= JOBS_MAX {
            known.retain(|_, groups| groups.iter().any(|group| group.dir.exists()));
        }
        let proven = (user.clone(), job.clone());
        if known.len() >= JOBS_MAX && !known.contains_key(&proven) {
            return;
        }
        let of_job = known.entry(proven).or_default();
        if of_job.len() >= GROUPS_PER_JOB_MAX {
            of_job.retain(|group| group.dir.exists());
        }
        let layout = |is_unified| if is_unified { Layout::V2 } else { Layout::V1 };
        let groups = groups.into_iter().map(|group| Group { dir: group.dir.into(), layout: layout(group.is_unified) });
        let count = of_job.len();
        of_job.extend(groups.take(GROUPS_PER_JOB_MAX.saturating_sub(count)));
        self.has_news.fetch_or(of_job.len() > count, Ordering::Relaxed);
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
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        *parts = of_proven;
        self.set(&parts);
    }

    /// Limits groups that have come since the parts were told.
    pub fn refresh(&self) {
        if self.has_news.swap(false, Ordering::Relaxed) {
            self.set(&self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn set(&self, parts: &BTreeMap<Proven, f64>) {
        let known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: BTreeMap<Group, Limit> = BTreeMap::new();
        for (proven, part) in parts {
            let Some(groups) = known.get(proven).filter(|_| *part < 1.0) else { continue };
            let living: Vec<&Group> = groups.iter().filter(|group| group.dir.exists()).collect();
            let scale = |rate: Option<Rate>| {
                let bytes_per_s = rate?.bytes_per_s() as f64 * *part / living.len() as f64;
                Rate::new((bytes_per_s as u64).max(1))
            };
            let limit = Limit { read: scale(self.read), write: scale(self.write) };
            wanted.extend(living.into_iter().map(|group| (group.clone(), limit)));
        }
        drop(known);
        if let Err(error) = self.limits.lock().unwrap_or_else(PoisonError::into_inner).set(&wanted) {
            tracing::error!(%error, "a control group is not limited as it should be");
        }
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

    #[test]
    fn a_job_has_its_part_of_the_device_in_all_its_groups_together() {
        let home = tempfile::tempdir().unwrap();
        let record = Some(home.path().join("record"));
        let config = CgroupConfig { device: Some("8:0".into()), read: None, write: Rate::new(1_000_000), record };
        let outside = Outside::new(&config, home.path(), home.path()).unwrap();
        let file = "blkio.throttle.write_bps_device";
        let group = |name: &str| {
            let dir = home.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join(file), "").unwrap();
            IoGroup { dir: dir.display().to_string(), is_unified: false }
        };
        let text = |name: &str| std::fs::read_to_string(home.path().join(name).join(file)).unwrap();
        let [user, job, other]: [Arc<str>; 3] = ["ada", "71", "72"].map(Arc::from);
        outside.enter(&user, &job, vec![group("a"), group("b")]);
        outside.enter(&user, &other, vec![group("c")]);
        let of = |name: &str, within: Option<&str>| JobInfo {
            within: within.map(Arc::from),
            ..JobInfo::new(name, "ada", "astro")
        };
        let (whole, part, claimed) = (of("71", Some("71")), of("step", Some("71")), of("72", Some("")));
        outside.allow([(&whole, 0.25), (&part, 0.25), (&claimed, 0.5)]);
        assert_eq!(["a", "b", "c"].map(text), ["8:0 250000\n", "8:0 250000\n", ""], "nothing is proven of the third");
        // A group that comes later has its part as well.
        outside.enter(&user, &job, vec![group("d")]);
        outside.refresh();
        assert_eq!(text("d"), "8:0 166666\n");
        outside.allow([(&of("72", Some("72")), 0.125)]);
        assert_eq!(
            ["a", "b", "c"].map(|name| text(name).lines().next().unwrap_or("").to_owned()),
            ["8:0 0", "8:0 0", "8:0 125000"]
        );
        outside.allow([]);
        assert!(text("c").starts_with("8:0 0\n"));
    }

    #[test]
    fn a_configuration_that_limits_nothing_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let refused = |config: CgroupConfig| Outside::new(&config, home.path(), home.path()).unwrap_err().to_string();
        assert!(refused(CgroupConfig::default()).starts_with("[cgroup] says neither `read` nor `write`"));
        let config = CgroupConfig { write: Rate::new(1), device: Some("/dev/null".into()), ..CgroupConfig::default() };
        assert!(refused(config).starts_with("[cgroup] device \"/dev/null\" is no block device"));
    }
}
