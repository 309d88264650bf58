//! Crossed grants: applications that wait for each other in a circle, each for a node that the next one has.

use std::collections::{BTreeMap, BTreeSet};

/// Who waits for whom.
pub(super) type Waits = BTreeMap<u32, BTreeSet<u32>>;

/// The one of a circle that gives way: the highest id of all that wait for themselves, through others. O(n · edges) for n who wait.
pub(super) fn who_gives_way(waits: &Waits) -> Option<u32> {
    waits.keys().rev().copied().find(|app| reaches(waits, *app))
}

/// Whether `app` waits for itself.
fn reaches(waits: &Waits, app: u32) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![app];
    while let Some(at) = open.pop() {
        for next in waits.get(&at).into_iter().flatten() {
            if *next == app {
                return true;
            }
            if seen.insert(*next) {
                open.push(*next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gives_way(edges: &[(u32, u32)]) -> Option<u32> {
        let mut waits = Waits::new();
        for (who, whom) in edges {
            waits.entry(*who).or_default().insert(*whom);
        }
        who_gives_way(&waits)
    }

    #[test]
    fn the_last_of_a_circle_gives_way_and_nobody_outside_it() {
        assert_eq!(gives_way(&[]), None);
        assert_eq!(gives_way(&[(2, 1), (3, 1), (3, 2)]), None);
        assert_eq!(gives_way(&[(1, 2), (2, 1)]), Some(2));
        assert_eq!(gives_way(&[(1, 2), (2, 3), (3, 1), (9, 1), (2, 8)]), Some(3));
        assert_eq!(gives_way(&[(1, 2), (2, 1), (5, 6), (6, 7), (7, 5)]), Some(7));
    }
}
