//! What a shallower depth is worth to a job that is behind its share.
//!
//! A job of one process has one request under way. Where the device is given D at once and serves them all alike, that job
//! has 1/D of it, whatever the policy says: nothing of it waits in the arbiter, which could only let it go first. If the
//! device serves them side by side, it is none the slower for that and takes all it can ask for. But if they wait for each
//! other in there, as at a file system whose servers' processors or network are the limit, half of them take half the
//! time, and the job has twice as much. No model tells one from the other: a trial of the shallower depth does, by what
//! *this job* gets done.
//!
//! With D halved, what the job gains lies between nothing (all are served side by side) and twice as much (all wait for each
//! other), and what all together do between a half and all of it. More than half of the way, in proportion, is taken for
//! waiting ([`gain_min`]): then the rest of the queue belongs in the arbiter.
//!
//! A job that asks for little is behind its share as well, at any depth, and nobody is held back for it: only who has a request in
//! service nearly all the time ([`BUSY_MIN`]) could have more.

use super::tally::Tally;
use isonomia_units::JobId;

/// Who has less than this part of what is due to it is behind.
const BEHIND_MAX: f64 = 0.9;
/// Requests that a job has in service on average, if it is kept from having more done by what these take.
const BUSY_MIN: f64 = 0.6;
/// The part of the way, in proportion, that a job's gain has to come.
const GAIN_PART: f64 = 0.5;
/// The same while the shallower depth is what there is: no two depths may each be better than the other.
const GAIN_PART_KEPT: f64 = 0.35;
/// Part of the work that is given up at most for those who are behind.
pub(super) const KEPT_MIN: f64 = 0.5;

/// Whether two depths are so far apart that what one job gains tells waiting from chance: of three quarters there is less to gain
/// than a few of its requests are worth that end on this or that side of a window's end.
pub(super) fn are_apart(deep: usize, shallow: usize) -> bool {
    2 * deep >= 3 * shallow
}

/// How many times as much the job that is furthest behind its share at depth `depth` gets done at the shallower one, if any is
/// behind that could have more. `shares` are due to the active jobs.
pub(super) fn gain_of_last(
    depth: usize,
    deep: &Tally,
    shallow: &Tally,
    shares: impl FnOnce() -> Vec<(JobId, f64)>,
) -> Option<f64> {
    let parts: Vec<_> = deep.parts().filter(|(_, part)| part * depth as f64 >= BUSY_MIN).collect();
    if parts.is_empty() {
        return None;
    }
    let shares = shares();
    let received = |(place, part): (JobId, f64)| {
        let of_place = shares.iter().filter(|(job, _)| Tally::place(*job) == Tally::place(place));
        let due: f64 = of_place.map(|(_, share)| share).sum();
        (due > 0.0).then(|| (place, part / due))
    };
    let behind = parts.into_iter().filter_map(received).filter(|(_, of_due)| *of_due < BEHIND_MAX);
    let last = behind.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(deep.ratio_of(last.0, shallow))
}

/// What it has to gain for the shallower of two depths, which is the one that there `is`, or is tried.
pub(super) fn gain_min(deep: usize, shallow: usize, is: bool) -> f64 {
    (deep as f64 / shallow as f64).powf(if is { GAIN_PART_KEPT } else { GAIN_PART })
}
