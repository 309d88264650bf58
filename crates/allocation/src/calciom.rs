//! CALCioM: applications agree on whose I/O phase goes first, and let one another interfere where that costs less.
//!
//! M. Dorier, G. Antoniu, R. Ross, D. Kimpe, S. Ibrahim: *CALCioM: Mitigating I/O Interference in HPC Systems through
//! Cross-Application Coordination*, IPDPS 2014, §III-A (the four strategies) and §IV-D (the dynamic choice). Applications
//! that want the storage are in a queue. An application has *access* when nobody before it in the queue uses one of its targets;
//! then it has all of them whole. A newcomer's position is
//!
//! * [`Strategy::Serialize`]: the last. Nobody is ever interrupted.
//! * [`Strategy::Interrupt`]: the first. Who was served pauses, and goes on when the newcomer is done.
//! * [`Strategy::Interfere`]: there is no queue; every target is shared by weight.
//! * [`Strategy::Dynamic`]: the one with the least *f*, the sum over all applications of nodes times the time until
//!   the end of the phase (§IV-D: computing time lost in I/O). Of equal ones it is the last, so that nobody is interrupted for nothing. At each
//!   decision *f* of the queue is compared with that of sharing, and if sharing loses less, everybody shares until the
//!   next decision.
//!
//! For two applications A and B of n(A) and n(B) nodes, of which B comes when A has r left to do, and B needs b: A is interrupted
//! if and only if n(A) b < n(B) r. That is the paper's condition, which it derives for n(A) = n(B).
//!
//! Deviations, with their reasons:
//! * The paper coordinates access to one storage system, and leaves applications that share only some of their targets to
//!   future work. Here two applications are in each other's way where they share a target. An application that waits keeps others from
//!   passing it at its targets: otherwise one with many targets might wait for ever.
//! * Interruption takes effect at the decision, not between two files or two rounds of collective buffering.
//! * The paper measures how applications interfere; here sharing is expected to cost what it costs in the fluid model, each target for
//!   itself. Under [`Progress::MinRate`] that is an estimate from below.
//! * Messages cost nothing.
//!
//! Not work-conserving: a target waits with its application for that application's other targets. Somebody has access
//! whenever somebody has something to do.

use crate::fair::{bsip_shares, per_target_shares};
use crate::{Allocation, App, Problem, Progress};
use isonomia_units::Nanos;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// Where a newcomer stands in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Behind everybody: first come, first served.
    Serialize,
    /// Before everybody.
    Interrupt,
    /// There is no queue.
    Interfere,
    /// Where the least computing time is lost. Needs remaining bytes.
    #[default]
    Dynamic,
}

/// A strategy that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no strategy (allowed: serialize, interrupt, interfere, dynamic)")]
pub struct ParseStrategyError(String);

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    fn from_str(text: &str) -> Result<Self, ParseStrategyError> {
        Ok(match text {
            "serialize" => Self::Serialize,
            "interrupt" => Self::Interrupt,
            "interfere" => Self::Interfere,
            "dynamic" => Self::Dynamic,
            _ => return Err(ParseStrategyError(text.to_owned())),
        })
    }
}

/// The dynamic choice needs to know what remains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("application `{app}`: the bytes that remain at target `{target}` are unknown; the dynamic choice needs them")]
pub struct UnknownRemaining {
    /// The application.
    pub app: Arc<str>,
    /// The target.
    pub target: Arc<str>,
}

/// The coordination at work.
#[derive(Clone, Debug)]
pub struct Calciom {
    strategy: Strategy,
    progress: Progress,
    /// Phases in the order of access, each by its application's name and when it began.
    queue: Vec<(Arc<str>, Nanos)>,
}

impl Calciom {
    /// Nobody does I/O yet. `progress` is how progress is counted where applications share.
    pub fn new(strategy: Strategy, progress: Progress) -> Self {
        Self { strategy, progress, queue: Vec::new() }
    }

    /// Divides the targets among the phases of `problem`; a phase is told from another of its application by
    /// [`App::began`], and newcomers take their positions in the order of that, then of their names.
    ///
    /// O(d + n log n) for d demands of n applications; under [`Strategy::Dynamic`] O(n d) for each newcomer more.
    ///
    /// # Errors
    /// Under [`Strategy::Dynamic`] the bytes that remain somewhere are unknown.
    pub fn allocate(&mut self, problem: &Problem) -> Result<Allocation, UnknownRemaining> {
        let fair = bsip_shares(problem);
        if self.strategy == Strategy::Interfere {
            return Ok(Allocation::from_rates(problem, per_target_shares(problem), &fair, self.progress));
        }
        let seconds = if self.strategy == Strategy::Dynamic { loads(problem)? } else { Vec::new() };
        let order = self.settle(problem, &seconds);
        if self.strategy == Strategy::Dynamic && lost_by_sharing(problem, &seconds) < lost(problem, &seconds, &order) {
            return Ok(Allocation::from_rates(problem, per_target_shares(problem), &fair, self.progress));
        }
        let (start, capacities) = (problem.members.app_start(), problem.targets().capacities());
        let mut rates = vec![0.0; problem.members.app_targets().len()];
        let mut is_claimed = vec![false; capacities.len()];
        for app in order {
            let targets = problem.members.targets_of(app);
            let has_access = targets.iter().all(|&target| !is_claimed[target as usize]);
            for (at, &target) in targets.iter().enumerate() {
                is_claimed[target as usize] = true;
                if has_access {
                    rates[start[app] as usize + at] = capacities[target as usize];
                }
            }
        }
        Ok(Allocation::from_rates(problem, rates, &fair, self.progress))
    }

    /// The names of those who wait or have access, first the one that comes first.
    pub fn queue(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queue.iter().map(|(name, _)| name)
    }

    /// Takes out of the queue who is gone, and newcomers in; gives the order as positions in the problem.
    fn settle(&mut self, problem: &Problem, seconds: &[f64]) -> Vec<usize> {
        let positions: BTreeMap<&Arc<str>, usize> =
            problem.apps().iter().enumerate().map(|(at, app)| (&app.name, at)).collect();
        let at = |(name, began): &(Arc<str>, Nanos)| {
            positions.get(name).copied().filter(|&at| problem.apps()[at].began == *began)
        };
        let mut order: Vec<usize> = self.queue.iter().filter_map(at).collect();
        let mut is_known = vec![false; problem.apps().len()];
        order.iter().for_each(|&at| is_known[at] = true);
        let mut newcomers: Vec<usize> = (0..is_known.len()).filter(|&at| !is_known[at]).collect();
        newcomers.sort_by_key(|&at| problem.apps()[at].began);
        for newcomer in newcomers {
            let position = match self.strategy {
                Strategy::Interrupt => 0,
                Strategy::Dynamic => best_position(problem, seconds, &order, newcomer),
                Strategy::Serialize | Strategy::Interfere => order.len(),
            };
            order.insert(position, newcomer);
        }
        let entry = |&at: &usize| {
            let app = &problem.apps()[at];
            (app.name.clone(), app.began)
        };
        self.queue = order.iter().map(entry).collect();
        order
    }
}

/// The time that each demand needs of its whole target, in bytes over capacity.
fn loads(problem: &Problem) -> Result<Vec<f64>, UnknownRemaining> {
    let targets = problem.targets();
    let load = |(app, demand): (&App, &crate::Demand)| match demand.remaining {
        Some(bytes) => Ok(bytes.0 as f64 / targets.capacity(demand.target)),
        None => Err(UnknownRemaining { app: app.name.clone(), target: targets.name(demand.target).clone() }),
    };
    problem.apps().iter().flat_map(|app| app.demands.iter().map(move |demand| (app, demand))).map(load).collect()
}

/// Where the newcomer costs least, the last such position.
fn best_position(problem: &Problem, seconds: &[f64], order: &[usize], newcomer: usize) -> usize {
    let mut with = order.to_vec();
    with.push(newcomer);
    let (mut best, mut least) = (order.len(), lost(problem, seconds, &with));
    for position in (0..order.len()).rev() {
        with.swap(position, position + 1);
        let cost = lost(problem, seconds, &with);
        if cost < least * (1.0 - ROUNDING) {
            (best, least) = (position, cost);
        }
    }
    best
}

/// Less of a difference, as a part, is rounding.
const ROUNDING: f64 = 1e-12;

/// Nodes times time until everybody is done, one after the other in this order.
fn lost(problem: &Problem, seconds: &[f64], order: &[usize]) -> f64 {
    let mut free = vec![0.0f64; problem.targets().len()];
    let mut sum = 0.0;
    for &app in order {
        let targets = problem.members.targets_of(app);
        let begin = targets.iter().map(|&target| free[target as usize]).fold(0.0, f64::max);
        let mut end = begin;
        let first = problem.members.app_start()[app] as usize;
        for (&target, needed) in targets.iter().zip(&seconds[first..]) {
            free[target as usize] = begin + needed;
            end = end.max(begin + needed);
        }
        sum += f64::from(problem.apps()[app].nodes) * end;
    }
    sum
}

/// The same if every target is shared by weight, each for itself.
fn lost_by_sharing(problem: &Problem, seconds: &[f64]) -> f64 {
    let mut by_target: Vec<Vec<(usize, f64, f64)>> = vec![Vec::new(); problem.targets().len()];
    let mut needed = seconds.iter();
    for (app, targets) in problem.members.by_app().enumerate() {
        let weight = problem.apps()[app].weight;
        for (&target, &needed) in targets.iter().zip(&mut needed) {
            by_target[target as usize].push((app, weight, needed));
        }
    }
    let mut ends = vec![0.0f64; problem.apps().len()];
    for mut parts in by_target {
        // Those with the least for their weight are done first.
        parts.sort_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)));
        let mut weight_left: f64 = parts.iter().map(|part| part.1).sum();
        let mut done = 0.0;
        for (app, weight, needed) in parts {
            ends[app] = ends[app].max(done + needed / weight * weight_left);
            weight_left -= weight;
            done += needed;
        }
    }
    ends.iter().zip(problem.apps()).map(|(end, app)| f64::from(app.nodes) * end).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, Targets};
    use isonomia_units::Bytes;

    fn targets() -> Arc<Targets> {
        Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0), ("t3", 1.0)]).unwrap())
    }

    fn app(name: &str, began: u64, nodes: u32, left: &[(&str, u64)]) -> App {
        let targets = targets();
        let demand = |&(target, bytes): &(&str, u64)| Demand {
            target: targets.index(target).unwrap(),
            remaining: Some(Bytes(bytes)),
        };
        App { began: Nanos(began), nodes, demands: left.iter().map(demand).collect(), ..App::new(name, []) }
    }

    fn rates(calciom: &mut Calciom, apps: Vec<App>) -> Vec<f64> {
        let problem = Problem::new(targets(), apps).unwrap();
        calciom.allocate(&problem).unwrap().apps().iter().map(|app| app.share).collect()
    }

    /// B comes when A, of which all was 40, has `left` to do; B needs `needed`.
    fn second(strategy: Strategy, nodes: (u32, u32), left: u64, needed: u64) -> Vec<f64> {
        let mut calciom = Calciom::new(strategy, Progress::Banked);
        assert_eq!(rates(&mut calciom, vec![app("A", 0, nodes.0, &[("t1", 40)])]), [1.0]);
        let apps = vec![app("A", 0, nodes.0, &[("t1", left)]), app("B", 40 - left, nodes.1, &[("t1", needed)])];
        rates(&mut calciom, apps)
    }

    #[test]
    fn the_second_waits_or_interrupts_or_interferes() {
        assert_eq!(second(Strategy::Serialize, (1, 1), 30, 10), [1.0, 0.0]);
        assert_eq!(second(Strategy::Interrupt, (1, 1), 5, 10), [0.0, 1.0]);
        assert_eq!(second(Strategy::Interfere, (1, 1), 30, 10), [0.5, 0.5]);
    }

    /// §IV-D: equal cores, B a quarter of A: A is interrupted if and only if dt < T(A) - T(B), three quarters of A.
    #[test]
    fn the_first_is_interrupted_until_three_quarters_of_it_are_done() {
        for (left, expected) in [(40, [0.0, 1.0]), (11, [0.0, 1.0]), (10, [1.0, 0.0]), (9, [1.0, 0.0])] {
            assert_eq!(second(Strategy::Dynamic, (2048, 2048), left, 10), expected, "{left} left");
        }
        // By nodes: 3 × 10 < 1 × 31, and 3 × 10 = 1 × 30.
        assert_eq!(second(Strategy::Dynamic, (3, 1), 31, 10), [0.0, 1.0]);
        assert_eq!(second(Strategy::Dynamic, (3, 1), 30, 10), [1.0, 0.0]);
        assert_eq!(second(Strategy::Dynamic, (1, 100), 1, 10), [0.0, 1.0]);
    }

    #[test]
    fn who_was_interrupted_goes_on_and_a_next_phase_queues_anew() {
        let mut calciom = Calciom::new(Strategy::Interrupt, Progress::Banked);
        rates(&mut calciom, vec![app("A", 0, 1, &[("t1", 9)])]);
        rates(&mut calciom, vec![app("A", 0, 1, &[("t1", 8)]), app("B", 1, 1, &[("t1", 1)])]);
        assert_eq!(rates(&mut calciom, vec![app("A", 0, 1, &[("t1", 8)])]), [1.0]);
        let mut calciom = Calciom::new(Strategy::Serialize, Progress::Banked);
        rates(&mut calciom, vec![app("A", 0, 1, &[("t1", 9)]), app("B", 1, 1, &[("t1", 1)])]);
        let again = vec![app("A", 9, 1, &[("t1", 9)]), app("B", 1, 1, &[("t1", 1)])];
        assert_eq!(rates(&mut calciom, again), [0.0, 1.0]);
        assert_eq!(calciom.queue().map(AsRef::as_ref).collect::<Vec<&str>>(), ["B", "A"]);
    }

    /// W waits for A and keeps C from passing it at t2, which is idle meanwhile.
    #[test]
    fn nobody_passes_who_waits() {
        let apps = || {
            vec![app("A", 0, 1, &[("t1", 9)]), app("C", 2, 1, &[("t2", 9)]), app("W", 1, 1, &[("t1", 9), ("t2", 9)])]
        };
        assert_eq!(rates(&mut Calciom::new(Strategy::Serialize, Progress::Banked), apps()), [1.0, 0.0, 0.0]);
    }

    /// Each holds a long part up by a short one. One by one, X first: 9, Z from 1 to 10, Y from 9 to 18; shared, all end at 10.
    #[test]
    fn sharing_is_chosen_where_it_loses_less() {
        let ring = |nodes| {
            vec![
                app("X", 0, 1, &[("t1", 1), ("t2", 9)]),
                app("Y", 0, 1, &[("t2", 1), ("t3", 9)]),
                app("Z", 0, nodes, &[("t3", 1), ("t1", 9)]),
            ]
        };
        let mut calciom = Calciom::new(Strategy::Dynamic, Progress::Banked);
        assert_eq!(rates(&mut calciom, ring(1)), [0.5, 0.5, 0.5]);
        // One of a hundred nodes is worth more than what the others lose.
        assert_eq!(rates(&mut Calciom::new(Strategy::Dynamic, Progress::Banked), ring(100)), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn what_remains_must_be_known_for_the_choice_only() {
        let problem = Problem::new(targets(), vec![App::at("A", &targets(), &["t1"]).unwrap()]).unwrap();
        let of = |strategy| Calciom::new(strategy, Progress::Banked).allocate(&problem).map(|_| ());
        assert_eq!(of(Strategy::Serialize), Ok(()));
        assert!(of(Strategy::Dynamic).unwrap_err().to_string().contains("`A`: the bytes that remain at target `t1`"));
        assert_eq!("interrupt".parse(), Ok(Strategy::Interrupt));
        assert!("stop".parse::<Strategy>().unwrap_err().to_string().contains("allowed: serialize, interrupt"));
    }
}
