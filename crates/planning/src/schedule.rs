//! Applications that compute and do I/O alternately, on one exclusive I/O node (ICS'20 §4.2, §4.3, §5.1).
//!
//! Discrete events in integer nanoseconds; everything that happens at one instant happens before the node is
//! granted at that instant. Applications begin with compute at their release, have compute nodes of their own,
//! and wait only for the I/O node. A phase without I/O asks for nothing and waits for nobody.
//!
//! Deviation: the paper's simulator advances by a fixed time step (§6.2.1); this one goes from event to event,
//! so there is no step to choose and nothing is rounded.

use crate::grants::{Grants, NextGrant};
use crate::order::{Claim, Order};
use isonomia_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most I/O phases in one schedule: about twenty seconds of computing.
pub const PHASES_MAX: u64 = 100_000_000;
/// The most applications in one schedule.
pub const APPS_MAX: usize = 1 << 20;
/// The latest end of a schedule whose applications all run one after the other: 146 years.
pub const SPAN_MAX: Nanos = Nanos(u64::MAX / 4);

/// A periodic application: `iterations` times a compute phase and then an I/O phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct App {
    /// Length of one compute phase; may be zero.
    pub compute: Nanos,
    /// Length of one I/O phase on the idle I/O node; may be zero.
    pub io: Nanos,
    /// At least 1.
    pub iterations: u32,
    /// When the first compute phase begins.
    pub release: Nanos,
}

/// What became of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it was released: r.
    pub release: Nanos,
    /// When its last I/O phase ended: C.
    pub completion: Nanos,
    /// How long it takes without contention: T(b), Eq. 1.
    pub alone: Nanos,
}

/// What became of all of them, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// One outcome for each application.
    pub apps: Vec<Outcome>,
}

/// One I/O phase as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Position of the application.
    pub app: usize,
    /// When it asked.
    pub asked: Nanos,
    /// When it began.
    pub begin: Nanos,
    /// When it ended.
    pub end: Nanos,
}

/// Why applications cannot be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There are too many.
    #[error("{apps} applications (allowed: at most {APPS_MAX})")]
    Apps {
        /// How many there are.
        apps: usize,
    },
    /// An application that does nothing has no stretch.
    #[error("application {app} neither computes nor does I/O (allowed: at least one iteration of some length)")]
    Nothing {
        /// Its position.
        app: usize,
    },
    /// Too many events for one run.
    #[error("{phases} I/O phases in all (allowed: at most {PHASES_MAX})")]
    Phases {
        /// How many there are.
        phases: u64,
    },
    /// The times do not fit the clock.
    #[error("the applications may last longer than {} years together", SPAN_MAX.0 / (365 * 24 * 3_600_000_000_000))]
    Span,
}

impl App {
    /// Time of all iterations without contention: T(b), Eq. 1. Saturates.
    pub fn alone(&self) -> Nanos {
        Nanos((self.compute + self.io).0.saturating_mul(u64::from(self.iterations)))
    }

    /// I/O time of all iterations. Saturates.
    pub fn io_alone(&self) -> Nanos {
        Nanos(self.io.0.saturating_mul(u64::from(self.iterations)))
    }
}

impl Outcome {
    /// (C − r) / T(b): 1 is undisturbed, 2 is twice as long.
    ///
    /// Deviation: Eq. 2 prints the inverse; the text below it means this.
    pub fn stretch(&self) -> f64 {
        self.completion.since(self.release).0 as f64 / self.alone.0 as f64
    }
}

impl Schedule {
    /// When the last application completes (Eq. 3); zero if there is none.
    pub fn makespan(&self) -> Nanos {
        self.apps.iter().map(|app| app.completion).max().unwrap_or(Nanos::ZERO)
    }

    /// The worst stretch; 1 if there is no application.
    pub fn max_stretch(&self) -> f64 {
        self.apps.iter().map(Outcome::stretch).fold(1.0, f64::max)
    }
}

/// Schedules `apps` by `order`; the position of an application is its id. O(phases × log apps), or
/// O(phases × apps) under the orders that change while claims wait.
///
/// # Errors
/// An application does nothing, or there is more than the named limits allow.
pub fn schedule(apps: &[App], order: Order) -> Result<Schedule, ScheduleError> {
    schedule_with(apps, order, |app, _| apps[app].compute, |_| ())
}

/// [`schedule`] with compute phases whose lengths differ, and with every grant reported when it ends.
///
/// `compute_of(app, iteration)` is asked once for each phase, when it begins; an application's iterations come in
/// order, from 0. The orders know [`App::compute`] as the expected length. Outcomes count what was drawn.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_with(
    apps: &[App],
    order: Order,
    compute_of: impl FnMut(usize, u32) -> Nanos,
    on_grant: impl FnMut(Grant),
) -> Result<Schedule, ScheduleError> {
    check(apps)?;
    Ok(Run::new(apps, order, compute_of, on_grant).finish())
}

fn check(apps: &[App]) -> Result<(), ScheduleError> {
    if apps.len() > APPS_MAX {
        return Err(ScheduleError::Apps { apps: apps.len() });
    }
    if let Some(app) = apps.iter().position(|app| app.alone() == Nanos::ZERO) {
        return Err(ScheduleError::Nothing { app });
    }
    let phases = apps.iter().map(|app| u64::from(app.iterations)).sum();
    if phases > PHASES_MAX {
        return Err(ScheduleError::Phases { phases });
    }
    let latest = apps.iter().map(|app| app.release).max().unwrap_or(Nanos::ZERO);
    let span = apps.iter().fold(latest, |span, app| span + app.alone());
    if span > SPAN_MAX { Err(ScheduleError::Span) } else { Ok(()) }
}

struct Run<'a, C, G> {
    apps: &'a [App],
    compute_of: C,
    on_grant: G,
    progress: Vec<Progress>,
    /// Ends of compute phases with I/O after them, earliest first, then by id.
    computing: BinaryHeap<Reverse<(Nanos, u32)>>,
    grants: Grants,
    granted: Option<Grant>,
}

#[derive(Clone, Copy)]
struct Progress {
    iteration: u32,
    asked: Nanos,
    compute_done: Nanos,
    completion: Nanos,
}

impl<'a, C: FnMut(usize, u32) -> Nanos, G: FnMut(Grant)> Run<'a, C, G> {
    fn new(apps: &'a [App], order: Order, compute_of: C, on_grant: G) -> Self {
        let fresh = Progress { iteration: 0, asked: Nanos::ZERO, compute_done: Nanos::ZERO, completion: Nanos::ZERO };
        let mut run = Self {
            apps,
            compute_of,
            on_grant,
            progress: vec![fresh; apps.len()],
            computing: BinaryHeap::with_capacity(apps.len()),
            grants: Grants::new(order),
            granted: None,
        };
        for (app, of) in apps.iter().enumerate() {
            if of.io == Nanos::ZERO {
                run.compute_through(app);
            } else {
                run.compute(of.release, app);
            }
        }
        run
    }

    fn finish(mut self) -> Schedule {
        loop {
            let io_end = self.granted.map(|granted| granted.end);
            let compute_end = self.computing.peek().map(|Reverse((end, _))| *end);
            let Some(now) = io_end.into_iter().chain(compute_end).min() else { break };
            if io_end == Some(now) {
                self.end_io(now);
            }
            while let Some(&Reverse((end, app))) = self.computing.peek()
                && end == now
            {
                self.computing.pop();
                self.ask(now, app);
            }
            if let NextGrant::Grant(app) = self.grants.next(now) {
                let app = app as usize;
                let asked = self.progress[app].asked;
                self.granted = Some(Grant { app, asked, begin: now, end: now + self.apps[app].io });
            }
        }
        let outcome = |(app, progress): (&App, &Progress)| Outcome {
            release: app.release,
            completion: progress.completion,
            alone: progress.compute_done + app.io_alone(),
        };
        Schedule { apps: self.apps.iter().zip(&self.progress).map(outcome).collect() }
    }

    /// All phases of an application without I/O.
    fn compute_through(&mut self, app: usize) {
        let phases = (0..self.apps[app].iterations).map(|iteration| (self.compute_of)(app, iteration));
        let compute_done = phases.fold(Nanos::ZERO, |sum, phase| sum + phase);
        let completion = self.apps[app].release + compute_done;
        self.progress[app] = Progress { compute_done, completion, ..self.progress[app] };
    }

    fn compute(&mut self, now: Nanos, app: usize) {
        let progress = &mut self.progress[app];
        let phase = (self.compute_of)(app, progress.iteration);
        progress.compute_done += phase;
        self.computing.push(Reverse((now + phase, app as u32)));
    }

    fn ask(&mut self, now: Nanos, id: u32) {
        let app = self.apps[id as usize];
        let progress = &mut self.progress[id as usize];
        progress.asked = now;
        let left = u64::from(app.iterations - progress.iteration);
        let io_done = Nanos(app.io.0 * u64::from(progress.iteration));
        let claim = Claim {
            app: id,
            release: app.release,
            io: app.io,
            remaining: Nanos(app.io.0 * left + app.compute.0 * (left - 1)),
            io_done,
            work_done: io_done + progress.compute_done,
        };
        let queued = self.grants.enqueue(now, claim);
        debug_assert!(queued.is_ok(), "APPS_MAX is CLAIMS_MAX, and an application waits once");
    }

    fn end_io(&mut self, now: Nanos) {
        let Some(grant) = self.granted.take() else { return };
        self.grants.complete(grant.app as u32);
        (self.on_grant)(grant);
        let progress = &mut self.progress[grant.app];
        progress.iteration += 1;
        if progress.iteration == self.apps[grant.app].iterations {
            progress.completion = now;
        } else {
            self.compute(now, grant.app);
        }
    }
}

const _: () = assert!(APPS_MAX <= crate::grants::CLAIMS_MAX);
