//! Among all optima of a program, the one that is max-min fair: the worst off get as much as can be, then the
//! next, and so on.
//!
//! Each *party* has a value, the sum of a few variables above a floor, and a weight. A level rises, and every party's
//! lower bound with it, in proportion to its weight. Whoever is met by its bound is *pushed* up, which the basic
//! variables have to make room for. One that meets a bound itself is exchanged for an open variable that can give
//! way (a dual simplex step; all open variables have reduced cost zero, so the point stays an optimum). If there is
//! none, the row says that who pushes there cannot get more without taking from one that has as little: they are
//! settled. The end is the lexicographic max-min among the optima, which is unique in the parties' values.

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
    begin: f64,
}

/// What happens at a level, in the order in which it happens at one level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The stretch begins: the variable's lower bound rises from now on.
    Begin,
    /// The lower bound meets a variable that rested above it.
    Meet,
    /// The lower bound has come to the upper one.
    End,
}

struct Climb<'a> {
    simplex: &'a mut Simplex,
    parties: &'a [Party],
    level: f64,
    /// The level to which the basic variables' values belong.
    valued_at: f64,
    is_settled: Vec<bool>,
    unsettled: usize,
    /// The party of each variable.
    party_of: Vec<u32>,
    /// How fast each variable's lower bound rises with the level, and from which level; 0 for those that do not.
    rate: Vec<f64>,
    begin: Vec<f64>,
    /// Variables outside of the basis that rest at their rising lower bounds.
    is_pushed: Vec<bool>,
    /// How fast the value of each row's variable changes with the level.
    drift: Vec<f64>,
    /// The level at which something is in the way, its row, and whether it is at its upper bound; `None` if that has
    /// to be found anew.
    block: Option<(f64, usize, bool)>,
    stalls: u32,
    steps_left: u32,
}

const NO_PARTY: u32 = u32::MAX;

impl Simplex {
    /// Moves to the max-min fair point of the open face. A simplex step for each exchange; a party that is met in a
    /// full row among others who have as little costs as much as the row is long.
    ///
    /// It stops after [`Self::spare_steps`], at a point that is optimal all the same and max-min fair among those who
    /// have the least; programs of some hundred variables never take so many.
    pub(crate) fn settle(&mut self, parties: &[Party]) {
        let steps_max = self.spare_steps();
        let stretch_count = parties.iter().map(|party| party.variables.iter().flatten().count()).sum();
        let mut stretches = Vec::with_capacity(stretch_count);
        let mut events: Vec<(f64, usize, Kind)> = Vec::with_capacity(3 * stretch_count);
        let mut party_of = vec![NO_PARTY; self.row_of.len()];
        for (party, Party { floor, weight, variables }) in parties.iter().enumerate() {
            let mut from = *floor;
            for variable in variables.iter().flatten().copied() {
                let at = variable as usize;
                let range = self.upper[at] - self.lower[at];
                let above = self.rest[at] - self.lower[at];
                let begin = from / weight;
                party_of[at] = party as u32;
                events.push((begin, stretches.len(), Kind::Begin));
                if self.row_of[at] == NOT_BASIC && above > EPSILON && above < range {
                    events.push(((from + above) / weight, stretches.len(), Kind::Meet));
                }
                if range.is_finite() {
                    events.push(((from + range) / weight, stretches.len(), Kind::End));
                }
                stretches.push(Stretch { party: party as u32, variable, begin });
                from += range;
            }
        }
        // Stretches are numbered so that one ends before the next of its party begins.
        events.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let begin = events.first().map_or(0.0, |event| event.0);
        let variables = self.row_of.len();
        let mut climb = Climb {
            parties,
            level: begin,
            valued_at: begin,
            is_settled: vec![false; parties.len()],
            unsettled: parties.len(),
            party_of,
            rate: vec![0.0; variables],
            begin: vec![0.0; variables],
            is_pushed: vec![false; variables],
            drift: vec![0.0; self.basis.len()],
            block: None,
            stalls: 0,
            steps_left: steps_max,
            simplex: self,
        };
        let mut goes_on = true;
        for (level, stretch, kind) in events {
            let Stretch { party, variable, begin } = stretches[stretch];
            if climb.is_settled[party as usize] {
                continue;
            }
            goes_on = climb.climb_to(level) && climb.unsettled > 0;
            if !goes_on {
                break;
            }
            climb.happen(kind, party as usize, variable as usize, begin);
        }
        if goes_on && climb.unsettled > 0 {
            climb.climb_to(f64::INFINITY);
        }
        climb.stop();
    }
}

impl Climb<'_> {
    /// Raises the level; `false` when everybody is settled before, or when it cannot go on.
    fn climb_to(&mut self, level: f64) -> bool {
        loop {
            let (at, row, is_upper) = match self.block {
                Some(block) => block,
                None => self.find_block(),
            };
            if at >= level {
                if level.is_finite() {
                    self.level = level;
                }
                self.block = Some((at, row, is_upper));
                return level.is_finite();
            }
            self.stalls = if at > self.level + NO_STEP { 0 } else { self.stalls + 1 };
            self.level = at;
            if self.steps_left == 0 {
                return false;
            }
            self.steps_left -= 1;
            self.update_values();
            let gives_way = self.exchange(row, is_upper) || self.settle_row();
            if !gives_way || self.unsettled == 0 {
                return false;
            }
        }
    }

    /// The first level at which a basic variable is at a bound and about to leave it; infinite if there is none.
    fn find_block(&mut self) -> (f64, usize, bool) {
        self.update_values();
        let mut reach = f64::INFINITY;
        let mut found: Option<(usize, bool)> = None;
        for row in 0..self.drift.len() {
            let variable = self.simplex.basis[row] as usize;
            let (rise, fall) = (self.drift[row], self.rate[variable] - self.drift[row]);
            // The value may rise to its upper bound while the lower bound comes up from below still faster.
            let value = self.simplex.value[row];
            let mut step = f64::INFINITY;
            if fall > EPSILON {
                step = (value - self.lower(variable)) / fall;
            }
            let mut is_upper = false;
            if rise > EPSILON {
                let to_upper = (self.simplex.upper[variable] - value) / rise;
                is_upper = to_upper < step;
                step = step.min(to_upper);
            }
            let step = step.max(0.0);
            let is_first = |(other, _): (usize, bool)| self.simplex.basis[row] < self.simplex.basis[other];
            let is_tie_won = self.stalls > STALLS_MAX && step <= reach + NO_STEP && found.is_some_and(is_first);
            if step < reach - NO_STEP || (found.is_none() && step < reach) || is_tie_won {
                reach = step.min(reach);
                found = Some((row, is_upper));
            }
        }
        let (row, is_upper) = found.unwrap_or((0, false));
        (self.level + reach, row, is_upper)
    }

    /// The lower bound of `variable` at this level.
    fn lower(&self, variable: usize) -> f64 {
        let lower = self.simplex.lower[variable];
        match self.rate[variable] {
            0.0 => lower,
            rate => (lower + rate * (self.level - self.begin[variable])).min(self.simplex.upper[variable]),
        }
    }

    /// The value of `variable` at this level.
    fn value(&self, variable: usize) -> f64 {
        match self.simplex.row_of[variable] {
            NOT_BASIC if self.is_pushed[variable] => self.lower(variable),
            NOT_BASIC => self.simplex.rest[variable],
            row => self.simplex.value[row as usize] + (self.level - self.valued_at) * self.drift[row as usize],
        }
    }

    fn update_values(&mut self) {
        let step = self.level - self.valued_at;
        if step > 0.0 {
            for (value, drift) in self.simplex.value.iter_mut().zip(&self.drift) {
                *value += step * drift;
            }
        }
        self.valued_at = self.level;
    }

    /// Exchanges the variable of `row`, which is at a bound and pushed beyond it, with one that can give way. Leaves
    /// the row in [`Simplex::row`] if there is none.
    fn exchange(&mut self, row: usize, is_upper: bool) -> bool {
        self.simplex.compute_row(row);
        let sign = if is_upper { -1.0 } else { 1.0 };
        let mut best: Option<(f64, usize)> = None;
        for (variable, coefficient) in self.simplex.row.iter().enumerate() {
            let size = coefficient.abs();
            if size <= EPSILON || self.simplex.row_of[variable] != NOT_BASIC || self.simplex.is_closed[variable] {
                continue;
            }
            let value = self.value(variable);
            let room = if sign * coefficient < 0.0 {
                self.simplex.upper[variable] - value
            } else {
                value - self.lower(variable)
            };
            if room > EPSILON && best.is_none_or(|(most, _)| self.stalls <= STALLS_MAX && size > most) {
                best = Some((size, variable));
            }
        }
        let Some((_, entering)) = best else { return false };
        let leaving = self.simplex.basis[row] as usize;
        self.simplex.compute_column(entering);
        let (bound, bound_rate) =
            if is_upper { (self.simplex.upper[leaving], 0.0) } else { (self.lower(leaving), self.rate[leaving]) };
        let extra = (self.drift[row] - bound_rate) / self.simplex.column[row];
        for (drift, coefficient) in self.drift.iter_mut().zip(&self.simplex.column) {
            *drift -= coefficient * extra;
        }
        let own = if self.is_pushed[entering] { self.rate[entering] } else { 0.0 };
        self.drift[row] = own + extra;
        let value = self.value(entering);
        self.is_pushed[entering] = false;
        self.is_pushed[leaving] = !is_upper && bound_rate != 0.0;
        self.simplex.exchange(row, entering, bound, value);
        self.block = None;
        true
    }

    /// Settles the parties that push in the row in [`Simplex::row`]; `false` if there are none.
    fn settle_row(&mut self) -> bool {
        let row = std::mem::take(&mut self.simplex.row);
        let mut any = false;
        for (variable, coefficient) in row.iter().enumerate() {
            let is_basic = self.simplex.row_of[variable] != NOT_BASIC;
            if coefficient.abs() > EPSILON && self.rate[variable] != 0.0 && (self.is_pushed[variable] || is_basic) {
                self.settle(self.party_of[variable] as usize, variable);
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
        let lower = self.lower(variable);
        let rate = std::mem::take(&mut self.rate[variable]);
        self.simplex.lower[variable] = lower;
        if std::mem::take(&mut self.is_pushed[variable]) {
            self.simplex.rest[variable] = lower;
            self.push(variable, -rate);
        } else if self.simplex.row_of[variable] != NOT_BASIC {
            self.block = None;
        }
    }

    /// The basic variables make room for `variable`, which rises by `rate` faster.
    fn push(&mut self, variable: usize, rate: f64) {
        if rate != 0.0 {
            self.update_values();
            self.simplex.compute_column(variable);
            for (drift, coefficient) in self.drift.iter_mut().zip(&self.simplex.column) {
                *drift -= coefficient * rate;
            }
            self.block = None;
        }
    }

    fn happen(&mut self, kind: Kind, party: usize, variable: usize, begin: f64) {
        if kind == Kind::End {
            self.halt(variable);
            if self.parties[party].variables.iter().flatten().last() == Some(&(variable as u32)) {
                self.settle(party, variable);
            }
            return;
        }
        if kind == Kind::Begin {
            self.rate[variable] = self.parties[party].weight;
            self.begin[variable] = begin;
            if self.simplex.row_of[variable] != NOT_BASIC {
                self.block = None;
            }
        }
        let is_met = self.simplex.row_of[variable] == NOT_BASIC
            && !self.is_pushed[variable]
            && self.value(variable) - self.lower(variable) <= EPSILON;
        if !is_met {
            return;
        }
        if self.simplex.is_closed[variable] || self.is_stuck(variable) {
            self.settle(party, variable);
        } else {
            self.is_pushed[variable] = true;
            self.push(variable, self.rate[variable]);
        }
    }

    /// Whether a full row keeps `variable` from rising, because nobody else in it can fall.
    fn is_stuck(&self, variable: usize) -> bool {
        let columns = self.simplex.matrix.column_count();
        self.simplex.matrix.column(variable).any(|(row, coefficient)| {
            let cannot_fall = |(other, coefficient): (usize, f64)| {
                let is_fixed = || self.simplex.is_closed[other] || self.value(other) - self.lower(other) <= EPSILON;
                coefficient > 0.0 && (other == variable || is_fixed())
            };
            coefficient > 0.0 && self.value(columns + row) <= EPSILON && self.simplex.matrix.row(row).all(cannot_fall)
        })
    }

    /// Leaves the program with values that hold without the climb.
    fn stop(mut self) {
        self.update_values();
        for variable in 0..self.rate.len() {
            if self.rate[variable] != 0.0 {
                let lower = self.lower(variable);
                self.simplex.lower[variable] = lower;
                if self.is_pushed[variable] {
                    self.simplex.rest[variable] = lower;
                }
            }
        }
    }
}
