//! What the store costs by itself: no transport, no arbiter. One JSON object a line.
//!
//! `cargo bench -p isonomia-store [-- DIR [WHAT]]`; the default directory is in memory, and the tmpfs calls that the
//! store makes are measured beside it on the same directory. With WHAT only rows whose name contains it are measured.

use isonomia_proto::fs::{Timestamp, access};
use isonomia_store::{Caller, OpenHow, Store, StoreConfig, TargetDir};
use isonomia_units::{Ino, ServerId, TargetId};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const FILES: usize = 20_000;
const SMALL_OPS: usize = 200_000;
const LARGE_OPS: usize = 2_000;
const FILE_BYTES: u64 = 64 << 20;
const REPEATS: usize = 5;

fn main() {
    let base = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_else(|| "/dev/shm".to_owned());
    let dir = tempfile::tempdir_in(base).expect("a directory to work in");
    let target = TargetDir { id: TargetId(0), dir: dir.path().join("t0") };
    let config = StoreConfig::new(dir.path().join("store"), ServerId(0), vec![target]);
    let store = Store::open(&config).expect("store");
    for threads in [1, 2] {
        metadata(&store, threads);
        data(&store, threads);
    }
    host(dir.path());
}

fn metadata(store: &Store, threads: usize) {
    let now = Timestamp::new(1, 0).expect("valid");
    let how = OpenHow { access: access::WRITE, create: true, exclusive: true, mode: 0o644, ..OpenHow::default() };
    let root = Ino::ROOT;
    let user = Caller { uid: 1000, gid: 1000, groups: &[] };
    let dirs: Vec<String> = (0..threads).map(|t| format!("dir{t}")).collect();
    for dir in &dirs {
        store.mkdir(&user, root, dir.as_bytes(), 0o755, now).expect("mkdir");
    }
    let path = |t: usize, i: usize| format!("{}/file{i}", dirs[t]).into_bytes();
    for _ in 0..REPEATS {
        measure("create", threads, FILES, |t, i| {
            let opened = store.open_file(&user, root, &path(t, i), &how, now).expect("create");
            store.release(opened.ino).expect("release");
        });
        measure("stat", threads, FILES, |t, i| {
            store.get_attr(&user, root, &path(t, i), true).expect("stat");
        });
        measure("unlink", threads, FILES, |t, i| store.unlink(&user, root, &path(t, i), now).expect("unlink"));
        measure("create and write 4 KiB", threads, FILES, |t, i| {
            let opened = store.open_file(&user, root, &path(t, i), &how, now).expect("create");
            store.write(opened.ino, 0, &[7; 4096], now).expect("write");
            store.release(opened.ino).expect("release");
        });
        measure("unlink written", threads, FILES, |t, i| store.unlink(&user, root, &path(t, i), now).expect("unlink"));
    }
    for dir in &dirs {
        store.rmdir(&user, root, dir.as_bytes(), now).expect("rmdir");
    }
}

fn data(store: &Store, threads: usize) {
    let now = Timestamp::new(1, 0).expect("valid");
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    let inos: Vec<Ino> = (0..threads)
        .map(|t| store.open_file(&Caller::ROOT, Ino::ROOT, format!("data{t}").as_bytes(), &how, now).expect("open").ino)
        .collect();
    let large = vec![7u8; 1 << 20];
    let small = vec![7u8; 4096];
    for _ in 0..REPEATS {
        measure("write 1 MiB", threads, LARGE_OPS, |t, i| {
            store.write(inos[t], (i as u64) << 20 & (FILE_BYTES - 1), &large, now).expect("write");
        });
        measure("write 4 KiB", threads, SMALL_OPS, |t, i| {
            store.write(inos[t], scatter(i), &small, now).expect("write");
        });
        with_buffer("read 4 KiB", threads, SMALL_OPS, 4096, |t, i, buf| {
            store.read(inos[t], scatter(i), buf).expect("read");
        });
        with_buffer("read 1 MiB", threads, LARGE_OPS, 1 << 20, |t, i, buf| {
            store.read(inos[t], (i as u64) << 20 & (FILE_BYTES - 1), buf).expect("read");
        });
    }
    for (t, ino) in inos.iter().enumerate() {
        store.release(*ino).expect("release");
        store.unlink(&Caller::ROOT, Ino::ROOT, format!("data{t}").as_bytes(), now).expect("unlink");
    }
}

/// The same calls on the host file system, without the store.
fn host(dir: &Path) {
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(dir.join("host")).expect("file");
    file.set_len(FILE_BYTES).expect("size");
    let small = vec![7u8; 4096];
    for i in 0..FILE_BYTES / 4096 {
        file.write_all_at(&small, i * 4096).expect("fill");
    }
    for _ in 0..REPEATS {
        measure("host write 4 KiB", 1, SMALL_OPS, |_, i| file.write_all_at(&small, scatter(i)).expect("write"));
        with_buffer("host read 4 KiB", 1, SMALL_OPS, 4096, |_, i, buf| {
            file.read_exact_at(buf, scatter(i)).expect("read");
        });
    }
}

/// The offset of the `i`th small access: all over the file, never the neighbour of the last.
fn scatter(i: usize) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) & (FILE_BYTES - 1) & !4095
}

fn measure(what: &str, threads: usize, ops: usize, work: impl Fn(usize, usize) + Sync) {
    with_buffer(what, threads, ops, 0, |t, i, _| work(t, i));
}

fn with_buffer(what: &str, threads: usize, ops: usize, len: usize, work: impl Fn(usize, usize, &mut [u8]) + Sync) {
    let wanted = std::env::args().skip(1).filter(|a| !a.starts_with('-')).nth(1);
    if wanted.is_some_and(|wanted| !what.contains(&wanted)) {
        return;
    }
    let start = Instant::now();
    let run = |t: usize| {
        let mut buf = vec![0; len];
        let before = thread_cpu_ns();
        (0..ops).for_each(|i| work(t, i, &mut buf));
        thread_cpu_ns() - before
    };
    let run = &run;
    let cpu_ns: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        workers.into_iter().map(|w| w.join().expect("a worker")).sum()
    });
    let seconds = start.elapsed().as_secs_f64();
    let all = threads * ops;
    let line = serde_json::json!({ "what": what, "threads": threads, "ops": all,
        "per_s": (all as f64 / seconds).round(), "cpu_ns_per_op": cpu_ns / all as u64 });
    println!("{line}");
}

/// Processor time of this thread: what an operation costs whatever else the machine does.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
