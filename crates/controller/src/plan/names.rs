//! How jobs and targets are called in a problem, so that the order of the names is that of the numbers.

use isonomia_allocation::TargetIndex;
use isonomia_units::TargetId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The names that were needed so far: they are the same in every decision.
#[derive(Debug, Default)]
pub(super) struct Names {
    apps: Vec<Arc<str>>,
    targets: BTreeMap<TargetId, Arc<str>>,
}

impl Names {
    /// Of the application at this position in the order.
    pub(super) fn app(&mut self, at: usize) -> Arc<str> {
        while self.apps.len() <= at {
            self.apps.push(format!("{:010}", self.apps.len()).into());
        }
        self.apps[at].clone()
    }

    /// Of this target.
    pub(super) fn target(&mut self, target: TargetId) -> Arc<str> {
        self.targets.entry(target).or_insert_with(|| format!("{:05}", target.0).into()).clone()
    }
}

/// Where each target is in a problem.
#[derive(Debug, Default)]
pub(super) struct Indices {
    /// By number.
    of: Vec<Option<TargetIndex>>,
    is_used: Vec<bool>,
}

impl Indices {
    /// Somebody uses this target.
    pub(super) fn enter(&mut self, target: TargetId) {
        let at = usize::from(target.0);
        if self.is_used.len() <= at {
            self.is_used.resize(at + 1, false);
        }
        self.is_used[at] = true;
    }

    /// The targets that somebody uses, in the order of their numbers.
    pub(super) fn used(&self) -> impl Iterator<Item = TargetId> {
        (0..=u16::MAX).zip(&self.is_used).filter(|(_, is_used)| **is_used).map(|(number, _)| TargetId(number))
    }

    /// These are the indices of the targets that are used, in order.
    pub(super) fn number(&mut self, indices: impl Iterator<Item = TargetIndex>) {
        let mut indices = indices;
        self.of = self.is_used.iter().map(|is_used| if *is_used { indices.next() } else { None }).collect();
    }

    /// Where `target` is; nothing if nobody uses it.
    pub(super) fn of(&self, target: TargetId) -> Option<TargetIndex> {
        self.of.get(usize::from(target.0)).copied().flatten()
    }
}
