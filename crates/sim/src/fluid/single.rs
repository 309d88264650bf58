//! Schemes that decide at each target by itself, at every change: what happens at one target concerns no other, so a change
//! costs as much as there are parts at its target, however many targets and applications there are.

use isonomia_allocation::{Clock, FairClock, FairFinishTarget, PartId, Progress, SchemeError, SchemeSpec};
use isonomia_units::Nanos;

/// A volume of less than this many seconds at full rate is a rounding error.
const NOTHING_S: f64 = 1e-9;

/// How a target divides itself among the parts of I/O phases that are there.
#[derive(Debug)]
pub(super) enum Discipline {
    /// By weight: processor sharing.
    Shared,
    /// The one with the least left, which it has to know.
    ShortestFirst,
    /// The one that came first.
    FirstCome,
    /// As fair sharing would finish them, one after the other.
    FairFinish(Box<FairFinishTarget<u32>>),
}

/// A target at work. Sizes are in seconds of the target.
#[derive(Debug)]
pub(super) struct Single {
    discipline: Discipline,
    /// In the order in which they came; by application under fair finish, as its rates are.
    parts: Vec<Part>,
    now: Nanos,
    /// Applications whose phase is not over and has a part here, done or not.
    holders: u32,
    /// Tells the event of the last decision from those before.
    decision: u64,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    app: u32,
    weight: f64,
    left_s: f64,
    rate: f64,
}

impl Discipline {
    /// How each target divides itself under `scheme`, if targets decide for themselves at each change.
    pub(super) fn of(scheme: &SchemeSpec) -> Result<Option<Self>, SchemeError> {
        Ok(Some(match *scheme {
            SchemeSpec::Pofs(Progress::Banked) => Self::Shared,
            SchemeSpec::FairFinish { guarantee, clock, .. } => Self::fair_finish(guarantee, clock)?,
            SchemeSpec::ShortestFirst => Self::ShortestFirst,
            SchemeSpec::FirstCome => Self::FirstCome,
            _ => return Ok(None),
        }))
    }

    /// Fair finish with this guarantee.
    fn fair_finish(guarantee: f64, clock: Clock) -> Result<Self, SchemeError> {
        let target = FairFinishTarget::new(guarantee, 1.0)?;
        Ok(Self::FairFinish(Box::new(match clock {
            Clock::Open => target,
            Clock::Accounts => target.with_accounts(),
            Clock::Closed | Clock::Replayed => target.with_closed_clock(),
        })))
    }
}

impl Single {
    pub(super) fn new(discipline: Discipline) -> Self {
        Self { discipline, parts: Vec::new(), now: Nanos::ZERO, holders: 0, decision: 0 }
    }

    /// Lets time pass; tells `done` whose part is done, and gives what was served.
    pub(super) fn advance(&mut self, now: Nanos, mut done: impl FnMut(u32)) -> f64 {
        let seconds = now.since(self.now).as_secs_f64();
        self.now = now;
        if let Discipline::FairFinish(target) = &mut self.discipline {
            target.advance(now);
        }
        let mut moved = 0.0;
        for part in &mut self.parts {
            debug_assert!(part.rate >= 0.0, "{part:?}");
            let step = (part.rate * seconds).min(part.left_s);
            part.left_s -= step;
            moved += step;
            if part.left_s < NOTHING_S {
                moved += std::mem::take(&mut part.left_s);
                if let Discipline::FairFinish(target) = &mut self.discipline {
                    target.leave(&part.app);
                }
                done(part.app);
            }
        }
        self.parts.retain(|part| part.left_s > 0.0);
        moved
    }

    /// A part comes now, of which `told_s` is told, under the name that the clock of a closed system gave it. Gives whether nobody had
    /// a part here.
    pub(super) fn come(
        &mut self,
        app: u32,
        weight: f64,
        volume_s: f64,
        told_s: Option<f64>,
        expected: Option<PartId>,
    ) -> bool {
        let part = Part { app, weight, left_s: volume_s, rate: 0.0 };
        match &mut self.discipline {
            Discipline::FairFinish(target) => {
                match expected {
                    Some(id) => target.come_expected(app, id, weight, told_s),
                    None => target.come(app, weight, told_s),
                }
                self.parts.insert(self.parts.partition_point(|part| part.app < app), part);
            }
            _ => self.parts.push(part),
        }
        self.holders += 1;
        self.holders == 1
    }

    /// The phase of an application that has a part here is over. Gives whether nobody else has one.
    pub(super) fn release(&mut self) -> bool {
        self.holders -= 1;
        self.holders == 0
    }

    /// Decides anew: the number of the decision, and until when it applies.
    pub(super) fn decide(&mut self) -> (u64, Nanos) {
        self.decision += 1;
        let mut change = Nanos::MAX;
        match &mut self.discipline {
            Discipline::Shared => {
                let weight: f64 = self.parts.iter().map(|part| part.weight).sum();
                self.parts.iter_mut().for_each(|part| part.rate = part.weight / weight);
            }
            Discipline::ShortestFirst => {
                let least =
                    |(a, x): &(usize, &Part), (b, y): &(usize, &Part)| x.left_s.total_cmp(&y.left_s).then(a.cmp(b));
                let first = self.parts.iter().enumerate().min_by(least).map(|(at, _)| at);
                self.serve_alone(first);
            }
            Discipline::FirstCome => self.serve_alone(Some(0)),
            Discipline::FairFinish(target) => {
                target.divide();
                self.parts.iter_mut().zip(target.rates()).for_each(|(part, (_, rate))| part.rate = rate);
                change = target.next_change().unwrap_or(Nanos::MAX);
            }
        }
        let working = self.parts.iter().filter(|part| part.rate > 0.0);
        let ends = working.map(|part| self.now + Nanos((part.left_s / part.rate * 1e9).ceil() as u64));
        (self.decision, ends.fold(change, Nanos::min))
    }

    /// The number of the last decision.
    pub(super) fn decision(&self) -> u64 {
        self.decision
    }

    fn serve_alone(&mut self, first: Option<usize>) {
        self.parts.iter_mut().enumerate().for_each(|(at, part)| part.rate = if Some(at) == first { 1.0 } else { 0.0 });
    }
}

impl AsMut<FairClock> for Single {
    fn as_mut(&mut self) -> &mut FairClock {
        match &mut self.discipline {
            Discipline::FairFinish(target) => (**target).as_mut(),
            _ => unreachable!("only targets under fair finish have a clock that is led"),
        }
    }
}
