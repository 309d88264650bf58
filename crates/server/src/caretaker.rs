//! Two threads for what may wait for the storage, and so is not for the keeper.
//!
//! The caretaker writes down what changed in memory, removes what is not used any more, has old pages written back, and puts
//! the metadata on stable storage now and then, whether a program asks for it or not. The settler brings files that were written to stable storage,
//! with their checksums ([`Store::settle`]), keeps what was learnt of applications' phases, and tries a storage that failed: that can take long, and is a thread of its own.
//!
//! [`Store::settle`]: isonomia_store::Store::settle

use crate::clock;
use crate::core::Core;
use crate::operator;
use isonomia_units::Nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two rounds of the caretaker.
const ROUND_EVERY_NS: Nanos = Nanos::from_millis(100);
const ROUND_EVERY: Duration = Duration::from_nanos(ROUND_EVERY_NS.0);
/// Between two writings of changed sizes and times to the database.
const FLUSH_EVERY_ROUNDS: u32 = 10;
/// Metadata reach stable storage after so many at the latest.
const SYNC_EVERY_ROUNDS: u32 = 50;
/// A file that is not written for this long, or up to twice as long, is settled.
const SETTLE_EVERY: Nanos = Nanos::from_secs(5);
/// Between two looks at whether there is anything new of applications' phases, at most.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// What the caretaker does until the server stops.
pub fn run(core: &Core) {
    // Nobody has left anything yet.
    let _ = core.caretaker.set(std::thread::current());
    let mut rounds: u32 = 0;
    let mut round_at = clock::now();
    while !core.is_stopping.load(Ordering::Relaxed) {
        std::thread::park_timeout(ROUND_EVERY);
        let now = clock::now();
        match core.end_holders(now) {
            Ok(()) => core.release_due(now),
            // They keep what they have until then.
            Err(error) => tracing::error!(%error, "it cannot be noted that clients have no locks any more"),
        }
        if now.since(round_at) < ROUND_EVERY_NS {
            continue;
        }
        round_at = now;
        core.pace_all(now);
        core.recording.end_if_due(now, &core.policy, |policy| operator::follow(core, policy));
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(FLUSH_EVERY_ROUNDS) {
            core.unfinished.sweep();
            if let Err(error) = core.store.heal() {
                tracing::error!(%error, "cannot make the metadata changeable again");
            }
            if let Err(error) = core.store.flush_dirty() {
                tracing::error!(%error, "cannot write times of files to the database");
            }
            if let Err(error) = core.store.objects().remove_unused() {
                tracing::error!(%error, "cannot remove objects that are not used any more");
            }
        }
        if rounds.is_multiple_of(SYNC_EVERY_ROUNDS)
            && let Err(error) = core.store.sync()
        {
            tracing::error!(%error, "cannot put the metadata on stable storage");
        }
    }
}

/// What the settler does until the server stops.
pub fn settle(core: &Core) {
    let mut settled_at = clock::now();
    while !core.is_stopping.load(Ordering::Relaxed) {
        if let Err(error) = core.store.end_if_unsynced() {
            tracing::debug!(%error, "the storage of the metadata takes nothing yet");
        }
        core.histories.write_due(&core.targets, &core.store);
        let wait = SETTLE_EVERY.0.saturating_sub(clock::now().since(settled_at).0);
        if wait > 0 {
            std::thread::park_timeout(Duration::from_nanos(wait.min(LOOK_EVERY.0)));
            continue;
        }
        settled_at = clock::now();
        if let Err(error) = core.store.settle() {
            tracing::error!(%error, "cannot bring files to stable storage");
        }
    }
}
