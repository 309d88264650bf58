//! Jobs as the targets hear of them: announced when they join, forgotten when nobody is left.

use super::{Job, TooManyJobs};
use crate::clock;
use crate::core::Core;
use isonomia_units::{JobId, JobInfo, Nanos};
use std::sync::{Arc, PoisonError};

impl Core {
    /// The job that `info` describes, known to every target, for somebody who [leaves](crate::jobs::Jobs::leave) it.
    pub fn join_job(&self, info: JobInfo) -> Result<Arc<Job>, TooManyJobs> {
        let joined = self.jobs.join(info)?;
        if let Some(forgotten) = joined.forgotten {
            self.forget(forgotten.id, clock::now());
        }
        if joined.is_changed {
            self.announce(&joined.job);
        }
        Ok(joined.job)
    }

    /// Tells every target that there is no such job any more.
    pub fn forget(&self, job: JobId, now: Nanos) {
        for target in &self.targets {
            target.remove_job(now, job).into_iter().for_each(|chunk| self.write_past_arbiter(target, chunk));
        }
    }

    /// Tells every target of a job.
    fn announce(&self, job: &Job) {
        let _policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, info) = (clock::now(), job.info());
        for target in &self.targets {
            target.set_job(now, job.id, &info);
        }
    }
}
