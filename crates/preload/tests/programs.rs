//! Unmodified programs on a real server: each script runs in a local directory and under the prefix, and must print
//! the same and leave the same files behind. Under the prefix a detector watches them: no system call may name a path
//! there.

use isonomia_testbed::{PREFIX, TestServer, built, is_installed, is_root_to, others_reach_the_build, skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Kind, permissions, size, links, target, and content of everything below the working directory.
const DUMP: &str = "find . -mindepth 1 -printf '%y %m %n %l %P\\n' | sort; find . -type f -printf '%s %P\\n' | sort; \
                    find . -type f -print0 | sort -z | xargs -0r md5sum";

/// Whose programs run.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    /// Whoever runs the test.
    Oneself,
    /// A user whom the server does not trust: not root, and not the server's own. Root alone can become one.
    Stranger,
}

/// What tests as [`Who::Stranger`] need.
const STRANGE: &str = "become a user whom the server does not trust";

/// Runs `script` in a local directory and under the prefix, and compares.
fn compare(script: &str, programs: &[&str]) {
    compare_as(Who::Oneself, script, programs);
}

fn compare_as(who: Who, script: &str, programs: &[&str]) {
    if !programs.iter().all(|program| is_installed(program)) || (who == Who::Stranger && !others_reach_the_build()) {
        return;
    }
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let local = tempfile::tempdir().expect("a temporary directory");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let leaks = scratch.path().join("leaks");
    let server = TestServer::start();
    for dir in [&local, &scratch] {
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).expect("permissions");
    }
    let (program, become_stranger): (_, &[&str]) = if who == Who::Stranger {
        ("setpriv", &["--reuid=12345", "--regid=12345", "--clear-groups", "bash"])
    } else {
        ("bash", &[])
    };
    let run = |mut command: Command, root: &str, text: &str| -> String {
        let command = command
            .args(become_stranger)
            .args(["-c", "cd \"$ROOT\" && exec bash -c \"$SCRIPT\""])
            .env("ROOT", root)
            .env("SCRIPT", text)
            .env("CASES", &cases)
            .env("SCRATCH", scratch.path())
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8");
        printed(command.output().expect("bash runs"), root)
    };
    let script = std::fs::read_to_string(cases.join(script)).expect("the script");
    let local_root = local.path().to_str().expect("a path in UTF-8");
    for text in [script.as_str(), DUMP] {
        let expected = run(Command::new(program), local_root, text);
        let actual = run(server.watched(program, &leaks), PREFIX, text);
        let leaks = std::fs::read_to_string(&leaks).expect("the detector's report");
        assert!(leaks.is_empty(), "calls that no hook took:\n{leaks}");
        assert!(expected == actual, "{}", difference(&expected, &actual));
        assert!(expected.ends_with("--- exit status: 0"), "{expected}");
    }
}

/// Everything a program said, with its directory's name taken out. Before that the name of the checkout is, which may have the
/// other one in it.
fn printed(output: Output, root: &str) -> String {
    let checkout =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).and_then(Path::to_str).expect("a path in UTF-8");
    let without = |text: &str| text.replace(checkout, "CHECKOUT").replace(root, "ROOT");
    let streams = [output.stdout, output.stderr].map(|text| without(&String::from_utf8_lossy(&text)));
    format!("{}\n--- stderr\n{}\n--- {}", streams[0], streams[1], output.status)
}

fn difference(expected: &str, actual: &str) -> String {
    let line = expected.lines().zip(actual.lines()).position(|(e, a)| e != a);
    let from = line.unwrap_or(expected.lines().count().min(actual.lines().count())).saturating_sub(3);
    let excerpt = |text: &str| text.lines().skip(from).take(12).collect::<Vec<_>>().join("\n");
    format!("line {}:\nlocally\n{}\n\nunder the prefix\n{}\n", from + 3, excerpt(expected), excerpt(actual))
}

#[test]
fn children_keep_what_they_inherited() {
    compare("children.sh", &["cc"]);
}

/// The rest is a user's without a proof of what it may but the one that the server gave it.
#[test]
fn strangers_keep_what_they_inherited() {
    if !is_root_to(STRANGE) {
        return;
    }
    compare_as(Who::Stranger, "children.sh", &["cc", "setpriv"]);
    compare_as(Who::Stranger, "exec.sh", &["cc"]);
}

#[test]
fn strangers_begin_where_they_are() {
    if !is_root_to(STRANGE) {
        return;
    }
    compare_as(Who::Stranger, "python.sh", &["python3", "setpriv"]);
    compare_as(Who::Stranger, "names.sh", &["python3"]);
    compare_as(Who::Stranger, "program.sh", &["cc"]);
}

#[test]
fn strangers_use_what_they_opened() {
    if !is_root_to(STRANGE) {
        return;
    }
    compare_as(Who::Stranger, "locks.sh", &["python3", "flock", "setpriv"]);
    compare_as(Who::Stranger, "coreutils.sh", &["cp", "find", "awk"]);
    compare_as(Who::Stranger, "fts.sh", &["cc"]);
    compare_as(Who::Stranger, "xattrs.sh", &["python3", "rsync", "tar"]);
}

#[test]
fn posix_aio() {
    compare("aio.sh", &["cc"]);
}

#[test]
fn walks_by_fts() {
    compare("fts.sh", &["cc"]);
}

#[test]
fn programs_become_others() {
    compare("exec.sh", &["cc"]);
}

#[test]
fn files_are_no_terminals_or_sockets() {
    compare("kinds.sh", &["cc"]);
}

#[test]
fn names_of_every_kind() {
    compare("names.sh", &["python3"]);
}

#[test]
fn locks() {
    compare("locks.sh", &["python3", "flock"]);
}

#[test]
fn programs_that_take_other_users() {
    if !is_root_to("take other users") || !others_reach_the_build() {
        return;
    }
    compare("users.sh", &["python3"]);
}

#[test]
fn libraries_are_loaded() {
    compare("libraries.sh", &["cc", "python3"]);
}

#[test]
fn extended_attributes() {
    compare("xattrs.sh", &["python3", "rsync", "tar"]);
}

#[test]
fn holes_space_and_files_without_a_name() {
    compare("sparse.sh", &["python3", "fallocate", "tar"]);
}

#[test]
fn coreutils() {
    compare("coreutils.sh", &["cp", "find", "awk"]);
}

#[test]
fn archives_and_copies() {
    compare("archive.sh", &["tar", "gzip", "rsync"]);
}

#[test]
fn shell_redirection() {
    compare("bash.sh", &["bash", "dash"]);
}

#[test]
fn python() {
    compare("python.sh", &["python3"]);
}

#[test]
fn shared_mappings() {
    compare("mappings.sh", &["python3"]);
    compare_as(Who::Stranger, "mappings.sh", &["python3", "setpriv"]);
}

/// Threads, forks, spawned programs, streams, tree walks, and descriptors by number, in C.
#[test]
fn a_c_program() {
    compare("program.sh", &["cc"]);
}

/// Allocators call the hooks with their locks taken, and before anything of the client has started.
#[test]
fn allocators_of_programs_own() {
    compare("allocators.sh", &["cc"]);
}

#[test]
fn spawned_children_keep_their_directory_when_all_is_closed() {
    compare("spawn.sh", &["cc"]);
}

/// Handlers of other libraries must not run between the client's.
#[test]
fn libraries_use_files_while_programs_fork() {
    compare("atfork.sh", &["cc"]);
}

/// The hooks run on the stacks of the program's threads.
#[test]
fn threads_with_small_stacks() {
    compare("stacks.sh", &["cc"]);
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !is_installed("fio") {
        return;
    }
    let server = TestServer::start();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    for (pattern, engine) in
        [("randwrite", "psync"), ("write", "psync"), ("randwrite", "posixaio"), ("write", "posixaio")]
    {
        let output = server
            .command("fio")
            .args(["--name=verify", "--size=8m", "--bsrange=512-128k", "--verify=crc32c", "--iodepth=8"])
            .arg(format!("--ioengine={engine}"))
            .args(["--numjobs=2", "--group_reporting", "--do_verify=1", "--verify_fatal=1"])
            .args([format!("--rw={pattern}"), format!("--directory={PREFIX}")])
            .current_dir(scratch.path())
            .output()
            .expect("fio runs");
        assert!(output.status.success(), "{}", printed(output, PREFIX));
    }
}

/// A call that passes through is what the comparisons above must not contain; the detector sees it.
#[test]
fn the_detector_sees_what_passes_through() {
    let server = TestServer::start();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let report = scratch.path().join("leaks");
    let number = libc::SYS_mkdirat.to_string();
    let script = "import ctypes, os, sys\n\
                  os.mkdir('/isonomia/a'); os.chdir('/isonomia/a')\n\
                  for path in b'/isonomia/b', b'c', b'/proc/none':\n    \
                  ctypes.CDLL(None).syscall(int(sys.argv[1]), -100, path, 0o755)\n";
    let output = server.watched("python3", &report).args(["-c", script, &number]).output().expect("python3 runs");
    assert_eq!(output.status.code(), Some(97), "{}", printed(output.clone(), PREFIX));
    let report = std::fs::read_to_string(report).expect("the report");
    let leaks: Vec<&str> = report.lines().filter_map(|line| line.split(" by ").next()).collect();
    assert_eq!(leaks, ["leak: mkdirat \"/isonomia/b\"", "leak: mkdirat \"c\""]);
}

/// What the kernel would do with its own queues is refused so that programs take another way.
#[test]
fn queues_of_the_kernel_are_refused() {
    let server = TestServer::start();
    let scratch = tempfile::NamedTempFile::new().expect("a temporary file");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/queues.py");
    let output = server.command("python3").arg(script).arg(scratch.path()).output().expect("python3 runs");
    let expected = format!("ENOSYS -{0}\n0\nENOSYS -{0}\nENOSYS -{0}\n2 2\n", libc::ENOSYS);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", printed(output.clone(), PREFIX));
}

/// A program that has said a line, and waits for one before it goes on.
struct Paused {
    program: Child,
    output: BufReader<ChildStdout>,
}

impl Paused {
    /// Runs `command` until it has said `line`.
    fn at(line: &str, command: &mut Command) -> Self {
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut output = BufReader::new(program.stdout.take().expect("its output"));
        let mut said = String::new();
        output.read_line(&mut said).expect("its first line");
        assert_eq!(said, line);
        Self { program, output }
    }

    /// Waits until it is in one of these system calls.
    fn comes_to(&self, calls: &[libc::c_long]) {
        let end = Instant::now() + Duration::from_secs(60);
        let path = format!("/proc/{}/syscall", self.program.id());
        loop {
            let text = std::fs::read_to_string(&path).expect("a running program");
            let number = text.split(' ').next().and_then(|word| word.parse().ok());
            if number.is_some_and(|number| calls.contains(&number)) {
                return;
            }
            assert!(Instant::now() < end, "it is in {text}");
            std::thread::yield_now();
        }
    }

    /// The rest of what it says until it ends, which must be a good end.
    fn go_on(mut self) -> String {
        self.program.stdin.take().expect("its input").write_all(b"go\n").expect("it listens");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("the rest");
        assert!(self.program.wait().expect("it ends").success());
        rest
    }
}

/// As in the kernel: whatever the call is doing when the signal comes.
#[test]
fn a_signal_ends_the_wait_for_a_lock_also_while_the_server_is_asked() {
    let server = TestServer::start();
    let hold = "import fcntl, signal, sys\n\
                f = open('/isonomia/f', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)\n\
                signal.alarm(60); print('has it', flush=True); sys.stdin.readline()\n";
    let wait = "import errno, fcntl, signal, sys\n\
                def stop(*_): raise InterruptedError(errno.EINTR, '')\n\
                signal.signal(signal.SIGUSR1, stop)\n\
                f = open('/isonomia/f', 'w'); print('waits', flush=True)\n\
                try:\n    fcntl.lockf(f, fcntl.LOCK_EX); print('has it')\n\
                except InterruptedError: print('interrupted')\n\
                sys.stdin.readline()\n";
    let holder = Paused::at("has it\n", server.command("python3").args(["-c", hold]));
    let waiter = Paused::at("waits\n", server.command("python3").args(["-c", wait]));
    // Between two attempts.
    waiter.comes_to(&[libc::SYS_ppoll, libc::SYS_nanosleep, libc::SYS_clock_nanosleep]);
    server.pause();
    // In an attempt, which has no answer.
    waiter.comes_to(&[libc::SYS_futex]);
    let pid = rustix::process::Pid::from_child(&waiter.program);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).expect("a signal can be sent");
    server.resume();
    assert_eq!(waiter.go_on(), "interrupted\n");
    assert_eq!(holder.go_on(), "");
}

#[test]
fn a_killed_server_is_an_error_within_the_time_out_and_not_an_end() {
    let mut server = TestServer::start();
    let script = "import errno, os, sys\n\
                  f = open('/isonomia/x', 'wb', buffering=0)\n\
                  f.write(b'acknowledged')\n\
                  print('written', flush=True)\n\
                  sys.stdin.readline()\n\
                  try:\n    os.pwrite(f.fileno(), b'x', 0); print('no error')\n\
                  except OSError as e: print(errno.errorcode[e.errno])\n\
                  print(open('/dev/null').read() == '')\n";
    let mut command = server.command("python3");
    // What it does before the server is killed has to be done within the same time.
    command.args(["-c", script]).env("ISONOMIA_TIMEOUT_S", "5");
    let program = Paused::at("written\n", &mut command);
    server.kill();
    assert_eq!(program.go_on(), "ETIMEDOUT\nTrue\n");
}

/// What a program has proven it has proven to the next server on the same directory, too.
#[test]
fn a_stranger_is_where_it_was_when_the_server_comes_back() {
    if !is_root_to("become other users") || !others_reach_the_build() {
        return;
    }
    let mut server = TestServer::start();
    let script = "import os, sys\n\
                  os.umask(0); os.makedirs('/isonomia/own/deep', 0o700); os.chdir('/isonomia/own')\n\
                  open('deep/f', 'w').write('kept'); f = os.open('deep/f', os.O_RDONLY); os.fsync(f)\n\
                  d = os.open('deep', os.O_RDONLY); p = os.open('deep', os.O_PATH); os.chmod('deep/f', 0)\n\
                  print('ready', flush=True)\n\
                  sys.stdin.readline()\n\
                  print(os.getcwd(), os.listdir('.'), os.listdir(d), os.stat('f', dir_fd=p).st_size, os.pread(f, 9, 0))\n\
                  os.fchdir(p); print(os.getcwd(), os.stat('../deep/f').st_mode & 0o777); sys.stdout.flush()\n\
                  os.execvp('ls', ['ls', '..'])\n";
    let mut command = server.command("setpriv");
    command.args(["--reuid=12345", "--regid=12345", "--clear-groups", "bash", "-c", "exec python3 -c \"$0\"", script]);
    let program = Paused::at("ready\n", &mut command);
    server.restart();
    assert_eq!(program.go_on(), "/isonomia/own ['deep'] ['f'] 4 b'kept'\n/isonomia/own/deep 0\ndeep\n");
}

/// A program that does what it is told to a mapped file, and says what came of it.
struct Mapper {
    process: std::process::Child,
    output: std::io::BufReader<std::process::ChildStdout>,
}

impl Mapper {
    fn start(server: &TestServer) -> Self {
        let script = "import mmap, os, sys\n\
                      f = open('/isonomia/mapped', 'r+b', buffering=0)\n\
                      m = mmap.mmap(f.fileno(), 0)\n\
                      for line in sys.stdin: print(eval(line), flush=True)\n";
        let mut command = server.command("python3");
        let command = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3 runs");
        let output = std::io::BufReader::new(process.stdout.take().expect("its output"));
        Self { process, output }
    }

    fn does(&mut self, what: &str) -> String {
        let input = self.process.stdin.as_mut().expect("its input");
        std::io::Write::write_all(input, format!("{what}\n").as_bytes()).expect("it listens");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.output, &mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

#[test]
fn programs_go_on_with_a_mapping_when_the_server_comes_back() {
    let mut server = TestServer::start();
    let create = server.command("sh").args(["-c", "printf %8192s > /isonomia/mapped"]).status().expect("sh runs");
    assert!(create.success());
    let [mut one, mut two] = [Mapper::start(&server), Mapper::start(&server)];
    assert_eq!(one.does("m.__setitem__(slice(0, 3), b'one')"), "None");
    assert_eq!(two.does("m[:4], os.pread(f.fileno(), 4, 0)"), "(b'one ', b'one ')");
    server.kill();
    assert_eq!(one.does("m.__setitem__(slice(4096, 4100), b'away')"), "None");
    assert_eq!(two.does("m[4096:4101]"), "b'away '");
    server.restart();
    assert_eq!(two.does("os.pread(f.fileno(), 4, 0), os.pread(f.fileno(), 5, 4096)"), "(b'one ', b'away ')");
    assert_eq!(two.does("os.pwrite(f.fileno(), b'two', 1), m.flush()"), "(3, None)");
    assert_eq!(one.does("m[:5], m.flush()"), "(b'otwo ', None)");
    // Whoever comes later shares the same memory.
    let mut late = Mapper::start(&server);
    assert_eq!(late.does("m[:5], m.__setitem__(5, 33)"), "(b'otwo ', None)");
    assert_eq!(one.does("m[:6]"), "b'otwo !'");
    one.process.kill().and_then(|()| one.process.wait()).expect("it ends");
    assert_eq!(late.does("m.close()"), "None");
    assert_eq!(two.does("m[:6], m.__setitem__(6, 63), m.close()"), "(b'otwo !', None, None)");
    server.restart();
    assert_eq!(two.does("os.pread(f.fileno(), 7, 0)"), "b'otwo !?'");
    for mapper in [&mut two, &mut late] {
        drop(mapper.process.stdin.take());
        assert!(mapper.process.wait().expect("it ends").success());
    }
}

/// The first that is closed waits for the server, but not each of them.
#[test]
fn a_program_that_closes_many_files_does_not_wait_for_each_when_the_server_is_away() {
    let mut server = TestServer::start();
    let script = "import fcntl, os, signal, sys\n\
                  fds = [os.open(f'/isonomia/{i}', os.O_CREAT | os.O_RDWR) for i in range(200)]\n\
                  for fd in fds[:100]: fcntl.lockf(fd, fcntl.LOCK_EX)\n\
                  for fd in fds[50:150]: fcntl.flock(fd, fcntl.LOCK_EX)\n\
                  print('open', flush=True)\n\
                  sys.stdin.readline()\n\
                  signal.alarm(60)\n\
                  if os.fork() == 0: os._exit(3)\n\
                  for fd in fds: os.close(fd)\n\
                  print(os.wait()[1] >> 8)\n";
    let mut command = server.command("python3");
    // What it does before the server is killed has to be done within the same time.
    command.args(["-c", script]).env("ISONOMIA_TIMEOUT_S", "5");
    let program = Paused::at("open\n", &mut command);
    server.kill();
    assert_eq!(program.go_on(), "3\n");
}

/// No connection is made before the first look under the prefix; it would be seen then.
#[test]
fn a_socket_is_opened_at_the_first_touch_and_not_before() {
    let server = TestServer::start();
    let script = "import os\n\
                  def sockets():\n    \
                  return sum(os.path.lexists(f'/proc/self/fd/{fd}') and os.readlink(f'/proc/self/fd/{fd}').startswith('socket:') \
                  for fd in os.listdir('/proc/self/fd'))\n\
                  os.stat('/etc/passwd'); open('/dev/null').read(); os.listdir('/'); os.system('true')\n\
                  before = sockets()\n\
                  os.stat('/isonomia')\n\
                  print(before, sockets() > before)\n";
    let output = server.command("python3").args(["-c", script]).stdin(Stdio::null()).output().expect("python3 runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 True\n", "{}", printed(output.clone(), PREFIX));
}

/// A program that the library cannot be loaded into runs as if nothing were; `isonomia run` says so in one line.
#[test]
fn a_static_program_runs_unharmed() {
    let server = TestServer::start();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let source = scratch.path().join("static.c");
    let program = scratch.path().join("static");
    let text = "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"/isonomia/of-the-server\", \"r\"); return puts(f ? \"there\" : \"here\") < 0; }\n";
    std::fs::write(&source, text).expect("a source");
    let compiled = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).status().expect("cc runs");
    assert!(compiled.success(), "no static C library: apt-get install libc6-dev");
    assert!(server.command("touch").arg("/isonomia/of-the-server").status().expect("touch runs").success());
    let mut run = server.command(built("isonomia").to_str().expect("a path in UTF-8"));
    run.env_remove("LD_PRELOAD").args(["run", "--"]).arg(&program);
    let output = run.output().expect("it runs");
    let expected = format!(
        "here\n\n--- stderr\nisonomia: {} is statically linked: it runs, but without the files of /isonomia\n\n--- exit status: 0",
        program.display()
    );
    assert_eq!(printed(output, "no root"), expected);
    let bare = server.command(program.to_str().expect("a path in UTF-8")).output().expect("it runs");
    assert_eq!(printed(bare, "no root"), "here\n\n--- stderr\n\n--- exit status: 0");
}

/// The least 32-bit program: it ends with 7.
#[cfg(target_arch = "x86_64")]
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS_LEN: u32 = 52 + 32;
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let len = HEADERS_LEN + code.len() as u32;
    let mut file = [&b"\x7fELF\x01\x01\x01"[..], &[0; 9]].concat();
    file.extend([2u16, 3].map(u16::to_le_bytes).concat());
    file.extend([1, BASE + HEADERS_LEN, 52, 0, 0].map(u32::to_le_bytes).concat());
    file.extend([52u16, 32, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    file.extend([1, 0, BASE, BASE, len, len, 5, 0x1000].map(u32::to_le_bytes).concat());
    file.extend(code);
    file
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_program_runs_unharmed() {
    let server = TestServer::start();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let program = scratch.path().join("program");
    std::fs::write(&program, program_of_32_bits()).expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("its mode");
    if Command::new(&program).status().is_err() {
        return skip("this kernel runs no 32-bit programs");
    }
    let mut run = server.command(built("isonomia").to_str().expect("a path in UTF-8"));
    let output = run.env_remove("LD_PRELOAD").args(["run", "--"]).arg(&program).output().expect("it runs");
    let line =
        format!("isonomia: {} is a 32-bit program: it runs, but without the files of /isonomia\n", program.display());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(7), line.as_str()));
}

#[test]
fn who_waits_for_a_server_is_told_where_and_once() {
    let mut server = TestServer::start();
    server.kill();
    let stat = |quiet: &str| {
        let mut command = server.command("stat");
        command.env("ISONOMIA_TIMEOUT_S", "2").env("ISONOMIA_QUIET", quiet).args(["/isonomia/a", "/isonomia/b"]);
        let output = command.output().expect("stat runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = stat("");
    let waits = format!("isonomia: waiting for a server at {}, 2 s at most: ", server.address());
    assert_eq!(told.matches(&waits).count(), 1, "{told}");
    assert!(!stat("1").contains("isonomia: "));
}

#[test]
fn a_process_that_never_touches_the_prefix_never_connects() {
    let mut server = TestServer::start();
    server.kill();
    let output = server.command("cat").arg("/proc/self/comm").output().expect("cat runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "cat\n");
}

/// Without this the other tests would prove nothing where this host has a directory of the prefix's name.
#[test]
fn what_is_written_below_the_prefix_is_the_servers_and_not_the_hosts() {
    let server = TestServer::start();
    let path = format!("{PREFIX}/of-process-{}", std::process::id());
    let written = server.command("sh").args(["-c", "echo it > \"$0\"", &path]).status().expect("sh runs");
    assert!(written.success());
    assert!(std::fs::symlink_metadata(&path).is_err(), "{path} is a file of the host");
    let output = server.command("cat").arg(&path).output().expect("cat runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it\n");
}
