//! When I/O phases would begin if all targets were shared fairly, with the jobs' waits for nodes as they would be then.

use super::{Engine, run_with_times};
use crate::fluid::{Clock, Decisions, Scenario, SchemeError, SchemeSpec};
use isonomia_allocation::{Progress, Think};
use isonomia_units::Nanos;
use std::ops::ControlFlow;

impl Engine<'_> {
    /// Runs the scenario under fair sharing first, if its clock is of that; gives whether that was broken off. To the observer it is
    /// the first half.
    pub(super) fn replay(&mut self, observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>) -> Result<bool, SchemeError> {
        if !matches!(self.scenario.scheme, SchemeSpec::FairFinish { clock: Clock::Replayed, .. })
            || self.scheme.is_some()
        {
            return Ok(false);
        }
        let shared = Scenario {
            scheme: SchemeSpec::Pofs(Progress::Banked),
            decisions: Decisions::Event,
            ..self.scenario.clone()
        };
        let (outcome, times) = run_with_times(&shared, &mut |now| observe(Nanos(now.0 / 2)))?;
        self.replayed = Some(times);
        Ok(outcome.interrupted)
    }

    /// What an observer is told of the time.
    pub(super) fn observed(&self, now: Nanos) -> Nanos {
        if self.replayed.is_some() { Nanos((self.scenario.duration.0 + now.0) / 2) } else { now }
    }

    /// When the application's next phase begins in the clock of the closed system.
    pub(super) fn think(&self, now: Nanos, app: u32) -> Option<Think> {
        let job = self.jobs[app as usize].as_ref()?;
        if let Some(times) = &self.replayed {
            let number = self.sums[app as usize].phases as usize;
            // What had not begun by the end does not come.
            let not_before = times[app as usize].began.get(number).copied().unwrap_or(Nanos::MAX);
            return Some(Think { not_before, time: Nanos::ZERO });
        }
        let run = self.run_of(app, job.run);
        let not_before = if job.phase == 0 { run.submit } else { Nanos::ZERO };
        Some(Think { not_before, time: now.since(job.idle_since) })
    }
}
