//! Who gets how much of which target: bandwidth allocation over storage targets.
//!
//! An application whose processes write to several targets goes on only when all of them have served it. So what
//! one target gives beyond the slowest is wasted, or at least not needed now. The schemes in here divide the
//! targets' bandwidth among the applications of a [`Problem`] and give an [`Allocation`]:
//!
//! | scheme | function | source |
//! |---|---|---|
//! | POFS, each target for itself | [`pofs`] | GIFT §2 |
//! | BSIP, synchronous progress at the fair share | [`bsip`] | GIFT §2 |
//! | MBW, the greatest effective bandwidth | [`mbw()`] | GIFT §2 |
//! | GIFT, throttle and reward | [`Gift`] | GIFT §3 |
//! | TSA, ESA, TMF, RND, throttling by rule | [`RuleThrottle`] | GIFT §4 |
//! | TBF, token buckets | [`token_bucket()`] | GIFT §3.5, ThemisIO §5 |
//! | AdapTBF, token buckets that lend | [`AdapTbf`] | Rashid and Dai, IPDPS 2025 |
//! | CALCioM, one phase at a time or shared | [`Calciom`] | Dorier et al., IPDPS 2014 |
//! | coflow, a guarantee and an order | [`Coflow`] | this project; Varys, Aalo, Sincronia |
//! | fair finish, one after the other as fair sharing would finish | [`FairFinish`] | this project; FSP |
//!
//! [`SchemeSpec`] has all of them under one roof, for whoever decides again and again ([`Decide`]).
//!
//! [`max_min_rates`] is for streams that each pass through several resources, such as a router, a server, and a target.
//!
//! There is no clock, thread, global, log, or hidden randomness in here, and results are addressed by name: the
//! same applications in any order get the same.
//!
//! ```
//! use isonomia_allocation::{App, Problem, Targets, bsip};
//! use std::sync::Arc;
//!
//! // GIFT Fig. 6, first decision.
//! let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0)])?);
//! let apps = vec![App::at("A", &targets, &["t1"])?, App::at("B", &targets, &["t1", "t2"])?];
//! let allocation = bsip(&Problem::new(targets, apps)?);
//! assert_eq!(allocation.app("B").map(|app| app.share), Some(0.5));
//! assert_eq!(allocation.target_uses()[1].wasted, 0.5);
//! # Ok::<(), isonomia_allocation::ProblemError>(())
//! ```

mod adaptbf;
mod allocation;
mod calciom;
mod coflow;
mod fair;
mod fair_finish;
mod filling;
mod gift;
mod mbw;
mod problem;
mod program;
mod rules;
mod scheme;
mod streams;
mod token_bucket;

pub use adaptbf::{AdapTbf, AdapTbfConfig, BadReclaim, HEADROOM, ParsePriorityError, Priority, SATURATED};
pub use allocation::{Allocation, AppAllocation, Coupons, Progress, RateError, TargetUse};
pub use calciom::{Calciom, ParseStrategyError, Strategy, UnknownRemaining};
pub use coflow::{Coflow, CoflowError, Order, ParseOrderError};
pub use fair::{bsip, pofs};
pub use fair_finish::{
    BadGuarantee, ClosedClock, Ended, FIRST_TOLD_S, FairClock, FairFinish, FairFinishTarget, GROWTH, GROWTH_UNKNOWN,
    PartId, Think,
};
pub use gift::{
    AccountRecord, Accounts, BadLedger, Balance, Compensation, Gift, GiftConfig, GiftConfigError, Ledger,
    LedgerChanges, NodeTime, SystemRecord,
};
pub use mbw::mbw;
pub use problem::{App, Demand, Problem, ProblemError, TargetIndex, Targets};
pub use program::{PackingProgram, ProgramError, Solution};
pub use rules::{Rule, RuleThrottle};
pub use scheme::{Clock, Decide, Parameters, SCHEMES, Scheme, SchemeError, SchemeSpec, Sizes};
pub use streams::{StreamError, max_min_rates};
pub use token_bucket::token_bucket;
