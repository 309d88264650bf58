//! The job that a process belongs to by its control group: what the kernel and the scheduler say, not the process.
//!
//! A scheduler puts the processes of a job into a control group of the job's own, and what they start stays in there.
//! Only who may write to a group can move a process into it. So the name of a group that root made, in a hierarchy where
//! everything above it is root's as well, is proof. A group below one that was delegated to a user is proof of nothing
//! but the part of its path that root made.
//!
//! | made by | group |
//! |---|---|
//! | Slurm, cgroup v2 | `/system.slice/[NODE_]slurmstepd.scope/job_N` |
//! | Slurm, cgroup v1 | `/slurm[_NODE]/uid_U/job_N` |
//! | PBS | `/pbs_jobs.service/jobs/ID`, `/pbs_jobs.service/jobid/ID` |
//! | systemd | a service or scope that is not below `user.slice` |
//!
//! (Slurm's cgroup.conf(5); the cgroups hook of OpenPBS; systemd.slice(5).) A user opens as many login sessions as he
//! likes, so a session is no job, and instances of one systemd template are one. In a container the paths that one sees
//! begin elsewhere, and nothing is proven.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// A process in `/proc`. It stays the same process: if that ends, reading fails, also if its number is given again.
#[derive(Debug)]
pub struct Process {
    dir: OwnedFd,
}

/// What `/proc` says of control groups is read up to here.
const GROUPS_LEN_MAX: usize = 64 << 10;
/// Where control groups are mounted: systemd and everybody after it.
const MOUNT: &str = "/sys/fs/cgroup";
/// Names of jobs are no longer.
const NAME_LEN_MAX: usize = isonomia_units::NAME_LEN_MAX;

/// A control group in which the kernel can limit what is read from block devices, and written to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoGroup {
    /// Its directory.
    pub dir: String,
    /// It is one of cgroup v2, where a limit applies to all groups below as well. Under v1 it applies to the processes of the group itself.
    pub is_unified: bool,
}

/// A job that a path names, and the part of the path that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found<'a> {
    job: &'a str,
    group: &'a str,
    /// A scheduler's job is closer to the truth than the service that it runs in.
    is_scheduled: bool,
}

impl Process {
    /// The process of this number now.
    pub fn open(pid: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { dir: rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())? })
    }

    /// The user that it runs as; root if it is one that its user may not look into.
    pub fn owner(&self) -> Result<u32, Errno> {
        Ok(rustix::fs::fstat(&self.dir)?.st_uid)
    }

    /// The job of user `uid` that it is in, if its control group proves one.
    pub fn job(&self, uid: u32) -> Option<String> {
        let groups = self.groups().ok()?;
        let lines = || groups.lines().filter_map(Line::read);
        let find = |is_scheduled: bool| {
            lines().find_map(|line| {
                let found = job_of_path(line.path, uid).filter(|found| found.is_scheduled == is_scheduled)?;
                line.is_roots(found.group).then(|| found.job.to_owned())
            })
        };
        find(true).or_else(|| find(false))
    }

    /// Where the kernel limits what this process of user `uid` does with block devices, if it is in this scheduler's job by its
    /// control group. Nothing where the group was not made for the job: a service's is shared by all whom the service works for. And
    /// nothing where the process that asks is in the group itself.
    pub fn io_groups(&self, uid: u32, job: &str) -> Vec<IoGroup> {
        let own = Self::open(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs());
        let (Ok(groups), Ok(own)) = (self.groups(), own.and_then(|own| own.groups())) else { return Vec::new() };
        let lines = groups.lines().filter_map(Line::read);
        lines.filter_map(|line| line.io_group(scheduled_job(line.path, uid, job)?, &own)).collect()
    }

    fn groups(&self) -> Result<String, Errno> {
        let file = rustix::fs::openat(&self.dir, "cgroup", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = vec![0; GROUPS_LEN_MAX];
        let mut len = 0;
        while len < bytes.len() {
            match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[len..]))? {
                0 => break,
                n => len += n,
            }
        }
        bytes.truncate(len);
        String::from_utf8(bytes).map_err(|_| Errno::ILSEQ)
    }
}

/// One hierarchy: `NUMBER:CONTROLLERS:PATH`, of cgroup v2 without controllers.
struct Line<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':').skip(1);
        Some(Self { controllers: parts.next()?, path: parts.next()? })
    }

    /// Whether a process with these `lines` of its own is in this group of the hierarchy, or in one below.
    fn contains(&self, group: &str, lines: &str) -> bool {
        let mut own = lines.lines().filter_map(Line::read).filter(|own| own.controllers == self.controllers);
        own.any(|own| Path::new(own.path).starts_with(group))
    }

    /// The group of the job that was `found` in this line, if block devices are limited in its hierarchy: under v1 the one that the process is
    /// in, under v2 the job's. None that contains a process with the lines `own`.
    fn io_group(&self, found: Found<'_>, own: &str) -> Option<IoGroup> {
        let is_v1 = self.controllers.split(',').any(|controller| controller == "blkio");
        if !(is_v1 || self.controllers.is_empty()) || !self.is_roots(found.group) {
            return None;
        }
        let group = if is_v1 { self.path } else { found.group };
        if self.contains(group, own) {
            return None;
        }
        let file = if is_v1 { "blkio.throttle.write_bps_device" } else { "io.max" };
        let dirs = self.mounts().into_iter().map(|mount| format!("{mount}{group}"));
        let dir = dirs.into_iter().find(|dir| rustix::fs::lstat(format!("{dir}/{file}")).is_ok())?;
        // The kernel ends a line of a group that was removed with a mark, and others could make paths that look like it.
        let is_plain = !dir.contains(['\n', '\0']) && !dir.split('/').any(|part| part == "..");
        is_plain.then_some(IoGroup { dir, is_unified: !is_v1 })
    }

    /// Where this hierarchy may be mounted.
    fn mounts(&self) -> Vec<String> {
        let controllers = self.controllers.strip_prefix("name=").unwrap_or(self.controllers);
        match controllers {
            "" => vec![MOUNT.to_owned(), format!("{MOUNT}/unified")],
            _ => vec![format!("{MOUNT}/{controllers}")],
        }
    }

    /// Whether `group` and everything above it in this hierarchy is root's, and nobody else's to write.
    fn is_roots(&self, group: &str) -> bool {
        let is_roots =
            |path: &str| rustix::fs::lstat(path).is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & 0o022 == 0);
        let is_dir = |path: &str| {
            rustix::fs::lstat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        self.mounts().iter().any(|mount| {
            let ends = group.match_indices('/').skip(1).map(|(at, _)| at).chain([group.len()]);
            let mut all = ends.map(|end| format!("{mount}{}", &group[..end]));
            // Whoever may write to this file moves processes in.
            let members = format!("{mount}{group}/cgroup.procs");
            is_roots(mount) && all.all(|path| is_dir(&path) && is_roots(&path)) && is_roots(&members)
        })
    }
}

/// The job of user `uid` that a path of control groups names.
fn job_of_path(path: &str, uid: u32) -> Option<Found<'_>> {
    let scheduled = slurm_job(path, uid).or_else(|| pbs_job(path));
    let found = match scheduled {
        Some((job, group)) => Found { job, group, is_scheduled: true },
        None => systemd_unit(path).map(|(job, group)| Found { job, group, is_scheduled: false })?,
    };
    let is_name = !found.job.is_empty() && found.job.len() <= NAME_LEN_MAX && !found.job.chars().any(char::is_control);
    is_name.then_some(found)
}

/// This job of user `uid`, if the path names it and a scheduler made the group for it.
fn scheduled_job<'a>(path: &'a str, uid: u32, job: &str) -> Option<Found<'a>> {
    job_of_path(path, uid).filter(|found| found.is_scheduled && found.job == job)
}

/// The first `count` parts of an absolute path, and the path up to the last of them.
fn parts<const COUNT: usize>(path: &str) -> Option<([&str; COUNT], &str)> {
    let mut parts = [""; COUNT];
    let mut end = 0;
    for part in &mut parts {
        let rest = path[end..].strip_prefix('/')?;
        *part = rest.split('/').next().filter(|part| !part.is_empty() && *part != ".." && *part != ".")?;
        end += 1 + part.len();
    }
    Some((parts, &path[..end]))
}

fn number_after<'a>(part: &'a str, prefix: &str) -> Option<&'a str> {
    part.strip_prefix(prefix).filter(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn slurm_job(path: &str, uid: u32) -> Option<(&str, &str)> {
    let ([first, second, third], group) = parts(path)?;
    if first == "system.slice" && (second == "slurmstepd.scope" || second.ends_with("_slurmstepd.scope")) {
        return Some((number_after(third, "job_")?, group));
    }
    let is_slurm = first == "slurm" || first.starts_with("slurm_");
    let is_users = number_after(second, "uid_").and_then(|number| number.parse().ok()) == Some(uid);
    (is_slurm && is_users).then_some((number_after(third, "job_")?, group))
}

fn pbs_job(path: &str) -> Option<(&str, &str)> {
    let ([first, second, job], group) = parts(path)?;
    (first == "pbs_jobs.service" && matches!(second, "jobs" | "jobid")).then_some((job, group))
}

/// The outermost service or scope; of a template without the instance, of which a user may be able to make many.
fn systemd_unit(path: &str) -> Option<(&str, &str)> {
    let mut end = 0;
    for part in path.strip_prefix('/')?.split('/') {
        end += 1 + part.len();
        if part.ends_with(".slice") {
            if part == "user.slice" {
                return None;
            }
            continue;
        }
        let is_unit = (part.ends_with(".service") || part.ends_with(".scope")) && part != "init.scope";
        return is_unit.then(|| (part.split('@').next().unwrap_or(part), &path[..end]));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_where_their_makers_put_them() {
        for (path, job) in [
            ("/system.slice/slurmstepd.scope/job_123|/step_0/user/task_0", "123"),
            ("/system.slice/n1_slurmstepd.scope/job_5|", "5"),
            ("/slurm/uid_7/job_45|/step_batch", "45"),
            ("/slurm_node1/uid_7/job_6|/step_0", "6"),
            ("/pbs_jobs.service/jobs/12[3].pbs.example|", "12[3].pbs.example"),
            ("/pbs_jobs.service/jobid/12345.pbs|/x", "12345.pbs"),
            ("/system.slice/backup.service|", "backup.service"),
            ("/system.slice/system-db.slice/db@7.service|/inner", "db"),
            ("/machine.slice/vm.scope|", "vm.scope"),
        ] {
            let (group, rest) = path.split_once('|').unwrap();
            let path = format!("{group}{rest}");
            let found = job_of_path(&path, 7).unwrap_or_else(|| panic!("{path}"));
            assert_eq!((found.job, found.group), (job, group), "{path}");
        }
    }

    #[test]
    fn what_users_make_names_no_job() {
        for path in [
            "/",
            "",
            "/user.slice/user-7.slice/session-3.scope",
            "/user.slice/user-7.slice/user@7.service/app.slice/x.service",
            "/user.slice/user-7.slice/user@7.service/slurm/uid_7/job_1",
            "/user.slice/slurmstepd.scope/job_1",
            "/slurm/uid_8/job_45",
            "/slurm/uid_7/job_",
            "/slurm/uid_7/job_4x",
            "/slurm/job_1",
            "/../slurm/uid_7/job_1",
            "/slurm/../uid_7/job_1",
            "/docker/0a1b",
            "/init.scope",
            "/system.slice/slurmstepd.scope",
        ] {
            let found = job_of_path(path, 7);
            assert!(found.is_none_or(|found| found.job == "slurmstepd.scope"), "{path}: {found:?}");
        }
    }

    #[test]
    fn only_groups_of_scheduled_jobs_are_limited() {
        let is_limited = |path: &str, job: &str| scheduled_job(path, 7, job).is_some();
        assert!(is_limited("/system.slice/slurmstepd.scope/job_12/step_0", "12"));
        assert!(is_limited("/slurm/uid_7/job_45", "45"));
        assert!(!is_limited("/slurm/uid_7/job_45", "46"));
        for (path, unit) in [
            ("/system.slice/backup.service", "backup.service"),
            ("/machine.slice/vm.scope", "vm.scope"),
            ("/system.slice/slurmstepd.scope", "slurmstepd.scope"),
        ] {
            assert!(job_of_path(path, 7).is_some_and(|found| found.job == unit), "{path}");
            assert!(!is_limited(path, unit), "others share {path}");
        }
    }

    #[test]
    fn a_group_is_known_to_contain_ones_own_process() {
        let line = Line::read("4:blkio:/slurm/uid_7/job_1/step_0").unwrap();
        for (own, is_contained) in [
            ("4:blkio:/slurm/uid_7/job_1", true),
            ("4:blkio:/slurm/uid_7/job_1/step_2/task_0", true),
            ("7:memory:/\n4:blkio:/slurm/uid_7/job_1/step_2", true),
            ("4:blkio:/slurm/uid_7/job_12", false),
            ("4:blkio:/slurm/uid_7", false),
            ("4:blkio:/", false),
            ("4:memory:/slurm/uid_7/job_1", false),
            ("", false),
        ] {
            assert_eq!(line.contains("/slurm/uid_7/job_1", own), is_contained, "{own}");
        }
    }

    #[test]
    fn a_group_that_is_not_there_is_nobodys() {
        let line = Line::read("4:freezer:/slurm/uid_7/job_1").unwrap();
        assert_eq!((line.controllers, line.path), ("freezer", "/slurm/uid_7/job_1"));
        assert!(!line.is_roots("/no-such-group-of-anybody"));
        assert!(Line::read("4:freezer").is_none());
    }

    #[test]
    fn a_process_that_is_gone_has_no_groups() {
        assert!(Process::open((1 << 22) + 1).is_err());
        let own = Process::open(rustix::process::getpid().as_raw_nonzero().get() as u32).unwrap();
        assert!(own.owner().is_ok() && own.groups().is_ok());
    }
}
