//! One target under fair finish. What it decides depends on nothing that happens at other targets.

use super::clock::Standing;
use super::{BadGuarantee, FIRST_TOLD_S, FairClock, GROWTH, GROWTH_UNKNOWN, NOTHING_S, PartId};
use isonomia_units::Nanos;
use std::collections::BTreeMap;

/// Accounts below which it is not worth looking for those that are over.
const ACCOUNTS_KEPT_MIN: usize = 16;

/// A target: its fair clock, and what was told and served of the parts that are not done. A part is known by the key of its
/// application; sizes are in seconds of a target of capacity 1.
#[derive(Clone, Debug)]
pub struct FairFinishTarget<K> {
    guarantee: f64,
    capacity: f64,
    clock: FairClock,
    /// By key.
    parts: Vec<Part<K>>,
    phases: Phases<K>,
    /// Up to when it has passed.
    now: Nanos,
    next_change: Option<Nanos>,
}

/// When an application's next phase begins in the clock.
#[derive(Clone, Debug)]
enum Phases<K> {
    /// When it comes.
    Open,
    /// When the one before is done there.
    Accounts(Accounts<K>),
    /// When a [`ClosedClock`](super::ClosedClock) says so, which lets the clock's time pass.
    Closed,
}

/// What the clock still serves of phases that are done.
#[derive(Clone, Debug)]
struct Accounts<K> {
    parts: BTreeMap<K, PartId>,
    /// As many are looked through for those that are over.
    cleared_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Part<K> {
    key: K,
    id: PartId,
    weight: f64,
    told: f64,
    growth: f64,
    /// What the clock serves of earlier phases before it.
    before: f64,
    served: f64,
    rate: f64,
}

impl<K: Ord + Clone> FairFinishTarget<K> {
    /// A target of this `capacity`, more than 0, that keeps `guarantee`, 0 to 1, of what fair sharing would have served.
    ///
    /// # Errors
    /// The guarantee is no part.
    pub fn new(guarantee: f64, capacity: f64) -> Result<Self, BadGuarantee> {
        if !(0.0..=1.0).contains(&guarantee) {
            return Err(BadGuarantee(guarantee));
        }
        Ok(Self {
            guarantee,
            capacity,
            clock: FairClock::new(capacity),
            parts: Vec::new(),
            phases: Phases::Open,
            now: Nanos::ZERO,
            next_change: None,
        })
    }

    /// The same with an account for each application; see [`FairFinish::with_accounts`](super::FairFinish::with_accounts).
    #[must_use]
    pub fn with_accounts(self) -> Self {
        Self { phases: Phases::Accounts(Accounts { parts: BTreeMap::new(), cleared_at: ACCOUNTS_KEPT_MIN }), ..self }
    }

    /// The same with a clock that a [`ClosedClock`](super::ClosedClock) leads: it is let pass first, whenever time does here; parts come by
    /// [`Self::come_expected`]; and it is to [settle](super::ClosedClock::settle) after each division, and after who left.
    #[must_use]
    pub fn with_closed_clock(self) -> Self {
        Self { phases: Phases::Closed, ..self }
    }

    /// Lets time pass to `now`, with the rates of the last division. It never runs backwards.
    pub fn advance(&mut self, now: Nanos) {
        let seconds = now.since(self.now).as_secs_f64();
        self.now = now;
        if !matches!(self.phases, Phases::Closed) {
            self.clock.advance(now, |_, _| {});
        }
        for part in &mut self.parts {
            part.served = (part.served + part.rate * seconds).min(part.told);
        }
    }

    /// A part comes now, of which `told` is told, more than 0; an application has one at a time. While its account is open the
    /// application keeps the weight there that it had. O(n) for n parts, of which all but O(log n) is moving memory.
    pub fn come(&mut self, key: K, weight: f64, told: Option<f64>) {
        let (told, growth) = told.map_or((FIRST_TOLD_S, GROWTH_UNKNOWN), |told| (told, GROWTH));
        let clock = &mut self.clock;
        let account = match &mut self.phases {
            Phases::Accounts(accounts) => accounts.parts.remove(&key),
            Phases::Open | Phases::Closed => None,
        };
        let (id, before) = match account {
            Some(id) if clock.done(id).is_none() => {
                let before = clock.size(id);
                clock.resize(id, before + told);
                (id, before)
            }
            Some(id) => {
                clock.release(id);
                (clock.arrive(weight, told), 0.0)
            }
            None => (clock.arrive(weight, told), 0.0),
        };
        self.add(Part { key, id, weight, told, growth, before, served: 0.0, rate: 0.0 });
    }

    /// The same of a part that the clock has under this name, in which it may be still to come.
    pub fn come_expected(&mut self, key: K, id: PartId, weight: f64, told: Option<f64>) {
        let (told, growth) = told.map_or((FIRST_TOLD_S, GROWTH_UNKNOWN), |told| (told, GROWTH));
        self.add(Part { key, id, weight, told, growth, before: 0.0, served: 0.0, rate: 0.0 });
    }

    fn add(&mut self, part: Part<K>) {
        let at = self.parts.partition_point(|other| other.key < part.key);
        self.parts.insert(at, part);
    }

    /// A part is done: now it is known how long it was. Nothing happens if there is none. As fast as [`Self::come`].
    pub fn leave(&mut self, key: &K) {
        let Ok(at) = self.parts.binary_search_by(|part| part.key.cmp(key)) else { return };
        let part = self.parts.remove(at);
        self.clock.resize(part.id, part.before + part.served);
        match &mut self.phases {
            Phases::Open => self.clock.release(part.id),
            Phases::Accounts(accounts) => accounts.open(part.key, part.id, &mut self.clock),
            // The next phase begins by the end of this one.
            Phases::Closed => {}
        }
    }

    /// Decides anew, after all that came and left. O(n).
    pub fn divide(&mut self) {
        let clock = &mut self.clock;
        for part in self.parts.iter_mut().filter(|part| part.served > part.told - NOTHING_S) {
            // It has received all that was told and is not done.
            part.told *= part.growth;
            clock.resize(part.id, part.before + part.told);
        }
        let (clock, guarantee) = (&self.clock, self.guarantee);
        let mut overdue_weight = 0.0;
        let mut first: Option<(f64, usize)> = None;
        let mut early: Option<(f64, usize)> = None;
        for (at, part) in self.parts.iter().enumerate() {
            match clock.standing(part.id) {
                Standing::Expected => {
                    let left = part.told - part.served;
                    if early.is_none_or(|(least, _)| left < least) {
                        early = Some((left, at));
                    }
                }
                Standing::Here(tag) => {
                    if first.is_none_or(|(least, _)| tag < least) {
                        first = Some((tag, at));
                    }
                }
                Standing::Done => overdue_weight += part.weight,
            }
        }
        let first = first.or(early).map(|(_, at)| at).filter(|_| overdue_weight == 0.0);
        let mut left = self.capacity;
        // When somebody is down to his floor, and how far the first is above his, if he is.
        let mut change_s = f64::INFINITY;
        let mut first_above = None;
        for (at, part) in self.parts.iter_mut().enumerate() {
            part.rate = 0.0;
            if guarantee == 0.0 {
                continue;
            }
            let floor = guarantee * clock.rate(part.id);
            if floor == 0.0 {
                continue;
            }
            let ahead = part.served - guarantee * (clock.served(part.id) - part.before);
            if ahead <= NOTHING_S {
                // What is overdue has a part of what would be the others' in the clock.
                part.rate = floor * (clock.weight() / (clock.weight() + overdue_weight));
                left -= part.rate;
            } else if Some(at) == first {
                first_above = Some((ahead, floor));
            } else {
                change_s = change_s.min(ahead / floor);
            }
        }
        let left = left.max(0.0);
        if overdue_weight > 0.0 {
            for part in self.parts.iter_mut().filter(|part| clock.done(part.id).is_some()) {
                part.rate = left * part.weight / overdue_weight;
            }
        } else if let Some(at) = first {
            self.parts[at].rate += left;
            if let Some((ahead, floor)) = first_above.filter(|(_, floor)| *floor > left) {
                change_s = change_s.min(ahead / (floor - left));
            }
        }
        let working = self.parts.iter().filter(|part| part.rate > 0.0);
        let told_s = working.map(|part| (part.told - part.served) / part.rate);
        self.next_change = self.next_change_after(told_s.fold(change_s, f64::min));
    }

    /// The rates of the parts by the last division, by key.
    pub fn rates(&self) -> impl ExactSizeIterator<Item = (&K, f64)> {
        self.parts.iter().map(|part| (&part.key, part.rate))
    }

    /// When the last division has to be made anew although nobody comes or is done.
    pub fn next_change(&self) -> Option<Nanos> {
        self.next_change
    }

    /// When that is, if the rates hold for so many seconds.
    fn next_change_after(&self, seconds: f64) -> Option<Nanos> {
        let mut next = Nanos::MAX;
        if seconds < f64::INFINITY {
            next = self.now + Nanos((seconds * 1e9).ceil() as u64).max(Nanos(1));
        }
        if self.guarantee > 0.0 && !self.parts.is_empty() {
            // What the fair clock gives, and so the floor, changes whenever it finishes somebody.
            next = self.clock.next_done().map_or(next, |end| next.min(end.max(self.now + Nanos(1))));
        }
        (next < Nanos::MAX).then_some(next)
    }
}

impl<K> AsMut<FairClock> for FairFinishTarget<K> {
    fn as_mut(&mut self) -> &mut FairClock {
        &mut self.clock
    }
}

impl<K: Ord> Accounts<K> {
    /// What the clock still serves of a part that is done. Those that are over are thrown away now and then.
    fn open(&mut self, key: K, part: PartId, clock: &mut FairClock) {
        self.parts.insert(key, part);
        if self.parts.len() >= self.cleared_at {
            self.parts.retain(|_, part| {
                let is_over = clock.done(*part).is_some();
                if is_over {
                    clock.release(*part);
                }
                !is_over
            });
            self.cleared_at = (2 * self.parts.len()).max(ACCOUNTS_KEPT_MIN);
        }
    }
}
