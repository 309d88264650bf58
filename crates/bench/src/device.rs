//! An emulated block device with a file system on it: `isonomia-bench device DIR`.
//!
//! The disk is one file of a FUSE file system, kept in memory; behind it are a loop device, ext4, and a mount at DIR.
//! A request is answered when the model says that the device is done. With `--channels 0` latencies overlap without
//! limit, as on an array behind a network; otherwise so many requests are in service and the others wait for a channel,
//! and bytes take their time at the bandwidth of a channel. What is measured on it includes a real file system, its page
//! cache, and the kernel's block layer, but no seeks. It takes root, and ends with its standard input, or at SIGINT or SIGTERM.
//!
//! Time is taken from when the device is ready until it is told to end: making and mounting the file system, and writing what is
//! dirty at the end, would otherwise take thousands of latencies, and could not be broken off.

use crate::clock;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use isonomia_units::{Bytes, Nanos, Rate};
use rustix::fs::{FallocateFlags, MemfdFlags};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, SystemTime};

const FILE: &str = "disk";
const FILE_INO: INodeNo = INodeNo(2);
/// Requests that the kernel hands on before the earlier ones are answered.
const BACKGROUND_MAX: u16 = 1024;
/// More channels than that would never all be busy.
const CHANNELS_MAX: i64 = BACKGROUND_MAX as i64;
/// Nobody waits longer for one request.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);
/// On less, mkfs.ext4 makes no journal, or no file system.
const SIZE_MIN: Bytes = Bytes::mib(4);
/// What is written lies in memory, of which most hosts have less.
const SIZE_MAX: Bytes = Bytes::mib(1 << 20);
/// The kernel may remember what this file system says of its two names.
const TTL: Duration = Duration::from_secs(3600);
/// A loop device lets go of its file a little after it was told to.
const DETACH_TRIES: u32 = 100;

/// What the device is like.
#[derive(Args, Clone, Debug)]
pub struct DeviceOptions {
    /// Where the file system is mounted: an empty directory
    dir: PathBuf,
    /// How large the device is, 4MiB to 1TiB
    #[arg(long, default_value = "2GiB", allow_hyphen_values = true, value_parser = size)]
    size: Bytes,
    /// How long a request takes that reads or writes, up to 1h
    #[arg(long, default_value = "5ms", allow_hyphen_values = true, value_parser = latency)]
    latency: Nanos,
    /// Requests in service at once, up to 1024; 0 for as many as come
    #[arg(long, default_value_t = 0, allow_hyphen_values = true,
        value_parser = clap::value_parser!(u16).range(0..=CHANNELS_MAX))]
    channels: u16,
    /// At which one channel moves bytes; without a limit if absent
    #[arg(long, allow_hyphen_values = true)]
    bandwidth: Option<Rate>,
}

fn size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|e| format!("{e}"))?;
    if (SIZE_MIN..=SIZE_MAX).contains(&size) {
        Ok(size)
    } else {
        Err(format!("{size} is no size of a device (allowed: 4MiB to 1TiB)"))
    }
}

fn latency(text: &str) -> Result<Nanos, String> {
    let latency: Nanos = text.parse().map_err(|e| format!("{e}"))?;
    if latency <= LATENCY_MAX { Ok(latency) } else { Err(format!("{latency} is too long (allowed: up to 1h)")) }
}

/// When each channel is free.
struct Model {
    latency: Nanos,
    bandwidth: Option<Rate>,
    /// Empty if there is no limit.
    free_at: BinaryHeap<Reverse<Nanos>>,
}

impl Model {
    fn new(options: &DeviceOptions) -> Self {
        let free_at = (0..options.channels).map(|_| Reverse(Nanos::ZERO)).collect();
        Self { latency: options.latency, bandwidth: options.bandwidth, free_at }
    }

    /// When a request of `bytes` that comes `now` is done.
    fn serve(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let takes = self.latency + self.bandwidth.map_or(Nanos::ZERO, |rate| rate.time_for(Bytes(bytes)));
        let Some(Reverse(free)) = self.free_at.pop() else { return now + takes };
        let done = free.max(now) + takes;
        self.free_at.push(Reverse(done));
        done
    }
}

/// What is answered when the device is done.
enum Answer {
    Read { offset: u64, len: usize, reply: ReplyData },
    Write { len: u32, reply: ReplyWrite },
}

struct Due {
    at: Nanos,
    number: u64,
    answer: Answer,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

struct Queue {
    model: Model,
    /// Whether requests take their time: otherwise each is answered at once.
    is_timed: bool,
    due: BinaryHeap<Due>,
    count: u64,
}

struct Device {
    memory: OwnedFd,
    size: u64,
    queue: Mutex<Queue>,
    has_more: Condvar,
}

impl Device {
    fn new(options: &DeviceOptions) -> Result<Self> {
        let memory = rustix::fs::memfd_create("isonomia-bench device", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, options.size.0)?;
        let queue = Queue { model: Model::new(options), is_timed: false, due: BinaryHeap::new(), count: 0 };
        Ok(Self { memory, size: options.size.0, queue: Mutex::new(queue), has_more: Condvar::new() })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests take their time from now on. If not, those in service are answered at once, too.
    fn set_timed(&self, is_timed: bool) {
        self.queue().is_timed = is_timed;
        self.has_more.notify_one();
    }

    fn begin(&self, bytes: u64, answer: Answer) {
        let mut queue = self.queue();
        let now = Nanos(clock::now_ns());
        let at = if queue.is_timed { queue.model.serve(now, bytes) } else { now };
        queue.count += 1;
        let number = queue.count;
        queue.due.push(Due { at, number, answer });
        self.has_more.notify_one();
    }

    /// Answers what is due, for ever.
    fn answer(&self) {
        let mut queue = self.queue();
        loop {
            let wait = match queue.due.peek() {
                None => Duration::from_secs(1),
                Some(_) if !queue.is_timed => Duration::ZERO,
                Some(due) => Duration::from_nanos(due.at.since(Nanos(clock::now_ns())).0),
            };
            if !wait.is_zero() {
                queue = self.has_more.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let Some(due) = queue.due.pop() else { continue };
            drop(queue);
            match due.answer {
                Answer::Read { offset, len, reply } => {
                    let mut bytes = vec![0; len];
                    match rustix::io::pread(&self.memory, &mut bytes, offset) {
                        Ok(got) => reply.data(&bytes[..got]),
                        Err(errno) => reply.error(Errno::from_i32(errno.raw_os_error())),
                    }
                }
                Answer::Write { len, reply } => reply.written(len),
            }
            queue = self.queue();
        }
    }
}

struct Files(Arc<Device>);

impl Files {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let (kind, perm, size) =
            if ino == FILE_INO { (FileType::RegularFile, 0o600, self.0.size) } else { (FileType::Directory, 0o700, 0) };
        let then = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: then,
            mtime: then,
            ctime: then,
            crtime: then,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE {
            reply.entry(&TTL, &self.attr(FILE_INO), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    /// Times are of no interest, and nothing else is changed of a disk.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let answer = Answer::Read { offset, len: size as usize, reply };
        self.0.begin(u64::from(size), answer);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match rustix::io::pwrite(&self.0.memory, data, offset) {
            Ok(len) => self.0.begin(len as u64, Answer::Write { len: len as u32, reply }),
            Err(errno) => reply.error(Errno::from_i32(errno.raw_os_error())),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        match rustix::fs::fallocate(&self.0.memory, mode, offset, length) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(Errno::from_i32(errno.raw_os_error())),
        }
    }
}

/// What is mounted and attached, undone in the opposite order.
#[derive(Default)]
struct Mounted {
    undo: Vec<Vec<String>>,
}

impl Mounted {
    fn add(&mut self, undo: &[&str]) {
        self.undo.push(undo.iter().map(|word| (*word).to_owned()).collect());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for words in self.undo.iter().rev() {
            let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            let mut undone = command(&words[0], &arguments);
            for _ in 1..DETACH_TRIES {
                if undone.is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
                undone = command(&words[0], &arguments);
            }
            if let Err(error) = undone {
                eprintln!("isonomia-bench: {error:#}");
            }
        }
    }
}

/// Makes the device, tells `ready` on standard output, and serves until standard input ends.
pub fn run(options: &DeviceOptions) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a device takes root: it is a loop device with a file system on it");
    check_empty(&options.dir)?;
    let dir = text(&options.dir)?;
    // From here on a signal ends it in order.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let backing = tempfile::tempdir().context("no directory for the disk")?;
    let device = Arc::new(Device::new(options)?);
    let answering = device.clone();
    std::thread::Builder::new().name("device".to_owned()).spawn(move || answering.answer())?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("isonomia-bench".to_owned())];
    let session =
        fuser::spawn_mount(Files(device.clone()), backing.path(), &config).context("cannot mount the disk")?;
    let mut mounted = Mounted::default();
    let disk = backing.path().join(FILE);
    let loop_device = command("losetup", &["--find", "--show", "--direct-io=on", &text(&disk)?])?;
    mounted.add(&["losetup", "--detach", &loop_device]);
    give_all(&loop_device, options, &mut mounted);
    command("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", &loop_device])?;
    command("mount", &["-o", "noatime,init_itable=0", &loop_device, &dir])?;
    mounted.add(&["umount", &dir]);
    let served = if signals.pending().next().is_some() { Ok(()) } else { serve(&device, signals) };
    // Unmounting writes what is dirty.
    device.set_timed(false);
    drop(mounted);
    drop(session);
    served
}

/// Linux keeps back what is written from its page cache while reads take longer than a disk is thought to need, down to one request at a
/// time (`block/blk-wbt.c`): that is meant for a disk that is given too much. A device that was told to be as slow as that is to have
/// everything.
fn give_all(loop_device: &str, options: &DeviceOptions, mounted: &mut Mounted) {
    const DEFAULT: &str = "-1";
    let name = Path::new(loop_device).file_name().unwrap_or_default().display();
    let path = format!("/sys/block/{name}/queue/wbt_lat_usec");
    // What an earlier device left there says nothing about this one.
    let set = |value: &str| std::fs::write(&path, value);
    let read_time_max = || std::fs::read_to_string(&path).ok()?.trim().parse::<u64>().ok().map(Nanos::from_micros);
    // A kernel that keeps nothing back has no such file.
    let Some(most) = set(DEFAULT).ok().and_then(|()| read_time_max()) else { return };
    if options.latency >= most {
        match set("0") {
            Ok(()) => mounted.add(&["sh", "-c", &format!("echo {DEFAULT} > {path}")]),
            Err(error) => eprintln!("isonomia-bench: what is written beside reads may be kept back: {path}: {error}"),
        }
    }
}

/// Fails where a mount would hide something.
fn check_empty(dir: &Path) -> Result<()> {
    let why = || format!("cannot mount at {}", dir.display());
    let mut entries = std::fs::read_dir(dir).with_context(why)?;
    match entries.next().transpose().with_context(why)? {
        None => Ok(()),
        Some(_) => bail!("{}: it is not empty (allowed: an empty directory)", why()),
    }
}

fn serve(device: &Device, signals: Signals) -> Result<()> {
    device.set_timed(true);
    println!("ready");
    std::io::stdout().flush()?;
    wait_for_end(signals)
}

/// Returns when standard input ends, or at SIGINT or SIGTERM.
fn wait_for_end(mut signals: Signals) -> Result<()> {
    let (ended, end) = mpsc::channel();
    let by_signal = ended.clone();
    std::thread::spawn(move || signals.forever().next().map(|_| by_signal.send(())));
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().take_while(Result::is_ok).for_each(drop);
        ended.send(())
    });
    Ok(end.recv()?)
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}

/// Runs a program; what it printed.
fn command(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(channels: u16, bandwidth: Option<Rate>) -> Model {
        let options = DeviceOptions {
            dir: PathBuf::new(),
            size: Bytes::mib(1),
            latency: Nanos::from_millis(5),
            channels,
            bandwidth,
        };
        Model::new(&options)
    }

    #[test]
    fn latencies_overlap_as_far_as_there_are_channels() {
        let done = |channels| {
            let mut model = model(channels, None);
            (0..4).map(|_| model.serve(Nanos(100), 4096).0 - 100).collect::<Vec<_>>()
        };
        assert_eq!(done(0), [5_000_000; 4]);
        assert_eq!(done(2), [5_000_000, 5_000_000, 10_000_000, 10_000_000]);
    }

    #[test]
    fn bytes_take_their_time_on_a_channel() {
        let mut model = model(1, Rate::new(1 << 20));
        assert_eq!(model.serve(Nanos(0), 1 << 20), Nanos(1_005_000_000));
        assert_eq!(model.serve(Nanos(0), 0), Nanos(1_010_000_000));
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: DeviceOptions,
    }

    fn parse(words: &[&str]) -> Result<DeviceOptions, String> {
        let line = <Line as clap::Parser>::try_parse_from([&["device"], words, &["/d"]].concat());
        line.map(|line| line.options).map_err(|e| e.to_string())
    }

    #[test]
    fn what_no_device_has_is_refused_with_what_is_allowed() {
        for (option, value, allowed) in [
            ("--channels", "99999999999", "0..=1024"),
            ("--channels", "1025", "0..=1024"),
            ("--channels", "-1", "0..=1024"),
            ("--latency", "61min", "up to 1h"),
            ("--latency", "-1ms", "ns, us, ms, s, min, h, d"),
            ("--size", "4095KiB", "4MiB to 1TiB"),
            ("--size", "2TiB", "4MiB to 1TiB"),
            ("--bandwidth", "-1MB/s", "MB/s"),
        ] {
            let error = parse(&[option, value]).unwrap_err();
            assert!([option, value, allowed].iter().all(|word| error.contains(word)), "{option} {value}: {error}");
        }
        let most = parse(&["--channels", "1024", "--latency", "1h", "--size", "4MiB"]).unwrap();
        assert_eq!((most.channels, most.latency, most.size), (1024, LATENCY_MAX, SIZE_MIN));
    }

    #[test]
    fn nothing_is_hidden_by_a_mount() {
        let home = tempfile::tempdir().unwrap();
        check_empty(home.path()).unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (dir, why) in [
            (home.path(), "it is not empty (allowed: an empty directory)"),
            (&file, "Not a directory"),
            (&home.path().join("missing"), "No such file"),
        ] {
            let error = format!("{:#}", check_empty(dir).unwrap_err());
            assert!(
                error.starts_with(&format!("cannot mount at {}: ", dir.display())) && error.contains(why),
                "{error}"
            );
        }
    }
}
