//! What file systems do by default, without knowing who writes: the placements that the balanced one is compared with.
//!
//! Lustre 2.8, the paper's file system, takes targets round-robin while their free space is alike (within 17 %), and at
//! random, the emptier the likelier, when it is not (Lustre Operations Manual, "Free Space Management"). The two are
//! here as their pure forms: round-robin from a given start, and uniformly at random.

use crate::balancer::PlacementError;
use crate::topology::Topology;
use isonomia_units::TargetId;
use rand::Rng;
use rand::seq::index;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Targets of a new file with `stripes` stripes, uniformly at random out of `all`, no two the same. O(stripes), in expectation.
///
/// # Errors
/// There are more stripes than targets.
pub fn random_targets(
    all: &[TargetId],
    stripes: usize,
    generator: &mut impl Rng,
) -> Result<Vec<TargetId>, PlacementError> {
    check(stripes, all)?;
    Ok(index::sample(generator, all.len(), stripes).iter().map(|position| all[position]).collect())
}

/// What moves the round on by one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Each stripe of a file: the next file begins where this one ended, as Lustre's do.
    Stripe,
    /// Each file, however many stripes it has: so every target is the first one of as many files. It is the first that
    /// has the bytes of files of less than a stripe.
    File,
}

/// Targets one after the other, whoever asks; any number of threads may.
#[derive(Debug)]
pub struct RoundRobin {
    next: AtomicUsize,
    step: Step,
}

impl RoundRobin {
    /// The first stripe goes to position `start` of the round (modulo its length).
    pub fn starting_at(start: usize, step: Step) -> Self {
        Self { next: AtomicUsize::new(start), step }
    }

    /// The position of the first stripe of a new file with `stripes` stripes in a round of `targets` targets, of which
    /// there is at least one, and as many at each call. O(1).
    pub fn first(&self, targets: usize, stripes: usize) -> usize {
        let taken = match self.step {
            Step::Stripe => stripes,
            Step::File => 1,
        };
        self.next.fetch_add(taken % targets, Ordering::Relaxed) % targets
    }

    /// Targets of a new file with `stripes` stripes, in the order of [`Topology::targets`]. O(stripes).
    ///
    /// # Errors
    /// There are more stripes than targets.
    pub fn place(&self, topology: &Topology, stripes: usize) -> Result<Vec<TargetId>, PlacementError> {
        let all = topology.targets();
        check(stripes, all)?;
        Ok(stripes_from(all, self.first(all.len(), stripes), stripes).collect())
    }

    /// Others take the next `stripes` targets.
    pub fn skip(&self, topology: &Topology, stripes: usize) {
        self.next.fetch_add(stripes % topology.targets().len(), Ordering::Relaxed);
    }
}

/// The targets of `stripes` stripes, the first of which is at position `first` of the round.
pub fn stripes_from(targets: &[TargetId], first: usize, stripes: usize) -> impl Iterator<Item = TargetId> {
    (first..first + stripes).map(|position| targets[position % targets.len()])
}

fn check(stripes: usize, all: &[TargetId]) -> Result<(), PlacementError> {
    let targets = all.len();
    if stripes > targets { Err(PlacementError::TooManyStripes { stripes, targets }) } else { Ok(()) }
}
