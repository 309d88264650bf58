//! The fair clock of one target: when fair sharing would have finished what came to it.
//!
//! A *part* is what one I/O phase has to do at one target. In the clock each part that has come is served at its
//! weight's share of the target until it has had its size there, whatever happens to it in reality: what was served
//! sooner in reality stays in the clock until its time has come. Virtual time is the service that a part of weight 1
//! would have had; it passes at the target's capacity over the weight of the parts in the clock, so a part's position in
//! the order in which the clock finishes is known when it comes and never changes: V(coming) + size / weight.
//! (Parekh and Gallager, *A generalized processor sharing approach to flow control*, 1993.)
//!
//! O(log n) for whatever comes, changes, or is done, with n parts in the clock, but O(n) where somebody leaves who had a million times the
//! weight of all others; O(1) for questions.

use isonomia_units::Nanos;
use std::collections::BTreeSet;

/// Where what stays of the sum of weights is less than this part of what goes, it may be rounding.
const CANCELLED: f64 = 1e-6;

/// A part in a [`FairClock`]; valid until it is released and done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId(u32);

/// A number that is not NaN, in its order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tag(f64);

#[derive(Clone, Copy, Debug)]
struct Part {
    /// Virtual time when it would have begun with all that it has had there.
    begun: f64,
    size: f64,
    weight: f64,
    /// Virtual time when it will have had its size: `begun + size / weight`.
    tag: f64,
    state: State,
    is_released: bool,
}

/// Where a part is in its clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    /// It is still to come.
    Expected,
    /// Its position in the order in which the clock finishes.
    Here(f64),
    /// The clock has finished it.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// It is still to come.
    Expected,
    Here,
    /// The clock finished it then.
    Done(Nanos),
}

/// Fair sharing of one target, of everything that came to it.
#[derive(Clone, Debug)]
pub struct FairClock {
    capacity: f64,
    /// Up to when it has passed, in seconds: no rounding of the ends that it tells adds up.
    now_s: f64,
    virtual_time: f64,
    /// Of the parts that are not done here.
    weight: f64,
    parts: Vec<Part>,
    vacant: Vec<u32>,
    order: BTreeSet<(Tag, u32)>,
}

impl FairClock {
    /// The clock of a target that serves `capacity`, more than 0, units of size in a second.
    pub fn new(capacity: f64) -> Self {
        Self {
            capacity,
            now_s: 0.0,
            virtual_time: 0.0,
            weight: 0.0,
            parts: Vec::new(),
            vacant: Vec::new(),
            order: BTreeSet::new(),
        }
    }

    /// Lets time pass to `now`; tells `done` each part that the clock finishes, and when, rounded up.
    pub fn advance(&mut self, now: Nanos, mut done: impl FnMut(PartId, Nanos)) {
        let now_s = now.as_secs_f64();
        while let Some(&(Tag(tag), at)) = self.order.first() {
            let end_s = self.time_of(tag);
            if end_s > now_s {
                self.virtual_time += (now_s - self.now_s).max(0.0) * self.capacity / self.weight;
                break;
            }
            self.order.pop_first();
            (self.now_s, self.virtual_time) = (end_s, self.virtual_time.max(tag));
            self.leave(at);
            let end = nanos(end_s);
            done(PartId(at), end);
            let part = &mut self.parts[at as usize];
            part.state = State::Done(end);
            if part.is_released {
                self.vacant.push(at);
            }
        }
        self.now_s = self.now_s.max(now_s);
    }

    /// A part comes now: `size` to do, more than 0, by somebody of this `weight`, more than 0.
    pub fn arrive(&mut self, weight: f64, size: f64) -> PartId {
        let id = self.expect(weight, size);
        self.admit(id);
        id
    }

    /// The same of a part that is still to come: nothing is served of it before it is [admitted](Self::admit).
    pub fn expect(&mut self, weight: f64, size: f64) -> PartId {
        let part = Part::new(0.0, size, weight, State::Expected);
        let at = self.vacant.pop().unwrap_or(self.parts.len() as u32);
        if at as usize == self.parts.len() {
            self.parts.push(part);
        } else {
            self.parts[at as usize] = part;
        }
        PartId(at)
    }

    /// A part that was expected comes now.
    pub fn admit(&mut self, id: PartId) {
        if self.order.is_empty() {
            // Nobody is there whom an origin would mean anything to; so sums stay small, and exact.
            (self.virtual_time, self.weight) = (0.0, 0.0);
        }
        let part = &mut self.parts[id.0 as usize];
        *part =
            Part { is_released: part.is_released, ..Part::new(self.virtual_time, part.size, part.weight, State::Here) };
        self.enter(id.0);
    }

    /// The part has another size than was said. What the clock gave it, it keeps; one that has had more than `size` is
    /// done now.
    pub fn resize(&mut self, id: PartId, size: f64) {
        let served = self.served(id);
        let part = self.parts[id.0 as usize];
        match part.state {
            State::Expected => {
                self.parts[id.0 as usize] =
                    Part { is_released: part.is_released, ..Part::new(0.0, size, part.weight, part.state) };
                return;
            }
            State::Done(_) if size <= served => return,
            State::Done(_) => {}
            State::Here => {
                self.order.remove(&(Tag(part.tag), id.0));
                self.leave(id.0);
            }
        }
        let begun = self.virtual_time - served / part.weight;
        let resized = Part::new(begun, size.max(served), part.weight, State::Here);
        self.parts[id.0 as usize] = Part { is_released: part.is_released, ..resized };
        self.enter(id.0);
    }

    /// What was said of the part last.
    pub fn size(&self, id: PartId) -> f64 {
        self.parts[id.0 as usize].size
    }

    /// Nobody will ask for the part any more. The clock goes on serving it.
    pub fn release(&mut self, id: PartId) {
        let part = &mut self.parts[id.0 as usize];
        part.is_released = true;
        if matches!(part.state, State::Done(_)) {
            self.vacant.push(id.0);
        }
    }

    /// Where the part is in the order in which the clock finishes: the least is first.
    pub fn tag(&self, id: PartId) -> f64 {
        self.parts[id.0 as usize].tag
    }

    /// The same, and whether it has come and is done.
    pub(super) fn standing(&self, id: PartId) -> Standing {
        let part = &self.parts[id.0 as usize];
        match part.state {
            State::Expected => Standing::Expected,
            State::Here => Standing::Here(part.tag),
            State::Done(_) => Standing::Done,
        }
    }

    /// What fair sharing has served of the part.
    pub fn served(&self, id: PartId) -> f64 {
        let part = &self.parts[id.0 as usize];
        match part.state {
            State::Expected => 0.0,
            State::Done(_) => part.size,
            State::Here => ((self.virtual_time - part.begun) * part.weight).clamp(0.0, part.size),
        }
    }

    /// What fair sharing serves of the part in a second, as long as nobody comes or is done: 0 if it is done.
    pub fn rate(&self, id: PartId) -> f64 {
        let part = &self.parts[id.0 as usize];
        if part.state == State::Here { part.weight * self.capacity / self.weight } else { 0.0 }
    }

    /// The sum of the weights of the parts that the clock has not finished.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Whether the part has come.
    pub fn has_come(&self, id: PartId) -> bool {
        self.parts[id.0 as usize].state != State::Expected
    }

    /// When the clock finished the part, if it has.
    pub fn done(&self, id: PartId) -> Option<Nanos> {
        match self.parts[id.0 as usize].state {
            State::Done(at) => Some(at),
            State::Expected | State::Here => None,
        }
    }

    /// When the clock finishes the next part, if nobody comes before.
    pub fn next_done(&self) -> Option<Nanos> {
        self.order.first().map(|(tag, _)| nanos(self.time_of(tag.0)))
    }

    /// When virtual time gets to `tag`, in seconds.
    fn time_of(&self, tag: f64) -> f64 {
        self.now_s + (tag - self.virtual_time).max(0.0) * self.weight / self.capacity
    }

    fn enter(&mut self, at: u32) {
        let part = &self.parts[at as usize];
        self.weight += part.weight;
        self.order.insert((Tag(part.tag), at));
    }

    /// A part is no longer in the order.
    fn leave(&mut self, at: u32) {
        let weight = self.parts[at as usize].weight;
        self.weight -= weight;
        if self.weight < weight * CANCELLED {
            self.weight = self.order.iter().map(|(_, at)| self.parts[*at as usize].weight).sum();
        }
    }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).ceil() as u64)
}

impl Part {
    fn new(begun: f64, size: f64, weight: f64, state: State) -> Self {
        Self { begun, size, weight, tag: begun + size / weight, state, is_released: false }
    }
}

impl Eq for Tag {}

impl PartialOrd for Tag {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tag {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    /// Two parts of 4 and one of 2 that comes at 4, then all is told again.
    #[test]
    fn fair_sharing_by_hand() {
        let mut clock = FairClock::new(1.0);
        let mut ends = Vec::new();
        let (a, b) = (clock.arrive(1.0, 4.0), clock.arrive(1.0, 4.0));
        clock.advance(s(4), |_, _| unreachable!("each has had 2"));
        assert_eq!((clock.served(a), clock.rate(a), clock.next_done()), (2.0, 0.5, Some(s(8))));
        let c = clock.arrive(2.0, 2.0);
        assert!(clock.tag(c) < clock.tag(a));
        clock.advance(s(20), |id, at| ends.push((id, at)));
        // c has half of the target for 4 s, then a and b half each for the second that each has left.
        assert_eq!(ends, [(c, s(8)), (a, s(10)), (b, s(10))]);
        assert_eq!((clock.served(b), clock.rate(b), clock.done(b)), (4.0, 0.0, Some(s(10))));
    }

    /// 1 is nothing beside the other's weight, and all that there is without it.
    #[test]
    fn who_is_left_after_somebody_of_a_huge_weight_has_the_whole_target() {
        let mut clock = FairClock::new(1.0);
        let (huge, small) = (clock.arrive(1e17, 1.0), clock.arrive(1.0, 1.0));
        clock.advance(Nanos::from_millis(1_500), |id, _| assert_eq!(id, huge));
        assert!(clock.done(huge).is_some());
        assert_eq!((clock.weight(), clock.rate(small), clock.served(small)), (1.0, 1.0, 0.5));
        clock.advance(s(4), |id, at| assert_eq!((id, at), (small, s(2))));
    }

    #[test]
    fn a_part_is_as_large_as_was_said_last() {
        let mut clock = FairClock::new(2.0);
        let (a, b) = (clock.arrive(1.0, 10.0), clock.arrive(1.0, 3.0));
        clock.advance(s(4), |id, at| assert_eq!((id, at), (b, s(3))));
        assert_eq!((clock.served(a), clock.rate(a)), (5.0, 2.0));
        clock.resize(a, 4.0);
        assert_eq!(clock.next_done(), Some(s(4)), "it has had that");
        // b was not done after all: it goes on where it was.
        clock.resize(b, 5.0);
        clock.resize(a, 9.0);
        assert_eq!((clock.served(a), clock.served(b), clock.rate(b)), (5.0, 3.0, 1.0));
        clock.release(a);
        clock.release(b);
        let mut ends = Vec::new();
        clock.advance(s(9), |id, at| ends.push((id, at)));
        assert_eq!(ends, [(b, s(6)), (a, s(7))]);
        let reused = [clock.arrive(1.0, 1.0), clock.arrive(1.0, 1.0)];
        assert!(reused.contains(&a) && reused.contains(&b));
    }
}
