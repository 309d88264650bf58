//! Which directories a store accepts.

use crate::scratch::{config, open, scratch_dir};
use isonomia_store::{OpenError, Store, TargetDir};
use isonomia_units::{ServerId, TargetId};

#[test]
fn a_second_server_is_refused_with_the_pid_of_the_first() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let first = Store::open(&config).unwrap();
    let pid = std::process::id().to_string();
    let refused = Store::open(&config).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { pid: p, dir } if *p == pid && *dir == config.dir), "{refused}");
    assert!(refused.to_string().contains(&format!("process {pid}")));
    // The same target under another store.
    let mut other = crate::scratch::config(&dir.path().join("other"), 1);
    other.targets[0].dir = config.targets[1].dir.clone();
    let refused = Store::open(&other).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { dir, .. } if *dir == config.targets[1].dir), "{refused}");
    drop(first);
    Store::open(&config).unwrap();
}

#[test]
fn what_does_not_belong_together_is_told_apart() {
    let dir = scratch_dir();
    let good = config(dir.path(), 2);
    drop(Store::open(&good).unwrap());
    let refused = |config: &isonomia_store::StoreConfig| Store::open(config).map(|_| ()).unwrap_err();

    let mut fewer = good.clone();
    fewer.targets.pop();
    assert!(matches!(refused(&fewer), OpenError::TargetMissing { target: TargetId(1), .. }));

    let mut moved = good.clone();
    moved.targets[1].dir = dir.path().join("empty");
    assert!(matches!(refused(&moved), OpenError::TargetLost { target: TargetId(1), .. }));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    assert!(matches!(refused(&moved), OpenError::TargetLost { target: TargetId(1), .. }));

    let mut swapped = good.clone();
    swapped.targets[0].dir = good.targets[1].dir.clone();
    swapped.targets[1].dir = good.targets[0].dir.clone();
    assert!(matches!(refused(&swapped), OpenError::Mismatch { .. }));

    let mut other_server = good.clone();
    other_server.server = ServerId(7);
    assert!(matches!(refused(&other_server), OpenError::Mismatch { .. }));

    let mut foreign = config(&dir.path().join("foreign"), 1);
    foreign.targets[0].dir = good.targets[0].dir.clone();
    assert!(matches!(refused(&foreign), OpenError::Mismatch { .. }));

    let mut twice = good.clone();
    twice.targets[1].dir = good.targets[0].dir.clone();
    assert!(matches!(refused(&twice), OpenError::Config(_)));

    let mut more = good.clone();
    more.targets.push(TargetDir { id: TargetId(9), dir: dir.path().join("added") });
    drop(Store::open(&more).unwrap());
    assert!(matches!(refused(&good), OpenError::TargetMissing { target: TargetId(9), .. }));

    let identity = good.dir.join("identity");
    let text = std::fs::read_to_string(&identity).unwrap();
    std::fs::write(&identity, text.replace("format 2", "format 1")).unwrap();
    assert!(matches!(refused(&more), OpenError::Format { found, .. } if found == "1"));
    std::fs::write(&identity, text.replace("server 0", "server x")).unwrap();
    assert!(matches!(refused(&more), OpenError::Format { .. }));
    std::fs::write(&identity, text).unwrap();
    drop(Store::open(&more).unwrap());
}

#[test]
fn files_go_round_the_targets() {
    let dir = scratch_dir();
    let mut config = config(dir.path(), 3);
    config.default_layout.stripe_count = 1;
    let store = Store::open(&config).unwrap();
    let first = |name: &str| open(&store, name).layout.unwrap().targets[0].0;
    assert_eq!([first("a"), first("b"), first("c"), first("d")], [0, 1, 2, 0]);
}
