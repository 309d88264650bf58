//! The claims of GIFT and ThemisIO that must hold, as far as they are quick to compute.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_reproduce::{Claim, Context, Finding, Paper, Verdict, gift, themisio};
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn findings(paper: &Paper, study: &str) -> Vec<Finding> {
    let study = paper.studies.iter().find(|other| other.name == study).unwrap();
    let findings = (study.run)(&Context::new(true, &NEVER, &|_, _, _| ())).unwrap();
    let items: Vec<_> = findings.iter().map(|finding| finding.item).collect();
    assert_eq!(items, study.items, "every item, in order");
    findings
}

fn assert_all_reproduce(findings: &[Finding]) {
    for Finding { item, claims, data, .. } in findings {
        assert!(!claims.is_empty() && !data.rows().is_empty(), "{item}");
        for claim in claims {
            assert_eq!(claim.verdict, Verdict::Reproduces, "{item}: {claim:?}");
        }
    }
}

#[test]
fn gifts_worked_example_is_exact() {
    assert_all_reproduce(&findings(&gift::PAPER, "example"));
}

#[test]
fn themisios_policies_share_as_they_say() {
    assert_all_reproduce(&findings(&themisio::PAPER, "sharing"));
    assert_all_reproduce(&findings(&themisio::PAPER, "delay"));
}

#[test]
fn token_buckets_and_shares_divide_a_server_in_two() {
    let peers = findings(&themisio::PAPER, "peers");
    let find = |words: &str| -> Claim { peers[0].claims.iter().find(|c| c.claim.contains(words)).unwrap().clone() };
    assert_eq!(find("deviation").verdict, Verdict::Reproduces);
    assert_ne!(find("no throughput").verdict, Verdict::DoesNot);
}
