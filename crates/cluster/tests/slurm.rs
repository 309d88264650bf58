//! Slurm's own program as the oracle of host lists.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_cluster::hosts;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::path::Path;
use std::process::Command;

/// What `scontrol show hostnames` makes of `text`; nothing if it refuses.
fn slurm(conf: &Path, text: &str) -> Option<Vec<String>> {
    let output = Command::new("scontrol").env("SLURM_CONF", conf).args(["show", "hostnames", text]).output().unwrap();
    let names: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

/// Lists in which brackets end a name, as Slurm demands.
fn any_list() -> impl Strategy<Value = String> {
    let range = (0u32..1200, 0u32..6, 1usize..5).prop_map(|(first, more, width)| {
        let last = first + more;
        if more == 0 { format!("{first:0width$}") } else { format!("{first:0width$}-{last}") }
    });
    let numbers = prop::collection::vec(range, 1..4).prop_map(|ranges| format!("[{}]", ranges.join(",")));
    let piece = ("[a-z][a-z.-]{0,2}", numbers).prop_map(|(text, numbers)| text + &numbers);
    let item = prop_oneof![
        1 => "[a-z][a-z0-9.-]{0,5}[0-9]{0,3}",
        3 => prop::collection::vec(piece, 1..3).prop_map(|pieces| pieces.concat()),
    ];
    prop::collection::vec(item, 1..4).prop_map(|items| items.join(","))
}

#[test]
fn slurm_reads_the_same_lists_in_the_same_way() {
    if !isonomia_testbed::is_installed("scontrol") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("slurm.conf");
    std::fs::write(&conf, "ClusterName=none\nSlurmctldHost=localhost\n").unwrap();
    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&any_list(), |text| {
            let names = hosts::expand(&text).unwrap();
            prop_assert_eq!(slurm(&conf, &text), Some(names.clone()), "{}", text);
            let short = hosts::compress(names.iter().map(String::as_str));
            prop_assert_eq!(slurm(&conf, &short), Some(names), "{} written as {}", text, short);
            Ok(())
        })
        .unwrap();
    for refused in ["io[3-1]", "io[]", "io[1,,2]", "io[a-b]", "io[-1]", "io[[1-2]]", "io[1-99999]"] {
        assert!(hosts::expand(refused).is_err() && slurm(&conf, refused).is_none(), "{refused}");
    }
}
