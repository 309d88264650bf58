//! The claims of ICS'20 that must hold, and what a run leaves behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_planning::{Machine, Order, Recipe, Sensibility, Sizes, plan};
use isonomia_reproduce::ics20::{PAPER, grid};
use isonomia_reproduce::{Claim, Context, Finding, ReproduceError, Verdict};
use rand_pcg::Pcg64;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

static NEVER: AtomicBool = AtomicBool::new(false);

fn quick<'a>() -> Context<'a> {
    Context::new(true, &NEVER, &|_, _, _| ())
}

fn findings(study: &str) -> Vec<Finding> {
    let study = PAPER.studies.iter().find(|other| other.name == study).unwrap();
    let findings = (study.run)(&quick()).unwrap();
    let items: Vec<_> = findings.iter().map(|finding| finding.item).collect();
    assert_eq!(items, study.items, "every item, in order");
    findings
}

fn claim<'a>(findings: &'a [Finding], item: &str, words: &str) -> &'a Claim {
    let finding = findings.iter().find(|finding| finding.item == item).unwrap();
    finding.claims.iter().find(|claim| claim.claim.contains(words)).unwrap_or_else(|| panic!("{item}: {words}"))
}

#[test]
fn the_orderings_of_table_1_hold_with_and_without_jitter() {
    let findings = findings("table1");
    for (item, words) in [
        ("fig5", "converges"),
        ("fig5", "longest-io and shortest-remaining have the worst"),
        ("fig5", "stretch has a better worst stretch"),
        ("fig5", "bandwidth has a better worst stretch"),
        ("fig5", "longest-remaining has a better worst stretch"),
        ("fig6", "stretch has a better makespan"),
        ("fig6", "longest-remaining has a better makespan"),
        ("fig7", "3 and 4 suffer most"),
    ] {
        let claim = claim(&findings, item, words);
        assert_eq!(claim.verdict, Verdict::Reproduces, "{claim:?}");
    }
    // What is known not to hold is told, not tuned away.
    assert_eq!(claim(&findings, "fig6", "shortest-io has a better makespan").verdict, Verdict::InPart);
}

#[test]
fn more_io_nodes_favour_bandwidth_aware_packs() {
    let findings = findings("packs");
    assert_eq!(claim(&findings, "fig15", "more I/O nodes favour S = 1").verdict, Verdict::Reproduces);
    assert_eq!(claim(&findings, "fig11", "much better").verdict, Verdict::Reproduces);
    assert_eq!(claim(&findings, "fig10", "softens").verdict, Verdict::Reproduces);
    for finding in &findings {
        assert!(finding.configuration["seeds"].as_array().unwrap().len() >= 2, "{}", finding.item);
        assert!(!finding.data.rows().is_empty() && !finding.charts.is_empty(), "{}", finding.item);
        for column in finding.charts.iter().flat_map(|chart| chart.columns()) {
            assert!(finding.data.columns().contains(&column), "{} has no column {column}", finding.item);
        }
    }
}

#[test]
fn the_grid_is_that_of_the_planner_and_does_not_depend_on_threads() {
    let paper = grid::Grid::paper(true);
    let schemes = [grid::FIRST_FIT, grid::ONE];
    let cells = paper.run(5, &schemes, &quick()).unwrap();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(cells, one_thread.install(|| paper.run(5, &schemes, &quick()).unwrap()));
    // Each fourth load from 0.5 on, three workloads, two schemes.
    assert_eq!(cells.len(), 10 * 3 * 2);
    let cell = &cells[11];
    assert_eq!((cell.alpha_gen, cell.workload, cell.scheme), (1.5, 2, "sensibility-1"));
    let recipe = Recipe { sizes: Sizes::Geometric, deviation: 0.1f64.sqrt(), ..Recipe::paper(1.5) };
    let jobs = recipe.draw(&mut Pcg64::new(5, (150 << 32) | 2));
    let sensibility = Sensibility::Limit(1.0);
    let machine = |io_nodes| Machine { nodes: 2048, io_nodes, sensibility, order: Order::Fifo };
    let makespans = [1, 3, 5].map(|io_nodes| plan(&jobs, &machine(io_nodes)).unwrap().makespan().as_secs_f64());
    assert_eq!(cell.makespan_s, makespans);
    let all = cell.useful + cell.delayed + cell.idle;
    assert!((all / (2048.0 * cell.makespan_s[0]) - 1.0).abs() < 1e-9);
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_item_leaves_data_charts_and_claims() {
    let dir = tempfile::tempdir().unwrap();
    let provenance = serde_json::json!({ "host": "here" });
    let done = PAPER.reproduce(Some("fig5"), dir.path(), &provenance, None, &quick()).unwrap();
    assert_eq!(names(dir.path()), ["claims.md", "fig5.csv", "fig5.json"]);
    assert_eq!((done.files.len(), done.claims.len()), (3, 5));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let csv = read("fig5.csv");
    assert!(csv.starts_with("batch,policy,max_stretch\n1,fifo,1."), "{csv}");
    let json: Value = serde_json::from_str(&read("fig5.json")).unwrap();
    assert_eq!(
        (&json["item"], &json["quick"], &json["provenance"]["host"]),
        (&"fig5".into(), &true.into(), &"here".into())
    );
    assert_eq!(json["rows"].as_array().unwrap().len() + 1, csv.lines().count());
    assert_eq!(json["claims"][0]["verdict"], "reproduces");
    assert!(json["configuration"]["seeds"].is_array());
    let claims = read("claims.md");
    assert!(claims.contains("ICS 2020") && claims.contains("A quick run"), "{claims}");
    assert!(claims.contains("| fig5 | the worst stretch converges") && !claims.contains("| fig6 |"), "{claims}");
    assert!(claims.contains("How verdicts are given"), "{claims}");
    assert_eq!(json["charts"][0]["x"]["label"], "iteration batches");
}

#[test]
fn an_unknown_item_is_refused_with_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let error = PAPER.reproduce(Some("fig99"), dir.path(), &Value::Null, None, &quick()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("\"fig99\"") && text.contains("table1, fig5") && text.contains("fig15, sensitivity"),
        "{text}"
    );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn what_the_same_program_has_computed_is_not_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = |fingerprint| PAPER.reproduce(Some("fig5"), dir.path(), &Value::Null, fingerprint, &quick()).unwrap();
    let is_kept =
        |done: &isonomia_reproduce::Reproduced| done.costs.iter().map(|cost| cost.is_kept).collect::<Vec<_>>();
    let first = run(Some("one"));
    assert_eq!(is_kept(&first), [false]);
    let claims = || std::fs::read_to_string(dir.path().join("claims.md")).unwrap();
    let before = claims();
    let again = run(Some("one"));
    assert_eq!(is_kept(&again), [true]);
    assert_eq!((claims(), &again.files), (before, &first.files));
    assert!((again.costs[0].processor_s - first.costs[0].processor_s).abs() < 1e-6);
    assert_eq!([is_kept(&run(Some("two"))), is_kept(&run(None)), is_kept(&run(None))], [[false]; 3]);
    let full = Context::quiet();
    assert_eq!(is_kept(&PAPER.reproduce(Some("fig5"), dir.path(), &Value::Null, Some("two"), &full).unwrap()), [false]);
}

#[test]
fn what_was_finished_stays_when_somebody_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let progress = |what: &str, done: usize, _: usize| {
        if what.starts_with("ics20 packs: ") && done == 1 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let context = Context::new(true, &stop, &progress);
    let error = PAPER.reproduce(None, dir.path(), &Value::Null, None, &context).unwrap_err();
    let ReproduceError::Stopped { done } = error else { panic!("{error}") };
    assert_eq!(done, ["fig5", "fig6", "fig7", "fig8", "jitter"]);
    let left = names(dir.path());
    assert!(left.contains(&"jitter.csv".to_owned()) && left.contains(&"claims.md".to_owned()), "{left:?}");
    assert!(!left.iter().any(|name| name.starts_with("fig1")), "{left:?}");
}
