//! Where contests take place: a directory on an emulated device, on a disk of this machine, or on a GlusterFS of our own.
//!
//! All of it is made for one run and removed after it, also when it is interrupted.

use crate::clock::now_ns;
use crate::harness::{Harness, start};
use crate::server::{first_line, stop};
use anyhow::{Context, Result, bail, ensure};
use isonomia_units::{Bytes, Nanos, Rate};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Bricks that hold each file, each of them all of it.
const BRICKS: usize = 2;
/// Of a brick: GlusterFS's own default, and the most that it allows.
const THREADS: u32 = 16;
/// See [`THREADS`].
const THREADS_DELAYED: u32 = 64;
/// A GlusterFS that does not answer by then will not.
const START_NS_MAX: u64 = 30_000_000_000;
const POLL: Duration = Duration::from_millis(50);
/// A file system is busy for a little while after its last user ended.
const UNMOUNT_TRIES: u32 = 100;

/// How an emulated device behaves (see [`crate::device`]).
#[derive(Clone, Copy, Debug)]
pub struct Emulated {
    pub latency: &'static str,
    /// 0 for as many as come.
    pub channels: u32,
    pub bandwidth: Option<&'static str>,
    pub size: &'static str,
}

impl Emulated {
    /// How long the device has to do with so many requests that move so many bytes together, on one channel.
    pub fn time_ns(&self, operations: u64, bytes: u64) -> u64 {
        let latency: Nanos = self.latency.parse().unwrap_or(Nanos::ZERO);
        let bandwidth: Option<Rate> = self.bandwidth.and_then(|text| text.parse().ok());
        operations * latency.0 + bandwidth.map_or(0, |rate| rate.time_for(Bytes(bytes)).0)
    }
}

/// A directory, with what is behind it.
pub struct Place {
    dir: PathBuf,
    /// Whose pages the kernel is to forget.
    cached: Vec<PathBuf>,
    device: Option<EmulatedDevice>,
    gluster: Option<Gluster>,
    // Goes last.
    _home: tempfile::TempDir,
}

impl Place {
    /// The emulated device `device`.
    pub fn emulated(session: &Harness, device: &Emulated) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("device-").tempdir_in(session.scratch())?;
        let dir = home.path().to_owned();
        let device = EmulatedDevice::start(session, device, &dir)?;
        Ok(Self { cached: vec![dir.clone()], dir, device: Some(device), gluster: None, _home: home })
    }

    /// A directory below `below`.
    pub fn disk(below: &Path) -> Result<Self> {
        let home = home(below)?;
        let dir = home.path().to_owned();
        Ok(Self { cached: vec![dir.clone()], dir, device: None, gluster: None, _home: home })
    }

    /// A GlusterFS whose bricks are below `below`; its logs go to `logs`. Each brick takes `delay` longer for a read or a write
    /// than it would, for as many at once as it has threads.
    pub fn gluster(session: &Harness, below: &Path, logs: &Path, delay: Nanos) -> Result<Self> {
        let home = home(below)?;
        let gluster = Gluster::start(session, home.path(), logs, delay)?;
        let dir = gluster.mount.clone();
        let mut cached = vec![dir.clone()];
        cached.extend((0..BRICKS).map(|number| brick_dir(home.path(), number)));
        Ok(Self { cached, dir, device: None, gluster: Some(gluster), _home: home })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All directories whose files' pages the kernel keeps of what is read and written here.
    pub fn cached(&self) -> &[PathBuf] {
        &self.cached
    }

    /// The emulated device, where there is one.
    pub fn device(&self) -> Option<&EmulatedDevice> {
        self.device.as_ref()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // In the opposite order of their start.
        drop(self.gluster.take());
        drop(self.device.take());
    }
}

fn home(below: &Path) -> Result<tempfile::TempDir> {
    let below = below.canonicalize().with_context(|| format!("no directory {}", below.display()))?;
    tempfile::Builder::new().prefix("isonomia-bench-").tempdir_in(&below).context("no place for files")
}

/// `isonomia-bench device` as a process of its own.
pub struct EmulatedDevice {
    process: Child,
}

impl EmulatedDevice {
    fn start(session: &Harness, device: &Emulated, dir: &Path) -> Result<Self> {
        let mut command = Command::new(&session.programs.bench);
        command.arg("device").arg(dir).args(["--latency", device.latency, "--size", device.size]);
        command.args(["--channels", &device.channels.to_string()]);
        if let Some(bandwidth) = device.bandwidth {
            command.args(["--bandwidth", bandwidth]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut device = Self { process: start(&mut command, Signal::TERM)? };
        first_line(&mut device.process, session).context("no device can be emulated here")?;
        Ok(device)
    }

    /// It answers nothing until what this gives is dropped.
    pub fn hang(&self) -> Result<Hanging<'_>> {
        kill_process(Pid::from_child(&self.process), Signal::STOP)?;
        Ok(Hanging(self))
    }
}

impl Drop for EmulatedDevice {
    fn drop(&mut self) {
        if let Err(error) = stop("emulated device", &mut self.process) {
            eprintln!("isonomia-bench: cannot end the emulated device: {error:#}");
        }
    }
}

/// A device that answers nothing.
pub struct Hanging<'a>(&'a EmulatedDevice);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        // Not waited for yet, so the number is the device's.
        let _ = kill_process(Pid::from_child(&self.0.process), Signal::CONT);
    }
}

/// Two bricks, replicated, and a mount of them.
struct Gluster {
    mount: PathBuf,
    is_mounted: bool,
    client: Option<Child>,
    bricks: Vec<Child>,
}

fn brick_dir(home: &Path, number: usize) -> PathBuf {
    home.join(format!("brick-{number}"))
}

impl Gluster {
    fn start(session: &Harness, home: &Path, logs: &Path, delay: Nanos) -> Result<Self> {
        // It wants whole names for everything.
        let logs = logs.canonicalize()?;
        let mut gluster = Self { mount: home.join("mount"), is_mounted: false, client: None, bricks: Vec::new() };
        std::fs::create_dir(&gluster.mount)?;
        let mut ports = Vec::new();
        for number in 0..BRICKS {
            let dir = brick_dir(home, number);
            std::fs::create_dir(&dir)?;
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let volume = home.join(format!("brick-{number}.vol"));
            std::fs::write(&volume, brick_volume(&dir, port, delay))?;
            let log = logs.join(format!("gluster-brick-{number}.log"));
            gluster.bricks.push(daemon("glusterfsd", &volume, &log, None)?);
            ports.push(port);
        }
        let deadline_ns = now_ns() + START_NS_MAX;
        for port in &ports {
            while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).is_err() {
                wait(session, deadline_ns, "a brick of GlusterFS does not listen")?;
            }
        }
        let volume = home.join("client.vol");
        std::fs::write(&volume, client_volume(&ports))?;
        gluster.is_mounted = true;
        gluster.client = Some(daemon("glusterfs", &volume, &logs.join("gluster-mount.log"), Some(&gluster.mount))?);
        let is_there = |mount: &Path| rustix::fs::statfs(mount).is_ok_and(|fs| fs.f_type == FUSE_MAGIC);
        while !is_there(&gluster.mount) {
            wait(session, deadline_ns, "GlusterFS is not mounted")?;
        }
        Ok(gluster)
    }
}

/// What `statfs` says of file systems in user space.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

fn wait(session: &Harness, deadline_ns: u64, what: &str) -> Result<()> {
    session.check()?;
    ensure!(now_ns() < deadline_ns, "{what} after {} s", START_NS_MAX / 1_000_000_000);
    std::thread::sleep(POLL);
    Ok(())
}

fn daemon(program: &str, volume: &Path, log: &Path, mount: Option<&Path>) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("--no-daemon").arg("-f").arg(volume).arg("-l").arg(log).args(mount);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    start(&mut command, Signal::KILL).context("GlusterFS is not installed (Debian: glusterfs-server)")
}

/// A brick at `dir` that serves on `port`. What delays is below the threads, so that what waits in it waits side by side.
fn brick_volume(dir: &Path, port: u16, delay: Nanos) -> String {
    let (delaying, below, threads) = match delay {
        Nanos::ZERO => (String::new(), "posix", THREADS),
        Nanos(ns) => (
            format!(
                "volume delay\n  type debug/delay-gen\n  option delay-duration {}\n  option delay-percentage 100\n  \
                 option enable read,write\n  subvolumes posix\nend-volume\n",
                ns / 1_000
            ),
            "delay",
            THREADS_DELAYED,
        ),
    };
    format!(
        "volume posix\n  type storage/posix\n  option directory {}\nend-volume\n{delaying}\
         volume locks\n  type features/locks\n  subvolumes {below}\nend-volume\n\
         volume brick\n  type performance/io-threads\n  option thread-count {threads}\n  subvolumes locks\nend-volume\n\
         volume server\n  type protocol/server\n  option transport-type socket\n  option transport.address-family inet\n\
         option transport.socket.bind-address 127.0.0.1\n  option transport.socket.listen-port {port}\n  \
         option auth.addr.brick.allow 127.0.0.1\n  subvolumes brick\nend-volume\n",
        dir.display()
    )
}

fn client_volume(ports: &[u16]) -> String {
    let mut text = String::new();
    for (number, port) in ports.iter().enumerate() {
        text += &format!(
            "volume replica-{number}\n  type protocol/client\n  option transport-type socket\n  \
             option transport.address-family inet\n  option remote-host 127.0.0.1\n  option remote-port {port}\n  \
             option remote-subvolume brick\nend-volume\n"
        );
    }
    let names = |with: &str| (0..ports.len()).map(|n| format!("replica-{n}")).collect::<Vec<_>>().join(with);
    text + &format!(
        "volume all\n  type cluster/replicate\n  option afr-pending-xattr {}\n  subvolumes {}\nend-volume\n",
        names(","),
        names(" ")
    )
}

impl Drop for Gluster {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = unmount(&self.mount)
        {
            eprintln!("isonomia-bench: {error:#}");
        }
        for child in self.client.iter_mut().chain(&mut self.bricks) {
            if let Err(error) = stop("GlusterFS", child) {
                eprintln!("isonomia-bench: cannot end GlusterFS: {error:#}");
            }
        }
    }
}

fn unmount(mount: &Path) -> Result<()> {
    for _ in 0..UNMOUNT_TRIES {
        let output = Command::new("umount").arg(mount).output().context("cannot start umount")?;
        let reason = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || reason.contains("not mounted") {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    bail!("{} cannot be unmounted", mount.display())
}
