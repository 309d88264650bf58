//! The caretaker thread: what may wait for the storage, and so is not for the keeper.
//!
//! Every few seconds it brings files that were written to stable storage, with checksums and sizes ([`Store::settle`]).
//!
//! [`Store::settle`]: isonomia_store::Store::settle

use crate::clock;
use crate::core::Core;
use isonomia_units::Nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A file that is not written for this long, or up to twice as long, is settled.
const SETTLE_EVERY: Nanos = Nanos::from_secs(5);

/// What the caretaker does until the server stops.
pub fn run(core: &Core) {
    let mut settled_at = clock::now();
    while !core.is_stopping.load(Ordering::Relaxed) {
        let wait = SETTLE_EVERY.0.saturating_sub(clock::now().since(settled_at).0);
        if wait > 0 {
            std::thread::park_timeout(Duration::from_nanos(wait));
            continue;
        }
        settled_at = clock::now();
        if let Err(error) = core.store.settle() {
            tracing::error!(%error, "cannot bring files to stable storage");
        }
    }
}
