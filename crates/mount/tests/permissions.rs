//! What the kernel decides by itself about the files of a mount, as on a local file system. As root only: it takes several
//! users.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{PREFIX, TestServer, can_mount, can_mount_for_all, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `says` prints what becomes of a call that a user with these groups makes.
const PROLOGUE: &str = r#"
import ctypes, errno, os, signal, socket, stat, subprocess, sys
signal.alarm(100)
os.umask(0)
libc = ctypes.CDLL(None, use_errno=True)

def says(what, call, *arguments, uid=12345, groups=()):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setgroups(groups); os.setgid(uid); os.setuid(uid)
        try:
            call(*arguments)
            print(what, "done")
        except OSError as error:
            print(what, errno.errorcode[error.errno])
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)

def make(name, mode, content=b""):
    with open(name, "wb") as file:
        file.write(content)
    os.chmod(name, mode)

def connect(name):
    socket.socket(socket.AF_UNIX).connect(name)

def watch(name):
    if libc.inotify_add_watch(libc.inotify_init(), name.encode(), 2) < 0:
        raise OSError(ctypes.get_errno(), name)

def run(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise OSError(errno.EIO, done.stderr)
"#;

/// What a script prints in `dir`.
fn python(dir: &Path, script: &str) -> String {
    let output = Command::new("python3").args(["-c", &format!("{PROLOGUE}{script}")]).current_dir(dir).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script in a local directory and in a mount for everybody, and compares; gives what it printed.
fn compare(words: &str, script: &str) -> Option<String> {
    if !can_mount_for_all() {
        return None;
    }
    let server = TestServer::start();
    let mount = server.mount(&format!("allow_other,{words}"));
    let [expected, actual] = [server.local().as_path(), mount.path()].map(|dir| {
        fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        python(dir, script)
    });
    assert_eq!(actual, expected);
    Some(actual)
}

#[test]
fn what_the_kernel_opens_itself_is_opened_with_permission_only() {
    let printed = compare(
        "dev",
        r#"
for mode in [0o600, 0o640, 0o604, 0o666]:
    os.mkfifo("fifo", mode); os.chown("fifo", 0, 777)
    os.mknod("device", stat.S_IFCHR | mode, os.makedev(1, 3)); os.chown("device", 0, 777)
    listener = socket.socket(socket.AF_UNIX); listener.bind("socket"); listener.listen()
    os.chmod("socket", mode); os.chown("socket", 0, 777)
    for groups in [(), (777,)]:
        what = f"{mode:o} {groups}"
        says(f"fifo {what}", os.open, "fifo", os.O_RDONLY | os.O_NONBLOCK, groups=groups)
        says(f"fifo to write {what}", os.open, "fifo", os.O_RDWR, groups=groups)
        says(f"device {what}", os.open, "device", os.O_RDONLY, groups=groups)
        says(f"socket {what}", connect, "socket", groups=groups)
        says(f"watch {what}", watch, "device", groups=groups)
    for name in ["fifo", "device", "socket"]:
        os.unlink(name)
"#,
    );
    assert!(printed.is_none_or(|printed| printed.contains("fifo 600 () EACCES")));
}

#[test]
fn who_may_not_read_may_not_watch() {
    compare(
        "",
        r#"
make("file", 0o600); os.mkdir("directory", 0o711)
for name in ["file", "directory"]:
    says(name, watch, name)
    says(f"{name}, its owner", watch, name, uid=0)
"#,
    );
}

/// What the administrator may have the kernel protect in directories for all, as this test has it set; as it was before once
/// dropped. Other processes that have it so wait meanwhile.
struct Protections {
    before: Vec<(String, String)>,
    _lock: fs::File,
}

impl Protections {
    const NAMES: [&str; 3] = ["protected_symlinks", "protected_regular", "protected_fifos"];

    /// Nothing where this process may not.
    fn set(value: &str) -> Option<Self> {
        let paths = Self::NAMES.map(|name| format!("/proc/sys/fs/{name}"));
        let lock = fs::File::open(&paths[0]).ok()?;
        lock.lock().unwrap();
        let mut protections = Self { before: Vec::new(), _lock: lock };
        for path in paths {
            let before = fs::read_to_string(&path).ok()?;
            fs::write(&path, value).ok()?;
            protections.before.push((path, before));
        }
        Some(protections)
    }
}

impl Drop for Protections {
    fn drop(&mut self) {
        for (path, before) in &self.before {
            if let Err(error) = fs::write(path, before) {
                eprintln!("{path} was {before:?} and stays changed: {error}");
            }
        }
    }
}

#[test]
fn directories_for_all_are_protected_as_elsewhere() {
    if !can_mount_for_all() {
        return;
    }
    for (value, outcome) in [("0", "done"), ("1", "EACCES")] {
        let Some(_protections) = Protections::set(value) else {
            return skip("this process may not set fs.protected_symlinks");
        };
        let printed = compare("", PROTECTED).unwrap();
        let [link, root, file, fifo] = [
            "all: a stranger's link is followed",
            "all: root follows it",
            "all: a stranger's file is created over",
            "all: a stranger's FIFO is created over",
        ]
        .map(|what| format!("{what} {outcome}\n"));
        let is_told = |line: &String| printed.contains(line.as_str());
        assert!([link, root, file, fifo].iter().all(is_told), "protected by {value}: {printed}");
        // The last one finds removed what the one before it removed.
        let plain = printed.lines().filter(|line| line.starts_with("plain:") && line.ends_with("done"));
        assert_eq!(plain.count(), 8, "protected by {value}: {printed}");
    }
}

const PROTECTED: &str = r#"
os.mkdir("all", 0o1777); os.mkdir("plain", 0o777)
make("mine", 0o600); make("target", 0o666)
for where in ["all", "plain"]:
    says(f"link in {where}", os.link, "mine", f"{where}/link")
    says(f"link of all's in {where}", os.link, "target", f"{where}/link2")
    says(f"{where}: a stranger's link is made", os.symlink, "../target", f"{where}/trap", uid=12346)
    says(f"{where}: a stranger's link is followed", os.open, f"{where}/trap", os.O_RDONLY)
    says(f"{where}: root follows it", os.open, f"{where}/trap", os.O_RDONLY, uid=0)
    says(f"{where}: a stranger's file is made", make, f"{where}/planted", 0o666, uid=12346)
    says(f"{where}: a stranger's file is created over", os.open, f"{where}/planted", os.O_RDWR | os.O_CREAT)
    says(f"{where}: a stranger's FIFO is made", os.mkfifo, f"{where}/fifo", 0o666, uid=12346)
    says(f"{where}: a stranger's FIFO is created over", os.open, f"{where}/fifo", os.O_RDWR | os.O_CREAT)
    says(f"{where}: a stranger's file is removed", os.unlink, f"{where}/planted")
    says(f"{where}: a stranger's file is renamed", os.rename, f"{where}/planted", f"{where}/other")
"#;

#[test]
fn a_change_of_permissions_counts_at_once_wherever_it_was_made() {
    if !can_mount_for_all() {
        return;
    }
    let server = TestServer::start();
    let (mount, other) = (server.mount("allow_other"), server.mount_elsewhere());
    fs::set_permissions(mount.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let script = format!(
        r#"
elsewhere = {:?}
os.mkfifo("fifo", 0o600); os.mkdir("directory", 0o700); make("directory/file", 0o644)
def look():
    says("fifo", os.open, "fifo", os.O_RDONLY | os.O_NONBLOCK)
    says("access", lambda: os.access("fifo", os.R_OK) or os.open("fifo", os.O_RDONLY | os.O_NONBLOCK))
    says("directory", os.stat, "directory/file")
    says("its list", os.listdir, "directory")
for round in range(20):
    look()
    os.chmod(f"{{elsewhere}}/fifo", 0o644); os.chmod(f"{{elsewhere}}/directory", 0o755)
    look()
    os.chmod(f"{{elsewhere}}/fifo", 0o600); os.chmod(f"{{elsewhere}}/directory", 0o700)
"#,
        other.path()
    );
    let round = |word| ["fifo", "access", "directory", "its list"].map(|what| format!("{what} {word}\n")).concat();
    assert_eq!(python(mount.path(), &script), [round("EACCES"), round("done")].concat().repeat(20));
}

#[test]
fn programs_run_for_those_who_may_execute_them_and_are_read_by_those_who_may_read_them() {
    let printed = compare(
        "",
        r##"
import shutil
def make_program(name, mode):
    shutil.copy("/bin/cat", name); os.chown(name, 0, 777); os.chmod(name, mode)
    make(f"{name}.sh", mode, b"#!/bin/sh\necho script\n"); os.chown(f"{name}.sh", 0, 777)
for mode in [0o111, 0o711, 0o755, 0o744, 0o710, 0o701, 0o610, 0o600]:
    name = f"p{mode:o}"
    make_program(name, mode)
    for uid, groups in [(12345, ()), (12345, (777,)), (0, ())]:
        what = f"{name} {uid} {groups}"
        says(f"run {what}", run, f"./{name}", "/dev/null", uid=uid, groups=groups)
        says(f"run {what} that reads itself", run, f"./{name}", "/proc/self/exe", uid=uid, groups=groups)
        says(f"run {what} from elsewhere", run, sys.executable, "-c", f"import os; os.execv('./{name}', ['x', '/dev/null'])",
             uid=uid, groups=groups)
        says(f"script {what}", run, f"./{name}.sh", uid=uid, groups=groups)
        says(f"read {what}", os.open, name, os.O_RDONLY, uid=uid, groups=groups)
        says(f"write {what}", os.open, name, os.O_WRONLY, uid=uid, groups=groups)
        says(f"path {what}", os.open, name, os.O_PATH, uid=uid, groups=groups)
        says(f"copy {what}", run, "cp", name, "/dev/null", uid=uid, groups=groups)
"##,
    );
    let runs = "run p111 12345 () done\nrun p111 12345 () that reads itself EIO\n";
    assert!(printed.is_none_or(|printed| printed.contains(runs)));
}

/// What becomes of the mode of one's own file.
const SET_ID_BITS: &str = r#"
def write(name): os.write(os.open(name, os.O_WRONLY), b"x")
def truncate(name): os.truncate(name, 1)
def cut(name): os.ftruncate(os.open(name, os.O_RDWR), 0)
def over(name): os.open(name, os.O_WRONLY | os.O_TRUNC)
def extend(name): os.ftruncate(os.open(name, os.O_RDWR), 100)
def give(name): os.chown(name, -1, 777)
def keep(name): os.chown(name, -1, 12345)
def touch(name): os.utime(name)
def share(name): os.chmod(name, stat.S_IMODE(os.stat(name).st_mode) | 0o040)
for mode in [0o4755, 0o6755, 0o2755, 0o2745, 0o2666, 0o6666, 0o1644, 0o7777]:
    for change in [write, truncate, cut, over, extend, give, keep, touch, share]:
        name = f"{mode:o}-{change.__name__}"
        make(name, 0o600, b"before"); os.chown(name, 12345, 12345); os.chmod(name, mode)
        says(name, change, name, groups=(12345, 777))
        print(f"{stat.S_IMODE(os.stat(name).st_mode):o}")
"#;

#[test]
fn set_id_bits_go_when_linux_takes_them() {
    let Some(expected) = compare("", SET_ID_BITS) else { return };
    let server = TestServer::start();
    let script = format!("{PROLOGUE}\nos.chmod('{PREFIX}', 0o755); os.chdir('{PREFIX}')\n{SET_ID_BITS}");
    let preloaded = server.command("python3").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&preloaded.stdout), expected, "{}", String::from_utf8_lossy(&preloaded.stderr));
}

/// As on file systems that have neither access control lists nor capabilities of files.
#[test]
fn attributes_that_are_not_the_users_are_refused() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let script = r#"
make("file", 0o644); os.mkdir("directory")
acl = bytes.fromhex("02000000 01000600ffffffff 04000400ffffffff 20000400ffffffff")
values = {"security.capability": bytes.fromhex("01000002 00200000 00000000 00000000 00000000"), "system.posix_acl_access": acl,
          "system.posix_acl_default": acl, "trusted.a": b"x", "security.a": b"x"}
def outcome(call, *arguments):
    try: return call(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
for name, value in values.items():
    print(name, outcome(os.setxattr, "directory", name, value), outcome(os.getxattr, "file", name), outcome(os.removexattr, "directory", name))
os.setxattr("file", "user.a", b"x"); print(os.listxattr("file"))
"#;
    let refused = |name| format!("{name} ENOTSUP ENOTSUP ENOTSUP\n");
    let names =
        ["security.capability", "system.posix_acl_access", "system.posix_acl_default", "trusted.a", "security.a"];
    assert_eq!(python(mount.path(), script), format!("{}['user.a']\n", names.map(refused).concat()));
}
