//! The reference: a directory on a real file system, asked by a thread that can take any identity.
//!
//! As root the thread has the directory as its root, so that `..` ends where it does in the store, and switches its
//! effective ids for each call. Without root there is one identity and no way up.

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

type Job = Box<dyn FnOnce() + Send>;

/// Who runs an operation: uid, gid, supplementary groups.
#[derive(Clone, Copy, Debug)]
pub struct Who(pub u32, pub u32, pub &'static [u32]);

pub struct Kernel {
    jobs: Sender<Job>,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the host forbids links to what others keep to themselves, as the store does.
pub fn protects_links() -> bool {
    std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|value| value.trim() != "0")
}

impl Kernel {
    pub fn new(root: &Path) -> Self {
        let (jobs, queue) = channel::<Job>();
        let root = root.to_owned();
        std::thread::spawn(move || {
            if is_root() {
                // SAFETY: the flag gives this thread its own root and working directory; no descriptor table or
                // memory is affected.
                unsafe { thread::unshare_unsafe(thread::UnshareFlags::FS) }.expect("own root directory");
                rustix::process::chroot(&root).expect("chroot");
                rustix::process::chdir("/").expect("chdir");
            }
            queue.into_iter().for_each(|job| job());
        });
        Self { jobs }
    }

    /// Runs `call` as `who`.
    pub fn run<T: Send + 'static>(&self, who: Who, call: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, wait) = channel();
        let job = move || {
            let result = if is_root() { as_caller(who, call) } else { call() };
            answer.send(result).expect("the test waits");
        };
        self.jobs.send(Box::new(job)).expect("the thread runs as long as the test");
        wait.recv().expect("an answer")
    }
}

fn as_caller<T>(who: Who, call: impl FnOnce() -> T) -> T {
    let groups: Vec<Gid> = who.2.iter().map(|g| Gid::from_raw(*g)).collect();
    let (uid, gid) = (Uid::from_raw(who.0), Gid::from_raw(who.1));
    thread::set_thread_groups(&groups).expect("groups");
    thread::set_thread_res_gid(None, gid, None).expect("gid");
    thread::set_thread_res_uid(None, uid, None).expect("uid");
    let result = call();
    thread::set_thread_res_uid(None, Uid::ROOT, None).expect("uid back");
    thread::set_thread_res_gid(None, Gid::ROOT, None).expect("gid back");
    thread::set_thread_groups(&[]).expect("groups back");
    result
}

/// Names with their kinds (`st_mode` without permissions), sorted.
pub fn list(path: &str) -> Result<Vec<(Vec<u8>, u64)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let mut names = Vec::new();
    let mut buf = Vec::with_capacity(8192);
    let mut dir = rustix::fs::RawDir::new(fd, buf.spare_capacity_mut());
    while let Some(entry) = dir.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        names.push((name.to_vec(), if name == b".." { 0 } else { entry.ino() }));
    }
    names.sort();
    Ok(names)
}

pub fn stat(path: &str, follow: bool) -> Result<rustix::fs::Stat, Errno> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    rustix::fs::statat(rustix::fs::CWD, path, flags)
}
