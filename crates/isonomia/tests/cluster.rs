//! `isonomia cluster`: files that are checked, and clusters for trials; and what they are recorded as.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_client::{Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_units::Nanos;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "name = \"s\"\nepoch = 2\n[[server]]\nname = \"io[01-02]\"\nnumber = 1\n\
                    listen = [\"tcp:{name}:7411\"]\ntargets = [{ depth = 4 }, { cache = \"never\" }]\nrack = \"k1\"\n";

/// Exit code, standard output, standard error.
fn isonomia(arguments: &[&str], runtime_dir: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isonomia"));
    for name in ["ISONOMIA_CLUSTER", "ISONOMIA_SERVER", "ISONOMIA_SERVER_USER", "ISONOMIA_KEY_FILE", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    let output = command.env("XDG_RUNTIME_DIR", runtime_dir).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// What is said once all servers were counted in: where each has a second to answer, one that is there may be taken for away on a
/// machine that is too busy. The last that is said if that is always so. `ask` is told how often it asked before.
fn counted_in(ask: impl FnMut(usize) -> (i32, String, String)) -> (i32, String, String) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_one_away = |(_, out, err): &(i32, String, String)| {
        [" is away", "away: ", "does not answer"].iter().any(|words| out.contains(words) || err.contains(words))
    };
    (0..).map(ask).find(|said| !is_one_away(said) || Instant::now() > deadline).unwrap()
}

fn written(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_file_without_contradictions_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, "cluster.toml", FILE);
    let (code, out, _) = isonomia(&["cluster", "check", &path], dir.path());
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with("s epoch 2: 2 servers, 4 targets, root on io01\n"), "{out}");
    assert!(out.contains("\nio02         2  16-17         1  -       k1    in memory  tcp:io02:7411\n"), "{out}");
    let (code, out, _) = isonomia(&["cluster", "check", &path, "--json"], dir.path());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["ok"], &report["cluster"]["root"]), (0, &true.into(), &"io01".into()));
    assert_eq!(report["cluster"]["servers"][1]["targets"][0]["number"], 16);
}

#[test]
fn all_contradictions_are_named_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let bad = FILE.replace("depth = 4", "dept = 4").replace("rack", "rak").replace("number = 1", "number = 0");
    let path = written(&dir, "cluster.toml", &bad);
    let (code, out, _) = isonomia(&["cluster", "check", &path], dir.path());
    assert_eq!(code, 1);
    for words in [
        "cluster.toml:7: error: target 0: unknown field `dept`, expected one of `dir`, `bandwidth`",
        "cluster.toml:8: error: unknown key \"rak\" of [[server]] (allowed: name, number",
        "cluster.toml:3: error: number: 0, and the last one is 1 (allowed: 1 to 65535)",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let old = written(&dir, "old.toml", FILE);
    let new = written(&dir, "new.toml", &FILE.replace("01-02", "01,03").replace("epoch = 2", "epoch = 1"));
    let (code, out, _) = isonomia(&["cluster", "check", &new, "--against", &old, "--json"], dir.path());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let what: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["what"].as_str().unwrap()).collect();
    assert_eq!((code, &report["ok"]), (1, &false.into()));
    assert!(what[0].contains("epoch 1 is older than 2") && what[1].contains("number 2 was that of io02"), "{what:?}");
    let none = isonomia(&["cluster", "check", "/nonexistent/c.toml"], dir.path());
    assert!(
        none.0 == 1 && none.2.contains("/nonexistent/c.toml") && none.2.matches("os error").count() == 1,
        "{none:?}"
    );
}

/// A cluster of one test; ended when dropped, by its own record of processes.
struct Trial {
    dir: tempfile::TempDir,
}

impl Trial {
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        isonomia(&[&["cluster"], arguments].concat(), self.dir.path())
    }

    fn state(&self, file: &Path) -> (i32, Vec<String>) {
        let (code, out, _) = self.run(&["status", file.to_str().unwrap(), "--json"]);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let servers = report["servers"].as_array().unwrap();
        (code, servers.iter().map(|server| server["state"].as_str().unwrap().to_owned()).collect())
    }

    fn kept(&self) -> PathBuf {
        self.dir.path().join("kept")
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.run(&["down"]);
        self.run(&["down", "--dir", self.kept().to_str().unwrap()]);
    }
}

#[test]
fn a_cluster_for_trials_comes_up_and_goes_down() {
    let trial = Trial { dir: tempfile::tempdir().unwrap() };
    let dir = trial.dir.path().join("isonomia-cluster");
    let file = dir.join("cluster.toml");
    let (code, out, error) = trial.run(&["up", "--servers", "2", "--", "--policy", "fifo"]);
    assert_eq!(code, 0, "{error}");
    let server = out.lines().find_map(|line| line.strip_prefix("export ISONOMIA_SERVER=")).unwrap();
    let (_, policy, _) = counted_in(|_| isonomia(&["policy", "get", "--server", server], trial.dir.path()));
    let rows: Vec<Vec<&str>> = policy.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["io01", "fifo", "virtual-time", "0"], ["io02", "fifo", "virtual-time", "0"]], "{policy}");
    assert_eq!(trial.state(&file), (0, vec!["answers".to_owned(); 2]));
    let (code, _, error) = trial.run(&["up", "--servers", "2"]);
    assert!(code == 1 && error.contains("io[01-02] run in") && error.contains("cluster down"), "{error}");

    // A newer file, one of the same epoch that says something else, and addresses at which others listen.
    let text = std::fs::read_to_string(&file).unwrap();
    let other = |name: &str, from: &str, to: &str| {
        let path = trial.dir.path().join(name);
        std::fs::write(&path, text.replace(from, to)).unwrap();
        trial.state(&path)
    };
    assert_eq!(other("newer", "epoch = 1", "epoch = 2"), (1, vec!["other-epoch".to_owned(); 2]));
    assert_eq!(other("else", "number = 1\n", "number = 1\nrack = \"k\"\n"), (1, vec!["other-file".to_owned(); 2]));
    assert_eq!(other("renamed", "\"io0", "\"nfs0"), (1, vec!["other-server".to_owned(); 2]));

    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("processes.json")).unwrap()).unwrap();
    let pid = record["servers"][1]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let (code, states) = trial.state(&file);
    assert_eq!((code, states[0].as_str(), states[1].as_str()), (1, "answers", "no-answer"));
    let (code, out, _) = trial.run(&["down"]);
    assert_eq!((code, out.as_str()), (0, "io01 ended\nio02 was not running any more\n"));
    assert!(!dir.exists());
    let (code, _, error) = trial.run(&["down"]);
    assert!(code == 1 && error.contains("no cluster was started in"), "{error}");
}

#[test]
fn a_cluster_in_a_directory_is_kept_and_served_again() {
    let trial = Trial { dir: tempfile::tempdir().unwrap() };
    let (kept, dir) = (trial.kept(), trial.kept().display().to_string());
    let (code, out, error) = trial.run(&["up", "--servers", "2", "--targets", "2", "--dir", &dir]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains(&format!("isonomia cluster down --dir {dir}")), "{out}");
    let first = std::fs::read(kept.join("cluster.toml")).unwrap();
    assert!(kept.join("io02/target-1").is_dir());
    assert_eq!(trial.run(&["down", "--dir", &dir]).0, 0);
    let (code, _, error) = trial.run(&["up", "--servers", "3", "--dir", &dir]);
    assert!(code == 1 && error.contains("has 2 servers (allowed: as many"), "{error}");
    // A server that cannot start takes the others with it.
    let in_the_way = kept.join("io02.sock");
    std::fs::create_dir(&in_the_way).unwrap();
    let (code, _, error) = trial.run(&["up", "--dir", &dir]);
    assert!(code == 1 && error.contains("io02 did not start; its log"), "{error}");
    assert_eq!(trial.state(&kept.join("cluster.toml")), (1, vec!["no-answer".to_owned(); 2]));
    std::fs::remove_dir(&in_the_way).unwrap();
    let (code, _, error) = trial.run(&["up", "--dir", &dir]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(std::fs::read(kept.join("cluster.toml")).unwrap(), first);
    assert_eq!(trial.state(&kept.join("cluster.toml")), (0, vec!["answers".to_owned(); 2]));
}

#[test]
fn volumes_are_made_where_one_wants_them_and_listed() {
    let trial = Trial { dir: tempfile::tempdir().unwrap() };
    let (code, out, err) = trial.run(&["up", "--servers", "3"]);
    assert_eq!(code, 0, "{out}{err}");
    let server = out.lines().find_map(|line| line.strip_prefix("export ISONOMIA_SERVER=")).unwrap();
    let volume =
        |arguments: &[&str]| isonomia(&[&["volume"], arguments, &["--server", server]].concat(), trial.dir.path());
    for name in ["a", "b", "c"] {
        assert_eq!(volume(&["create", name, "--on", "io03", "--mode", "1777"]), (0, String::new(), String::new()));
    }
    assert_eq!(volume(&["create", "d", "--server", "io01"]), (0, String::new(), String::new()));
    let (code, out, _) = volume(&["list"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(code, 0);
    assert_eq!(rows[1..], [["a", "1", "io03"], ["b", "2", "io03"], ["c", "3", "io03"], ["d", "4", "io01"]], "{out}");
    let (_, out, _) = volume(&["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&listed["volumes"][3]["server"], &listed["servers"][1]["name"]), (&"io01".into(), &"io02".into()));
    for (arguments, words) in [
        (&["create", "e", "--on", "io07"][..], "the cluster has no server \"io07\" (allowed: io[01-03])"),
        (&["create", "a", "--on", "io02"], "cannot make volume \"a\" on io02"),
        (&["create", "x/y", "--on", "io02"], "\"x/y\" is no name of a volume"),
        (&["create", "f", "--on", "io02", "--mode", "9"], "octal digits"),
        (&["create", "f"], "on which server volume \"f\" is to be is not said (allowed: --server NAME"),
        (
            &["create", "f", "--on", "io02", "--server", "io03"],
            "--on names io02 and --server io03 (allowed: one server)",
        ),
    ] {
        let (code, _, err) = volume(arguments);
        assert!(code != 0 && err.contains(words), "{arguments:?}: {err}");
    }
    assert_eq!(trial.run(&["down"]).0, 0);
}

#[test]
fn a_newer_file_reaches_all_servers_or_none() {
    let trial = Trial { dir: tempfile::tempdir().unwrap() };
    let (kept, dir) = (trial.kept(), trial.kept().display().to_string());
    let file = kept.join("cluster.toml");
    let (code, _, error) = trial.run(&["up", "--servers", "2", "--dir", &dir]);
    assert_eq!(code, 0, "{error}");
    let text = std::fs::read_to_string(&file).unwrap();
    let bring = |text: &str| std::fs::write(&file, text).unwrap();
    let reload = |path: &Path| {
        let (code, out, _) = trial.run(&["reload", path.to_str().unwrap(), "--json"]);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let servers = report["servers"].as_array().unwrap().iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let outcomes: Vec<_> = servers.map(|server| (text(&server["outcome"]), text(&server["reason"]))).collect();
        (code, outcomes)
    };
    let all = |outcome: &str, outcomes: &[(String, String)]| outcomes.iter().all(|(found, _)| found == outcome);

    let newer = text.replace("epoch = 1", "epoch = 3").replace("number = 2\n", "number = 2\nrack = \"k\"\n");
    let elsewhere = kept.join("elsewhere.toml");
    std::fs::write(&elsewhere, &newer).unwrap();
    let (code, outcomes) = reload(&elsewhere);
    assert!(
        code == 1 && all("refused", &outcomes) && outcomes[0].1.contains("another file, of epoch 1"),
        "{outcomes:?}"
    );
    bring(&newer);
    assert_eq!(trial.state(&file), (1, vec!["other-epoch".to_owned(); 2]));
    let (code, outcomes) = reload(&file);
    assert!(code == 0 && all("taken", &outcomes), "{outcomes:?}");
    assert_eq!(trial.state(&file), (0, vec!["answers".to_owned(); 2]));
    assert_eq!(reload(&file).0, 0, "again");

    for (changed, words) in [
        (text.clone(), "epoch 1 is older than 3"),
        (newer.replace("\"k\"", "\"l\""), "epoch 3 says something else"),
        (newer.replace("epoch = 3", "epoch = 4").replace("number = 2", "number = 5"), "io02 had number 2"),
    ] {
        bring(&changed);
        let (code, outcomes) = reload(&file);
        let reasons: String = outcomes.iter().map(|(_, reason)| reason.as_str()).collect();
        assert!(code == 1 && reasons.contains(words), "{words}: {outcomes:?}");
        bring(&newer);
        assert_eq!(trial.state(&file), (0, vec!["answers".to_owned(); 2]), "{words}");
    }

    // What is a server's own counts when it starts again.
    bring(&newer.replace("epoch = 3", "epoch = 4").replacen("targets = 1", "targets = 2", 1));
    let (code, outcomes) = reload(&file);
    assert!(code == 0 && all("taken", &outcomes), "{outcomes:?}");
    assert!(outcomes[0].1.contains("start it again") && outcomes[1].1.is_empty(), "{outcomes:?}");

    // Who had a newer file does not start with an older one.
    assert_eq!(trial.run(&["down", "--dir", &dir]).0, 0);
    bring(&newer);
    let (code, _, error) = trial.run(&["up", "--dir", &dir]);
    assert!(code == 1 && error.contains("io01 did not start") && error.contains("epoch"), "{error}");
}

/// Writes a file block by block as a process of a job.
fn write_file(server: &str, job: &str, path: &str) {
    let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
    let addresses = vec![server.parse().unwrap()];
    let client = Client::new(ClientConfig { addresses, timeout: Nanos::from_secs(20), claims, key_file: None });
    let how = OpenHow { access: access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    let file = client.open(Ino::ROOT, path.as_bytes(), &how).unwrap();
    for at in 0..50 {
        assert_eq!(client.write_at(&file, at << 16, &[7; 1 << 16]).unwrap(), 1 << 16);
    }
}

#[test]
fn a_cluster_is_recorded_and_simulated_as_a_whole() {
    let trial = Trial { dir: tempfile::tempdir().unwrap() };
    let options = ["--", "--policy", "job-fair", "--bandwidth", "200MiB/s", "--trust-clients"];
    let (code, out, err) = trial.run(&[&["up", "--servers", "2"], &options[..]].concat());
    assert_eq!(code, 0, "{err}");
    let server = out.lines().find_map(|line| line.strip_prefix("export ISONOMIA_SERVER=")).unwrap();
    let run = |arguments: &[&str]| isonomia(&[arguments, &["--server", server]].concat(), trial.dir.path());
    for (volume, on) in [("a", "io01"), ("b", "io02")] {
        assert_eq!(run(&["volume", "create", volume, "--on", on, "--mode", "1777"]).0, 0);
    }
    let at = |name: &str| trial.dir.path().join(name).to_str().unwrap().to_owned();
    let file = at("decisions.jsonl");
    let records = [at("decisions.io01.jsonl"), at("decisions.io02.jsonl")];
    let interrupt = |recording: Child| {
        let pid = rustix::process::Pid::from_child(&recording);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        recording.wait_with_output().unwrap()
    };
    let mut recording = None;
    let (_, _, line) = counted_in(|_| {
        if let Some(of_one) = recording.take() {
            interrupt(of_one);
            records.iter().for_each(|record| drop(std::fs::remove_file(record)));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_isonomia"));
        command.args(["record", &file, "--for", "60s", "--server", server]);
        let mut begun = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(begun.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        recording = Some(begun);
        (0, String::new(), line)
    });
    assert!(line.contains("being recorded"), "{line}");
    std::thread::scope(|scope| {
        for (job, path) in [("wide", "a/wide"), ("wide", "b/wide"), ("narrow", "a/narrow")] {
            scope.spawn(move || write_file(server, job, path));
        }
    });
    let done = interrupt(recording.unwrap());
    assert_eq!(String::from_utf8(done.stdout).unwrap(), format!("io01:{}\nio02:{}\n", records[0], records[1]));
    let simulated = |traces: &[String]| {
        let traces = traces.iter().flat_map(|trace| ["--trace", trace]);
        let arguments: Vec<&str> = ["sim", "--json"].into_iter().chain(traces).collect();
        let (code, out, err) = isonomia(&arguments, trial.dir.path());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    let requests = |found: &serde_json::Value, job: &str| {
        let jobs = found["jobs"].as_array().unwrap();
        jobs.iter().filter(|found| found["job"] == job).map(|found| found["requests"].as_u64().unwrap()).sum::<u64>()
    };
    let whole = simulated(&records);
    assert_eq!((&whole["records"], &whole["targets"]), (&2.into(), &4.into()), "{whole}");
    let of_parts = records.each_ref().map(|record| requests(&simulated(std::slice::from_ref(record)), "wide"));
    assert!(of_parts.iter().all(|count| *count >= 50), "{of_parts:?}");
    assert_eq!(requests(&whole, "wide"), of_parts.iter().sum::<u64>());
    assert!(requests(&whole, "narrow") >= 50, "{whole}");

    // Where one of them cannot write, none goes on.
    let (code, _, err) = counted_in(|_| {
        std::fs::remove_file(&records[0]).unwrap_or_default();
        run(&["record", &file, "--for", "1ms"])
    });
    assert!(code == 1 && err.contains("io02") && err.contains("cannot create"), "{err}");
    let (code, out, err) = counted_in(|attempt| run(&["record", &at(&format!("again-{attempt}")), "--for", "1ms"]));
    assert_eq!((code, out.lines().count()), (0, 2), "{err}");
    // A server that is named writes where it was told to.
    let alone = at("alone");
    let told = counted_in(|_| run(&["record", &alone, "--for", "1ms", "--server", "io02"]));
    assert_eq!(told.1, format!("{alone}\n"), "{told:?}");
}
