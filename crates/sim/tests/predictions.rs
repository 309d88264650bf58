//! What a simulation makes of a record, beside what is in it.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_policy::trace::Journal;
use isonomia_sim::predict::{self, Prediction};
use isonomia_sim::request::run_recorded;
use isonomia_sim::scenario::{self, parse};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Runs two jobs on two targets by `policy`, records it, and predicts it by another.
fn predicted(policy: &str, other: Option<&str>) -> Prediction {
    let text = format!(
        "duration = \"60s\"\nslowdown = false\npolicy = \"{policy}\"\n\
         [[target]]\nname = \"t\"\ncount = 2\nbandwidth = \"500MiB/s\"\nper_op = \"50us\"\n\
         [[job]]\nname = \"many\"\nprocesses = 12\nrequest = \"1MiB\"\nrequests = 60\n\
         [[job]]\nname = \"few\"\nprocesses = 4\nrequest = \"1MiB\"\nrequests = 60\nthink = \"1ms\"\nthink_jitter = 0.5\n"
    );
    let points = parse(Path::new("test.toml"), &text, None).unwrap().points;
    let [scenario::Point { scenario: scenario::Scenario::Request { scenario, .. }, .. }] = &points[..] else {
        panic!("one scenario at request level")
    };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let journal = Journal::new(move |entry| kept.lock().unwrap().push(serde_json::to_string(entry).unwrap()));
    run_recorded(scenario, &journal, &mut |_| ControlFlow::Continue(()));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    lines.lock().unwrap().iter().for_each(|line| writeln!(file, "{line}").unwrap());
    let record = predict::read(file.path()).unwrap();
    record.predict(other.map(|text| text.parse().unwrap()).as_ref())
}

#[test]
fn the_same_policy_is_predicted_as_it_was() {
    for policy in ["fifo", "job-fair", "size-fair", "coflow", "fair-finish", "tbf{job:many=200MiB/s}"] {
        let found = predicted(policy, None);
        assert_eq!(found.jobs.iter().map(|job| job.requests).sum::<u64>(), 960, "{policy}");
        assert!(found.share_difference_max < 0.02, "{policy}: {:?}", found.jobs);
        assert!(found.makespan_difference_max < 0.03, "{policy}: {}", found.makespan_difference_max);
    }
}

#[test]
fn another_policy_is_predicted_as_if_it_had_been_followed() {
    for (from, to) in [("fifo", "job-fair"), ("job-fair", "fifo"), ("job-fair", "coflow")] {
        let (prediction, truth) = (predicted(from, Some(to)), predicted(to, None));
        for (job, real) in prediction.jobs.iter().zip(&truth.jobs) {
            let (predicted, real) = (job.simulated.makespan_ns as f64, real.recorded.makespan_ns as f64);
            assert!(
                (predicted / real - 1.0).abs() < 0.08,
                "{from} → {to}, {}: {predicted} ns, {real} in truth",
                job.job
            );
        }
        let moved = prediction.jobs.iter().map(|job| job.makespan_difference.abs()).fold(0.0, f64::max);
        assert!(moved > 0.05, "{from} → {to}: {moved}");
    }
}

#[test]
fn what_is_no_record_is_refused_by_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let empty = predict::read(file.path()).unwrap_err().to_string();
    assert!(empty.contains("no request came"), "{empty}");
    writeln!(file, "{{\"arbiter\":0}}").unwrap();
    let bad = predict::read(file.path()).unwrap_err().to_string();
    assert!(bad.contains(":1:"), "{bad}");
}
