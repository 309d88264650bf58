//! Records of decisions, replayed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_policy::trace::{Call, Entry, Journal};
use isonomia_sim::replay::replay;
use isonomia_sim::request::run_recorded;
use isonomia_sim::scenario::{Scenario, parse};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The record of a simulated run, line by line, and how many decisions it made.
fn record(draw: &str) -> (Vec<String>, u64) {
    let text = format!(
        "duration = \"200ms\"\npolicy = \"size-fair\"\ndraw = \"{draw}\"\n\
         [[target]]\nname = \"t\"\ncount = 2\nbandwidth = \"1GiB/s\"\n\
         [[job]]\nname = \"a\"\nnodes = 4\nrequest = \"64KiB\"\nthink = \"20us\"\n\
         [[job]]\nname = \"b\"\nprocesses = 4\nrequest = \"64KiB\"\nthink = \"50us\"\nthink_jitter = 0.5\n"
    );
    let points = parse(Path::new("s.toml"), &text, None).unwrap().points;
    let Scenario::Request { scenario, .. } = &points[0].scenario else { panic!("at request level") };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let journal = Journal::new(move |entry| kept.lock().unwrap().push(serde_json::to_string(entry).unwrap()));
    let outcome = run_recorded(scenario, &journal, &mut |_| ControlFlow::Continue(()));
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (lines, outcome.decisions)
}

fn write(dir: &tempfile::TempDir, text: &str) -> std::path::PathBuf {
    let path = dir.path().join("decisions.jsonl");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_simulated_runs_decisions_are_decided_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    for draw in ["virtual-time", "lottery"] {
        let (lines, decisions) = record(draw);
        let found = replay(&write(&dir, &(lines.join("\n") + "\n"))).unwrap();
        assert_eq!((found.calls, found.decisions), (lines.len() as u64, decisions));
        assert_eq!(found.difference, None);
        assert_eq!(found.log.len() as u64, decisions);
    }
}

#[test]
fn a_decision_that_differs_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let (mut lines, _) = record("virtual-time");
    let mut entry: Entry = serde_json::from_str(&lines[0]).unwrap();
    let Call::Build { policy, .. } = &mut entry.call else { panic!("the first entry") };
    *policy = "fifo".parse().unwrap();
    lines[0] = serde_json::to_string(&entry).unwrap();
    let found = replay(&write(&dir, &(lines.join("\n") + "\n"))).unwrap();
    let difference = found.difference.unwrap();
    assert!(difference.line > 1 && difference.now != difference.recorded);
}

#[test]
fn what_is_no_record_is_named_with_its_line_and_half_a_line_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, _) = record("virtual-time");
    let whole = format!("{}\n{}\n", lines[0], lines[1]);
    assert_eq!(replay(&write(&dir, &format!("{whole}{{\"arb"))).unwrap().calls, 2);
    for bad in [
        "{}\n",
        "nonsense\n",
        "{\"arbiter\":0,\"call\":\"sleep\"}\n",
        "{\"arbiter\":7,\"call\":\"drain\",\"gave\":[]}\n",
    ] {
        let error = replay(&write(&dir, &format!("{whole}{bad}"))).unwrap_err();
        assert_eq!(error.line, 3, "{error}");
    }
    assert_eq!(replay(&dir.path().join("gone")).unwrap_err().line, 0);
}
