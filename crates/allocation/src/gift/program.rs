//! GIFT's linear program (§3.4), with a choice among its optima.

use crate::Problem;
use crate::filling::{FULL, fill};
use crate::program::{Matrix, Party, ProgramError, Simplex};

/// What the program is about, with an entry for each application of the problem.
pub(super) struct Inputs<'a> {
    pub(super) problem: &'a Problem,
    /// The shares under BSIP.
    pub(super) fair: &'a [f64],
    /// What redeemed coupons add to that.
    pub(super) redeemed: &'a [f64],
    /// How far each may be throttled; 0 for those that may not.
    pub(super) throttle_max: &'a [f64],
}

/// The shares b of the applications: those with
///
/// 1. the greatest effective bandwidth Σ s·b (Eq. 1; s is the number of an application's targets), among those
/// 2. the least worth of coupons, among those
/// 3. max-min fair in share over weight,
///
/// where b is at least the BSIP share and what is redeemed, less `throttle_max`, no target gives more than it has,
/// and the bandwidth gained over BSIP is at least the worth of the coupons (constraint 3). Constraint (2), no less
/// effective bandwidth than BSIP, follows from (3).
///
/// Deviations: the paper's (3) asks for more than the worth, but its own Fig. 6 gains exactly that. The paper takes
/// any optimum; 2 and 3 keep degenerate ones from throttling for nothing and give what is left fairly.
///
/// A share is held as two variables, what is restored of the throttling and what comes on top, so that (3) is
/// linear: Σ s·top ≥ Σ s·(throttle_max − restored), both sides of (3) less what the throttled give up, twice.
pub(super) fn solve(inputs: &Inputs) -> Result<Vec<f64>, ProgramError> {
    let Inputs { problem, fair, redeemed, throttle_max } = inputs;
    let weights: Vec<f64> = problem.apps().iter().map(|app| app.weight).collect();
    let base: Vec<f64> = fair.iter().zip(*redeemed).map(|(fair, redeemed)| fair + redeemed).collect();
    let used_rows = UsedTargets::new(problem);
    let mut room = used_rows.room(problem, &base);

    // With every target full there is nothing left to gain, and filling is max-min fair among the points at which
    // nobody is throttled.
    let filling = Matrix::new(room.len(), used_rows.columns(problem));
    let mut shares = base.clone();
    let mut left = room.clone();
    fill(&filling, &mut left, &weights, &mut shares);
    if left.iter().all(|&left| left <= FULL) {
        return Ok(shares);
    }

    let friendly: Vec<usize> = (0..base.len()).filter(|&app| throttle_max[app] > 0.0).collect();
    let width = |app: usize| problem.members.targets_of(app).len() as f64;
    let worth_row = (!friendly.is_empty()).then_some(room.len() as u32);
    let tops = (0..base.len()).map(|app| (app, -width(app)));
    let restored = friendly.iter().map(|&app| (app, -2.0 * width(app)));
    let column = |(app, gain): (usize, f64)| used_rows.column(problem, app).chain(worth_row.map(|row| (row, gain)));
    let row_count = room.len() + usize::from(worth_row.is_some());
    let matrix = Matrix::new(row_count, tops.chain(restored).map(column));
    let throttled: f64 = friendly.iter().map(|&app| width(app) * throttle_max[app]).sum();
    for &app in &friendly {
        used_rows.column(problem, app).for_each(|(row, _)| room[row as usize] += throttle_max[app]);
    }
    if worth_row.is_some() {
        let gained: f64 = (0..base.len()).map(|app| width(app) * redeemed[app]).sum();
        room.push(gained - 2.0 * throttled);
    }
    let top_count = base.len();
    let lower = vec![0.0; top_count + friendly.len()];
    let mut upper = vec![f64::INFINITY; top_count];
    upper.extend(friendly.iter().map(|&app| throttle_max[app]));
    // From where filling has led, without throttling, it is not far.
    let mut start: Vec<f64> = shares.iter().zip(&base).map(|(share, base)| share - base).collect();
    start.extend_from_slice(&upper[top_count..]);
    let mut simplex = Simplex::new(matrix, room, lower, upper, start)?;
    let bandwidth: Vec<f64> = (0..top_count).chain(friendly.iter().copied()).map(width).collect();
    simplex.enter_full_rows(&bandwidth);
    let restored_at = |position: usize| top_count + position;
    if !friendly.is_empty() {
        // Throttling costs a little at first: what it gains nothing for is so left alone, and the two exact objectives
        // have little to do. They make sure that nothing was lost by it.
        let mut reluctant = bandwidth.clone();
        reluctant[top_count..].iter_mut().for_each(|cost| *cost *= 1.0 + RELUCTANCE);
        simplex.improve(&reluctant)?;
    }
    simplex.maximize(&bandwidth)?;
    // Even if nobody is throttled at this optimum: from here on, no more coupons than now.
    if !friendly.is_empty() {
        let mut restoring = bandwidth;
        restoring[..top_count].fill(0.0);
        simplex.maximize(&restoring)?;
    }
    let mut parties: Vec<Party> = base
        .iter()
        .zip(&weights)
        .enumerate()
        .map(|(app, (&floor, &weight))| Party { floor, weight, variables: [Some(app as u32), None] })
        .collect();
    for (position, &app) in friendly.iter().enumerate() {
        let party = &mut parties[app];
        party.floor -= throttle_max[app];
        party.variables = [Some(restored_at(position) as u32), Some(app as u32)];
    }
    simplex.settle(&parties);

    let mut shares = base;
    for (app, share) in shares.iter_mut().enumerate() {
        *share += simplex.value_of(app);
    }
    for (position, &app) in friendly.iter().enumerate() {
        shares[app] += simplex.value_of(restored_at(position)) - throttle_max[app];
    }
    Ok(shares)
}

/// What a unit of throttling has to gain at first, for its worth.
const RELUCTANCE: f64 = 1e-3;

/// The targets at which there is somebody, as rows.
struct UsedTargets {
    row: Vec<u32>,
    targets: Vec<u32>,
}

impl UsedTargets {
    fn new(problem: &Problem) -> Self {
        let is_used = |&target: &u32| !problem.members.apps_at(target as usize).is_empty();
        let targets: Vec<u32> = (0..problem.targets().len() as u32).filter(is_used).collect();
        let mut row = vec![0; problem.targets().len()];
        for (at, &target) in targets.iter().enumerate() {
            row[target as usize] = at as u32;
        }
        Self { row, targets }
    }

    fn column<'a>(&'a self, problem: &'a Problem, app: usize) -> impl Iterator<Item = (u32, f64)> + 'a {
        problem.members.targets_of(app).iter().map(|&target| (self.row[target as usize], 1.0))
    }

    fn columns<'a>(&'a self, problem: &'a Problem) -> impl Iterator<Item: IntoIterator<Item = (u32, f64)> + 'a> + 'a {
        (0..problem.apps().len()).map(|app| self.column(problem, app))
    }

    /// What each target has left when each application has its share.
    fn room(&self, problem: &Problem, shares: &[f64]) -> Vec<f64> {
        let left = |&target: &u32| {
            let taken: f64 = problem.members.apps_at(target as usize).iter().map(|&app| shares[app as usize]).sum();
            (problem.targets().capacities()[target as usize] - taken).max(0.0)
        };
        self.targets.iter().map(left).collect()
    }
}
