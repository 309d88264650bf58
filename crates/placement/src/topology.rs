//! What lies between a client and a target: the router, the server, the target.

use isonomia_units::{ServerId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A router between clients and servers (LNET router), unique in the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u16);

/// Clients that have the same routes: a position in the routes of [`Topology::routed`]. Without routers there is only
/// zone 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone(pub u16);

/// The way from a client to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The router in between, if there are routers.
    pub router: Option<RouterId>,
    /// The server that the target is at.
    pub server: ServerId,
    /// The target.
    pub target: TargetId,
}

/// Why targets and routes make no topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// There is nothing to place on.
    #[error("there is no target")]
    NoTargets,
    /// Two targets with one id.
    #[error("target {0} is there twice")]
    DuplicateTarget(TargetId),
    /// No client could exist.
    #[error("there is no zone")]
    NoZones,
    /// More zones than a [`Zone`] can name.
    #[error("{0} zones (allowed: at most 65536)")]
    TooManyZones(usize),
    /// A route to a server that has no target.
    #[error("{zone} has a route to server {server}, which has no target")]
    UnknownServer {
        /// Whose route.
        zone: Zone,
        /// Where to.
        server: ServerId,
    },
    /// Clients that could not place anything.
    #[error("{0} has no route")]
    NoRoute(Zone),
}

/// How a zone reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Not at all.
    None,
    /// Without a router.
    Direct,
    /// Through this one of [`Topology::routers`].
    Through(usize),
}

/// Targets, servers, routers, and who reaches what. Positions in its lists are what the rest of the crate counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    targets: Vec<TargetId>,
    /// The position in `servers` of each target's server.
    server_of: Vec<usize>,
    servers: Vec<ServerId>,
    routers: Vec<RouterId>,
    /// By zone and position of the server.
    routes: Vec<Vec<Route>>,
    /// Positions of the targets by id.
    by_id: BTreeMap<TargetId, usize>,
}

impl Topology {
    /// Targets with their servers, reached by all clients without routers. O(t log t) for t targets.
    ///
    /// # Errors
    /// There is no target, or one is there twice.
    pub fn direct(targets: impl IntoIterator<Item = (TargetId, ServerId)>) -> Result<Self, TopologyError> {
        let mut topology = Self::unreachable(targets)?;
        topology.routes = vec![vec![Route::Direct; topology.servers.len()]];
        Ok(topology)
    }

    /// Targets with their servers, and for each zone the router to each server; a server that is missing there cannot
    /// be reached from the zone. O(t log t + z s log s) for t targets, z zones, and s servers.
    ///
    /// # Errors
    /// There is no target, one is there twice, a route leads nowhere, or a zone has none.
    pub fn routed(
        targets: impl IntoIterator<Item = (TargetId, ServerId)>,
        zones: &[BTreeMap<ServerId, RouterId>],
    ) -> Result<Self, TopologyError> {
        let mut topology = Self::unreachable(targets)?;
        if zones.is_empty() {
            return Err(TopologyError::NoZones);
        }
        if zones.len() > usize::from(u16::MAX) + 1 {
            return Err(TopologyError::TooManyZones(zones.len()));
        }
        let mut routers: Vec<RouterId> = zones.iter().flat_map(|zone| zone.values().copied()).collect();
        routers.sort_unstable();
        routers.dedup();
        for (at, zone) in (0..=u16::MAX).map(Zone).zip(zones) {
            let mut routes = vec![Route::None; topology.servers.len()];
            for (server, router) in zone {
                let position = topology.servers.binary_search(server);
                let position = position.map_err(|_| TopologyError::UnknownServer { zone: at, server: *server })?;
                routes[position] = routers.binary_search(router).map_or(Route::None, Route::Through);
            }
            if zone.is_empty() {
                return Err(TopologyError::NoRoute(at));
            }
            topology.routes.push(routes);
        }
        topology.routers = routers;
        Ok(topology)
    }

    /// Targets and servers only.
    fn unreachable(targets: impl IntoIterator<Item = (TargetId, ServerId)>) -> Result<Self, TopologyError> {
        let mut by_server: BTreeMap<ServerId, Vec<TargetId>> = BTreeMap::new();
        for (target, server) in targets {
            by_server.entry(server).or_default().push(target);
        }
        let servers: Vec<ServerId> = by_server.keys().copied().collect();
        let mut round = Vec::new();
        for (server, mut targets) in by_server.into_values().enumerate() {
            targets.sort_unstable();
            round.extend(targets.into_iter().enumerate().map(|(index, target)| (index, server, target)));
        }
        round.sort_unstable();
        let mut by_id = BTreeMap::new();
        for (position, (_, _, target)) in round.iter().enumerate() {
            if by_id.insert(*target, position).is_some() {
                return Err(TopologyError::DuplicateTarget(*target));
            }
        }
        if round.is_empty() {
            return Err(TopologyError::NoTargets);
        }
        Ok(Self {
            targets: round.iter().map(|entry| entry.2).collect(),
            server_of: round.iter().map(|entry| entry.1).collect(),
            servers,
            routers: Vec::new(),
            routes: Vec::new(),
            by_id,
        })
    }

    /// The targets in the order of the round: the first of each server, the second of each, and so on; servers and
    /// the targets of a server by id. Lustre's allocator alternates between servers in the same way.
    pub fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// How many zones there are, at least one.
    pub fn zones(&self) -> usize {
        self.routes.len()
    }

    /// The way from `zone` to `target`, if both exist and there is one. O(log t).
    pub fn path(&self, zone: Zone, target: TargetId) -> Option<Path> {
        let position = *self.by_id.get(&target)?;
        let route = self.route(zone, position)?;
        (route != Route::None).then(|| self.path_at(route, position))
    }

    /// How `zone` reaches the target at `position`; `None` if there is no such zone.
    pub(crate) fn route(&self, zone: Zone, position: usize) -> Option<Route> {
        self.routes.get(usize::from(zone.0)).map(|routes| routes[self.server_of[position]])
    }

    pub(crate) fn path_at(&self, route: Route, position: usize) -> Path {
        let router = match route {
            Route::Through(router) => Some(self.routers[router]),
            Route::None | Route::Direct => None,
        };
        Path { router, server: self.servers[self.server_of[position]], target: self.targets[position] }
    }

    pub(crate) fn server_at(&self, position: usize) -> usize {
        self.server_of[position]
    }

    pub(crate) fn position_of(&self, target: TargetId) -> Option<usize> {
        self.by_id.get(&target).copied()
    }

    pub(crate) fn router_at(&self, router: RouterId) -> Option<usize> {
        self.routers.binary_search(&router).ok()
    }

    /// The routers by which some zone reaches the target at `position`, each once.
    pub(crate) fn routers_to(&self, position: usize) -> impl Iterator<Item = usize> {
        let routers: BTreeSet<usize> = self
            .routes
            .iter()
            .filter_map(|routes| match routes[self.server_of[position]] {
                Route::Through(router) => Some(router),
                Route::None | Route::Direct => None,
            })
            .collect();
        routers.into_iter()
    }

    pub(crate) fn server_count(&self) -> usize {
        self.servers.len()
    }

    pub(crate) fn router_count(&self) -> usize {
        self.routers.len()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(target: u16, server: u16) -> (TargetId, ServerId) {
        (TargetId(target), ServerId(server))
    }

    #[test]
    fn the_round_alternates_between_servers() {
        // Server 7 has three targets, server 9 one, server 2 two.
        let targets = [at(5, 7), at(1, 9), at(4, 7), at(0, 2), at(3, 7), at(8, 2)];
        let topology = Topology::direct(targets).map(|topology| topology.targets().to_vec());
        assert_eq!(topology, Ok([0, 3, 1, 8, 4, 5].map(TargetId).to_vec()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Topology::direct([]), Err(TopologyError::NoTargets));
        let twice = Topology::direct([at(0, 0), at(0, 1)]);
        assert_eq!(twice, Err(TopologyError::DuplicateTarget(TargetId(0))));
        let route = |server, router| BTreeMap::from([(ServerId(server), RouterId(router))]);
        let routed = |zones: &[_]| Topology::routed([at(0, 0), at(1, 1)], zones);
        assert_eq!(routed(&[]), Err(TopologyError::NoZones));
        assert_eq!(routed(&[route(0, 0), BTreeMap::new()]), Err(TopologyError::NoRoute(Zone(1))));
        let nowhere = TopologyError::UnknownServer { zone: Zone(0), server: ServerId(2) };
        assert_eq!(routed(&[route(2, 0)]), Err(nowhere));
        assert_eq!(routed(&vec![route(0, 0); 65_537]), Err(TopologyError::TooManyZones(65_537)));
    }

    #[test]
    fn a_path_goes_through_the_zones_router() {
        let routes = [
            BTreeMap::from([(ServerId(0), RouterId(4)), (ServerId(1), RouterId(2))]),
            BTreeMap::from([(ServerId(1), RouterId(9))]),
        ];
        let topology = Topology::routed([at(0, 0), at(1, 1)], &routes).expect("a topology");
        let router = |zone, target| topology.path(Zone(zone), TargetId(target)).map(|path| path.router);
        assert_eq!(router(0, 0), Some(Some(RouterId(4))));
        assert_eq!(router(0, 1), Some(Some(RouterId(2))));
        assert_eq!(router(1, 1), Some(Some(RouterId(9))));
        assert_eq!([router(1, 0), router(2, 0), router(0, 2)], [None; 3], "no route, no zone, no target");
    }
}
