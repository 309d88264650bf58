//! The measurements: threads that read and write one file without a name, each one request at a time.
//!
//! Numbers of requests in service are gone through from 1 upwards over all accesses and sizes, so that where time runs out
//! only the deepest are missing; what gained nothing from twice as many three times in a row is left there, and its time given to
//! the others. No more time is taken than was given, but for requests that the device has begun.

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_policy::Access;
use isonomia_policy::device::profile::ProfilePoint;
use isonomia_store::is_volatile;
use isonomia_units::{Bytes, Nanos};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How long requests are.
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// How many are in service at once: up to as many as a server ever has there.
const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// The last of them.
pub const DEPTH_MAX: u32 = DEPTHS[DEPTHS.len() - 1];
/// No more than so many bytes at once: each request has memory of its own.
const IN_SERVICE_BYTES_MAX: u64 = 64 << 20;
/// The file's length at most; it is the largest size times a whole number.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// And at least.
const FILE_BYTES_MIN: u64 = 4 << 20;
/// It takes no more than one part in so many of what is free.
const FREE_PARTS: u64 = 8;
/// Filling the file takes one part in so many of the time.
const FILL_PARTS: u32 = 6;
/// What is measured in one part in so many of the time after that does not count: a file system and a disk may be busy with what was written.
const REST_PARTS: u32 = 20;
/// Twice the requests in service have to do so much more for another doubling …
const GAIN_MIN: f64 = 1.05;
/// … or have not done so often in a row.
const NO_GAINS_MAX: u32 = 3;
/// Requests of one thread in one measurement at most.
const REQUESTS_MAX: usize = 1 << 17;

/// A block as direct I/O wants it in memory.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

fn pages(bytes: u64) -> Vec<Page> {
    vec![Page([0; 4096]); (bytes as usize).div_ceil(size_of::<Page>())]
}

/// What requests go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Past the page cache to the device.
    Direct,
    /// The page cache: reads may come from it.
    PageCache,
    /// A file system that lies in memory, and has no device.
    Memory,
}

/// What is about to be measured.
pub struct Measurement {
    file: File,
    way: Way,
    file_bytes: u64,
    deadline: Instant,
    time: Duration,
}

/// What was measured so far of requests of one kind.
struct Kind {
    access: Access,
    bytes: u64,
    most: f64,
    no_gains: u32,
}

impl Kind {
    /// Whether it is to be measured with so many in service.
    fn is_wanted(&self, depth: u32) -> bool {
        self.no_gains < NO_GAINS_MAX && self.bytes * u64::from(depth) <= IN_SERVICE_BYTES_MAX
    }
}

impl Measurement {
    /// Makes a file in `dir` and fills it.
    pub fn new(dir: &Path, time: Duration) -> Result<Self> {
        let begun = Instant::now();
        ensure!(std::fs::metadata(dir)?.is_dir(), "it is no directory");
        let space = rustix::fs::statvfs(dir)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let step = SIZES[SIZES.len() - 1];
        let wanted = (free / FREE_PARTS).min(FILE_BYTES_MAX) / step * step;
        if wanted < FILE_BYTES_MIN {
            let needed = Bytes(FILE_BYTES_MIN * FREE_PARTS);
            bail!("its file system has {} free, and {needed} are needed", Bytes(free));
        }
        let fill_until = begun + time / FILL_PARTS;
        let mut failure = None;
        // Some file systems say only at the first write that they cannot.
        for (way, flags) in [(Way::Direct, OFlags::DIRECT), (Way::PageCache, OFlags::DSYNC)] {
            let filled = open(dir, flags).map_err(std::io::Error::from).and_then(|file| {
                let file_bytes = fill(&file, wanted, fill_until)?;
                Ok((file, file_bytes))
            });
            match filled {
                Ok((file, file_bytes)) => {
                    // File systems in memory take the flag as well, and have no device to go to. Some on a network tell nothing of a
                    // file without a name.
                    let way = if is_volatile(std::fs::File::open(dir)?, dir)? { Way::Memory } else { way };
                    return Ok(Self { file, way, file_bytes, deadline: begun + time, time });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.map_or_else(|| anyhow::anyhow!("no file can be made in it"), Into::into))
    }

    /// What requests go through.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Measures until the time is over.
    pub fn run(&self) -> Result<Vec<ProfilePoint>> {
        let each = |access| SIZES.map(|bytes| Kind { access, bytes, most: 0.0, no_gains: 0 });
        let mut kinds: Vec<Kind> = Access::ALL.into_iter().flat_map(each).collect();
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {eta:>4} left  {msg}");
            ProgressBar::new(self.time.as_millis() as u64).with_style(style.unwrap_or(ProgressStyle::default_bar()))
        });
        if let Some(bar) = &bar {
            bar.set_message("until the device rests");
        }
        self.measure(kinds[0].access, kinds[0].bytes, DEPTHS[0], self.time / REST_PARTS)?;
        let mut points = Vec::new();
        for (round, depth) in DEPTHS.into_iter().enumerate() {
            for at in 0..kinds.len() {
                if !kinds[at].is_wanted(depth) {
                    continue;
                }
                let wanted = |kinds: &[Kind], depth| kinds.iter().filter(|kind| kind.is_wanted(depth)).count();
                let later: usize = DEPTHS[round + 1..].iter().map(|depth| wanted(&kinds, *depth)).sum();
                let now = wanted(&kinds[at..], depth);
                let left = self.deadline.saturating_duration_since(Instant::now());
                if left.is_zero() && depth > 1 {
                    break;
                }
                let kind = &mut kinds[at];
                if let Some(bar) = &bar {
                    bar.set_position((self.time - left).as_millis() as u64);
                    bar.set_message(format!("{} {} x {depth}", kind.access.name(), Bytes(kind.bytes)));
                }
                let point = self.measure(kind.access, kind.bytes, depth, left / (now + later) as u32)?;
                kind.no_gains = if point.requests_per_s >= GAIN_MIN * kind.most { 0 } else { kind.no_gains + 1 };
                kind.most = kind.most.max(point.requests_per_s);
                points.push(point);
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        points.sort_by_key(|point| (point.access, point.bytes, point.depth));
        Ok(points)
    }

    fn measure(&self, access: Access, bytes: u64, depth: u32, time: Duration) -> Result<ProfilePoint> {
        if self.way == Way::PageCache {
            // Advice that is not taken shows in what is measured.
            let is_random = matches!(access, Access::ReadRandom | Access::WriteRandom);
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
            let pattern = if is_random { Advice::Random } else { Advice::Sequential };
            let _ = rustix::fs::fadvise(&self.file, 0, None, pattern);
        }
        let begun = Instant::now();
        let until = begun + time;
        let next = AtomicU64::new(0);
        let lanes = std::thread::scope(|scope| {
            let lane = |number| self.go_on(access, bytes, number, &next, until);
            let spawn = |number| std::thread::Builder::new().spawn_scoped(scope, move || lane(number));
            let spawned: Vec<_> = (0..depth).map(spawn).collect();
            let join = |lane: std::io::Result<std::thread::ScopedJoinHandle<'_, std::io::Result<Vec<u64>>>>| {
                lane?.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
            };
            spawned.into_iter().map(join).collect::<std::io::Result<Vec<_>>>()
        });
        let mut took_ns = lanes.with_context(|| format!("{} of {}", access.name(), Bytes(bytes)))?.concat();
        let elapsed_s = begun.elapsed().as_secs_f64();
        took_ns.sort_unstable();
        let at = |percent: usize| Nanos(took_ns[(took_ns.len() * percent).div_ceil(100).max(1) - 1]);
        let requests_per_s = took_ns.len() as f64 / elapsed_s;
        Ok(ProfilePoint { access, bytes: Bytes(bytes), depth, requests_per_s, p50: at(50), p99: at(99) })
    }

    /// One request after the other; how long each took, of which there is one at least.
    fn go_on(
        &self,
        access: Access,
        bytes: u64,
        number: u32,
        next: &AtomicU64,
        until: Instant,
    ) -> std::io::Result<Vec<u64>> {
        let blocks = self.file_bytes / bytes;
        let mut random = Pcg64::seed_from_u64(bytes << 8 | u64::from(number));
        let mut buffer = pages(bytes);
        let buffer = buffer.as_mut_bytes();
        let mut took_ns = Vec::new();
        loop {
            let block = match access {
                Access::ReadRandom | Access::WriteRandom => random.random_range(0..blocks),
                Access::ReadSequential | Access::WriteSequential => next.fetch_add(1, Ordering::Relaxed) % blocks,
            };
            let begun = Instant::now();
            match access {
                Access::ReadRandom | Access::ReadSequential => self.file.read_exact_at(buffer, block * bytes)?,
                Access::WriteRandom | Access::WriteSequential => self.file.write_all_at(buffer, block * bytes)?,
            }
            let ended = Instant::now();
            took_ns.push(ended.duration_since(begun).as_nanos() as u64);
            if ended >= until || took_ns.len() == REQUESTS_MAX {
                return Ok(took_ns);
            }
        }
    }
}

/// A file in `dir` that is gone with its descriptor.
fn open(dir: &Path, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(file.into()),
        // Not every file system knows files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let path = dir.join(format!(".isonomia-profile-{}", std::process::id()));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR);
    // Also where opening failed: some file systems create the file before they find that they cannot do direct I/O.
    match rustix::fs::unlink(&path) {
        Err(errno) if file.is_ok() => return Err(errno),
        _ => {}
    }
    Ok(file?.into())
}

/// Writes to the file until it is `wanted` long, or no longer than until then; how long it is.
fn fill(file: &File, wanted: u64, until: Instant) -> std::io::Result<u64> {
    let step = SIZES[SIZES.len() - 1];
    let mut block = pages(step);
    // Zeros are no data to some devices.
    Pcg64::seed_from_u64(1).fill_bytes(block.as_mut_bytes());
    let mut filled = 0;
    while filled < wanted && (filled < FILE_BYTES_MIN || Instant::now() < until) {
        match file.write_all_at(block.as_bytes(), filled) {
            Ok(()) => filled += step,
            Err(error) if error.kind() == ErrorKind::StorageFull && filled >= FILE_BYTES_MIN => break,
            Err(error) => return Err(error),
        }
    }
    file.sync_data()?;
    Ok(filled)
}
