//! The layouts of new files: which targets they get is chosen by [`isonomia_placement`], and files that get the same share
//! one layout in memory.

use crate::config::{DefaultLayout, TargetDir};
use crate::record::{Body, Record};
use isonomia_placement::{RoundRobin, Turn, stripes_from};
use isonomia_proto::fs::Layout;
use isonomia_units::TargetId;
use std::sync::Arc;

pub(crate) struct Layouts {
    /// One for each first target.
    shared: Vec<Arc<Layout>>,
    stripe_count: usize,
    turns: RoundRobin,
}

impl Layouts {
    /// Layouts over `targets`, which are at least one.
    pub fn new(targets: &[TargetDir], layout: DefaultLayout) -> Self {
        let stripe_count = layout.stripe_count.min(targets.len());
        let ids: Vec<TargetId> = targets.iter().map(|target| target.id).collect();
        let starting_at = |first: usize| {
            let targets = stripes_from(&ids, first, stripe_count).collect();
            Arc::new(Layout { stripe_bytes: layout.stripe_bytes, targets })
        };
        let shared = (0..ids.len()).map(starting_at).collect();
        Self { shared, stripe_count, turns: RoundRobin::starting_at(0, Turn::File) }
    }

    pub fn of_new_file(&self) -> Arc<Layout> {
        self.shared[self.turns.first(self.shared.len(), self.stripe_count)].clone()
    }

    /// Shares the layout of a record that was read from the database.
    pub fn intern(&self, record: &mut Record) {
        if let Body::Regular(layout) = &mut record.body
            && let Some(shared) = self.shared.iter().find(|l| **l == *layout)
        {
            *layout = shared.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_comes_first_in_turn() {
        let targets: Vec<_> = (10..13).map(|id| TargetDir { id: TargetId(id), dir: "".into() }).collect();
        let layouts = Layouts::new(&targets, DefaultLayout { stripe_bytes: 4096, stripe_count: 2 });
        let chosen: Vec<Vec<u16>> =
            (0..4).map(|_| layouts.of_new_file().targets.iter().map(|t| t.0).collect()).collect();
        assert_eq!(chosen, [[10, 11], [11, 12], [12, 10], [10, 11]]);
    }
}
