//! The clock of the closed system: fair sharing of all targets together, with applications that come back.
//!
//! Who is served sooner comes back sooner, so that more phases come than under fair sharing, and a clock of the phases that
//! come tells nothing of how late those would have been that came less often. Here an application's next phase begins so long
//! after the one before has ended *in the clock*, at all of its targets, as it took the application in reality: what it
//! computed in between. That makes the clock the closed system under fair sharing, where sizes and these times are what they are
//! under any schedule. Reality is ahead of it, and its parts are at first *early*: still to come in the clock.
//!
//! The clock of each target stays with its [`FairFinishTarget`](super::FairFinishTarget); this is what leads them, for the end of a phase
//! at one target tells when the next one comes to others. O(log n) for each part that comes or is done in the clock, with n
//! parts and applications. Memory grows with the lead: there are the phases that reality has begun and the clock
//! has not ended, as many as all phases of all applications at most.

use super::{FairClock, PartId};
use isonomia_units::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// When a phase ends later in reality than in the clock by no more than this, rounding did it.
const ROUNDING: Nanos = Nanos::from_micros(1);

/// How long after the one before a phase begins, in the clock as in reality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// Before this the time does not begin: when the run was submitted, say.
    pub not_before: Nanos,
    /// What passes then, or when the phase before has ended if that is later.
    pub time: Nanos,
}

/// How phases ended in reality that have ended in the clock as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// All of them.
    pub phases: u64,
    /// Those that ended later than in the clock, by more than a microsecond.
    pub late: u64,
}

/// What leads the clocks of all targets. An application is known by its key, and is in one phase at a time. Every call takes the same
/// targets, in the same order: a target's number is its index.
#[derive(Clone, Debug)]
pub struct ClosedClock<K> {
    chains: BTreeMap<K, Chain>,
    /// Whose first phase comes when.
    comes: BTreeSet<(Nanos, K)>,
    /// When which target's clock finishes its next part, where it has one.
    ends: BTreeSet<(Nanos, u32)>,
    targets: Vec<Target<K>>,
    changed: BTreeSet<u32>,
    ended: Ended,
}

#[derive(Clone, Debug)]
struct Target<K> {
    /// Its position in [`ClosedClock::ends`].
    next_end: Option<Nanos>,
    owners: BTreeMap<PartId, K>,
}

/// An application's phases that have begun in reality and have not ended in both.
#[derive(Clone, Debug, Default)]
struct Chain {
    phases: VecDeque<Phase>,
    /// When the one before these ended in the clock.
    end: Nanos,
}

#[derive(Clone, Debug)]
struct Phase {
    think: Think,
    parts: Vec<(u32, PartId)>,
    has_come: bool,
    /// When it ended in reality.
    end: Option<Nanos>,
}

impl<K: Ord + Copy> ClosedClock<K> {
    /// A clock of this many targets.
    pub fn new(targets: usize) -> Self {
        let target = Target { next_end: None, owners: BTreeMap::new() };
        Self {
            chains: BTreeMap::new(),
            comes: BTreeSet::new(),
            ends: BTreeSet::new(),
            targets: vec![target; targets],
            changed: BTreeSet::new(),
            ended: Ended::default(),
        }
    }

    /// When something happens in the clock next, if nothing happens in reality before.
    pub fn next_change(&self) -> Option<Nanos> {
        let first = [self.comes.first().map(|(at, _)| *at), self.ends.first().map(|(at, _)| *at)];
        first.into_iter().flatten().min()
    }

    /// The targets at which a part has come or ended in the clock since the last call: they have to decide anew.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// How phases ended.
    pub fn ended(&self) -> Ended {
        self.ended
    }

    /// Lets time pass to `now`; it never runs backwards.
    pub fn advance<T: AsMut<FairClock>>(&mut self, now: Nanos, targets: &mut [T]) {
        loop {
            let come = self.comes.first().map_or(Nanos::MAX, |(at, _)| *at);
            let end = self.ends.first().map_or(Nanos::MAX, |(at, _)| *at);
            if come.min(end) > now {
                return;
            }
            if end <= come {
                let Some((at, target)) = self.ends.pop_first() else { return };
                self.targets[target as usize].next_end = None;
                self.pass(at, target, targets);
                self.settle(at, target, targets);
            } else {
                let Some((at, key)) = self.comes.pop_first() else { return };
                self.admit(at, key, targets);
            }
        }
    }

    /// The same, and one target's own clock is there as well, of which what was served can then be asked.
    pub fn advance_target<T: AsMut<FairClock>>(&mut self, now: Nanos, target: u32, targets: &mut [T]) {
        self.advance(now, targets);
        self.pass(now, target, targets);
        self.settle(now, target, targets);
        self.advance(now, targets);
    }

    /// What was told of parts at this target has changed, or one of them has left.
    pub fn settle<T: AsMut<FairClock>>(&mut self, now: Nanos, target: u32, targets: &mut [T]) {
        // What is due at once comes a nanosecond later, so that rounding cannot make it come for ever.
        let next = targets[target as usize].as_mut().next_done().map(|next| next.max(now + Nanos(1)));
        let known = std::mem::replace(&mut self.targets[target as usize].next_end, next);
        if known != next {
            known.map(|known| self.ends.remove(&(known, target)));
            next.map(|next| self.ends.insert((next, target)));
        }
    }

    /// The application's next phase begins in reality: after `think`, with for each of its targets, which differ, the weight there and what is
    /// told, more than 0. Gives what each part is called in its target's clock.
    pub fn begin<T: AsMut<FairClock>>(
        &mut self,
        now: Nanos,
        key: K,
        think: Think,
        parts: &[(u32, f64, f64)],
        targets: &mut [T],
    ) -> Vec<PartId> {
        let mut ids = Vec::with_capacity(parts.len());
        for &(target, weight, told) in parts {
            let id = targets[target as usize].as_mut().expect(weight, told);
            self.targets[target as usize].owners.insert(id, key);
            ids.push(id);
        }
        let parts = parts.iter().zip(&ids).map(|(&(target, ..), &id)| (target, id)).collect();
        let phases = &mut self.chains.entry(key).or_default().phases;
        phases.push_back(Phase { think, parts, has_come: false, end: None });
        if phases.len() == 1 {
            self.expect(now, key);
            self.advance(now, targets);
        }
        ids
    }

    /// The application's phase has ended in reality, and its parts have left their targets.
    pub fn end<T: AsMut<FairClock>>(&mut self, now: Nanos, key: K, targets: &mut [T]) {
        if let Some(phase) = self.chains.get_mut(&key).and_then(|chain| chain.phases.back_mut()) {
            phase.end = Some(now);
        }
        self.judge(now, key, targets);
    }

    /// Lets time pass in one target's clock.
    fn pass<T: AsMut<FairClock>>(&mut self, now: Nanos, target: u32, targets: &mut [T]) {
        let mut done = Vec::new();
        targets[target as usize].as_mut().advance(now, |id, _| done.push(id));
        for id in done {
            self.changed.insert(target);
            if let Some(key) = self.targets[target as usize].owners.get(&id).copied() {
                self.judge(now, key, targets);
            }
        }
    }

    /// The application's first phase comes.
    fn admit<T: AsMut<FairClock>>(&mut self, now: Nanos, key: K, targets: &mut [T]) {
        let Some(phase) = self.chains.get_mut(&key).and_then(|chain| chain.phases.front_mut()) else { return };
        phase.has_come = true;
        for (target, id) in phase.parts.clone() {
            self.pass(now, target, targets);
            targets[target as usize].as_mut().admit(id);
            self.changed.insert(target);
            self.settle(now, target, targets);
        }
    }

    /// It is known now when the application's first phase comes. One that is late in reality comes when it comes there.
    fn expect(&mut self, now: Nanos, key: K) {
        let Some(chain) = self.chains.get(&key) else { return };
        if let Some(Phase { think, .. }) = chain.phases.front() {
            let at = chain.end.max(think.not_before) + think.time;
            self.comes.insert((at.max(now), key));
        }
    }

    /// Looks whether the application's first phase has ended in the clock and in reality: before that its sizes are not known.
    fn judge<T: AsMut<FairClock>>(&mut self, now: Nanos, key: K, targets: &mut [T]) {
        let Some(chain) = self.chains.get_mut(&key) else { return };
        let Some(phase) = chain.phases.front().filter(|phase| phase.has_come) else { return };
        let Some(real_end) = phase.end else { return };
        let done = |(target, id): &(u32, PartId)| targets[*target as usize].as_mut().done(*id);
        let Some(end) = phase.parts.iter().map(done).try_fold(Nanos::ZERO, |end, done| Some(end.max(done?))) else {
            return;
        };
        for (target, id) in &phase.parts {
            targets[*target as usize].as_mut().release(*id);
            self.targets[*target as usize].owners.remove(id);
        }
        self.ended.phases += 1;
        self.ended.late += u64::from(real_end > end + ROUNDING);
        chain.phases.pop_front();
        chain.end = end;
        self.expect(now, key);
    }
}
