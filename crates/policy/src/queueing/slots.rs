//! Where a job is: a two-level table from job ids, which are dense by contract, to slots.

use isonomia_units::JobId;

const PAGE: usize = 4096;
const ABSENT: u32 = u32::MAX;

/// Finds a slot in O(1). An id of any size is correct; the table takes 8 bytes per [`PAGE`] ids up to the
/// largest and 16 KiB for each page in use.
#[derive(Default)]
pub(crate) struct Slots {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
}

impl Slots {
    pub(crate) fn get(&self, job: JobId) -> Option<u32> {
        let page = self.pages.get(job.0 as usize / PAGE)?.as_ref()?;
        Some(page[job.0 as usize % PAGE]).filter(|&slot| slot != ABSENT)
    }

    pub(crate) fn insert(&mut self, job: JobId, slot: u32) {
        let at = job.0 as usize / PAGE;
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, || None);
        }
        self.pages[at].get_or_insert_with(|| Box::new([ABSENT; PAGE]))[job.0 as usize % PAGE] = slot;
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<u32> {
        let slot = self.get(job)?;
        self.insert(job, ABSENT);
        Some(slot)
    }
}
