//! What a simulation makes of a record, beside what is in it.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_policy::Nature;
use isonomia_policy::trace::{Call, Entry, Journal};
use isonomia_sim::predict::{self, Prediction};
use isonomia_sim::request::run_recorded;
use isonomia_sim::scenario::{self, parse};
use isonomia_units::JobId;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Runs two jobs on two targets by `policy`, and records it.
fn recorded(policy: &str) -> Vec<Entry> {
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
    let entries = Arc::new(Mutex::new(Vec::new()));
    let kept = entries.clone();
    let journal = Journal::new(move |entry| kept.lock().unwrap().push(entry.clone()));
    run_recorded(scenario, &journal, &mut |_| ControlFlow::Continue(()));
    std::mem::take(&mut entries.lock().unwrap())
}

fn written(entries: impl IntoIterator<Item = impl serde::Serialize>) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    entries.into_iter().for_each(|entry| writeln!(file, "{}", serde_json::to_string(&entry).unwrap()).unwrap());
    file
}

/// The same, predicted by another policy.
fn predicted(policy: &str, other: Option<&str>) -> Prediction {
    let file = written(recorded(policy));
    let record = predict::read(file.path()).unwrap();
    record.predict(other.map(|text| text.parse().unwrap()).as_ref())
}

/// The time of day at which records of servers begin.
const WALL_NS: u64 = 1_800_000_000_000_000_000;

/// What the server of one of the two targets records of this: its clock is `ahead_ns` ahead, it began `late_ns` after the time of day above, and
/// it numbers jobs in its own way.
fn of_server(entries: &[Entry], target: u32, (ahead_ns, late_ns): (u64, u64)) -> tempfile::NamedTempFile {
    let clock = Entry { arbiter: 0, call: Call::Clock { now: ahead_ns + late_ns, wall_ns: WALL_NS + late_ns } };
    let own = entries.iter().filter(|entry| entry.arbiter == target).map(|entry| {
        let mut line = serde_json::to_value(entry).unwrap();
        if let Some(now) = line.get("now").and_then(Value::as_u64) {
            line["now"] = json!(now + ahead_ns);
        }
        if let Some(job) = line.get("job").and_then(Value::as_u64) {
            line["job"] = json!(JobId(job as u32 * 7 + 10 * target));
        }
        line
    });
    written([serde_json::to_value(&clock).unwrap()].into_iter().chain(own))
}

#[test]
fn records_of_several_servers_are_one_of_all_their_targets() {
    let entries = recorded("job-fair");
    let whole = predict::read(written(&entries).path()).unwrap().predict(None);
    let files = [of_server(&entries, 0, (5_000_000_000_000, 0)), of_server(&entries, 1, (0, 0))];
    let paths: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
    let both = predict::read_all(&paths).unwrap().predict(None);
    assert_eq!((both.records, both.targets, both.jobs.len()), (2, 2, 2));
    for (job, same) in both.jobs.iter().zip(&whole.jobs) {
        assert_eq!((&job.job, job.requests, &job.recorded), (&same.job, same.requests, &same.recorded));
    }
    assert!(both.share_difference_max < 0.02 && both.makespan_difference_max < 0.03, "{:?}", both.jobs);
    // One server alone has half of the requests of each.
    let one = predict::read_all(&paths[..1]).unwrap().predict(None);
    assert_eq!((one.records, one.jobs[0].requests < whole.jobs[0].requests), (1, true));
}

#[test]
fn records_that_are_not_of_one_time_and_policy_are_refused() {
    let entries = recorded("job-fair");
    let first = of_server(&entries, 0, (0, 0));
    let refused = |other: &Path, words: &str| {
        let error = predict::read_all(&[first.path().to_owned(), other.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    };
    refused(first.path(), "named twice");
    refused(written(&entries).path(), "does not say at what time of day it began");
    refused(of_server(&entries, 1, (0, 3_600_000_000_000)).path(), "had ended before");
    refused(of_server(&recorded("fifo"), 1, (0, 0)).path(), "its policy is fifo, and that of");
}

#[test]
fn directories_are_those_of_the_record() {
    let entries = recorded("tbf{path:/a=1GB/s,path:/b=1GB/s}");
    let record = predict::read(written(&entries).path()).unwrap();
    let obstacle = |policy: &str| record.obstacle(Some(&policy.parse().unwrap()));
    assert_eq!(obstacle("tbf{path:/b=1MB/s}"), None);
    assert!(obstacle("tbf{path:/b=1MB/s,path:/c=1MB/s}").unwrap().contains("what lies below /c"));
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

/// A busy server begins to record one target after the other, and another policy ends what can be used.
#[test]
fn requests_may_come_to_the_first_target_before_the_second_is_recorded() {
    let entries = recorded("job-fair");
    let in_order = predict::read(written(&entries).path()).unwrap().predict(None);
    let first = entries.iter().position(|entry| matches!(entry.call, Call::Enqueue { .. })).unwrap();
    let (before, after) = entries.split_at(first + 1);
    let target = before[first].arbiter;
    let (own, others): (Vec<_>, Vec<_>) = before.iter().partition(|entry| entry.arbiter == target);
    let begun: Vec<&Entry> = own.into_iter().chain(others).chain(after).collect();
    let found = predict::read(written(&begun).path()).unwrap().predict(None);
    let requests = |of: &Prediction| of.jobs.iter().map(|job| job.requests).sum::<u64>();
    assert_eq!((found.targets, requests(&found)), (2, 960), "{:?}", found.jobs);
    assert_eq!(requests(&in_order), 960);
    let half = entries.len() / 2;
    let drained = Entry { arbiter: target, call: Call::Drain { gave: Vec::new() } };
    let other = recorded("fifo").into_iter().find(|entry| matches!(entry.call, Call::Build { .. })).unwrap();
    for end in [drained, Entry { arbiter: 9, ..other }] {
        let ended = entries[..half].iter().chain([&end]).chain(&entries[half..]);
        let found = predict::read(written(ended).path()).unwrap().predict(None);
        assert!((300..660).contains(&requests(&found)), "{}", requests(&found));
    }
}

/// As where an operator sets the policy of a server that records from its start.
#[test]
fn a_policy_that_was_changed_before_anything_came_does_not_count() {
    let entries = recorded("job-fair");
    let other = recorded("fifo");
    let built = |entry: &&Entry| matches!(entry.call, Call::Build { .. });
    let first = other.iter().filter(built);
    let second: Vec<Entry> =
        entries.iter().filter(built).cloned().map(|entry| Entry { arbiter: entry.arbiter + 2, ..entry }).collect();
    let drained = other
        .iter()
        .filter(built)
        .map(|entry| Entry { arbiter: entry.arbiter, call: Call::Drain { gave: Vec::new() } });
    let drained: Vec<_> = drained.collect();
    let changed = second.iter().zip(&drained).flat_map(|(built, drained)| [built, drained]);
    let rest: Vec<Entry> = entries
        .iter()
        .filter(|entry| !built(entry))
        .cloned()
        .map(|entry| Entry { arbiter: entry.arbiter + 2, ..entry })
        .collect();
    let changed = first.chain(changed).chain(&rest);
    let found = predict::read(written(changed).path()).unwrap().predict(None);
    let requests = found.jobs.iter().map(|job| job.requests).sum::<u64>();
    assert_eq!((found.targets, requests, found.recorded_policy.as_str()), (2, 960, "job-fair"));
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

/// As where a program that ends gives back its files: that has no operation, and comes when it came.
#[test]
fn what_no_program_asked_for_does_not_say_when_a_job_is_done() {
    let mut entries = recorded("fifo");
    let plain = predict::read(written(&entries).path()).unwrap().predict(Some(&"job-fair".parse().unwrap()));
    for wanted in ["few", "many"] {
        let job = entries.iter().find_map(|entry| match &entry.call {
            Call::SetJob { job, info, .. } if *info.name == *wanted => Some(*job),
            _ => None,
        });
        let of_job = |entry: &&mut Entry| matches!(&entry.call, Call::Enqueue { job: of, .. } if Some(*of) == job);
        let last = entries.iter_mut().rev().find(of_job).unwrap();
        let Call::Enqueue { nature, .. } = &mut last.call else { unreachable!("it was looked for") };
        *nature = Nature::OWN;
    }
    let found = predict::read(written(&entries).path()).unwrap().predict(Some(&"job-fair".parse().unwrap()));
    for (job, of_plain) in found.jobs.iter().zip(&plain.jobs) {
        let (found, plain) = (job.simulated.makespan_ns as f64, of_plain.simulated.makespan_ns as f64);
        assert!((found / plain - 1.0).abs() < 0.03, "{}: {found} ns, {plain} without", job.job);
    }
    assert!(found.share_to_ns.abs_diff(plain.share_to_ns) < plain.share_to_ns / 30);
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
