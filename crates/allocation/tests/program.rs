//! The program solver against others: microlp, all vertices, and the definition of max-min.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;

use cases::{arb_case, arb_case_of};
use isonomia_allocation::{Allocation, App, Gift, GiftConfig, PackingProgram, Problem, ProgramError, bsip};
use isonomia_units::Nanos;
use microlp::{ComparisonOp, OptimizationDirection, Problem as Microlp, SolveOutcome, Variable};
use proptest::prelude::*;

/// `max costs·x`, `rows·x ≤ limits`, `lower ≤ x ≤ upper`.
#[derive(Clone, Debug)]
struct Lp {
    costs: Vec<f64>,
    lower: Vec<f64>,
    upper: Vec<f64>,
    rows: Vec<Vec<f64>>,
    limits: Vec<f64>,
    weights: Vec<f64>,
}

/// The optimum, `None` if there is none.
fn solution(problem: &Microlp) -> Option<microlp::Solution> {
    match problem.solve() {
        Ok(SolveOutcome::Solution(solution)) => Some(solution),
        _ => None,
    }
}

impl Lp {
    fn program(&self) -> PackingProgram {
        let mut program = PackingProgram::new(self.limits.iter().copied());
        for variable in 0..self.costs.len() {
            let column = (0..self.rows.len()).map(|row| (row, self.rows[row][variable])).filter(|entry| entry.1 != 0.0);
            program.add_variable(self.costs[variable], self.lower[variable], self.upper[variable], column);
        }
        program
    }

    fn value(&self, values: &[f64]) -> f64 {
        self.costs.iter().zip(values).map(|(cost, value)| cost * value).sum()
    }

    fn is_feasible(&self, values: &[f64], tolerance: f64) -> bool {
        let used = |row: &Vec<f64>| row.iter().zip(values).map(|(a, x)| a * x).sum::<f64>();
        self.rows.iter().zip(&self.limits).all(|(row, limit)| used(row) <= limit + tolerance)
            && (0..values.len())
                .all(|at| values[at] >= self.lower[at] - tolerance && values[at] <= self.upper[at] + tolerance)
    }

    /// microlp's optimum with other costs and lower bounds, and the original objective at least `at_least`.
    fn microlp(&self, costs: &[f64], lower: &[f64], at_least: f64) -> Option<Vec<f64>> {
        let mut problem = Microlp::new(OptimizationDirection::Maximize);
        let bounds = lower.iter().zip(&self.upper);
        let variables: Vec<Variable> = costs
            .iter()
            .zip(bounds)
            .map(|(&cost, (&lower, &upper))| problem.add_var(cost, (lower, upper.max(lower))))
            .collect();
        let expression = |factors: &[f64]| variables.iter().copied().zip(factors.iter().copied()).collect::<Vec<_>>();
        for (row, &limit) in self.rows.iter().zip(&self.limits) {
            problem.add_constraint(expression(row), ComparisonOp::Le, limit);
        }
        if at_least.is_finite() {
            problem.add_constraint(expression(&self.costs), ComparisonOp::Ge, at_least);
        }
        let solution = solution(&problem)?;
        Some(variables.iter().map(|&variable| solution.var_value(variable)).collect())
    }

    /// A point as good as `values` in which somebody has more, and nobody has less who has as little or less by
    /// weight: there is none if and only if `values` is max-min fair among the optima.
    fn fairer(&self, values: &[f64]) -> Option<Vec<f64>> {
        let level = |at: usize| values[at] / self.weights[at];
        let best = self.value(values) - 1e-7;
        (0..values.len()).find_map(|at| {
            let mut costs = vec![0.0; values.len()];
            costs[at] = 1.0;
            let floor = |other: usize| {
                let floor = if level(other) <= level(at) { values[other] } else { level(at) * self.weights[other] };
                (floor - 1e-7).max(self.lower[other])
            };
            let floors: Vec<f64> = (0..values.len()).map(floor).collect();
            let other = self.microlp(&costs, &floors, best)?;
            let is_better =
                other[at] > values[at] + 1e-4 && self.is_feasible(&other, 1e-6) && self.value(&other) > best - 1e-6;
            is_better.then_some(other)
        })
    }
}

/// Packing programs as allocation makes them, and some with other coefficients.
fn arb_lp(variables: usize, row_count: usize) -> impl Strategy<Value = Lp> {
    let coefficient = prop_oneof![4 => Just(0.0), 4 => Just(1.0), 1 => (1_u32..8).prop_map(|n| f64::from(n) / 4.0)];
    let rows = prop::collection::vec(prop::collection::vec(coefficient, variables), row_count);
    let cost = prop_oneof![4 => (0_u32..6).prop_map(f64::from), 1 => (-8_i32..16).prop_map(|n| f64::from(n) / 4.0)];
    let lower = prop_oneof![2 => Just(0.0), 1 => (0_u32..8).prop_map(|n| f64::from(n) / 64.0)];
    let range = prop_oneof![Just(1.0), 0.0_f64..1.0];
    let weight = prop_oneof![3 => Just(1.0), 1 => (1_u32..5).prop_map(f64::from)];
    let limit = prop_oneof![4 => Just(1.0), 1 => 0.5_f64..2.0];
    let limits = prop::collection::vec(limit, row_count);
    let variable = prop::collection::vec((cost, lower, range, weight), variables);
    (rows, limits, variable).prop_map(|(rows, limits, variable)| Lp {
        costs: variable.iter().map(|v| v.0).collect(),
        lower: variable.iter().map(|v| v.1).collect(),
        upper: variable.iter().map(|v| v.1 + v.2).collect(),
        weights: variable.iter().map(|v| v.3).collect(),
        rows,
        limits,
    })
}

/// Programs large enough to be started from inside: each variable in a few rows, some rows without any room, and so
/// many equal numbers that optima and their prices are seldom unique.
fn arb_large_lp() -> impl Strategy<Value = Lp> {
    let limit = prop_oneof![8 => Just(1.0), 1 => Just(0.0), 4 => (1_u32..16).prop_map(|n| f64::from(n) / 8.0)];
    let entry = (0_usize..1_000, prop_oneof![8 => Just(1.0), 1 => Just(0.0), 1 => 0.25_f64..2.0]);
    let column = prop::collection::vec(entry, 1..6);
    let cost = prop_oneof![4 => Just(None), 1 => (-8_i32..16).prop_map(|n| Some(f64::from(n) / 4.0))];
    let lower = prop_oneof![8 => Just(0.0), 1 => Just(1.0 / 4_096.0)];
    let variable = (column, cost, lower, prop_oneof![3 => Just(1.0), 1 => (1_u32..5).prop_map(f64::from)]);
    let sizes = (prop::collection::vec(limit, 48..80), prop::collection::vec(variable, 400..500));
    sizes.prop_map(|(limits, variables)| {
        let mut rows = vec![vec![0.0; variables.len()]; limits.len()];
        let mut lower = Vec::new();
        for (at, (column, _, least, _)) in variables.iter().enumerate() {
            for &(row, coefficient) in column {
                rows[row % limits.len()][at] = coefficient;
            }
            let is_free = column.iter().all(|(row, _)| limits[row % limits.len()] > 0.0);
            lower.push(if is_free { *least } else { 0.0 });
        }
        let taken = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>();
        // What takes nothing is worth nothing, or there would be no optimum.
        let cost = |at: usize| if taken(at) == 0.0 { 0.0 } else { variables[at].1.unwrap_or_else(|| taken(at)) };
        Lp {
            costs: (0..variables.len()).map(cost).collect(),
            lower,
            upper: vec![f64::INFINITY; variables.len()],
            weights: variables.iter().map(|variable| variable.3).collect(),
            rows,
            limits,
        }
    })
}

/// The best vertex: every choice of as many tight constraints as variables.
fn best_vertex(lp: &Lp) -> Option<f64> {
    let count = lp.costs.len();
    let unit = |at: usize| (0..count).map(|other| f64::from(u8::from(other == at))).collect::<Vec<f64>>();
    let mut planes: Vec<(Vec<f64>, f64)> = lp.rows.iter().cloned().zip(lp.limits.iter().copied()).collect();
    planes.extend((0..count).flat_map(|at| [(unit(at), lp.lower[at]), (unit(at), lp.upper[at])]));
    let mut best: Option<f64> = None;
    let mut choice: Vec<usize> = (0..count).collect();
    loop {
        let system: Vec<_> = choice.iter().map(|&plane| planes[plane].clone()).collect();
        if let Some(vertex) = intersection(system).filter(|vertex| lp.is_feasible(vertex, 1e-7)) {
            best = Some(best.unwrap_or(f64::NEG_INFINITY).max(lp.value(&vertex)));
        }
        let Some(at) = (0..count).rev().find(|&at| choice[at] + count - at < planes.len()) else { return best };
        choice[at] += 1;
        for later in at + 1..count {
            choice[later] = choice[later - 1] + 1;
        }
    }
}

/// The point on all planes, by elimination.
fn intersection(mut system: Vec<(Vec<f64>, f64)>) -> Option<Vec<f64>> {
    for column in 0..system.len() {
        let pivot =
            (column..system.len()).max_by(|&a, &b| system[a].0[column].abs().total_cmp(&system[b].0[column].abs()))?;
        if system[pivot].0[column].abs() < 1e-9 {
            return None;
        }
        system.swap(column, pivot);
        let (head, limit) = system[column].clone();
        for (_, (line, right)) in system.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = line[column] / head[column];
            line.iter_mut().zip(&head).for_each(|(entry, head)| *entry -= factor * head);
            *right -= factor * limit;
        }
    }
    Some(system.iter().enumerate().map(|(at, (line, right))| right / line[at]).collect())
}

#[test]
fn what_is_no_program_is_refused() {
    let mut program = PackingProgram::new([1.0]);
    program.add_variable(1.0, 0.0, f64::INFINITY, []);
    assert_eq!(program.solve(), Err(ProgramError::Unbounded));
    let mut program = PackingProgram::new([1.0]);
    program.add_variable(1.0, 2.0, 3.0, [(0, 1.0)]);
    assert_eq!(program.solve(), Err(ProgramError::Infeasible));
    let mut program = PackingProgram::new([1.0]);
    program.add_variable(1.0, 1.0, 0.5, [(0, 0.1)]);
    assert_eq!(program.solve(), Err(ProgramError::Infeasible));
    for column in [vec![(1, 1.0)], vec![(0, -1.0)], vec![(0, f64::NAN)], vec![(0, 1.0), (0, 1.0)]] {
        let mut program = PackingProgram::new([1.0]);
        program.add_variable(1.0, 0.0, 1.0, column);
        assert!(matches!(program.solve(), Err(ProgramError::Malformed(_))));
    }
}

#[test]
fn without_limits_variables_go_to_their_bounds() {
    let mut program = PackingProgram::new([]);
    assert_eq!(program.solve().unwrap().objective, 0.0);
    program.add_variable(2.0, 0.0, 3.0, []);
    program.add_variable(-1.0, 0.5, 3.0, []);
    assert_eq!(program.solve().unwrap().values, [3.0, 0.5]);
    assert_eq!(program.solve_fair(&[1.0, 1.0]).unwrap().values, [3.0, 0.5]);
    program.add_variable(1.0, 0.0, f64::INFINITY, []);
    assert_eq!(program.solve(), Err(ProgramError::Unbounded));
}

#[test]
fn the_fair_optimum_divides_what_any_optimum_may_divide() {
    let mut program = PackingProgram::new([1.0]);
    program.add_variable(1.0, 0.0, 1.0, [(0, 1.0)]);
    program.add_variable(1.0, 0.0, 1.0, [(0, 1.0)]);
    program.add_variable(1.0, 0.0, 0.2, [(0, 1.0)]);
    let solution = program.solve_fair(&[1.0, 3.0, 1.0]).unwrap();
    for (value, expected) in solution.values.iter().zip([0.2, 0.6, 0.2]) {
        assert!((value - expected).abs() < 1e-12, "{solution:?}");
    }
    assert!(program.solve_fair(&[1.0, 0.0, 1.0]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_optimum_is_microlps(lp in (1_usize..24, 1_usize..12).prop_flat_map(|(n, m)| arb_lp(n, m))) {
        match lp.program().solve() {
            Ok(solution) => {
                prop_assert!(lp.is_feasible(&solution.values, 1e-8));
                let other = lp.value(&lp.microlp(&lp.costs, &lp.lower, f64::NEG_INFINITY).unwrap());
                prop_assert!((solution.objective - other).abs() < 1e-6, "{} {other}", solution.objective);
                let fair = lp.program().solve_fair(&lp.weights).unwrap();
                prop_assert!(lp.is_feasible(&fair.values, 1e-7));
                prop_assert!((fair.objective - other).abs() < 1e-6, "{} {other}", fair.objective);
            }
            Err(error) => {
                prop_assert_eq!(error, ProgramError::Infeasible);
                prop_assert!(!lp.is_feasible(&lp.lower, 1e-9));
            }
        }
    }

    #[test]
    fn the_optimum_is_the_best_vertex(lp in (1_usize..5, 1_usize..4).prop_flat_map(|(n, m)| arb_lp(n, m))) {
        if let Ok(solution) = lp.program().solve() {
            let best = best_vertex(&lp).unwrap();
            prop_assert!((solution.objective - best).abs() < 1e-6, "{} {best}", solution.objective);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_fair_optimum_is_max_min(lp in (1_usize..12, 1_usize..8).prop_flat_map(|(n, m)| arb_lp(n, m))) {
        if let Ok(solution) = lp.program().solve_fair(&lp.weights) {
            prop_assert_eq!(lp.fairer(&solution.values), None, "{:?}", solution);
        }
    }

    #[test]
    fn gifts_bandwidth_is_the_programs_and_its_coupons_are_the_least(case in arb_case(), b_thres in 0.0_f64..0.9) {
        let (bandwidth, coupons, ours) = gift_by_microlp(&case.problem(), b_thres);
        prop_assert!((ours.effective_bandwidth() - bandwidth).abs() < 1e-6, "{} {bandwidth}", ours.effective_bandwidth());
        let issued: f64 = ours.apps().iter().map(|app| app.coupon_issued.targets()).sum();
        prop_assert!((issued - coupons).abs() < 1e-4, "{issued} {coupons}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_optimum_of_a_large_program_is_microlps(lp in arb_large_lp()) {
        let other = lp.value(&lp.microlp(&lp.costs, &lp.lower, f64::NEG_INFINITY).unwrap());
        for solution in [lp.program().solve().unwrap(), lp.program().solve_fair(&lp.weights).unwrap()] {
            prop_assert!(lp.is_feasible(&solution.values, 1e-8));
            prop_assert!((solution.objective - other).abs() < 1e-6, "{} {other}", solution.objective);
        }
    }

    #[test]
    fn gifts_bandwidth_in_a_large_program_is_microlps(
        case in prop_oneof![arb_case_of(24, 60), arb_case_of(64, 450)],
        b_thres in 0.0_f64..0.9,
    ) {
        let (bandwidth, _, ours) = gift_by_microlp(&case.problem(), b_thres);
        prop_assert!((ours.effective_bandwidth() - bandwidth).abs() < 1e-6, "{} {bandwidth}", ours.effective_bandwidth());
    }
}

/// GIFT's program as §3.4 states it, the throttling of each application being a variable of its own: the greatest
/// bandwidth, the least coupons with it, and what GIFT decides.
fn gift_by_microlp(problem: &Problem, b_thres: f64) -> (f64, f64, Allocation) {
    let mut gift = Gift::new(GiftConfig { b_thres, ..GiftConfig::default() }).unwrap();
    let ours = gift.decide(Nanos::ZERO, problem).unwrap();
    let fair = bsip(problem);
    let best = |bandwidth_min: Option<f64>| {
        let mut program = Microlp::new(OptimizationDirection::Maximize);
        let mut variables = Vec::new();
        for (app, fair) in problem.apps().iter().zip(fair.apps()) {
            let width = app.demands.len() as f64;
            let throttle_max = if app.throttle_friendly == Some(false) { 0.0 } else { b_thres * fair.share };
            let expand = program.add_var(if bandwidth_min.is_some() { 0.0 } else { width }, (0.0, f64::INFINITY));
            variables.push((expand, program.add_var(-width, (0.0, throttle_max)), width, fair.share));
        }
        for target in problem.targets().iter() {
            let is_here = |app: &App| app.demands.iter().any(|demand| demand.target == target);
            let (mut terms, mut used) = (Vec::new(), 0.0);
            for (_, &(expand, throttle, _, share)) in
                problem.apps().iter().zip(&variables).filter(|(app, _)| is_here(app))
            {
                terms.extend([(expand, 1.0), (throttle, -1.0)]);
                used += share;
            }
            let room = f64::max(problem.targets().capacity(target) - used, 0.0);
            program.add_constraint(terms, ComparisonOp::Le, room);
        }
        let sum = |of_throttle: f64| -> Vec<_> {
            variables.iter().flat_map(|&(e, t, width, _)| [(e, width), (t, -of_throttle * width)]).collect()
        };
        program.add_constraint(sum(2.0), ComparisonOp::Ge, 0.0);
        if let Some(least) = bandwidth_min {
            program.add_constraint(sum(1.0), ComparisonOp::Ge, least);
        }
        solution(&program).unwrap().objective()
    };
    let gain = best(None);
    (fair.effective_bandwidth() + gain, -best(Some(gain - 1e-9)), ours)
}
