//! GIFT's linear program (§3.4), with a choice among its optima.

use crate::Problem;
use crate::filling::{FULL, fill};
use crate::program::{Matrix, Party, ProgramError, Scratch, Simplex};

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
/// any optimum; 2 and 3 keep degenerate ones from throttling for nothing and give what is left fairly. In programs of
/// more than some hundred variables the steps spent on 2 and 3 are bounded: they get as far as that.
pub(super) fn solve(inputs: &Inputs, scratch: &mut Scratch) -> Result<Vec<f64>, ProgramError> {
    let program = Program::new(inputs);
    // With every target full there is nothing left to gain, and filling is max-min fair among the points at which
    // nobody is throttled.
    let filling = Matrix::new(program.room.len(), program.rows.columns(inputs.problem));
    let mut shares = program.base.clone();
    let mut left = program.room.clone();
    fill(&filling, &mut left, &program.weights, &mut shares);
    if left.iter().all(|&left| left <= FULL) {
        return Ok(shares);
    }
    let filled: Vec<f64> = shares.iter().zip(&program.base).map(|(share, base)| share - base).collect();
    let mut free = program.without_worth(filling, &filled, scratch)?;
    if program.friendly.is_empty() {
        let party = |app: usize| Party { floor: program.base[app], ..program.party(app) };
        free.settle(&(0..shares.len()).map(party).collect::<Vec<_>>());
        let shares = (0..shares.len()).map(|app| program.base[app] + free.value_of(app)).collect();
        free.give_back(scratch);
        return Ok(shares);
    }
    let shares = program.with_worth(&free, &filled, scratch);
    free.give_back(scratch);
    shares
}

/// What the linear programs are made of. All shares in them are counted from `base`.
struct Program<'a> {
    inputs: &'a Inputs<'a>,
    rows: UsedTargets,
    /// The share of each application if nobody is throttled and no gap is filled.
    base: Vec<f64>,
    weights: Vec<f64>,
    /// The number of each application's targets.
    widths: Vec<f64>,
    /// What each target has left at `base`.
    room: Vec<f64>,
    /// The applications that may be throttled.
    friendly: Vec<usize>,
}

impl<'a> Program<'a> {
    fn new(inputs: &'a Inputs<'a>) -> Self {
        let Inputs { problem, fair, redeemed, throttle_max } = inputs;
        let base: Vec<f64> = fair.iter().zip(*redeemed).map(|(fair, redeemed)| fair + redeemed).collect();
        let rows = UsedTargets::new(problem);
        Self {
            room: rows.room(problem, &base),
            weights: problem.apps().iter().map(|app| app.weight).collect(),
            widths: problem.members.by_app().map(|targets| targets.len() as f64).collect(),
            friendly: (0..base.len()).filter(|&app| throttle_max[app] > 0.0).collect(),
            inputs,
            rows,
            base,
        }
    }

    fn party(&self, app: usize) -> Party {
        Party { floor: 0.0, weight: self.weights[app], variables: [Some(app as u32), None] }
    }

    /// The program without constraint (3), solved: a variable for each share. If it is small, it starts where
    /// filling leads.
    fn without_worth(&self, matrix: Matrix, filled: &[f64], scratch: &mut Scratch) -> Result<Simplex, ProgramError> {
        let lower = self.inputs.throttle_max.iter().map(|throttle_max| -throttle_max).collect();
        let upper = vec![f64::INFINITY; filled.len()];
        let mut simplex = Simplex::new(matrix, self.room.clone(), lower, upper, filled.to_vec(), scratch)?;
        if !simplex.approach(&self.widths, scratch) {
            simplex.enter_full_rows(&self.widths);
        }
        simplex.maximize(&self.widths)?;
        Ok(simplex)
    }

    /// The shares of the program with constraint (3), whose optimum is `free`'s if that keeps to it.
    ///
    /// A share is two variables in it, what is restored of the throttling and what comes on top, so that (3) is
    /// linear: Σ s·redeemed + Σ s·top ≥ 2 Σ s·(throttle_max − restored).
    fn with_worth(&self, free: &Simplex, filled: &[f64], scratch: &mut Scratch) -> Result<Vec<f64>, ProgramError> {
        let Inputs { problem, redeemed, throttle_max, .. } = self.inputs;
        let (friendly, widths, count) = (&self.friendly, &self.widths, self.base.len());
        let worth_row = self.room.len() as u32;
        let tops = (0..count).map(|app| (app, -widths[app]));
        let restored = friendly.iter().map(|&app| (app, -2.0 * widths[app]));
        let column = |(app, gain)| self.rows.column(problem, app).chain([(worth_row, gain)]);
        let matrix = Matrix::new(self.room.len() + 1, tops.chain(restored).map(column));
        let mut room = self.room.clone();
        for &app in friendly {
            self.rows.column(problem, app).for_each(|(row, _)| room[row as usize] += throttle_max[app]);
        }
        let gained: f64 = (0..count).map(|app| widths[app] * redeemed[app]).sum();
        let throttled: f64 = friendly.iter().map(|&app| widths[app] * throttle_max[app]).sum();
        room.push(gained - 2.0 * throttled);
        let mut upper = vec![f64::INFINITY; count];
        upper.extend(friendly.iter().map(|&app| throttle_max[app]));
        let lower = vec![0.0; upper.len()];

        let shifts: Vec<f64> = (0..count).map(|app| free.value_of(app)).collect();
        let net = |app: usize| widths[app] * (redeemed[app] + shifts[app].max(0.0) + 2.0 * shifts[app].min(0.0));
        let keeps_worth = (0..count).map(net).sum::<f64>() >= 0.0;
        let from = if keeps_worth { &shifts } else { filled };
        let mut start: Vec<f64> = from.iter().map(|shift| shift.max(0.0)).collect();
        start.extend(friendly.iter().map(|&app| throttle_max[app] + from[app].min(0.0)));
        let mut simplex = Simplex::new(matrix, room, lower, upper, start, scratch)?;
        let bandwidth: Vec<f64> = (0..count).chain(friendly.iter().copied()).map(|app| widths[app]).collect();
        let mut restored_of = vec![None; count];
        for (position, &app) in friendly.iter().enumerate() {
            restored_of[app] = Some((count + position) as u32);
        }
        if keeps_worth {
            // What is throttled varies by what is restored of it.
            simplex
                .inherit(free, |app| restored_of[app as usize].filter(|_| shifts[app as usize] < 0.0).unwrap_or(app));
        } else {
            // Throttling costs a little at first, so that what gains nothing by it is left alone.
            let mut reluctant = bandwidth.clone();
            reluctant[count..].iter_mut().for_each(|cost| *cost *= 1.0 + RELUCTANCE);
            simplex.enter_full_rows(&bandwidth);
            let spare = simplex.spare_steps();
            simplex.improve(&reluctant, spare)?;
        }
        simplex.maximize(&bandwidth)?;
        // Even if nobody is throttled at this optimum: from here on, no more coupons than now.
        let mut restoring = bandwidth;
        restoring[..count].fill(0.0);
        let spare = simplex.spare_steps();
        simplex.maximize_within(&restoring, spare)?;
        let party = |app: usize| {
            let party = Party { floor: self.base[app], ..self.party(app) };
            match restored_of[app] {
                None => party,
                Some(restored) => Party {
                    floor: party.floor - throttle_max[app],
                    variables: [Some(restored), Some(app as u32)],
                    ..party
                },
            }
        };
        simplex.settle(&(0..count).map(party).collect::<Vec<_>>());
        let share = |app: usize| {
            let restored =
                restored_of[app].map_or(0.0, |restored| simplex.value_of(restored as usize) - throttle_max[app]);
            self.base[app] + simplex.value_of(app) + restored
        };
        let shares = (0..count).map(share).collect();
        simplex.give_back(scratch);
        Ok(shares)
    }
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
