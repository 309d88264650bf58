//! MBW: the greatest effective bandwidth, whoever pays for it.

use crate::fair::bsip_shares;
use crate::program::{PackingProgram, ProgramError};
use crate::{Allocation, Problem};

/// Minimum Bandwidth Wastage (GIFT §2, Fig. 5): synchronous progress with the greatest effective bandwidth, without
/// regard to fair shares; an application may get nothing.
///
/// The paper calls it greedy and gives no algorithm; the published prototype solves GIFT's program (Eq. 1) without
/// lower bounds, as does this. Among the optima it is the one that is max-min fair in share over weight.
pub fn mbw(problem: &Problem) -> Result<Allocation, ProgramError> {
    let mut program = PackingProgram::new(problem.targets().capacities().iter().copied());
    for targets in problem.members.by_app() {
        program.add_variable(targets.len() as f64, 0.0, f64::INFINITY, targets.iter().map(|&row| (row as usize, 1.0)));
    }
    let weights: Vec<f64> = problem.apps().iter().map(|app| app.weight).collect();
    let solution = program.solve_fair(&weights)?;
    Ok(Allocation::synchronous(problem, &solution.values, &bsip_shares(problem)))
}
