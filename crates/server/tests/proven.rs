//! What the kernel says of a process's job counts for more than what the process says.
//!
//! Needs root and a hierarchy of control groups that it may write to; elsewhere it is skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "server/running/mod.rs"]
mod running;

use isonomia_client::{Claims, Client, ClientConfig, SchedulerJob};
use isonomia_proto::control::JobStatus;
use isonomia_testbed::{is_root_to, skip};
use isonomia_units::Nanos;
use running::{Running, start};
use std::path::{Path, PathBuf};

/// A control group as Slurm makes it, with this process in it; gone with this value.
struct Group {
    hierarchy: PathBuf,
    slurm: PathBuf,
}

impl Group {
    fn make() -> Option<Self> {
        if !is_root_to("make control groups") {
            return None;
        }
        // The freezer of cgroup v1 leaves its members alone.
        let hierarchies = ["freezer", "unified", ""].map(|name| Path::new("/sys/fs/cgroup").join(name));
        let found = hierarchies
            .into_iter()
            .find(|dir| dir.join("cgroup.procs").exists() && Self::make_in(dir).is_some_and(|group| group.enter()));
        if found.is_none() {
            skip("no hierarchy of control groups can be written to");
        }
        let group = Self::make_in(&found?)?;
        group.enter().then_some(group)
    }

    fn make_in(hierarchy: &Path) -> Option<Self> {
        let slurm = hierarchy.join(format!("slurm_test{}", std::process::id()));
        std::fs::create_dir_all(slurm.join("uid_0/job_71/step_0")).ok()?;
        Some(Self { hierarchy: hierarchy.to_owned(), slurm })
    }

    fn enter(&self) -> bool {
        let pid = std::process::id().to_string();
        std::fs::write(self.job().join("step_0/cgroup.procs"), pid).is_ok()
    }

    fn job(&self) -> PathBuf {
        self.slurm.join("uid_0/job_71")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.hierarchy.join("cgroup.procs"), std::process::id().to_string());
        for part in ["uid_0/job_71/step_0", "uid_0/job_71", "uid_0", ""] {
            let _ = std::fs::remove_dir(self.slurm.join(part));
        }
    }
}

/// The job that a client with these claims is counted as.
fn job_of(running: &Running, claims: Claims) -> JobStatus {
    let known = |job: &JobStatus| (job.job.clone(), job.proof.clone());
    let before: Vec<_> = running.server().status().jobs.iter().map(known).collect();
    let address = running.addresses[0].clone();
    let client =
        Client::new(ClientConfig { addresses: vec![address], timeout: Nanos::from_secs(20), claims, key_file: None });
    client.stat_fs().unwrap();
    let jobs = running.server().status().jobs;
    jobs.into_iter().find(|job| !before.contains(&known(job))).unwrap()
}

#[test]
fn a_job_is_believed_if_root_put_its_processes_into_its_control_group() {
    let Some(group) = Group::make() else { return };
    let running = start(|_| {});
    let lie = SchedulerJob { job: "72".into(), nodes: Some(1_000), ..SchedulerJob::default() };
    let proven = job_of(&running, Claims { scheduler: Some(lie.clone()), ..Claims::default() });
    assert_eq!((proven.job.as_str(), proven.proof.as_str(), proven.within.as_deref()), ("71", "cgroup", Some("71")));
    let part = job_of(&running, Claims { job: Some("part".into()), ..Claims::default() });
    assert_eq!((part.job.as_str(), part.proof.as_str(), part.within.as_deref()), ("part", "claim", Some("71")));
    // A control group that belongs to a user proves nothing: he can move any of his processes into it.
    std::os::unix::fs::chown(group.job(), Some(1_234), None).unwrap();
    let claimed = job_of(&running, Claims { scheduler: Some(lie), ..Claims::default() });
    assert_eq!((claimed.job.as_str(), claimed.proof.as_str(), claimed.within), ("72", "claim", None));
}
