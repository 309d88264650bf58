//! Exclusive phases over a cluster: the servers' I/O nodes tell the coordinator, which is the server that decides for all
//! ([`Port::decider`](super::controller::Port::decider)), of claims, and are told who has them.
//!
//! Another server that comes to decide, because the one before is gone, learns from the nodes' next reports who has them, and grants
//! only what is free. While nobody decides, nodes are open as soon as the silence was long enough.
//!
//! One thread, `phases`, tells what is new at once, and all of it every second, so that a lost message is made up for and a
//! silent coordinator noticed. It has connections of its own: nothing that is said here waits for data. What comes is taken by the
//! worker that took it in.

use super::links::Links;
use super::membership::Cluster;
use super::wire::{PhaseGrant, PhaseReport};
use crate::clock;
use crate::cluster_config::ClusterConfig;
use crate::connection::Pending;
use crate::core::Core;
use isonomia_planning::coordinator::Publication;
use isonomia_proto::request::ReplyHeader;
use isonomia_transport::handshake::Protection;
use isonomia_units::{Nanos, ServerId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is the same is said again after this time: a third of what a node takes for silence.
const REPEAT_EVERY: Nanos = Nanos::from_secs(1);
/// The longest sleep, so that the end of the server, another policy and another cluster file are noticed.
const SLEEP_MAX: Nanos = Nanos::from_millis(200);

impl Cluster {
    /// Who grants the servers' targets now, if anybody does.
    fn coordinator(&self) -> Option<ServerId> {
        self.port.decider(self.config.number, &self.config.map(), clock::now())
    }

    /// This server's number, and whether it is the coordinator.
    pub fn place_of_coordinator(&self) -> (ServerId, bool) {
        let own = self.config.number;
        (own, self.coordinator() == Some(own))
    }

    /// The coordinator's name, if there is one.
    pub fn coordinator_name(&self) -> Option<String> {
        let map = self.config.map();
        Some(map.server(self.coordinator()?)?.name.to_string())
    }

    /// A server tells of claims. It is confirmed; the answer follows by itself.
    pub fn hear_claims(&self, core: &Core, pending: &Pending, bytes: &[u8]) {
        let from = ServerId(pending.header.offset as u16);
        let is_known = self.config.map().server(from).is_some() && from != self.config.number;
        let heard = match PhaseReport::decode(bytes).filter(|_| is_known) {
            Some(report) => {
                // A policy without phases has no use for it: the sender will hear of the policy.
                let node = core.phases.node();
                let heard = node.map_or(Ok(()), |node| {
                    node.lock().coordinate(clock::now(), from, report).map(drop).map_err(|error| error.to_string())
                });
                core.phases.publish();
                heard
            }
            None => Err("no report of I/O phases".to_owned()),
        };
        self.confirm(core, pending, heard, from);
    }

    /// The coordinator tells who has this server's targets.
    pub fn hear_grant(&self, core: &Core, pending: &Pending, bytes: &[u8]) {
        let from = ServerId(pending.header.offset as u16);
        let is_coordinator = self.coordinator() == Some(from) && from != self.config.number;
        let heard = match PhaseGrant::decode(bytes).filter(|_| is_coordinator) {
            Some(publication) => {
                let node = core.phases.node();
                let heard = node.map_or(Ok(()), |node| {
                    node.lock().hear(clock::now(), publication).map_err(|error| error.to_string())
                });
                core.phases.look(&core.bell);
                heard
            }
            None => Err("no grant of I/O phases by the coordinator".to_owned()),
        };
        self.confirm(core, pending, heard, from);
    }

    fn confirm(&self, core: &Core, pending: &Pending, heard: Result<(), String>, from: ServerId) {
        let seq = pending.header.seq;
        let reply = match heard {
            Ok(()) => ReplyHeader::ok(seq, 0, 0),
            Err(error) => {
                self.port.refuse(from, &error);
                ReplyHeader::error(seq, Errno::PROTO.raw_os_error().unsigned_abs())
            }
        };
        core.answer_late(pending, &reply, &[]);
    }
}

/// The thread.
pub struct Publisher {
    core: Arc<Core>,
    config: ClusterConfig,
    links: Links,
    /// What others were told, and when.
    told: HashMap<ServerId, (Publication, Nanos)>,
    reported_at: Nanos,
    /// Who decided when that was last asked.
    decides: Option<ServerId>,
}

impl Publisher {
    /// Of the server that has `core`.
    pub fn new(core: Arc<Core>, config: ClusterConfig, way: (Option<String>, Protection)) -> Self {
        let links = Links::new(config.clone(), way);
        Self { core, config, links, told: HashMap::new(), reported_at: Nanos::ZERO, decides: None }
    }

    /// Does its part until the server stops.
    pub fn run(&mut self) {
        self.core.phases.have_published_by(std::thread::current());
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            self.tell();
            std::thread::park_timeout(Duration::from_nanos(SLEEP_MAX.0));
        }
    }

    fn tell(&mut self) {
        let Some(node) = self.core.phases.node() else { return };
        let Some(cluster) = self.core.cluster.get() else { return };
        let (now, own, decides) = (clock::now(), self.config.number, cluster.coordinator());
        let is_new = std::mem::replace(&mut self.decides, decides) != decides;
        let mut node = node.lock();
        node.set_coordinator(now, own, decides == Some(own));
        node.settle(now);
        if is_new {
            // Who it is now knows nothing of this node, and who it is no more has nothing to tell.
            self.told.clear();
            self.reported_at = Nanos::ZERO;
        }
        if decides == Some(own) {
            let publications = node.publications();
            drop(node);
            for (server, publication) in publications {
                let told = self.told.get(&server);
                if told.is_none_or(|(told, at)| *told != publication || now.since(*at) >= REPEAT_EVERY) {
                    self.links.send(server, PhaseGrant::encode(&publication));
                    self.told.insert(server, (publication, now));
                }
            }
        } else if let Some(decides) = decides
            && (node.has_changed() || now.since(self.reported_at) >= REPEAT_EVERY)
        {
            self.reported_at = now;
            let report = node.report(now);
            drop(node);
            self.links.send(decides, PhaseReport::encode(report));
        } else {
            drop(node);
        }
        self.core.phases.look(&self.core.bell);
    }
}
