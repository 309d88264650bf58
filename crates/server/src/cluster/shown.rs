//! What operators are shown of a cluster, as far as one server knows.

use super::membership::Cluster;
use isonomia_cluster::map::Server;
use isonomia_proto::control::{ClusterStatus, MemberList, ServerName, VolumeEntry, VolumeList, VolumeStatus};
use isonomia_store::Store;
use isonomia_units::{ServerId, VolumeId};

impl Cluster {
    /// All volumes that are known of, and all servers.
    pub fn volumes(&self, store: &Store) -> VolumeList {
        let map = &self.config.map();
        let known = store.namespace().whereabouts().unwrap_or_default();
        let name_of = |server: ServerId| map.server(server).map_or_else(|| server.to_string(), |s| s.name.to_string());
        let entry = |name: &[u8], volume: VolumeId| VolumeEntry {
            name: String::from_utf8_lossy(name).into_owned(),
            number: volume.0,
            server: known.servers.get(&volume).copied().map_or_else(String::new, name_of),
            moving: self.moves.of(volume).map(|(from, to)| (name_of(from), name_of(to))),
        };
        let mut volumes: Vec<VolumeEntry> = known.names.iter().map(|(name, volume)| entry(name, *volume)).collect();
        volumes.sort_unstable();
        let server = |server: &Server| {
            let of_new_files = server.targets.iter().filter(|target| !server.retired && !target.retired);
            let (name, number) = (server.name.to_string(), server.number.0);
            ServerName { name, number, targets: of_new_files.count() as u16 }
        };
        VolumeList { volumes, servers: map.servers().iter().map(server).collect() }
    }

    /// All servers, and where they listen.
    pub fn members(&self) -> MemberList {
        self.config.members()
    }

    /// What operators are told.
    pub fn status(&self, store: &Store) -> ClusterStatus {
        let known = store.namespace().whereabouts().unwrap_or_default();
        // What is known of the table may still name one that was removed here.
        let is_here = |volume: &VolumeId| {
            known.servers.get(volume) == Some(&self.config.number)
                && store.namespace().has_volume(*volume).unwrap_or(false)
        };
        let here = known.names.iter().filter(|(_, volume)| is_here(volume));
        let mut volumes: Vec<VolumeStatus> = here
            .map(|(name, volume)| VolumeStatus { name: String::from_utf8_lossy(name).into_owned(), number: volume.0 })
            .collect();
        volumes.sort_unstable();
        let (policy_version, policy_deviates) = self.standing.told();
        let moves = self.moves.status();
        let tables_heard = self.peer_tables.heard() as u32;
        let controller = self.port.status();
        let placement = self.placing.placement().to_string();
        ClusterStatus {
            placement,
            volumes,
            moves,
            policy_version,
            policy_deviates,
            tables_heard,
            controller,
            ..self.config.status()
        }
    }
}
