//! The exchange of tables in a closed loop: what comes of parts is in the next tables.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_policy::PolicySpec;
use isonomia_policy::exchange::{Course, Exchange, Meters, Rule, Usage};
use isonomia_units::{JobId, JobInfo, Nanos, ServerId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Jobs of 16, 8 and 8 nodes, all of which always wait: the first on both servers, the others on one each (ThemisIO Fig. 5).
const NODES: [u32; 3] = [16, 8, 8];
const DUE: [f64; 3] = [0.5, 0.25, 0.25];
const ON: [[usize; 2]; 2] = [[0, 1], [0, 2]];

struct Server {
    meters: Meters,
    exchange: Exchange,
    course: Course,
    usage: BTreeMap<JobId, Usage>,
    /// Of the first and of the second of its jobs.
    parts: [f64; 2],
}

/// What each job is served of both servers in each interval, if each of these does as much of what it can as `does` says of an interval.
fn served(rule: Rule, interval: Nanos, intervals: usize, mut does: impl FnMut(usize) -> [f64; 2]) -> Vec<[f64; 3]> {
    let policy: PolicySpec = "size-fair".parse().unwrap();
    let info = |job: usize| JobInfo { nodes: NODES[job], ..JobInfo::new(&format!("j{job}"), &format!("u{job}"), "g") };
    let server = |_| Server {
        meters: Meters::new(1, interval),
        exchange: Exchange::new(rule, interval),
        course: Course::new(interval),
        usage: BTreeMap::new(),
        parts: [2.0 / 3.0, 1.0 / 3.0],
    };
    let mut servers: Vec<Server> = (0..2).map(server).collect();
    let mut all = Vec::new();
    for at in 0..intervals {
        let now = Nanos(interval.0 * at as u64 + 1);
        let own: Vec<_> = servers
            .iter_mut()
            .map(|server| server.meters.table(now, [server.usage.clone()], |job| Some(info(job.0 as usize))))
            .collect();
        for (number, server) in servers.iter_mut().enumerate() {
            let other = 1 - number;
            server.exchange.tell(now, ServerId(other as u16 + 1), own[other].table.clone()).unwrap();
            let joined = server.exchange.join(now, &policy, &own[number].table, &mut server.course);
            let parts = own[number].parts(joined).remove(0);
            let sum: f64 = parts.iter().map(|(_, part)| part).sum();
            for (job, part) in parts {
                let index = ON[number].iter().position(|on| *on == job.0 as usize).unwrap();
                server.parts[index] = part / sum;
            }
        }
        let mut had = [0.0; 3];
        for ((server, on), does) in servers.iter_mut().zip(ON).zip(does(at)) {
            for (job, part) in on.iter().zip(server.parts) {
                had[*job] += part * does;
                let usage = server.usage.entry(JobId(*job as u32)).or_default();
                usage.service += Nanos((part * does * interval.0 as f64) as u64);
                usage.waited += interval;
            }
        }
        all.push(had);
    }
    all
}

/// By how much of what is due the last job's share is off in each window of so many intervals.
fn errors(served: &[[f64; 3]], window: usize) -> Vec<f64> {
    let of = |window: &[[f64; 3]]| {
        let had = |job: usize| window.iter().map(|had| had[job]).sum::<f64>();
        had(2) / (0..3).map(had).sum::<f64>() / DUE[2] - 1.0
    };
    served.chunks_exact(window).map(of).collect()
}

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

const INTERVALS_MS: [u64; 4] = [10, 50, 200, 500];

#[test]
fn shares_are_due_from_the_second_interval_on() {
    for ms in INTERVALS_MS {
        for rule in [Rule::Presence, Rule::Received] {
            let errors = errors(&served(rule, Nanos::from_millis(ms), 60, |_| [1.0, 1.0]), 1);
            assert!(errors[0] > 0.3 - 1.0 && errors[0] < -0.3, "each server by itself at first: {}", errors[0]);
            // The first exchange is at the end of the first interval.
            let worst = errors[2..].iter().map(|error| error.abs()).fold(0.0, f64::max);
            assert!(worst < 0.005, "{ms} ms, {rule:?}: {worst}");
        }
    }
}

#[test]
fn what_a_server_does_less_is_not_one_jobs_loss() {
    for ms in INTERVALS_MS {
        let interval = Nanos::from_millis(ms);
        let intervals = (20_000 / ms).max(40) as usize;
        let off = |rule| {
            let errors = errors(&served(rule, interval, intervals, |_| [1.0, 0.8]), intervals / 4);
            errors[3].abs()
        };
        assert!(off(Rule::Presence) > 0.1, "{}", off(Rule::Presence));
        assert!(off(Rule::Received) < 0.01, "{ms} ms: {}", off(Rule::Received));
    }
}

/// One server does nothing for a while, once.
#[test]
fn an_error_dies_away_and_does_not_swing() {
    for ms in INTERVALS_MS {
        let (begin, end) = (60, 62);
        // What is looked back over, in intervals.
        let span = (100 / ms as usize).max(4);
        let does = |at: usize| if (begin..end).contains(&at) { [1.0, 0.0] } else { [1.0, 1.0] };
        let errors = errors(&served(Rule::Received, Nanos::from_millis(ms), 60 + 20 * span, does), 1);
        let lost: f64 = errors[begin..end].iter().map(|error| -error).sum();
        let after = &errors[end..];
        let most = |errors: &[f64]| errors.iter().map(|error| error.abs()).fold(0.0, f64::max);
        let (first, later) = (most(&after[..2 * span]), most(&after[4 * span..]));
        assert!(first < 0.5 * lost, "{ms} ms: {first} of {lost}");
        assert!(later < 0.1 * first + 0.001, "{ms} ms: {later} after {first}");
        let returned: f64 = after.iter().sum();
        assert!(returned > 0.0 && returned < lost, "{ms} ms: {returned} of {lost} is made up for");
    }
}

/// Servers are delayed by chance, for a tenth of an interval at a time on the average.
#[test]
fn chance_matters_less_than_where_presence_counts() {
    for ms in INTERVALS_MS {
        let interval = Nanos::from_millis(ms);
        let mut ratios = [0.0; 2];
        const SEEDS: u64 = 6;
        for seed in 0..SEEDS {
            let by = |rule, window: usize| {
                let mut chance = Pcg64Mcg::seed_from_u64(seed);
                let mut does = || if chance.random_bool(0.2) { chance.random_range(0.3..1.0) } else { 1.0 };
                let served = served(rule, interval, 1200, |_| [does(), does()]);
                deviation(&errors(&served[200..], window))
            };
            let span = (100 / ms as usize).max(4);
            for (ratio, window) in ratios.iter_mut().zip([1, 2 * span]) {
                *ratio += by(Rule::Received, window) / by(Rule::Presence, window) / SEEDS as f64;
            }
        }
        assert!(ratios[0] < 1.05 && ratios[1] < 0.8, "{ms} ms: {ratios:?}");
    }
}
