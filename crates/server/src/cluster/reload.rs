//! A newer cluster file: an operator has the server read it, or the server hears of it.

use super::membership::{Cluster, Event, Reload};
use super::{Driver, view_of};
use isonomia_cluster::Map;
use isonomia_cluster::node::Input;
use isonomia_proto::control::ControlReply;
use isonomia_units::Nanos;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Reading the cluster file again is answered within this time.
const RELOADED_WITHIN: Nanos = Nanos::from_secs(3);

impl Cluster {
    /// Has the cluster file read again, and waits for what comes of it.
    ///
    /// # Errors
    /// With the reason why it is not taken.
    pub fn reload(&self, reload: Reload) -> Result<ControlReply, String> {
        let (answer, answered) = sync_channel(1);
        self.events.try_send(Event::Reload(reload, answer)).map_err(|_| "the server is overloaded: ask again")?;
        let within = Duration::from_nanos(RELOADED_WITHIN.0);
        answered.recv_timeout(within).map_err(|_| "the server waits for its storage: its status will tell")?
    }
}

impl Driver {
    pub(super) fn reload(&mut self, wanted: &Reload) -> Result<ControlReply, String> {
        let is_wanted = |map: &Map| {
            (map.epoch().0, format!("{:016x}", map.fingerprint())) == (wanted.epoch, wanted.fingerprint.clone())
        };
        let present = self.config.map();
        if is_wanted(&present) {
            let needs_restart = self.config.needs_restart(&present);
            return Ok(ControlReply::Reloaded { is_known: true, needs_restart });
        }
        let new = self.config.read_again()?;
        if !is_wanted(&new) {
            let (path, epoch) = (self.config.path.display(), new.epoch());
            return Err(format!("{path} on its host is another file, of epoch {epoch}"));
        }
        let view = view_of(&new);
        self.node.accepts(&view).map_err(|error| error.to_string())?;
        let needs_restart = self.config.needs_restart(&new);
        if !wanted.is_trial {
            tracing::info!(epoch = view.epoch, needs_restart, "a newer cluster file is taken");
            self.replace(new);
            self.give(Input::View(view));
        }
        Ok(ControlReply::Reloaded { is_known: false, needs_restart })
    }

    /// Has a newer cluster file from now on.
    pub(super) fn replace(&self, new: Map) {
        let epoch = u64::from(new.epoch().0);
        self.config.replace(new);
        if let Some(cluster) = self.core.cluster.get() {
            cluster.rotate(epoch);
            cluster.placing.set_default(self.config.map().placement());
        }
    }
}
