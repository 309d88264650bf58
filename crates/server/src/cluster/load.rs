//! How full and how busy this server is, and where new volumes go: [`isonomia_cluster::load`] says what counts.

use super::Driver;
use crate::clock;
use crate::core::Core;
use isonomia_cluster::load::Load;
use isonomia_cluster::node::Input;
use isonomia_cluster::request::Request;
use isonomia_units::{Nanos, ServerId};

/// How often a server looks how full and how busy it is.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);
/// In a request for a volume: the root server chooses.
pub const ANY: ServerId = ServerId(0);

impl Driver {
    /// Tells the node how this server is, from time to time.
    pub(super) fn look_at_load(&mut self) {
        let now = clock::now();
        if now < self.next_load {
            return;
        }
        self.next_load = now + LOOK_EVERY;
        if let (Some(cluster), Ok(free_bytes)) = (self.core.cluster.get(), self.core.store.free_bytes()) {
            cluster.peer_tables.note_free(self.config.number, free_bytes);
        }
        match self.core.store.stat_fs() {
            Ok(space) => {
                let free = space.available_bytes as f64 / (space.total_bytes as f64).max(1.0);
                self.give(Input::Load(Load::new(free, busy(&self.core, now))));
            }
            // Then it says nothing, and gets no new volumes.
            Err(error) => tracing::warn!(%error, "cannot tell how much space is free"),
        }
    }

    /// The request with a server, if there is one for a volume that may be on any. On the root server, to which all have told
    /// how they are.
    pub(super) fn placed(&self, mut request: Request) -> Option<Request> {
        if let Request::Make { name, server, .. } = &mut request
            && *server == ANY
        {
            let (map, now) = (self.config.map(), clock::now());
            let by_load = map.home_by(name.as_bytes(), |server| self.node.loads().factor(server, now));
            *server = by_load.or_else(|| map.home(name.as_bytes()))?.number;
        }
        Some(request)
    }
}

/// Which part of the time the data targets were busy in the window that a status shows, by what their requests cost.
fn busy(core: &Core, now: Nanos) -> f64 {
    let windows = core.jobs.all().into_iter().map(|job| job.window(now));
    let (service_ns, span) = windows.fold((0, 0.0_f64), |(service_ns, span), (from, to)| {
        (service_ns + to.data_service_ns - from.data_service_ns, span.max(to.at.since(from.at).as_secs_f64()))
    });
    let targets_s = span * core.data_targets() as f64;
    if targets_s > 0.0 { Nanos(service_ns).as_secs_f64() / targets_s } else { 0.0 }
}
