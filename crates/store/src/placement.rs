//! Which targets a new file gets: round robin, so that files that are created together are spread.

use crate::config::{DefaultLayout, TargetDir};
use crate::record::{Body, Record};
use isonomia_proto::fs::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) struct Placement {
    /// One layout for each first target; files share them in memory.
    layouts: Vec<Arc<Layout>>,
    next: AtomicUsize,
}

impl Placement {
    /// Layouts over `targets`, which are at least one.
    pub fn new(targets: &[TargetDir], layout: DefaultLayout) -> Self {
        let count = layout.stripe_count.min(targets.len());
        let starting_at = |first: usize| {
            let ids = targets.iter().cycle().skip(first).take(count).map(|t| t.id).collect();
            Arc::new(Layout { stripe_bytes: layout.stripe_bytes, targets: ids })
        };
        Self { layouts: (0..targets.len()).map(starting_at).collect(), next: AtomicUsize::new(0) }
    }

    pub fn choose(&self) -> Arc<Layout> {
        self.layouts[self.next.fetch_add(1, Relaxed) % self.layouts.len()].clone()
    }

    /// Shares the layout of a record that was read from the database.
    pub fn intern(&self, record: &mut Record) {
        if let Body::Regular(layout) = &mut record.body
            && let Some(shared) = self.layouts.iter().find(|l| **l == *layout)
        {
            *layout = shared.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::TargetId;

    #[test]
    fn every_target_comes_first_in_turn() {
        let targets: Vec<_> = (10..13).map(|id| TargetDir { id: TargetId(id), dir: "".into() }).collect();
        let placement = Placement::new(&targets, DefaultLayout { stripe_bytes: 4096, stripe_count: 2 });
        let chosen: Vec<Vec<u16>> = (0..4).map(|_| placement.choose().targets.iter().map(|t| t.0).collect()).collect();
        assert_eq!(chosen, [[10, 11], [11, 12], [12, 10], [10, 11]]);
    }
}
