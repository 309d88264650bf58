//! `isonomia plan`: what it prints, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

const APPS: &str = "id,compute_s,io_s,iterations\n1,8,4,1\n2,4,2,2\n3,2,1,4\n";
const JOBS: &str = "id,nodes,iterations,compute_s,volume\n\
                    a,4,1,40,60\nb,2,1,60,30\nc,4,1,30,50\nd,2,1,54,6\ne,2,1,10,10\n";
const SWF: &str = "; Version: 2.2\n\
                   1 0 0 100 4 -1 -1 4 100 -1 1 1 1 1 1 -1 -1 -1\n\
                   2 5 0 50 2 -1 -1 2 100 -1 1 1 1 1 1 -1 -1 -1\n\
                   3 9 0 -1 2 -1 -1 2 100 -1 5 1 1 1 1 -1 -1 -1\n";

struct Case {
    dir: TempDir,
}

impl Case {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn isonomia(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::new(env!("CARGO_BIN_EXE_isonomia")).arg("plan").args(arguments).assert()
}

fn json(arguments: &[&str]) -> Value {
    let assert = isonomia(&[arguments, &["--json"]].concat()).success();
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

fn text(arguments: &[&str]) -> String {
    String::from_utf8(isonomia(arguments).success().get_output().stdout.clone()).unwrap()
}

fn refusal(arguments: &[&str], code: i32) -> String {
    let assert = isonomia(arguments).code(code).stdout("");
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

#[test]
fn a_schedule_is_told_as_json_and_as_text() {
    let case = Case::new();
    let apps = case.file("apps.csv", APPS);
    for (order, ends) in [("fifo", [12.0, 15.0, 16.0]), ("longest-io", [12.0, 14.0, 18.0])] {
        let schedule = json(&["schedule", "--apps", &apps, "--policy", order]);
        assert_eq!(schedule["makespan_s"], ends[2]);
        assert_eq!(schedule["max_stretch"], ends[2] / 12.0);
        for (at, end) in ends.iter().enumerate() {
            let app = &schedule["apps"][at];
            assert_eq!(app["id"], (at + 1).to_string());
            assert_eq!(app["completion_s"], *end);
            assert_eq!(app["stretch"], end / 12.0);
        }
    }
    let text = text(&["schedule", "--apps", &apps, "--policy", "fifo"]);
    assert!(text.contains("fifo: makespan 16.0 s, max stretch 1.333."), "{text}");
    assert_eq!(text.lines().nth(3), Some("3       0.0 s     16.0 s  12.0 s    1.333"), "{text}");
}

#[test]
fn every_policy_of_the_paper_is_taken() {
    let case = Case::new();
    let apps = case.file("apps.csv", APPS);
    for order in [
        "fifo",
        "lowest-id",
        "longest-io",
        "shortest-io",
        "shortest-remaining",
        "longest-remaining",
        "bandwidth",
        "stretch",
    ] {
        assert_eq!(json(&["schedule", "--apps", &apps, "--policy", order])["policy"], order);
    }
}

#[test]
fn a_release_moves_an_application() {
    let case = Case::new();
    let apps = case.file("apps.csv", "id,compute_s,io_s,iterations,release_s\n1,8,4,1,0.5\n2,1,0,3,\n");
    let schedule = json(&["schedule", "--apps", &apps, "--policy", "fifo"]);
    assert_eq!(schedule["apps"][0]["completion_s"], 12.5);
    assert_eq!(schedule["apps"][0]["stretch"], 1.0);
    assert_eq!(schedule["apps"][1]["completion_s"], 3.0);
}

#[test]
fn packs_are_told_as_json_and_as_text() {
    let case = Case::new();
    let jobs = case.file("jobs.csv", JOBS);
    let common = ["pack", "--jobs", &jobs, "--nodes", "8", "--bandwidth", "1", "--policy", "fifo"];
    let plan = json(&[&common[..], &["--io-nodes", "1", "--sensibility", "1"]].concat());
    assert_eq!(plan["makespan_s"], 216.0);
    assert_eq!(plan["mean_max_stretch"], (106.0 / 60.0 + 1.0) / 2.0);
    assert!((plan["alpha"].as_f64().unwrap() - 8.0 * 156.0 / 1060.0).abs() < 1e-9);
    let packs: Vec<(Value, Value, Value)> = plan["packs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pack| (pack["jobs"].clone(), pack["io_node"].clone(), pack["time_s"].clone()))
        .collect();
    assert_eq!(
        packs,
        [
            (serde_json::json!(["a", "b", "d"]), 0.into(), 136.0.into()),
            (serde_json::json!(["c", "e"]), 0.into(), 80.0.into())
        ]
    );
    let two = json(&[&common[..], &["--io-nodes", "2", "--sensibility", "inf"]].concat());
    assert_eq!(two["makespan_s"], 136.0);
    assert_eq!(two["packs"][1]["io_node"], 1);
    let alpha = json(&[&common[..], &["--io-nodes", "3", "--sensibility", "alpha"]].concat());
    assert_eq!(alpha["sensibility"], "alpha");
    let text = text(&[&common[..], &["--sensibility", "1"]].concat());
    assert!(text.contains("5 jobs in 2 packs, sensibility 1, fifo: makespan 216.0 s"), "{text}");
    assert!(text.contains("a b d"), "{text}");
}

#[test]
fn a_log_becomes_jobs_by_the_mapping() {
    let case = Case::new();
    let log = case.file("log.swf", SWF);
    let options = ["pack", "--swf", &log, "--nodes", "4", "--processors-per-node", "2"];
    let plan = json(&[&options[..], &["--iterations", "5", "--io-fraction", "0.5"]].concat());
    // Job 1 on 2 nodes for 100 s, job 2 on 1 node for 50 s, half of it I/O; job 3 did not run.
    assert!((plan["alpha"].as_f64().unwrap() - 4.0 * 75.0 / 250.0).abs() < 1e-9);
    assert_eq!(plan["packs"][0]["jobs"], serde_json::json!(["1", "2"]));
    assert!(refusal(&[&options[..], &["--jobs", &log]].concat(), 2).contains("--jobs"));
}

#[test]
fn bad_input_is_named_by_file_line_and_field() {
    let case = Case::new();
    let row = |row: &str| format!("id,compute_s,io_s,iterations\n1,8,4,1\n{row}\n");
    for (rows, expected) in [
        ("2,-4,2,2", "line 3, field compute_s: \"-4\" is not a time (allowed: seconds, 0 to"),
        ("2,4,NaN,2", "line 3, field io_s: \"NaN\""),
        ("2,4,2,0", "line 3, field iterations: \"0\""),
        ("1,4,2,2", "line 3, field id: \"1\" is in line 2 already"),
        ("2,4,2", "line 3: 3 fields (allowed: 4"),
        ("2,4,2,4294967295", "4294967296 I/O phases in all (allowed: at most"),
    ] {
        let apps = case.file("apps.csv", &row(rows));
        let error = refusal(&["schedule", "--apps", &apps, "--policy", "fifo"], 1);
        assert!(error.contains(&format!("apps.csv: {expected}")), "{rows}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let jobs = case.file("jobs.csv", JOBS);
    let error = refusal(&["pack", "--jobs", &jobs, "--nodes", "3", "--bandwidth", "1"], 1);
    assert!(error.contains("jobs.csv: line 2, field nodes: \"4\" is too large (allowed: 1 to 3"), "{error}");
    let log = case.file("log.swf", &SWF.replace(" 50 2 ", " 50 x "));
    let error = refusal(&["pack", "--swf", &log, "--nodes", "4"], 1);
    assert!(error.contains("log.swf: line 3, field 5 (allocated_processors): \"x\""), "{error}");
    let error = refusal(&["schedule", "--apps", "/nonexistent/apps.csv", "--policy", "fifo"], 1);
    assert!(error.contains("cannot open /nonexistent/apps.csv"), "{error}");
}

#[test]
fn bad_options_are_refused_with_what_is_allowed() {
    let case = Case::new();
    let jobs = case.file("jobs.csv", JOBS);
    let pack = |more: &[&str]| refusal(&[&["pack", "--jobs", &jobs], more].concat(), 2);
    for (more, allowed) in [
        (&["--nodes", "8"][..], "--bandwidth"),
        (&["--nodes", "0", "--bandwidth", "1"], "from 1 to 4294967295"),
        (&["--nodes", "8", "--bandwidth", "0"], "greater than 0"),
        (&["--nodes", "8", "--bandwidth", "nan"], "greater than 0"),
        (&["--nodes", "8", "--bandwidth", "1", "--io-nodes", "0"], "from 1 to 65536"),
        (&["--nodes", "8", "--bandwidth", "1", "--sensibility", "0"], "1, alpha, inf"),
        (&["--nodes", "8", "--bandwidth", "1", "--policy", "lifo"], "fifo, lowest-id"),
    ] {
        let error = pack(more);
        assert!(error.contains(allowed), "{more:?}: {error}");
    }
    assert!(refusal(&["pack", "--nodes", "8"], 2).contains("--jobs"));
}

#[test]
fn a_figure_is_reproduced_from_the_command_line() {
    let case = Case::new();
    let out = case.dir.path().join("new/fig6");
    let out = out.to_str().unwrap();
    let reproduce =
        |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_isonomia")).arg("reproduce").args(arguments).assert();
    let assert = reproduce(&["ics20", "fig6", "--quick", "--out", out]).success();
    let files = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    for ending in ["fig6.csv", "fig6.json", "claims.md"] {
        assert!(files.lines().any(|line| line == format!("{out}/{ending}")), "{files}");
    }
    let errors = |assert: assert_cmd::assert::Assert| String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let told = errors(assert);
    assert!(told.contains("How verdicts are given") && told.contains("6 claims: "), "{told}");
    let assert = reproduce(&["tapp-io", "checkpoint", "--quick", "--out", out]).success();
    let files = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(files.lines().any(|line| line == format!("{out}/fig9.json")), "{files}");
    assert!(errors(reproduce(&["all", "fig6", "--out", out]).code(1)).contains("ITEM is for one paper"));
    assert!(errors(reproduce(&["ics21"]).code(2)).contains("allowed: ics20"));
    assert!(errors(reproduce(&["ics20", "fig16", "--out", out]).code(1)).contains("table1, fig5"));
    let file = case.file("file", "");
    assert!(errors(reproduce(&["ics20", "fig6", "--out", &file]).code(1)).contains("cannot make"));
}
