//! Targets that decide for themselves.

use super::{Engine, Event};
use isonomia_units::Nanos;

impl Engine<'_> {
    /// A phase begins at targets that decide for themselves.
    pub(super) fn come(&mut self, now: Nanos, app: u32, targets: &[u16], volume_s: f64, told: Option<f64>) {
        self.count(now);
        let weight = self.scenario.applications[app as usize].weight;
        // In whole bytes, as a program would tell it.
        let rate = self.scenario.bandwidth.bytes_per_s() as f64;
        let told_s = told.map(|wrong| (volume_s * wrong * rate).ceil().max(1.0) / rate);
        for &target in targets {
            self.turn(now, target);
            let is_new = self.singles[usize::from(target)].come(app, weight, volume_s, told_s);
            self.counts.targets_asked += usize::from(is_new);
            self.decide_at(target);
        }
    }

    /// Lets time pass at a target that decides for itself.
    pub(super) fn turn(&mut self, now: Nanos, target: u16) {
        let mut done = Vec::new();
        self.counts.done_target_s += self.singles[usize::from(target)].advance(now, |app| done.push(app));
        for app in done {
            let job = self.job(app);
            job.parts -= 1;
            if job.parts > 0 {
                continue;
            }
            self.count(now);
            let run = self.job(app).run;
            for &target in &self.run_of(app, run).targets {
                let is_left = self.singles[usize::from(target)].release();
                self.counts.targets_asked -= usize::from(is_left);
            }
            self.end_io(now, app);
        }
    }

    pub(super) fn decide_at(&mut self, target: u16) {
        self.decision += 1;
        let (decision, until) = self.singles[usize::from(target)].decide();
        if until < Nanos::MAX {
            self.schedule(until, Event::Turn { target, decision });
        }
    }
}
