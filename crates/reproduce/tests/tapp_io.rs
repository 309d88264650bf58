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
        assert!(finding.configuration["setting"]["foreign_streams_of_a_target"].is_number(), "{}", finding.item);
        assert!(!finding.data.rows().is_empty() && !finding.plots.is_empty(), "{}", finding.item);
        assert!(finding.data.rows().iter().all(|row| row.iter().all(|value| !value.is_null())), "{}", finding.item);
    }
    findings
}

fn claim<'a>(findings: &'a [Finding], item: &str, words: &str) -> &'a Claim {
    let finding = findings.iter().find(|finding| finding.item == item).unwrap();
    finding.claims.iter().find(|claim| claim.claim.contains(words)).unwrap_or_else(|| panic!("{item}: {words}"))
}

#[test]
fn a_file_per_process_gains_over_chance_and_not_over_turns() {
    let findings = findings("file-per-process");
    assert_eq!(claim(&findings, "fig5", "bandwidth with TAPP-IO").verdict, Verdict::Reproduces);
    for nodes in ["2048", "4096"] {
        let claim = claim(&findings, "fig6", nodes);
        assert_eq!(claim.verdict, Verdict::InPart, "{claim:?}");
    }
    // In turn, the files of one job are already even: what is left is less than 5 % on many nodes.
    let fig6 = &findings.iter().find(|finding| finding.item == "fig6").unwrap().data;
    let gain = |nodes: u64, default: &str| {
        let row = fig6.rows().iter().find(|row| row[0] == nodes && row[1] == default).unwrap();
        row[2].as_f64().unwrap()
    };
    assert!(gain(4_096, "random") > 15.0 && gain(4_096, "in turn") < 5.0);
}

#[test]
fn a_shared_file_gains_by_its_stripes_and_not_by_their_places() {
    let findings = findings("shared-file");
    assert_eq!(claim(&findings, "fig8", "over four stripes").verdict, Verdict::Reproduces);
    assert_eq!(claim(&findings, "fig8", "on 256 nodes").verdict, Verdict::DoesNot);
}

#[test]
fn checkpoints_and_choices_are_computed() {
    assert_ne!(claim(&findings("checkpoint"), "fig9", "every size").verdict, Verdict::Reproduces);
    let open = findings("open");
    assert_eq!(claim(&open, "sensitivity", "weights").verdict, Verdict::DoesNot);
    // Alone on targets and servers only, the busiest target is all that counts.
    let rows = open[0].data.rows().iter().filter(|row| row[1] == "no other jobs, no limit of routers");
    let gains: Vec<f64> = rows.filter(|row| row[2] == "random").map(|row| row[4].as_f64().unwrap()).collect();
    assert!(gains.iter().all(|gain| (80.0..250.0).contains(gain)), "{gains:?}");
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
