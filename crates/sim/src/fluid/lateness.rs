//! Lateness against one's own fair clock: when each I/O phase would have ended, had its targets been shared fairly
//! among the same phases that came when they came.
//!
//! It is measured under every scheme, and tells what a scheme does to each phase; a comparison of two runs also has in it whom a
//! phase happened to meet. A target that runs ahead does so in the fair clock as well (POFS, banked).

use isonomia_allocation::{FairClock, PartId};
use isonomia_units::Nanos;
use std::collections::BTreeMap;

/// What is later by no more than this is so by rounding.
const ROUNDING: Nanos = Nanos::from_micros(1);

/// Sums over an application's phases that have ended in reality and in the fair clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FairTimes {
    pub(super) judged: u64,
    pub(super) late: u64,
    /// Of their times over those in the fair clock.
    pub(super) over_fair: f64,
    pub(super) over_fair_max: f64,
}

/// A phase that has not ended in both.
#[derive(Clone, Copy, Debug)]
struct Open {
    app: u32,
    began: Nanos,
    parts: usize,
    /// When the last of the parts that are done in the clock was.
    fair_end: Nanos,
    end: Option<Nanos>,
}

pub(super) struct Lateness {
    clocks: Vec<FairClock>,
    /// Whose part it is, by the phase's number.
    owners: BTreeMap<(u16, PartId), u64>,
    open: BTreeMap<u64, Open>,
    /// By application, the phase that it is in.
    current: Vec<u64>,
    begun: u64,
    times: Vec<FairTimes>,
}

impl Lateness {
    pub(super) fn new(targets: u16, applications: usize) -> Self {
        Self {
            clocks: (0..targets).map(|_| FairClock::new(1.0)).collect(),
            owners: BTreeMap::new(),
            open: BTreeMap::new(),
            current: vec![0; applications],
            begun: 0,
            times: vec![FairTimes::default(); applications],
        }
    }

    /// A phase begins, with so much to do at each of the targets, in seconds of one.
    pub(super) fn begin(&mut self, now: Nanos, app: u32, weight: f64, targets: &[u16], volume_s: f64) {
        self.begun += 1;
        self.current[app as usize] = self.begun;
        self.open.insert(self.begun, Open { app, began: now, parts: targets.len(), fair_end: now, end: None });
        for &target in targets {
            self.advance(now, target);
            let part = self.clocks[usize::from(target)].arrive(weight, volume_s);
            self.owners.insert((target, part), self.begun);
        }
    }

    /// The application's phase has ended.
    pub(super) fn end(&mut self, now: Nanos, app: u32) {
        let number = self.current[app as usize];
        if let Some(open) = self.open.get_mut(&number) {
            open.end = Some(now);
        }
        self.judge(number);
    }

    /// By application; what has not ended by `now` is left out.
    pub(super) fn finish(&mut self, now: Nanos) -> Vec<FairTimes> {
        (0..self.clocks.len() as u16).for_each(|target| self.advance(now, target));
        std::mem::take(&mut self.times)
    }

    fn advance(&mut self, now: Nanos, target: u16) {
        let mut done = Vec::new();
        let clock = &mut self.clocks[usize::from(target)];
        clock.advance(now, |part, at| done.push((part, at)));
        for (part, at) in done {
            self.clocks[usize::from(target)].release(part);
            let Some(number) = self.owners.remove(&(target, part)) else { continue };
            if let Some(open) = self.open.get_mut(&number) {
                open.parts -= 1;
                open.fair_end = open.fair_end.max(at);
            }
            self.judge(number);
        }
    }

    fn judge(&mut self, number: u64) {
        let Some(open) = self.open.get(&number).filter(|open| open.parts == 0) else { return };
        let Some(end) = open.end else { return };
        let over_fair = end.since(open.began).0 as f64 / open.fair_end.since(open.began).0.max(1) as f64;
        let times = &mut self.times[open.app as usize];
        times.judged += 1;
        times.late += u64::from(end > open.fair_end + ROUNDING);
        times.over_fair += over_fair;
        times.over_fair_max = times.over_fair_max.max(over_fair);
        self.open.remove(&number);
    }
}
