//! Locks of preloaded programs, when the server is killed and started again.

use isonomia_testbed::TestServer;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

const PROLOGUE: &str = "import errno, fcntl, os, sys\n\
                        def has(call, file):\n    \
                            try: call(file, fcntl.LOCK_EX | fcntl.LOCK_NB); return 'got it'\n    \
                            except OSError as error: return errno.errorcode[error.errno]\n";

fn python(server: &TestServer, script: &str) -> Child {
    let mut command = server.command("python3");
    command.args(["-c", &format!("{PROLOGUE}{script}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("python3 runs")
}

/// What a program says in the end.
fn said(server: &TestServer, script: &str) -> String {
    let output = python(server, script).wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn locks_are_the_programs_again_also_those_that_others_took_for_it() {
    let mut server = TestServer::start();
    let script = "files = [open(f'/isonomia/{name}', 'wb', buffering=0) for name in 'abcd']\n\
                  a, b, c, d = files\n\
                  fcntl.lockf(a, fcntl.LOCK_EX); fcntl.flock(c, fcntl.LOCK_EX); fcntl.flock(d, fcntl.LOCK_EX)\n\
                  if os.fork() == 0:\n    \
                      fcntl.flock(b, fcntl.LOCK_EX); fcntl.flock(c, fcntl.LOCK_UN); os._exit(0)\n\
                  os.wait(); print('ready', flush=True); sys.stdin.readline()\n\
                  print([file.write(b'mine') for file in files], flush=True); sys.stdin.readline()\n";
    let mut owner = python(&server, script);
    let mut output = BufReader::new(owner.stdout.take().expect("its output"));
    let mut hears = |line: &str| {
        let mut said = String::new();
        output.read_line(&mut said).expect("a line");
        assert_eq!(said, line);
    };
    hears("ready\n");
    server.restart();
    owner.stdin.as_mut().expect("its input").write_all(b"go on\n").expect("it listens");
    hears("[4, 4, 4, 4]\n");
    let tries = "print(has(fcntl.lockf, open('/isonomia/a', 'wb')), \
                 *[has(fcntl.flock, open(f'/isonomia/{name}', 'wb')) for name in 'bdc'])";
    assert_eq!(said(&server, tries), "EAGAIN EAGAIN EAGAIN got it\n");
    drop(owner.stdin.take());
    assert!(owner.wait().expect("it ends").success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert_eq!(said(&server, tries), "got it got it got it got it\n");
}

#[test]
fn who_lost_a_lock_reads_and_writes_no_more() {
    let mut server = TestServer::start();
    let script = "f = open('/isonomia/f', 'w+b', buffering=0); fcntl.lockf(f, fcntl.LOCK_EX)\n\
                  print('ready', flush=True); sys.stdin.readline()\n\
                  def does(what, *how):\n    \
                      try: return what(*how)\n    \
                      except OSError as error: return errno.errorcode[error.errno]\n\
                  print(does(os.write, f.fileno(), b'x'), does(os.pread, f.fileno(), 9, 0), os.fstat(f.fileno()).st_size)\n\
                  f.close(); print(open('/isonomia/f', 'rb').read())\n";
    let mut owner = python(&server, script);
    let mut output = BufReader::new(owner.stdout.take().expect("its output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    server.restart();
    // The owner does not ask for anything, until the server has waited long enough.
    let takes = "f = open('/isonomia/f', 'wb'); print(has(fcntl.lockf, f)); f.write(b'theirs')";
    assert_eq!(said(&server, takes), "got it\n");
    owner.stdin.take().expect("its input").write_all(b"go on\n").expect("it listens");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert!(owner.wait().expect("it ends").success());
    assert_eq!(rest, "EIO EIO 6\nb'theirs'\n");
}
