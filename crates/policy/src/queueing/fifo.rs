//! `fifo`: requests leave in the order they came, whoever sent them. The baseline without control.

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::{QUEUED_MAX, RequestId};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, VecDeque};

/// Arrival order over all jobs. O(log n) in the queued requests for every operation on one request.
#[derive(Default)]
pub(crate) struct Fifo {
    /// Arrival number of each job's queued requests, ascending.
    jobs: BTreeMap<JobId, VecDeque<u64>>,
    queue: BTreeMap<u64, Request>,
    arrivals: u64,
}

impl Arbiter for Fifo {
    fn set_job(&mut self, _now: Nanos, job: JobId, _info: &JobInfo) {
        self.jobs.entry(job).or_default();
    }

    fn remove_job(&mut self, _now: Nanos, job: JobId) -> Vec<Request> {
        let arrivals = self.jobs.remove(&job).unwrap_or_default();
        arrivals.iter().filter_map(|arrival| self.queue.remove(arrival)).collect()
    }

    fn enqueue(&mut self, _now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let (id, job) = (request.id, request.job);
        let Some(own) = self.jobs.get_mut(&job) else {
            return Err(EnqueueError::UnknownJob { job, request: id });
        };
        if self.queue.len() >= QUEUED_MAX {
            return Err(EnqueueError::QueueFull { job, request: id });
        }
        own.push_back(self.arrivals);
        self.queue.insert(self.arrivals, request);
        self.arrivals += 1;
        Ok(())
    }

    fn next(&mut self, _now: Nanos) -> Next {
        let Some((_, request)) = self.queue.pop_first() else { return Next::Idle };
        if let Some(own) = self.jobs.get_mut(&request.job) {
            own.pop_front();
        }
        Next::Dispatch(request)
    }

    fn complete(&mut self, _now: Nanos, _request: RequestId, _job: JobId) {}

    fn cancel(&mut self, _now: Nanos, request: RequestId, job: JobId) -> bool {
        let Some(own) = self.jobs.get_mut(&job) else { return false };
        let at = own.iter().position(|arrival| self.queue.get(arrival).is_some_and(|queued| queued.id == request));
        let Some(arrival) = at.and_then(|at| own.remove(at)) else { return false };
        self.queue.remove(&arrival).is_some()
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, VecDeque::len)
    }

    fn shares(&self, _now: Nanos) -> Vec<(JobId, f64)> {
        Vec::new()
    }

    fn drain(&mut self) -> Vec<Request> {
        self.jobs.values_mut().for_each(VecDeque::clear);
        std::mem::take(&mut self.queue).into_values().collect()
    }
}
