//! What holds of a dispatcher for every order of calls, under every policy, before a real and an emulated device.

#![allow(clippy::unwrap_used, reason = "what cannot be built fails the test")]

use isonomia_policy::{
    Action, Arbiter, CappedDevice, Depth, Dispatcher, Draw, Nature, RequestId, ServedBy, Submission, Tuning, build,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const JOBS: u32 = 4;
const POLICIES: [&str; 9] = [
    "fifo",
    "job-fair",
    "size-fair",
    "tbf{job:*=1GB/s}",
    "mclock{job:*=limit:2GB/s}",
    "coflow{order=attained}",
    "fair-finish{sizes=history}",
    "job-fair+latency{p99=1ms,job:j1}",
    "tbf{job:*=1GB/s}+latency{p99=1ms,size<=1KiB}",
];

#[derive(Clone, Debug)]
enum Call {
    Enqueue { job: u32, cost_us: u64, is_counted: bool },
    Next,
    Complete { which: usize, by: ServedBy },
    Enter { which: usize },
    SetAside { which: usize },
    Pass { us: u64 },
    Cancel { job: u32 },
    RemoveJob { job: u32 },
    SetPolicy { policy: usize },
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => (0..JOBS, 1u64..2_000, prop::bool::weighted(0.9))
            .prop_map(|(job, cost_us, is_counted)| Call::Enqueue { job, cost_us, is_counted }),
        8 => Just(Call::Next),
        6 => (any::<usize>(), prop::sample::select(vec![ServedBy::Device, ServedBy::Memory]))
            .prop_map(|(which, by)| Call::Complete { which, by }),
        4 => any::<usize>().prop_map(|which| Call::Enter { which }),
        1 => any::<usize>().prop_map(|which| Call::SetAside { which }),
        4 => (1u64..3_000).prop_map(|us| Call::Pass { us }),
        1 => (0..JOBS).prop_map(|job| Call::Cancel { job }),
        1 => (0..JOBS).prop_map(|job| Call::RemoveJob { job }),
        1 => (0..POLICIES.len()).prop_map(|policy| Call::SetPolicy { policy }),
    ]
}

fn arbiter(policy: &str) -> Box<dyn Arbiter> {
    let mut arbiter = build(&policy.parse().unwrap(), Draw::default(), 0, Tuning::default());
    for job in 0..JOBS {
        arbiter.set_job(Nanos::ZERO, JobId(job), &info(job));
    }
    arbiter
}

fn info(job: u32) -> JobInfo {
    JobInfo { nodes: 1 + job, ..JobInfo::new(&format!("j{job}"), "u", "g") }
}

/// A dispatcher, and what is known of each request that it was given.
struct Run {
    dispatcher: Dispatcher<u32, u32>,
    is_emulated: bool,
    depth: usize,
    now: Nanos,
    issued: u32,
    queued: BTreeMap<u32, u32>,
    in_service: BTreeMap<u32, (RequestId, bool, Option<Nanos>)>,
    due: BTreeMap<u32, Nanos>,
    /// When the emulated device ends what it was given last.
    busy_until: Nanos,
    known: BTreeSet<u32>,
    served: u32,
    given_back: u32,
}

impl Run {
    fn new(policy: usize, is_emulated: bool, depth: usize) -> Self {
        let device = is_emulated.then(CappedDevice::new);
        let limit = if is_emulated { usize::MAX } else { depth };
        Self {
            dispatcher: Dispatcher::new(arbiter(POLICIES[policy]), device, Depth::Fixed(limit)),
            is_emulated,
            depth: limit,
            now: Nanos::ZERO,
            issued: 0,
            queued: BTreeMap::new(),
            in_service: BTreeMap::new(),
            due: BTreeMap::new(),
            busy_until: Nanos::ZERO,
            known: (0..JOBS).collect(),
            served: 0,
            given_back: 0,
        }
    }

    fn nth_in_service(&self, which: usize) -> Option<u32> {
        self.in_service.keys().nth(which.checked_rem(self.in_service.len())?).copied()
    }

    fn take_back(&mut self, requests: Vec<u32>, may: impl Fn(u32) -> bool) -> Result<(), TestCaseError> {
        for request in requests {
            let job = self.queued.remove(&request);
            prop_assert!(job.is_some_and(&may), "{request} is given back, of {job:?}");
            self.given_back += 1;
        }
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Result<(), TestCaseError> {
        let now = self.now;
        match *call {
            Call::Pass { us } => self.now = now + Nanos::from_micros(us),
            Call::Enqueue { job, cost_us, is_counted } => {
                let cost = Nanos::from_micros(cost_us);
                let (owed, bytes) = (Nanos(cost.0 / 3), Bytes(cost.0));
                let submission =
                    Submission { job: JobId(job), cost, owed, work: cost, bytes, nature: Nature::WRITE, is_counted };
                let queued = self.dispatcher.enqueue(now, submission, self.issued << 1 | u32::from(is_counted));
                prop_assert_eq!(queued.is_ok(), self.known.contains(&job));
                if queued.is_ok() {
                    self.queued.insert(self.issued << 1 | u32::from(is_counted), job);
                    self.issued += 1;
                }
            }
            Call::Next => self.next()?,
            Call::Complete { which, by } => {
                let Some(request) = self.nth_in_service(which) else { return Ok(()) };
                let (id, _, finish_at) = self.in_service.remove(&request).unwrap();
                match finish_at.filter(|at| *at > now) {
                    Some(at) => {
                        prop_assert!(self.dispatcher.answer_at(at, id, request));
                        self.due.insert(request, at);
                    }
                    None => {
                        self.dispatcher.complete(now, id, by);
                        self.served += 1;
                    }
                }
                // Once is enough.
                self.dispatcher.complete(now, id, by);
            }
            Call::Enter { which } => {
                if let Some(request) = self.nth_in_service(which) {
                    self.dispatcher.enter(now, self.in_service[&request].0);
                }
                prop_assert!(self.dispatcher.attribution().in_service() as usize <= self.in_service.len());
            }
            Call::SetAside { which } => {
                let Some(request) = self.nth_in_service(which) else { return Ok(()) };
                let (id, is_counted, _) = self.in_service.get_mut(&request).unwrap();
                *is_counted = false;
                self.dispatcher.set_aside(now, *id);
            }
            Call::Cancel { job } => {
                let of_job: BTreeSet<u32> = self.queued.iter().filter(|(_, of)| **of == job).map(|(r, _)| *r).collect();
                let gone = self.dispatcher.cancel(now, |request| of_job.contains(request));
                prop_assert_eq!(gone.len(), of_job.len());
                self.take_back(gone, |of| of == job)?;
            }
            Call::RemoveJob { job } => {
                let gone = self.dispatcher.remove_job(now, JobId(job));
                self.known.remove(&job);
                self.take_back(gone, |of| of == job)?;
                prop_assert!(self.queued.values().all(|of| *of != job));
            }
            Call::SetPolicy { policy } => {
                self.known = (0..JOBS).collect();
                let refused = self.dispatcher.replace_arbiter(now, arbiter(POLICIES[policy]));
                prop_assert_eq!(refused, []);
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(), TestCaseError> {
        let now = self.now;
        match self.dispatcher.next(now) {
            Action::Serve(dispatch) => {
                prop_assert!(self.queued.remove(&dispatch.request).is_some(), "served once, if it was not given back");
                prop_assert!(self.busy_until <= now, "busy until {}, and it is {now}", self.busy_until);
                prop_assert_eq!(dispatch.finish_at.is_some(), self.is_emulated);
                self.busy_until = dispatch.finish_at.unwrap_or(Nanos::ZERO);
                let is_counted = dispatch.request & 1 == 1;
                prop_assert!(self.in_service.values().all(|(id, ..)| *id != dispatch.id));
                self.in_service.insert(dispatch.request, (dispatch.id, is_counted, dispatch.finish_at));
            }
            Action::Answer(request) => {
                let at = self.due.remove(&request);
                prop_assert!(at.is_some_and(|at| at <= now), "{request} was due at {at:?}, and it is {now}");
                self.served += 1;
            }
            Action::WaitUntil(at) => {
                prop_assert!(at > now);
                prop_assert!(self.due.values().all(|due| *due >= at), "a reply is due before");
            }
            Action::Idle => {
                prop_assert!(self.due.is_empty());
                let is_full = self.dispatcher.in_service() >= self.depth;
                prop_assert!(self.queued.is_empty() || is_full, "{} wait", self.queued.len());
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.dispatcher.queued(), self.queued.len());
        let counted = self.in_service.values().filter(|(_, is_counted, _)| *is_counted).count();
        if self.is_emulated {
            prop_assert!(self.dispatcher.in_service() >= counted);
        } else {
            prop_assert_eq!(self.dispatcher.in_service(), counted);
            prop_assert!(counted <= self.depth);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_request_comes_back_once_and_no_device_gets_more_than_it_may(
        policy in 0..POLICIES.len(),
        is_emulated in any::<bool>(),
        depth in 1usize..6,
        calls in prop::collection::vec(call(), 1..200),
    ) {
        let mut run = Run::new(policy, is_emulated, depth);
        for call in &calls {
            run.call(call)?;
            run.check()?;
        }
        // Everything that is left comes to its end.
        for _ in 0..10_000 {
            if run.served + run.given_back == run.issued {
                break;
            }
            for next in [Call::Next, Call::Complete { which: 0, by: ServedBy::Device }, Call::Pass { us: 500 }] {
                run.call(&next)?;
            }
        }
        prop_assert_eq!(run.served + run.given_back, run.issued);
        prop_assert_eq!((run.dispatcher.queued(), run.dispatcher.in_service()), (0, 0));
    }

    /// Emulating a device here, or having one outside that takes as long, makes no difference to who goes next and when.
    #[test]
    fn an_emulated_device_is_one_of_depth_one(
        policy in 0..POLICIES.len(),
        costs_us in prop::collection::vec((0..JOBS, 1u64..500), 1..60),
    ) {
        let run = |is_emulated: bool| {
            let device = is_emulated.then(CappedDevice::new);
            let depth = Depth::Fixed(if is_emulated { usize::MAX } else { 1 });
            let mut target: Dispatcher<usize, ()> = Dispatcher::new(arbiter(POLICIES[policy]), device, depth);
            for (request, (job, us)) in costs_us.iter().enumerate() {
                let cost = Nanos::from_micros(*us);
                let (job, owed, bytes) = (JobId(*job), Nanos::ZERO, Bytes(0));
                let submission = Submission { job, cost, owed, work: cost, bytes, nature: Nature::WRITE, is_counted: true };
                target.enqueue(Nanos::ZERO, submission, request).unwrap();
            }
            let (mut now, mut ending, mut order) = (Nanos::ZERO, None, Vec::new());
            while order.len() < costs_us.len() {
                match target.next(now) {
                    Action::Serve(dispatch) => {
                        let at = now + Nanos::from_micros(costs_us[dispatch.request].1);
                        order.push((now, dispatch.request));
                        if dispatch.finish_at.is_some_and(|at| target.answer_at(at, dispatch.id, ())) {
                            assert_eq!(dispatch.finish_at, Some(at));
                        } else {
                            ending = Some((at, dispatch.id));
                        }
                    }
                    Action::Answer(()) => {}
                    Action::WaitUntil(at) => now = at,
                    Action::Idle => {
                        let (at, id) = ending.take().expect("something is in service");
                        now = at;
                        target.complete(now, id, ServedBy::Device);
                    }
                }
            }
            order
        };
        prop_assert_eq!(run(true), run(false));
    }
}
