//! Planning: whose I/O phase goes next, and which jobs run together (ICS'20, "Mapping and Scheduling HPC
//! Applications for Optimizing I/O").
//!
//! * [`Order`]: the eight list-scheduling orders of exclusive, non-preemptive I/O phases (§5.1), as one pure
//!   function; [`Grants`] is the arbiter that a coordinator and the simulator share.
//! * [`IoNode`]: such a node as it lives, told of every request; [`Coordinator`]: who has which node, by what nodes tell.
//! * [`schedule()`]: applications on one I/O node, event by event.
//! * [`make_packs`], [`assign`], [`plan()`]: jobs in packs, packs on I/O nodes (§5.2).
//! * [`Recipe`]: the paper's random workloads (§6.2.2).
//! * [`read_apps`], [`read_jobs`], [`read_swf`]: tables and logs, from text; errors name line and field.
//!
//! There is no clock, thread, global, file, or hidden randomness in here: time and generators are arguments, and
//! the same calls give the same results.
//!
//! ```
//! use isonomia_planning::{App, Order, schedule};
//! use isonomia_units::Nanos;
//!
//! let app = |compute, io| App { compute: Nanos(compute), io: Nanos(io), iterations: 2, release: Nanos::ZERO };
//! let schedule = schedule(&[app(2, 2), app(2, 2)], Order::Fifo)?;
//! // 0 computes until 2, does I/O until 4, computes until 6, does I/O until 8; 1 is always two behind.
//! assert_eq!(schedule.makespan(), Nanos(10));
//! assert_eq!(schedule.max_stretch(), 1.25);
//! # Ok::<(), isonomia_planning::ScheduleError>(())
//! ```

mod apps;
pub mod coordinator;
mod grants;
mod ids;
pub mod io_node;
mod jobs;
mod order;
mod packs;
mod plan;
mod schedule;
mod swf;
mod table;
mod workload;

pub use apps::{NamedApp, read_apps};
pub use coordinator::Coordinator;
pub use grants::{CLAIMS_MAX, ClaimsFull, Grants, NextGrant};
pub use io_node::{IoNode, PhaseRules};
pub use jobs::{NamedJob, read_jobs};
pub use order::{Claim, Order, ParseOrderError, Urgency};
pub use packs::{Job, Pack, PackError, PackRun, Sensibility, alpha, assign, execute, longest_first, make_packs};
pub use plan::{Machine, NodeTime, Plan, PlanError, plan};
pub use schedule::{
    APPS_MAX, App, Grant, Outcome, PHASES_MAX, SPAN_MAX, Schedule, ScheduleError, schedule, schedule_with,
};
pub use swf::{Mapping, SwfJobs, read_swf};
pub use table::{TIME_S_MAX, TableError};
pub use workload::{Recipe, Sizes};
