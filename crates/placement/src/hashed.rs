//! Targets by a hash: nobody has to remember where the file before lies, and any two files are independent.
//!
//! Thaler and Ravishankar's rendezvous hashing ("Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
//! Networking 6(1), 1998), as for new volumes: each pair of a file and a target has a hash, and a file of n stripes lies on the n
//! targets whose hashes are highest, in that order. A target that comes or goes changes nothing for files that it is not chosen for.

use isonomia_units::TargetId;
use siphasher::sip::SipHasher24;
use std::cmp::Reverse;

const KEY: &[u8; 16] = b"isonomia targets";

/// The targets of `stripes` stripes of the file `number`, no two the same, or all of them if there are fewer.
/// O(t log t) for t targets.
pub fn hashed_targets(targets: &[TargetId], stripes: usize, number: u64) -> Vec<TargetId> {
    let hash = |target: TargetId| {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..].copy_from_slice(&target.0.to_le_bytes());
        SipHasher24::new_with_key(KEY).hash(&bytes)
    };
    let mut ranked: Vec<_> = targets.iter().map(|target| (Reverse(hash(*target)), *target)).collect();
    ranked.sort_unstable();
    ranked.truncate(stripes);
    ranked.into_iter().map(|(_, target)| target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: u16) -> Vec<TargetId> {
        (0..count).map(TargetId).collect()
    }

    #[test]
    fn a_target_that_comes_takes_its_part_and_moves_nothing_else() {
        const FILES: u64 = 9_000;
        let (eight, nine) = (numbered(8), numbered(9));
        let mut moved = 0;
        for file in 0..FILES {
            let (before, after) = (hashed_targets(&eight, 1, file), hashed_targets(&nine, 1, file));
            if before != after {
                assert_eq!(after, [TargetId(8)]);
                moved += 1;
            }
        }
        // A ninth, give or take six standard deviations.
        assert!((820..=1180).contains(&moved), "{moved}");
    }

    #[test]
    fn stripes_lie_apart_and_begin_alike() {
        let targets = numbered(8);
        let wide = hashed_targets(&targets, 5, 77);
        assert_eq!(wide[..2], hashed_targets(&targets, 2, 77));
        let mut sorted = wide.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((wide.len(), sorted.len()), (5, 5));
        assert_eq!(hashed_targets(&targets, 99, 77).len(), 8);
    }
}
