//! Max-min fair rates of streams through several resources.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_allocation::max_min_rates;
use proptest::prelude::*;

#[test]
fn an_example_by_hand() {
    // Bertsekas and Gallager's line: a long stream through three links of 1, 2, 1, and short ones at the first, the
    // second (of weight 2), and the third with another short one. The third is full first, at a third each; the first
    // then has two thirds left for its short one, the second 5/3.
    let streams: [(f64, &[u32]); 5] = [(1.0, &[0, 1, 2]), (1.0, &[0]), (2.0, &[1]), (1.0, &[2]), (1.0, &[2])];
    let rates = max_min_rates(&[1.0, 2.0, 1.0], &streams).unwrap();
    for (rate, expected) in rates.iter().zip([1.0 / 3.0, 2.0 / 3.0, 5.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]) {
        assert!((rate - expected).abs() < 1e-12, "{rates:?}");
    }
}

#[test]
fn what_is_malformed_is_refused() {
    for (capacity, weight, way) in [
        (-1.0, 1.0, &[0][..]),
        (f64::NAN, 1.0, &[0]),
        (1.0, 0.0, &[0]),
        (1.0, f64::INFINITY, &[0]),
        (1.0, 1.0, &[]),
        (1.0, 1.0, &[1]),
        (1.0, 1.0, &[0, 0]),
    ] {
        assert!(max_min_rates(&[capacity], &[(weight, way)]).is_err(), "{capacity} {weight} {way:?}");
    }
    assert_eq!(max_min_rates(&[0.0], &[(1.0, &[0])]).unwrap(), [0.0]);
    assert_eq!(max_min_rates(&[], &[]).unwrap(), []);
}

proptest! {
    /// The definition: each stream has a resource that is full and where nobody has more for its weight.
    #[test]
    fn every_stream_has_a_bottleneck(
        capacities in prop::collection::vec(0.1..4.0_f64, 6),
        streams in prop::collection::vec((0.5..3.0_f64, prop::collection::btree_set(0..6_u32, 1..4)), 1..20),
    ) {
        let ways: Vec<Vec<u32>> = streams.iter().map(|(_, way)| way.iter().copied().collect()).collect();
        let given: Vec<(f64, &[u32])> = streams.iter().zip(&ways).map(|(s, way)| (s.0, &way[..])).collect();
        let rates = max_min_rates(&capacities, &given).unwrap();
        let ways = &ways;
        let at = |resource: u32| (0..ways.len()).filter(move |&stream| ways[stream].contains(&resource));
        let level = |stream: usize| rates[stream] / streams[stream].0;
        let used: Vec<f64> = (0..6).map(|resource| at(resource).map(|stream| rates[stream]).sum()).collect();
        for (used, capacity) in used.iter().zip(&capacities) {
            prop_assert!(*used <= capacity + 1e-9);
        }
        for (stream, way) in ways.iter().enumerate() {
            let is_bottleneck = |resource: &u32| {
                let is_full = used[*resource as usize] >= capacities[*resource as usize] - 1e-8;
                is_full && at(*resource).all(|other| level(other) <= level(stream) + 1e-8)
            };
            prop_assert!(way.iter().any(is_bottleneck), "stream {} of {:?}", stream, rates);
        }
    }
}
