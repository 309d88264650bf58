//! What tests of this crate's parts stand on: a core without threads.

use crate::core::Core;
use crate::jobs::Jobs;
use crate::scrub::Scrub;
use crate::target::{Policy, Target};
use isonomia_policy::{DepthSpec, Draw};
use isonomia_store::{Store, StoreConfig, TargetDir};
use isonomia_units::{ServerId, TargetId};
use std::path::Path;
use std::sync::Arc;

/// A policy as an operator sets it, with nothing else set.
pub fn policy(spec: &str) -> Policy {
    Policy {
        spec: spec.parse().unwrap(),
        draw: Draw::default(),
        seed: 0,
        journal: None,
        io_node: None,
        fair_clock: false,
    }
}

/// A core with files in `dir`, one target besides that of metadata, and one worker, which is the test. The engine takes the target for
/// memory if it `is_memory`.
pub fn core(dir: &Path, is_memory: bool) -> Arc<Core> {
    let targets = vec![TargetDir { id: TargetId(0), dir: dir.join("target") }];
    let store = Store::open(&StoreConfig::new(dir.join("metadata"), ServerId(0), targets)).unwrap();
    let policy = policy("job-fair");
    let target = |id| Target::new(id, String::new(), None, None, &policy, 1, (is_memory, DepthSpec::Auto));
    let mut targets = vec![target(None), target(Some(TargetId(0)))];
    targets[1].index = 1;
    Core::new(store, targets, policy, 1, Jobs::new(8, 8), Scrub::default()).unwrap()
}
