//! The keeper thread: what has to happen in time, whatever the storage does. It never waits for the storage.

use crate::core::Core;
use crate::{clock, jobs, mapping};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Clients are shown a sign of life, and stalled ones cut, every so many samples.
const LOOK_EVERY_SAMPLES: u32 = 10;

/// What the keeper does until the server stops.
pub fn run(core: &Core) {
    let mut samples: u32 = 0;
    while !core.is_stopping.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_nanos(jobs::SAMPLE_EVERY.0));
        let now = clock::now();
        core.count_out_who_waits(now);
        core.rescue_fetches(now);
        core.substitute(now);
        core.rates.divide_alone(&core.policy, &core.targets, &core.bell, now);
        for job in core.jobs.sample(now) {
            core.forget(job.id, now);
        }
        // Answering would wait until it is known whether this process may.
        if core.store.fence().is_valid() {
            if let Some(cluster) = core.cluster.get() {
                cluster.expire(core, now);
            }
            core.mappings.due(now).into_iter().for_each(|told| mapping::answer(core, told));
        }
        samples = samples.wrapping_add(1);
        if samples.is_multiple_of(LOOK_EVERY_SAMPLES) {
            core.look_after_connections(now);
        }
    }
}
