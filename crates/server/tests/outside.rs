//! Programs that write to a device outside of Isonomia have there what their jobs are allocated, for as long as they are.
//!
//! Needs root, and the blkio controller of cgroup v1 or the io controller of v2; elsewhere it is skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "server/running/mod.rs"]
mod running;

use isonomia_client::{Claims, Client, ClientConfig, Ino};
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_server::CgroupConfig;
use isonomia_testbed::{is_root_to, skip};
use isonomia_units::{Nanos, Rate};
use running::cluster::{Cluster, in_memory};
use running::{ask, create};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HIERARCHY: &str = "/sys/fs/cgroup/blkio";
const FILE: &str = "blkio.throttle.write_bps_device";
const LONGEST: Duration = Duration::from_secs(60);
/// Of the device.
const WRITES: u64 = 64 << 20;
/// What a process of a job is told: its control group,
const GROUP: &str = "ISONOMIA_TEST_GROUP";
/// the file that it writes to,
const NAME: &str = "ISONOMIA_TEST_NAME";
/// the server,
const ADDRESS: &str = "ISONOMIA_TEST_ADDRESS";
/// and where the key is.
const KEY: &str = "ISONOMIA_TEST_KEY";

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

    /// A process of the job that writes to a file of the cluster until this value goes.
    fn write(&self, job: &str, cluster: &Cluster) -> Writer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "writer", "--nocapture"]).stdout(Stdio::null());
        command.env(GROUP, self.job(job)).env(NAME, format!("v/{job}"));
        command.env(ADDRESS, cluster.configs[0].listen[0].to_string()).env(KEY, cluster.dir.path().join("key"));
        Writer(command.spawn().unwrap())
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
        for part in ["uid_0/job_71", "uid_0/job_72", "uid_0", ""] {
            let _ = fs::remove_dir(self.0.join(part));
        }
    }
}

/// Gone with this value.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A job's process: the server's own is limited by nobody.
#[test]
#[ignore = "run by control_groups_have_what_their_jobs_are_allocated, as a process of its own"]
fn writer() {
    let Some(group) = std::env::var_os(GROUP) else { return };
    fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let variable = |name| std::env::var(name).unwrap();
    let client = Client::new(ClientConfig {
        addresses: vec![variable(ADDRESS).parse().unwrap()],
        timeout: Nanos::from_secs(20),
        claims: Claims::default(),
        key_file: Some(variable(KEY)),
    });
    let file = client.open(Ino::ROOT, variable(NAME).as_bytes(), &create()).unwrap();
    while client.write_at(&file, 0, &[7; 64 << 10]).is_ok() {}
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
    let writers = ["71", "72"].map(|job| groups.write(job, &cluster));
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
    drop(writers);
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
