//! Short reads that wait for a device: the kernel tells when they need wait no more, and no thread waits for each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "server/running/mod.rs"]
mod running;

use io_uring::IoUring;
use isonomia_client::{Client, Ino, OpenFile, OpenHow};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_server::TargetConfig;
use isonomia_testbed::skip;
use isonomia_transport::channel::Channel;
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use running::{Running, create, pattern, start};
use rustix::fs::Advice;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BLOCK: usize = 4096;
const LEN: usize = 4 << 20;
/// Clients that read at once.
const READERS: usize = 8;
/// The kind of a file system in memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The threads that may wait for the target's device.
const WAITING: &str = "target 0 io";

/// Threads are counted, so one test at a time has a server.
static ALONE: Mutex<()> = Mutex::new(());

/// A server whose target is on a disk, with a file of [`LEN`] bytes.
struct OnDisk {
    running: Running,
    disk: tempfile::TempDir,
    data: Vec<u8>,
    _lock: MutexGuard<'static, ()>,
}

impl OnDisk {
    /// `None` where there is no disk, or no ring.
    fn start() -> Option<Self> {
        let lock = lock_alone();
        if let Err(error) = <IoUring>::builder().setup_coop_taskrun().setup_taskrun_flag().build(1) {
            skip(&format!("no io_uring: {error}"));
            return None;
        }
        Self::start_locked(lock)
    }

    fn start_locked(lock: MutexGuard<'static, ()>) -> Option<Self> {
        let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if rustix::fs::statfs(disk.path()).unwrap().f_type as u64 == TMPFS_MAGIC {
            skip("no directory on a disk");
            return None;
        }
        let dir = disk.path().join("target");
        let running = start(|config| config.targets = vec![TargetConfig { dir: Some(dir), ..TargetConfig::default() }]);
        let data = pattern(LEN, 5);
        let client = running.client(&running.addresses[0], &running.key_file, 20);
        let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
        assert_eq!(client.write_at(&file, 0, &data).unwrap(), LEN);
        client.sync(&file, false).unwrap();
        Some(Self { running, disk, data, _lock: lock })
    }

    /// On each transport; a server that was started again may have another port.
    fn clients(&self) -> Vec<Client> {
        let addresses = self.running.server().addresses();
        addresses.iter().map(|address| self.running.client(address, &self.running.key_file, 20)).collect()
    }

    fn open(&self, client: &Client) -> OpenFile {
        let how = OpenHow { create: false, exclusive: false, ..create() };
        client.open(Ino::ROOT, b"file", &how).unwrap()
    }

    /// The file that has the bytes.
    fn object(&self) -> PathBuf {
        let is_object = |path: &PathBuf| path.metadata().unwrap().len() == LEN as u64;
        let mut found = files(self.disk.path()).into_iter().filter(is_object);
        found.next().expect("the object is there")
    }

    /// Has the host forget it.
    fn forget(&self) {
        let object = File::open(self.object()).unwrap();
        object.sync_all().unwrap();
        rustix::fs::fadvise(&object, 0, None, Advice::DontNeed).unwrap();
    }

    /// Reads blocks all over the file by several clients at once, and compares.
    fn read_all_over(&self) {
        std::thread::scope(|scope| {
            for (number, client) in (0..READERS / 2).flat_map(|_| self.clients()).enumerate() {
                scope.spawn(move || {
                    let file = self.open(&client);
                    for block in (0..LEN / BLOCK).map(|at| (at * 37 + number * 64) % (LEN / BLOCK)).take(200) {
                        let at = block * BLOCK;
                        let mut back = [0; BLOCK];
                        assert_eq!(client.read_at(&file, at as u64, &mut back).unwrap(), BLOCK);
                        assert!(back[..] == self.data[at..at + BLOCK], "block {block}");
                    }
                });
            }
        });
    }

    fn eventually(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = soon();
        while !condition() {
            assert!(deadline.left().is_some(), "{what}");
            std::thread::yield_now();
        }
    }

    /// Waits until the threads that wrote the file have nothing more to do, and are gone.
    fn rest(&self) {
        self.eventually("threads without work end", || threads(WAITING) == 0);
    }
}

fn lock_alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn soon() -> Deadline {
    Deadline::after(Nanos::from_secs(30))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Threads of this process that are called so.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|of| of.trim_end() == name).count()
}

#[test]
fn no_thread_waits_for_short_reads_from_a_device() {
    let Some(on_disk) = OnDisk::start() else { return };
    on_disk.rest();
    on_disk.forget();
    on_disk.read_all_over();
    // What the server does of its own may have one.
    assert!(threads(WAITING) < READERS / 2, "{}", threads(WAITING));
    let status = on_disk.running.server().status();
    assert_eq!((status.targets[1].in_service, status.checksums.damaged_total), (0, 0));
}

#[test]
fn damage_is_found_in_what_comes_from_a_device() {
    let Some(on_disk) = OnDisk::start() else { return };
    let [bad, short_end] = [77, 300].map(|block| block * BLOCK as u64);
    let object = File::options().write(true).open(on_disk.object()).unwrap();
    object.write_all_at(b"other", bad + 100).unwrap();
    drop(object);
    on_disk.forget();
    for client in on_disk.clients() {
        let file = on_disk.open(&client);
        let mut back = [0; BLOCK];
        let damaged = client.read_at(&file, bad, &mut back).unwrap_err();
        assert_eq!(damaged.errno(), rustix::io::Errno::IO, "{damaged}");
        assert_eq!(client.read_at(&file, bad + BLOCK as u64, &mut back).unwrap(), BLOCK);
        assert!(back[..] == on_disk.data[bad as usize + BLOCK..][..BLOCK]);
        // Parts of blocks, over the border of two, and beyond the end.
        let mut part = [0; 700];
        assert_eq!(client.read_at(&file, short_end - 300, &mut part).unwrap(), 700);
        assert!(part[..] == on_disk.data[short_end as usize - 300..][..700]);
        assert_eq!(client.read_at(&file, LEN as u64 - 100, &mut part).unwrap(), 100);
    }
    assert!(on_disk.running.server().status().checksums.damaged_total >= 2);
}

#[test]
fn an_object_that_is_gone_is_missed() {
    let Some(mut on_disk) = OnDisk::start() else { return };
    let object = on_disk.object();
    on_disk.running.stop();
    std::fs::remove_file(object).unwrap();
    on_disk.running.restart();
    for client in on_disk.clients() {
        let file = on_disk.open(&client);
        assert!(client.read_at(&file, 0, &mut [0; BLOCK]).is_err());
    }
}

#[test]
fn clients_that_leave_keep_nobody_waiting() {
    let Some(on_disk) = OnDisk::start() else { return };
    let client = &on_disk.clients()[0];
    let file = on_disk.open(client);
    on_disk.forget();
    for round in 0..50 {
        let identity = Identity { client: 7, ..Identity::default() };
        let mut channel = Channel::open(&on_disk.running.addresses[0], &identity, soon()).unwrap();
        for number in 0..Channel::DEPTH as u64 {
            let mut read = RequestHeader::with_capability(Op::Read, &file.capability);
            (read.len, read.offset) = (BLOCK as u32, (round * 4 + number) * BLOCK as u64);
            channel.send(&read).unwrap();
        }
        // Its memory is gone before most of what it asked for has come.
        drop(channel);
    }
    on_disk.read_all_over();
    let target = || on_disk.running.server().status().targets.swap_remove(1);
    on_disk.eventually("what nobody waits for is given up", || (target().queued, target().in_service) == (0, 0));
}

#[test]
fn a_server_stops_while_reads_are_under_way() {
    let Some(mut on_disk) = OnDisk::start() else { return };
    for _ in 0..3 {
        on_disk.forget();
        let (is_over, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let with_file = |client: Client| {
            let file = on_disk.open(&client);
            (client, file)
        };
        // In shared memory: the server will have the same socket.
        let readers: Vec<_> = (0..READERS).map(|_| with_file(on_disk.clients().swap_remove(0))).collect();
        std::thread::scope(|scope| {
            for (number, (client, file)) in readers.iter().enumerate() {
                let (is_over, has_begun) = (&is_over, &has_begun);
                scope.spawn(move || {
                    for at in number.. {
                        let offset = (at * 91 % (LEN / BLOCK) * BLOCK) as u64;
                        if is_over.load(Ordering::Relaxed) || client.read_at(file, offset, &mut [0; BLOCK]).is_err() {
                            break;
                        }
                        has_begun.store(true, Ordering::Relaxed);
                    }
                });
            }
            while !has_begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            on_disk.running.stop();
            is_over.store(true, Ordering::Relaxed);
            on_disk.running.restart();
        });
        on_disk.read_all_over();
    }
}

/// Has the kernel refuse a ring to this thread and those that it starts.
fn refuse_rings() {
    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the call is the first word of what a filter sees.
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
        libc::sock_filter {
            jf: 1,
            ..statement((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, libc::SYS_io_uring_setup as u32)
        },
        statement((libc::BPF_RET | libc::BPF_K) as u16, REFUSED),
        statement((libc::BPF_RET | libc::BPF_K) as u16, ALLOWED),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first has no pointers; the second reads `program` and `filter`, which are there until it is done.
    let outcomes = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    assert_eq!(outcomes, [0, 0]);
}

#[test]
fn threads_wait_where_the_kernel_has_no_ring_for_the_server() {
    // The filter applies to this thread and all that it starts, and for as long as they live.
    let test = std::thread::spawn(|| {
        refuse_rings();
        assert!(<IoUring>::new(1).is_err());
        let Some(on_disk) = OnDisk::start_locked(lock_alone()) else { return };
        on_disk.rest();
        on_disk.forget();
        on_disk.read_all_over();
        assert!(threads(WAITING) > 0);
    });
    test.join().unwrap();
}
