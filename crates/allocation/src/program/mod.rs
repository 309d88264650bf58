//! Linear programs of packing: bounded variables, rows of coefficients that are not negative, limits.
//!
//! Written here because the problem has a shape that libraries do not use: a feasible point is known and often near
//! the optimum, rows are few and sparse, and what is wanted is not any optimum but the max-min fair one, which takes
//! a warm start for each of its levels. `cargo bench -p isonomia-allocation` has microlp beside it, which takes three
//! to fifteen times as long for an arbitrary optimum. Large programs are started close to the optimal face by an
//! interior-point method; small ones at the point that is known.

mod cholesky;
mod inherit;
mod interior;
mod max_min;
mod scratch;
mod simplex;
mod sparse;

pub(crate) use max_min::Party;
pub(crate) use scratch::Scratch;
pub use simplex::ProgramError;
pub(crate) use simplex::Simplex;
pub(crate) use sparse::Matrix;

/// `max c·x` subject to `A x ≤ r` and `lower ≤ x ≤ upper`, with `A ≥ 0`.
///
/// For GIFT's programs (§3.4) A is 0/1 and r is 1: a row for each target, a variable for each application.
#[derive(Clone, Debug, Default)]
pub struct PackingProgram {
    limits: Vec<f64>,
    costs: Vec<f64>,
    lower: Vec<f64>,
    upper: Vec<f64>,
    columns: Vec<Vec<(u32, f64)>>,
}

/// An optimum of a [`PackingProgram`].
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The objective's value.
    pub objective: f64,
    /// The variables' values, in the order in which they were added; within 1e-9 of their bounds and limits.
    pub values: Vec<f64>,
}

impl PackingProgram {
    /// A program without variables, with a row for each of `limits`.
    pub fn new(limits: impl IntoIterator<Item = f64>) -> Self {
        Self { limits: limits.into_iter().collect(), ..Self::default() }
    }

    /// Adds a variable with its coefficient in the objective, its bounds (`upper` may be infinite), and its
    /// coefficients in rows, each at most once.
    pub fn add_variable(
        &mut self,
        cost: f64,
        lower: f64,
        upper: f64,
        coefficients: impl IntoIterator<Item = (usize, f64)>,
    ) {
        self.costs.push(cost);
        self.lower.push(lower);
        self.upper.push(upper);
        self.columns.push(coefficients.into_iter().map(|(row, value)| (row as u32, value)).collect());
    }

    /// An optimum, always the same one for the same program.
    pub fn solve(&self) -> Result<Solution, ProgramError> {
        let mut scratch = Scratch::default();
        let mut simplex = self.simplex(&mut scratch)?;
        simplex.approach(&self.costs, &mut scratch);
        simplex.maximize(&self.costs)?;
        Ok(self.solution(&simplex))
    }

    /// The optimum that is max-min fair in value over weight, with a weight for each variable. It is unique.
    pub fn solve_fair(&self, weights: &[f64]) -> Result<Solution, ProgramError> {
        if weights.len() != self.costs.len() || !weights.iter().all(|weight| weight.is_finite() && *weight > 0.0) {
            return Err(ProgramError::Malformed("there is a positive weight for each variable"));
        }
        let mut scratch = Scratch::default();
        let mut simplex = self.simplex(&mut scratch)?;
        simplex.approach(&self.costs, &mut scratch);
        simplex.maximize(&self.costs)?;
        let party = |(variable, (&floor, &weight)): (usize, (&f64, &f64))| Party {
            floor,
            weight,
            variables: [Some(variable as u32), None],
        };
        let parties: Vec<Party> = self.lower.iter().zip(weights).enumerate().map(party).collect();
        simplex.settle(&parties);
        Ok(self.solution(&simplex))
    }

    fn simplex(&self, scratch: &mut Scratch) -> Result<Simplex, ProgramError> {
        let finite = self.limits.iter().chain(&self.costs).chain(&self.lower);
        if !finite.copied().all(f64::is_finite) || self.upper.iter().any(|upper| upper.is_nan()) {
            return Err(ProgramError::Malformed("limits, costs and lower bounds are finite numbers"));
        }
        for column in &self.columns {
            if column.iter().any(|&(row, value)| row as usize >= self.limits.len() || !value.is_finite() || value < 0.0)
            {
                return Err(ProgramError::Malformed("coefficients are not negative, in rows that exist"));
            }
            let mut rows: Vec<u32> = column.iter().map(|entry| entry.0).collect();
            rows.sort_unstable();
            if rows.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(ProgramError::Malformed("a variable has one coefficient in a row"));
            }
        }
        // With coefficients that are not negative, the lower bounds are feasible if anything is.
        let matrix = Matrix::new(self.limits.len(), self.columns.iter().map(|column| column.iter().copied()));
        Simplex::new(matrix, self.limits.clone(), self.lower.clone(), self.upper.clone(), self.lower.clone(), scratch)
    }

    fn solution(&self, simplex: &Simplex) -> Solution {
        let values: Vec<f64> = (0..self.costs.len()).map(|variable| simplex.value_of(variable)).collect();
        let objective = values.iter().zip(&self.costs).map(|(value, cost)| value * cost).sum();
        Solution { objective, values }
    }
}
