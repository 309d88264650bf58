//! The laboratory itself: both engines against closed forms, and against each other on the same arrivals.
//!
//! Customers come to one target from outside, each with one I/O phase, and go when it has ended: what queueing theory knows
//! the mean time of. In the fluid engine a customer is an application that runs once; in the request engine a job whose
//! requests all come at once. Sizes are whole requests in both, and the closed forms are of sizes that are rounded up to those.
//!
//! * *Processor sharing* (targets that decide at each change; `job-fair`): M/G/1-PS has the mean E\[S\] / (1 − ρ), whatever the
//!   distribution of sizes S is.
//! * *First come, first served* (`fcfs`; `fifo`): Pollaczek and Khinchin's E\[S\] + λ E\[S²\] / 2 (1 − ρ).
//! * *Fair finish*: no closed form is known; the engines are compared.
//! * *Two at a time*: pairs of one size that come when the pair before has gone, D/D/1: 2 sizes under processor sharing, 1.5 first come,
//!   first served; under fair finish the first of the two has all but the floor of the other.
//!
//! What is measured is the mean time of customers after the first ones, who find the target empty. Where sizes differ most, that hangs
//! on the arrivals so much that it takes hundreds of seeds to tell. The fluid engine, which is fast, has them; on the same arrivals the
//! engines differ by a factor that is the same for all, so a few seeds are enough for that, and what is said of requests is the product.

use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Paper, Stopped, Study};
use crate::simulate::simulate;
use crate::table::Table;
use isonomia_allocation::Progress;
use isonomia_sim::fluid::{self, Clock, Decisions, SchemeSpec, Sizes};
use isonomia_sim::request::{Job, Layout, Op, Phase, Scenario, Target};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use serde_json::json;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of a request of [`BLOCK`]: 1 ms.
const BANDWIDTH: u64 = 1 << 30;
const BLOCK: Bytes = Bytes::mib(1);
const REQUEST_S: f64 = 1.0 / 1_024.0;
/// Requests of a customer on average, before they are rounded up.
const REQUESTS_MEAN: f64 = 40.0;
/// Part of the time in which the target is busy.
const LOAD: f64 = 0.6;
/// Of the hyperexponential sizes: nine of ten customers have the first mean, the others the second; the variance is
/// 5.5 times the square of the mean.
const MIXTURE: [(f64, f64); 2] = [(0.9, 0.5), (0.1, 5.5)];
/// Of all customers these are not counted.
const FIRST_ONES: f64 = 0.1;
/// A mean time may be off by this part from a closed form, and one engine from the other. What the engines differ by is that
/// a request is not divided.
const TOLERANCE: f64 = 0.05;

/// How sizes are distributed.
#[derive(Clone, Copy, Debug)]
enum Law {
    Constant,
    Exponential,
    Hyperexponential,
}

/// A stream of customers.
#[derive(Clone, Copy, Debug)]
struct Queue {
    name: &'static str,
    law: Law,
    /// They come in pairs, at equal intervals.
    is_paired: bool,
    /// Seeds of the fluid engine beside those of both, where there is a closed form.
    more_seeds: u64,
}

const QUEUES: [Queue; 4] = [
    Queue { name: "D/D/1, two at a time", law: Law::Constant, is_paired: true, more_seeds: 0 },
    Queue { name: "M/D/1", law: Law::Constant, is_paired: false, more_seeds: 0 },
    Queue { name: "M/M/1", law: Law::Exponential, is_paired: false, more_seeds: 0 },
    Queue { name: "M/H2/1", law: Law::Hyperexponential, is_paired: false, more_seeds: 380 },
];

/// Who goes first, in both engines.
struct Discipline {
    name: &'static str,
    scheme: SchemeSpec,
    policy: &'static str,
}

const DISCIPLINES: [Discipline; 3] = [
    Discipline { name: "processor sharing", scheme: SchemeSpec::Pofs(Progress::Banked), policy: "job-fair" },
    Discipline { name: "first come, first served", scheme: SchemeSpec::FirstCome, policy: "fifo" },
    Discipline {
        name: "fair finish",
        scheme: SchemeSpec::FairFinish { guarantee: GUARANTEE, sizes: Sizes::Declared, clock: Clock::Open },
        policy: "fair-finish{guarantee=0.2}",
    },
];
/// Of fair finish.
const GUARANTEE: f64 = 0.2;
const FIRST_COME: usize = 1;
const FAIR_FINISH: usize = 2;

/// A customer: when it comes, and its requests.
#[derive(Clone, Copy, Debug)]
struct Customer {
    comes: Nanos,
    requests: u64,
}

impl Law {
    /// Chances and means of the exponential parts; none if sizes are constant.
    fn parts(self) -> &'static [(f64, f64)] {
        match self {
            Self::Constant => &[],
            Self::Exponential => &[(1.0, 1.0)],
            Self::Hyperexponential => &MIXTURE,
        }
    }

    /// The mean number of requests, and that of its square: an exponential size rounded up is geometric.
    fn moments(self) -> (f64, f64) {
        let parts = self.parts();
        if parts.is_empty() {
            return (REQUESTS_MEAN, REQUESTS_MEAN * REQUESTS_MEAN);
        }
        let of = |&(chance, mean): &(f64, f64)| {
            let last = 1.0 - (-1.0 / (mean * REQUESTS_MEAN)).exp();
            (chance / last, chance * (2.0 - last) / (last * last))
        };
        parts.iter().map(of).fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    fn draw(self, chance: &mut Pcg64Mcg) -> u64 {
        let (which, size) = (chance.random::<f64>(), -(1.0 - chance.random::<f64>()).ln());
        let mut above = 0.0;
        let part = self.parts().iter().find(|(chance, _)| {
            above += chance;
            which < above
        });
        part.map_or(REQUESTS_MEAN, |(_, mean)| (size * mean * REQUESTS_MEAN).ceil().max(1.0)) as u64
    }
}

impl Queue {
    fn customers(&self, seed: u64, count: usize) -> Vec<Customer> {
        let mut chance = Pcg64Mcg::seed_from_u64(seed);
        let between_s = self.law.moments().0 * REQUEST_S / LOAD;
        let mut now_s = 0.0;
        let customer = |at: usize| {
            if !self.is_paired {
                now_s -= (1.0 - chance.random::<f64>()).ln() * between_s;
            } else if at.is_multiple_of(2) {
                now_s += 2.0 * between_s;
            }
            Customer { comes: Nanos((now_s * 1e9) as u64), requests: self.law.draw(&mut chance) }
        };
        (0..count).map(customer).collect()
    }

    /// The mean time over the mean size, if it is known.
    fn expected(&self, discipline: usize) -> Option<f64> {
        let (mean, square) = self.law.moments();
        match (self.is_paired, discipline) {
            (true, 0) => Some(2.0),
            (true, FIRST_COME) => Some(1.5),
            // The first has all but the other's floor.
            (true, _) => Some((1.0 / (1.0 - GUARANTEE / 2.0) + 2.0) / 2.0),
            (false, 0) => Some(1.0 / (1.0 - LOAD)),
            (false, FIRST_COME) => Some(1.0 + LOAD * square / (2.0 * (1.0 - LOAD) * mean * mean)),
            (false, _) => None,
        }
    }
}

/// The mean of the times of customers, in seconds, without the first ones.
fn mean_s(times_s: &[f64]) -> f64 {
    let counted = &times_s[(times_s.len() as f64 * FIRST_ONES) as usize..];
    counted.iter().sum::<f64>() / counted.len() as f64
}

/// An hour beyond the last customer: by then all have gone.
fn end(customers: &[Customer]) -> Nanos {
    customers.last().map_or(Nanos::ZERO, |last| last.comes) + Nanos::from_secs(3_600)
}

fn by_fluid(discipline: &Discipline, customers: &[Customer], context: &Context) -> Result<f64, Stopped> {
    let application = |(at, customer): (usize, &Customer)| {
        let io = Nanos((customer.requests as f64 * REQUEST_S * 1e9).round() as u64);
        let phases = vec![fluid::Phase { compute: Nanos::ZERO, io }];
        let runs = vec![fluid::Run { submit: customer.comes, targets: vec![0], phases }];
        fluid::Application { name: format!("{at:06}").into(), nodes: 1, weight: 1.0, runs }
    };
    let scenario = fluid::Scenario {
        duration: end(customers),
        interval: Nanos::from_secs(1),
        decisions: Decisions::Event,
        scheme: discipline.scheme,
        targets: 1,
        bandwidth: Rate::new(BANDWIDTH).expect("not zero"),
        // Nobody waits for a node.
        nodes: customers.len() as u32,
        estimate: 1.0,
        misprediction: 1.0,
        applications: customers.iter().enumerate().map(application).collect::<Arc<[_]>>(),
    };
    let outcome = fluid::run(&scenario, &mut |_| match context.go_on() {
        Ok(()) => ControlFlow::Continue(()),
        Err(Stopped) => ControlFlow::Break(()),
    });
    let outcome = outcome.expect("these schemes decide at each change");
    if outcome.interrupted {
        return Err(Stopped);
    }
    Ok(mean_s(&outcome.applications.iter().map(|application| application.io_s).collect::<Vec<_>>()))
}

fn by_requests(discipline: &Discipline, customers: &[Customer], context: &Context) -> Result<f64, Stopped> {
    let job = |(at, customer): (usize, &Customer)| Job {
        info: JobInfo::new(&format!("customer-{at}"), "user", "group"),
        processes: 1,
        // All at once.
        depth: customer.requests as u32,
        targets: vec![0],
        layout: Layout::Striped,
        phases: vec![Phase::back_to_back(Op::Write, BLOCK, 1)],
        iterations: Some(1),
        start: customer.comes,
        stop: Nanos(u64::MAX),
    };
    let bandwidth = Rate::new(BANDWIDTH).expect("not zero");
    let policy = discipline.policy.parse().expect("a policy");
    let target = Target::serial("target".to_owned(), 0, bandwidth, 0.0, policy);
    let jobs = customers.iter().enumerate().map(job).collect();
    let scenario = Scenario::whole(end(customers), vec!["server".to_owned()], vec![target], jobs);
    let outcome = simulate(&scenario, context)?;
    let time_s = |job: &isonomia_sim::request::JobOutcome| {
        job.elapsed_ns.expect("its requests have an end, and the run is long enough") as f64 / 1e9
    };
    Ok(mean_s(&outcome.jobs.iter().map(time_s).collect::<Vec<_>>()))
}

/// Mean times over the mean size, by queue, discipline, engine (fluid, requests), and seed. The fluid engine may have more seeds, after
/// those of both.
type Means = Vec<Vec<[Vec<f64>; 2]>>;

fn measure(count: usize, seeds: u64, has_more: bool, context: &Context) -> Result<Means, Stopped> {
    let seeds_of = |queue: &Queue, discipline: usize| {
        let is_known = has_more && queue.expected(discipline).is_some();
        1..=seeds + if is_known { queue.more_seeds } else { 0 }
    };
    let cells: Vec<(usize, usize, u64)> = (0..QUEUES.len())
        .flat_map(|queue| (0..DISCIPLINES.len()).map(move |discipline| (queue, discipline)))
        .flat_map(|(queue, discipline)| seeds_of(&QUEUES[queue], discipline).map(move |seed| (queue, discipline, seed)))
        .collect();
    let done = AtomicUsize::new(0);
    let run_one = |queue: usize, discipline: usize, seed: u64| -> Result<(f64, Option<f64>), Stopped> {
        let customers = QUEUES[queue].customers(seed, count);
        let mean_size_s = QUEUES[queue].law.moments().0 * REQUEST_S;
        let fluid = by_fluid(&DISCIPLINES[discipline], &customers, context)? / mean_size_s;
        let requests = if seed <= seeds {
            Some(by_requests(&DISCIPLINES[discipline], &customers, context)? / mean_size_s)
        } else {
            None
        };
        Ok((fluid, requests))
    };
    let run = |&(queue, discipline, seed): &(usize, usize, u64)| {
        let (of, by) = (QUEUES[queue].name, DISCIPLINES[discipline].name);
        let key = format!("validation {of} {by} {seed} {count} {}", seed <= seeds);
        let (fluid, requests) = context.once(&key, || run_one(queue, discipline, seed))?;
        context.tell("both engines", done.fetch_add(1, Ordering::Relaxed) + 1, cells.len());
        Ok((fluid, requests))
    };
    let found: Vec<(f64, Option<f64>)> = cells.par_iter().map(run).collect::<Result<_, Stopped>>()?;
    let mut means: Means = vec![vec![Default::default(); DISCIPLINES.len()]; QUEUES.len()];
    for ((queue, discipline, _), (fluid, requests)) in cells.into_iter().zip(found) {
        means[queue][discipline][0].push(fluid);
        means[queue][discipline][1].extend(requests);
    }
    Ok(means)
}

/// The mean times of both engines.
fn mean_times(of_both: &[Vec<f64>; 2]) -> [Interval; 2] {
    let [fluid, requests] = of_both;
    let of_fluid = Interval::of(fluid);
    if fluid.len() == requests.len() {
        return [of_fluid, Interval::of(requests)];
    }
    let ratio = ratio(of_both);
    let half = (ratio.half * of_fluid.mean).hypot(ratio.mean * of_fluid.half);
    [of_fluid, Interval { mean: ratio.mean * of_fluid.mean, half }]
}

fn ratio([fluid, requests]: &[Vec<f64>; 2]) -> Interval {
    Interval::by(fluid.iter().zip(requests), |(fluid, requests)| requests / fluid)
}

/// What an engine has for each queue and discipline; a mean whose closed form is not known has no bar.
fn chart(engine: &'static str, word: &str) -> Chart {
    let title = format!("Mean time over the closed form, {word}");
    Chart::bars(title, ("queue", ""), ("of_closed_form", "measured over closed form"))
        .by("discipline")
        .only("engine", [engine])
        .line("closed form", 1.0)
}

/// The item.
fn validation(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (count, seeds) = if context.quick { (1_000, 4) } else { (6_000, 20) };
    let means = measure(count, seeds, !context.quick, context)?;
    let mut data = Data::new(&[
        "queue",
        "discipline",
        "engine",
        "seed",
        "mean_time_over_mean_size",
        "closed_form",
        "of_closed_form",
    ]);
    let mut table = Table::new(&["queue", "discipline", "closed form", "fluid", "by requests", "requests over fluid"]);
    let if_known = |value: Option<f64>| value.map_or_else(|| "".into(), Into::into);
    let mut closed = [Vec::new(), Vec::new()];
    let mut alike = Vec::new();
    for (queue, of_queue) in QUEUES.iter().zip(&means) {
        for (at, (discipline, of_both)) in DISCIPLINES.iter().zip(of_queue).enumerate() {
            let expected = queue.expected(at);
            let mean_times = mean_times(of_both);
            let engines = ["fluid", "requests"].iter().zip(of_both).zip(mean_times);
            for (((engine, of_engine), mean_time), tests) in engines.zip(&mut closed) {
                for (seed, mean) in (1u64..).zip(of_engine) {
                    data.push([
                        queue.name.into(),
                        discipline.name.into(),
                        (*engine).into(),
                        seed.into(),
                        (*mean).into(),
                        if_known(expected),
                        if_known(expected.map(|expected| mean / expected)),
                    ]);
                }
                if let Some(expected) = expected {
                    let of_closed = Interval { mean: mean_time.mean / expected, half: mean_time.half / expected };
                    let what = format!("{}, {}", queue.name, discipline.name);
                    tests.push(Test::between(what, of_closed, 1.0 - TOLERANCE, 1.0 + TOLERANCE));
                }
            }
            let ratio = ratio(of_both);
            let what = format!("{}, {}", queue.name, discipline.name);
            alike.push(Test::between(what, ratio, 1.0 - TOLERANCE, 1.0 + TOLERANCE));
            let mean = |engine: usize| format!("{:.3}", mean_times[engine]);
            table.push([
                queue.name.to_owned(),
                discipline.name.to_owned(),
                expected.map_or("none".to_owned(), |expected| format!("{expected:.3}")),
                mean(0),
                mean(1),
                format!("{ratio:.4}"),
            ]);
        }
    }
    let below = QUEUES.iter().zip(&means).filter(|(queue, _)| !queue.is_paired).map(|(queue, means)| {
        let [sharing, finish] = [&means[0][1], &means[FAIR_FINISH][1]];
        let gain = Interval::by(sharing.iter().zip(finish), |(sharing, finish)| 100.0 * (1.0 - finish / sharing));
        Test::above(queue.name, gain, 0.0).unit(" %")
    });
    let below = below.collect();
    let [fluid, requests] = closed;
    Ok(vec![Finding {
        item: "validation",
        title: "both engines against closed forms and each other".to_owned(),
        configuration: json!({
            "customers": count, "seeds": (1..=seeds).collect::<Vec<_>>(),
            "more_seeds_of_fluid": QUEUES.map(|queue| if context.quick { 0 } else { queue.more_seeds }), "load": LOAD, "requests_mean": REQUESTS_MEAN,
            "mixture": MIXTURE, "not_counted": FIRST_ONES,
        }),
        data,
        table: Some(table),
        charts: vec![chart("fluid", "fluid"), chart("requests", "request by request").named("requests")],
        claims: vec![
            Claim::ours("mean times in the fluid engine are those of closed forms", fluid),
            Claim::ours("mean times request by request are those of closed forms", requests),
            Claim::ours("the engines have the same mean times on the same arrivals", alike),
            Claim::ours("fair finish has shorter mean times than processor sharing, request by request", below),
        ],
    }])
}

/// What is checked of the laboratory.
pub static PAPER: Paper = Paper {
    name: "laboratory",
    title: "The laboratory itself",
    studies: &[Study {
        name: "validation",
        items: &["validation"],
        about: "both engines against closed forms, and against each other",
        run: validation,
    }],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_what_is_drawn() {
        for Queue { law, .. } in QUEUES {
            let mut chance = Pcg64Mcg::seed_from_u64(1);
            let drawn: Vec<f64> = (0..200_000).map(|_| law.draw(&mut chance) as f64).collect();
            let mean = |of: fn(f64) -> f64| drawn.iter().copied().map(of).sum::<f64>() / drawn.len() as f64;
            let (first, second) = law.moments();
            assert!((mean(|size| size) / first - 1.0).abs() < 0.02, "{law:?}");
            assert!((mean(|size| size * size) / second - 1.0).abs() < 0.06, "{law:?}");
        }
        let (mean, square) = Law::Hyperexponential.moments();
        assert!((4.5..6.0).contains(&(square / (mean * mean) - 1.0)), "5.5 times the square of the mean");
    }

    /// What the fluid engine has of more seeds, by the factor that the engines differ by.
    #[test]
    fn requests_have_the_mean_of_more_seeds() {
        let more = mean_times(&[vec![2.0, 4.0, 6.0, 8.0], vec![1.0, 2.0]]);
        assert_eq!((more[0].mean, more[1].mean), (5.0, 2.5));
        assert!((more[1].half - more[0].half / 2.0).abs() < 1e-12, "the factor is certain");
        assert_eq!(mean_times(&[vec![2.0, 4.0], vec![1.0, 2.5]])[1], Interval::of(&[1.0, 2.5]));
    }

    #[test]
    fn pairs_take_what_they_do_by_hand() {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let context = Context::new(true, &stop, &|_, _, _| ());
        let means = measure(20, 1, false, &context).unwrap();
        for (discipline, [fluid, requests]) in means[0].iter().enumerate() {
            let expected = QUEUES[0].expected(discipline).unwrap();
            assert!((fluid[0] - expected).abs() < 1e-6, "{fluid:?}, not {expected}");
            // The first of two that alternate ends a request before the other; with fair finish the floor is one of them.
            assert!((requests[0] - expected).abs() <= 1.5 / REQUESTS_MEAN, "{requests:?}, not {expected}");
        }
    }
}
