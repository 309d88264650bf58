//! What a quick run of TAPP-IO's claims leaves, and the claims that hold in it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_reproduce::tapp_io::PAPER;
use isonomia_reproduce::{Claim, Context, Finding, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};

static NEVER: AtomicBool = AtomicBool::new(false);

fn findings(study: &str) -> Vec<Finding> {
    let study = PAPER.studies.iter().find(|other| other.name == study).unwrap();
    let findings = (study.run)(&Context::new(true, &NEVER, &|_, _, _| ())).unwrap();
    let items: Vec<_> = findings.iter().map(|finding| finding.item).collect();
    assert_eq!(items, study.items, "every item, in order");
    for finding in &findings {
        assert!(finding.configuration["seeds"].as_array().unwrap().len() >= 2, "{}", finding.item);
        assert!(finding.configuration["setting"]["load_of_other_jobs"].is_number(), "{}", finding.item);
        assert!(!finding.data.rows().is_empty() && !finding.charts.is_empty(), "{}", finding.item);
        for column in finding.charts.iter().flat_map(|chart| chart.columns()) {
            assert!(finding.data.columns().contains(&column), "{} has no column {column}", finding.item);
        }
        assert!(finding.data.rows().iter().all(|row| row.iter().all(|value| !value.is_null())), "{}", finding.item);
    }
    findings
}

fn claim<'a>(findings: &'a [Finding], item: &str, words: &str) -> &'a Claim {
    let finding = findings.iter().find(|finding| finding.item == item).unwrap();
    finding.claims.iter().find(|claim| claim.claim.contains(words)).unwrap_or_else(|| panic!("{item}: {words}"))
}

/// The mean of the last column over the rows that have these values in the columns named.
fn mean(findings: &[Finding], item: &str, of: &[(&str, serde_json::Value)]) -> f64 {
    let data = &findings.iter().find(|finding| finding.item == item).unwrap().data;
    let at = |name: &str| data.columns().iter().position(|column| *column == name).unwrap();
    let rows = data.rows().iter().filter(|row| of.iter().all(|(name, value)| row[at(name)] == *value));
    let values: Vec<f64> = rows.map(|row| row[row.len() - 1].as_f64().unwrap()).collect();
    assert!(!values.is_empty(), "{item}: {of:?}");
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn a_file_per_process_gains_the_more_the_less_even_the_default_is() {
    let findings = findings("file-per-process");
    let gain = |default: &str| mean(&findings, "fig6", &[("nodes", 4_096.into()), ("default", default.into())]);
    assert!(gain("random") > gain("shared turns") && gain("shared turns") > gain("in turn"));
    // Round-robin, the files of one job are already even.
    assert!(gain("in turn") < 15.0 && gain("shared turns") > 30.0);
    // What is less in time is what is more in bandwidth, of the whole run.
    let time = |placement: &str| mean(&findings, "fig7", &[("nodes", 4_096.into()), ("placement", placement.into())]);
    assert!(time("tapp-io") < time("shared turns"));
}

#[test]
fn a_shared_file_gains_by_its_stripes_and_not_by_their_targets() {
    let findings = findings("shared-file");
    assert_eq!(claim(&findings, "fig8", "over four stripes").verdict, Verdict::Reproduces);
    assert_eq!(claim(&findings, "fig8", "on 256 nodes").verdict, Verdict::DoesNot);
}

#[test]
fn checkpoints_and_choices_are_computed() {
    assert!(mean(&findings("checkpoint"), "fig9", &[("nodes", 4_096.into()), ("default", "random".into())]) > 20.0);
    let open = findings("open");
    let gain = |case: &str| mean(&open, "sensitivity", &[("case", case.into()), ("nodes", 2_048.into())]);
    // Whoever balances routers only has targets with many files.
    assert!(gain("weights router only") < 0.0);
    // A target that loses by many streams makes a balance worth more.
    assert!(gain("loss by each further stream 0.1") > gain("loss by each further stream 0"));
}

#[test]
fn it_can_be_stopped() {
    let stop = AtomicBool::new(false);
    let heard = |_: &str, _: usize, _: usize| stop.store(true, Ordering::Relaxed);
    let context = Context::new(true, &stop, &heard);
    for study in PAPER.studies {
        assert!((study.run)(&context).is_err(), "{}", study.name);
    }
}
