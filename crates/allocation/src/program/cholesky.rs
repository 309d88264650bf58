//! Dense Cholesky factorisation, A = Uᵀ U.
//!
//! Every number is computed by the same operations in the same order on all processors; wider registers only compute
//! more of them at once. Products and sums are not fused.

use super::scratch::Scratch;

/// Rows that are eliminated together, so that the rest of the matrix goes through the cache once for them all.
const PANEL: usize = 8;
/// Rows begin at multiples of this, and so do the parts of them that are computed: without odd ends, all of it is
/// done in wide registers.
const LANES: usize = 16;
/// Rows from which a panel is eliminated together, so that it is loaded once for them all. They begin in the same register, as
/// this divides [`PANEL`], and that [`LANES`].
const TOGETHER: usize = 2;
/// A pivot below this belongs to a row that depends on others; it is left out.
const PIVOT_MIN: f64 = 1e-30;

/// A symmetric positive definite matrix, or its factor: the upper triangle, row by row. What stands elsewhere means
/// nothing.
pub(super) struct Cholesky {
    entries: Vec<f64>,
    size: usize,
    /// From one row to the next.
    stride: usize,
}

impl Cholesky {
    pub(super) fn new(size: usize, scratch: &mut Scratch) -> Self {
        let stride = size.next_multiple_of(LANES);
        Self { entries: scratch.zeros(size * stride), size, stride }
    }

    pub(super) fn give_back(self, scratch: &mut Scratch) {
        scratch.keep(self.entries);
    }

    pub(super) fn clear(&mut self) {
        self.entries.fill(0.0);
    }

    /// Adds to an entry, of which `row` is the lesser index.
    pub(super) fn add(&mut self, row: usize, column: usize, value: f64) {
        self.entries[row * self.stride + column] += value;
    }

    /// Replaces the matrix by the factor. O(size³).
    pub(super) fn factorise(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has AVX-512.
                return unsafe { self.factorise_widest() };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                return unsafe { self.factorise_wide() };
            }
        }
        self.factorise_panels();
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn factorise_widest(&mut self) {
        self.factorise_panels();
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn factorise_wide(&mut self) {
        self.factorise_panels();
    }

    #[inline(always)]
    fn factorise_panels(&mut self) {
        let (size, stride) = (self.size, self.stride);
        let pieces = stride / LANES;
        for begin in (0..size).step_by(PANEL) {
            let end = (begin + PANEL).min(size);
            for at in begin..end {
                let (above, row) = self.entries.split_at_mut(at * stride);
                let (from, lane) = (at / LANES, at % LANES);
                let (row, _) = row[..stride].as_chunks_mut::<LANES>();
                let (others, _) = above[begin * stride..].as_chunks::<LANES>();
                let mut factors = [0.0; PANEL];
                for (factor, other) in factors.iter_mut().zip(others.chunks_exact(pieces)) {
                    *factor = other[from][lane];
                }
                for (piece, row) in row.iter_mut().enumerate().skip(from) {
                    let mut entries = *row;
                    for (factor, other) in factors.iter().zip(others.chunks_exact(pieces)) {
                        entries.iter_mut().zip(&other[piece]).for_each(|(entry, other)| *entry -= factor * other);
                    }
                    *row = entries;
                }
                let row = row[from..].as_flattened_mut();
                let pivot = row[lane];
                let (root, scale) =
                    if pivot > PIVOT_MIN { (pivot.sqrt(), 1.0 / pivot.sqrt()) } else { (f64::INFINITY, 0.0) };
                row.iter_mut().for_each(|entry| *entry *= scale);
                row[lane] = root;
            }
            let (above, below) = self.entries.split_at_mut(end * stride);
            let Some((panel, _)) = above[begin * stride..].as_chunks::<LANES>().0.split_at_checked(PANEL * pieces)
            else {
                // Nothing is below the last panel if it is a part of one.
                return;
            };
            let mut at = end;
            for rows in below.chunks_mut(TOGETHER * stride) {
                let (rows, _) = rows.as_chunks_mut::<LANES>();
                if rows.len() == TOGETHER * pieces {
                    eliminate::<TOGETHER>(rows, panel, at);
                } else {
                    for (row, at) in rows.chunks_mut(pieces).zip(at..) {
                        eliminate::<1>(row, panel, at);
                    }
                }
                at += TOGETHER;
            }
        }
    }

    /// Replaces b by the solution of A x = b, with the factor. O(size²).
    pub(super) fn solve(&self, values: &mut [f64]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { self.solve_wide(values) };
        }
        self.solve_rows(values);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn solve_wide(&self, values: &mut [f64]) {
        self.solve_rows(values);
    }

    #[inline(always)]
    fn solve_rows(&self, values: &mut [f64]) {
        let row = |at: usize| self.entries[at * self.stride + at..at * self.stride + self.size].split_first();
        for at in 0..self.size {
            let Some((pivot, others)) = row(at) else { continue };
            let value = values[at] / pivot;
            values[at] = value;
            values[at + 1..].iter_mut().zip(others).for_each(|(other, entry)| *other -= entry * value);
        }
        for at in (0..self.size).rev() {
            let Some((pivot, others)) = row(at) else { continue };
            values[at] = (values[at] - product(others, &values[at + 1..])) / pivot;
        }
    }
}

/// Subtracts from `rows`, of which the first is row `at`, what those of `panel` have. All of them are in pieces of registers, and the
/// rows begin in one piece.
#[inline(always)]
fn eliminate<const ROWS: usize>(rows: &mut [[f64; LANES]], panel: &[[f64; LANES]], at: usize) {
    let pieces = rows.len() / ROWS;
    let (from, lane) = (at / LANES, at % LANES);
    let mut factors = [[0.0; PANEL]; ROWS];
    for (row, factors) in factors.iter_mut().enumerate() {
        for (factor, other) in factors.iter_mut().zip(panel.chunks_exact(pieces)) {
            *factor = other[from][lane + row];
        }
    }
    for piece in from..pieces {
        let [a, b, c, d, e, f, g, h] = pieces_at(panel, piece, pieces);
        for (row, factors) in factors.iter().enumerate() {
            let mut entries = rows[row * pieces + piece];
            for (lane, entry) in entries.iter_mut().enumerate() {
                *entry -= ((factors[0] * a[lane] + factors[1] * b[lane])
                    + (factors[2] * c[lane] + factors[3] * d[lane]))
                    + ((factors[4] * e[lane] + factors[5] * f[lane]) + (factors[6] * g[lane] + factors[7] * h[lane]));
            }
            rows[row * pieces + piece] = entries;
        }
    }
}

/// The same piece of each row of a panel.
#[inline(always)]
fn pieces_at(panel: &[[f64; LANES]], piece: usize, pieces: usize) -> [&[f64; LANES]; PANEL] {
    let at = |row: usize| &panel[row * pieces + piece];
    [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]
}

/// Σ a b, as sums of every eighth product.
#[inline(always)]
fn product(a: &[f64], b: &[f64]) -> f64 {
    let (chunks_a, rest_a) = a.as_chunks::<8>();
    let (chunks_b, rest_b) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in chunks_a.iter().zip(chunks_b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::{Cholesky, Scratch};

    /// Row `row` of a matrix that is positive definite because its diagonal dominates.
    fn entry(row: usize, column: usize, size: usize) -> f64 {
        let off = ((row * column + row + column) % 7) as f64 - 3.0;
        if row == column { 4.0 * size as f64 } else { off }
    }

    #[test]
    fn the_solution_solves() {
        for size in [1, 2, 7, 8, 9, 16, 17, 31, 50] {
            let mut factor = Cholesky::new(size, &mut Scratch::default());
            for row in 0..size {
                (row..size).for_each(|column| factor.add(row, column, entry(row, column, size)));
            }
            factor.factorise();
            let wanted: Vec<f64> = (0..size).map(|at| at as f64 - 3.5).collect();
            let mut values: Vec<f64> =
                (0..size).map(|row| (0..size).map(|column| entry(row, column, size) * wanted[column]).sum()).collect();
            factor.solve(&mut values);
            assert!(values.iter().zip(&wanted).all(|(value, wanted)| (value - wanted).abs() < 1e-10), "{size}");
        }
    }

    #[test]
    fn wide_registers_change_no_bit() {
        let size = 53;
        let matrix = || {
            let mut matrix = Cholesky::new(size, &mut Scratch::default());
            for row in 0..size {
                (row..size).for_each(|column| matrix.add(row, column, entry(row, column, size) / 3.0));
            }
            matrix
        };
        let (mut fast, mut plain) = (matrix(), matrix());
        fast.factorise();
        plain.factorise_panels();
        let bits = |of: &[f64]| of.iter().map(|entry| entry.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&fast.entries), bits(&plain.entries));
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            let mut wide = matrix();
            // SAFETY: the processor has AVX2.
            unsafe { wide.factorise_wide() };
            assert_eq!(bits(&wide.entries), bits(&plain.entries));
        }
        let values = || (0..size).map(|at| at as f64 / 7.0).collect::<Vec<_>>();
        let (mut fast_values, mut plain_values) = (values(), values());
        fast.solve(&mut fast_values);
        plain.solve_rows(&mut plain_values);
        assert_eq!(bits(&fast_values), bits(&plain_values));
    }
}
