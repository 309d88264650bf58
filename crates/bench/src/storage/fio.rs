//! Programs of the contests: fio with plain calls (`psync`), as it is or under `isonomia run`.

use crate::harness::{Harness, start};
use crate::server::ServerProcess;
use crate::storage::identity;
use crate::storage::pool::Pool;
use crate::way::{PREFIX, preloaded};
use anyhow::{Context, Result, bail, ensure};
use isonomia_units::Nanos;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Between two looks whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// What one call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    RandomRead,
    SequentialRead,
    RandomWrite,
    SequentialWrite,
}

/// When what was written is brought to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Never: for reads.
    Never,
    /// `fdatasync` after so many writes of a process.
    Every(u32),
    /// `fsync` at the end, which counts in the time taken.
    AtEnd,
}

/// What each of some processes does, for its own part of a pool of files.
#[derive(Clone, Debug)]
pub struct Load {
    pub access: Access,
    pub block_bytes: u64,
    pub processes: u32,
    pub sync: Sync,
    /// With `O_DIRECT`.
    pub is_direct: bool,
    /// It ends after this time; at the latest when each block was accessed once.
    pub runs_for: Option<Nanos>,
    /// It goes through its files again and again until then: whoever starts it sees to it that nothing comes from memory.
    pub is_endless: bool,
    /// A process accesses so many bytes at most, those of its files if absent. Reads at random take turns among its files then.
    pub bytes_max: Option<u64>,
}

/// What all processes of a load did together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// How long it took.
    pub seconds: f64,
    pub iops: f64,
    pub mib_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Access {
    pub fn is_write(self) -> bool {
        matches!(self, Self::RandomWrite | Self::SequentialWrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    fn word(self) -> &'static str {
        match self {
            Self::RandomRead => "randread",
            Self::SequentialRead => "read",
            Self::RandomWrite => "randwrite",
            Self::SequentialWrite => "write",
        }
    }
}

impl Load {
    /// Calls that flush, with so many that read or write.
    fn flushes(&self, calls: u64) -> u64 {
        if let Sync::Every(writes) = self.sync { calls / u64::from(writes) } else { 0 }
    }

    /// As a job file of fio, for those `files` of `pool`, in `dir`.
    fn job_file(&self, pool: &Pool, dir: &Path, files: &[String]) -> String {
        let each = files.len() / self.processes as usize;
        let size = self.bytes_max.unwrap_or(u64::MAX).min(each as u64 * pool.file_bytes);
        let mut text = format!(
            "[global]\nioengine=psync\ndirectory={}\nrw={}\nbs={}\nfilesize={}\nsize={size}\ndirect={}\nallow_file_create=0\ninvalidate=0\nfadvise_hint=0\n\
             group_reporting=1\n",
            dir.display().to_string().replace(':', "\\:"),
            self.access.word(),
            self.block_bytes,
            pool.file_bytes,
            u8::from(self.is_direct),
        );
        if self.is_endless {
            text += "time_based=1\n";
        }
        let is_sample = self.access == Access::RandomRead && self.bytes_max.is_some();
        let _ = match (self.is_endless && self.access.is_random(), pool.file_bytes / self.block_bytes) {
            (false, _) if is_sample => writeln!(text, "file_service_type=roundrobin:1"),
            // Told to take its files one after the other, fio would begin the first one anew for as long as there is time, and have all
            // of it from memory.
            (true, calls) => writeln!(text, "file_service_type=roundrobin:{}", calls + self.flushes(calls)),
            (false, _) => writeln!(text, "file_service_type=sequential"),
        };
        if let Some(time) = self.runs_for {
            let _ = writeln!(text, "runtime={}ms", time.0 / 1_000_000);
        }
        let _ = match self.sync {
            Sync::Never => Ok(()),
            Sync::Every(writes) => writeln!(text, "fdatasync={writes}"),
            Sync::AtEnd => writeln!(text, "end_fsync=1"),
        };
        for (number, files) in files.chunks_exact(each).take(self.processes as usize).enumerate() {
            let _ = writeln!(text, "[process-{number}]\nfilename={}", files.join(":"));
        }
        text
    }
}

/// A running fio, ended with all its processes when dropped.
pub struct Fio {
    child: Child,
    what: String,
    output: PathBuf,
    log: PathBuf,
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    io_bytes: u64,
    /// Of the process that took longest, in milliseconds, with the last flush.
    runtime: u64,
    clat_ns: Latencies,
}

#[derive(Deserialize)]
struct Latencies {
    #[serde(default)]
    percentile: Option<Percentiles>,
}

#[derive(Deserialize)]
struct Percentiles {
    #[serde(rename = "50.000000")]
    p50: f64,
    #[serde(rename = "99.000000")]
    p99: f64,
}

impl Fio {
    /// Starts it on `files` of `pool`, through us as `job`, or without us.
    pub fn start(
        session: &Harness,
        what: &str,
        load: &Load,
        job: Option<(&ServerProcess, &str)>,
        pool: &Pool,
        files: &[String],
    ) -> Result<Self> {
        ensure!(load.processes as usize <= files.len(), "{what}: more processes than files");
        let path = |suffix: &str| session.scratch().join(format!("fio-{what}.{suffix}"));
        let (text, output, log) = (path("job"), path("json"), path("log"));
        let (mut command, dir) = match job {
            Some((server, job)) => {
                (preloaded(&session.programs, server.endpoints(), &identity(job), "fio"), Path::new(PREFIX))
            }
            None => (Command::new("fio"), pool.plain()),
        };
        std::fs::write(&text, load.job_file(pool, dir, files))?;
        command.arg(&text).arg("--output-format=json").arg(format!("--output={}", output.display()));
        // What fio leaves in its directory, it leaves where all of it is removed.
        command.current_dir(session.scratch()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(File::create(&log)?);
        Ok(Self { child: start(&mut command, Signal::KILL)?, what: what.to_owned(), output, log })
    }

    /// Whether it is still at work.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// What it did, once it has ended, within `time_max`.
    pub fn finish(mut self, session: &Harness, time_max: Duration) -> Result<Done> {
        let what = self.what.clone();
        self.wait(session, time_max).and_then(|()| self.read()).with_context(|| format!("fio {what}"))
    }

    fn wait(&mut self, session: &Harness, time_max: Duration) -> Result<()> {
        let tries = time_max.as_nanos() / POLL.as_nanos();
        for _ in 0..tries {
            if let Some(status) = self.child.try_wait()? {
                let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
                ensure!(status.success(), "{status}: {}", log().lines().next().unwrap_or_default());
                return Ok(());
            }
            session.nap(POLL)?;
        }
        bail!("not done within {} s", time_max.as_secs())
    }

    fn read(&self) -> Result<Done> {
        let text = std::fs::read_to_string(&self.output)?;
        // What it remarks upon stands before.
        let json = text.find('{').map_or("", |start| &text[start..]);
        let output: Output = serde_json::from_str(json).with_context(|| format!("it says {text:?}"))?;
        let group = output.jobs.into_iter().next().context("it did nothing")?;
        ensure!(group.error == 0, "error {}", group.error);
        let moved = if group.read.total_ios > 0 { group.read } else { group.write };
        ensure!(moved.total_ios > 0, "nothing was read or written");
        let seconds = moved.runtime.max(1) as f64 / 1e3;
        let latency = moved.clat_ns.percentile.context("no latencies")?;
        Ok(Done {
            seconds,
            iops: moved.total_ios as f64 / seconds,
            mib_per_s: moved.io_bytes as f64 / f64::from(1 << 20) / seconds,
            p50_us: latency.p50 / 1e3,
            p99_us: latency.p99 / 1e3,
        })
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // It has a group of its own (`session::start`); where all have ended already there is nobody to hear it.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Refuses early where there is no fio.
pub fn check() -> Result<()> {
    let output = Command::new("fio").arg("--version").output();
    ensure!(
        output.is_ok_and(|output| output.status.success()),
        "fio is not installed: these contests are its programs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_for_a_time_goes_through_all_its_files() {
        let pool = Pool::of_plain("/files".into(), 4, 16 << 20);
        let load = |access, sync, is_endless| Load {
            access,
            block_bytes: 64 << 10,
            processes: 2,
            sync,
            is_direct: false,
            runs_for: None,
            is_endless,
            bytes_max: None,
        };
        let order_of = |load: Load| {
            let text = load.job_file(&pool, Path::new("/files"), &pool.names());
            assert!(text.ends_with("filename=data-0:data-1\n[process-1]\nfilename=data-2:data-3\n"), "{text}");
            let line = text.lines().find_map(|line| line.strip_prefix("file_service_type=")).map(str::to_owned);
            line.unwrap()
        };
        assert_eq!(order_of(load(Access::RandomRead, Sync::Never, true)), "roundrobin:256");
        assert_eq!(order_of(load(Access::RandomWrite, Sync::Every(16), true)), "roundrobin:272");
        assert_eq!(order_of(load(Access::SequentialWrite, Sync::Every(256), true)), "sequential");
        let read = load(Access::RandomRead, Sync::Never, false);
        assert_eq!(order_of(Load { bytes_max: Some(1 << 20), ..read.clone() }), "roundrobin:1");
        assert_eq!(order_of(read), "sequential");
    }
}
