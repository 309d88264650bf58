//! Who gets how much of which target, decided for all servers of a cluster at once.
//!
//! GIFT and the schemes that it is compared with decide over all targets, again and again. One server at a time is the
//! *controller* ([`Controller`]); every server, that one too, is a *follower* ([`Follower`]).
//!
//! Every interval the controller asks ([`Ask`]), the followers report which job has what of which of their targets
//! ([`Report`]), and the controller decides ([`Plan`], by the schemes of [`isonomia_allocation`]) and says what each job
//! gets of each target ([`Allocation`]). Whoever has not reported within [`TIMEOUT`] is left out until the next time; with
//! fewer than [`QUORUM_PERCENT`] of those that were asked, nothing is decided. An allocation is valid for some time after it
//! came; one that is not renewed ends, and the targets share fairly by the policy's tree until there is a new one. So no
//! target ever waits for a controller.
//!
//! A server where no job does I/O is not asked but now and then; it reports by itself when a job begins to.
//!
//! Two processes may both believe that they are the controller, for a while. Each has a [`Term`], and the later one's is
//! higher: a follower listens to the highest that it has heard of, and refuses the others. Rounds and versions count up
//! within a term: what is repeated or late is refused as well. Nothing of this goes by the time of day. Everything is
//! addressed by name: jobs by user and name, targets by the numbers that they have in the whole system.
//!
//! What GIFT owes to whom is the ledger ([`Kept`]): whoever drives this puts its changes on stable storage before he sends
//! what was decided with them.
//!
//! What a server reports of its targets, and what their arbiters are told, is here as well ([`Report::of_usage`], [`Content::parts`]), so that
//! the simulator decides over the same reports as a controller does, and its arbiters follow in the same way.
//!
//! There is no clock, thread, socket, or randomness in here.

mod controller;
mod follower;
mod kept;
mod local;
mod message;
mod plan;

pub use controller::{
    ABSENT_AFTER, CHECK_EVERY, Controller, Counts, Effect, QUORUM_PERCENT, Reached, Settings, TIMEOUT, validity,
};
pub use follower::{Follower, Refused};
pub use kept::{AccountKept, BadKept, Change, Kept, PREFIX, PaidPeriod, Payment};
pub use local::look_every;
pub use message::{
    Allocation, Ask, BadMessage, Content, FORMAT, JOBS_MAX, JobKey, MESSAGE_LEN_MAX, PARTS_PER_TARGET, Progress,
    ROWS_MAX, Rate, Report, ReportedJob, Row, Term,
};
pub use plan::{COUPONS_PER_TARGET, Decided, Plan, PlanError};
