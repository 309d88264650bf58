//! Files that programs map shared and write to through two mounts: one memory for all of them, whatever becomes of a
//! mount or of the server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestMount, TestServer, can_mount};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 16;
const LEN: usize = PAGES * PAGE;

/// A file, mapped shared and writable.
struct Mapped(*mut c_void);

// SAFETY: it is accessed as atomic numbers only.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let how = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel chooses.
        Self(unsafe { mmap(std::ptr::null_mut(), LEN, how, MapFlags::SHARED, &file, 0) }.unwrap())
    }

    /// The first number of a page.
    fn number(&self, page: usize) -> &AtomicU64 {
        assert!(page < PAGES);
        // SAFETY: inside the mapping, aligned, and as long there as `self` is.
        unsafe { AtomicU64::from_ptr(self.0.cast::<u64>().add(page * PAGE / 8)) }
    }

    /// Has the kernel write back what was written.
    fn flush(&self) -> Result<(), Errno> {
        // SAFETY: what `new` mapped.
        unsafe { msync(self.0, LEN, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped; nothing refers to it any more.
        unsafe { munmap(self.0, LEN) }.unwrap();
    }
}

/// A server with two mounts and a file of zeros; `None` where nothing can be mounted.
fn two_mounts() -> Option<(TestServer, TestMount, TestMount)> {
    if !can_mount() {
        return None;
    }
    let server = TestServer::start();
    let mounts = (server.mount(""), server.mount_elsewhere());
    fs::write(mounts.0.path().join("f"), vec![0; LEN]).unwrap();
    Some((server, mounts.0, mounts.1))
}

/// What the server has as the number of a page, once nobody has it mapped.
fn stored(mount: &TestMount, page: usize) -> u64 {
    let mut number = [0; 8];
    File::open(mount.path().join("f")).unwrap().read_exact_at(&mut number, (page * PAGE) as u64).unwrap();
    u64::from_le_bytes(number)
}

#[test]
fn what_one_mount_writes_the_other_reads_without_further_ado() {
    let Some((_server, first, second)) = two_mounts() else { return };
    const ROUNDS: u64 = 200;
    let maps = [&first, &second].map(|mount| Mapped::new(&mount.path().join("f")));
    std::thread::scope(|threads| {
        for (parity, map) in (0u64..).zip(&maps) {
            threads.spawn(move || {
                let page = |round: u64| round as usize % 3;
                for round in (parity..ROUNDS).step_by(2) {
                    // The other's number is there before the word that it is, in another page.
                    while map.number(5).load(Ordering::Acquire) != round {
                        std::thread::yield_now();
                    }
                    assert_eq!(map.number(page(round)).load(Ordering::Relaxed), round);
                    map.number(page(round + 1)).store(round + 1, Ordering::Relaxed);
                    map.number(5).store(round + 1, Ordering::Release);
                }
            });
        }
    });
    drop(maps);
    assert_eq!(stored(&first, 5), ROUNDS);
}

/// Preloaded programs have a memory of their own for the file: either they or a mount have the mapping.
#[test]
fn a_mount_and_preloaded_programs_have_a_mapping_alternately() {
    let Some((server, mount, _)) = two_mounts() else { return };
    let mapped = Mapped::new(&mount.path().join("f"));
    let script = "import mmap, struct, sys\n\
                  with open('/isonomia/f', 'r+b') as f, mmap.mmap(f.fileno(), 4096) as m:\n    \
                      n = struct.unpack('Q', m[:8])[0] + 1\n    \
                      m[:8] = struct.pack('Q', n)\n    \
                      print(n)\n";
    for round in 0..4 {
        assert_eq!(mapped.number(0).fetch_add(1, Ordering::Relaxed), 2 * round);
        let Output { stdout, stderr, .. } = server.command("python3").args(["-c", script]).output().unwrap();
        let said = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(said, [format!("{}\n", 2 * round + 2), String::new()]);
    }
    drop(mapped);
    assert_eq!(stored(&mount, 0), 8);
}

#[test]
fn counters_in_shared_pages_lose_nothing_without_a_lock() {
    let Some((_server, first, second)) = two_mounts() else { return };
    const EACH: u64 = 30_000;
    let maps = [&first, &second, &first, &second].map(|mount| Mapped::new(&mount.path().join("f")));
    let start = Barrier::new(maps.len());
    std::thread::scope(|threads| {
        for map in &maps {
            let start = &start;
            threads.spawn(move || {
                start.wait();
                for n in 0..EACH {
                    map.number(0).fetch_add(1, Ordering::Relaxed);
                    map.number(n as usize % 7 + 1).fetch_add(1, Ordering::Relaxed);
                    if n % 100 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let sum = |map: &Mapped| (1..8).map(|page| map.number(page).load(Ordering::Relaxed)).sum::<u64>();
    for map in &maps {
        assert_eq!((map.number(0).load(Ordering::Relaxed), sum(map)), (4 * EACH, 4 * EACH));
    }
    drop(maps);
    assert_eq!((1..8).map(|page| stored(&second, page)).sum::<u64>(), 4 * EACH);
}

/// A program with the file `f` of the mount mapped as `shared`; `add` adds to a number in a page, not atomically.
fn python(mount: &TestMount, script: &str) -> Command {
    let prologue = "import fcntl, mmap, os, struct, sys\n\
                    fd = os.open('f', os.O_RDWR)\n\
                    shared = mmap.mmap(fd, 65536)\n\
                    def add(page):\n    \
                        n, = struct.unpack_from('Q', shared, page * 4096)\n    \
                        struct.pack_into('Q', shared, page * 4096, n + 1)\n";
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{prologue}{script}")]).current_dir(mount.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn counters_under_a_lock_lose_nothing() {
    let Some((_server, first, second)) = two_mounts() else { return };
    let script = "for n in range(150):\n    \
                      fcntl.lockf(fd, fcntl.LOCK_EX, 1, 9)\n    \
                      add(0)\n    \
                      add(9)\n    \
                      fcntl.lockf(fd, fcntl.LOCK_UN, 1, 9)\n";
    let programs = [&first, &second, &first, &second].map(|mount| python(mount, script).spawn().unwrap());
    programs.into_iter().for_each(|program| succeeds(&program.wait_with_output().unwrap()));
    assert_eq!((stored(&first, 0), stored(&second, 9)), (600, 600));
}

#[test]
fn a_mount_that_is_killed_keeps_nothing() {
    let Some((_server, mut first, second)) = two_mounts() else { return };
    succeeds(&python(&first, "add(0)\nshared.flush()\nadd(1)\n").output().unwrap());
    let map = Mapped::new(&first.path().join("f"));
    map.number(0).fetch_add(1, Ordering::Relaxed);
    let other = Mapped::new(&second.path().join("f"));
    assert_eq!(other.number(0).load(Ordering::Relaxed), 2);
    map.number(2).store(7, Ordering::Relaxed);
    assert_eq!(map.number(0).fetch_add(1, Ordering::Relaxed), 2, "the first has it again");
    first.kill();
    // Of what it did not write back nothing is left, and nothing of it is in the way.
    assert!([2, 3].contains(&other.number(0).fetch_add(1, Ordering::Relaxed)));
    assert_eq!(other.number(1).load(Ordering::Relaxed), 1);
}

#[test]
fn a_mount_that_is_silent_costs_others_their_page_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    // What comes before has to be done within the same time.
    let (hasty, silent) = (server.mount("timeout=5s"), server.mount_elsewhere());
    for name in ["f", "g"] {
        fs::write(hasty.path().join(name), vec![0; LEN]).unwrap();
    }
    let map = Mapped::new(&silent.path().join("f"));
    map.number(0).store(5, Ordering::Relaxed);
    silent.pause();
    let died = python(&hasty, "add(0)").output().unwrap();
    assert_eq!(died.status.signal(), Some(rustix::process::Signal::BUS.as_raw()), "rather than an old page");
    let other = Mapped::new(&hasty.path().join("g"));
    assert_eq!(other.number(0).fetch_add(1, Ordering::Relaxed), 0);
    silent.resume();
    succeeds(&python(&hasty, "add(0)").output().unwrap());
    assert_eq!(map.number(0).load(Ordering::Relaxed), 6);
}

#[test]
fn mappings_survive_a_restart_of_the_server() {
    let Some((mut server, first, second)) = two_mounts() else { return };
    let map = Mapped::new(&first.path().join("f"));
    map.number(0).store(1, Ordering::Relaxed);
    server.restart();
    map.number(3).store(2, Ordering::Relaxed);
    // On a machine that is too busy the mount may ask for it too late: so nothing is left to be written back.
    map.flush().unwrap();
    let other = Mapped::new(&second.path().join("f"));
    assert_eq!((other.number(0).load(Ordering::Relaxed), other.number(3).load(Ordering::Relaxed)), (1, 2));
    other.number(3).fetch_add(1, Ordering::Relaxed);
    while map.number(3).load(Ordering::Relaxed) == 2 {
        std::thread::yield_now();
    }
    assert_eq!(map.number(3).fetch_add(1, Ordering::Relaxed), 3);
    assert_eq!(other.number(3).load(Ordering::Relaxed), 4);
}

#[test]
fn a_mount_that_missed_a_restart_undoes_nothing() {
    let Some((mut server, first, second)) = two_mounts() else { return };
    let map = Mapped::new(&first.path().join("f"));
    map.number(0).store(1, Ordering::Relaxed);
    first.pause();
    let other = Mapped::new(&second.path().join("f"));
    std::thread::scope(|threads| {
        let late = threads.spawn(|| map.flush());
        server.restart();
        other.number(0).store(2, Ordering::Relaxed);
        other.flush().unwrap();
        first.resume();
        assert_eq!(late.join().unwrap(), Err(Errno::IO));
    });
    drop((map, other));
    assert_eq!(stored(&second, 0), 2);
}

#[test]
fn a_mapping_that_is_lost_for_good_keeps_no_other_from_going() {
    let Some((mut server, first, second)) = two_mounts() else { return };
    let gone = Mapped::new(&first.path().join("f"));
    gone.number(0).store(1, Ordering::Relaxed);
    // A server that was started again does not know of files without a name.
    fs::remove_file(first.path().join("f")).unwrap();
    server.restart();
    fs::write(first.path().join("g"), vec![0; LEN]).unwrap();
    let maps = [&first, &second].map(|mount| Mapped::new(&mount.path().join("g")));
    for round in 0..4 {
        assert_eq!(maps[round % 2].number(0).fetch_add(1, Ordering::Relaxed), round as u64);
    }
}

#[test]
fn faults_that_wait_keep_nobody_else_waiting() {
    const THREADS: usize = 100;
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let (first, silent) = (server.mount(""), server.mount_elsewhere());
    let names: Vec<String> = (0..THREADS).map(|n| format!("f{n}")).collect();
    for name in names.iter().map(String::as_str).chain(["g"]) {
        fs::write(first.path().join(name), vec![0; LEN]).unwrap();
    }
    let theirs: Vec<Mapped> = names.iter().map(|name| Mapped::new(&silent.path().join(name))).collect();
    theirs.iter().for_each(|map| map.number(0).store(1, Ordering::Relaxed));
    let ours: Vec<Mapped> = names.iter().map(|name| Mapped::new(&first.path().join(name))).collect();
    silent.pause();
    let waiting = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        let waiters: Vec<_> = ours
            .iter()
            .map(|map| {
                threads.spawn(|| {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    map.number(0).fetch_add(1, Ordering::Relaxed)
                })
            })
            .collect();
        while waiting.load(Ordering::Relaxed) < THREADS {
            std::thread::yield_now();
        }
        // Read ahead, and written back, while they wait.
        let other = Mapped::new(&first.path().join("g"));
        for page in 0..PAGES {
            assert_eq!(other.number(page).fetch_add(1, Ordering::Relaxed), 0);
        }
        other.flush().unwrap();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        silent.resume();
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap() == 1));
    });
}
