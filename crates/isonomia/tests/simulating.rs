//! `isonomia sim`: what it prints and leaves, and how a sweep is divided and gone on with.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

const SWEEP: &str = r#"duration = "500ms"
[[target]]
name = "t"
bandwidth = "1GiB/s"
[[job]]
name = "large"
nodes = 4
processes = 4
request = "1MiB"
[[job]]
name = "small"
request = "256KiB"
[sweep]
policy = ["fifo", "job-fair", "size-fair"]
"#;

fn sim(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isonomia"));
    for name in ["ID", "COUNT", "MIN"] {
        command.env_remove(format!("SLURM_ARRAY_TASK_{name}"));
    }
    command.current_dir(dir).arg("sim").args(arguments);
    command
}

fn json(command: &mut Command) -> serde_json::Value {
    serde_json::from_slice(&command.assert().success().get_output().stdout).unwrap()
}

#[test]
fn a_run_prints_its_figures_and_leaves_data_and_plots() {
    let dir = tempfile::tempdir().unwrap();
    let text = SWEEP.split("[sweep]").next().unwrap().replace("500ms\"", "500ms\"\npolicy = \"size-fair\"");
    std::fs::write(dir.path().join("s.toml"), text).unwrap();
    let first = json(&mut sim(dir.path(), &["s.toml", "--json", "--seed", "3"]));
    assert!((first["jobs"][0]["share"].as_f64().unwrap() - 0.8).abs() < 0.01, "{first}");
    assert_eq!(first, json(&mut sim(dir.path(), &["s.toml", "--json", "--seed", "3"])));
    let assert = sim(dir.path(), &["s.toml", "--out", "o"]).assert().success();
    let table = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(table.starts_with("job    user") && table.contains("o/throughput.svg"), "{table}");
    let slices = std::fs::read_to_string(dir.path().join("o/slices.csv")).unwrap();
    assert_eq!(slices.lines().next(), Some("time_s,job,bytes,service_ns"));
    assert_eq!(slices.lines().count(), 1 + 2 * 5);
    let svg = std::fs::read_to_string(dir.path().join("o/throughput.svg")).unwrap();
    assert!(svg.contains("small") && svg.contains("throughput in MiB/s"));
}

#[test]
fn tasks_divide_a_sweep_and_the_last_one_has_the_whole_table() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), SWEEP).unwrap();
    let whole = json(&mut sim(dir.path(), &["s.toml", "--json"]));
    assert_eq!(whole["points"].as_array().map(Vec::len), Some(3));
    sim(dir.path(), &["s.toml", "--out", "o", "--slice", "0/2"]).assert().success();
    let table = || std::fs::read_to_string(dir.path().join("o/sweep.csv")).unwrap();
    assert_eq!(table().lines().count(), 1 + 2 * 2);
    let point = dir.path().join("o/point-00000.json");
    let written = std::fs::metadata(&point).unwrap().modified().unwrap();
    let mut task = sim(dir.path(), &["s.toml", "--json", "--out", "o"]);
    task.env("SLURM_ARRAY_TASK_ID", "8").env("SLURM_ARRAY_TASK_COUNT", "2").env("SLURM_ARRAY_TASK_MIN", "7");
    assert_eq!(json(&mut task), whole, "its own points, and those of the other task");
    assert_eq!(table().lines().count(), 1 + 3 * 2);
    assert!(table().starts_with("point,policy,job,"));
    assert_eq!(std::fs::metadata(&point).unwrap().modified().unwrap(), written, "what was done is not done again");
    // Another seed is another study: nothing is taken over.
    sim(dir.path(), &["s.toml", "--out", "o", "--seed", "5"]).assert().success();
    assert_ne!(std::fs::metadata(&point).unwrap().modified().unwrap(), written);
}

#[test]
fn allocation_schemes_are_compared_by_a_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let text = "level = \"fluid\"\nduration = \"100h\"\nscheme = \"pofs\"\nnodes = 32\n\
                [targets]\ncount = 8\nbandwidth = \"100MB/s\"\n[population]\napplications = 20\n";
    std::fs::write(dir.path().join("s.toml"), text).unwrap();
    let run = json(&mut sim(dir.path(), &["s.toml", "--json", "--out", "o"]));
    assert!(run["level"] == "fluid" && run["jobs_done"].as_u64().unwrap() > 20, "{run}");
    assert!(dir.path().join("o/slowdown.svg").exists());
    let applications = std::fs::read_to_string(dir.path().join("o/applications.csv")).unwrap();
    assert_eq!(applications.lines().count(), 21);
    let sweep = format!("{text}[sweep]\nscheme = [\"pofs\", \"bsip\", \"gift\", \"coflow\"]\n");
    std::fs::write(dir.path().join("s.toml"), sweep).unwrap();
    let assert = sim(dir.path(), &["s.toml", "--out", "p"]).assert().success();
    let table = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(table.starts_with("scheme  jobs done") && table.contains("\ncoflow  "), "{table}");
    let csv = std::fs::read_to_string(dir.path().join("p/sweep.csv")).unwrap();
    assert!(csv.starts_with("point,scheme,jobs_done,io_s,"));
}

#[test]
fn what_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), SWEEP.replace("1GiB/s", "1GiB")).unwrap();
    let said = |arguments: &[&str], code: i32| {
        let assert = sim(dir.path(), arguments).assert().code(code).stdout("");
        String::from_utf8(assert.get_output().stderr.clone()).unwrap()
    };
    assert!(said(&["s.toml"], 1).starts_with("isonomia: s.toml:4: target[0].bandwidth: \"1GiB\" is not a rate"));
    assert!(said(&["gone.toml"], 1).starts_with("isonomia: gone.toml: "));
    assert!(said(&["s.toml", "--slice", "2/2"], 2).contains("allowed: I/N"));
    std::fs::write(dir.path().join("s.toml"), SWEEP).unwrap();
    let mut task = sim(dir.path(), &["s.toml"]);
    task.env("SLURM_ARRAY_TASK_ID", "9").env("SLURM_ARRAY_TASK_COUNT", "2").assert().code(1);
}

#[test]
fn an_interrupted_sweep_keeps_what_was_done_and_goes_on_from_there() {
    let nodes: Vec<String> = (1..=20).map(|nodes| nodes.to_string()).collect();
    let done = |dir: &Path| -> BTreeMap<PathBuf, SystemTime> {
        let entries = std::fs::read_dir(dir.join("o")).into_iter().flatten().map(|entry| entry.unwrap());
        // And not what is being written, which gets another name at any time.
        let is_point = |name: &str| name.starts_with("point-") && name.ends_with(".json");
        let paths = entries.map(|entry| entry.path());
        let points = paths.filter(|path| is_point(path.file_name().unwrap().to_str().unwrap()));
        points.map(|path| (path.clone(), std::fs::metadata(path).unwrap().modified().unwrap())).collect()
    };
    let interrupted = |duration: &str| {
        let dir = tempfile::tempdir().unwrap();
        let text = SWEEP.replace("500ms", duration) + &format!("\"job.small.nodes\" = [{}]\n", nodes.join(", "));
        std::fs::write(dir.path().join("s.toml"), text).unwrap();
        let mut sweep = std::process::Command::new(env!("CARGO_BIN_EXE_isonomia"));
        sweep.current_dir(dir.path()).args(["sim", "s.toml", "--out", "o"]);
        sweep.stdout(Stdio::null()).stderr(Stdio::piped());
        ["ID", "COUNT", "MIN"].iter().for_each(|name| _ = sweep.env_remove(format!("SLURM_ARRAY_TASK_{name}")));
        let child = sweep.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while done(dir.path()).is_empty() {
            assert!(Instant::now() < deadline, "no point is ever done");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
        let (output, kept) = (child.wait_with_output().unwrap(), done(dir.path()));
        (dir, output, kept)
    };
    // One that was over before it was interrupted tells nothing: a longer one is begun.
    let mut sweeps = ["20s", "50s", "100s"].into_iter().map(interrupted);
    let in_time = sweeps.find(|(_, _, kept)| kept.len() != 60);
    let (dir, output, kept) = in_time.expect("an interrupted sweep ends before all is done");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("interrupted; what was done is kept"), "{error}");
    assert!((1..60).contains(&kept.len()), "{} of 60 points", kept.len());
    sim(dir.path(), &["s.toml", "--out", "o"]).assert().success();
    let all = done(dir.path());
    assert_eq!(all.len(), 60);
    assert!(kept.iter().all(|(path, written)| all[path] == *written), "what was done is not done again");
    let table = std::fs::read_to_string(dir.path().join("o/sweep.csv")).unwrap();
    assert_eq!(table.lines().count(), 1 + 60 * 2);
}
