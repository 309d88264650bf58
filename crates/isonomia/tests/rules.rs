//! Rules, shadows and records from the command line, against a running server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use isonomia_client::{Address, Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_units::Nanos;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_isonomia");

struct Serving(Child, String);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(dir: &Path, policy: &str) -> Serving {
    let socket = format!("unix:{}/s.sock", dir.display());
    let mut child = std::process::Command::new(PROGRAM)
        .args(["serve", "--listen", &socket, "--trust-clients", "--policy", policy, "--bandwidth", "200MiB/s"])
        .env("ISONOMIA_LOG", "error")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"ready\":true"), "{line}");
    Serving(child, socket)
}

/// Runs the program: whether it was done, and what it said on both.
fn run(server: &Serving, args: &[&str]) -> (bool, String, String) {
    let output = Command::new(PROGRAM).args(args).env("ISONOMIA_SERVER", &server.1).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn write_file(socket: &str, job: &str, name: &str, (blocks, len): (u64, usize)) {
    let address: Address = socket.parse().unwrap();
    let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
    let config = ClientConfig { addresses: vec![address], timeout: Nanos::from_secs(30), claims, key_file: None };
    let client = Client::new(config);
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    let file = client.open(Ino::ROOT, name.as_bytes(), &how).unwrap();
    let block = vec![7; len];
    for at in 0..blocks {
        assert_eq!(client.write_at(&file, at * len as u64, &block).unwrap(), len);
    }
}

#[test]
fn rules_come_and_go_on_a_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "job-fair");
    // A whole policy is looked at as a rule is.
    let (done, _, said) = run(&server, &["policy", "set", "tbf{lost@job:lost=4MiB/s}"]);
    assert!(done && said.contains("rule lost selects nobody at present"), "{said}");
    let (done, _, said) = run(&server, &["policy", "set", "job-fair"]);
    assert!(done && !said.contains("selects nobody"), "{said}");
    let (done, _, said) = run(&server, &["rule", "start", "slow", "job:slow&op:write", "4MiB/s"]);
    assert!(!done && said.contains("job-fair, which has no rules") && said.contains("--replace"), "{said}");
    let (done, out, said) = run(&server, &["rule", "start", "slow", "job:slow&op:write", "4MiB/s", "--replace"]);
    assert!(done && out.contains("tbf{slow@job:slow&op:write=4MiB/s"), "{out}{said}");
    assert!(said.contains("rule slow selects nobody at present"), "{said}");
    let (done, out, _) = run(&server, &["rule", "start", "all", "user:*", "500ops/s", "--last"]);
    assert!(done && out.contains("=4MiB/s,all@user:*=500ops/s"), "{out}");
    for (args, part) in [
        (&["rule", "start", "slow", "job:x", "1MB/s"][..], "a rule \"slow\" already"),
        (&["rule", "start", "b", "job:slow&op:write", "1MB/s"], "b contradicts rule slow"),
        (&["rule", "start", "b", "job:x", "1MB/s", "--last"], "rule all, which comes before it"),
        (&["rule", "start", "b", "job:x", "0B/s"], "it is zero"),
        (&["rule", "change", "gone", "1MB/s"], "there is no rule \"gone\" (rules: slow, all)"),
    ] {
        let (done, _, said) = run(&server, args);
        assert!(!done && said.contains(part), "{args:?}: {said}");
    }
    // Four pieces of a large write wait at a time: there is something to hold, however late the client gets the processor.
    write_file(&server.1, "slow", "file", (1, 8 << 20));
    let (done, out, _) = run(&server, &["rule", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    let slow = &list["rules"][0]["classes"][0];
    assert!(done && slow["bytes_total"] == 8 << 20 && slow["jobs"][0]["job"] == "slow", "{out}");
    assert!(slow["held_ns_total"].as_u64().unwrap() > 500_000_000, "{out}");
    let (_, out, _) = run(&server, &["status"]);
    assert!(out.contains("jobs held") && out.lines().any(|line| line.starts_with("slow ")), "{out}");
    let (_, out, _) = run(&server, &["rule", "list"]);
    assert!(out.contains("job:slow&op:write") && out.contains("spare bandwidth: unused"), "{out}");
    let (_, out, _) = run(&server, &["rule", "change", "slow", "1GiB/s", "--realtime"]);
    assert!(out.contains("slow@job:slow&op:write=1GiB/s+realtime"), "{out}");
    assert!(run(&server, &["rule", "stop", "all"]).0);
    let (done, _, said) = run(&server, &["rule", "stop", "slow"]);
    assert!(!done && said.contains("slow is the last rule"), "{said}");
    let (done, out, _) = run(&server, &["rule", "stop", "slow", "--then", "job-fair"]);
    assert!(done && out.contains("job-fair"), "{out}");
    let (_, out, _) = run(&server, &["rule", "list"]);
    assert!(out.contains("job-fair, which has no rules"), "{out}");
}

#[test]
fn a_record_of_a_running_server_is_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "job-fair");
    let record = dir.path().join("decisions.jsonl");
    assert!(run(&server, &["policy", "shadow", "fifo"]).0);
    let mut recording = std::process::Command::new(PROGRAM)
        .args(["record", record.to_str().unwrap(), "--for", "60s", "--server", &server.1])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recording.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("being recorded"), "{line}");
    std::thread::scope(|scope| {
        for (job, threads) in [("many", 3), ("few", 1)] {
            for thread in 0..threads {
                let socket = &server.1;
                scope.spawn(move || write_file(socket, job, &format!("{job}{thread}"), (200, 1 << 16)));
            }
        }
    });
    let (_, out, _) = run(&server, &["status"]);
    assert!(out.contains("beside it, without a say: fifo"), "{out}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&recording), rustix::process::Signal::INT).unwrap();
    assert!(recording.wait().unwrap().success());
    let trace = record.to_str().unwrap();
    let (done, out, said) = run(&server, &["sim", "--trace", trace, "--json"]);
    assert!(done, "{said}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let off = |name: &str| found[name].as_f64().unwrap();
    // How far it is off is for people to judge: it hangs on what else the machine does.
    assert!(off("share_difference_max").is_finite() && off("makespan_difference_max").is_finite(), "{out}");
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(2), "{out}");
    let out_dir = dir.path().join("out");
    let (done, out, said) =
        run(&server, &["sim", "--trace", trace, "--policy", "fifo", "--out", out_dir.to_str().unwrap()]);
    assert!(done && out.contains("recorded under job-fair, simulated under fifo"), "{out}{said}");
    assert!(["prediction.json", "prediction.png", "prediction.svg"].iter().all(|name| out_dir.join(name).exists()));
    for (policy, why) in [("exclusive", "for all targets together"), ("gift", "gift is decided by a controller")] {
        let (done, _, said) = run(&server, &["sim", "--trace", trace, "--policy", policy]);
        assert!(!done && said.contains(why), "{said}");
    }
    let (done, _, said) = run(&server, &["sim", "--trace", "/nowhere"]);
    assert!(!done && said.contains("/nowhere"), "{said}");
}
