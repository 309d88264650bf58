//! The end of a server, in order. The log tells what it waits for: operators cannot ask a server any more that is about to end, and one
//! whose device hangs ends when that goes on.

use crate::core::Core;
use crate::target::Target;
use crate::{Server, clock, segments, temporary};
use isonomia_transport::address::Address;
use isonomia_units::Nanos;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So often the log tells what the end waits for.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// What has been at a device for so long is named then.
const SLOW_MIN: Nanos = Nanos::from_secs(1);

/// What the end of a server waits for now.
struct WaitsFor(Mutex<&'static str>);

impl WaitsFor {
    fn set(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn tell(&self, targets: &[Target]) {
        let waits_for = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let slow = targets.iter().filter_map(|target| {
            let status = target.status(now);
            let since = status.oldest_ns.filter(|oldest_ns| *oldest_ns >= SLOW_MIN.0)?;
            Some(format!("{} ({}), for {} s", status.target, status.dir, since / 1_000_000_000))
        });
        let slow = slow.collect::<Vec<_>>().join("; ");
        tracing::warn!(waits_for, targets_without_answer = slow, "the server has not ended yet");
    }
}

/// Does `work`, and tells again and again what that waits for.
fn told(targets: &[Target], work: impl FnOnce(&WaitsFor)) {
    let waits_for = WaitsFor(Mutex::new(""));
    let (under_way, ended) = mpsc::channel::<()>();
    let waits_for = &waits_for;
    std::thread::scope(|scope| {
        let tell = move || {
            while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
                waits_for.tell(targets);
            }
        };
        // Without a thread nothing is told, and the server ends all the same.
        let _ = std::thread::Builder::new().name("stopping".to_owned()).spawn_scoped(scope, tell);
        work(waits_for);
        drop(under_way);
    });
}

impl Server {
    /// Requests that are being served are finished, everything is on stable storage afterwards.
    pub(super) fn stop(&mut self) {
        self.core.is_stopping.store(true, Ordering::Release);
        let core = self.core.clone();
        told(&core.targets, |waits_for| self.stop_in_order(&core, waits_for));
    }

    fn stop_in_order(&mut self, core: &Core, waits_for: &WaitsFor) {
        waits_for.set("requests that are being served");
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A ring wakes one worker, and rings that nobody has taken yet count as one: so ring until this one has ended.
            while !thread.is_finished() {
                core.ring();
                std::thread::park_timeout(Duration::from_millis(1));
            }
            if thread.join().is_err() {
                tracing::error!("a thread of the server panicked");
            }
        }
        if let Some(outside) = core.outside.get() {
            outside.allow([]);
        }
        core.delay_no_more();
        core.leave_handed();
        waits_for.set("what the devices of targets have under way");
        core.targets.iter().for_each(|target| target.engine.stop());
        while core.serving.has_substitutes() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        waits_for.set("stable storage of data and metadata");
        let is_any_left = core.locks.are_there_any() || core.mappings.are_there_any();
        if let Err(error) = core.holders.stop(&core.store, is_any_left) {
            tracing::error!(%error, "it cannot be noted whether there are locks");
        }
        for connection in core.connections() {
            core.close(&connection, None);
        }
        core.release_due(Nanos::MAX);
        segments::serving::stop(core, self.is_temporary);
        core.histories.write_all(&core.targets, &core.store);
        if let Err(error) = core.store.close() {
            tracing::error!(%error, "cannot write everything to stable storage");
        }
        for address in self.addresses.drain(..) {
            if let Address::Unix(path) = address {
                let _ = rustix::fs::unlink(path.as_str());
            }
        }
        if self.is_temporary {
            temporary::remove(&self.dir);
        }
    }
}
