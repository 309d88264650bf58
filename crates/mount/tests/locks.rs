//! Locks of programs in mounts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestServer, can_mount};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program in the mount at `dir` that runs Python: `file` is open, `outcome` tells what became of a call. Who waits
/// for ever is killed.
fn python_with_file(dir: &Path, script: &str) -> Command {
    let prologue = "import errno, fcntl, os, signal, struct, sys\n\
                    signal.alarm(100)\n\
                    def outcome(call, *arguments):\n    \
                        try: call(*arguments); return 'got it'\n    \
                        except OSError as error: return errno.errorcode[error.errno]\n\
                    def of_open_file(file, kind, command):\n    \
                        fcntl.fcntl(file, command, struct.pack('hhqqi4x', kind, 0, 0, 0, 0))\n\
                    file = open('locked', 'r+b', buffering=0)\n";
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{prologue}{script}")]).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn says(program: &mut Child, expected: &str) {
    let mut got = vec![0; expected.len()];
    program.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

#[test]
fn locks_hold_between_mounts_and_end_with_their_owners() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let (mount, other) = (server.mount(""), server.mount_elsewhere());
    File::create(mount.path().join("locked")).unwrap();
    let hows = [
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "fcntl.lockf(file, fcntl.LOCK_EX)",
        "of_open_file(file, fcntl.F_WRLCK, fcntl.F_OFD_SETLKW)",
    ];
    let tries = "print(outcome(fcntl.flock, file, fcntl.LOCK_SH | fcntl.LOCK_NB), \
                 outcome(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB))";
    for (how, refused) in hows.iter().zip(["EAGAIN got it\n", "got it EAGAIN\n", "got it EAGAIN\n"]) {
        let takes = format!("{how}; print('has it', flush=True); sys.stdin.read()");
        let mut holder = python_with_file(mount.path(), &takes).spawn().unwrap();
        says(&mut holder, "has it\n");
        for dir in [mount.path(), other.path()] {
            let tried = python_with_file(dir, tries).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&tried.stdout), refused, "{how}, tried from {}", dir.display());
        }
        // One that waits and is killed ends at once; another gets the lock when its holder is killed.
        let waits = format!("print('waits', flush=True); {takes}");
        let mut killed = python_with_file(other.path(), &waits).spawn().unwrap();
        says(&mut killed, "waits\n");
        killed.kill().unwrap();
        killed.wait().unwrap();
        let mut next = python_with_file(other.path(), &waits).spawn().unwrap();
        says(&mut next, "waits\n");
        holder.kill().unwrap();
        holder.wait().unwrap();
        says(&mut next, "has it\n");
        drop(next.stdin.take());
        assert!(next.wait().unwrap().success());
        let free = python_with_file(mount.path(), tries).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&free.stdout), "got it got it\n", "after {how}");
    }
}

#[test]
fn locks_outlast_a_server_that_is_killed() {
    if !can_mount() {
        return;
    }
    let mut server = TestServer::start();
    let (mount, other) = (server.mount(""), server.mount_elsewhere());
    File::create(mount.path().join("locked")).unwrap();
    let script = "fcntl.flock(file, fcntl.LOCK_EX); fcntl.lockf(file, fcntl.LOCK_EX)\n\
                  print('has it', flush=True); sys.stdin.read(1)\n\
                  print(file.write(b'mine'), flush=True); sys.stdin.read()";
    let mut holder = python_with_file(mount.path(), script).spawn().unwrap();
    says(&mut holder, "has it\n");
    server.restart();
    // Nobody but the mount asks the server for anything.
    let tries = "print(outcome(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB), \
                 outcome(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB))";
    let tried = python_with_file(other.path(), tries).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&tried.stdout), "EAGAIN EAGAIN\n");
    holder.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    says(&mut holder, "4\n");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    let tried = python_with_file(other.path(), tries).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&tried.stdout), "got it got it\n");
}

#[test]
fn an_open_files_lock_of_bytes_ends_with_its_last_descriptor() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let (mount, other) = (server.mount(""), server.mount_elsewhere());
    File::create(mount.path().join("locked")).unwrap();
    let script = "of_open_file(file, fcntl.F_WRLCK, fcntl.F_OFD_SETLK)\n\
                  again = open('locked', 'rb'); again.close()\n\
                  double = os.dup(file.fileno()); file.close()\n\
                  print('has it', flush=True); sys.stdin.read(1)\n\
                  os.close(double); print('closed', flush=True); sys.stdin.read()";
    let mut holder = python_with_file(mount.path(), script).spawn().unwrap();
    says(&mut holder, "has it\n");
    let tried = "print(outcome(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB))";
    let tried = python_with_file(other.path(), tried).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&tried.stdout), "EAGAIN\n");
    let mut next = python_with_file(other.path(), "fcntl.lockf(file, fcntl.LOCK_EX); print('has it', flush=True)");
    let mut next = next.spawn().unwrap();
    holder.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    says(&mut next, "has it\n");
    drop(holder.stdin.take());
    assert!(next.wait().unwrap().success() && holder.wait().unwrap().success());
}

#[test]
fn who_was_interrupted_is_no_part_of_a_circle() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let (mount, other) = (server.mount(""), server.mount_elsewhere());
    File::create(mount.path().join("locked")).unwrap();
    let script = "class Enough(Exception): pass\n\
                  def enough(*_): raise Enough\n\
                  fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\n\
                  print('has one', flush=True); sys.stdin.read(1)\n\
                  signal.signal(signal.SIGALRM, enough); signal.setitimer(signal.ITIMER_REAL, 0.1)\n\
                  try: fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)\n\
                  except Enough: print('enough', flush=True)\n\
                  sys.stdin.read(1); fcntl.lockf(file, fcntl.LOCK_UN); print('done', flush=True); sys.stdin.read()";
    let mut first = python_with_file(mount.path(), script).spawn().unwrap();
    says(&mut first, "has one\n");
    let script = "fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)\n\
                  print('has another', flush=True); sys.stdin.read(1)\n\
                  print(outcome(fcntl.lockf, file, fcntl.LOCK_EX, 1, 0), flush=True)";
    let mut second = python_with_file(other.path(), script).spawn().unwrap();
    says(&mut second, "has another\n");
    first.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    says(&mut first, "enough\n");
    second.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    first.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    says(&mut first, "done\n");
    says(&mut second, "got it\n");
}

#[test]
fn many_that_wait_leave_the_mount_to_others() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("threads=2");
    File::create(mount.path().join("locked")).unwrap();
    let script = "import threading\n\
                  fcntl.flock(file, fcntl.LOCK_EX)\n\
                  files = [open('locked') for _ in range(100)]\n\
                  threads = [threading.Thread(target=fcntl.flock, args=(f, fcntl.LOCK_SH)) for f in files]\n\
                  [thread.start() for thread in threads]\n\
                  print('wait', len(os.listdir('.')), flush=True)\n\
                  fcntl.flock(file, fcntl.LOCK_UN)\n\
                  [thread.join() for thread in threads]\n\
                  print('done')";
    let done = python_with_file(mount.path(), script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "wait 1\ndone\n");
}
