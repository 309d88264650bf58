//! Among all optima of a program, the one that is max-min fair: the worst off get as much as can be, then the
//! next, and so on.
//!
//! Each *party* has a value, the sum of a few variables above a floor, and a weight. All parties' values are raised
//! together, in proportion to their weights, as lower bounds that grow with a level; a variable that leaves its
//! bounds is exchanged with an open one (a dual simplex step; all open variables have reduced cost zero, so the
//! point stays an optimum). When a row says that there is none, the parties in that row cannot get more without
//! taking from one that has as little: they are settled. The end is the lexicographic max-min among the optima,
//! which is unique in the parties' values.

use super::simplex::{EPSILON, NO_STEP, NOT_BASIC, STALLS_MAX, Simplex};

/// Whose value counts.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    /// The value when its variables are at their lower bounds.
    pub(crate) floor: f64,
    /// Values are compared by value over weight.
    pub(crate) weight: f64,
    /// Its variables: one is raised to its upper bound before the next is raised at all.
    pub(crate) variables: [Option<u32>; 2],
}

/// A stretch of levels over which a party's lower bound is one variable's.
struct Stretch {
    party: u32,
    variable: u32,
}

#[derive(Clone, Copy)]
struct Event {
    level: f64,
    is_end: bool,
    stretch: u32,
}

struct Climb<'a> {
    simplex: &'a mut Simplex,
    parties: &'a [Party],
    stretches: Vec<Stretch>,
    level: f64,
    is_settled: Vec<bool>,
    unsettled: usize,
    /// How fast each variable's lower bound rises with the level; 0 for most.
    rate: Vec<f64>,
    /// How fast the value of each row's variable changes with the level.
    drift: Vec<f64>,
    stalls: u32,
    steps_left: u32,
}

impl Simplex {
    /// Moves to the max-min fair point of the open face. O(p (m + entries)) for p parties, and a simplex step for
    /// each exchange.
    ///
    /// Should that take far more steps than such programs do, it stops at a point that is optimal all the same.
    pub(crate) fn settle(&mut self, parties: &[Party]) {
        let mut stretches = Vec::new();
        let mut events = Vec::new();
        for (party, Party { floor, weight, variables }) in parties.iter().enumerate() {
            let mut from = *floor;
            for variable in variables.iter().flatten().copied() {
                let range = self.upper[variable as usize] - self.lower[variable as usize];
                let (begin, end) = (from / weight, (from + range) / weight);
                let stretch = stretches.len() as u32;
                stretches.push(Stretch { party: party as u32, variable });
                events.push(Event { level: begin, is_end: false, stretch });
                events.push(Event { level: end, is_end: true, stretch });
                from += range;
            }
        }
        // A stretch ends before the next one of its party begins.
        events
            .sort_by(|a, b| a.level.total_cmp(&b.level).then(a.stretch.cmp(&b.stretch)).then(a.is_end.cmp(&b.is_end)));
        let steps_left = 20 * self.place.len() as u32 + 1_000;
        let mut climb = Climb {
            parties,
            stretches,
            level: events.first().map_or(0.0, |event| event.level),
            is_settled: vec![false; parties.len()],
            unsettled: parties.len(),
            rate: vec![0.0; self.place.len()],
            drift: vec![0.0; self.basis.len()],
            simplex: self,
            stalls: 0,
            steps_left,
        };
        for event in events {
            if !climb.climb_to(event.level) || climb.unsettled == 0 {
                break;
            }
            climb.meet(event);
        }
    }
}

impl Climb<'_> {
    /// Raises the level; `false` when everybody is settled before, or when there were too many steps.
    fn climb_to(&mut self, level: f64) -> bool {
        loop {
            let (step, blocked) = self.reach(level - self.level);
            if step.is_infinite() {
                return false;
            }
            self.move_by(step);
            let Some((row, is_upper)) = blocked else {
                self.level = level;
                return true;
            };
            self.stalls = if step > NO_STEP { 0 } else { self.stalls + 1 };
            if self.steps_left == 0 {
                return false;
            }
            self.steps_left -= 1;
            if !self.exchange(row, is_upper) && !self.settle_row() {
                return false;
            }
            if self.unsettled == 0 {
                return false;
            }
        }
    }

    /// How far the level can rise, `max` at most, and the row that stops it, with the bound that its variable meets.
    fn reach(&self, max: f64) -> (f64, Option<(usize, bool)>) {
        let mut reach = max;
        let mut blocked: Option<(usize, bool)> = None;
        for row in 0..self.drift.len() {
            let variable = self.simplex.basis[row] as usize;
            let (rise, fall) = (self.drift[row], self.rate[variable] - self.drift[row]);
            // The value may rise to its upper bound while the lower bound comes up from below still faster.
            let value = self.simplex.value[row];
            let mut step = f64::INFINITY;
            if fall > EPSILON {
                step = (value - self.simplex.lower[variable]) / fall;
            }
            let mut is_upper = false;
            if rise > EPSILON {
                let to_upper = (self.simplex.upper[variable] - value) / rise;
                is_upper = to_upper < step;
                step = step.min(to_upper);
            }
            let step = step.max(0.0);
            let is_tie_won = || {
                let other = blocked.map_or(u32::MAX, |(row, _)| self.simplex.basis[row]);
                self.stalls > STALLS_MAX && step <= reach + NO_STEP && self.simplex.basis[row] < other
            };
            if step < reach - NO_STEP || (blocked.is_none() && step < reach) || is_tie_won() {
                reach = step.min(reach);
                blocked = Some((row, is_upper));
            }
        }
        (reach, blocked)
    }

    fn move_by(&mut self, step: f64) {
        if step <= 0.0 {
            return;
        }
        self.level += step;
        for (value, drift) in self.simplex.value.iter_mut().zip(&self.drift) {
            *value += step * drift;
        }
        let bounds = self.simplex.lower.iter_mut().zip(&self.simplex.upper);
        for ((lower, upper), rate) in bounds.zip(&self.rate) {
            *lower = (*lower + step * rate).min(*upper);
        }
    }

    /// Exchanges the variable of `row`, which is at a bound and pushed beyond it, with one that can relieve it.
    /// Leaves the row in [`Simplex::row`] if there is none.
    fn exchange(&mut self, row: usize, is_upper: bool) -> bool {
        self.simplex.compute_row(row);
        let sign = if is_upper { -1.0 } else { 1.0 };
        let mut best: Option<(f64, usize)> = None;
        for variable in 0..self.simplex.place.len() {
            let coefficient = sign * self.simplex.row[variable];
            let helps = if self.simplex.at_upper[variable] { coefficient > EPSILON } else { coefficient < -EPSILON };
            if !helps || self.simplex.place[variable] != NOT_BASIC || self.simplex.is_closed[variable] {
                continue;
            }
            if self.simplex.upper[variable] - self.simplex.lower[variable] <= EPSILON {
                continue;
            }
            let is_better = best.is_none_or(|(size, _)| self.stalls <= STALLS_MAX && coefficient.abs() > size);
            if is_better {
                best = Some((coefficient.abs(), variable));
            }
        }
        let Some((_, entering)) = best else { return false };
        let leaving = self.simplex.basis[row] as usize;
        self.simplex.compute_column(entering);
        let bound_rate = if is_upper { 0.0 } else { self.rate[leaving] };
        let extra = (self.drift[row] - bound_rate) / self.simplex.column[row];
        for (drift, coefficient) in self.drift.iter_mut().zip(&self.simplex.column) {
            *drift -= coefficient * extra;
        }
        let (value, own) = if self.simplex.at_upper[entering] {
            (self.simplex.upper[entering], 0.0)
        } else {
            (self.simplex.lower[entering], self.rate[entering])
        };
        self.drift[row] = own + extra;
        self.simplex.exchange(row, entering, is_upper, value);
        true
    }

    /// Settles the parties whose lower bounds push at the row in [`Simplex::row`]; `false` if there are none.
    fn settle_row(&mut self) -> bool {
        let row = std::mem::take(&mut self.simplex.row);
        let mut any = false;
        for stretch in 0..self.stretches.len() {
            let Stretch { party, variable } = self.stretches[stretch];
            let variable = variable as usize;
            let is_pushing = self.rate[variable] != 0.0 && row[variable].abs() > EPSILON;
            if is_pushing {
                self.settle(party as usize, variable);
                any = true;
            }
        }
        self.simplex.row = row;
        any
    }

    /// The party's value is final; `variable` is the one whose lower bound rose for it.
    fn settle(&mut self, party: usize, variable: usize) {
        if !self.is_settled[party] {
            self.is_settled[party] = true;
            self.unsettled -= 1;
        }
        self.halt(variable);
    }

    /// The lower bound of `variable` rises no more.
    fn halt(&mut self, variable: usize) {
        let rate = std::mem::take(&mut self.rate[variable]);
        self.push(variable, -rate);
    }

    /// The lower bound of `variable` rises by `rate` faster: what stands at it takes the basic variables along.
    fn push(&mut self, variable: usize, rate: f64) {
        if rate != 0.0 && self.simplex.place[variable] == NOT_BASIC && !self.simplex.at_upper[variable] {
            self.simplex.compute_column(variable);
            for (drift, coefficient) in self.drift.iter_mut().zip(&self.simplex.column) {
                *drift -= coefficient * rate;
            }
        }
    }

    fn meet(&mut self, event: Event) {
        let Stretch { party, variable } = self.stretches[event.stretch as usize];
        let (party, variable) = (party as usize, variable as usize);
        if self.is_settled[party] {
            return;
        }
        if event.is_end {
            self.halt(variable);
            let is_last = self.parties[party].variables.iter().flatten().last() == Some(&(variable as u32));
            if is_last {
                self.settle(party, variable);
            }
            return;
        }
        let stands_low = self.simplex.place[variable] == NOT_BASIC && !self.simplex.at_upper[variable];
        if stands_low && self.simplex.is_closed[variable] {
            self.settle(party, variable);
            return;
        }
        let weight = self.parties[party].weight;
        self.rate[variable] = weight;
        self.push(variable, weight);
    }
}
