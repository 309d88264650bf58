//! What scenario files may say, and what is said about those that say something else.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_sim::scenario::{Scenario, parse};
use std::path::Path;

const GOOD: &str = r#"duration = "1s"
policy = "job-fair"
nodes = 64

[[target]]
name = "t"
bandwidth = "1GiB/s"

[[job]]
name = "a"
nodes = 4
request = "1MiB"
requests = 3
"#;

fn complaint(text: &str) -> String {
    parse(Path::new("s.toml"), text, None).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_used_is_named_with_line_and_field() {
    for (from, to, expected) in [
        ("duration = \"1s\"", "duration = \"-1s\"", "s.toml:1: duration: \"-1s\" is not a time"),
        ("duration = \"1s\"", "duration = \"0s\"", "s.toml:1: duration: "),
        ("duration = \"1s\"", "duration = \"1000000h\"", "s.toml:1: duration: "),
        (
            "duration = \"1s\"",
            "duration = 1",
            "s.toml:1: duration: invalid type: integer `1`, expected text with a unit",
        ),
        ("duration = \"1s\"", "duration = \"10\"", "s.toml:1: duration: \"10\" has no unit"),
        ("duration = \"1s\"\n", "", "s.toml:1: duration: missing field"),
        (
            "policy = \"job-fair\"",
            "exchange = \"1s\"\npolicy = \"fifo\"",
            "s.toml:2: exchange: needs a policy of shares, such as size-fair, or coflow or tbf",
        ),
        ("job-fair", "job-unfair", "s.toml:2: policy: "),
        ("name = \"t\"", "name = \"t\"\nspeed = 3", "s.toml:7: target[0].speed: unknown field `speed`"),
        ("1GiB/s", "0GiB/s", "s.toml:7: target[0].bandwidth: "),
        ("1GiB/s\"", "1GiB/s\"\nworkers = 0", "s.toml:8: target[0].workers: 0 workers"),
        ("1GiB/s\"", "1GiB/s\"\njitter = 1.5", "s.toml:8: target[0].jitter: "),
        ("1GiB/s\"", "1GiB/s\"\nlatency = \"0\"", "s.toml:8: target[0].latency: 0 is no latency"),
        ("1GiB/s\"", "1GiB/s\"\nlatency = \"1ms\"\nworkers = 2", "s.toml:9: target[0].workers: is of a device without"),
        ("1GiB/s\"", "1GiB/s\"\nlatency = \"1ms\"\nper_op = \"1us\"", "s.toml:9: target[0].per_op: is of a device"),
        ("1GiB/s\"", "1GiB/s\"\nlatency = \"1ms\"\nchannels = 4097", "s.toml:9: target[0].channels: 4097 channels"),
        ("1GiB/s\"", "1GiB/s\"\nlatency = \"1ms\"\ndepth = 0", "s.toml:9: target[0].depth: '0' is not a depth"),
        ("1GiB/s\"", "1GiB/s\"\nchannels = 4", "s.toml:8: target[0].channels: is of a device with a latency"),
        ("1GiB/s\"", "1GiB/s\"\ndepth = \"auto\"", "s.toml:8: target[0].depth: is of a device with a latency"),
        ("nodes = 4", "nodes = 65", "s.toml:11: job[0].nodes: 65 nodes (allowed: 1 to the machine's, 64)"),
        ("nodes = 4", "nodes = 0", "s.toml:11: job[0].nodes: "),
        ("nodes = 4", "nodes = -4", "s.toml:11: job[0].nodes: "),
        ("nodes = 4", "targets = [\"u\"]", "s.toml:11: job[0].targets: \"u\" is not declared"),
        ("nodes = 4", "targets = []", "s.toml:11: job[0].targets: names no target"),
        ("nodes = 4", "processes = 0", "s.toml:11: job[0].processes: "),
        ("nodes = 4", "processes = 4000000", "s.toml:11: job[0].processes: "),
        ("nodes = 4", "start = \"2s\"", "s.toml:11: job[0].start: "),
        ("nodes = 4", "think_jitter = 2.0", "s.toml:11: job[0].think_jitter: "),
        ("nodes = 4", "io_profile = \"p.csv\"", "s.toml:9: job[0]: says in several ways"),
        ("1MiB", "0B", "s.toml:12: job[0].request: "),
        ("request = \"1MiB\"", "op = \"metadata\"\nrequest = \"1MiB\"", "s.toml:13: job[0].request: "),
        ("request = \"1MiB\"\n", "", "s.toml:9: job[0].request: is missing"),
        ("name = \"a\"\n", "", "s.toml:9: job[0].name: missing field"),
        ("requests = 3", "requests = 0", "s.toml:13: job[0].requests: "),
        ("requests = 3", "requests = 3\niterations = 0", "s.toml:14: job[0].iterations: "),
        (
            "[[job]]",
            "[[job]]\nname = \"a\"\nrequest = \"1B\"\n[[job]]",
            "s.toml:13: job[1].name: \"a\" is declared twice",
        ),
        ("[[job]]", "[job]", "s.toml:9: job: "),
        ("[[job]]", "[[job]", "s.toml:9: "),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let said = complaint(&GOOD.replacen(from, to, 1));
        assert!(said.starts_with(expected), "{to}: {said}\nexpected: {expected}");
    }
}

#[test]
fn a_sweep_tries_every_combination_in_order() {
    let text = format!("{GOOD}[sweep]\npolicy = [\"fifo\", \"size-fair\"]\n\"job.a.processes\" = [1, 2, 4]\n");
    let points = parse(Path::new("s.toml"), &text, Some(9)).unwrap().points;
    let settings: Vec<String> = points
        .iter()
        .map(|point| point.settings.iter().map(|(name, value)| format!("{name}={value};")).collect())
        .collect();
    assert_eq!(settings.len(), 6);
    assert_eq!(settings[1], "job.a.processes=1;policy=size-fair;");
    assert_eq!(settings[4], "job.a.processes=4;policy=fifo;");
    let Scenario::Request { scenario, .. } = &points[5].scenario else { panic!("at request level") };
    assert_eq!((scenario.jobs[0].processes, scenario.seed), (4, 9));
    assert_eq!(scenario.targets[0].policy.to_string(), "size-fair");
}

#[test]
fn a_bad_sweep_is_named_with_its_line() {
    for (sweep, expected) in [
        ("policy = [\"fifo\", \"fair\"]", "s.toml:15: policy: "),
        ("policy = \"fifo\"", "s.toml:15: sweep.policy: is no list"),
        ("policy = []", "s.toml:15: sweep.policy: is no list"),
        ("job.b.nodes = [1]", "s.toml:15: job.b.nodes: \"job\" has no such entry"),
        ("\"job[0].nodes\" = [1, 100]", "s.toml:15: job[0].nodes: 100 nodes"),
        ("\"job.a.node\" = [1]", "s.toml:15: job[0].node: unknown field"),
        ("tuning = [1]", "s.toml:15: tuning: "),
    ] {
        let said = complaint(&format!("{GOOD}[sweep]\n{sweep}\n"));
        assert!(said.starts_with(expected), "{sweep}: {said}\nexpected: {expected}");
    }
    let many = (0..101).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let said = complaint(&format!("{GOOD}[sweep]\nseed = [{many}]\n\"job.a.priority\" = [{many}]\n"));
    assert!(said.contains("too many combinations"), "{said}");
}

#[test]
fn an_io_profile_is_found_beside_the_scenario() {
    let dir = std::env::temp_dir().join(format!("isonomia-sim-profile-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = GOOD.replace("request = \"1MiB\"\nrequests = 3\n", "io_profile = \"p.csv\"\n");
    let path = dir.join("s.toml");
    let missing = parse(&path, &text, None).unwrap_err();
    assert!(missing.file.ends_with("p.csv") && missing.line == 0, "{missing}");
    std::fs::write(dir.join("p.csv"), "start_s,op,request_bytes,requests\n0,write,4096,2\n1,write,0,2\n").unwrap();
    let bad = parse(&path, &text, None).unwrap_err();
    assert_eq!((bad.line, bad.field.as_str()), (3, "request_bytes"));
    std::fs::write(dir.join("p.csv"), "start_s,op,request_bytes,requests\n0,write,4096,2\n0.5,read,4096,2\n").unwrap();
    let points = parse(&path, &text, None).unwrap().points;
    let Scenario::Request { scenario, .. } = &points[0].scenario else { panic!("at request level") };
    assert_eq!(scenario.jobs[0].phases.len(), 2);
    std::fs::remove_dir_all(&dir).unwrap();
}

const FLUID: &str = r#"level = "fluid"
duration = "100h"
scheme = "gift"
nodes = 64

[targets]
count = 8
bandwidth = "100MB/s"

[[application]]
name = "a"
nodes = 4
targets = [0, 1]
phases = 3
compute = "10min"
volume = "10GB"
runs = 2
every = "1h"
"#;

#[test]
fn a_fluid_scenario_is_read_whole() {
    let points = parse(Path::new("s.toml"), FLUID, None).unwrap().points;
    let Scenario::Fluid(scenario) = &points[0].scenario else { panic!("at fluid level") };
    let run = &scenario.applications[0].runs[1];
    assert_eq!((run.submit.0, run.targets.len(), run.phases.len()), (3_600_000_000_000, 2, 3));
    assert_eq!((run.phases[0].compute.0, run.phases[0].io.0), (600_000_000_000, 100_000_000_000));
    let many = FLUID.split("[[application]]").next().unwrap().to_owned() + "[population]\napplications = 20\n";
    let points = parse(Path::new("s.toml"), &many, Some(3)).unwrap().points;
    let Scenario::Fluid(scenario) = &points[0].scenario else { panic!("at fluid level") };
    assert_eq!(scenario.applications.len(), 20);
}

#[test]
fn what_cannot_be_used_at_fluid_level_is_named_too() {
    for (from, to, expected) in [
        ("\"fluid\"", "\"gas\"", "s.toml:1: level: \"gas\" is no level"),
        ("\"gift\"", "\"gif\"", "s.toml:3: scheme: \"gif\" is no scheme"),
        ("\"gift\"", "\"coflow\"\nguarantee = 1.5", "s.toml:3: scheme: guarantee 1.5"),
        ("\"gift\"", "\"coflow\"\norder = \"fifo\"", "s.toml:4: order: "),
        ("\"gift\"", "\"gift\"\nstrategy = \"dynamic\"", "s.toml:4: strategy: gift has none (allowed: with calciom)"),
        ("\"gift\"", "\"tbf\"\npriority = \"nodes\"", "s.toml:4: priority: tbf has none (allowed: with adaptbf)"),
        ("\"gift\"", "\"adaptbf\"\npriority = \"age\"", "s.toml:4: priority: "),
        ("\"gift\"", "\"adaptbf\"\nreclaim = 2.0", "s.toml:3: scheme: reclaim 2 (allowed: 0 to 1)"),
        ("\"gift\"", "\"calciom\"\nstrategy = \"wait\"", "s.toml:4: strategy: "),
        ("\"gift\"", "\"gift\"\nb_thres = -0.1", "s.toml:4: b_thres: "),
        ("\"gift\"", "\"gift\"\nwindow = 0", "s.toml:3: scheme: window"),
        ("\"gift\"", "\"gift\"\ndecisions = \"event\"", "s.toml:4: decisions: gift decides at intervals"),
        ("\"gift\"", "\"pofs\"\nclock = \"open\"", "s.toml:4: clock: pofs keeps none (allowed: with fair-finish)"),
        ("\"gift\"", "\"fair-finish\"\nclock = \"ajar\"", "s.toml:4: clock: unknown variant `ajar`"),
        (
            "\"gift\"",
            "\"fair-finish\"\nclock = \"closed\"\ndecisions = \"interval\"",
            "s.toml:5: decisions: fair-finish with the clock of the closed system decides at each change",
        ),
        ("nodes = 64", "nodes = 0", "s.toml:4: nodes: "),
        ("count = 8", "count = 0", "s.toml:7: targets.count: "),
        ("nodes = 4", "nodes = 65", "s.toml:12: application[0].nodes: 65 nodes (allowed: 1 to the machine's, 64)"),
        ("[0, 1]", "[0, 8]", "s.toml:13: application[0].targets: 8 is not declared (allowed: 0 to 7)"),
        ("[0, 1]", "[1, 1]", "s.toml:13: application[0].targets: "),
        ("\"10min\"", "\"-10min\"", "s.toml:15: application[0].compute: "),
        ("\"10GB\"", "\"0GB\"", "s.toml:16: application[0].volume: "),
        ("[[application]]", "[population]\napplications = 0\n[[application]]", "s.toml:11: population.applications: "),
        (
            "[[application]]",
            "[population]\napplications = 3\nload = 0.0\n[[application]]",
            "s.toml:12: population.load",
        ),
    ] {
        assert!(FLUID.contains(from), "{from}");
        let said = complaint(&FLUID.replacen(from, to, 1));
        assert!(said.starts_with(expected), "{to}: {said}\nexpected: {expected}");
    }
}

#[test]
fn a_job_log_gives_applications() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    let swf = "[swf]\nfile = \"log.swf\"\nprocessors_per_node = 4\nio_part = 0.25\nphases = 2\nstripes = 3\n";
    let text = FLUID.split("[[application]]").next().unwrap().to_owned() + swf;
    let job = |number: u32, submit: i32, processors: u32| {
        format!("{number} {submit} 5 400 {processors} -1 -1 -1 3600 -1 1 3 1 -1 1 -1 -1 -1\n")
    };
    std::fs::write(dir.path().join("log.swf"), format!("; a log\n{}{}", job(1, 30, 8), job(2, -1, 9))).unwrap();
    let read = |text: &str| parse(&path, text, None).map(|scenarios| scenarios.points[0].scenario.clone());
    let Ok(Scenario::Fluid(scenario)) = read(&text) else { panic!("at fluid level") };
    let found: Vec<_> = scenario.applications.iter().map(|app| (&*app.name, app.nodes, app.runs[0].submit.0)).collect();
    assert_eq!(found, [("swf-1", 2, 30_000_000_000), ("swf-2", 3, 0)]);
    let run = &scenario.applications[0].runs[0];
    assert_eq!((run.phases.len(), run.targets.len()), (2, 3));
    assert_eq!((run.phases[1].compute.0, run.phases[1].io.0), (150_000_000_000, 50_000_000_000));
    for (from, to, line, field) in [
        ("io_part = 0.25", "io_part = 0.0", 13, "swf.io_part"),
        ("stripes = 3", "stripes = 9", 15, "swf.stripes"),
        ("phases = 2", "phases = 0", 14, "swf.phases"),
        ("nodes = 64", "nodes = 2", 3, "5 (allocated_processors)"),
        ("log.swf", "gone.swf", 0, ""),
    ] {
        let error = read(&text.replacen(from, to, 1)).unwrap_err();
        assert_eq!((error.line, error.field.as_str()), (line, field), "{error}");
    }
}

/// The example of a job log: every job that ran in it runs here, under each of the schemes.
#[test]
fn the_example_of_a_job_log_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/swf.toml");
    let points = parse(&path, &std::fs::read_to_string(&path).unwrap(), None).unwrap().points;
    assert_eq!(points.len(), 5);
    for point in points {
        let Scenario::Fluid(scenario) = &point.scenario else { panic!("at fluid level") };
        let outcome = isonomia_sim::fluid::run(scenario, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        // One of the 48 never ran.
        assert_eq!((outcome.jobs_done, outcome.applications.len()), (47, 47), "{:?}", point.settings);
        assert!(outcome.io_slowdown() > 1.0, "they meet");
    }
}
