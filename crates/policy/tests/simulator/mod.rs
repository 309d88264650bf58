//! A closed-loop simulation in virtual time: processes that think and ask, workers that ask the arbiter.

use isonomia_policy::{Arbiter, CappedDevice, Draw, Next, PolicySpec, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

/// How the target serves what several workers give it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Each worker serves on its own; a service takes its cost, give or take this fraction.
    Parallel { jitter: f64 },
    /// One at a time at the stated cost.
    Capped,
}

/// A job and its processes, each of which has one request at a time.
#[derive(Clone, Debug)]
pub struct Load {
    pub info: JobInfo,
    pub processes: u32,
    pub cost: Nanos,
    /// Between a completion and the next request, uniformly distributed.
    pub think: RangeInclusive<u64>,
    /// When it issues its first and its last request.
    pub active: RangeInclusive<Nanos>,
}

impl Load {
    pub fn new(name: &str, processes: u32, cost: Nanos) -> Self {
        Self {
            info: JobInfo::new(name, name, name),
            processes,
            cost,
            think: 10_000..=50_000,
            active: Nanos::ZERO..=Nanos::MAX,
        }
    }
}

pub struct Scenario {
    pub policy: &'static str,
    pub draw: Draw,
    pub workers: usize,
    pub target: Target,
    pub loads: Vec<Load>,
    pub duration: Nanos,
    pub seed: u64,
}

/// What was served: (load, begin, end, cost) in the order of completion.
pub struct Outcome {
    pub served: Vec<(usize, Nanos, Nanos, Nanos)>,
    pub duration: Nanos,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Issue { load: usize },
    Finish { worker: usize, load: usize, id: u64, begin: Nanos, cost: Nanos },
    Ask,
}

struct Run {
    arbiter: Box<dyn Arbiter>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    random: Pcg64,
    device: CappedDevice,
    /// Idle workers, each with whether it had to wait since its last request.
    idle: Vec<(usize, bool)>,
}

impl Run {
    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn employ(&mut self, now: Nanos, target: Target) {
        while let Some((worker, waited)) = self.idle.pop() {
            match self.arbiter.next(now) {
                Next::Dispatch(request) => {
                    let end = match target {
                        Target::Parallel { jitter } => {
                            let factor = 1.0 + jitter * (2.0 * self.random.random::<f64>() - 1.0);
                            now + Nanos((request.cost.0 as f64 * factor) as u64)
                        }
                        Target::Capped => self.device.start(now, request.cost, !waited),
                    };
                    let (load, id, cost) = (request.job.0 as usize, request.id.0, request.cost);
                    self.schedule(end, Event::Finish { worker, load, id, begin: now, cost });
                }
                waiting => {
                    if let Next::WaitUntil(at) = waiting {
                        self.schedule(at, Event::Ask);
                    }
                    self.idle.push((worker, true));
                    self.idle.iter_mut().for_each(|(_, waited)| *waited = true);
                    return;
                }
            }
        }
    }
}

impl Scenario {
    pub fn new(policy: &'static str, workers: usize, target: Target, loads: Vec<Load>) -> Self {
        let duration = Nanos::from_secs(4);
        Self { policy, draw: Draw::VirtualTime, workers, target, loads, duration, seed: 1 }
    }

    pub fn run(&self) -> Outcome {
        let spec: PolicySpec = self.policy.parse().expect("a policy");
        let parallel = if self.target == Target::Capped { 1 } else { self.workers as u32 };
        let tuning = Tuning { parallel, ..Tuning::default() };
        let mut run = Run {
            arbiter: build(&spec, self.draw, self.seed, tuning),
            events: BinaryHeap::new(),
            sequence: 0,
            random: Pcg64::seed_from_u64(self.seed),
            device: CappedDevice::new(),
            idle: (0..self.workers).map(|worker| (worker, true)).collect(),
        };
        for (load, spec) in self.loads.iter().enumerate() {
            run.arbiter.set_job(Nanos::ZERO, JobId(load as u32), &spec.info);
            for _ in 0..spec.processes {
                let begin = *spec.active.start() + Nanos(run.random.random_range(spec.think.clone()));
                run.schedule(begin, Event::Issue { load });
            }
        }
        let mut served = Vec::new();
        while let Some(Reverse((now, sequence, event))) = run.events.pop() {
            if now > self.duration {
                break;
            }
            match event {
                Event::Issue { load } if self.loads[load].active.contains(&now) => {
                    let request = Request {
                        id: RequestId(sequence),
                        job: JobId(load as u32),
                        cost: self.loads[load].cost,
                        bytes: Bytes(0),
                        nature: isonomia_policy::Nature::WRITE,
                    };
                    run.arbiter.enqueue(now, request).expect("the job is known");
                }
                Event::Issue { .. } | Event::Ask => {}
                Event::Finish { worker, load, id, begin, cost } => {
                    run.arbiter.complete(now, RequestId(id), JobId(load as u32));
                    served.push((load, begin, now, cost));
                    let back = now + Nanos(run.random.random_range(self.loads[load].think.clone()));
                    run.schedule(back, Event::Issue { load });
                    run.idle.push((worker, false));
                }
            }
            run.employ(now, self.target);
        }
        Outcome { served, duration: self.duration }
    }
}

impl Outcome {
    /// Cost served to `load` by completions in (from, to], in ns.
    pub fn service(&self, load: usize, from: Nanos, to: Nanos) -> f64 {
        let inside = self.served.iter().filter(|(of, _, end, _)| *of == load && *end > from && *end <= to);
        inside.map(|(.., cost)| cost.0 as f64).sum()
    }

    /// The part of each of `loads` loads in all service, the first tenth of the run left out.
    pub fn parts(&self, loads: usize) -> Vec<f64> {
        self.parts_between(loads, Nanos(self.duration.0 / 10), self.duration)
    }

    pub fn parts_between(&self, loads: usize, from: Nanos, to: Nanos) -> Vec<f64> {
        let service: Vec<f64> = (0..loads).map(|load| self.service(load, from, to)).collect();
        let total: f64 = service.iter().sum();
        service.iter().map(|service| service / total).collect()
    }

    /// Service per time, 1 for one worker always busy.
    pub fn throughput(&self, loads: usize) -> f64 {
        (0..loads).map(|load| self.service(load, Nanos::ZERO, self.duration)).sum::<f64>() / self.duration.0 as f64
    }

    /// Standard deviation over mean of a load's service in slices of `slice`, the first tenth left out.
    pub fn deviation(&self, load: usize, slice: Nanos) -> f64 {
        let begin = self.duration.0 / 10;
        let slices = (self.duration.0 - begin) / slice.0;
        let service = |i| self.service(load, Nanos(begin + i * slice.0), Nanos(begin + (i + 1) * slice.0));
        let service: Vec<f64> = (0..slices).map(service).collect();
        let mean = service.iter().sum::<f64>() / slices as f64;
        let variance = service.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / slices as f64;
        variance.sqrt() / mean
    }
}
