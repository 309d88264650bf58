//! Time of one allocation decision, on random populations of applications over targets.
//!
//! Prints a JSON line for each scheme and size: the median, least, and greatest time of the repeats, each over
//! decisions on a sequence of populations in which a tenth of the applications change from one to the next. Stripe
//! counts are 1 to 8, as in GIFT's population. Clock: the thread's processor time, so that a busy machine does not count.
//! Arguments are parts of what a line is about, as in `gift ' 1000 apps'`: only lines are measured that have them all.

use isonomia_allocation::{
    App, Coflow, Demand, FairFinish, Gift, GiftConfig, Order, Problem, Progress, Targets, bsip, mbw, pofs,
};
use isonomia_units::{Bytes, Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Arc;

const REPEATS: usize = 9;
const STRIPES_MAX: u32 = 8;

fn processor_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn populations(apps: usize, targets: u32, count: usize) -> Vec<Problem> {
    let mut chance = Pcg64Mcg::seed_from_u64(1);
    let names = (0..targets).map(|at| (format!("ost{at:04}"), 1.0));
    let targets = Arc::new(Targets::new(names).expect("names differ"));
    let all: Vec<_> = targets.iter().collect();
    let mut app = |at: usize| {
        let width = chance.random_range(1..=STRIPES_MAX);
        let mut at_targets: Vec<usize> = (0..width).map(|_| chance.random_range(0..all.len())).collect();
        at_targets.sort_unstable();
        at_targets.dedup();
        let remaining = Some(Bytes(chance.random_range(1..1 << 40)));
        let demands = at_targets.into_iter().map(|target| Demand { target: all[target], remaining });
        App { demands: demands.collect(), ..App::new(format!("app{at:05}"), []) }
    };
    let mut population: Vec<App> = (0..apps).map(&mut app).collect();
    let mut next = 0;
    let mut problems = Vec::new();
    for _ in 0..count {
        problems.push(Problem::new(targets.clone(), population.clone()).expect("it is valid"));
        for _ in 0..(apps / 10).max(1) {
            population[next % apps] = app(next % apps);
            next += 1;
        }
    }
    problems
}

/// Any optimum of MBW's program by a library, for comparison: without the choice among the optima.
fn by_microlp(problem: &Problem) -> f64 {
    let mut program = microlp::Problem::new(microlp::OptimizationDirection::Maximize);
    let mut rows = vec![Vec::new(); problem.targets().len()];
    let indices: Vec<_> = problem.targets().iter().collect();
    for app in problem.apps() {
        let variable = program.add_var(app.demands.len() as f64, (0.0, f64::INFINITY));
        for demand in &app.demands {
            let row = indices.iter().position(|target| *target == demand.target).expect("it is a target");
            rows[row].push((variable, 1.0));
        }
    }
    for row in rows.into_iter().filter(|row| !row.is_empty()) {
        program.add_constraint(row, microlp::ComparisonOp::Le, 1.0);
    }
    match program.solve().expect("it is solved") {
        microlp::SolveOutcome::Solution(solution) => solution.objective(),
        microlp::SolveOutcome::Interrupted(_) => unreachable!("there is no limit"),
    }
}

fn measure(scheme: &str, problems: &[Problem], mut decide: impl FnMut(Nanos, &Problem)) {
    let (apps, targets) = (problems[0].apps().len(), problems[0].targets().len());
    let label = format!("{scheme} {apps} apps {targets} targets");
    if !std::env::args().skip(1).filter(|part| !part.starts_with('-')).all(|part| label.contains(&part)) {
        return;
    }
    let mut now = Nanos::ZERO;
    let mut us: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let begin = processor_us();
            for problem in problems {
                now += Nanos::from_secs(10);
                decide(now, problem);
            }
            (processor_us() - begin) / problems.len() as f64
        })
        .collect();
    us.sort_by(f64::total_cmp);
    println!(
        "{{\"scheme\":\"{scheme}\",\"apps\":{apps},\"targets\":{targets},\"us_per_decision_median\":{:.1},\
         \"us_min\":{:.1},\"us_max\":{:.1},\"decisions\":{},\"repeats\":{REPEATS}}}",
        us[REPEATS / 2],
        us[0],
        us[REPEATS - 1],
        problems.len()
    );
}

fn main() {
    for (apps, targets, count) in [(25, 64, 200), (50, 64, 200), (100, 64, 100), (1_000, 64, 20), (1_000, 200, 20)] {
        let problems = populations(apps, targets, count);
        measure("pofs", &problems, |_, problem| drop(black_box(pofs(problem, Progress::Banked))));
        measure("bsip", &problems, |_, problem| drop(black_box(bsip(problem))));
        let coflow = Coflow::new(0.5, Order::Bottleneck).expect("it is valid");
        measure("coflow", &problems, |_, problem| drop(black_box(coflow.allocate(problem))));
        for guarantee in [0.0, 0.5] {
            let bandwidth = Rate::new(100_000_000).expect("not zero");
            let mut finish = FairFinish::new(guarantee, bandwidth).expect("it is valid");
            let name = format!("fair-finish-{guarantee}");
            measure(&name, &problems, |now, problem| drop(black_box(finish.allocate(now, problem))));
        }
        measure("mbw", &problems, |_, problem| drop(black_box(mbw(problem).expect("it is solved"))));
        let mut gift = Gift::new(GiftConfig::default()).expect("it is valid");
        measure("gift", &problems, |now, problem| drop(black_box(gift.decide(now, problem).expect("it is solved"))));
        measure("microlp-mbw", &problems[..problems.len().min(5)], |_, problem| {
            black_box(by_microlp(problem));
        });
        // Everybody may be throttled at every decision: the largest program.
        let free = |app: &App| App { throttle_friendly: Some(true), ..app.clone() };
        let remade = |problem: &Problem| {
            Problem::new(problem.targets().clone(), problem.apps().iter().map(free).collect()).expect("it is valid")
        };
        let friendly: Vec<Problem> = problems.iter().map(remade).collect();
        measure("gift-all-friendly", &friendly, |now, problem| {
            let mut gift = Gift::new(GiftConfig::default()).expect("it is valid");
            drop(black_box(gift.decide(now, problem).expect("it is solved")));
        });
    }
}
