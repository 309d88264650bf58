//! A program that begins with the basis of another one.

use super::simplex::{NOT_BASIC, Simplex};
use crate::filling::FULL;

impl Simplex {
    /// Takes over the basis of `other`, from a basis of slacks: the first rows here are `other`'s, and `same` is the
    /// variable here that has there the coefficients of a variable there. The point stays. O(m²) and the entries of the
    /// rows that `other` lacks, where [`Self::adopt`] takes O(m²) for each variable.
    ///
    /// With the rows W of the basis that are new, the inverse of `[B 0; W 1]` is `[B⁻¹ 0; −W B⁻¹ 1]`.
    pub(crate) fn inherit(&mut self, other: &Self, same: impl Fn(u32) -> u32) {
        let (rows, columns) = (self.basis.len(), self.matrix.column_count());
        let (rows_there, columns_there) = (other.basis.len(), other.matrix.column_count());
        let slacks: Vec<f64> = self.value[..rows_there].to_vec();
        self.row_of[columns..columns + rows_there].fill(NOT_BASIC);
        // A row outside of the basis may have room all the same.
        for (rest, &slack) in self.rest[columns..].iter_mut().zip(&slacks) {
            *rest = if slack > FULL { slack } else { 0.0 };
        }
        for (row, &there) in other.basis.iter().enumerate() {
            let (here, value) = match (there as usize).checked_sub(columns_there) {
                Some(slack) => ((columns + slack) as u32, slacks[slack]),
                None => (same(there), self.rest[same(there) as usize]),
            };
            self.basis[row] = here;
            self.row_of[here as usize] = row as u32;
            self.value[row] = value;
        }
        for (column, there) in
            self.inverse.chunks_exact_mut(rows.max(1)).zip(other.inverse.chunks_exact(rows_there.max(1)))
        {
            column[..rows_there].copy_from_slice(there);
        }
        let mut basic = vec![0.0; rows_there];
        for row in rows_there..rows {
            basic.fill(0.0);
            for (variable, coefficient) in self.matrix.row(row) {
                if let Some(entry) = basic.get_mut(self.row_of[variable] as usize) {
                    *entry = coefficient;
                }
            }
            for column in self.inverse.chunks_exact_mut(rows).take(rows_there) {
                column[row] = -column.iter().zip(&basic).map(|(inverse, entry)| inverse * entry).sum::<f64>();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::super::sparse::Matrix;
    use super::*;

    /// The entry of the product of the basis and its inverse.
    fn product(simplex: &Simplex, row: usize, column: usize) -> f64 {
        let (rows, columns) = (simplex.basis.len(), simplex.matrix.column_count());
        let entry = |at: usize| match (simplex.basis[at] as usize).checked_sub(columns) {
            Some(slack) => f64::from(u8::from(slack == row)),
            None => simplex
                .matrix
                .column(simplex.basis[at] as usize)
                .find(|entry| entry.0 == row)
                .map_or(0.0, |entry| entry.1),
        };
        (0..rows).map(|at| entry(at) * simplex.inverse[column * rows + at]).sum()
    }

    #[test]
    fn a_basis_is_inherited_by_a_program_with_more_rows_and_columns() {
        let mut scratch = Scratch::default();
        let mut begin = |limits: &[f64], columns: &[&[(u32, f64)]], start: &[f64]| {
            let matrix = Matrix::new(limits.len(), columns.iter().map(|column| column.iter().copied()));
            let (lower, upper) = (vec![0.0; columns.len()], vec![f64::INFINITY; columns.len()]);
            Simplex::new(matrix, limits.to_vec(), lower, upper, start.to_vec(), &mut scratch).unwrap()
        };
        let columns: [&[(u32, f64)]; 3] = [&[(0, 1.0), (1, 1.0)], &[(1, 2.0)], &[(0, 1.0), (2, 1.0)]];
        let mut there = begin(&[1.0; 3], &columns, &[0.0; 3]);
        there.maximize(&[2.0, 1.0, 2.0]).unwrap();
        assert!(there.basic_variables().count() > 1);
        // The columns in another order, each with something in one more row, and one that is new.
        let columns: [&[(u32, f64)]; 4] = [
            &[(0, 1.0), (2, 1.0), (3, 0.5)],
            &[(2, 1.0), (3, 9.0)],
            &[(1, 2.0), (3, 0.25)],
            &[(0, 1.0), (1, 1.0), (3, 3.0)],
        ];
        let same = [3, 2, 0];
        // At the point that the basis is of, and where its rows have room.
        for part in [1.0, 0.9] {
            let mut start = [0.0; 4];
            (0..3).for_each(|variable| start[same[variable] as usize] = part * there.value_of(variable));
            let limits = [1.0, 1.0, 1.0, 10.0];
            let mut here = begin(&limits, &columns, &start);
            here.inherit(&there, |variable| same[variable as usize]);
            for (row, column) in (0..16).map(|at| (at / 4, at % 4)) {
                let wanted = f64::from(u8::from(row == column));
                assert!((product(&here, row, column) - wanted).abs() < 1e-12, "{row} {column}");
            }
            let basic: Vec<u32> =
                there.basis.iter().map(|&basic| if basic < 3 { same[basic as usize] } else { basic + 1 }).collect();
            assert_eq!(here.basis[..3], basic);
            for (row, basic) in here.basis.iter().enumerate() {
                assert_eq!(here.row_of[*basic as usize] as usize, row);
            }
            // The point is the one that it began at, and the best one is found from there.
            assert!((0..4).all(|variable| here.value_of(variable) == start[variable]) && here.drift() < 1e-12);
            let mut fresh = begin(&limits, &columns, &[0.0; 4]);
            let costs = [2.0, 1.0, 1.0, 2.0];
            let best = |simplex: &mut Simplex| {
                simplex.maximize(&costs).unwrap();
                (0..4).map(|variable| costs[variable] * simplex.value_of(variable)).sum::<f64>()
            };
            assert!((best(&mut here) - best(&mut fresh)).abs() < 1e-12);
        }
    }
}
