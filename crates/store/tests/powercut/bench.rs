//! Where a store stands in these tests: directories on an ext4 file system on a [`Disk`], mounted for this thread
//! and its children alone.

use crate::disk::Disk;
use isonomia_store::{StoreConfig, TargetDir};
use isonomia_units::{ServerId, TargetId};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the files of a dropped store may be open.
const CLOSING_MS_MAX: u32 = 20_000;

/// A disk with a file system.
pub struct Bench {
    pub disk: Disk,
    root: PathBuf,
    // Removed last: nothing is mounted below it any more.
    _dir: tempfile::TempDir,
}

impl Bench {
    /// A disk with an empty file system; or why there cannot be one here.
    pub fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount a file system".to_owned());
        }
        for device in ["/dev/fuse", "/dev/loop-control"] {
            let opened = std::fs::OpenOptions::new().read(true).write(true).open(device);
            opened.map_err(|error| format!("{device} cannot be opened: {error}"))?;
        }
        own_mounts()?;
        // As the server does.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let dir = tempfile::Builder::new().prefix("isonomia-powercut").tempdir().map_err(|e| e.to_string())?;
        let (place, root) = (dir.path().join("disk"), dir.path().join("mounted"));
        std::fs::create_dir(&place).and_then(|()| std::fs::create_dir(&root)).map_err(|e| e.to_string())?;
        let disk = Disk::start(&place)?;
        // The disk must not see the file system that lies on it. If this process is killed, the last one that sees it
        // unmounts it, and a disk that did so would wait for itself: nothing on the host could be synced any more.
        own_mounts()?;
        // Everything is written now: later writes are the store's.
        let now = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let file = disk.file();
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-N", "4096", "-J", "size=4", "-E", now], &file, None)?;
        let bench = Self { disk, root, _dir: dir };
        bench.mount()?;
        bench.unmount();
        Ok(bench)
    }

    /// Mounts the file system; the kernel brings it up to its journal.
    pub fn mount(&self) -> Result<(), String> {
        run("mount", &["-t", "ext4", "-o", "loop"], &self.disk.file(), Some(&self.root))
    }

    /// Unmounts it. A database that was dropped closes its last files a moment later, which is waited for.
    pub fn unmount(&self) {
        for _ in 0..CLOSING_MS_MAX {
            match rustix::mount::unmount(&self.root, UnmountFlags::empty()) {
                Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(1)),
                other => return other.unwrap(),
            }
        }
        panic!("files of the store are open {CLOSING_MS_MAX} ms after it was dropped");
    }

    /// Where the file system is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A store with two targets on the disk, one of which is used past the page cache, and the other one by writes that ask for it.
    pub fn config(&self) -> StoreConfig {
        let target = |i| TargetDir { id: TargetId(i), dir: self.root.join(format!("target{i}")) };
        let mut config = StoreConfig::new(self.root.join("store"), ServerId(0), (0..2).map(target).collect());
        config.default_layout.stripe_bytes = 4096;
        config.default_layout.stripe_count = 2;
        config.direct = vec![TargetId(1)];
        config.direct_on_request = vec![TargetId(0)];
        // The disk loses its power, and the host does not.
        config.host_start = Some(String::new());
        config
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A test that failed may have left it mounted, and in use.
        let _ = rustix::mount::unmount(&self.root, UnmountFlags::DETACH);
    }
}

/// From here on this thread and its children see mounts of their own: what they mount ends with the last of them, however
/// that ends.
fn own_mounts() -> Result<(), String> {
    // SAFETY: the flag gives this thread its own mounts, root and working directory; no descriptor table or memory is
    // affected.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .and_then(|()| rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC))
        .map_err(|error| format!("no mounts of one's own: {error}"))
}

fn run(program: &str, words: &[&str], first: &Path, second: Option<&Path>) -> Result<(), String> {
    let output = Command::new(program).args(words).arg(first).args(second).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
