//! Whether a directory can keep files at all: said before anything is tried there, in words and not as an errno.

use isonomia_store::first_there;
use rustix::fs::{FileType, stat, statfs};
use std::path::{Path, PathBuf};

/// File systems of the kernel's own, by the numbers of statfs(2). What is in them are no files.
const KERNELS_OWN: [(u64, &str); 12] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x1cd1, "devpts"),
    (0xcafe_4a11, "bpf"),
    (0x6265_6570, "configfs"),
    (0x6165_676c, "pstore"),
    (0xf97c_ff8c, "selinuxfs"),
];

/// tmpfs and ramfs, by the same numbers.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A directory that cannot keep files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadDirectory {
    /// It is the kernel's.
    #[error(
        "files cannot be kept in {dir}: {kind} is a file system of the kernel's own (allowed: a directory on a disk or in \
         memory)"
    )]
    Kernels {
        /// What was asked for.
        dir: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// Something else than a directory has its name, or that of a directory above it.
    #[error("files cannot be kept in {dir}: {file} is no directory")]
    File {
        /// What was asked for.
        dir: PathBuf,
        /// What is in the way.
        file: PathBuf,
    },
}

/// Looks at `dir`, or at what there is of the way to it.
pub fn check(dir: &Path) -> Result<(), BadDirectory> {
    let there = first_there(dir);
    // Where this process may not even look, creating the directory fails with an error that says so.
    let Some((path, found)) = there else { return Ok(()) };
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(BadDirectory::File { dir: dir.to_owned(), file: path.to_owned() });
    }
    let number = kind_number(path);
    let kind = KERNELS_OWN.iter().find(|(own, _)| *own == number).map(|(_, kind)| *kind);
    let devices = || is_of_devices(found.st_dev).then_some("devtmpfs");
    match kind.or_else(devices) {
        Some(kind) => Err(BadDirectory::Kernels { dir: dir.to_owned(), kind }),
        None => Ok(()),
    }
}

/// Whether a file system is the one of the device files, which calls itself one in memory; `/dev/shm` is another.
fn is_of_devices(device: u64) -> bool {
    let device_of = |path: &str| stat(path).map(|found| found.st_dev);
    device_of("/dev") == Ok(device) && device_of("/") != Ok(device)
}

/// Whether the files in a directory, or in one that is made below it, are in memory and nowhere else.
pub fn is_memory(dir: &Path) -> bool {
    first_there(dir).is_some_and(|(path, _)| IN_MEMORY.contains(&kind_number(path)))
}

fn kind_number(path: &Path) -> u64 {
    statfs(path).map_or(0, |found| found.f_type as u64 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known() {
        assert!(is_memory(Path::new("/dev/shm/not/there/yet")));
        assert!(!is_memory(Path::new("/proc")));
    }

    #[test]
    fn what_keeps_no_files_is_named() {
        for dir in ["/proc", "/proc/self/fdinfo/x/y"] {
            let error = check(Path::new(dir)).unwrap_err().to_string();
            assert!(error.contains(dir) && error.contains("proc is a file system of the kernel's own"), "{error}");
        }
        if stat("/dev").unwrap().st_dev != stat("/").unwrap().st_dev {
            let error = check(Path::new("/dev/isonomia")).unwrap_err().to_string();
            assert!(error.contains("/dev/isonomia: devtmpfs is"), "{error}");
        }
        let error = check(Path::new("/dev/null/x")).unwrap_err();
        assert_eq!(error, BadDirectory::File { dir: "/dev/null/x".into(), file: "/dev/null".into() });
        for good in ["/", "/tmp/not/there/yet", "/dev/shm/isonomia", "relative", ""] {
            assert_eq!(check(Path::new(good)), Ok(()), "{good}");
        }
    }
}
