//! The program against a server of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use isonomia_client::{Address, Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_transport::channel::Channel;
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const GRACE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
const PROGRAM: &str = env!("CARGO_BIN_EXE_isonomia");

/// `isonomia serve`, ended when dropped.
struct Server {
    child: Child,
    ready: serde_json::Value,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        Self::spawn(std::process::Command::new(PROGRAM), options, Stdio::inherit())
    }

    fn spawn(mut command: std::process::Command, options: &[&str], log: Stdio) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}/s.sock", dir.path().display());
        if command.get_envs().all(|(name, _)| name != "ISONOMIA_LOG") {
            command.env("ISONOMIA_LOG", "error");
        }
        let mut child = command
            .args(["serve", "--listen", &socket])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, ready, dir }
    }

    fn address(&self, number: usize) -> String {
        self.ready["listen"][number].as_str().unwrap().to_owned()
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let assert = Command::new(PROGRAM).args(arguments).env("ISONOMIA_SERVER", self.address(0)).assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    }

    fn terminate(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    /// In order, so that its directory in memory is removed; by force if that takes too long.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let end = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            std::thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_says_where_it_is_and_cleans_up_when_terminated() {
    let mut server = Server::start(&[]);
    assert_eq!(server.ready["ready"], true);
    assert_eq!(server.ready["pid"], server.child.id());
    let dir = server.ready["dir"].as_str().unwrap().to_owned();
    assert!(std::path::Path::new(&dir).is_dir());
    assert!(server.terminate().success());
    assert!(!std::path::Path::new(&dir).exists(), "the directory in memory is still there");
    assert!(!server.dir.path().join("s.sock").exists(), "the socket is still there");
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let mut command = std::process::Command::new(PROGRAM);
    command.env("ISONOMIA_LOG", "debug");
    let server = Server::spawn(command, &[], full());
    assert!(server.ask(&["status"]).contains("metadata"));
    let mut refused = std::process::Command::new(PROGRAM);
    refused.args(["policy", "get"]).env("ISONOMIA_SERVER", "unix:/nowhere").stderr(full());
    assert_eq!(refused.status().unwrap().code(), Some(1));
}

#[test]
fn the_policy_of_a_running_server_is_set() {
    let server = Server::start(&["--policy", "fifo"]);
    assert_eq!(server.ask(&["policy", "get"]), "fifo (virtual-time)\n");
    assert_eq!(
        server.ask(&["policy", "set", "group-user-size-fair", "--draw", "lottery"]),
        "group-then-user-then-size-fair (lottery)\n"
    );
    assert_eq!(
        server.ask(&["policy", "get", "--json"]),
        "{\"draw\":\"lottery\",\"policy\":\"group-then-user-then-size-fair\"}\n"
    );
}

#[test]
fn status_and_top_show_the_targets() {
    let server = Server::start(&["--targets", "2", "--bandwidth", "1GiB/s", "--per-op", "10us", "--trust-clients"]);
    let text = server.ask(&["status"]);
    assert!(text.contains("TRUSTS") && text.contains("1 GiB/s   10 us"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&server.ask(&["status", "--json"])).unwrap();
    // The metadata service comes first.
    assert_eq!(json["targets"].as_array().unwrap().len(), 3);
    let looks = server.ask(&["top", "--count", "2", "--interval", "50ms"]);
    assert_eq!(looks.matches("policy user-then-size-fair").count(), 2, "{looks}");
}

#[test]
fn status_shows_how_a_latency_class_fares() {
    let server = Server::start(&["--trust-clients", "--policy", "job-fair + latency{size<=4KiB, p99=60s, job:quick}"]);
    assert_eq!(server.ask(&["policy", "get"]), "job-fair+latency{p99=60s,job:quick,size<=4KiB} (virtual-time)\n");
    assert!(server.ask(&["status"]).contains("latency class: no requests yet\n"));
    let class = || {
        let status: serde_json::Value = serde_json::from_str(&server.ask(&["status", "--json"])).unwrap();
        status["targets"][1]["latency"].clone()
    };
    let write = |job: &str, block: &[u8]| {
        let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
        let address: Address = server.address(0).parse().unwrap();
        let client = Client::new(ClientConfig {
            addresses: vec![address],
            timeout: Nanos::from_secs(20),
            claims,
            key_file: None,
        });
        let access = access::READ | access::WRITE;
        let how = OpenHow { access, create: true, mode: 0o644, ..OpenHow::default() };
        let file = client.open(Ino::ROOT, job.as_bytes(), &how).unwrap();
        for at in 0..50 {
            assert_eq!(client.write_at(&file, at * block.len() as u64, block).unwrap(), block.len());
        }
    };
    // All of a job that is named, of another one what is small, and nothing else.
    write("quick", &[1; 64 << 10]);
    assert_eq!(class()["requests_total"], 50);
    write("bulk", &[2; 64 << 10]);
    assert_eq!(class()["requests_total"], 50);
    write("small", &[3; 4 << 10]);
    let last = class();
    assert_eq!(last["requests_total"], 100);
    assert_eq!(last["target_ns"], 60_000_000_000u64);
    assert!(last["p99_ns"].as_u64().is_some_and(|p99| p99 > 0) && last["unreachable"].is_null(), "{last}");
    let text = server.ask(&["status"]);
    assert!(text.contains("\nlatency class on 0: p99 "), "{text}");
    server.ask(&["policy", "set", "job-fair"]);
    assert!(class().is_null());
}

#[test]
fn a_server_on_tcp_wants_to_see_the_key() {
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str, content: &[u8]| {
        let path = keys.path().join(name);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", &[7; 32]), key("wrong", &[8; 32]));
    let server = Server::start(&["--listen", "tcp:127.0.0.1:0", "--key-file", &right]);
    let status =
        |key: &str| Command::new(PROGRAM).args(["status", "--server", &server.address(1), "--key-file", key]).assert();
    status(&right).success();
    status(&wrong).code(1);
}

#[test]
fn metrics_are_served_over_http() {
    let server = Server::start(&["--metrics", "127.0.0.1:0", "--policy", "size-fair"]);
    let url = server.ready["metrics"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("isonomia_server_info{") && reply.contains("policy=\"size-fair\""), "{reply}");
}

#[test]
fn a_server_without_descriptors_goes_on_and_is_quiet() {
    let logs = tempfile::tempdir().unwrap();
    let path = logs.path().join("log");
    let log = Stdio::from(std::fs::File::create(&path).unwrap());
    let server = Server::spawn(std::process::Command::new(PROGRAM), &[], log);
    let pid = rustix::process::Pid::from_child(&server.child);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count() as u64;
    let set = |limit: u64| {
        let limit = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap();
    };
    set(descriptors() + 10);
    let address = server.address(0);
    let socket = address.strip_prefix("unix:").unwrap();
    let begun = Instant::now();
    let crowd: Vec<_> = (0..200).map(|_| UnixStream::connect(socket).unwrap()).collect();
    let log = || std::fs::read_to_string(&path).unwrap();
    let end = Instant::now() + GRACE;
    while !log().contains("cannot accept") {
        assert!(Instant::now() < end, "it has descriptors: {}", log());
        std::thread::sleep(POLL);
    }
    // Long enough to write megabytes, for whoever tries again and again.
    std::thread::sleep(Duration::from_millis(500));
    // Some when it started, then one for each pause of 100 ms: fewer on a machine that is slow.
    let lines = log().lines().count() as u128;
    assert!(lines <= 8 + begun.elapsed().as_millis() / 100, "{lines} lines");
    drop(crowd);
    let text = server.ask(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["policy"], "user-then-size-fair", "{text}");
    // It has tried as often, whatever it wrote of it.
    let tried = u128::from(status["refused"]["system"].as_u64().unwrap());
    assert!((1..=2 + begun.elapsed().as_millis() / 100).contains(&tried), "{tried} times");
}

#[test]
fn a_crowd_that_is_refused_leaves_few_lines_in_the_log() {
    let logs = tempfile::tempdir().unwrap();
    let path = logs.path().join("log");
    let log = Stdio::from(std::fs::File::create(&path).unwrap());
    let mut program = std::process::Command::new(PROGRAM);
    program.env("ISONOMIA_LOG", "warn");
    let server = Server::spawn(program, &[], log);
    let address = server.address(0);
    let begun = Instant::now();
    for _ in 0..200 {
        let mut stranger = UnixStream::connect(address.strip_prefix("unix:").unwrap()).unwrap();
        stranger.write_all(&[0xff; 64]).unwrap();
        // Until it is refused. The rest of what was sent was not read, so it may be told of a reset.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    let log = std::fs::read_to_string(&path).unwrap();
    // Ten of a user in ten seconds.
    let refused = log.lines().filter(|line| line.contains("connection refused")).count() as u64;
    assert!((1..=10 * (2 + begun.elapsed().as_secs() / 10)).contains(&refused), "{refused} of 200: {log}");
}

#[test]
fn a_server_takes_as_many_descriptors_as_the_system_gives() {
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -S -n 256 && exec \"$0\" \"$@\"", PROGRAM]);
    let server = Server::spawn(limited, &[], Stdio::inherit());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard]: [&str; 2] = files.split_whitespace().take(2).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(soft, hard);
    assert_ne!(soft, "256");
}

#[test]
fn whoever_is_served_has_descriptors_whoever_takes_the_rest() {
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\"", PROGRAM]);
    let server = Server::spawn(limited, &["--targets", "2"], Stdio::inherit());
    let address: Address = server.address(0).parse().unwrap();
    let timeout = Nanos::from_secs(20);
    let claims = Claims { job: Some("victim".to_owned()), ..Claims::default() };
    let client = Client::new(ClientConfig { addresses: vec![address.clone()], timeout, claims, key_file: None });
    let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
    let first = client.open(Ino::ROOT, b"first", &how).unwrap();
    let mut taken = Vec::new();
    let refused = loop {
        match Channel::open(&address, &Identity::default(), Deadline::after(timeout)) {
            Ok(channel) => taken.push(channel),
            Err(refused) => break refused.to_string(),
        }
        assert!(taken.len() < 1_024, "never refused");
    };
    assert!(refused.contains("limits.connections"), "{refused}");
    // More files than the server keeps open.
    let open = |number: u32| client.open(Ino::ROOT, format!("f{number}").as_bytes(), &how).unwrap();
    let files: Vec<_> = std::iter::once(first).chain((0..600).map(open)).collect();
    for file in &files {
        assert_eq!(client.write_at(file, 0, b"yes").unwrap(), 3);
        client.sync(file, false).unwrap();
    }
    assert!(server.ask(&["status"]).contains("victim"));
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let _first = Server::start(&["--dir", path]);
    let socket = format!("unix:{path}/second.sock");
    let assert = Command::new(PROGRAM).args(["serve", "--dir", path, "--listen", &socket]).assert().code(1);
    let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(error.contains(path), "{error}");
}
