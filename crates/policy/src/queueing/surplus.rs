//! What `coflow` does with the service that nobody is guaranteed: it goes to one job after the other, in an order.
//!
//! An I/O phase over several targets is a coflow: it ends when its last part does, so that serving phases one
//! after the other ends most of them sooner than serving all at once, and nobody later than the guarantee allows
//! (see [`virtual_time`](super::virtual_time)). The orders come from the coflow schedulers of datacenter
//! networks: least attained service (Aalo: Chowdhury and Stoica, SIGCOMM 2015), smallest bottleneck first (Varys:
//! Chowdhury, Zhong, Stoica, SIGCOMM 2014), and the one with the worst slowdown.
//!
//! A job's *rank* is a coarse logarithm of what the order compares ([`Order::rank`]); the smallest is first, and among
//! equals the phase that began first (then the lowest [`JobId`]). So a rank changes once for each doubling or
//! so, and an order over many targets is broadcast once for each change ([`Arbiter::set_rank`]); a target that is told
//! nothing ranks by what it sees itself. As in Aalo, the steps also keep equal phases from being served alternately, which
//! would end all of them late.
//!
//! A *phase* begins with the request that makes a job active and ends when it is no longer active.
//!
//! [`Arbiter::set_rank`]: crate::Arbiter::set_rank

use crate::queueing::tag_heap::TagHeap;
use crate::spec::scheme::Order;
use isonomia_units::{JobId, Nanos};

/// Below this a difference in service does not count.
const SERVICE_UNIT: Nanos = Nanos::from_millis(1);
/// Parts of one in which a slowdown is counted.
const SLOWDOWN_PARTS: u64 = 16;
/// The rank of the least slowdown.
const RANK_MAX: u32 = grade(u64::MAX);

/// How far a job's present I/O phase has come, over all targets that it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Service that it received: over several targets, on the one where that is most.
    pub attained: Nanos,
    /// Time since it began.
    pub elapsed: Nanos,
    /// Service that it still needs, on the target where that is most; `None` if nobody knows.
    pub remaining: Option<Nanos>,
}

impl Order {
    /// The rank of a phase among others: smaller is first.
    ///
    /// * `attained`: the number of times that its service doubled, from 1 ms on.
    /// * `slowdown`: the more often its time per service doubled the earlier, in quarters of a doubling. A phase in
    ///   its first millisecond of service counts as if it had that.
    /// * `bottleneck`: the number of times that what it needs doubled, in quarters. A phase of unknown length is
    ///   expected to last as long again as it has.
    pub fn rank(self, progress: &Progress) -> u32 {
        let units = |service: Nanos| service.0 / SERVICE_UNIT.0;
        match self {
            Self::Attained => u64::BITS - units(progress.attained).leading_zeros(),
            Self::Slowdown => RANK_MAX - grade(slowdown(progress)),
            Self::Bottleneck => grade(units(progress.remaining.unwrap_or(progress.attained))),
        }
    }
}

/// Time per service in parts of one.
fn slowdown(progress: &Progress) -> u64 {
    let attained = progress.attained.max(SERVICE_UNIT);
    let parts = u128::from(progress.elapsed.0) * u128::from(SLOWDOWN_PARTS) / u128::from(attained.0);
    u64::try_from(parts).unwrap_or(u64::MAX)
}

/// Four steps for each doubling; exact below four.
const fn grade(value: u64) -> u32 {
    if value < 4 {
        return value as u32;
    }
    let exponent = value.ilog2();
    (exponent - 1) * 4 + ((value >> (exponent - 2)) & 3) as u32
}

/// The least value of a grade.
const fn least_of(grade: u32) -> u128 {
    if grade < 4 { grade as u128 } else { (4 + grade as u128 % 4) << (grade / 4 - 1) }
}

/// The jobs of one target in the order in which they receive what is not guaranteed.
pub(crate) struct Surplus {
    order: Order,
    /// By slot.
    phases: Vec<Phase>,
    /// Jobs with something queued.
    ranks: TagHeap,
    /// When the ranks of those change if nothing of them is served.
    changes: TagHeap,
    begun: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Phase {
    begun: Nanos,
    /// Rank among the phases by their beginning.
    number: u64,
    attained: Nanos,
    /// A running mean over the service of earlier phases.
    expected: Option<Nanos>,
    /// The rank that was broadcast.
    told: Option<u32>,
    /// The rank under which the job is in `Surplus::ranks`, if it is.
    rank: u32,
}

impl Surplus {
    pub(crate) fn new(order: Order) -> Self {
        Self { order, phases: Vec::new(), ranks: TagHeap::default(), changes: TagHeap::default(), begun: 0 }
    }

    /// A new job in `slot`.
    pub(crate) fn insert(&mut self, slot: u32) {
        if slot as usize == self.phases.len() {
            self.phases.push(Phase::default());
        } else {
            self.phases[slot as usize] = Phase::default();
        }
    }

    /// A phase begins.
    pub(crate) fn begin(&mut self, now: Nanos, slot: u32) {
        let phase = &mut self.phases[slot as usize];
        (phase.begun, phase.number, phase.attained) = (now, self.begun, Nanos::ZERO);
        self.begun += 1;
    }

    /// A phase has ended.
    pub(crate) fn end(&mut self, slot: u32) {
        let phase = &mut self.phases[slot as usize];
        let service = phase.attained.0;
        phase.expected = Some(Nanos(phase.expected.map_or(service, |mean| mean.0 - mean.0 / 4 + service / 4)));
        phase.told = None;
    }

    /// Ranks the job as told, or by itself again.
    pub(crate) fn set_rank(&mut self, now: Nanos, slot: u32, job: JobId, rank: Option<u32>) {
        self.phases[slot as usize].told = rank;
        if self.ranks.contains(slot) {
            self.enter(now, slot, job);
        }
    }

    /// How far its present phase has come.
    pub(crate) fn progress(&self, now: Nanos, slot: u32) -> Progress {
        self.phases[slot as usize].progress(now)
    }

    /// The job has something queued.
    pub(crate) fn enter(&mut self, now: Nanos, slot: u32, job: JobId) {
        let phase = self.phases[slot as usize];
        let rank = phase.told.unwrap_or_else(|| self.order.rank(&phase.progress(now)));
        self.phases[slot as usize].rank = rank;
        self.ranks.set(slot, (u128::from(rank) << 64 | u128::from(phase.number), job));
        if self.order == Order::Slowdown && phase.told.is_none() {
            // Rounded up: a tag before the change would be found again at once.
            let service = u128::from(phase.attained.max(SERVICE_UNIT).0);
            let elapsed = (least_of(RANK_MAX - rank + 1) * service).div_ceil(u128::from(SLOWDOWN_PARTS));
            self.changes.set(slot, (u128::from(phase.begun.0) + elapsed, job));
        } else {
            self.changes.remove(slot);
        }
    }

    /// The job has nothing queued.
    pub(crate) fn leave(&mut self, slot: u32) {
        self.ranks.remove(slot);
        self.changes.remove(slot);
    }

    pub(crate) fn clear(&mut self) {
        self.ranks.clear();
        self.changes.clear();
    }

    /// A request of the job went into service; `more` are queued.
    pub(crate) fn serve(&mut self, now: Nanos, slot: u32, job: JobId, cost: Nanos, more: bool) {
        let phase = &mut self.phases[slot as usize];
        phase.attained += cost;
        if !more {
            self.leave(slot);
        } else if self.order == Order::Slowdown
            || (phase.told.is_none() && phase.rank != self.order.rank(&phase.progress(now)))
        {
            self.enter(now, slot, job);
        }
    }

    /// The job that is first in the order.
    pub(crate) fn first(&mut self, now: Nanos) -> Option<u32> {
        while let Some(((change, job), slot)) = self.changes.first()
            && change <= u128::from(now.0)
        {
            self.enter(now, slot, job);
        }
        self.ranks.first().map(|(_, slot)| slot)
    }
}

impl Phase {
    fn progress(&self, now: Nanos) -> Progress {
        let left = self.expected.map(|expected| expected.since(self.attained)).filter(|left| *left > Nanos::ZERO);
        Progress { attained: self.attained, elapsed: now.since(self.begun), remaining: left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn progress(attained_ms: u64, elapsed_ms: u64, remaining_ms: Option<u64>) -> Progress {
        let ms = Nanos::from_millis;
        Progress { attained: ms(attained_ms), elapsed: ms(elapsed_ms), remaining: remaining_ms.map(ms) }
    }

    #[test]
    fn a_phase_is_reported_from_its_beginning_to_its_end() {
        let (ms, job) = (Nanos::from_millis, JobId(7));
        let mut surplus = Surplus::new(Order::Attained);
        surplus.insert(0);
        surplus.begin(ms(10), 0);
        surplus.enter(ms(10), 0, job);
        surplus.serve(ms(12), 0, job, ms(4), true);
        assert_eq!(surplus.progress(ms(15), 0), progress(4, 5, None));
        surplus.end(0);
        surplus.begin(ms(30), 0);
        surplus.serve(ms(30), 0, job, ms(1), false);
        assert_eq!(surplus.progress(ms(31), 0), progress(1, 1, Some(3)), "as long as the phase before");
    }

    #[test]
    fn ranks_by_hand() {
        let attained = [0, 1, 2, 3, 4, 1_000].map(|ms| Order::Attained.rank(&progress(ms, 0, None)));
        assert_eq!(attained, [0, 1, 2, 2, 3, 10]);
        let left = [0, 1, 3, 4, 5, 8, 9, 10, 16].map(|ms| Order::Bottleneck.rank(&progress(99, 0, Some(ms))));
        assert_eq!(left, [0, 1, 3, 4, 5, 8, 8, 9, 12]);
        assert_eq!(Order::Bottleneck.rank(&progress(16, 0, None)), 12, "as long again");
        // 16ths: 10/10 is 16, 15/10 is 24, 20/10 is 32.
        let slowdown = [10, 15, 20].map(|elapsed| RANK_MAX - Order::Slowdown.rank(&progress(10, elapsed, None)));
        assert_eq!(slowdown, [12, 14, 16]);
        assert_eq!(RANK_MAX - Order::Slowdown.rank(&progress(0, 1, None)), 12, "as if served for 1 ms");
    }

    proptest! {
        #[test]
        fn grades_are_in_order_and_narrow(value in prop_oneof![0u64..10_000, any::<u64>()]) {
            let at = grade(value);
            prop_assert!(least_of(at) <= u128::from(value) && u128::from(value) < least_of(at + 1));
            prop_assert!(4 * (least_of(at + 1) - least_of(at)) <= 4.max(least_of(at)));
        }

        /// A change is noticed when it comes, and none is missed: asking at any time gives the order that comparing all
        /// would.
        #[test]
        fn the_worst_slowdown_is_first_whenever_it_is_asked(
            services in proptest::collection::vec((0u32..5, 0u64..40, 0u64..60), 1..60)
        ) {
            let mut surplus = Surplus::new(Order::Slowdown);
            let mut now = Nanos::ZERO;
            for slot in 0..5 {
                surplus.insert(slot);
                now += Nanos::from_millis(u64::from(slot));
                surplus.begin(now, slot);
                surplus.enter(now, slot, JobId(slot));
            }
            for (slot, cost_ms, pass_ms) in services {
                surplus.serve(now, slot, JobId(slot), Nanos::from_millis(cost_ms), true);
                now += Nanos::from_millis(pass_ms);
                let rank = |slot: u32| (Order::Slowdown.rank(&surplus.phases[slot as usize].progress(now)), slot);
                let best = (0..5).map(rank).min().map(|(_, slot)| slot);
                prop_assert_eq!(surplus.first(now), best);
            }
        }
    }
}
