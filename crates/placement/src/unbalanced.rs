//! What file systems do by default, without knowing who writes: the placements that the balanced one is compared with.
//!
//! Lustre 2.8, the paper's file system, takes targets in turn while their free space is alike (within 17 %), and at
//! random, the emptier the likelier, when it is not (Lustre Operations Manual, "Free Space Management"). The two are
//! here as their pure forms: in turn from a given start, and uniformly at random.

use crate::balancer::PlacementError;
use crate::topology::Topology;
use isonomia_units::TargetId;
use rand::Rng;
use rand::seq::index;

/// Targets of a new file with `stripes` stripes, uniformly at random, no two the same. O(stripes), in expectation.
///
/// # Errors
/// There are more stripes than targets.
pub fn random_targets(
    topology: &Topology,
    stripes: usize,
    generator: &mut impl Rng,
) -> Result<Vec<TargetId>, PlacementError> {
    let all = topology.targets();
    check(stripes, all)?;
    Ok(index::sample(generator, all.len(), stripes).iter().map(|place| all[place]).collect())
}

/// Targets in turn, in the order of [`Topology::targets`], whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// The first stripe goes to position `start` of the round (modulo its length).
    pub fn starting_at(start: usize) -> Self {
        Self { next: start }
    }

    /// Targets of a new file with `stripes` stripes. O(stripes).
    ///
    /// # Errors
    /// There are more stripes than targets.
    pub fn place(&mut self, topology: &Topology, stripes: usize) -> Result<Vec<TargetId>, PlacementError> {
        let all = topology.targets();
        check(stripes, all)?;
        let begin = self.next % all.len();
        self.next = (begin + stripes) % all.len();
        Ok((begin..begin + stripes).map(|place| all[place % all.len()]).collect())
    }

    /// Others take the next `stripes` turns.
    pub fn skip(&mut self, topology: &Topology, stripes: usize) {
        let length = topology.targets().len();
        self.next = (self.next % length + stripes % length) % length;
    }
}

fn check(stripes: usize, all: &[TargetId]) -> Result<(), PlacementError> {
    let targets = all.len();
    if stripes > targets { Err(PlacementError::TooManyStripes { stripes, targets }) } else { Ok(()) }
}
