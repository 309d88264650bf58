//! Placements: an example by hand, the cost function told literally, the best placement by trying all, and what every
//! placement keeps.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_placement::{
    Balancer, Path, PlacementError, RoundRobin, RouterId, Step, Topology, Weights, Zone, random_targets,
};
use isonomia_units::{ServerId, TargetId};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Targets by server: target ids count up, server by server.
fn targets(per_server: &[u16]) -> Vec<(TargetId, ServerId)> {
    let servers = per_server.iter().zip(0..).flat_map(|(&count, server)| vec![ServerId(server); usize::from(count)]);
    (0..).map(TargetId).zip(servers).collect()
}

fn routes(routers: &[(u16, u16)]) -> BTreeMap<ServerId, RouterId> {
    routers.iter().map(|&(server, router)| (ServerId(server), RouterId(router))).collect()
}

/// Two servers of two targets; zone 0 reaches them by routers 0 and 1, zone 1 by routers 2 and 1. The round is 0, 2,
/// 1, 3.
fn small() -> Arc<Topology> {
    Arc::new(Topology::routed(targets(&[2, 2]), &[routes(&[(0, 0), (1, 1)]), routes(&[(0, 2), (1, 1)])]).unwrap())
}

fn placed(weights: Weights, zones: &[u16]) -> Vec<u16> {
    let mut balancer = Balancer::new(small(), weights, 0);
    zones.iter().map(|&zone| balancer.place_file(Zone(zone)).unwrap().target.0).collect()
}

#[test]
fn an_example_by_hand() {
    // Uses of the router, the server, and the target, added, of targets 0, 2, 1, 3 at each file:
    //   zone 0: 0 0 0 0, so 0; 3 0 2 0, so 2;
    //   zone 1: 2 3 1 2, so 1 (by router 2, unused); 4 3 4 2, so 3;
    //   zone 0: 4 5 4 5, so 0; zone 1: 6 5 5 5, so 2, the first in the round.
    assert_eq!(placed(Weights::EQUAL, &[0, 0, 1, 1, 0, 1]), [0, 2, 1, 3, 0, 2]);
    // Routers only: 0, then router 1's first target; zone 1 finds its routers used 0 : 1, 1 : 1, and in the end 2 : 1.
    assert_eq!(placed(Weights::new(1, 0, 0).unwrap(), &[0, 0, 1, 1, 0, 1]), [0, 2, 0, 0, 0, 2]);
    // Servers only: they alternate, and of a server's targets the first in the round is as good as the other.
    assert_eq!(placed(Weights::new(0, 1, 0).unwrap(), &[0, 0, 1, 1]), [0, 2, 0, 2]);
    // Targets only: round-robin, whoever asks.
    assert_eq!(placed(Weights::new(0, 0, 1).unwrap(), &[1, 1, 0, 1, 0]), [0, 2, 1, 3, 0]);
}

#[test]
fn the_round_begins_where_it_is_told() {
    let mut balancer = Balancer::new(small(), Weights::EQUAL, 4 + 3);
    assert_eq!(balancer.place_file(Zone(0)).unwrap().target, TargetId(3));
    // Target 2's server is used, so the round goes on from the beginning.
    assert_eq!(balancer.place_file(Zone(0)).unwrap().target, TargetId(0));
}

#[test]
fn what_cannot_be_placed_is_refused_and_not_counted() {
    // Zone 1 reaches server 1 only.
    let zones = [routes(&[(0, 0), (1, 1)]), routes(&[(1, 2)])];
    let topology = Arc::new(Topology::routed(targets(&[2, 1]), &zones).unwrap());
    let mut balancer = Balancer::new(topology, Weights::EQUAL, 0);
    let too_many = |stripes, targets| Err(PlacementError::TooManyStripes { stripes, targets });
    assert_eq!(balancer.place_shared_file(&[Zone(0); 4]), too_many(4, 3));
    assert_eq!(balancer.place_shared_file(&[Zone(0), Zone(1), Zone(1)]), too_many(3, 2));
    let unknown = Err(PlacementError::UnknownZone { zone: Zone(2), zones: 2 });
    assert_eq!(balancer.place_shared_file(&[Zone(0), Zone(2)]), unknown);
    assert_eq!(balancer.place_file(Zone(2)), unknown.map(|mut paths| paths.remove(0)));
    assert_eq!([0, 1, 2].map(|target| balancer.uses(TargetId(target))), [Some(0); 3]);
    assert_eq!(balancer.uses(TargetId(3)), None);
    assert_eq!(balancer.place_shared_file(&[Zone(1), Zone(0), Zone(0)]).unwrap().len(), 3);
    assert_eq!([0, 1, 2].map(|target| balancer.uses(TargetId(target))), [Some(1); 3]);
}

#[test]
fn round_robin_goes_on_where_it_stopped() {
    let topology = Topology::direct(targets(&[2, 2])).unwrap();
    let round = RoundRobin::starting_at(3, Step::Stripe);
    assert_eq!(round.place(&topology, 2).unwrap(), [3, 0].map(TargetId));
    assert_eq!(round.place(&topology, 1).unwrap(), [2].map(TargetId));
    round.skip(&topology, 5);
    assert_eq!(round.place(&topology, 2).unwrap(), [3, 0].map(TargetId));
    assert_eq!(round.place(&topology, 5), Err(PlacementError::TooManyStripes { stripes: 5, targets: 4 }));

    // By files every target is the first one equally often.
    let round = RoundRobin::starting_at(3, Step::File);
    let firsts: Vec<u16> = (0..5).map(|_| round.place(&topology, 2).unwrap()[0].0).collect();
    assert_eq!(firsts, [3, 0, 2, 1, 3]);
}

#[test]
fn at_random_means_each_alike_and_none_twice() {
    let topology = Topology::direct(targets(&[4, 4])).unwrap();
    let mut generator = Pcg64::seed_from_u64(1);
    let mut counts = [0_u32; 8];
    for _ in 0..8_000 {
        let drawn = random_targets(topology.targets(), 3, &mut generator).unwrap();
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 3);
        drawn.iter().for_each(|target| counts[usize::from(target.0)] += 1);
    }
    // 3000 each; the standard deviation is 43.
    assert!(counts.iter().all(|count| count.abs_diff(3_000) < 200), "{counts:?}");
    assert!(random_targets(topology.targets(), 9, &mut generator).is_err());
}

/// A topology, its routes by zone, and files as zones of their writers.
fn any_topology() -> impl Strategy<Value = (Vec<u16>, Vec<BTreeMap<ServerId, RouterId>>)> {
    prop::collection::vec(1..=3_u16, 1..=4).prop_flat_map(|per_server| {
        let servers = per_server.len() as u16;
        let zone = prop::collection::vec((0..servers, 0..4_u16), 1..=usize::from(servers));
        let zones = prop::collection::vec(zone.prop_map(|zone| routes(&zone)), 1..=3);
        (Just(per_server), zones)
    })
}

fn any_weights() -> impl Strategy<Value = Weights> {
    (0..5_u16, 0..5_u16, 0..5_u16).prop_filter_map("all zero", |(r, s, t)| Weights::new(r, s, t))
}

/// Eq. 1 with the uses counted in all paths so far.
fn cost(path: &Path, before: &[Path], [router, server, target]: [u64; 3]) -> u64 {
    let uses = |is_same: &dyn Fn(&Path) -> bool| before.iter().filter(|other| is_same(other)).count() as u64;
    let routers = if path.router.is_some() { uses(&|other| other.router == path.router) } else { 0 };
    router * routers
        + server * uses(&|other| other.server == path.server)
        + target * uses(&|other| other.target == path.target)
}

/// The fewest uses that the busiest of `groups` can have when `files` are put on targets in any way.
fn least_busiest(files: u32, targets: u32, group_of: &dyn Fn(u32) -> usize) -> u32 {
    let mut best = u32::MAX;
    for code in 0..targets.pow(files) {
        let mut uses = vec![0; targets as usize];
        (0..files).for_each(|file| uses[group_of(code / targets.pow(file) % targets)] += 1);
        best = best.min(uses.into_iter().max().unwrap_or(0));
    }
    best
}

proptest! {
    #[test]
    fn every_choice_is_the_cheapest_and_the_first_of_these(
        (per_server, zones) in any_topology(),
        weights in prop::array::uniform3(0..5_u16).prop_filter("all zero", |weights| *weights != [0; 3]),
        first in 0..20_usize,
        writers in prop::collection::vec(0..3_u16, 1..20),
    ) {
        let topology = Arc::new(Topology::routed(targets(&per_server), &zones).unwrap());
        let [router, server, target] = weights;
        let mut balancer = Balancer::new(topology.clone(), Weights::new(router, server, target).unwrap(), first);
        let mut before = Vec::new();
        for writer in writers {
            let zone = Zone(writer % zones.len() as u16);
            let mut round = topology.targets().to_vec();
            let length = round.len();
            round.rotate_left(first % length);
            let paths: Vec<Path> = round.iter().filter_map(|target| topology.path(zone, *target)).collect();
            let costs: Vec<u64> = paths.iter().map(|path| cost(path, &before, weights.map(u64::from))).collect();
            let cheapest = costs.iter().min().unwrap();
            let expected = paths[costs.iter().position(|cost| cost == cheapest).unwrap()];
            let chosen = balancer.place_file(zone).unwrap();
            prop_assert_eq!(chosen, expected);
            before.push(chosen);
        }
    }

    #[test]
    fn uses_differ_by_one_at_most_where_all_is_alike(
        routers in 1..4_u16, servers in 1..4_u16, per_server in 1..4_u16, files in 0..60_usize, first in 0..40_usize,
    ) {
        // A tree: each router leads to so many servers.
        let all = targets(&vec![per_server; usize::from(routers * servers)]);
        let through: Vec<(u16, u16)> = (0..routers * servers).map(|server| (server, server / servers)).collect();
        let topology = Arc::new(Topology::routed(all, &[routes(&through)]).unwrap());
        let mut balancer = Balancer::new(topology, Weights::EQUAL, first);
        let paths: Vec<Path> = (0..files).map(|_| balancer.place_file(Zone(0)).unwrap()).collect();
        let spread = |count: u16, of: &dyn Fn(&Path) -> u16| {
            let mut uses = vec![0; usize::from(count)];
            paths.iter().for_each(|path| uses[usize::from(of(path))] += 1);
            uses.iter().max().unwrap() - uses.iter().min().unwrap()
        };
        prop_assert!(spread(routers, &|path| path.router.unwrap().0) <= 1);
        prop_assert!(spread(routers * servers, &|path| path.server.0) <= 1);
        prop_assert!(spread(routers * servers * per_server, &|path| path.target.0) <= 1);
    }

    #[test]
    fn weights_are_proportions(
        (per_server, zones) in any_topology(),
        weights in prop::array::uniform3(0..5_u16).prop_filter("all zero", |weights| *weights != [0; 3]),
        factor in 1..100_u16,
        writers in prop::collection::vec(0..3_u16, 1..20),
    ) {
        let topology = Arc::new(Topology::routed(targets(&per_server), &zones).unwrap());
        let place = |[router, server, target]: [u16; 3]| -> Vec<Path> {
            let mut balancer = Balancer::new(topology.clone(), Weights::new(router, server, target).unwrap(), 0);
            writers.iter().map(|writer| balancer.place_file(Zone(writer % zones.len() as u16)).unwrap()).collect()
        };
        prop_assert_eq!(place(weights), place(weights.map(|weight| weight * factor)));
    }

    #[test]
    fn a_shared_file_has_a_target_for_each_stripe(
        (per_server, zones) in any_topology(),
        weights in any_weights(),
        writers in prop::collection::vec(0..3_u16, 1..14),
        earlier in 0..6_u16,
    ) {
        let topology = Arc::new(Topology::routed(targets(&per_server), &zones).unwrap());
        let mut balancer = Balancer::new(topology.clone(), weights, 0);
        for file in 0..earlier {
            balancer.place_file(Zone(file % zones.len() as u16)).unwrap();
        }
        let mut untouched = balancer.clone();
        let writers: Vec<Zone> = writers.iter().map(|writer| Zone(writer % zones.len() as u16)).collect();
        match balancer.place_shared_file(&writers) {
            Ok(paths) => {
                let distinct: BTreeSet<TargetId> = paths.iter().map(|path| path.target).collect();
                prop_assert_eq!(distinct.len(), writers.len());
                for (path, zone) in paths.iter().zip(&writers) {
                    prop_assert_eq!(topology.path(*zone, path.target), Some(*path));
                    prop_assert_eq!(balancer.uses(path.target), untouched.uses(path.target).map(|uses| uses + 1));
                }
            }
            Err(error) => {
                let all = zones.iter().all(|zone| zone.len() == per_server.len());
                prop_assert!(!all || writers.len() > topology.targets().len(), "{}", error);
                for _ in 0..4 {
                    prop_assert_eq!(balancer.place_file(Zone(0)), untouched.place_file(Zone(0)));
                }
            }
        }
    }

    #[test]
    fn no_placement_at_all_is_better_on_a_small_uniform_system(
        servers in 1..4_u32, per_server in 1..3_u32, files in 0..6_u32, first in 0..6_usize,
    ) {
        let count = servers * per_server;
        let all = targets(&vec![per_server as u16; servers as usize]);
        let server_of = |target: u32| all[target as usize].1.0 as usize;
        let mut balancer = Balancer::new(Arc::new(Topology::direct(all.clone()).unwrap()), Weights::EQUAL, first);
        let paths: Vec<Path> = (0..files).map(|_| balancer.place_file(Zone(0)).unwrap()).collect();
        let busiest = |of: &dyn Fn(&Path) -> usize| {
            let mut uses = vec![0; count as usize];
            paths.iter().for_each(|path| uses[of(path)] += 1);
            uses.into_iter().max().unwrap_or(0)
        };
        prop_assert_eq!(
            busiest(&|path| usize::from(path.target.0)),
            least_busiest(files, count, &|target| target as usize)
        );
        prop_assert_eq!(busiest(&|path| usize::from(path.server.0)), least_busiest(files, count, &server_of));
    }
}
