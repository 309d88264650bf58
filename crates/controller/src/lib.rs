//! Who gets how much of which target, decided for all servers of a cluster at once.
//!
//! GIFT and the schemes that it is compared with decide over all targets, again and again. One server at a time is the
//! *controller* ([`Controller`]); every server, that one too, is a *follower* ([`Follower`]).
//!
//! The followers report which job uses which of their targets, what it had there and whether it wants more ([`Report`], [`Load`]), and
//! every interval the controller decides ([`Plan`], by the schemes of [`isonomia_allocation`], over those who want more than is due to
//! them) and says what each job gets of each target ([`Allocation`]). Only what has changed is said, in both directions ([`Standing`]): a follower reports by itself when something has, and its last word counts
//! until then. Now and then the controller asks ([`Ask`]; under policies that go by what jobs have at the moment, in every interval),
//! which also renews what the follower has; in between it
//! only says that it goes on. Whoever has not answered within [`TIMEOUT`] is left out until he does; when fewer
//! than [`QUORUM_PERCENT`] of those who have jobs can be counted on, nothing is decided. An allocation is valid for some time
//! after it came or was renewed; then it ends, and the targets share fairly by the policy's tree until there is a new one. So
//! no target ever waits for a controller.
//!
//! Two processes may both believe that they are the controller, for a while. Each has a [`Term`], and the later one's is
//! higher: a follower listens to the highest that it has heard of, and refuses the others. Rounds and versions count up
//! within a term: what is repeated or late is refused as well. Nothing of this goes by the time of day. Everything is
//! addressed by name: jobs by user and name, targets by the numbers that they have in the whole system.
//!
//! What GIFT owes to whom is the ledger ([`Kept`]): whoever drives this puts its changes on stable storage before he sends
//! what was decided with them.
//!
//! What a server reports of its targets, and what their arbiters are told, is here as well ([`Using::of`], [`parts`], [`ranks`]), so that
//! the simulator decides over the same reports as a controller does, and its arbiters follow in the same way.
//!
//! There is no clock, thread, socket, or randomness in here.

mod controller;
mod follower;
pub mod journal;
mod kept;
mod lease;
mod local;
mod message;
mod plan;
mod standing;

pub use controller::{
    ABSENT_AFTER, CHECK_EVERY, Controller, Counts, Effect, IDLE_CHECK_EVERY, Moment, QUORUM_PERCENT, Reached, Settings,
    TIMEOUT, renewed_every, validity,
};
pub use follower::{Decision, Follower, Refused, Wanted};
pub use kept::{AccountKept, BadKept, Change, Kept, PREFIX, PaidPeriod, Payment};
pub use lease::{FLOOR, lease_looked_at_every, lease_s};
pub use local::{KnownJobs, LOOK_FOR_PHASES_EVERY, look_every, metadata_parts, parts, ranks};
pub use message::{
    Allocation, Ask, BadMessage, Changes, Content, FORMAT, JOBS_MAX, JobKey, Load, MESSAGE_LEN_MAX, PARTS_PER_TARGET,
    Progress, ROWS_MAX, Rate, Report, ReportedJob, Row, Term,
};
pub use plan::{ACCOUNTS_PER_USER_MAX, COUPONS_PER_TARGET, Decided, Given, Plan, PlanError};
pub use standing::{Standing, Use, Using};
