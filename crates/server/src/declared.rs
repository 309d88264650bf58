//! What jobs say of their I/O phases, for policies that go by it.

use crate::clock;
use crate::connection::Connection;
use crate::core::Core;
use isonomia_proto::fs::Layout;
use isonomia_proto::hint::OpenHint;
use isonomia_units::{Bytes, Ino};

/// A job has said how long a file is going to be: so long is its I/O phase, at each target its part. Files of which each
/// rank has its own are not counted: they come one by one, and nobody says how many are still to come.
pub fn phase(core: &Core, connection: &Connection, ino: Ino, layout: Option<&Layout>, hint: &OpenHint) {
    tracing::debug!(ino = ino.0, ?hint, "created with a hint");
    let Some(layout) = layout.filter(|_| hint.expected_bytes > 0 && (hint.shared || hint.ranks <= 1)) else { return };
    let part = Bytes(hint.expected_bytes.div_ceil(layout.targets.len().max(1) as u64));
    for target in core.targets.iter().filter(|target| target.id.is_some_and(|id| layout.targets.contains(&id))) {
        target.expect_phase(clock::now(), connection.job.id, part);
    }
}
