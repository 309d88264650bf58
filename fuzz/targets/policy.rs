//! Policies: what parses prints as a text that parses to the same, and an arbiter can be made of it and gives back what it
//! was given.

#![no_main]

use isonomia_policy::{Draw, Nature, Next, PolicySpec, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(spec) = text.parse::<PolicySpec>() else { return };
    assert_eq!(spec.to_string().parse::<PolicySpec>().as_ref(), Ok(&spec), "{spec}");
    for draw in [Draw::VirtualTime, Draw::Lottery] {
        let mut arbiter = build(&spec, draw, 1, Tuning::default());
        for (id, group) in [(1, "astro"), (2, "bio")] {
            arbiter.set_job(Nanos::ZERO, JobId(id), &JobInfo::new("j", "ada", group));
            let (cost, nature) = (Nanos(1_000), Nature::WRITE);
            let request = Request { id: RequestId(id.into()), job: JobId(id), cost, bytes: Bytes(4096), nature };
            arbiter.enqueue(Nanos::ZERO, request).expect("there is room for two");
        }
        let shares = arbiter.shares(Nanos::ZERO);
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        assert!(shares.is_empty() || (sum - 1.0).abs() < 1e-9, "{spec}: {shares:?}");
        let mut now = Nanos::ZERO;
        for _ in 0..2 {
            let request = loop {
                match arbiter.next(now) {
                    Next::Dispatch(request) => break request,
                    Next::WaitUntil(at) => now = at,
                    Next::Idle => unreachable!("a request is queued"),
                }
            };
            arbiter.complete(now, request.id, request.job);
        }
        assert_eq!((arbiter.next(now), arbiter.queued()), (Next::Idle, 0), "{spec}");
    }
});
