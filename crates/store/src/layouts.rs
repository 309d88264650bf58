//! The layouts of new files: which targets they get is chosen by [`isonomia_placement`], and files that get the same share
//! one layout in memory. In a cluster whoever knows it may choose others ([`Namespace::choose_layouts`]): it is told who makes the
//! file, and what its directory says in an extended attribute that new directories in it get as well.

use crate::config::{DefaultLayout, TargetDir};
use crate::content::OBJECTS;
use crate::inode::{Inode, SPREAD, UNLINKED};
use crate::permission::MAY_WRITE;
use crate::record::{Body, Record};
use crate::{Caller, Namespace, StoreError};
use isonomia_placement::{RoundRobin, Step, stripes_from};
use isonomia_proto::fs::Layout;
use isonomia_proto::hint::OpenHint;
use isonomia_proto::striping::XATTR;
use isonomia_units::{Ino, JobId, TargetId};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Chooses the layout of a new file; `None` for one on this server.
type Choose = Box<dyn Fn(&NewFile<'_>) -> Option<Layout> + Send + Sync>;

/// Who makes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creator {
    /// The job.
    pub job: JobId,
    /// What it knows of the file.
    pub hint: OpenHint,
}

/// A file that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Its number.
    pub ino: Ino,
    /// What its directory says of layouts, if anything.
    pub striping: Option<&'a [u8]>,
    /// Who makes it, if that is known.
    pub creator: Option<Creator>,
}

pub(crate) struct Layouts {
    /// One for each first target.
    shared: Vec<Arc<Layout>>,
    stripe_count: usize,
    round: RoundRobin,
    choose: OnceLock<Choose>,
}

impl Layouts {
    /// Layouts over `targets`, which are at least one.
    pub fn new(targets: &[TargetDir], layout: DefaultLayout) -> Self {
        let stripe_count = layout.stripe_count.min(targets.len());
        let ids: Vec<TargetId> = targets.iter().map(|target| target.id).collect();
        let starting_at = |first: usize| {
            let targets = stripes_from(&ids, first, stripe_count).collect();
            Arc::new(Layout { stripe_bytes: layout.stripe_bytes, targets, grows: false })
        };
        let shared = (0..ids.len()).map(starting_at).collect();
        Self { shared, stripe_count, round: RoundRobin::starting_at(0, Step::File), choose: OnceLock::new() }
    }

    pub fn of_new_file(&self) -> Arc<Layout> {
        self.shared[self.round.first(self.shared.len(), self.stripe_count)].clone()
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

impl Namespace {
    /// From now on new files for which `choose` gives a layout are spread ones with that. It is told the value of the attribute
    /// [`XATTR`] of their directories, and must not call the store. To be called once.
    pub fn choose_layouts(&self, choose: impl Fn(&NewFile<'_>) -> Option<Layout> + Send + Sync + 'static) {
        // Who was first stays.
        let _ = self.layouts.choose.set(Box::new(choose));
    }

    /// Gives the empty file at `path`, which nobody has open, a layout: a spread one, or, with `None`, that of new files by
    /// default. Whether it has it now: a file with bytes keeps its own. [`StoreError::Busy`] if somebody has it open.
    pub fn set_layout(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        follow: bool,
        layout: Option<Layout>,
    ) -> Result<bool, StoreError> {
        let _namespace = self.own();
        let inode = self.resolve(caller, at.0, path, follow)?;
        let mut record = inode.current();
        caller.check(&record, MAY_WRITE)?;
        let present = inode.any_regular()?;
        // A spread file may have objects though it is empty: of room that was set aside, or of a writer that was killed.
        if inode.size() > 0 || inode.has(OBJECTS | UNLINKED | SPREAD) {
            return Ok(layout.is_some_and(|layout| inode.has(SPREAD) && **present == layout));
        }
        let ino = inode.ino;
        drop(inode);
        // Its objects could have been others once, and be under way to be removed.
        if record.objects.number != ino || record.spread.is_some_and(|cuts| cuts > 0) || !self.inodes.evict(ino) {
            return Err(StoreError::Busy);
        }
        (record.spread, record.blocks) = (layout.as_ref().map(|_| 0), 0);
        record.body = Body::Regular(layout.map_or_else(|| self.layouts.of_new_file(), Arc::new));
        let mut edit = self.edit();
        edit.create(ino, record);
        edit.commit().map(drop)?;
        Ok(true)
    }

    /// Whether any session has the file open, as far as is known in memory.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.inodes.read(ino.0, |inode| Some(inode.refs.load(Relaxed) > 0)) == Some(true)
    }

    /// What a directory says of the layouts of new files.
    pub(crate) fn striping_of(&self, dir: &Inode) -> Result<Option<Vec<u8>>, StoreError> {
        let says = self.layouts.choose.get().is_some() && dir.record().has_xattrs;
        Ok(if says { self.db.xattr(dir.ino, XATTR)?.map(|value| value.to_vec()) } else { None })
    }

    /// The layout of a new file, if it is to be a spread one.
    pub(crate) fn chosen_layout(&self, file: &NewFile<'_>) -> Option<Arc<Layout>> {
        self.layouts.choose.get().and_then(|choose| choose(file)).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_comes_first_equally_often() {
        let targets: Vec<_> = (10..13).map(|id| TargetDir { id: TargetId(id), dir: "".into() }).collect();
        let layouts = Layouts::new(&targets, DefaultLayout { stripe_bytes: 4096, stripe_count: 2 });
        let chosen: Vec<Vec<u16>> =
            (0..4).map(|_| layouts.of_new_file().targets.iter().map(|t| t.0).collect()).collect();
        assert_eq!(chosen, [[10, 11], [11, 12], [12, 10], [10, 11]]);
    }
}
