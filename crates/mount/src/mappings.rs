//! The mappings of a mount, server by server: each has sessions, leases and restarts of its own.

use crate::clients::Clients;
use crate::handle::Handle;
use crate::mapping::{Fault, ServerMappings};
use fuser::Notifier;
use isonomia_client::Ino;
use isonomia_units::{Nanos, ServerId, VolumeId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// See the module. Dropping it ends all threads.
pub struct Mappings {
    clients: Arc<Clients>,
    timeout: Duration,
    kernel: OnceLock<Notifier>,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    servers: HashMap<Option<ServerId>, Arc<ServerMappings>>,
    /// Where the files of a volume are that was opened anything of.
    volumes: HashMap<VolumeId, Arc<ServerMappings>>,
}

impl Mappings {
    /// No mappings. A fault waits no longer than `timeout`.
    pub fn new(clients: Arc<Clients>, timeout: Nanos) -> Self {
        let timeout = Duration::from_nanos(timeout.0);
        Self { clients, timeout, kernel: OnceLock::new(), known: RwLock::default() }
    }

    /// Says what drops pages, before the first request.
    pub fn start(&self, kernel: Notifier) {
        // There is one client for a mount.
        let _ = self.kernel.set(kernel);
    }

    /// A file was opened for reading and writing.
    pub fn opened(&self, handle: &mut Handle) {
        let mappings = self.of(handle.file.capability.ino);
        match mappings.map_or_else(|| self.begin(handle), Ok) {
            Ok(mappings) => handle.written_back = mappings.opened(&handle.file),
            // What programs store to mapped memory of it will be refused.
            Err(error) => tracing::error!(%error, "no thread listens to a server: its files cannot be mapped to write"),
        }
    }

    /// A file that was [`Self::opened`] is closed: with the last, the mapping goes.
    pub fn closed(&self, ino: u64) {
        if let Some(mappings) = self.of(ino) {
            mappings.closed(ino);
        }
    }

    /// As [`ServerMappings::write_back`].
    pub fn write_back(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        self.of(handle.file.capability.ino).ok_or(Errno::IO)?.write_back(handle, offset, data)
    }

    /// Whether the kernel may have pages of a file that programs wrote to, and the server does not know.
    pub fn may_have_pages(&self, ino: u64) -> bool {
        self.of(ino).is_some_and(|mappings| mappings.may_have_pages(ino))
    }

    /// How long a fault may wait that comes now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Answers a fault, now or later.
    pub fn fault(&self, fault: Fault) {
        match self.of(fault.handle.file.capability.ino) {
            Some(mappings) => mappings.fault(fault),
            None => crate::mapping::answer(fault),
        }
    }

    fn of(&self, ino: u64) -> Option<Arc<ServerMappings>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.volumes.get(&Ino(ino).volume()).cloned()
    }

    /// The first file of its volume.
    fn begin(&self, handle: &Handle) -> io::Result<Arc<ServerMappings>> {
        let ino = Ino(handle.file.capability.ino);
        let server = handle.client.server_of(ino);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mappings = match known.servers.get(&server) {
            Some(mappings) => mappings.clone(),
            None => {
                let mappings = Arc::new(ServerMappings::new(self.clients.clone(), server, self.timeout));
                if let Some(kernel) = self.kernel.get() {
                    mappings.start(kernel.clone())?;
                }
                known.servers.insert(server, mappings.clone());
                mappings
            }
        };
        // Another thread may have opened one at the same time.
        Ok(known.volumes.entry(ino.volume()).or_insert(mappings).clone())
    }
}
