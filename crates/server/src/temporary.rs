//! The directory of a server that was given none: it is gone with the server. That of one that was killed is removed by the next
//! server of the same user that is given none: it would take up memory until the host is started anew.

use crate::{METADATA, StartError, clock};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};
use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const PREFIX: &str = "isonomia-";
/// A file in each such directory, and in no other: whoever calls one of his own so keeps it.
const MARK: &str = ".isonomia-temporary";

/// A fresh directory in memory if there is one, else among the temporary files.
pub fn create() -> Result<PathBuf, StartError> {
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
    remove_left(&base);
    let unique = clock::now().0;
    let dir = base.join(format!("{PREFIX}{}-{unique:x}", std::process::id()));
    let created = std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir);
    match created.and_then(|()| std::fs::File::create(dir.join(MARK))) {
        Ok(_) => Ok(dir),
        Err(error) => Err(StartError::System { what: "cannot create a temporary directory", error }),
    }
}

/// It is served by who named it, and stays.
pub fn keep(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(MARK));
}

/// Removes it with all that is in it.
pub fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove the temporary directory");
    }
}

/// Removes those in `base` whose servers ended without doing so.
fn remove_left(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if is_left(&entry) {
            let dir = entry.path();
            tracing::info!(dir = %dir.display(), "a server that was killed left its temporary directory, which is removed");
            remove(&dir);
        }
    }
}

/// Whether it is the directory of a server of this user that has ended. The process is not enough to tell: a container has other
/// processes and may have the same memory. So nobody may have the store's lock either; before there is one a server has just begun.
fn is_left(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let Some(pid) = number.and_then(|(pid, _)| Pid::from_raw(pid.parse().ok()?)) else { return false };
    let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
    if !is_own || test_kill_process(pid) != Err(Errno::SRCH) {
        return false;
    }
    let dir = entry.path();
    dir.join(MARK).symlink_metadata().is_ok_and(|mark| mark.is_file()) && isonomia_store::is_left(&dir.join(METADATA))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_store::{Store, StoreConfig, TargetDir};
    use isonomia_units::{ServerId, TargetId};

    /// What the process `pid` left.
    fn dir_of(base: &Path, pid: u32) -> PathBuf {
        let dir = base.join(format!("{PREFIX}{pid}-1"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(MARK), "").unwrap();
        dir
    }

    fn open(dir: &Path) -> Store {
        let target = TargetDir { id: TargetId(0), dir: dir.join("target-0") };
        Store::open(&StoreConfig::new(dir.join(METADATA), ServerId(1), vec![target])).unwrap()
    }

    #[test]
    fn only_what_a_killed_server_left_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let ended = ended.id();
        let left = dir_of(base.path(), ended);
        drop(open(&left));
        let kept = [
            dir_of(base.path(), std::process::id()),
            base.path().join("isonomia-other"),
            base.path().join(format!("{PREFIX}{ended}")),
            base.path().join(format!("{PREFIX}{ended}x-1")),
            base.path().join(format!("other-{ended}-1")),
        ];
        drop(open(&kept[0]));
        for dir in &kept[1..] {
            drop(open(dir));
            std::fs::write(dir.join(MARK), "").unwrap();
        }
        // Somebody called one of his own like that, and somebody else serves what was left.
        let named = base.path().join(format!("{PREFIX}{ended}-4"));
        drop(open(&named));
        let served = base.path().join(format!("{PREFIX}{ended}-5"));
        drop(open(&served));
        std::fs::write(served.join(MARK), "").unwrap();
        keep(&served);
        // A server that has just begun, in a container, has no lock yet.
        let begun = base.path().join(format!("{PREFIX}{ended}-2"));
        std::fs::create_dir(&begun).unwrap();
        std::fs::write(begun.join(MARK), "").unwrap();
        let used = base.path().join(format!("{PREFIX}{ended}-3"));
        let store = open(&used);
        std::fs::write(used.join(MARK), "").unwrap();
        remove_left(base.path());
        assert!(!left.exists() && begun.is_dir() && used.is_dir() && named.is_dir() && served.is_dir());
        assert!(kept.iter().all(|dir| dir.is_dir()));
        drop(store);
        remove_left(base.path());
        assert!(!used.exists());
    }

    #[test]
    fn what_is_called_so_and_is_no_directory_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        drop(open(elsewhere.path()));
        std::fs::write(elsewhere.path().join(MARK), "").unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let link = base.path().join(format!("{PREFIX}{}-1", ended.id()));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        remove_left(base.path());
        assert!(link.is_symlink() && elsewhere.path().join(METADATA).is_dir());
    }
}
