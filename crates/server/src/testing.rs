//! What tests of this crate's parts stand on: a core without threads.

use crate::connection::{Connection, Pending};
use crate::core::Core;
use crate::jobs::{Job, Jobs};
use crate::limits::{Limits, LimitsConfig};
use crate::scrub::Scrub;
use crate::sessions::Sessions;
use crate::target::{Policy, Target};
use crate::usage::Usage;
use isonomia_policy::{Access, DepthSpec, Draw, Nature};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_store::{Store, StoreConfig, TargetDir};
use isonomia_units::{Bytes, Ino, Nanos, ServerId, TargetId};
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

/// A request of root's to write a byte of the root directory.
pub fn write(job: &Arc<Job>) -> Pending {
    let usage = Arc::new(Usage::new(Limits::settle(&LimitsConfig::default(), 20_000, 0, 8 << 30).unwrap()));
    let (key, permit) = ((0, 7), usage.take(0, false, 0).unwrap());
    let connection = Connection::of_root(job.clone(), Sessions::default().join(key), key, permit);
    Pending {
        connection: Arc::new(connection),
        slot: 0,
        header: RequestHeader::new(Op::Write, Ino::ROOT),
        op: Op::Write,
        names: Vec::new(),
        arrived: Nanos::ZERO,
        cost: Nanos(1),
        owed: Nanos::ZERO,
        work: Nanos(1),
        access: Access::WriteSequential,
        bytes: Bytes(1),
        took: Nanos::ZERO,
        nature: Nature::WRITE,
        neighbours: Bytes(0),
        is_for_device: false,
        change: None,
    }
}
