//! Programs that write to a device outside of Isonomia have there what their jobs are allocated, for as long as they are.
//!
//! Needs root, and the blkio controller of cgroup v1 or the io controller of v2; elsewhere it is skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use isonomia_client::{Claims, Ino};
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_server::CgroupConfig;
use isonomia_testbed::{is_root_to, skip};
use isonomia_units::Rate;
use running::cluster::{Cluster, in_memory};
use running::{ask, create};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const HIERARCHY: &str = "/sys/fs/cgroup/blkio";
const FILE: &str = "blkio.throttle.write_bps_device";
const LONGEST: Duration = Duration::from_secs(60);
/// Of the device.
const WRITES: u64 = 64 << 20;

/// Control groups of two jobs as Slurm makes them; gone with this value.
struct Groups(PathBuf);

impl Groups {
    fn make() -> Option<Self> {
        let groups = Self(Path::new(HIERARCHY).join(format!("slurm_outside{}", std::process::id())));
        let made = ["71", "72"].iter().all(|job| fs::create_dir_all(groups.job(job)).is_ok());
        (made && groups.job("71").join(FILE).exists()).then_some(groups)
    }

    fn job(&self, job: &str) -> PathBuf {
        self.0.join(format!("uid_0/job_{job}"))
    }

    /// This process is one of the job's.
    fn enter(&self, job: &str) {
        fs::write(self.job(job).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }

    fn becomes(&self, job: &str, wanted: &str) {
        let file = self.job(job).join(FILE);
        let deadline = Instant::now() + LONGEST;
        while fs::read_to_string(&file).unwrap() != wanted {
            assert!(Instant::now() < deadline, "{:?}, and not {wanted:?}", fs::read_to_string(&file));
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::write(Path::new(HIERARCHY).join("cgroup.procs"), std::process::id().to_string());
        for part in ["uid_0/job_71", "uid_0/job_72", "uid_0", ""] {
            let _ = fs::remove_dir(self.0.join(part));
        }
    }
}

fn disk() -> Option<String> {
    let disks = fs::read_dir("/sys/block").ok()?.filter_map(Result::ok).map(|disk| disk.path());
    let disk = disks.into_iter().find(|disk| disk.join("device").exists())?;
    Some(fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned())
}

#[test]
fn control_groups_have_what_their_jobs_are_allocated() {
    if !is_root_to("make control groups") {
        return;
    }
    let Some(disk) = disk() else { return skip("there is no disk") };
    let Some(groups) = Groups::make() else { return skip("the blkio controller of cgroup v1 is not there") };
    let records = tempfile::tempdir().unwrap();
    let record = records.path().join("record");
    let set_up = CgroupConfig {
        device: Some(disk.clone().into()),
        read: None,
        write: Rate::new(WRITES),
        record: Some(record.clone()),
    };
    let mut cluster =
        Cluster::start_as(&in_memory(), 1, "decide = \"100ms\"", "[{ bandwidth = \"20MiB/s\" }]", |config| {
            config.policy = "bsip".parse().unwrap();
            config.cgroup = Some(set_up.clone());
        });
    let maker = cluster.client(0, false);
    maker.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let begin = |job: &str| {
        groups.enter(job);
        let client = cluster.client_as(vec![cluster.configs[0].listen[0].clone()], Claims::default());
        let (path, is_over, (begun, has_begun)) = (format!("v/{job}"), is_over.clone(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            // From the first request on it is this job's, whichever group the process goes to.
            let file = client.open(Ino::ROOT, path.as_bytes(), &create()).unwrap();
            begun.send(()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let _ = client.write_at(&file, 0, &[7; 64 << 10]);
            }
        });
        has_begun.recv().unwrap();
        thread
    };
    let threads = ["71", "72"].map(begin);
    let half = format!("{disk} {}\n", WRITES / 2);
    groups.becomes("71", &half);
    groups.becomes("72", &half);
    // A policy that targets follow by themselves says nothing of the device.
    let here = cluster.configs[0].listen[0].clone();
    let set = |policy: &str| {
        let policy = policy.to_owned();
        let set = ControlRequest::SetPolicy { policy, draw: None, only_here: false, instead_of: None };
        let reply = ask(&here, &set);
        assert!(matches!(reply, ControlReply::Policy { .. }), "{reply:?}");
    };
    set("size-fair");
    groups.becomes("71", "");
    groups.becomes("72", "");
    set("bsip");
    groups.becomes("71", &half);
    // It stops.
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    cluster.servers[0] = None;
    groups.becomes("71", "");
    groups.becomes("72", "");
    // As after a kill: the record is there, and so are the limits.
    fs::write(groups.job("72").join(FILE), format!("{disk} 4096")).unwrap();
    let left = groups.job("72");
    fs::write(&record, format!("isonomia limits 1\nv1 write {disk} 4096 {}\n", left.display())).unwrap();
    cluster.restart(0);
    groups.becomes("72", "");
}
