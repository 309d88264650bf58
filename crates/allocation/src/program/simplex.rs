//! The primal simplex method with bounds on the variables, for programs of which a feasible point is known.
//!
//! `max c·x` subject to `A x + s = r`, `lower ≤ x ≤ upper`, `s ≥ 0`. The caller gives the point to start from, which
//! has to be feasible: that spares the first phase, and the programs of this crate have such a point by their nature
//! (everybody gets the fair share, or the least). It need not be a vertex: a variable outside of the basis rests
//! where it is, and may move up or down from there. So a start near the optimum is worth its while, and what can
//! stay as it is does.
//!
//! The inverse of the basis is kept dense, m × m for m rows, and updated row by row: with the few hundred rows here
//! that is faster than a factorisation, and rows that the pivot does not touch cost nothing. The most profitable
//! variable for its column's length enters; after many steps without progress it is the first one (Bland), so the
//! method ends. All ties go by position: the result depends on the program alone.
//!
//! After [`Simplex::maximize`] the variables that have to stay at their bounds in every optimum are *closed*. What
//! is left open spans the optimal face, on which a second objective is optimised by calling it again.

use super::sparse::Matrix;
use crate::filling::FULL;
use std::collections::VecDeque;

/// Coefficients and costs below this are taken for zero.
pub(super) const EPSILON: f64 = 1e-9;
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
    pub(super) place: Vec<u32>,
    /// Variables that stay at their bounds in every optimum.
    pub(super) is_closed: Vec<bool>,
    /// The variable of each row.
    pub(super) basis: Vec<u32>,
    /// The value of each row's variable.
    pub(super) value: Vec<f64>,
    inverse: Vec<f64>,
    /// B⁻¹ times the entering column.
    pub(super) column: Vec<f64>,
    /// The leaving row of B⁻¹ A, slacks included.
    pub(super) row: Vec<f64>,
    reduced: Vec<f64>,
    /// What a unit of the entering variable is compared by.
    scale: Vec<f64>,
    pub(super) steps: u32,
}

pub(super) const NOT_BASIC: u32 = u32::MAX;

impl Simplex {
    /// The program at the point `start`, with every slack in the basis.
    pub(crate) fn new(
        matrix: Matrix,
        limits: Vec<f64>,
        mut lower: Vec<f64>,
        mut upper: Vec<f64>,
        start: Vec<f64>,
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
        let mut place = vec![NOT_BASIC; columns];
        place.extend(0..rows as u32);
        let mut simplex = Self {
            limits,
            lower,
            upper,
            rest,
            place,
            is_closed: vec![false; columns + rows],
            basis: (columns as u32..(columns + rows) as u32).collect(),
            value,
            inverse: vec![0.0; rows * rows],
            column: vec![0.0; rows],
            row: vec![0.0; columns + rows],
            reduced: vec![0.0; columns + rows],
            scale,
            matrix,
            steps: 0,
        };
        simplex.set_identity();
        Ok(simplex)
    }

    /// Takes variables that are between their bounds into the basis, for the slacks of rows that are full.
    ///
    /// Where what a row gives is what the objective wants of it, the prices of full rows are right from then on, and
    /// [`Self::maximize`] has to see to the other rows only. Most columns that are taken have one row of those that
    /// are left, which makes a step cheap.
    pub(crate) fn enter_full_rows(&mut self) {
        let columns = self.matrix.column_count();
        let mut is_open: Vec<bool> = self.value.iter().map(|&slack| slack <= FULL).collect();
        let is_full = is_open.clone();
        let between = |variable: usize| {
            self.rest[variable] > self.lower[variable] + FULL && self.rest[variable] < self.upper[variable] - FULL
        };
        let mut open_rows: Vec<usize> = (0..columns)
            .map(|column| {
                let fits = between(column) && self.matrix.column(column).all(|(row, _)| is_full[row]);
                if fits { self.matrix.column(column).count() } else { 0 }
            })
            .collect();
        for width in 1..=WIDTH_MAX {
            let mut queue: VecDeque<usize> = (0..columns).filter(|&column| open_rows[column] == width).collect();
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
                if size(row) < PIVOT_MIN {
                    continue;
                }
                let slack = self.basis[row] as usize;
                self.exchange(row, column, self.lower[slack], self.rest[column]);
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

    /// Moves to a vertex that is best by `objective`, a coefficient for each variable, among those that are open;
    /// then closes what stands in the way of no optimum.
    ///
    /// A step is O(m² + entries) at worst.
    pub(crate) fn maximize(&mut self, objective: &[f64]) -> Result<(), ProgramError> {
        let steps_max = self.steps + 50 * (self.basis.len() + self.place.len()) as u32 + 1_000;
        for _ in 0..REPAIRS_MAX {
            self.price(objective);
            let mut stalls = 0;
            while let Some(entering) = self.entering(stalls > STALLS_MAX) {
                if self.steps == steps_max {
                    return Err(ProgramError::StepLimit(self.steps));
                }
                self.steps += 1;
                let step = self.advance(entering, stalls > STALLS_MAX)?;
                stalls = if step > NO_STEP { 0 } else { stalls + 1 };
            }
            // Costs and values were updated step by step; a small error may have hidden a better vertex.
            if self.drift() > DRIFT_MAX {
                self.repair();
            }
            self.price(objective);
            if self.entering(false).is_none() {
                for variable in 0..self.reduced.len() {
                    self.is_closed[variable] |=
                        self.place[variable] == NOT_BASIC && self.reduced[variable].abs() > EPSILON;
                }
                return Ok(());
            }
        }
        Err(ProgramError::StepLimit(self.steps))
    }

    /// The value of `variable`.
    pub(crate) fn value_of(&self, variable: usize) -> f64 {
        match self.place[variable] {
            NOT_BASIC => self.rest[variable],
            row => self.value[row as usize].max(self.lower[variable]).min(self.upper[variable]),
        }
    }

    /// Computes the reduced costs of `objective`.
    fn price(&mut self, objective: &[f64]) {
        let columns = self.matrix.column_count();
        let rows = self.basis.len();
        let mut prices = vec![0.0; rows];
        for (row, &basic) in self.basis.iter().enumerate() {
            let cost = objective.get(basic as usize).copied().unwrap_or(0.0);
            if cost != 0.0 {
                for (price, inverse) in prices.iter_mut().zip(&self.inverse[row * rows..(row + 1) * rows]) {
                    *price += cost * inverse;
                }
            }
        }
        for (variable, cost) in objective.iter().enumerate() {
            let paid: f64 = self.matrix.column(variable).map(|(row, coefficient)| prices[row] * coefficient).sum();
            self.reduced[variable] = cost - paid;
        }
        for (row, price) in prices.into_iter().enumerate() {
            self.reduced[columns + row] = -price;
        }
        for &basic in &self.basis {
            self.reduced[basic as usize] = 0.0;
        }
    }

    /// The variable whose move is the most profitable, or the first one that is profitable at all.
    fn entering(&self, is_first: bool) -> Option<usize> {
        let mut best = (0.0, None);
        for (variable, &reduced) in self.reduced.iter().enumerate() {
            let merit = reduced.abs() * self.scale[variable];
            if reduced.abs() <= EPSILON
                || merit <= best.0
                || self.is_closed[variable]
                || self.place[variable] != NOT_BASIC
            {
                continue;
            }
            let rest = self.rest[variable];
            let can_move = if reduced > 0.0 { rest < self.upper[variable] } else { rest > self.lower[variable] };
            if can_move {
                if is_first {
                    return Some(variable);
                }
                best = (merit, Some(variable));
            }
        }
        best.1
    }

    /// Moves `entering` until it or something else meets a bound; gives how far.
    fn advance(&mut self, entering: usize, is_first: bool) -> Result<f64, ProgramError> {
        self.compute_column(entering);
        let rest = self.rest[entering];
        let (direction, range) = if self.reduced[entering] > 0.0 {
            (1.0, self.upper[entering] - rest)
        } else {
            (-1.0, rest - self.lower[entering])
        };
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
        self.compute_row(row);
        let ratio = self.reduced[entering] / self.row[entering];
        for (reduced, coefficient) in self.reduced.iter_mut().zip(&self.row) {
            *reduced -= ratio * coefficient;
        }
        let basic = self.basis[row] as usize;
        let bound = if is_upper { self.upper[basic] } else { self.lower[basic] };
        self.exchange(row, entering, bound, rest + direction * step);
        self.reduced[entering] = 0.0;
        Ok(step)
    }

    /// Puts `entering`, with `value`, into the basis for the variable of `row`, which rests at `bound`.
    /// [`Self::column`] is `entering`'s.
    pub(super) fn exchange(&mut self, row: usize, entering: usize, bound: f64, value: f64) {
        let leaving = self.basis[row] as usize;
        self.pivot(row);
        self.place[leaving] = NOT_BASIC;
        self.rest[leaving] = bound;
        self.place[entering] = row as u32;
        self.basis[row] = entering as u32;
        self.value[row] = value;
    }

    /// Makes [`Self::column`] B⁻¹ times the column of `variable`.
    pub(super) fn compute_column(&mut self, variable: usize) {
        let rows = self.basis.len();
        self.column.fill(0.0);
        let mut add = |row: usize, coefficient: f64| {
            for (at, entry) in self.column.iter_mut().enumerate() {
                *entry += coefficient * self.inverse[at * rows + row];
            }
        };
        match variable.checked_sub(self.matrix.column_count()) {
            Some(row) => add(row, 1.0),
            None => self.matrix.column(variable).for_each(|(row, coefficient)| add(row, coefficient)),
        }
    }

    /// Makes [`Self::row`] the coefficients of all variables in `row` of B⁻¹ A; those of basic ones mean nothing.
    pub(super) fn compute_row(&mut self, row: usize) {
        let (columns, rows) = (self.matrix.column_count(), self.basis.len());
        let inverse = &self.inverse[row * rows..(row + 1) * rows];
        let (structural, slacks) = self.row.split_at_mut(columns);
        structural.fill(0.0);
        slacks.copy_from_slice(inverse);
        for (at, &factor) in inverse.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
            for (column, coefficient) in self.matrix.row(at) {
                structural[column] += factor * coefficient;
            }
        }
    }

    /// Updates the inverse for a basis in which [`Self::column`] takes the place of `row`.
    fn pivot(&mut self, row: usize) {
        let rows = self.basis.len();
        let (before, rest) = self.inverse.split_at_mut(row * rows);
        let (pivot_row, after) = rest.split_at_mut(rows);
        let factor = 1.0 / self.column[row];
        for entry in pivot_row.iter_mut() {
            *entry *= factor;
            // What is left of a cancellation would slow every later step down.
            if entry.abs() < 1e-14 {
                *entry = 0.0;
            }
        }
        let others = before.chunks_exact_mut(rows).zip(&self.column[..row]);
        for (other, &multiple) in others.chain(after.chunks_exact_mut(rows).zip(&self.column[row + 1..])) {
            if multiple != 0.0 {
                for (entry, pivot) in other.iter_mut().zip(pivot_row.iter()) {
                    *entry -= multiple * pivot;
                }
            }
        }
    }

    /// The largest error of a row with the values as they are.
    fn drift(&self) -> f64 {
        let columns = self.matrix.column_count();
        let error = |row: usize| {
            let sum: f64 = self.matrix.row(row).map(|(column, coefficient)| coefficient * self.raw_value(column)).sum();
            (sum + self.raw_value(columns + row) - self.limits[row]).abs()
        };
        (0..self.basis.len()).map(error).fold(0.0, f64::max)
    }

    fn raw_value(&self, variable: usize) -> f64 {
        match self.place[variable] {
            NOT_BASIC => self.value_of(variable),
            row => self.value[row as usize],
        }
    }

    fn set_identity(&mut self) {
        let rows = self.basis.len();
        self.inverse.fill(0.0);
        self.inverse.iter_mut().step_by(rows + 1).for_each(|entry| *entry = 1.0);
    }

    /// Makes the inverse and the values anew from the basis.
    fn repair(&mut self) {
        let (columns, rows) = (self.matrix.column_count(), self.basis.len());
        let wanted: Vec<u32> = self.basis.iter().copied().filter(|&variable| (variable as usize) < columns).collect();
        let mut is_free: Vec<bool> = (0..rows).map(|row| self.place[columns + row] == NOT_BASIC).collect();
        self.set_identity();
        self.basis = (columns as u32..(columns + rows) as u32).collect();
        for variable in wanted {
            self.compute_column(variable as usize);
            let free = (0..rows).filter(|&row| is_free[row]);
            // There is one for each structural variable of the basis, since it has as many as slacks are missing.
            let Some(row) = free.max_by(|&a, &b| self.column[a].abs().total_cmp(&self.column[b].abs())) else { break };
            is_free[row] = false;
            self.pivot(row);
            self.basis[row] = variable;
        }
        for (row, &basic) in self.basis.iter().enumerate() {
            self.place[basic as usize] = row as u32;
        }
        let mut rest = self.limits.clone();
        for column in (0..columns).filter(|&column| self.place[column] == NOT_BASIC) {
            let value = self.value_of(column);
            self.matrix.column(column).for_each(|(row, coefficient)| rest[row] -= coefficient * value);
        }
        for row in 0..rows {
            let inverse = &self.inverse[row * rows..(row + 1) * rows];
            self.value[row] = inverse.iter().zip(&rest).map(|(inverse, rest)| inverse * rest).sum();
        }
    }
}
