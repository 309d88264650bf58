//! The balanced choice: the path whose parts were used least (TAPP-IO §II, Eq. 1; §III.A, Algorithm 1).
//!
//! Beyond the paper, a use costs more where other jobs leave less [`Room`]: then the cost is Σ wᵢ·(Rᵢ + 1)·pᵢ, where pᵢ is
//! what a use of the part is worth, in inverse proportion to the room of its targets. Where there is as much room everywhere, as
//! at first, that orders paths as the paper's Σ wᵢ·Rᵢ does.

use crate::room::Room;
use crate::topology::{Path, Route, Topology, Zone};
use isonomia_units::TargetId;
use std::sync::Arc;

/// How much the uses of each part of a path count in its cost (w₁ … w₃ of Eq. 1, which are these over their sum).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    router: u16,
    server: u16,
    target: u16,
}

/// Why a file cannot be placed. Nothing was counted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// More stripes than targets could hold one each.
    #[error("{stripes} stripes on {targets} targets (allowed: at most one on each)")]
    TooManyStripes {
        /// How many were asked for.
        stripes: usize,
        /// How many targets there are, or can be reached by whoever is last.
        targets: usize,
    },
    /// A client from nowhere.
    #[error("{zone} is unknown (allowed: below {zones})")]
    UnknownZone {
        /// What was given.
        zone: Zone,
        /// How many there are.
        zones: usize,
    },
}

/// Places files of one job, and remembers what they use.
///
/// The cost of a path is w₁·(uses of its router) + w₂·(uses of its server) + w₃·(uses of its target), where a use is
/// a stream that was placed there before by this balancer. The cheapest path is taken; ties as the crate says. On a
/// topology without routers whose servers have equally many targets, the uses of any two targets, and of any two
/// servers, never differ by more than one, unless the server or the target weighs nothing.
#[derive(Clone, Debug)]
pub struct Balancer {
    topology: Arc<Topology>,
    weights: Weights,
    /// Where the round begins.
    first: usize,
    uses: Uses,
    prices: Prices,
}

/// How many streams were placed, by positions in the topology.
#[derive(Clone, Debug)]
struct Uses {
    routers: Vec<u32>,
    servers: Vec<u32>,
    targets: Vec<u32>,
}

/// What a use of each part costs, by positions in the topology: [`Room::price`].
#[derive(Clone, Debug)]
struct Prices {
    routers: Vec<u32>,
    servers: Vec<u32>,
    targets: Vec<u32>,
    /// Of targets: nothing is to be placed there while there are others.
    is_shut: Vec<bool>,
}

impl Weights {
    /// A third each.
    pub const EQUAL: Self = Self { router: 1, server: 1, target: 1 };

    /// Weights in these proportions; `None` if all are zero.
    pub const fn new(router: u16, server: u16, target: u16) -> Option<Self> {
        if router == 0 && server == 0 && target == 0 { None } else { Some(Self { router, server, target }) }
    }

    /// The parts of the router, the server, and the target; they add up to one.
    pub fn parts(self) -> [f64; 3] {
        let all = [self.router, self.server, self.target].map(f64::from);
        all.map(|weight| weight / all.iter().sum::<f64>())
    }

    /// The cost of a path, times the sum of the weights, of uses and the price of one for router, server and target: below
    /// 2^62, as prices are up to 2^12 and uses below 2^32.
    fn cost(self, router: (u32, u32), server: (u32, u32), target: (u32, u32)) -> u64 {
        let part =
            |weight: u16, (uses, price): (u32, u32)| u64::from(weight) * u64::from(price) * (u64::from(uses) + 1);
        part(self.router, router) + part(self.server, server) + part(self.target, target)
    }
}

impl Balancer {
    /// One that has placed nothing. Of equally cheap targets it prefers those from position `first` of the round on
    /// (modulo their number), which the caller draws.
    pub fn new(topology: Arc<Topology>, weights: Weights, first: usize) -> Self {
        let uses = Uses {
            routers: vec![0; topology.router_count()],
            servers: vec![0; topology.server_count()],
            targets: vec![0; topology.targets().len()],
        };
        let first = first % topology.targets().len();
        let prices = Prices::of(&topology, |_| Room::ALL);
        Self { topology, weights, first, uses, prices }
    }

    /// Of equally cheap targets it prefers those from `target` on from now on, if it knows that.
    pub fn begin_at(&mut self, target: TargetId) {
        self.first = self.topology.position_of(target).unwrap_or(self.first);
    }

    /// From now on others leave so much of each target. O(t) for t targets.
    pub fn tell_room(&mut self, room: impl Fn(TargetId) -> Room) {
        self.prices = Prices::of(&self.topology, room);
    }

    /// Places a file without stripes that a client in `zone` writes: one file per process (Algorithm 1, lines 5 to 8).
    /// O(t) for t targets.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn place_file(&mut self, zone: Zone) -> Result<Path, PlacementError> {
        self.check(zone)?;
        let cheapest = self.cheapest(zone, |_| true);
        // Every zone has a route.
        let (position, route) = cheapest.ok_or(PlacementError::TooManyStripes { stripes: 1, targets: 0 })?;
        self.count(position, route);
        Ok(self.topology.path_at(route, position))
    }

    /// Places a file that is shared by a writer for each of its stripes (Algorithm 1, lines 9 to 12): the path of each
    /// stripe from its writer's zone, in order, no two at one target. O(n t) for n stripes and t targets.
    ///
    /// The paths are chosen one after the other. Where zones reach different targets, a writer may find those that it
    /// reaches taken by earlier ones although another order would do.
    ///
    /// # Errors
    /// There are more stripes than targets, a writer's targets are all taken, or there is no such zone.
    pub fn place_shared_file(&mut self, writers: &[Zone]) -> Result<Vec<Path>, PlacementError> {
        let targets = self.topology.targets().len();
        writers.iter().try_for_each(|&zone| self.check(zone))?;
        if writers.len() > targets {
            return Err(PlacementError::TooManyStripes { stripes: writers.len(), targets });
        }
        let before = self.uses.clone();
        let mut is_free = vec![true; targets];
        let mut paths = Vec::with_capacity(writers.len());
        for &zone in writers {
            let Some((position, route)) = self.cheapest(zone, |position| is_free[position]) else {
                self.uses = before;
                return Err(PlacementError::TooManyStripes { stripes: writers.len(), targets: paths.len() });
            };
            is_free[position] = false;
            self.count(position, route);
            paths.push(self.topology.path_at(route, position));
        }
        Ok(paths)
    }

    /// Places a file with a stripe for each of `writers` like [`Self::place_shared_file`], on targets of `among` only, if it is there. It leaves
    /// stripes out that there is no target for, and writers of zones that there are not.
    pub fn place_among(&mut self, writers: &[Zone], among: Option<&[TargetId]>) -> Vec<Path> {
        let mut is_free = vec![among.is_none(); self.topology.targets().len()];
        let among = among.into_iter().flatten();
        among.filter_map(|target| self.topology.position_of(*target)).for_each(|position| is_free[position] = true);
        let mut paths = Vec::with_capacity(writers.len());
        for &zone in writers {
            let Some((position, route)) = self.cheapest(zone, |position| is_free[position]) else { continue };
            is_free[position] = false;
            self.count(position, route);
            paths.push(self.topology.path_at(route, position));
        }
        paths
    }

    /// These streams have ended: they are no uses any more.
    pub fn release(&mut self, paths: &[Path]) {
        let less = |uses: &mut u32| *uses = uses.saturating_sub(1);
        for path in paths {
            let Some(position) = self.topology.position_of(path.target) else { continue };
            less(&mut self.uses.targets[position]);
            less(&mut self.uses.servers[self.topology.server_at(position)]);
            if let Some(router) = path.router.and_then(|router| self.topology.router_at(router)) {
                less(&mut self.uses.routers[router]);
            }
        }
    }

    /// How many streams it has placed at `target`; `None` if there is no such target.
    pub fn uses(&self, target: TargetId) -> Option<u32> {
        self.topology.position_of(target).map(|position| self.uses.targets[position])
    }

    fn check(&self, zone: Zone) -> Result<(), PlacementError> {
        let zones = self.topology.zones();
        if usize::from(zone.0) < zones { Ok(()) } else { Err(PlacementError::UnknownZone { zone, zones }) }
    }

    /// The cheapest way from `zone` to an allowed target, the first of several in the round. One that is shut only if all are.
    fn cheapest(&self, zone: Zone, is_allowed: impl Fn(usize) -> bool) -> Option<(usize, Route)> {
        let cheapest = |is_allowed: &dyn Fn(usize) -> bool| {
            let round = (self.first..self.uses.targets.len()).chain(0..self.first);
            let reachable = round.filter(|&position| is_allowed(position)).filter_map(|position| {
                let route = self.topology.route(zone, position)?;
                (route != Route::None).then_some((position, route))
            });
            // The first of equal ones is kept.
            reachable.min_by_key(|&(position, route)| self.cost(position, route))
        };
        let is_open = |position: usize| is_allowed(position) && !self.prices.is_shut[position];
        cheapest(&is_open).or_else(|| cheapest(&is_allowed))
    }

    fn cost(&self, position: usize, route: Route) -> u64 {
        let router = match route {
            Route::Through(router) => (self.uses.routers[router], self.prices.routers[router]),
            Route::None | Route::Direct => (0, 0),
        };
        let server = self.topology.server_at(position);
        let server = (self.uses.servers[server], self.prices.servers[server]);
        self.weights.cost(router, server, (self.uses.targets[position], self.prices.targets[position]))
    }

    fn count(&mut self, position: usize, route: Route) {
        let add = |uses: &mut u32| *uses = uses.saturating_add(1);
        if let Route::Through(router) = route {
            add(&mut self.uses.routers[router]);
        }
        add(&mut self.uses.servers[self.topology.server_at(position)]);
        add(&mut self.uses.targets[position]);
    }
}

impl Prices {
    fn of(topology: &Topology, room: impl Fn(TargetId) -> Room) -> Self {
        let rooms: Vec<Room> = topology.targets().iter().map(|target| room(*target)).collect();
        let mut by_server = vec![Vec::new(); topology.server_count()];
        let mut by_router = vec![Vec::new(); topology.router_count()];
        for (position, room) in rooms.iter().enumerate() {
            by_server[topology.server_at(position)].push(*room);
            topology.routers_to(position).for_each(|router| by_router[router].push(*room));
        }
        let price = |rooms: &Vec<Room>| Room::price(rooms.iter().copied());
        Self {
            routers: by_router.iter().map(price).collect(),
            servers: by_server.iter().map(price).collect(),
            targets: rooms.iter().map(|room| Room::price([*room])).collect(),
            is_shut: rooms.iter().map(|room| room.is_none()).collect(),
        }
    }
}
