//! The linear programs of the allocation schemes, by themselves.

use crate::refuse;
use isonomia_allocation::PackingProgram;
use pyo3::prelude::*;

/// An optimum of a packing program, and its objective; the max-min fair one if there are weights.
#[pyfunction]
pub fn solve_packing(
    py: Python<'_>,
    costs: Vec<f64>,
    rows: Vec<Vec<f64>>,
    limits: Vec<f64>,
    bounds: Vec<(f64, f64)>,
    weights: Option<Vec<f64>>,
) -> PyResult<(f64, Vec<f64>)> {
    py.detach(|| {
        if let Some(row) = rows.iter().position(|row| row.len() != costs.len()) {
            let what =
                format!("row {row} has {} coefficients (allowed: {}, one for each cost)", rows[row].len(), costs.len());
            return Err(refuse(what));
        }
        if rows.len() != limits.len() || bounds.len() != costs.len() {
            return Err(refuse("there is one limit for each row, and a pair of bounds for each cost"));
        }
        let mut program = PackingProgram::new(limits);
        for (variable, (&cost, &(lower, upper))) in costs.iter().zip(&bounds).enumerate() {
            let column = rows.iter().enumerate().map(|(at, row)| (at, row[variable])).filter(|entry| entry.1 != 0.0);
            program.add_variable(cost, lower, upper, column);
        }
        let solution = match weights {
            Some(weights) => program.solve_fair(&weights),
            None => program.solve(),
        };
        solution.map(|solution| (solution.objective, solution.values)).map_err(refuse)
    })
}
