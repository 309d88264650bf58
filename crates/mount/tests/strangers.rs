//! A mount of an ordinary user, whom the server trusts with nothing: whatever the kernel asks for begins at an inode, and
//! the mount has to prove that its user came there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestServer, can_mount_for_all, others_reach_the_build, skip};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::MountPropagationFlags;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const FUSE: &str = "/dev/fuse";
/// `nobody`: `fusermount3` mounts for users who have a name.
const USER: u32 = 65_534;

/// Everything that the kernel asks of an inode that it knows, deeper than the root.
const SCRIPT: &str = r#"
import fcntl, mmap, os, shutil, stat
os.umask(0o22)
os.makedirs("a/b/c"); os.chdir("a/b")
with open("c/f", "w") as file:
    file.write("content")
os.rename("c/f", "../g"); os.link("../g", "c/h"); os.symlink("../../g", "c/s")
print(open("c/s").read(), os.readlink("c/s"), os.stat("c/h").st_nlink, sorted(os.listdir("c")))
os.mkfifo("c/fifo"); print(stat.filemode(os.stat("c/fifo").st_mode))
os.chmod("c/h", 0o600); os.utime("c/h", (1, 2)); os.truncate("c/h", 3)
print(oct(os.stat("../g").st_mode), os.stat("../g").st_mtime > 2, open("../g").read(), os.access("c/h", os.X_OK))
os.setxattr("c/h", "user.a", b"1"); print(os.getxattr("c/h", "user.a"), os.listxattr("c/h")); os.removexattr("c/h", "user.a")
directory = os.open("c", os.O_RDONLY | os.O_DIRECTORY)
fd = os.open("h", os.O_RDWR, dir_fd=directory)
os.mkdir("d", dir_fd=directory); os.rename("d", "e", src_dir_fd=directory, dst_dir_fd=directory)
print(sorted(os.listdir(directory)), os.fstat(fd).st_size)
fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX); os.ftruncate(fd, 5000)
with mmap.mmap(fd, 5000) as shared:
    shared[4000:4005] = b"mapped"[:5]
    shared.flush()
os.fsync(fd); os.fsync(directory); print(os.pread(fd, 5, 4000), os.getcwd()[-4:])
os.fchmod(fd, 0); print(os.pread(fd, 3, 0))
os.unlink("c/h"); os.rmdir("c/e"); print(os.fstat(fd).st_nlink)
os.close(fd); os.chdir("../.."); shutil.rmtree("a"); print(os.listdir("."))
"#;

fn python(dir: &Path, script: &str) -> Output {
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(dir).uid(USER).gid(USER);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Gives this thread and the programs that it starts a `/dev/fuse` that everybody may open, if there is none; or says why not.
fn let_anybody_mount() -> Result<(), String> {
    let fuse = std::fs::metadata(FUSE).map_err(|error| format!("{FUSE}: {error}"))?;
    if fuse.permissions().mode() & 0o006 == 0o006 {
        return Ok(());
    }
    // SAFETY: the flag gives this thread its own mounts, root and working directory; no descriptor table or memory is
    // affected.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .and_then(|()| rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC))
        .map_err(|error| format!("no mounts of one's own: {error}"))?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let node = dir.path().join("fuse");
    rustix::fs::mknodat(CWD, &node, FileType::CharacterDevice, Mode::empty(), fuse.rdev())
        .and_then(|()| rustix::fs::chmod(&node, Mode::from_raw_mode(0o666)))
        .and_then(|()| rustix::mount::mount_bind(&node, FUSE))
        .map_err(|error| format!("no {FUSE} for everybody: {error}"))
}

#[test]
fn a_mount_proves_where_its_user_came() {
    if !can_mount_for_all() || !others_reach_the_build() {
        return;
    }
    if let Err(reason) = let_anybody_mount() {
        return skip(&reason);
    }
    let mut server = TestServer::start();
    let local = server.local();
    std::os::unix::fs::chown(&local, Some(USER), Some(USER)).unwrap();
    let mount = server.mount_as(USER);
    let dir = mount.path().to_owned();
    let expected = python(&local, SCRIPT);
    assert!(expected.status.success(), "{}", text(&expected));
    assert_eq!(text(&python(&dir, SCRIPT)), text(&expected));
    // What the kernel knows it knows for longer than a server lives.
    let deep = "import os; os.makedirs('x/y/z'); open('x/y/z/f', 'w').write('kept'); print(os.stat('x/y/z/f').st_size)";
    assert_eq!(text(&python(&dir, deep)), "4\n");
    server.restart();
    let after = "import os; os.chdir('x/y'); print(open('z/f').read(), os.listdir('.')); os.mkdir('z/more')";
    assert_eq!(text(&python(&dir, after)), "kept ['z']\n");
}
