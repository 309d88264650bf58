//! What programs see of a mount: the files of a local file system, those of other clients at once, their own
//! permissions, their own share, and an orderly end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestServer, can_mount, can_mount_for_all, isonomia};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Kind, permissions, size, links, target, and content of everything below the working directory. An archive contains the
/// time at which it was made.
const DUMP: &str = "find . -mindepth 1 -printf '%y %m %n %l %P\\n' | sort; find . -type f -printf '%s %P\\n' | sort; \
                    find . -type f ! -name '*.zip' -print0 | sort -z | xargs -0r md5sum";

/// Runs a script of the preload library's tests in a local directory and in the mount, and compares.
fn compare(script: &str) {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let scratch = tempfile::tempdir().unwrap();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/cases");
    let script = fs::read_to_string(cases.join(script)).unwrap();
    let run = |root: &Path, text: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", text]).current_dir(root).env("CASES", &cases).env("SCRATCH", scratch.path());
        let output = command.envs([("TZ", "UTC"), ("LC_ALL", "C.UTF-8")]).output().unwrap();
        printed(&output, root)
    };
    for text in [script.as_str(), DUMP] {
        let (expected, actual) = (run(&server.local(), text), run(mount.path(), text));
        let differs = expected.lines().zip(actual.lines()).find(|(e, a)| e != a);
        assert!(expected == actual, "locally {:?}, mounted {:?}", differs.map(|d| d.0), differs.map(|d| d.1));
        assert!(expected.ends_with("exit status: 0"), "{expected}");
    }
}

/// Everything a program said, with its directory's name taken out.
fn printed(output: &Output, root: &Path) -> String {
    let root = root.to_str().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).replace(root, "ROOT"));
    format!("{out}\n--- stderr\n{err}\n--- {}", output.status)
}

/// What a script prints in `dir`; it must not fail.
fn run_python(dir: &Path, script: &str) -> String {
    let output = Command::new("python3").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output, dir));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn coreutils() {
    compare("coreutils.sh");
}

#[test]
fn archives_and_copies() {
    compare("archive.sh");
}

#[test]
fn shell_redirection() {
    compare("bash.sh");
}

#[test]
fn python() {
    compare("python.sh");
}

#[test]
fn locks() {
    compare("locks.sh");
}

#[test]
fn extended_attributes() {
    compare("xattrs.sh");
}

#[test]
fn a_c_program() {
    compare("program.sh");
}

#[test]
fn two_mounts_see_each_others_bytes_and_names_at_once() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let path = mount.path().join("shared");
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let other = server.mount_elsewhere();
    let elsewhere = File::options().read(true).write(true).open(other.path().join("shared")).unwrap();
    for round in 0..50u8 {
        file.write_all_at(&[round; 100], u64::from(round) * 100).unwrap();
        let mut got = [0xff; 100];
        elsewhere.read_exact_at(&mut got, u64::from(round) * 100).unwrap();
        assert_eq!(got, [round; 100]);
        elsewhere.write_all_at(&[round ^ 0x55; 10], u64::from(round) * 100).unwrap();
        file.seek(SeekFrom::End(-100)).unwrap();
        let mut got = [0; 10];
        file.read_exact(&mut got).unwrap();
        assert_eq!(got, [round ^ 0x55; 10]);
        assert_eq!(fs::metadata(&path).unwrap().len(), (u64::from(round) + 1) * 100);
    }
    fs::rename(other.path().join("shared"), other.path().join("renamed")).unwrap();
    assert!(!path.exists() && mount.path().join("renamed").exists());
}

fn says(program: &mut Child, expected: &str) {
    let mut got = vec![0; expected.len()];
    program.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

#[test]
fn appends_of_many_writers_all_land() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let path = mount.path().join("log");
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for _ in 0..100 {
                    file.write_all(&[b'a' + writer; 1000]).unwrap();
                }
            });
        }
    });
    let log = fs::read(&path).unwrap();
    assert_eq!(log.len(), 400_000);
    for piece in log.chunks(1000) {
        assert!(piece.iter().all(|b| *b == piece[0]), "an append was torn");
    }
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let path = mount.path().join("gone");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    let mut got = [0; 10];
    file.read_exact_at(&mut got, 0).unwrap();
    assert_eq!(&got, b"still here");
    file.set_len(5).unwrap();
    let attributes = file.metadata().unwrap();
    assert_eq!((attributes.len(), attributes.nlink()), (5, 0));
}

#[test]
fn times_before_1970_and_far_after_are_kept_to_the_nanosecond() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let file = File::create(mount.path().join("f")).unwrap();
    let second = Duration::from_secs(1);
    for time in [
        UNIX_EPOCH,
        UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789),
        UNIX_EPOCH - Duration::from_millis(1_750),
        UNIX_EPOCH - Duration::from_nanos(1),
        UNIX_EPOCH - 1_600_000_000 * second,
        UNIX_EPOCH + 4_000_000_000 * second * 4,
    ] {
        file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
        let got = file.metadata().unwrap();
        assert_eq!((got.modified().unwrap(), got.accessed().unwrap()), (time, time));
    }
    assert!(file.set_modified(SystemTime::now()).is_ok());
}

#[test]
fn mapped_files_are_the_files() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let script = "import mmap, os\n\
                  fd = os.open('m', os.O_RDWR | os.O_CREAT)\n\
                  os.ftruncate(fd, 10000)\n\
                  shared = mmap.mmap(fd, 10000)\n\
                  shared[5000:5005] = b'hello'\n\
                  shared.flush()\n\
                  assert os.pread(fd, 5, 5000) == b'hello'\n\
                  os.pwrite(fd, b'world', 6000)\n\
                  assert shared[6000:6005] == b'world'\n\
                  private = mmap.mmap(fd, 10000, mmap.MAP_PRIVATE)\n\
                  assert private[5000:5005] == b'hello'\n";
    run_python(mount.path(), script);
}

/// Prints which parts of a file have data, and what a change of its space does.
const SPACE: &str = r#"
import ctypes, errno, mmap, os, shutil, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
KEEP, PUNCH, ZERO = 1, 2, 16
MB = 1 << 20
def extents(file):
    found, at = [], 0
    while True:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            return found, errno.errorcode[error.errno], os.fstat(file).st_size
        at = os.lseek(file, start, os.SEEK_HOLE)
        found.append((start, at))
def fallocate(file, mode, at, len):
    outcome = libc.fallocate(file, mode, ctypes.c_long(at), ctypes.c_long(len))
    print(f"fallocate {mode} {at} {len}", errno.errorcode[ctypes.get_errno()] if outcome else "done")
    # What has been read may count as data or not, as the file system likes; but nothing that was written is in a hole.
    found = extents(file)
    content = os.pread(file, 9 * MB, 0)
    written = content.count(b"x")
    print(found[1:], written, written == sum(content[a:b].count(b"x") for a, b in found[0]), os.fstat(file).st_blocks * 512 >= written)
file = os.open("sparse", os.O_RDWR | os.O_CREAT)
print(extents(file))
os.ftruncate(file, 4 * MB); print(extents(file), os.fstat(file).st_blocks)
os.pwrite(file, b"x" * MB, MB); os.pwrite(file, b"x", 6 * MB); print(extents(file))
for mode, at, len in [(KEEP, 2 * MB, MB), (0, 7 * MB, MB), (PUNCH | KEEP, MB + 4096, 8192), (PUNCH | KEEP, 100, 1 * MB), (ZERO, 8 * MB, 4096),
                      (ZERO | KEEP, MB, 9 * MB), (PUNCH, 0, 4096), (0, 0, 0), (0, -1, 5), (KEEP, 20 * MB, MB)]:
    fallocate(file, mode, at, len)
for at in [20 * MB, -1]:
    for whence in [os.SEEK_DATA, os.SEEK_HOLE]:
        try: print(os.lseek(file, at, whence))
        except OSError as error: print(errno.errorcode[error.errno])
os.posix_fallocate(file, 0, 12 * MB); print(os.fstat(file).st_size, os.fstat(file).st_blocks >= 12 * 2048)
reader = os.open("sparse", os.O_RDONLY); fallocate(reader, 0, 0, 100)
subprocess.run("truncate -s 8M holes; printf x | dd of=holes bs=1 seek=4M conv=notrunc status=none; cp --sparse=always holes copy; "
               "tar -Scf holes.tar holes; cmp holes copy; test $(stat -c %s holes.tar) -lt 100000; mkdir out; tar -xSf holes.tar -C out; "
               "cmp holes out/holes; test $(du -k out/holes | cut -f1) -lt 1000", shell=True, check=True)
"#;

#[test]
fn holes_and_space_are_as_on_a_local_file_system() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let [expected, actual] = [server.local().as_path(), mount.path()].map(|dir| run_python(dir, SPACE));
    assert_eq!(actual, expected);
}

/// What the local file system says of files without a name, line by line.
const UNNAMED: &str = r#"
import errno, os, stat, tempfile
def refused(what, *arguments, **names):
    try: return what(*arguments, **names)
    except OSError as error: return errno.errorcode[error.errno]
here = os.open(".", os.O_RDONLY)
# Python follows links only where it is given a directory.
def link(fd, name): return refused(os.link, f"/proc/self/fd/{fd}", name, src_dir_fd=here)
os.umask(0o027)
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666)
print(os.write(fd, b"kept"), os.pread(fd, 9, 0), os.listdir("."))
print(oct(os.fstat(fd).st_mode), os.fstat(fd).st_nlink, os.fstat(fd).st_size)
print(link(fd, "named"), os.fstat(fd).st_nlink, open("named", "rb").read(), link(fd, "again"), link(fd, "again"))
os.remove("named"); os.remove("again")
print(os.fstat(fd).st_nlink, os.pread(fd, 9, 0), os.listdir("."))
os.close(fd)
alone = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_EXCL, 0o600)
print(link(alone, "alone"), os.write(alone, b"x" * 5_000_000), os.listdir("."))
os.truncate(alone, 10); print(os.fstat(alone).st_size)
print(refused(os.open, ".", os.O_TMPFILE | os.O_RDONLY), refused(os.open, "none", os.O_TMPFILE | os.O_RDWR))
open("file", "w").close(); print(refused(os.open, "file", os.O_TMPFILE | os.O_RDWR))
print(refused(os.readlink, f"/proc/self/fd/{alone}").endswith(" (deleted)"))
file = tempfile.TemporaryFile(dir=".")
file.write(b"more"); file.seek(0); print(file.read(), os.fstat(file.fileno()).st_nlink, os.listdir("."))
many = [os.open(".", os.O_TMPFILE | os.O_RDWR) for _ in range(40)]
print(len({os.fstat(fd).st_ino for fd in many}), os.listdir("."))
"#;

#[test]
fn files_without_a_name_are_as_on_a_local_file_system() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let [expected, actual] = [server.local().as_path(), mount.path()].map(|dir| run_python(dir, UNNAMED));
    assert!(expected.starts_with("4 b'kept' []"), "the local file system has none: {expected}");
    assert_eq!(actual, expected);
}

#[test]
fn what_was_stored_in_a_mapped_hole_is_data() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let script = "import mmap, os\n\
                  fd = os.open('m', os.O_RDWR | os.O_CREAT)\n\
                  os.ftruncate(fd, 1 << 20)\n\
                  shared = mmap.mmap(fd, 1 << 20)\n\
                  shared[500000:500001] = b'x'\n\
                  assert os.lseek(fd, 0, os.SEEK_DATA) <= 500000 < os.lseek(fd, 500000, os.SEEK_HOLE)\n\
                  assert os.system('cp --sparse=auto m copy && cmp m copy') == 0\n";
    run_python(mount.path(), script);
}

/// As root only: a mount for everybody, used by two users.
#[test]
fn everybody_is_who_he_is() {
    if !can_mount_for_all() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("allow_other");
    let dir = mount.path();
    fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    let run = |uid: u32, groups: &str, script: &str| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.arg(if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") });
        command.args(["sh", "-c", script]).current_dir(dir).env("SLURM_JOB_ID", format!("job-of-{uid}"));
        let output = command.output().unwrap();
        output.status.success()
    };
    assert!(!run(12_345, "", "touch here 2>&-"), "the root directory is root's");
    fs::create_dir(dir.join("team")).unwrap();
    fs::set_permissions(dir.join("team"), PermissionsExt::from_mode(0o2770)).unwrap();
    std::os::unix::fs::chown(dir.join("team"), Some(0), Some(777)).unwrap();
    assert!(!run(12_345, "", "ls team 2>&-"));
    assert!(run(12_345, "777", "ls team && echo secret > team/f && chmod 600 team/f"));
    assert!(run(12_346, "777", "stat team/f > /dev/null"));
    assert!(!run(12_346, "777", "cat team/f 2>&-"), "the file is its owner's");
    let attribute = |change: &str| format!("python3 -c 'import os; os.{change}' 2>&-");
    let (set, get) =
        (attribute("setxattr(\"team/f\", \"user.a\", b\"\")"), attribute("getxattr(\"team/f\", \"user.a\")"));
    assert!(run(12_345, "777", &set) && run(12_345, "777", &get));
    assert!(!run(12_346, "777", &set) && !run(12_346, "777", &get), "and so are its attributes");
    assert!(run(12_345, "777", "chmod 644 team/f") && run(12_346, "777", &get) && !run(12_346, "777", &set));
    let found = fs::metadata(dir.join("team/f")).unwrap();
    assert_eq!((found.uid(), found.gid()), (12_345, 777));
    let status = isonomia().args(["status", "--json", "--server", &server.address()]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    for job in ["job-of-12345", "job-of-12346"] {
        assert!(status.contains(job), "{job} is not in {status}");
    }
}

#[test]
fn a_killed_mount_says_so_and_is_replaced() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mut mount = server.mount("");
    fs::write(mount.path().join("f"), b"kept").unwrap();
    mount.kill();
    let error = fs::read(mount.path().join("f")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    let again = server.mount("");
    assert_eq!(fs::read(again.path().join("f")).unwrap(), b"kept");
    let twice = isonomia().args(["mount", "--server", &server.address()]).arg(again.path()).output().unwrap();
    let said = String::from_utf8_lossy(&twice.stderr);
    assert!(!twice.status.success() && said.contains("mounted already") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_mount_ends_in_an_orderly_way() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mut mount = server.mount("");
    fs::write(mount.path().join("f"), b"kept").unwrap();
    assert!(mount.terminate());
    assert_eq!(fs::read_dir(server.mount_point()).unwrap().count(), 0, "the directory is itself again");
    let mut mount = server.mount("");
    let busy = File::open(mount.path().join("f")).unwrap();
    let unmount =
        |options: &[&str]| isonomia().arg("unmount").args(options).arg(server.mount_point()).output().unwrap();
    let refused = unmount(&[]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("in use"));
    assert!(unmount(&["--lazy"]).status.success());
    let mut content = String::new();
    (&busy).read_to_string(&mut content).unwrap();
    assert_eq!(content, "kept");
    drop(busy);
    assert!(mount.wait());
    assert!(!unmount(&[]).status.success());
}

/// As root only. A container, or a service with mounts of its own, keeps what was mounted when it was started.
#[test]
fn a_mount_that_another_name_space_keeps_ends_all_the_same() {
    if !can_mount_for_all() {
        return;
    }
    let server = TestServer::start();
    let mut mount = server.mount("");
    let mut keeper = Command::new("unshare");
    keeper.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read end"]);
    let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    says(&mut keeper, "ready\n");
    assert!(mount.terminate());
    drop(keeper.stdin.take());
    keeper.wait().unwrap();
}

#[test]
fn a_mount_in_the_background_is_ready_when_the_command_returns() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let dir = server.mount_point();
    let mounted = isonomia().args(["mount", "--server", &server.address()]).arg(&dir).output().unwrap();
    assert!(mounted.status.success() && mounted.stdout.is_empty(), "{}", printed(&mounted, &dir));
    fs::write(dir.join("f"), b"x").unwrap();
    let unmounted = isonomia().arg("unmount").arg(&dir).output().unwrap();
    assert!(unmounted.status.success(), "{}", printed(&unmounted, &dir));
    assert!(!dir.join("f").exists());
}

#[test]
fn open_files_survive_a_restart_of_the_server() {
    if !can_mount() {
        return;
    }
    let mut server = TestServer::start();
    let mount = server.mount("");
    let path = mount.path().join("f");
    let file = File::options().read(true).write(true).create(true).mode(0o600).truncate(true).open(&path).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    file.sync_all().unwrap();
    server.kill();
    let reader = std::thread::spawn({
        let file = file.try_clone().unwrap();
        move || {
            let mut got = [0; 6];
            file.read_exact_at(&mut got, 0).map(|()| got)
        }
    });
    server.restart();
    assert_eq!(&reader.join().unwrap().unwrap(), b"before");
    file.write_all_at(b"after!", 6).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"beforeafter!");
}
