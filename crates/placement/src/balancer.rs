//! The balanced choice: the path whose parts were used least (TAPP-IO §II, Eq. 1; §III.A, Algorithm 1).

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
}

/// How many streams were placed, by positions in the topology.
#[derive(Clone, Debug)]
struct Uses {
    routers: Vec<u32>,
    servers: Vec<u32>,
    targets: Vec<u32>,
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

    /// The cost of a path, times the sum of the weights: below 2^50.
    fn cost(self, router: u32, server: u32, target: u32) -> u64 {
        let part = |weight: u16, uses: u32| u64::from(weight) * u64::from(uses);
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
        Self { topology, weights, first, uses }
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
        let (place, route) = cheapest.ok_or(PlacementError::TooManyStripes { stripes: 1, targets: 0 })?;
        self.count(place, route);
        Ok(self.topology.path_at(route, place))
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
            let Some((place, route)) = self.cheapest(zone, |place| is_free[place]) else {
                self.uses = before;
                return Err(PlacementError::TooManyStripes { stripes: writers.len(), targets: paths.len() });
            };
            is_free[place] = false;
            self.count(place, route);
            paths.push(self.topology.path_at(route, place));
        }
        Ok(paths)
    }

    /// How many streams it has placed at `target`; `None` if there is no such target.
    pub fn uses(&self, target: TargetId) -> Option<u32> {
        self.topology.place_of(target).map(|place| self.uses.targets[place])
    }

    fn check(&self, zone: Zone) -> Result<(), PlacementError> {
        let zones = self.topology.zones();
        if usize::from(zone.0) < zones { Ok(()) } else { Err(PlacementError::UnknownZone { zone, zones }) }
    }

    /// The cheapest way from `zone` to an allowed target, the first of several in the round.
    fn cheapest(&self, zone: Zone, is_allowed: impl Fn(usize) -> bool) -> Option<(usize, Route)> {
        let round = (self.first..self.uses.targets.len()).chain(0..self.first);
        let reachable = round.filter(|&place| is_allowed(place)).filter_map(|place| {
            let route = self.topology.route(zone, place)?;
            (route != Route::None).then_some((place, route))
        });
        // The first of equal ones is kept.
        reachable.min_by_key(|&(place, route)| self.cost(place, route))
    }

    fn cost(&self, place: usize, route: Route) -> u64 {
        let router = match route {
            Route::Through(router) => self.uses.routers[router],
            Route::None | Route::Direct => 0,
        };
        let server = self.uses.servers[self.topology.server_at(place)];
        self.weights.cost(router, server, self.uses.targets[place])
    }

    fn count(&mut self, place: usize, route: Route) {
        let add = |uses: &mut u32| *uses = uses.saturating_add(1);
        if let Route::Through(router) = route {
            add(&mut self.uses.routers[router]);
        }
        add(&mut self.uses.servers[self.topology.server_at(place)]);
        add(&mut self.uses.targets[place]);
    }
}
