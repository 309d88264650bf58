//! What all threads of a server share of its cluster: which servers there are, what is known of them, and what waits for the
//! thread `cluster`.
//!
//! Nothing in here knows the server as a whole ([`crate::core`]); what is done with it is in the modules beside this one.

use super::addresses::Missing;
use super::apart::queue::ControlQueue;
use super::capabilities::Capabilities;
use super::controller::Port;
use super::inspection::Inspection;
use super::moves::Moves;
use super::peer_tables::PeerTables;
use super::placing::Placing;
use super::standing::Standing;
use super::startup_queue::StartupQueue;
use super::waiting::Requests;
use super::wire::Verdict;
use crate::cluster_config::ClusterConfig;
use crate::connection::Pending;
use isonomia_cluster::node::Input;
use isonomia_cluster::objects::Intent;
use isonomia_cluster::request::{Request, RequestId};
use isonomia_proto::control::ControlReply;
use isonomia_proto::object::{ObjectCapability, ObjectCode};
use isonomia_store::{StoreError, VolumeChange};
use isonomia_transport::key::{Key, fresh_nonce};
use isonomia_units::{Ino, ServerId, TargetId, VolumeId};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What waits for the thread at most; requests beyond it are told to come again, and messages are dropped.
const EVENTS_MAX: usize = 4_096;

/// What workers bring.
pub enum Passed {
    /// A change of a volume that a user wants and may make.
    Change(VolumeChange),
    /// A file is to be cut to a size first, together with the servers that have its objects.
    Cut {
        /// The file.
        ino: Ino,
        /// The size.
        size_bytes: u64,
    },
    /// What another server sent.
    FromPeer(Vec<u8>),
}

/// A number that nobody can know before; if the kernel has none, files that are placed at random are so from the same number on.
fn drawn() -> u128 {
    let nonce = fresh_nonce().unwrap_or_default();
    nonce.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

pub(super) enum Event {
    /// A user's change; a new volume is to be on `wanted`, or anywhere if that is 0.
    Change { id: RequestId, wanted: ServerId, change: VolumeChange },
    /// What another server sent.
    FromPeer { id: RequestId, from: ServerId, kind: u32, bytes: Vec<u8> },
    /// A user's request waits until this file is cut.
    Cut { id: RequestId, ino: Ino, size_bytes: u64 },
    /// What the thread for objects has done.
    Objects(Done),
    /// Files have lost writers.
    Loose,
    /// An operator wants the cluster file to be read again.
    Reload(Reload, SyncSender<Result<ControlReply, String>>),
    /// An operator wants the root server to decide this.
    Decide(Request, SyncSender<Verdict>),
    /// What takes long with a volume is done.
    Worked(VolumeId, Result<(), i32>),
}

/// What came of what the thread `objects` did.
pub enum Done {
    /// The node is to hear this.
    Heard(Input),
    /// This is on stable storage, and the request waits until it is done.
    Intended(RequestId, Intent),
    /// The request may have its answer: there is nothing to be cut any more.
    Nothing(RequestId),
    /// It failed.
    Failed(RequestId, StoreError),
}

/// The cluster file that a server is to take.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Its epoch.
    pub epoch: u32,
    /// Of [`isonomia_cluster::Map::fingerprint`].
    pub fingerprint: String,
    /// Whether it would be taken is all that is asked.
    pub is_trial: bool,
}

/// See the module, and [`super`].
pub struct Cluster {
    pub(super) config: ClusterConfig,
    /// Nothing without a key file: then no file is spread.
    pub(super) capabilities: Option<Capabilities>,
    /// Where new files go.
    pub(super) placing: Arc<Placing>,
    pub(super) events: SyncSender<Event>,
    pub(super) requests: Arc<Requests<Pending>>,
    /// What clients asked for that nobody can tell them.
    missing: Missing,
    /// What other servers tell of their jobs.
    pub peer_tables: PeerTables,
    /// What servers tell each other of decisions for all of them.
    pub port: Port,
    /// What becomes of the cluster's policy here.
    pub standing: Standing,
    /// Volumes that are on their way.
    pub moves: Moves,
    /// Clients wait here until this server may serve them.
    pub startup_queue: StartupQueue,
    /// Operators have objects looked at.
    pub inspection: Inspection,
    /// What waits for no arbiter.
    pub control: ControlQueue,
}

/// What the thread takes its events from.
pub struct Events {
    pub(super) received: Receiver<Event>,
    /// For the thread `objects`.
    pub(super) sender: SyncSender<Event>,
    pub(super) requests: Arc<Requests<Pending>>,
}

impl Cluster {
    /// The part of the server that `config` names, and what its thread gets. `key` is what the servers have in common.
    pub fn new(config: ClusterConfig, key: Option<Key>) -> (Self, Events) {
        let (events, received) = sync_channel(EVENTS_MAX);
        let requests = Arc::new(Requests::new());
        let capabilities = key.map(|key| Capabilities::new(key, u64::from(config.map().epoch().0)));
        let received = Events { received, sender: events.clone(), requests: requests.clone() };
        let (standing, moves, startup_queue) = (Standing::default(), Moves::default(), StartupQueue::default());
        let (placing, peer_tables) = (Placing::new(&config.map(), drawn()), PeerTables::new(config.map().exchange()));
        let (inspection, port) = (Inspection::default(), Port::default());
        (
            Self {
                config,
                capabilities,
                placing: Arc::new(placing),
                events,
                requests,
                missing: Missing::default(),
                peer_tables,
                port,
                standing,
                moves,
                startup_queue,
                inspection,
                control: ControlQueue::default(),
            },
            received,
        )
    }

    /// Which file system its servers are: see [`Welcome`](isonomia_proto::setup::Welcome).
    pub fn file_system(&self) -> u64 {
        self.config.map().file_system()
    }

    /// Says that there are files to be cut that have lost writers.
    pub fn has_loose(&self) {
        // If there is no room they are found a moment later.
        let _ = self.events.try_send(Event::Loose);
    }

    /// Where a server listens, each address in a line of its own; nothing if the cluster file does not have it.
    pub fn addresses_of(&self, server: u64) -> Option<String> {
        let map = self.config.map();
        // No server ever had a greater number.
        let number = u16::try_from(server).ok()?;
        let Some(known) = map.server(ServerId(number)) else {
            self.missing.tell(number, map.epoch().0);
            return None;
        };
        let lines: Vec<String> = known.listen.iter().map(ToString::to_string).collect();
        Some(lines.join("\n"))
    }

    /// Makes out capabilities: see [`Capabilities::sign`]. [`StoreError::NotSupported`] if the servers have no key in common.
    pub fn sign_objects(
        &self,
        objects: ((u64, u32), &[TargetId]),
        access: u32,
        holder: u32,
    ) -> Result<(ObjectCapability, Vec<ObjectCode>), StoreError> {
        let capabilities = self.capabilities.as_ref().ok_or(StoreError::NotSupported)?;
        Ok(capabilities.sign(objects, access, holder, capabilities.now_secs()))
    }

    /// Verifies one.
    pub fn verify_objects(&self, capability: &ObjectCapability, needed: u32) -> Result<(), StoreError> {
        let capabilities = self.capabilities.as_ref().ok_or(StoreError::NotSupported)?;
        capabilities.verify(capability, needed, capabilities.now_secs())
    }

    /// Goes on with the secret of a newer epoch.
    pub(super) fn rotate(&self, epoch: u64) {
        if let Some(capabilities) = &self.capabilities {
            capabilities.rotate(epoch);
        }
    }

    /// How many numbers each server has for its targets.
    pub fn targets_per_server(&self) -> u32 {
        u32::from(self.config.map().targets_per_server())
    }
}
