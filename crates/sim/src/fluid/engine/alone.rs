//! Targets that decide for themselves.

use super::{Engine, Event};
use isonomia_allocation::{FIRST_TOLD_S, PartId};
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
            self.advance_target(now, target);
        }
        let expected = self.expect(now, app, weight, targets, told_s);
        for (at, &target) in targets.iter().enumerate() {
            let single = &mut self.singles[usize::from(target)];
            let is_new = single.come(app, weight, volume_s, told_s, expected.as_ref().map(|ids| ids[at]));
            self.counts.targets_asked += usize::from(is_new);
            self.decide_at(now, target);
        }
    }

    /// What the phase's parts are called in the clock of the closed system.
    fn expect(
        &mut self,
        now: Nanos,
        app: u32,
        weight: f64,
        targets: &[u16],
        told_s: Option<f64>,
    ) -> Option<Vec<PartId>> {
        let think = self.think(now, app)?;
        let closed = self.closed.as_mut()?;
        let told_s = told_s.unwrap_or(FIRST_TOLD_S);
        let parts: Vec<_> = targets.iter().map(|&target| (u32::from(target), weight, told_s)).collect();
        Some(closed.begin(now, app, think, &parts, &mut self.singles))
    }

    /// Lets the clock of the closed system pass; where that changes something, the target decides anew.
    pub(super) fn pass_clock(&mut self, now: Nanos) {
        loop {
            let Some(closed) = &mut self.closed else { return };
            closed.advance(now, &mut self.singles);
            let changed = closed.take_changed();
            if changed.is_empty() {
                return;
            }
            for target in changed {
                self.advance_target(now, target as u16);
                self.decide_at(now, target as u16);
            }
        }
    }

    /// Sees to it that the clock of the closed system passes when something happens in it.
    pub(super) fn schedule_clock(&mut self, now: Nanos) {
        self.pass_clock(now);
        let next = self.closed.as_ref().and_then(|closed| closed.next_change());
        if let Some(next) = next.filter(|next| *next < self.clock_at) {
            self.clock_at = next;
            self.schedule(next, Event::Clock);
        }
    }

    /// Lets time pass at a target that decides for itself.
    pub(super) fn advance_target(&mut self, now: Nanos, target: u16) {
        if let Some(closed) = &mut self.closed {
            closed.advance_target(now, u32::from(target), &mut self.singles);
        }
        let mut done = Vec::new();
        self.counts.done_target_s += self.singles[usize::from(target)].advance(now, |app| done.push(app));
        if let Some(closed) = &mut self.closed {
            closed.settle(now, u32::from(target), &mut self.singles);
        }
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

    pub(super) fn decide_at(&mut self, now: Nanos, target: u16) {
        self.decision += 1;
        let (decision, until) = self.singles[usize::from(target)].decide();
        if let Some(closed) = &mut self.closed {
            closed.settle(now, u32::from(target), &mut self.singles);
        }
        if until < Nanos::MAX {
            self.schedule(until, Event::Change { target, decision });
        }
    }
}
