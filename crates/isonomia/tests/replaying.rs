//! A real server and real clients; their decisions again in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use isonomia_client::{Address, Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_sim::replay::replay;
use isonomia_units::Nanos;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_isonomia");

fn serve(dir: &Path, record: &str, draw: &str, policy: &str) -> (Child, String) {
    let socket = format!("unix:{}/s.sock", dir.display());
    let mut child = std::process::Command::new(PROGRAM)
        .args(["serve", "--listen", &socket, "--trust-clients", "--policy", policy, "--draw", draw])
        .args(["--bandwidth", "200MiB/s", "--per-op", "10us", "--record-decisions", record])
        .env("ISONOMIA_LOG", "error")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"ready\":true"), "{line}");
    (child, socket)
}

fn terminate(mut child: Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Writes a file of 200 blocks and reads some of it back.
fn write_files(client: &Client, name: &str) {
    let access = access::READ | access::WRITE;
    let how = OpenHow { access, create: true, exclusive: true, mode: 0o644, ..OpenHow::default() };
    let file = client.open(Ino::ROOT, name.as_bytes(), &how).unwrap();
    let mut block = vec![7; 64 << 10];
    for at in 0..200 {
        assert_eq!(client.write_at(&file, at * block.len() as u64, &block).unwrap(), block.len());
    }
    for at in 0..20 {
        assert_eq!(client.read_at(&file, at * (64 << 10), &mut block).unwrap(), 64 << 10);
    }
}

/// Two jobs write at the same time through sessions of their own, and the policy is changed meanwhile.
fn compete(socket: &str) {
    let address: Address = socket.parse().unwrap();
    let job = |name: &str, nodes: u32| {
        let claims = Claims { job: Some(name.to_owned()), nodes: Some(nodes), ..Claims::default() };
        let config =
            ClientConfig { addresses: vec![address.clone()], timeout: Nanos::from_secs(20), claims, key_file: None };
        let name = name.to_owned();
        std::thread::spawn(move || write_files(&Client::new(config), &name))
    };
    let jobs = [job("large", 4), job("small", 1)];
    Command::new(PROGRAM).args(["policy", "set", "job-fair", "--server", socket]).assert().success();
    for job in jobs {
        job.join().unwrap();
    }
}

#[test]
fn a_live_servers_decisions_are_decided_the_same_in_virtual_time() {
    let class = "size-fair+latency{p99=1ms,job:small,size<=4KiB}";
    for (draw, policy) in [("virtual-time", "size-fair"), ("lottery", "size-fair"), ("virtual-time", class)] {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("decisions.jsonl");
        let (child, socket) = serve(dir.path(), record.to_str().unwrap(), draw, policy);
        compete(&socket);
        terminate(child);
        let found = replay(&record).unwrap();
        assert_eq!(found.difference, None, "{draw} {policy}");
        assert!(found.decisions >= 400, "{} decisions of {} calls", found.decisions, found.calls);
    }
}
