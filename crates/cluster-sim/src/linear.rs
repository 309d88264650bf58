//! Whether a history of operations on volumes is linearizable: whether each can be given a moment between its call and its
//! return, such that a file system that does one after the other gives the same answers.
//!
//! The search is Wing and Gong's (*Testing and verifying concurrent objects*, 1993) with Lowe's memory of what was tried
//! (*Testing for linearizability*, 2017). Operations without an answer may have happened at any moment after their call, or never;
//! no library that we know treats those.

use isonomia_units::Nanos;
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// More than these operations of one history are not searched.
pub const OPERATIONS_MAX: usize = 128;
/// After so many steps the search is given up.
const STEPS_MAX: u64 = 300_000;

/// A file system that does one operation after the other.
pub trait State: Clone + Eq + Hash {
    /// What is asked.
    type Asked: Debug;
    /// What is answered.
    type Result: Debug;

    /// The state after operation `index` of the history, if `result` is what it gives here; `None` for whatever it gives.
    fn apply(&self, index: usize, asked: &Self::Asked, result: Option<&Self::Result>) -> Outcome<Self>;
}

/// What comes of an operation.
pub enum Outcome<S> {
    /// The answer fits, and this is the state afterwards.
    Fits(S),
    /// Another answer would be right.
    Differs,
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Operation<O, R> {
    /// When it was called.
    pub called: Nanos,
    /// When it returned, and what; `None` if nobody knows whether it happened.
    pub returned: Option<(Nanos, R)>,
    /// What was asked.
    pub asked: O,
}

/// What came of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none; so many operations could be put in order at most.
    Not(usize),
    /// Too many to try.
    Undecided,
}

/// Looks for an order of `history` that begins in `initial`.
pub fn check<S: State>(initial: S, history: &[Operation<S::Asked, S::Result>]) -> Verdict {
    let mut history: Vec<_> = history.iter().collect();
    if history.len() > OPERATIONS_MAX {
        return Verdict::Undecided;
    }
    // What returned first is tried first, and what may never have happened last.
    history.sort_by_key(|operation| operation.returned.as_ref().map_or(Nanos::MAX, |(at, _)| *at));
    let answered = history.iter().take_while(|operation| operation.returned.is_some()).count();
    let needed = mask(answered);
    let mut tried = HashSet::new();
    let mut stack = vec![(0_u128, initial)];
    let (mut steps, mut longest) = (0, 0);
    while let Some((done, state)) = stack.pop() {
        if done & needed == needed {
            return Verdict::Linearizable;
        }
        steps += 1;
        if steps > STEPS_MAX {
            return Verdict::Undecided;
        }
        longest = longest.max((done & needed).count_ones() as usize);
        // Nothing can come before what returned before it was called.
        let first_return = (0..answered).find(|index| done & (1 << index) == 0);
        let first_return =
            first_return.and_then(|index| history[index].returned.as_ref()).map_or(Nanos::MAX, |(at, _)| *at);
        for index in (0..history.len()).rev() {
            let operation = history[index];
            if done & (1 << index) != 0 || operation.called > first_return {
                continue;
            }
            let result = operation.returned.as_ref().map(|(_, result)| result);
            if let Outcome::Fits(next) = state.apply(index, &operation.asked, result) {
                let done = done | 1 << index;
                if tried.insert((done, next.clone())) {
                    stack.push((done, next));
                }
            }
        }
    }
    Verdict::Not(longest)
}

fn mask(bits: usize) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Register(u8);

    #[derive(Clone, Debug)]
    enum Asked {
        Write(u8),
        Read,
    }

    impl State for Register {
        type Asked = Asked;
        type Result = u8;

        fn apply(&self, _: usize, asked: &Asked, result: Option<&u8>) -> Outcome<Self> {
            match asked {
                Asked::Write(value) => Outcome::Fits(Self(*value)),
                Asked::Read if result.is_none_or(|result| *result == self.0) => Outcome::Fits(self.clone()),
                Asked::Read => Outcome::Differs,
            }
        }
    }

    fn verdict(history: &[(u64, Option<u64>, Asked, u8)]) -> Verdict {
        let operation = |(called, returned, asked, result): &(u64, Option<u64>, Asked, u8)| Operation {
            called: Nanos(*called),
            returned: returned.map(|at| (Nanos(at), *result)),
            asked: asked.clone(),
        };
        check(Register(0), &history.iter().map(operation).collect::<Vec<_>>())
    }

    #[test]
    fn what_returned_before_is_seen() {
        use Asked::{Read, Write};
        assert_eq!(verdict(&[(0, Some(1), Write(1), 0), (2, Some(3), Read, 1)]), Verdict::Linearizable);
        assert_eq!(verdict(&[(0, Some(1), Write(1), 0), (2, Some(3), Read, 0)]), Verdict::Not(1));
        assert_eq!(verdict(&[(0, Some(5), Write(1), 0), (2, Some(3), Read, 0)]), Verdict::Linearizable);
        // Once seen, it stays.
        let seen = [(0, Some(9), Write(1), 0), (2, Some(3), Read, 1), (4, Some(5), Read, 0)];
        assert!(matches!(verdict(&seen), Verdict::Not(_)));
    }

    #[test]
    fn what_had_no_answer_happened_once_or_never_and_not_before_it_was_called() {
        use Asked::{Read, Write};
        assert_eq!(verdict(&[(0, None, Write(1), 0), (2, Some(3), Read, 0)]), Verdict::Linearizable);
        let late = [(0, None, Write(1), 0), (2, Some(3), Read, 0), (4, Some(5), Read, 1)];
        assert_eq!(verdict(&late), Verdict::Linearizable);
        let early = [(6, None, Write(1), 0), (2, Some(3), Read, 1)];
        assert!(matches!(verdict(&early), Verdict::Not(_)));
        let twice = [
            (0, None, Write(1), 0),
            (2, Some(3), Read, 1),
            (4, Some(5), Write(2), 0),
            (6, Some(7), Read, 2),
            (8, Some(9), Read, 1),
        ];
        assert!(matches!(verdict(&twice), Verdict::Not(_)));
    }
}
