//! First come, first served, with EASY backfilling: a job may overtake if the first in the queue starts no later.
//!
//! The first job that does not fit gets a reservation: the time at which, by the running jobs' estimated ends,
//! enough nodes are free (the shadow time), and the nodes that will be left over then (the extra nodes). A later
//! job starts now if it fits and either is estimated to end by the shadow time or takes extra nodes only. GIFT §4
//! names the strategy; this is its usual form.

use isonomia_units::Nanos;

/// Jobs behind the first that are looked at in one pass.
pub const DEPTH_MAX: usize = 1000;

/// A job that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its nodes.
    pub nodes: u32,
    /// When it should end; one that should have ended counts as ending now.
    pub end: Nanos,
}

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its nodes.
    pub nodes: u32,
    /// How long it should take.
    pub length: Nanos,
}

/// Which of the jobs in `queue` to start at `now`, by position and in ascending order. `running` are those that run, the
/// first to end first. O(s log s + r + q) with s that start, r that end before the first in the queue can start, and q that
/// wait.
pub fn starts<'a>(
    now: Nanos,
    free: u32,
    running: impl IntoIterator<Item = Running>,
    queue: impl IntoIterator<Item = &'a Waiting>,
) -> Vec<usize> {
    let mut free = free;
    let mut started = Vec::new();
    let mut ends: Vec<Running> = Vec::new();
    let mut queue = queue.into_iter().enumerate();
    let first = loop {
        match queue.next() {
            None => return started,
            Some((at, job)) if job.nodes <= free => {
                free -= job.nodes;
                ends.push(Running { nodes: job.nodes, end: now + job.length });
                started.push(at);
            }
            Some((_, job)) => break job,
        }
    };
    if free == 0 {
        return started;
    }
    ends.sort_by_key(|job| job.end);
    let (mut started_now, mut running) = (ends.into_iter().peekable(), running.into_iter().peekable());
    let mut free_then = free;
    let mut shadow = Nanos::MAX;
    let mut next = || match (started_now.peek(), running.peek()) {
        (Some(a), Some(b)) if b.end.max(now) < a.end => running.next(),
        (None, _) => running.next(),
        (Some(_), _) => started_now.next(),
    };
    while let Some(job) = next() {
        free_then += job.nodes;
        if free_then >= first.nodes {
            shadow = job.end.max(now);
            break;
        }
    }
    let mut extra = free_then.saturating_sub(first.nodes);
    for (at, job) in queue.take(DEPTH_MAX) {
        let ends_in_time = now + job.length <= shadow;
        if job.nodes <= free && (ends_in_time || job.nodes <= extra) {
            free -= job.nodes;
            if !ends_in_time {
                extra -= job.nodes;
            }
            started.push(at);
        }
    }
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(nodes: u32, end: u64) -> Running {
        Running { nodes, end: Nanos(end) }
    }

    fn waiting(nodes: u32, length: u64) -> Waiting {
        Waiting { nodes, length: Nanos(length) }
    }

    #[test]
    fn who_fits_starts_in_order() {
        assert_eq!(starts(Nanos(0), 10, [], &[waiting(4, 9), waiting(6, 9), waiting(1, 9)]), [0, 1]);
        assert_eq!(starts(Nanos(0), 0, [running(4, 9)], &[waiting(4, 9)]), [0; 0]);
    }

    /// 10 nodes, 6 busy until 100. The first in the queue wants 8: its reservation is at 100, with 2 nodes extra.
    #[test]
    fn a_job_overtakes_if_it_ends_in_time_or_takes_extra_nodes_only() {
        let busy = [running(6, 100)];
        let first = waiting(8, 50);
        assert_eq!(starts(Nanos(10), 4, busy, &[first, waiting(4, 90)]), [1], "ends at 100");
        assert_eq!(starts(Nanos(10), 4, busy, &[first, waiting(4, 91)]), [0; 0], "would end at 101");
        assert_eq!(starts(Nanos(10), 4, busy, &[first, waiting(2, 1000)]), [1], "extra nodes");
        assert_eq!(starts(Nanos(10), 4, busy, &[first, waiting(1, 1000), waiting(2, 1000)]), [1], "one extra left");
        assert_eq!(starts(Nanos(10), 4, busy, &[first, waiting(5, 1)]), [0; 0], "does not fit");
        assert_eq!(starts(Nanos(10), 4, busy, &[first, waiting(3, 90), waiting(1, 90), waiting(1, 1)]), [1, 2]);
    }

    /// What starts in the same pass counts towards the reservation too.
    #[test]
    fn the_reservation_sees_jobs_that_have_just_started() {
        let queue = [waiting(4, 20), waiting(10, 5), waiting(6, 20), waiting(6, 21)];
        assert_eq!(starts(Nanos(0), 10, [], &queue), [0, 2]);
        assert_eq!(starts(Nanos(0), 10, [], &[queue[0], queue[1], queue[3]]), [0]);
    }

    #[test]
    fn a_job_past_its_estimate_counts_as_ending_now() {
        assert_eq!(starts(Nanos(50), 4, [running(6, 20)], &[waiting(8, 5), waiting(4, 1)]), [0; 0]);
        assert_eq!(starts(Nanos(50), 4, [running(6, 20)], &[waiting(8, 5), waiting(2, 1)]), [1]);
    }
}
