//! One order of I/O phases over all targets: what servers under a `coflow` policy tell each other every λ.
//!
//! A target alone ranks a job by the part of its phase that it sees. At an exchange, the targets tell how far each
//! phase has come on them; a job is ranked by the target on which that is most, and each target where the job is
//! active is told its rank if it does not know it. Until then, a target ranks a phase that is new to it by itself.

use isonomia_policy::{Order, Progress};
use isonomia_units::{JobId, Nanos};

/// The phases of all jobs.
pub(super) struct Ranks {
    order: Order,
    /// A phase ends when the job has had no request for this long, as in the arbiters.
    active_window: Nanos,
    /// By job.
    phases: Vec<Phase>,
}

/// A rank that a target is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub target: usize,
    pub job: JobId,
    pub rank: u32,
}

/// A job's coming and going.
#[derive(Clone, Copy, Default)]
struct Activity {
    outstanding: u32,
    /// The latest arrival or completion.
    seen: Option<Nanos>,
}

#[derive(Clone)]
struct Phase {
    /// On all targets.
    activity: Activity,
    begun: Nanos,
    /// By target.
    parts: Vec<Part>,
}

/// The part of a phase on one target.
#[derive(Clone, Copy, Default)]
struct Part {
    activity: Activity,
    attained: Nanos,
    /// A running mean over earlier phases.
    expected: Option<Nanos>,
    told: Option<u32>,
}

impl Activity {
    fn lasts(&self, now: Nanos, window: Nanos) -> bool {
        self.outstanding > 0 || self.seen.is_some_and(|seen| now.since(seen) <= window)
    }

    fn arrive(&mut self, now: Nanos) {
        *self = Self { outstanding: self.outstanding + 1, seen: Some(now) };
    }

    fn complete(&mut self, now: Nanos) {
        *self = Self { outstanding: self.outstanding - 1, seen: Some(now) };
    }
}

impl Part {
    fn end(&mut self) {
        let service = self.attained.0;
        if service > 0 {
            self.expected = Some(Nanos(self.expected.map_or(service, |mean| mean.0 - mean.0 / 4 + service / 4)));
        }
        self.attained = Nanos::ZERO;
    }

    /// Service that it still needs, if it needs as much as earlier ones.
    fn left(&self) -> Option<Nanos> {
        Some(self.expected?.since(self.attained)).filter(|left| *left > Nanos::ZERO)
    }
}

impl Ranks {
    pub(super) fn new(order: Order, active_window: Nanos, jobs: usize, targets: usize) -> Self {
        let phase = Phase { activity: Activity::default(), begun: Nanos::ZERO, parts: vec![Part::default(); targets] };
        Self { order, active_window, phases: vec![phase; jobs] }
    }

    /// A request came.
    pub(super) fn arrive(&mut self, now: Nanos, target: usize, job: JobId) {
        let phase = &mut self.phases[job.0 as usize];
        if !phase.activity.lasts(now, self.active_window) {
            phase.parts.iter_mut().for_each(Part::end);
            phase.begun = now;
        }
        let part = &mut phase.parts[target];
        if !part.activity.lasts(now, self.active_window) {
            // The target's own account of the phase begins anew, without what it was told.
            part.told = None;
        }
        phase.activity.arrive(now);
        part.activity.arrive(now);
    }

    /// A request was served, in the time `cost`.
    pub(super) fn complete(&mut self, now: Nanos, target: usize, job: JobId, cost: Nanos) {
        let phase = &mut self.phases[job.0 as usize];
        let part = &mut phase.parts[target];
        phase.activity.complete(now);
        part.activity.complete(now);
        part.attained += cost;
    }

    /// What targets have to be told now. Linear in jobs times targets.
    pub(super) fn join(&mut self, now: Nanos) -> Vec<Told> {
        let mut told = Vec::new();
        for (job, phase) in self.phases.iter_mut().enumerate() {
            if !phase.activity.lasts(now, self.active_window) {
                continue;
            }
            let progress = Progress {
                attained: phase.parts.iter().map(|part| part.attained).max().unwrap_or_default(),
                elapsed: now.since(phase.begun),
                remaining: phase.parts.iter().filter_map(Part::left).max(),
            };
            let rank = self.order.rank(&progress);
            for (target, part) in phase.parts.iter_mut().enumerate() {
                if part.told != Some(rank) && part.activity.lasts(now, self.active_window) {
                    part.told = Some(rank);
                    told.push(Told { target, job: JobId(job as u32), rank });
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn ranks(order: Order) -> Ranks {
        Ranks::new(order, ms(20), 2, 3)
    }

    fn serve(ranks: &mut Ranks, now: Nanos, target: usize, cost: Nanos) {
        ranks.arrive(now, target, JobId(0));
        ranks.complete(now + cost, target, JobId(0), cost);
    }

    #[test]
    fn the_most_served_target_ranks_a_phase_everywhere_it_is_active() {
        let mut ranks = ranks(Order::Attained);
        serve(&mut ranks, ms(0), 0, ms(1));
        serve(&mut ranks, ms(0), 1, ms(8));
        let rank = Order::Attained.rank(&Progress { attained: ms(8), elapsed: ms(8), remaining: None });
        let told = |target| Told { target, job: JobId(0), rank };
        assert_eq!(ranks.join(ms(8)), [told(0), told(1)], "nothing of it is on the third");
        assert_eq!(ranks.join(ms(9)), [], "they know");
        serve(&mut ranks, ms(9), 2, ms(1));
        assert_eq!(ranks.join(ms(10)), [told(2)]);
    }

    #[test]
    fn a_later_phase_is_expected_to_need_what_the_earlier_did_on_its_slowest_target() {
        let mut ranks = ranks(Order::Bottleneck);
        serve(&mut ranks, ms(0), 0, ms(4));
        serve(&mut ranks, ms(0), 1, ms(40));
        ranks.arrive(ms(100), 0, JobId(0));
        let rank = Order::Bottleneck.rank(&Progress { remaining: Some(ms(40)), ..Progress::default() });
        assert_eq!(ranks.join(ms(100)), [Told { target: 0, job: JobId(0), rank }]);
    }

    #[test]
    fn a_target_where_the_job_was_idle_is_told_again() {
        let mut ranks = ranks(Order::Attained);
        serve(&mut ranks, ms(0), 0, ms(1));
        serve(&mut ranks, ms(0), 1, ms(1));
        assert_eq!(ranks.join(ms(1)).len(), 2);
        ranks.arrive(ms(10), 0, JobId(0));
        assert_eq!(ranks.join(ms(30)), [], "the second has no request of it");
        ranks.arrive(ms(40), 1, JobId(0));
        assert_eq!(ranks.join(ms(40)).iter().map(|told| told.target).collect::<Vec<_>>(), [1]);
    }
}
