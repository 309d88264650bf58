//! What jobs say of their I/O phases, for policies that go by it.
//!
//! A phase is told to each target as its part. What is told may be wrong: too little costs next to nothing, too much makes the
//! job itself late. So where it is not known on which targets a phase will be, it is told as if it were on all.

use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use isonomia_proto::fs::Layout;
use isonomia_proto::hint::OpenHint;
use isonomia_proto::phase::PhaseCall;
use isonomia_proto::request::RequestHeader;
use isonomia_units::{Bytes, Ino};

/// A job has said how long a file is going to be: so long is its I/O phase, at each target its part. Files of which each
/// rank has its own are not counted: they come one by one, and nobody says how many are still to come.
pub fn file(core: &Core, connection: &Connection, ino: Ino, layout: Option<&Layout>, hint: &OpenHint) {
    tracing::debug!(ino = ino.0, ?hint, "created with a hint");
    if hint.shared || hint.ranks <= 1 {
        spread(core, connection, layout, hint.expected_bytes);
    }
}

/// An open file, `before` bytes long if it is one with bytes, was made longer before they are there, as by `ftruncate` or
/// `fallocate`: they are going to be written.
pub fn growth(core: &Core, connection: &Connection, ino: Ino, before: Option<u64>) {
    let (Some(before), Ok(layout), Ok(after)) =
        (before, core.store.namespace().layout(ino), core.store.namespace().size(ino))
    else {
        return;
    };
    spread(core, connection, Some(&layout), after.saturating_sub(before));
}

/// A program says that a phase begins, and how much the job is going to read and write in it on all servers. In a cluster each
/// has as many targets as this one, more or less.
pub fn phase(core: &Core, connection: &Connection, header: &RequestHeader) {
    let Some(PhaseCall::Begin { bytes, .. }) = PhaseCall::read(header).filter(|_| core.phases.node().is_none()) else {
        return;
    };
    let servers = core.cluster.get().map_or(1, |cluster| cluster.members().servers.len().max(1)) as u64;
    let part = bytes.div_ceil(servers * core.data_targets().max(1) as u64);
    if part > 0 {
        let targets = core.targets.iter().filter(|target| !target.is_metadata());
        targets.for_each(|target| target.expect_phase(clock::now(), connection.job.id, Bytes(part)));
    }
}

/// So many bytes over the targets of a file.
fn spread(core: &Core, connection: &Connection, layout: Option<&Layout>, bytes: u64) {
    let Some(layout) = layout.filter(|_| bytes > 0) else { return };
    let part = Bytes(bytes.div_ceil(layout.targets.len().max(1) as u64));
    for target in core.targets.iter().filter(|target| target.id.is_some_and(|id| layout.targets.contains(&id))) {
        target.expect_phase(clock::now(), connection.job.id, part);
    }
}
