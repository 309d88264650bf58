//! The thread of a substitute.

use crate::clock;
use crate::core::Core;
use crate::worker;
use isonomia_units::Nanos;
use std::sync::atomic::Ordering;

/// Between two looks of a substitute that has nothing to do.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);
impl Core {
    /// Starts a substitute if one is needed.
    pub fn substitute(&self, now: Nanos) {
        let Some(number) = self.serving.call(now) else { return };
        tracing::warn!("all workers wait for storage; a substitute takes over");
        let own = self.own.clone();
        let spawned = std::thread::Builder::new().name(format!("substitute-{number}")).spawn(move || {
            let Some(core) = own.upgrade() else { return };
            let _dismissal = Dismissal(&core, number);
            run(&core, number);
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot start a substitute");
            self.serving.dismiss(number);
        }
    }
}

/// Of a substitute that ends, or panicked. What it has taken in last is for a worker.
struct Dismissal<'a>(&'a Core, usize);

impl Drop for Dismissal<'_> {
    fn drop(&mut self) {
        self.0.serving.dismiss(self.1);
        self.0.ring();
    }
}

fn run(core: &Core, number: usize) {
    let mut scratch = Vec::new();
    loop {
        let now = clock::now();
        if core.is_stopping.load(Ordering::Relaxed) || core.serving.is_worker_free(now) {
            return;
        }
        let (taken_in, now) = core.take_in(now);
        let (served, _) = worker::serve_one_each(core, number, now, &mut scratch);
        if !taken_in && !served {
            core.take_events(now, Some(LOOK_EVERY));
        }
    }
}
