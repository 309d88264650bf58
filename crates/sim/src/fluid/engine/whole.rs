//! Decisions for all targets at once, by a scheme that sees the whole.

use super::{DAY, Engine, Event, Job, NOTHING_S};
use crate::fluid::outcome::GiftDay;
use crate::fluid::{Decisions, SchemeError};
use isonomia_allocation::{App, Demand, Problem, Progress};
use isonomia_units::{Bytes, Nanos};

impl Engine<'_> {
    /// A decision is due: at once, or at the next multiple of the interval.
    pub(super) fn ask(&mut self, now: Nanos) {
        let at = match self.scenario.decisions {
            Decisions::Event => now,
            Decisions::Interval => {
                Nanos(now.0.div_ceil(self.scenario.interval.0).saturating_mul(self.scenario.interval.0))
            }
        };
        if self.decide_at.is_none_or(|decide_at| at < decide_at) {
            self.decide_at = Some(at);
            self.schedule(at, Event::Decide);
        }
    }

    /// Moves what the rates have moved since they were set.
    pub(super) fn advance(&mut self, now: Nanos, app: u32) {
        let progress = self.progress;
        let job = self.job(app);
        let seconds = now.since(job.rated).as_secs_f64();
        job.rated = now;
        let slowest = slowest(job);
        let mut done = 0.0;
        for (left, rate) in job.left_s.iter_mut().zip(&job.rates) {
            let rate = if progress == Progress::MinRate { slowest } else { *rate };
            let moved = (rate * seconds).min(*left);
            *left -= moved;
            done += moved;
            if *left < NOTHING_S {
                done += std::mem::take(left);
            }
        }
        self.counts.done_target_s += done;
    }

    pub(super) fn decide(&mut self, now: Nanos) -> Result<(), SchemeError> {
        self.count(now);
        let is_same = !self.is_changed && now < self.change_at;
        if self.in_io.is_empty() {
            self.counts.targets_asked = 0;
            if let Some(scheme) = &mut self.scheme {
                scheme.rest(now, &self.targets);
            }
            return Ok(());
        }
        if !(is_same && self.scheme.as_ref().is_some_and(|scheme| scheme.is_steady())) {
            self.allocate(now)?;
        }
        match self.scenario.decisions {
            Decisions::Interval => self.ask(now + Nanos(1)),
            Decisions::Event if self.change_at < Nanos::MAX => {
                self.decide_at = Some(self.change_at);
                self.schedule(self.change_at, Event::Decide);
            }
            Decisions::Event => {}
        }
        Ok(())
    }

    fn allocate(&mut self, now: Nanos) -> Result<(), SchemeError> {
        for app in self.in_io.iter().copied().collect::<Vec<u32>>() {
            self.advance(now, app);
            // Its end is at this very moment, and its event would come too late.
            if self.job(app).left_s.iter().all(|left| *left == 0.0) {
                self.end_io(now, app);
            }
        }
        let active: Vec<u32> = self.in_io.iter().copied().collect();
        let mut asked = vec![false; self.indices.len()];
        let apps = active.iter().map(|&app| self.describe(now, app, &mut asked)).collect();
        let problem = Problem::new(self.targets.clone(), apps).expect("applications by different names, with demands");
        let Some(scheme) = &mut self.scheme else { return Ok(()) };
        let allocation = scheme.allocate(now, &problem)?;
        let change_at = scheme.next_change().unwrap_or(Nanos::MAX);
        self.note_coupons(now);
        self.progress = allocation.progress();
        self.decision += 1;
        self.is_changed = false;
        self.change_at = change_at;
        self.counts.targets_asked = asked.iter().filter(|asked| **asked).count();
        for app in active {
            let application = &self.scenario.applications[app as usize];
            let job = self.jobs[app as usize].as_mut().expect("it is in I/O");
            let (run, indices) = (&application.runs[job.run], &self.indices);
            job.rates.fill(0.0);
            let mut rates = allocation.rates(&application.name).peekable();
            for (target, rate) in run.targets.iter().zip(&mut job.rates) {
                let index = indices[usize::from(*target)];
                if let Some((_, given)) = rates.next_if(|(at, _)| *at == index) {
                    *rate = given;
                }
            }
            let (next, end) = ends(job, self.progress);
            self.change_at = self.change_at.min(next);
            if end < Nanos::MAX {
                self.schedule(end, Event::EndIo { app, decision: self.decision });
            }
        }
        Ok(())
    }

    /// The application as schemes see it.
    fn describe(&self, now: Nanos, app: u32, asked: &mut [bool]) -> App {
        let application = &self.scenario.applications[app as usize];
        let job = self.jobs[app as usize].as_ref().expect("it is in I/O");
        let run = self.run_of(app, job.run);
        let volume_s = run.phases[job.phase].io.as_secs_f64();
        let rate = self.scenario.bandwidth.bytes_per_s() as f64;
        let bytes = |seconds: f64| Bytes((seconds * rate).ceil() as u64);
        let told = |seconds: f64| job.told.map(|wrong| Bytes(((seconds * rate * wrong).ceil() as u64).max(1)));
        let mut demands = Vec::with_capacity(run.targets.len());
        let mut left_total = 0.0;
        let mut left_most = 0.0f64;
        for (&target, &left) in run.targets.iter().zip(&job.left_s) {
            left_total += left;
            left_most = left_most.max(left);
            // A target that is done with this application is still one that it occupies for its phase.
            asked[usize::from(target)] = true;
            if left > 0.0 {
                demands.push(Demand { target: self.indices[usize::from(target)], remaining: told(left) });
            }
        }
        App {
            demands,
            weight: application.weight,
            nodes: application.nodes,
            runs: self.sums[app as usize].started,
            attained: bytes((volume_s * run.targets.len() as f64 - left_total).max(0.0)),
            // If it were served alone from now on.
            began: job.io_began,
            slowdown: (now.since(job.io_began).as_secs_f64() + left_most) / volume_s,
            ..App::new(application.name.clone(), [])
        }
    }

    /// Keeps what GIFT owed at most in the course of each day, and what it had issued and paid by its end.
    fn note_coupons(&mut self, now: Nanos) {
        let ledger = self.scheme.as_ref().and_then(|scheme| scheme.ledger());
        let Some(total) = ledger.map(|ledger| *ledger.total()) else { return };
        let day = now.0 / DAY.0;
        if self.days.last().is_none_or(|last| last.day < day) {
            self.days.push(GiftDay { day, ..GiftDay::default() });
        }
        if let Some(last) = self.days.last_mut() {
            last.issued_target_s = total.issued.targets() * self.scenario.interval.as_secs_f64();
            last.outstanding_node_hours_max = last.outstanding_node_hours_max.max(total.regret.node_hours());
            last.paid_node_hours = total.paid.node_hours();
        }
    }
}

fn slowest(job: &Job) -> f64 {
    let working = job.rates.iter().zip(&job.left_s).filter(|(_, left)| **left > 0.0);
    working.map(|(rate, _)| *rate).fold(f64::INFINITY, f64::min).min(1.0)
}

/// When the job is done at the next of its targets, and at all of them.
fn ends(job: &Job, progress: Progress) -> (Nanos, Nanos) {
    let slowest = slowest(job);
    let (mut first, mut last) = (Nanos::MAX, Nanos::ZERO);
    for (left, rate) in job.left_s.iter().zip(&job.rates).filter(|(left, _)| **left > 0.0) {
        let rate = if progress == Progress::MinRate { slowest } else { *rate };
        let end = if rate > 0.0 { job.rated + Nanos((left / rate * 1e9).ceil() as u64) } else { Nanos::MAX };
        first = first.min(end);
        last = last.max(end);
    }
    (first, last)
}
