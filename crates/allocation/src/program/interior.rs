//! A start near the optimum for large programs, by a primal-dual interior-point method.
//!
//! It takes some fifteen rounds whatever the size, where the simplex method takes about a step for each variable. It
//! ends close to a point inside of the optimal face, which tells what is at its bound in all of that face. From there
//! [`Simplex::approach`] goes to the face itself, with a basis. What follows is the simplex method's: it takes few
//! steps or none, and it is what decides that the point is an optimum. If the rounds lead nowhere, it only takes more.
//!
//! Sources: S. Mehrotra, On the implementation of a primal-dual interior point method, SIAM J. Optim. 2 (1992); S. J.
//! Wright, Primal-Dual Interior-Point Methods (1997), ch. 10. Deviation: the start is feasible, which is easy for
//! packing programs, so there are no residuals to bring down. Of several corrections a round (Gondzio's), each costs
//! as much as it saves here.

use super::cholesky::Cholesky;
use super::scratch::Scratch;
use super::simplex::{EPSILON, NOT_BASIC, Simplex};
use super::sparse::Matrix;
use crate::filling::FULL;

/// Programs with fewer rows or columns are left to the simplex method, which is as fast there.
const ROWS_MIN: usize = 48;
const COLUMNS_MIN: usize = 400;
/// Rounds at most.
const ROUNDS_MAX: u32 = 40;
/// The mean product of a value and its dual, as a part of what it was at first, at which the rounds end.
const GAP_MIN: f64 = 1e-7;
/// How far of the way to the nearest bound a round goes at most.
const DAMPING: f64 = 0.999;
/// How much of the room that a row has for each of its variables they have at first.
const SHARE: f64 = 0.9;
/// What a column has at least where it is taken into the basis.
const PIVOT_MIN: f64 = 1e-3;
/// Variables that leave the basis at most because they cannot move as far as the rows have room.
const FILLS_MAX: u32 = 24;

/// Values that are not negative with their duals, and a step of both.
struct Pairs {
    value: Vec<f64>,
    dual: Vec<f64>,
    value_step: Vec<f64>,
    dual_step: Vec<f64>,
    /// Value over dual at first: at which ratio neither is taken for zero.
    scale: Vec<f64>,
}

impl Pairs {
    fn new(value: Vec<f64>, dual: Vec<f64>) -> Self {
        let scale = value.iter().zip(&dual).map(|(value, dual)| value / dual).collect();
        let none = vec![0.0; value.len()];
        Self { value, dual, value_step: none.clone(), dual_step: none, scale }
    }

    /// Σ value · dual after steps of these lengths.
    fn gap(&self, (value_length, dual_length): (f64, f64)) -> f64 {
        let values = self.value.iter().zip(&self.value_step).map(|(value, step)| value + value_length * step);
        let duals = self.dual.iter().zip(&self.dual_step).map(|(dual, step)| dual + dual_length * step);
        values.zip(duals).map(|(value, dual)| value * dual).sum()
    }

    fn advance(&mut self, (value_length, dual_length): (f64, f64)) {
        self.value.iter_mut().zip(&self.value_step).for_each(|(value, step)| *value += value_length * step);
        self.dual.iter_mut().zip(&self.dual_step).for_each(|(dual, step)| *dual += dual_length * step);
    }

    /// What the value moves by if the dual stays, for a product of `target` less what the last step left out.
    fn pull(&self, at: usize, target: f64, left_out: f64) -> f64 {
        (target - left_out * self.value_step[at] * self.dual_step[at]) / self.dual[at] - self.value[at]
    }

    /// The step in which the dual moves by `dual_step`.
    fn set_step(&mut self, at: usize, pull: f64, dual_step: f64) {
        self.value_step[at] = pull - self.value[at] / self.dual[at] * dual_step;
        self.dual_step[at] = dual_step;
    }

    fn is_open(&self, at: usize) -> bool {
        self.value[at] > self.dual[at] * self.scale[at]
    }
}

/// How far `values` can go by `steps` before one is negative.
fn reach(values: &[f64], steps: &[f64]) -> f64 {
    let reaches = values.iter().zip(steps).filter(|(_, step)| **step < 0.0).map(|(value, step)| -value / step);
    reaches.fold(f64::INFINITY, f64::min)
}

/// `max c·x` subject to `A x + s = r` and its dual, `min r·y` subject to `Aᵀ y − z = c`; nothing is negative.
struct Interior<'a> {
    matrix: &'a Matrix,
    /// x and z.
    columns: Pairs,
    /// s and y.
    rows: Pairs,
}

impl<'a> Interior<'a> {
    /// A feasible start, if something is worth its while. Every column has a coefficient.
    fn new(matrix: &'a Matrix, room: &[f64], costs: &[f64]) -> Option<Self> {
        let load = |row: usize| matrix.row(row).map(|(_, coefficient)| coefficient).sum::<f64>();
        let share: Vec<f64> = (0..room.len()).map(|row| SHARE * room[row] / load(row)).collect();
        let least = |column: usize| matrix.column(column).map(|(row, _)| share[row]).fold(f64::INFINITY, f64::min);
        let value: Vec<f64> = (0..costs.len()).map(least).collect();
        let mut left = room.to_vec();
        for (column, value) in value.iter().enumerate() {
            matrix.column(column).for_each(|(row, coefficient)| left[row] -= coefficient * value);
        }
        let taken = |column: usize| matrix.column(column).map(|(_, coefficient)| coefficient).sum::<f64>();
        let taken: Vec<f64> = (0..costs.len()).map(taken).collect();
        let price = 2.0 * costs.iter().zip(&taken).map(|(cost, taken)| cost / taken).fold(0.0, f64::max);
        let dual = costs.iter().zip(&taken).map(|(cost, taken)| price * taken - cost).collect();
        let rows = Pairs::new(left, vec![price; room.len()]);
        (price > 0.0).then(|| Self { matrix, columns: Pairs::new(value, dual), rows })
    }

    /// Goes close to the optimal face. O(m³ + entries) for each round.
    fn run(&mut self, factor: &mut Cholesky) {
        let first = self.gap((0.0, 0.0));
        let count = (self.columns.value.len() + self.rows.value.len()) as f64;
        let mut gap = first;
        for _ in 0..ROUNDS_MAX {
            if gap <= GAP_MIN * first {
                return;
            }
            self.factorise(factor);
            self.aim(factor, 0.0, 0.0);
            let centring = self.gap(self.lengths(1.0)) / gap;
            self.aim(factor, centring * centring * centring * gap / count, 1.0);
            let lengths = self.lengths(DAMPING);
            self.columns.advance(lengths);
            self.rows.advance(lengths);
            gap = self.gap((0.0, 0.0));
        }
    }

    /// The matrix of Newton's step, A X Z⁻¹ Aᵀ + S Y⁻¹.
    fn factorise(&self, factor: &mut Cholesky) {
        factor.clear();
        for (row, (slack, price)) in self.rows.value.iter().zip(&self.rows.dual).enumerate() {
            factor.add(row, row, slack / price);
        }
        for (column, (value, dual)) in self.columns.value.iter().zip(&self.columns.dual).enumerate() {
            let mut entries = self.matrix.column(column);
            while let Some((row, coefficient)) = entries.next() {
                let scaled = value / dual * coefficient;
                factor.add(row, row, scaled * coefficient);
                for (other, coefficient) in entries.clone() {
                    factor.add(row.min(other), row.max(other), scaled * coefficient);
                }
            }
        }
        factor.factorise();
    }

    /// Newton's step to products of `target`. O(m² + entries).
    fn aim(&mut self, factor: &Cholesky, target: f64, left_out: f64) {
        let (rows, columns) = (self.rows.value.len(), self.columns.value.len());
        let mut prices: Vec<f64> = (0..rows).map(|row| self.rows.pull(row, target, left_out)).collect();
        let pulls: Vec<f64> = (0..columns).map(|column| self.columns.pull(column, target, left_out)).collect();
        for (column, pull) in pulls.iter().enumerate() {
            self.matrix.column(column).for_each(|(row, coefficient)| prices[row] += coefficient * pull);
        }
        factor.solve(&mut prices);
        for (column, &pull) in pulls.iter().enumerate() {
            let paid = self.matrix.column(column).map(|(row, coefficient)| coefficient * prices[row]).sum();
            self.columns.set_step(column, pull, paid);
        }
        for (row, &price) in prices.iter().enumerate() {
            self.rows.set_step(row, self.rows.pull(row, target, left_out), price);
        }
    }

    fn gap(&self, lengths: (f64, f64)) -> f64 {
        self.columns.gap(lengths) + self.rows.gap(lengths)
    }

    /// How far values and duals can go, by their last steps, of the way to a bound.
    fn lengths(&self, damping: f64) -> (f64, f64) {
        let (columns, rows) = (&self.columns, &self.rows);
        let values = reach(&columns.value, &columns.value_step).min(reach(&rows.value, &rows.value_step));
        let duals = reach(&columns.dual, &columns.dual_step).min(reach(&rows.dual, &rows.dual_step));
        ((damping * values).min(1.0), (damping * duals).min(1.0))
    }
}

impl Simplex {
    /// Moves from a basis of slacks close to the face that is optimal by `objective`, with a basis; `false` if the
    /// program is small or has upper bounds, or if it led nowhere, and then nothing is moved.
    pub(crate) fn approach(&mut self, objective: &[f64], scratch: &mut Scratch) -> bool {
        let (rows, columns) = (self.matrix.row_count(), self.matrix.column_count());
        let is_bounded = self.upper[..columns].iter().any(|upper| upper.is_finite());
        if is_bounded || rows < ROWS_MIN || columns < COLUMNS_MIN {
            return false;
        }
        let mut room = self.room_at(&self.lower[..columns]);
        let is_live = |column: usize| {
            let mut taken = self.matrix.column(column).filter(|entry| entry.1 > 0.0).peekable();
            taken.peek().is_some() && taken.all(|(row, _)| room[row] > FULL)
        };
        let live: Vec<usize> = (0..columns).filter(|&column| is_live(column)).collect();
        // In the others nothing is live, so that any room does.
        room.iter_mut().filter(|room| **room <= FULL).for_each(|room| *room = 1.0);
        let entries = |&column: &usize| self.matrix.column(column).map(|(row, value)| (row as u32, value));
        let matrix = Matrix::new(rows, live.iter().map(entries));
        let costs: Vec<f64> = live.iter().map(|&column| objective[column]).collect();
        let Some(mut interior) = Interior::new(&matrix, &room, &costs) else { return false };
        let mut factor = Cholesky::new(rows, scratch);
        interior.run(&mut factor);
        factor.give_back(scratch);

        let mut values = self.lower[..columns].to_vec();
        let is_full: Vec<bool> = (0..rows).map(|row| !interior.rows.is_open(row)).collect();
        let mut full_rows = vec![0; columns];
        for (at, &column) in live.iter().enumerate() {
            if interior.columns.is_open(at) {
                values[column] += interior.columns.value[at];
                full_rows[column] = self.matrix.column(column).filter(|&(row, _)| is_full[row]).count();
            }
        }
        let slacks = self.room_at(&values);
        if !slacks.iter().all(|&slack| slack >= -EPSILON) {
            return false;
        }
        values.extend(slacks.iter().map(|slack| slack.max(0.0)));
        self.value.copy_from_slice(&values[columns..]);
        self.rest = values;
        self.enter_optimal(is_full, full_rows);
        self.fill_rows();
        true
    }

    /// Makes a basis of columns with full rows, `full_rows` of them, as far as they are enough for these.
    fn enter_optimal(&mut self, is_full: Vec<bool>, full_rows: Vec<usize>) {
        let columns = full_rows.len();
        let most = full_rows.iter().copied().max().unwrap_or(0);
        let mut left: Vec<u32> = (0..columns as u32).filter(|&column| full_rows[column as usize] > 0).collect();
        self.enter_rows(is_full.clone(), full_rows, most, PIVOT_MIN);
        // Columns whose own rows are taken may still do for other rows. What is far from its bound stays in the basis.
        left.retain(|&column| self.row_of[column as usize] == NOT_BASIC);
        left.sort_by(|&a, &b| self.rest[b as usize].total_cmp(&self.rest[a as usize]).then(a.cmp(&b)));
        let is_left = |&row: &usize| is_full[row] && self.row_of[columns + row] != NOT_BASIC;
        let rows: Vec<usize> = (0..is_full.len()).filter(is_left).collect();
        self.adopt(&left, &rows, PIVOT_MIN);
    }

    /// Gives the room that rows outside of the basis still have to the basic variables. One that cannot move as far leaves the
    /// basis at its bound, and a row keeps its room for that.
    fn fill_rows(&mut self) {
        let (rows, columns) = (self.matrix.row_count(), self.matrix.column_count());
        let mut step = vec![0.0; rows];
        for _ in 0..FILLS_MAX {
            step.fill(0.0);
            for (slack, column) in (columns..).zip(self.inverse.chunks_exact(rows)) {
                if self.row_of[slack] == NOT_BASIC && self.rest[slack] != 0.0 {
                    let left = self.rest[slack];
                    step.iter_mut().zip(column).for_each(|(step, inverse)| *step += left * inverse);
                }
            }
            let above = |row: usize| self.value[row] - self.lower[self.basis[row] as usize];
            let falls = (0..rows).filter(|&row| step[row] < 0.0).map(|row| (-above(row) / step[row], row));
            let (length, blocking) =
                falls.fold(
                    (1.0, None),
                    |(least, at), (reach, row)| {
                        if reach < least { (reach.max(0.0), Some(row)) } else { (least, at) }
                    },
                );
            self.value.iter_mut().zip(&step).for_each(|(value, step)| *value += length * step);
            for slack in columns..columns + rows {
                if self.row_of[slack] == NOT_BASIC {
                    self.rest[slack] *= 1.0 - length;
                }
            }
            let Some(row) = blocking else { return };
            let size = |slack: usize| self.inverse[(slack - columns) * rows + row].abs();
            let may_keep = |&slack: &usize| self.row_of[slack] == NOT_BASIC && self.rest[slack] > 0.0;
            let most = (columns..columns + rows).filter(may_keep).max_by(|&a, &b| size(a).total_cmp(&size(b)));
            let Some(slack) = most.filter(|&slack| size(slack) > PIVOT_MIN) else { return };
            self.compute_column(slack);
            self.exchange(row, slack, self.lower[self.basis[row] as usize], self.rest[slack]);
        }
    }
}
