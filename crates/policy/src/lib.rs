//! Who goes next: the sharing policies of a storage target.
//!
//! A [`PolicySpec`] such as `group-then-user-then-size-fair` says what is fair. [`build`] makes an [`Arbiter`]
//! of it: requests are enqueued with what they cost ([`CostModel`]), and a free worker asks which one is next.
//! The share of each job is ThemisIO's chain of transition matrices over the jobs that are active
//! ([`shares`], ThemisIO §3, Eq. 1). Two draws make turns of shares:
//!
//! * [`Draw::VirtualTime`], the default: weighted fair queueing with bounded anticipation; deterministic, and a
//!   job's service stays within a few requests of its share at every moment.
//! * [`Draw::Lottery`]: ThemisIO's statistical tokens; right in expectation only.
//!
//! A request that is dispatched is out of the arbiter's hands. So a target that serves one request at a time (a
//! [`CappedDevice`], a single disk) should be given one, two at the most: with more workers a queue builds up
//! behind the arbiter in which a job of many processes has many slots. Two cost nothing with requests of one
//! size; a job of one process and small requests wants one.
//!
//! The modules: [`spec`] reads and writes policies; [`queueing`] has the arbiters that divide service by shares,
//! and what shares, order, and activity are; [`limits`] those that give rates; [`device`] says what a request
//! costs, [what it did cost](device::attribution), and how many a device is given at once; a [`Dispatcher`] puts an
//! arbiter before a device, and is all of a target that a live server and a simulation have in common. A latency class
//! stands beside any policy: an arbiter around the policy's own (`queueing::urgent`) and a controller (`device::latency`).
//! Targets that see different jobs are fair together by an [`exchange`] of what they know.
//! [`trace`] records and replays an arbiter's calls. A [`Shadow`] tells what another policy would give.
//!
//! There is no clock, thread, global, log, or hidden randomness in here. Time and seeds are passed in, and the
//! same calls give the same decisions.
//!
//! ```
//! use isonomia_policy::{Draw, Nature, Next, Request, RequestId, Tuning, build};
//! use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
//!
//! let mut arbiter = build(&"size-fair".parse()?, Draw::VirtualTime, 0, Tuning::default());
//! let now = Nanos::ZERO;
//! let large = JobInfo { nodes: 3, ..JobInfo::new("large", "ada", "astro") };
//! arbiter.set_job(now, JobId(1), &large);
//! arbiter.set_job(now, JobId(2), &JobInfo::new("small", "bob", "bio"));
//! for id in 0..4 {
//!     for job in [JobId(1), JobId(2)] {
//!         arbiter.enqueue(now, Request { id: RequestId(id), job, cost: Nanos::from_micros(100), bytes: Bytes(0), nature: Nature::WRITE })?;
//!     }
//! }
//! assert_eq!(arbiter.shares(now), [(JobId(1), 0.75), (JobId(2), 0.25)]);
//! let mut served = [0; 2];
//! for _ in 0..4 {
//!     let Next::Dispatch(request) = arbiter.next(now) else { unreachable!("requests are queued") };
//!     served[request.job.0 as usize - 1] += 1;
//! }
//! assert_eq!(served, [3, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arbiter;
pub mod device;
mod dispatch;
pub mod exchange;
mod history;
mod limits;
mod nature;
mod queueing;
mod shadow;
mod spec;
pub mod trace;

pub use arbiter::{Arbiter, DeviceService, EnqueueError, Next, Request};
pub use device::attribution::{Attribution, Entered, Worth};
pub use device::{
    Access, COST_MAX, CappedDevice, Completion, CostLearner, CostModel, DEPTH_MAX, Depth, DepthControl, DepthSpec,
    LATE_MAX, LatencyReport, ParseDepthError, Unreachable,
};
pub use dispatch::{Action, Dispatch, Dispatcher, Served, ServedBy, Submission};
pub use history::{
    APPLICATIONS_KEPT, BadHistory, Expectation, HISTORY_BYTES_MAX, HISTORY_FORMAT, HistoryExport, KnownApplication,
    SIZES_KEPT, SizeHistory,
};
pub use nature::{Nature, Operation};
pub use queueing::activity::Tuning;
pub use queueing::exclusive::{SharedIoNode, application_of};
pub use queueing::fair_clock::PhaseReport;
pub use queueing::phases::Lateness;
pub use queueing::roster::QUEUED_MAX;
pub use queueing::shares;
pub use queueing::surplus::Progress;
pub use shadow::{Shadow, ShadowReport};
pub use spec::allocated::{Allocated, DECIDE_MAX, DECIDE_MIN, Gift, Method, Throttled, Trait};
pub use spec::latency::LatencyClass;
pub use spec::rates::{
    Allowance, Amount, BadRule, PREFIXES_MAX, Position, RateRule, Scope, Spare, TokenBucket, is_below, read_one,
    read_value,
};
pub use spec::scheme::{Coflow, Exclusive, FairFinish, Order, Qos, Rule, Scheme, Selector, Sizes};
pub use spec::text::{ParsePolicyError, TEXT_LEN_MAX, WEIGHTS_MAX};
pub use spec::{Draw, Entity, Level, ParseDrawError, PolicySpec, Weight};

use limits::{mclock::MClock, token_bucket::TokenBuckets};
use queueing::fair_beside::FairBeside;
use queueing::urgent::Urgent;
use queueing::{
    exclusive, fair_finish, fifo::Fifo, io_sets::IoSets, lottery::Lottery, surplus::Surplus, virtual_time::VirtualTime,
};

/// The caller's name for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Makes the arbiter of `spec`. `draw` matters to chains of levels only, `seed` to [`Draw::Lottery`] only, and
/// `tuning` not to `fifo`. Under `exclusive` the target is an I/O node of its own.
pub fn build(spec: &PolicySpec, draw: Draw, seed: u64, tuning: Tuning) -> Box<dyn Arbiter> {
    build_on(None, spec, draw, seed, tuning)
}

/// The same for a target that is an I/O node together with others, which only `exclusive` asks for.
pub fn build_on(
    node: Option<&SharedIoNode>,
    spec: &PolicySpec,
    draw: Draw,
    seed: u64,
    tuning: Tuning,
) -> Box<dyn Arbiter> {
    let arbiter: Box<dyn Arbiter> = match spec.scheme() {
        Scheme::Fifo => Box::new(Fifo::default()),
        Scheme::Fair(levels) | Scheme::Allocated(Allocated { tree: levels, .. }) => match draw {
            Draw::VirtualTime if spec.is_strict() => Box::new(VirtualTime::new(levels, tuning).with_strict_shares()),
            Draw::VirtualTime => Box::new(VirtualTime::new(levels, tuning)),
            Draw::Lottery => Box::new(Lottery::new(levels, seed, tuning)),
        },
        Scheme::Coflow(Coflow { guarantee, order, tree }) => {
            let surplus = Surplus::new(*order);
            Box::new(VirtualTime::new(tree, tuning).with_guarantee(*guarantee, surplus))
        }
        Scheme::FairFinish(settings) => Box::new(fair_finish::FairFinish::new(settings, tuning)),
        Scheme::TokenBucket(spec) => Box::new(TokenBuckets::new(spec, tuning)),
        Scheme::MClock(rules) => Box::new(MClock::new(rules, tuning)),
        Scheme::IoSets(rules) => Box::new(IoSets::new(rules, tuning)),
        Scheme::Exclusive(settings) => {
            let node = node.cloned().unwrap_or_else(|| SharedIoNode::new(settings, seed));
            Box::new(exclusive::Exclusive::new(settings, node, tuning))
        }
    };
    match spec.latency() {
        Some(class) => Box::new(Urgent::new(spec, class, arbiter)),
        None => arbiter,
    }
}

/// The same arbiter, of `spec`, with a fair clock beside it, so that it tells of [`Arbiter::phases`] and [`Arbiter::lateness`]; it
/// decides as it did. One of `fair-finish` has its own clock and is given back as it is. Jobs that the arbiter knows already
/// have to be announced again.
pub fn with_fair_clock(arbiter: Box<dyn Arbiter>, spec: &PolicySpec, tuning: Tuning) -> Box<dyn Arbiter> {
    match spec.scheme() {
        Scheme::FairFinish(_) => arbiter,
        _ => Box::new(FairBeside::new(arbiter, spec, tuning)),
    }
}
