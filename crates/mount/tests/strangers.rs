//! A mount of an ordinary user, whom the server trusts with nothing: whatever the kernel asks for begins at an inode, and
//! the mount has to prove that its user came there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestServer, can_mount_for_all, skip};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

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

fn python(place: &Path, script: &str) -> Output {
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(place).uid(USER).gid(USER);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn can_anybody_mount() -> bool {
    let mode = std::fs::metadata("/dev/fuse").unwrap().permissions().mode();
    let is_open = mode & 0o006 == 0o006;
    if !is_open {
        skip(&format!("the mode of /dev/fuse is {:o}; ordinary users can mount where it is 666", mode & 0o777));
    }
    is_open
}

#[test]
fn a_mount_proves_where_its_user_came() {
    if !can_mount_for_all() || !can_anybody_mount() {
        return;
    }
    let mut server = TestServer::start();
    let local = server.local();
    std::os::unix::fs::chown(&local, Some(USER), Some(USER)).unwrap();
    let mount = server.mount_as(USER);
    let place = mount.path().to_owned();
    let expected = python(&local, SCRIPT);
    assert!(expected.status.success(), "{}", text(&expected));
    assert_eq!(text(&python(&place, SCRIPT)), text(&expected));
    // What the kernel knows it knows for longer than a server lives.
    let deep = "import os; os.makedirs('x/y/z'); open('x/y/z/f', 'w').write('kept'); print(os.stat('x/y/z/f').st_size)";
    assert_eq!(text(&python(&place, deep)), "4\n");
    server.restart();
    let after = "import os; os.chdir('x/y'); print(open('z/f').read(), os.listdir('.')); os.mkdir('z/more')";
    assert_eq!(text(&python(&place, after)), "kept ['z']\n");
}
