//! The primal simplex method with bounds on the variables, for programs of which a feasible point is known.
//!
//! `max c·x` subject to `A x + s = r`, `lower ≤ x ≤ upper`, `s ≥ 0`. The caller gives the point to start from, which
//! has to be feasible: that spares the first phase, and the programs of this crate have such a point by their nature
//! (everybody gets the fair share, or the least). It need not be a vertex: a variable outside of the basis rests
//! where it is, and may move up or down from there. So a start near the optimum is worth its while, and what can
//! stay as it is does.
//!
//! The inverse of the basis is kept dense, m × m for m rows, and updated column by column: with the few hundred rows
//! here that is faster than a factorisation, and columns that the pivot does not touch cost nothing. Variables are
//! priced a part at a time; of the part, the one that is the most profitable for its column's length enters. After
//! many steps without progress it is the first one of all (Bland), so the method ends. All ties go by position: the
//! result depends on the program alone.
//!
//! After [`Simplex::maximize`] the variables that have to stay at their bounds in every optimum are *closed*. What
//! is left open spans the optimal face, on which a second objective is optimised by calling it again.

use super::scratch::Scratch;
use super::sparse::Matrix;
use crate::filling::FULL;
use std::collections::VecDeque;

/// Coefficients and costs below this are taken for zero.
pub(crate) const EPSILON: f64 = 1e-9;
/// Steps shorter than this are no progress.
pub(super) const NO_STEP: f64 = 1e-12;
/// So many steps without progress call for Bland's rule.
pub(super) const STALLS_MAX: u32 = 64;
/// How often the inverse is made anew before the program is given up.
const REPAIRS_MAX: u32 = 3;
/// Columns with more rows left than this are not taken in at the start.
const WIDTH_MAX: usize = 3;
/// What a column has at least where it is taken in.
const PIVOT_MIN: f64 = 0.1;
/// Entries of B⁻¹ A that a choice among optima goes through, about.
const SPARE_WORK: usize = 1 << 23;
/// The variables are priced in so many parts, unless that makes them smaller than the second number.
const PARTS: usize = 8;
const PART_MIN: usize = 64;
/// The basic values' error at which the inverse is made anew.
const DRIFT_MAX: f64 = 1e-7;

/// Why a linear program has no solution here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// No point satisfies the constraints.
    #[error("the constraints contradict each other")]
    Infeasible,
    /// The objective grows without end.
    #[error("the objective is not bounded")]
    Unbounded,
    /// A coefficient, bound, or cost that no program has, or arrays of different lengths.
    #[error("not a linear program: {0}")]
    Malformed(&'static str),
    /// No optimum after a number of steps far beyond what such programs take.
    #[error("no optimum after {0} steps")]
    StepLimit(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Simplex {
    pub(super) matrix: Matrix,
    limits: Vec<f64>,
    pub(super) lower: Vec<f64>,
    pub(super) upper: Vec<f64>,
    /// The value of each variable that is not in the basis.
    pub(super) rest: Vec<f64>,
    /// The row of each variable in the basis; [`NOT_BASIC`] for the others.
    pub(super) row_of: Vec<u32>,
    /// Variables that stay at their bounds in every optimum.
    pub(super) is_closed: Vec<bool>,
    /// The variable of each row.
    pub(super) basis: Vec<u32>,
    /// The value of each row's variable.
    pub(super) value: Vec<f64>,
    /// B⁻¹, column by column.
    pub(super) inverse: Vec<f64>,
    /// The price of each row under the objective.
    prices: Vec<f64>,
    /// Where pricing goes on.
    cursor: usize,
    /// B⁻¹ times the entering column.
    pub(super) column: Vec<f64>,
    /// The leaving row of B⁻¹ A, slacks included.
    pub(super) row: Vec<f64>,
    /// What a unit of the entering variable is compared by.
    scale: Vec<f64>,
}

/// The cost of `variable`; slacks have none.
fn cost(objective: &[f64], variable: usize) -> f64 {
    objective.get(variable).copied().unwrap_or(0.0)
}

pub(super) const NOT_BASIC: u32 = u32::MAX;

/// The columns of an inverse of so many rows; a program may have none.
fn inverse_columns(inverse: &[f64], rows: usize) -> std::slice::ChunksExact<'_, f64> {
    inverse.chunks_exact(rows.max(1))
}

impl Simplex {
    /// The program at the point `start`, with every slack in the basis.
    pub(crate) fn new(
        matrix: Matrix,
        limits: Vec<f64>,
        mut lower: Vec<f64>,
        mut upper: Vec<f64>,
        start: Vec<f64>,
        scratch: &mut Scratch,
    ) -> Result<Self, ProgramError> {
        let (rows, columns) = (matrix.row_count(), matrix.column_count());
        debug_assert!(limits.len() == rows && lower.len() == columns && upper.len() == columns);
        let mut value = limits.clone();
        let mut scale = Vec::with_capacity(columns + rows);
        for (column, start) in start.iter().enumerate() {
            let mut norm = 1.0;
            for (row, coefficient) in matrix.column(column) {
                value[row] -= coefficient * start;
                norm += coefficient * coefficient;
            }
            scale.push(1.0 / f64::sqrt(norm));
        }
        if value.iter().any(|&slack| slack < -EPSILON) || lower.iter().zip(&upper).any(|(lower, upper)| lower > upper) {
            return Err(ProgramError::Infeasible);
        }
        value.iter_mut().for_each(|slack| *slack = slack.max(0.0));
        lower.resize(columns + rows, 0.0);
        upper.resize(columns + rows, f64::INFINITY);
        scale.resize(columns + rows, f64::sqrt(0.5));
        let mut rest = start;
        rest.resize(columns + rows, 0.0);
        let mut row_of = vec![NOT_BASIC; columns];
        row_of.extend(0..rows as u32);
        let mut simplex = Self {
            limits,
            lower,
            upper,
            rest,
            row_of,
            is_closed: vec![false; columns + rows],
            basis: (columns as u32..(columns + rows) as u32).collect(),
            value,
            inverse: scratch.zeros(rows * rows),
            prices: vec![0.0; rows],
            cursor: 0,
            column: vec![0.0; rows],
            row: vec![0.0; columns + rows],
            scale,
            matrix,
        };
        simplex.set_identity();
        Ok(simplex)
    }

    /// Ends with the program.
    pub(crate) fn give_back(self, scratch: &mut Scratch) {
        scratch.keep(self.inverse);
    }

    /// Takes variables that are between their bounds into the basis, for the slacks of rows that are full.
    ///
    /// They are those whose cost in `objective` is what they take of the full rows, so that each such row gets the
    /// price 1, and [`Self::maximize`] has to see to the other rows only. Most columns that are taken have one row of
    /// those that are left, which makes a step cheap.
    pub(crate) fn enter_full_rows(&mut self, objective: &[f64]) {
        let columns = self.matrix.column_count();
        let is_open: Vec<bool> = self.value.iter().map(|&slack| slack <= FULL).collect();
        let is_full = is_open.clone();
        let between = |variable: usize| {
            self.rest[variable] > self.lower[variable] + FULL && self.rest[variable] < self.upper[variable] - FULL
        };
        let open_rows: Vec<usize> = (0..columns)
            .map(|column| {
                let full = self.matrix.column(column).filter(|&(row, _)| is_full[row]);
                let (count, taken) = full.fold((0, 0.0), |(count, taken), (_, value)| (count + 1, taken + value));
                let fits = between(column) && (objective[column] - taken).abs() <= EPSILON;
                if fits { count } else { 0 }
            })
            .collect();
        self.enter_rows(is_open, open_rows, WIDTH_MAX, PIVOT_MIN);
    }

    /// Takes columns into the basis for the slacks of the rows that are open, columns with few of these rows first;
    /// `open_rows` is how many each has, 0 for those that stay out. The point stays.
    pub(super) fn enter_rows(
        &mut self,
        mut is_open: Vec<bool>,
        mut open_rows: Vec<usize>,
        width_max: usize,
        pivot_min: f64,
    ) {
        let columns = self.matrix.column_count();
        for width in 1..=width_max {
            let mut begin: Vec<usize> = (0..columns).filter(|&column| open_rows[column] == width).collect();
            begin.sort_by(|&a, &b| self.rest[b].total_cmp(&self.rest[a]).then(a.cmp(&b)));
            let mut queue = VecDeque::from(begin);
            while let Some(column) = queue.pop_front() {
                if open_rows[column] == 0 || open_rows[column] > width {
                    continue;
                }
                self.compute_column(column);
                let candidates = self.matrix.column(column).map(|(row, _)| row).filter(|&row| is_open[row]);
                let size = |row: usize| self.column[row].abs();
                let Some(row) = candidates.max_by(|&a, &b| size(a).total_cmp(&size(b)).then(b.cmp(&a))) else {
                    continue;
                };
                open_rows[column] = 0;
                if size(row) < pivot_min {
                    continue;
                }
                let slack = self.basis[row] as usize;
                self.exchange(row, column, self.rest[slack], self.rest[column]);
                is_open[row] = false;
                for (other, _) in self.matrix.row(row) {
                    if open_rows[other] > 0 {
                        open_rows[other] -= 1;
                        if open_rows[other] > 0 && open_rows[other] <= width {
                            queue.push_back(other);
                        }
                    }
                }
            }
        }
    }

    /// What the rows' limits leave at these values of the columns.
    pub(super) fn room_at(&self, values: &[f64]) -> Vec<f64> {
        let mut room = self.limits.clone();
        for (column, value) in values.iter().enumerate() {
            self.matrix.column(column).for_each(|(row, coefficient)| room[row] -= coefficient * value);
        }
        room
    }

    /// Moves to a point that is best by `objective`, a coefficient for each variable, among those that are open; then
    /// closes what is in no other optimum.
    ///
    /// A step is O(m² + entries) at worst.
    pub(crate) fn maximize(&mut self, objective: &[f64]) -> Result<(), ProgramError> {
        let steps = 50 * (self.basis.len() + self.row_of.len()) as u32 + 1_000;
        if self.maximize_within(objective, steps)? { Ok(()) } else { Err(ProgramError::StepLimit(steps)) }
    }

    /// Like [`Self::maximize`], with so many steps at most; `false` if they were not enough, and then nothing is closed.
    pub(crate) fn maximize_within(&mut self, objective: &[f64], steps: u32) -> Result<bool, ProgramError> {
        let is_best = self.improve(objective, steps)?;
        for variable in (0..self.row_of.len()).filter(|_| is_best) {
            self.is_closed[variable] |=
                self.row_of[variable] == NOT_BASIC && self.reduced(objective, variable).abs() > EPSILON;
        }
        Ok(is_best)
    }

    /// Moves to a point that is better by `objective`, among those that are open; whether it is the best.
    pub(crate) fn improve(&mut self, objective: &[f64], steps: u32) -> Result<bool, ProgramError> {
        let mut steps_left = steps;
        for _ in 0..REPAIRS_MAX {
            self.price(objective);
            let mut stalls = 0;
            let steps_before = steps_left;
            while let Some((entering, reduced)) = self.entering(objective, stalls > STALLS_MAX) {
                if steps_left == 0 {
                    return Ok(false);
                }
                steps_left -= 1;
                let step = self.advance(entering, reduced, stalls > STALLS_MAX)?;
                stalls = if step > NO_STEP { 0 } else { stalls + 1 };
            }
            // Prices and values were updated step by step; a small error may have hidden a better point.
            if self.drift() > DRIFT_MAX {
                self.repair();
            } else if steps_left == steps_before {
                return Ok(true);
            }
            self.price(objective);
            if self.entering(objective, true).is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many steps are spent on a choice among optima: fewer in a large program, where they take longer.
    pub(crate) fn spare_steps(&self) -> u32 {
        (SPARE_WORK / (self.basis.len() * self.row_of.len()).max(1)) as u32
    }

    /// The value of `variable`.
    pub(crate) fn value_of(&self, variable: usize) -> f64 {
        match self.row_of[variable] {
            NOT_BASIC => self.rest[variable],
            row => self.value[row as usize].max(self.lower[variable]).min(self.upper[variable]),
        }
    }

    /// Computes the rows' prices under `objective`.
    fn price(&mut self, objective: &[f64]) {
        let costs: Vec<f64> = self.basis.iter().map(|&basic| cost(objective, basic as usize)).collect();
        for (price, column) in self.prices.iter_mut().zip(inverse_columns(&self.inverse, costs.len())) {
            *price = column.iter().zip(&costs).map(|(inverse, cost)| inverse * cost).sum();
        }
    }

    /// What the objective gains with each unit of `variable`, at the rows' prices.
    fn reduced(&self, objective: &[f64], variable: usize) -> f64 {
        match variable.checked_sub(self.matrix.column_count()) {
            Some(row) => -self.prices[row],
            None => {
                let paid = self.matrix.column(variable).map(|(row, coefficient)| self.prices[row] * coefficient);
                objective[variable] - paid.sum::<f64>()
            }
        }
    }

    /// A variable that is profitable to move, with its gain; the first one of all, or a good one.
    fn entering(&mut self, objective: &[f64], is_first: bool) -> Option<(usize, f64)> {
        let count = self.row_of.len();
        let part = (count / PARTS).max(PART_MIN);
        let mut at = if is_first { 0 } else { self.cursor };
        let mut best: Option<(f64, usize, f64)> = None;
        for seen in 1..=count {
            let variable = at;
            at = if at + 1 == count { 0 } else { at + 1 };
            if self.row_of[variable] == NOT_BASIC && !self.is_closed[variable] {
                let reduced = self.reduced(objective, variable);
                let rest = self.rest[variable];
                let can_move = if reduced > 0.0 { rest < self.upper[variable] } else { rest > self.lower[variable] };
                let merit = reduced.abs() * self.scale[variable];
                if reduced.abs() > EPSILON && can_move && best.is_none_or(|(most, _, _)| merit > most) {
                    best = Some((merit, variable, reduced));
                }
            }
            if best.is_some() && (is_first || seen % part == 0) {
                break;
            }
        }
        self.cursor = at;
        best.map(|(_, variable, reduced)| (variable, reduced))
    }

    /// Moves `entering` until it or something else meets a bound; gives how far.
    fn advance(&mut self, entering: usize, reduced: f64, is_first: bool) -> Result<f64, ProgramError> {
        self.compute_column(entering);
        let rest = self.rest[entering];
        let (direction, range) =
            if reduced > 0.0 { (1.0, self.upper[entering] - rest) } else { (-1.0, rest - self.lower[entering]) };
        let mut step = range;
        let mut leaving: Option<(usize, bool)> = None;
        for row in 0..self.basis.len() {
            let pull = direction * self.column[row];
            if pull.abs() <= EPSILON {
                continue;
            }
            let basic = self.basis[row] as usize;
            let is_upper = pull < 0.0;
            let room = if is_upper { self.upper[basic] - self.value[row] } else { self.value[row] - self.lower[basic] };
            let reach = (room / pull.abs()).max(0.0);
            let is_better = match leaving {
                None => reach < step,
                Some(_) if reach < step - NO_STEP => true,
                Some((other, _)) if reach <= step + NO_STEP && is_first => basic < self.basis[other] as usize,
                Some((other, _)) if reach <= step + NO_STEP => pull.abs() > self.column[other].abs(),
                Some(_) => false,
            };
            if is_better {
                step = reach.min(step);
                leaving = Some((row, is_upper));
            }
        }
        if step.is_infinite() {
            return Err(ProgramError::Unbounded);
        }
        for (value, pull) in self.value.iter_mut().zip(&self.column) {
            *value -= direction * step * pull;
        }
        let Some((row, is_upper)) = leaving else {
            self.rest[entering] = if direction > 0.0 { self.upper[entering] } else { self.lower[entering] };
            return Ok(step);
        };
        let basic = self.basis[row] as usize;
        let bound = if is_upper { self.upper[basic] } else { self.lower[basic] };
        self.exchange(row, entering, bound, rest + direction * step);
        let rows = self.basis.len();
        for (price, column) in self.prices.iter_mut().zip(inverse_columns(&self.inverse, rows)) {
            *price += reduced * column[row];
        }
        Ok(step)
    }

    /// Puts `entering`, with `value`, into the basis for the variable of `row`, which rests at `bound`.
    /// [`Self::column`] is `entering`'s.
    pub(super) fn exchange(&mut self, row: usize, entering: usize, bound: f64, value: f64) {
        let leaving = self.basis[row] as usize;
        self.pivot(row);
        self.row_of[leaving] = NOT_BASIC;
        self.rest[leaving] = bound;
        self.row_of[entering] = row as u32;
        self.basis[row] = entering as u32;
        self.value[row] = value;
    }

    /// Makes [`Self::column`] B⁻¹ times the column of `variable`.
    pub(super) fn compute_column(&mut self, variable: usize) {
        let rows = self.basis.len();
        let inverse = |row: usize| &self.inverse[row * rows..(row + 1) * rows];
        match variable.checked_sub(self.matrix.column_count()) {
            Some(row) => self.column.copy_from_slice(inverse(row)),
            None => {
                self.column.fill(0.0);
                for (row, coefficient) in self.matrix.column(variable) {
                    for (entry, inverse) in self.column.iter_mut().zip(inverse(row)) {
                        *entry += coefficient * inverse;
                    }
                }
            }
        }
    }

    /// Makes [`Self::row`] the coefficients of all variables in `row` of B⁻¹ A; those of basic ones mean nothing.
    pub(super) fn compute_row(&mut self, row: usize) {
        let (columns, rows) = (self.matrix.column_count(), self.basis.len());
        let (structural, slacks) = self.row.split_at_mut(columns);
        structural.fill(0.0);
        for (at, (slack, column)) in slacks.iter_mut().zip(inverse_columns(&self.inverse, rows)).enumerate() {
            let factor = column[row];
            *slack = factor;
            if factor != 0.0 {
                for (variable, coefficient) in self.matrix.row(at) {
                    structural[variable] += factor * coefficient;
                }
            }
        }
    }

    /// Updates the inverse for a basis in which [`Self::column`] replaces that of `row`.
    fn pivot(&mut self, row: usize) {
        let factor = 1.0 / self.column[row];
        for column in self.inverse.chunks_exact_mut(self.column.len()) {
            // What is left of a cancellation would slow every later step down.
            let entry = if column[row].abs() < 1e-14 { 0.0 } else { column[row] * factor };
            if entry != 0.0 {
                for (inverse, multiple) in column.iter_mut().zip(&self.column) {
                    *inverse -= entry * multiple;
                }
            }
            column[row] = entry;
        }
    }

    /// The largest error of a row with the values as they are.
    pub(super) fn drift(&self) -> f64 {
        let columns = self.matrix.column_count();
        let error = |row: usize| {
            let sum: f64 = self.matrix.row(row).map(|(column, coefficient)| coefficient * self.raw_value(column)).sum();
            (sum + self.raw_value(columns + row) - self.limits[row]).abs()
        };
        (0..self.basis.len()).map(error).fold(0.0, f64::max)
    }

    fn raw_value(&self, variable: usize) -> f64 {
        match self.row_of[variable] {
            NOT_BASIC => self.value_of(variable),
            row => self.value[row as usize],
        }
    }

    fn set_identity(&mut self) {
        let rows = self.basis.len();
        self.inverse.fill(0.0);
        self.inverse.iter_mut().step_by(rows + 1).for_each(|entry| *entry = 1.0);
    }

    /// The variables in the basis that are no slacks.
    pub(crate) fn basic_variables(&self) -> impl Iterator<Item = usize> {
        let columns = self.matrix.column_count();
        self.basis.iter().map(|&variable| variable as usize).filter(move |&variable| variable < columns)
    }

    /// The rows whose slacks are not in the basis.
    pub(crate) fn full_rows(&self) -> Vec<usize> {
        let columns = self.matrix.column_count();
        (0..self.basis.len()).filter(|&row| self.row_of[columns + row] == NOT_BASIC).collect()
    }

    /// Takes `variables` into a basis of slacks, for those of `rows`, as far as they go. The point stays.
    pub(crate) fn adopt(&mut self, variables: &[u32], rows: &[usize], pivot_min: f64) {
        let mut left = rows.to_vec();
        for &variable in variables {
            if left.is_empty() {
                return;
            }
            self.compute_column(variable as usize);
            let size = |row: usize| self.column[row].abs();
            let widest = (0..left.len()).max_by(|&a, &b| size(left[a]).total_cmp(&size(left[b])).then(b.cmp(&a)));
            let Some(at) = widest.filter(|&at| size(left[at]) > pivot_min) else { continue };
            let row = left.swap_remove(at);
            let slack = self.basis[row] as usize;
            self.exchange(row, variable as usize, self.rest[slack], self.rest[variable as usize]);
        }
    }

    /// Makes the inverse and the values anew from the basis.
    fn repair(&mut self) {
        let (columns, rows) = (self.matrix.column_count(), self.basis.len());
        let variables: Vec<u32> = self.basic_variables().map(|variable| variable as u32).collect();
        let full = self.full_rows();
        self.set_identity();
        for row in 0..rows {
            self.basis[row] = (columns + row) as u32;
            self.row_of[columns + row] = row as u32;
        }
        for &variable in &variables {
            self.rest[variable as usize] = self.value[self.row_of[variable as usize] as usize];
            self.row_of[variable as usize] = NOT_BASIC;
        }
        self.adopt(&variables, &full, EPSILON);
        let mut left = self.limits.clone();
        for variable in (0..columns + rows).filter(|&variable| self.row_of[variable] == NOT_BASIC) {
            let value = self.rest[variable];
            match variable.checked_sub(columns) {
                Some(row) => left[row] -= value,
                None => self.matrix.column(variable).for_each(|(row, coefficient)| left[row] -= coefficient * value),
            }
        }
        for row in 0..rows {
            self.value[row] = (0..rows).map(|at| self.inverse[at * rows + row] * left[at]).sum();
        }
    }
}
