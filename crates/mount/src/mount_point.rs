//! Mount points: what is mounted where, dead mounts, unmounting.

use crate::options::Options;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The type that the kernel shows our mounts with.
pub const FILE_SYSTEM_TYPE: &str = "fuse.isonomia";
/// What lets ordinary users mount and unmount, and where it is if the search path does not say.
const FUSERMOUNT: &str = "fusermount3";
const FUSERMOUNT_PATH: &str = "/bin/fusermount3";

/// A mount point that cannot be used, or given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountPointError {
    /// It is not there, or what is there is something else.
    #[error("cannot mount at {path}: {error}", path = .path.display())]
    Unusable {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A mount of ours is there, and alive.
    #[error("{} is mounted already", .0.display())]
    Mounted(PathBuf),
    /// There is no mount of ours.
    #[error("nothing of Isonomia's is mounted at {}", .0.display())]
    NotMounted(PathBuf),
    /// It cannot be unmounted while programs use it.
    #[error("{} is in use: end the programs that use it, or detach it with --lazy", .0.display())]
    Busy(PathBuf),
    /// It cannot be made read-only while programs have files open for writing.
    #[error("{} is in use: programs have files open for writing", .0.display())]
    Written(PathBuf),
    /// Only root may change the options of a mount.
    #[error("cannot change the mount at {}: only root may; unmount it, and mount it again", .0.display())]
    NotRoot(PathBuf),
    /// Nobody may do it but root and `fusermount3`, which is not installed.
    #[error("{FUSERMOUNT} is not installed: ordinary users need it (Debian: apt-get install fuse3)")]
    FusermountMissing,
    /// It was tried, and failed.
    #[error("cannot change the mount at {path}: {errno}", path = .path.display())]
    Unchanged {
        /// Where.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// It was tried, and failed.
    #[error("cannot unmount {path}: {reason}", path = .path.display())]
    Failed {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Makes `path` ready for a mount: it must be a directory without a living mount of ours; a dead one is cleared away.
/// Gives its absolute path.
pub fn prepare(path: &Path) -> Result<PathBuf, MountPointError> {
    let unusable = |error| MountPointError::Unusable { path: path.to_owned(), error };
    let mount_point = absolute(path).map_err(unusable)?;
    let ours = is_ours(&mount_point);
    match fs::metadata(&mount_point) {
        Err(error) if is_of_the_dead(&error) && ours => {
            tracing::info!(place = %mount_point.display(), "clearing away a mount whose process has ended");
            detach(&mount_point, true)?;
            fs::metadata(&mount_point).map_err(unusable)
        }
        Ok(_) if ours => return Err(MountPointError::Mounted(mount_point)),
        other => other.map_err(unusable),
    }
    .and_then(|found| if found.is_dir() { Ok(mount_point) } else { Err(unusable(Errno::NOTDIR.into())) })
}

/// Unmounts what is mounted at `path`; with `lazy` also when it is in use: it vanishes at once, and ends when the last
/// program has closed its files.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), MountPointError> {
    let mount_point = absolute(path).map_err(|_| MountPointError::NotMounted(path.to_owned()))?;
    if !is_ours(&mount_point) {
        return Err(MountPointError::NotMounted(mount_point));
    }
    detach(&mount_point, lazy)
}

/// Changes what may be done through the mount at `path` to what `options` say: whether files may be changed and programs
/// executed, and whether devices and set-id programs work. All else stays.
pub fn remount(path: &Path, options: &Options) -> Result<(), MountPointError> {
    let mount_point = absolute(path).map_err(|_| MountPointError::NotMounted(path.to_owned()))?;
    if !is_ours(&mount_point) {
        return Err(MountPointError::NotMounted(mount_point));
    }
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    rustix::mount::mount_remount(&mount_point, flags, c"").map_err(|errno| match errno {
        Errno::BUSY => MountPointError::Written(mount_point),
        Errno::PERM => MountPointError::NotRoot(mount_point),
        errno => MountPointError::Unchanged { path: mount_point, errno },
    })
}

/// Unmounts whatever is at `mount_point`.
pub fn detach(mount_point: &Path, lazy: bool) -> Result<(), MountPointError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mount_point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountPointError::Busy(mount_point.to_owned())),
        Err(Errno::PERM) => detach_as_user(mount_point, lazy),
        Err(errno) => Err(MountPointError::Failed { path: mount_point.to_owned(), reason: errno.to_string() }),
    }
}

fn detach_as_user(mount_point: &Path, lazy: bool) -> Result<(), MountPointError> {
    let run = |program| {
        let mut command = Command::new(program);
        command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mount_point).stdin(Stdio::null()).output()
    };
    let output = match run(FUSERMOUNT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => run(FUSERMOUNT_PATH),
        other => other,
    };
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountPointError::FusermountMissing,
        _ => MountPointError::Failed { path: mount_point.to_owned(), reason: error.to_string() },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if reason.contains("busy") {
        return Err(MountPointError::Busy(mount_point.to_owned()));
    }
    Err(MountPointError::Failed { path: mount_point.to_owned(), reason })
}

/// The path without links on the way to it. The last component is left as it is: a dead mount cannot be looked at.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if is_of_the_dead(&error) => {
            let path = std::path::absolute(path)?;
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
            Ok(fs::canonicalize(parent)?.join(name))
        }
        other => other,
    }
}

/// Whether an error says that a mount's process has ended: before it was asked, or while it was to answer.
fn is_of_the_dead(error: &io::Error) -> bool {
    [Errno::NOTCONN, Errno::CONNABORTED].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether the topmost mount at `mount_point` is one of ours.
pub fn is_ours(mount_point: &Path) -> bool {
    topmost(mount_point).ok().flatten().is_some_and(|found| found.kind == FILE_SYSTEM_TYPE.as_bytes())
}

/// What is mounted somewhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The type of file system.
    pub kind: Vec<u8>,
    /// The minor number of its device.
    pub minor: u32,
}

/// The topmost mount at `mount_point`, which is not looked at for it: nobody may serve it.
pub fn topmost(mount_point: &Path) -> io::Result<Option<Found>> {
    Ok(topmost_of(&fs::read("/proc/self/mountinfo")?, mount_point))
}

/// The last mount at `mount_point` in the form of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn topmost_of(mounts: &[u8], mount_point: &Path) -> Option<Found> {
    let mut lines = mounts.split(|b| *b == b'\n').rev();
    lines.find_map(|line| {
        let mut fields = line.split(|b| *b == b' ');
        let device = str::from_utf8(fields.nth(2)?).ok()?;
        let point = unescape(fields.nth(1)?);
        if OsStr::from_bytes(&point) != mount_point {
            return None;
        }
        fields.find(|field| *field == b"-")?;
        Some(Found { kind: fields.next()?.to_owned(), minor: device.split_once(':')?.1.parse().ok()? })
    })
}

/// Blanks and such are written as `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|digits| digits.iter().all(|b| matches!(b, b'0'..=b'7')));
        rest = match octal.filter(|_| *first == b'\\') {
            Some(digits) => {
                out.push(digits.iter().fold(0u8, |n, digit| n.wrapping_mul(8).wrapping_add(digit - b'0')));
                &after[3..]
            }
            None => {
                out.push(*first);
                after
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let mounts = b"22 1 0:2 / / rw - ext4 /dev/vda rw\n\
                       30 22 0:40 / /mnt/a\\040b rw,nosuid shared:7 - fuse.isonomia unix:/s rw\n\
                       31 22 0:41 / /mnt/c rw - fuse.isonomia x rw\n\
                       32 31 0:42 / /mnt/c rw master:1 - tmpfs tmpfs rw\n";
        let of = |mount_point: &str| topmost_of(mounts, Path::new(mount_point));
        assert_eq!(of("/mnt/a b"), Some(Found { kind: b"fuse.isonomia".to_vec(), minor: 40 }));
        assert_eq!(of("/mnt/c"), Some(Found { kind: b"tmpfs".to_vec(), minor: 42 }));
        assert_eq!(of("/mnt"), None);
    }

    #[test]
    fn only_directories_are_mount_points() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(prepare(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(prepare(&file).unwrap_err().to_string().contains("Not a directory"));
        assert!(prepare(&dir.path().join("absent")).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn what_is_not_ours_is_not_unmounted() {
        assert!(matches!(unmount(Path::new("/proc"), true), Err(MountPointError::NotMounted(_))));
    }
}
