//! Fluid level: applications on nodes, I/O phases over several targets, and a scheme that gives each phase a rate
//! at each target.
//!
//! An application computes, does I/O on its targets, computes again: GIFT §2. It goes on when all of its targets
//! have moved their volume. Its jobs wait for nodes first come, first served with EASY backfilling
//! ([`backfill`]), and one run of an application is submitted when the run before has ended, or later. Rates hold
//! from one decision to the next, and what is not in a decision has no rate: an I/O phase waits for the next one.
//! What is not modelled: single requests, the network, and reads apart from writes.

pub mod backfill;
mod engine;
mod lateness;
mod outcome;
pub mod population;
mod single;

pub use engine::{OBSERVED_EVERY, run, run_with, run_with_times};
pub use outcome::{ApplicationOutcome, ClosedOutcome, GiftDay, GiftOutcome, Outcome, PhaseTimes};

pub use isonomia_allocation::{Clock, Decide, Parameters, SCHEMES, SchemeError, SchemeSpec, Sizes};

use isonomia_units::{Nanos, Rate};
use std::sync::Arc;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// When it ends, if the applications have not ended before.
    pub duration: Nanos,
    /// Between two decisions, more than 0.
    pub interval: Nanos,
    /// When decisions are made.
    pub decisions: Decisions,
    /// Who decides.
    pub scheme: SchemeSpec,
    /// How many targets there are.
    pub targets: u16,
    /// Of each target.
    pub bandwidth: Rate,
    /// Compute nodes.
    pub nodes: u32,
    /// The scheduler takes a job for this many times as long as it would be alone.
    pub estimate: f64,
    /// Schemes are told volumes that are wrong by up to this factor either way, the same for all of a phase; 1 is the
    /// truth. What they are told is left is at least a byte where something is.
    pub misprediction: f64,
    /// Who runs, in the order of their names, which differ.
    pub applications: Arc<[Application]>,
}

/// When decisions are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decisions {
    /// At multiples of the interval (GIFT §3.5).
    #[default]
    Interval,
    /// Whenever an I/O phase begins, ends, or is done at a target.
    Event,
}

/// An application: a job that recurs.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Its name.
    pub name: Arc<str>,
    /// Its nodes, at most the machine's.
    pub nodes: u32,
    /// Weight of its fair share.
    pub weight: f64,
    /// Its runs, in the order of submission.
    pub runs: Vec<Run>,
}

/// One run of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// It is submitted at this time, or when the run before has ended.
    pub submit: Nanos,
    /// The targets that it uses, ascending, at least one.
    pub targets: Vec<u16>,
    /// At least one.
    pub phases: Vec<Phase>,
}

/// Computing, then I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Time of computing.
    pub compute: Nanos,
    /// Volume at each target, as the time that the target needs for it alone. More than 0.
    pub io: Nanos,
}

impl Run {
    /// How long it takes alone, without waiting for a decision.
    pub fn alone(&self) -> Nanos {
        self.phases.iter().fold(Nanos::ZERO, |sum, phase| sum + phase.compute + phase.io)
    }
}
