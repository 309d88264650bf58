//! Which server a new volume goes to: weighted rendezvous hashing.
//!
//! Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (IEEE/ACM Transactions on Networking 6(1),
//! 1998), give each pair of a name and a server a hash, and the name to the server whose is best. With weights it is the
//! *logarithmic method* of Schindelhauer and Schomaker, "Weighted distributed hash tables" (SPAA 2005): the hash is a point
//! u between 0 and 1, and the smallest −ln(u) / weight wins. So each server gets a part of the names that is as large as
//! its part of the weight; a server that comes takes names, from all others alike, and one that goes gives its own away,
//! and nothing else moves.
//!
//! The hash is SipHash-2-4 with a key that never changes, and the logarithm is computed in software: the answer is the same
//! on every machine.

use isonomia_units::ServerId;
use siphasher::sip::SipHasher24;

/// Changing it sends names to other servers.
const KEY: &[u8; 16] = b"isonomia volumes";

/// The server, out of some with their weights, that a volume called `name` is made on.
///
/// A weight of 0, or one that is no finite positive number, is no part of the choice. `None` if no server is left.
pub fn choose(name: &[u8], servers: impl IntoIterator<Item = (ServerId, f64)>) -> Option<ServerId> {
    let has_weight = |(_, weight): &(ServerId, f64)| *weight > 0.0 && weight.is_finite();
    let distance = |(server, weight)| (-libm::log(point(name, server)) / weight, server);
    let nearest = servers.into_iter().filter(has_weight).map(distance);
    nearest.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))).map(|(_, server)| server)
}

/// Strictly between 0 and 1: 52 bits of the hash, and half a step.
fn point(name: &[u8], server: ServerId) -> f64 {
    const STEPS: f64 = (1u64 << 52) as f64;
    let mut bytes = Vec::with_capacity(2 + name.len());
    bytes.extend_from_slice(&server.0.to_le_bytes());
    bytes.extend_from_slice(name);
    let hash = SipHasher24::new_with_key(KEY).hash(&bytes);
    ((hash >> 12) as f64 + 0.5) / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn servers(weights: &[f64]) -> Vec<(ServerId, f64)> {
        (1..).map(ServerId).zip(weights.iter().copied()).collect()
    }

    fn chosen(name: &str, servers: &[(ServerId, f64)]) -> u16 {
        choose(name.as_bytes(), servers.iter().copied()).unwrap().0
    }

    /// Computed with another implementation of both functions; another answer would send volumes elsewhere.
    #[test]
    fn the_choice_never_changes() {
        let equal = servers(&[1.0; 16]);
        let unequal = servers(&[0.5, 1.0, 2.0, 4.0]);
        let names = ["home", "scratch", "projects", "a", "b", "é", "ada", "grace"];
        assert_eq!(names.map(|name| chosen(name, &equal)), [6, 8, 13, 9, 1, 9, 12, 11]);
        assert_eq!(names.map(|name| chosen(name, &unequal)), [2, 4, 4, 4, 4, 1, 4, 4]);
        assert_eq!(point(b"home", ServerId(1)).to_bits(), 0x3fb6_a6cf_df05_0c08);
    }

    /// Pearson's chi-square of 40,000 names; the limit is passed by chance once in a million times.
    #[test]
    fn parts_are_as_the_weights() {
        const NAMES: u32 = 40_000;
        for (weights, limit) in [
            (&[1.0; 8][..], 40.5),
            (&[1.0, 2.0, 3.0, 4.0], 30.7),
            (&[0.1, 10.0], 23.9),
            (&[1.0, 0.0, 2.5, 1e-3], 27.6),
            (&[1e-9, 3e-9, 1e-9], 27.6),
        ] {
            let servers = servers(weights);
            let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
            for name in 0..NAMES {
                *counts.entry(chosen(&format!("volume-{name}"), &servers)).or_default() += 1;
            }
            let total: f64 = weights.iter().sum();
            let chi_square: f64 = servers
                .iter()
                .filter(|(_, weight)| *weight > 0.0)
                .map(|(server, weight)| {
                    let expected = f64::from(NAMES) * weight / total;
                    let found = f64::from(counts.get(&server.0).copied().unwrap_or(0));
                    (found - expected).powi(2) / expected
                })
                .sum();
            assert!(chi_square < limit, "{weights:?}: {chi_square}, {counts:?}");
        }
    }

    #[test]
    fn a_server_without_weight_gets_nothing() {
        let weights = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        assert_eq!(choose(b"x", servers(&weights)), None);
        assert_eq!(choose(b"x", servers(&[&weights[..], &[1e-300]].concat())), Some(ServerId(6)));
    }

    proptest! {
        #[test]
        fn who_comes_takes_and_who_goes_gives(
            weights in prop::collection::vec(0.01f64..100.0, 1..20), more in 0.01f64..100.0, name in "\\PC{1,20}",
        ) {
            let before = servers(&weights);
            let after = servers(&[&weights[..], &[more]].concat());
            let (old, new) = (chosen(&name, &before), chosen(&name, &after));
            prop_assert!(new == old || usize::from(new) == after.len(), "from {} to {}", old, new);
        }

        #[test]
        fn more_weight_only_takes(
            weights in prop::collection::vec(0.01f64..100.0, 2..20), factor in 1.0f64..10.0, name in "\\PC{1,20}",
            which in any::<prop::sample::Index>(),
        ) {
            let before = servers(&weights);
            let mut after = before.clone();
            let raised = which.index(after.len());
            after[raised].1 *= factor;
            let (old, new) = (chosen(&name, &before), chosen(&name, &after));
            prop_assert!(new == old || new == after[raised].0.0, "from {} to {}", old, new);
        }

        #[test]
        fn the_order_of_servers_does_not_matter(
            weights in prop::collection::vec(0.01f64..100.0, 1..20), name in "\\PC{1,20}",
        ) {
            let forth = servers(&weights);
            let back: Vec<_> = forth.iter().rev().copied().collect();
            prop_assert_eq!(chosen(&name, &forth), chosen(&name, &back));
        }
    }
}
