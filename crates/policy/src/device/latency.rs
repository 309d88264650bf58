//! How many requests of others a device has in service while a latency class is active: as many as let the class meet its
//! target.
//!
//! To come first in the queue does not help while the device is full of what was begun before. So the latency of the class
//! is measured, from arrival to reply, and the *limit* of the others in service follows it:
//!
//! * **Too slow**: more than one request in a hundred, and two at least, took longer than the target. The limit is cut to a
//!   half, or in proportion if it is missed by more, down to one.
//! * **Fast**: hardly any took more than half of the target, and the limit kept others waiting. It grows by a quarter.
//!
//! Only what came within its job's share counts, and only while others were in service: what a job waits for its own
//! turn, or for a device that it has for itself, no limit of others makes shorter. If hardly anything else comes, the limit
//! is doubled. The limit applies while the class is
//! active, that is until [`ACTIVE_FOR`] after its last request, and is remembered for the next time. It begins with none.
//!
//! *A target that cannot be met.* Is a limit of one still too much, nobody else is begun for [`PROBE_MAX`] or
//! [`PROBE_SAMPLES`] requests of the class, to learn what the device takes alone. Of the limits that were
//! tried, then the largest that does about as well as the best ([`GAIN_MIN`]) is taken; and it is doubled as often as the
//! device is found to do less than [`KEPT_MIN`] of the work that it does without it. On a device that serves any number at
//! once no limit helps, and none is set. After a while, longer each time, all is tried anew from no limit on.
//!
//! *The price* is an estimate: the work that the device does, the class's included, in windows in which the limit kept
//! others waiting, against the last windows in which others waited and no limit kept them. Work is measured as the policy
//! charges it. If the mix of requests changes in between, the price is off by as much.
//!
//! Kyber (Linux, `block/kyber-iosched.c`) steers depths by latency histograms in the same way, for reads against writes;
//! PARDA (Gulati et al., FAST 2009) steers windows of whole hosts. No clock and no I/O here.

use isonomia_units::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// The class is active for so long after its last request: a person who looks at one thing after another.
pub(crate) const ACTIVE_FOR: Nanos = Nanos::from_secs(1);
/// Requests of the class before a limit is judged too slow, and before it is judged needlessly low.
const SLOW_SAMPLES: usize = 8;
/// See [`SLOW_SAMPLES`].
const FAST_SAMPLES: usize = 64;
/// After so many that show neither, counting begins anew.
const TRIAL_SAMPLES_MAX: usize = 256;
/// A limit is cut to this part at least.
const CUT_MAX: f64 = 0.125;
/// And to this part at most.
const CUT_MIN: f64 = 0.5;
/// A limit above this is none.
const LIMIT_MAX: usize = 1024;
/// Nobody else is begun for no longer than this and four times the target, to learn what the device takes alone.
const PROBE_MAX: Nanos = Nanos::from_millis(250);
/// And never longer than this.
const PROBE_LONGEST: Nanos = Nanos::from_secs(1);
/// And for no more requests of the class than this.
const PROBE_SAMPLES: usize = 16;
/// Fewer say nothing.
const PROBE_SAMPLES_MIN: usize = 4;
/// Between two attempts at a target that cannot be met, at first and at last.
const REST_MIN: Nanos = Nanos::from_secs(10);
/// See [`REST_MIN`].
const REST_MAX: Nanos = Nanos::from_secs(160);
/// Part of the work that a target that cannot be met must leave.
const KEPT_MIN: f64 = 0.5;
/// Latencies that differ by less are about the same.
const GAIN_MIN: f64 = 1.25;
/// Part of the ends of others' requests that may find none of them waiting in a window whose work counts.
const IDLE_MAX: f64 = 0.2;
/// A window of work lasts this long at least,
const WINDOW_MIN: Nanos = Nanos::from_millis(100);
/// until this many requests have ended,
const WINDOW_REQUESTS_MIN: u32 = 32;
/// and it says nothing if it lasted longer than this.
const WINDOW_MAX: Nanos = Nanos::from_secs(10);
/// Latencies that the report is made of: the last so many,
const RECENT_MAX: usize = 1024;
/// and no older ones than this.
const RECENT_FOR: Nanos = Nanos::from_secs(10);

/// What an operator hears of a latency class at one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyReport {
    /// The policy's target.
    pub target: Nanos,
    /// 99th percentile from arrival to the end of service, of the last requests that came within their job's share: at most
    /// 1024 of the last ten seconds. `None` without any.
    pub p99: Option<Nanos>,
    /// Requests of the class that were served.
    pub requests_total: u64,
    /// Those of them that had to wait for their job's turn because it was ahead of its share as far as the class allows.
    pub over_share_total: u64,
    /// Requests of others that may be in service now; `None` if as many as the target has.
    pub others_max: Option<usize>,
    /// Part of the target's work that the limit costs, 0 to 1; an estimate. `None` if there is nothing to compare.
    pub lost: Option<f64>,
    /// Why the target is given up for now.
    pub unreachable: Option<Unreachable>,
}

/// What keeps a target from being met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The longest latency seen while nobody else was in service; `None` if too few requests came to say.
    pub alone: Option<Nanos>,
    /// The median with one request of others in service at a time.
    pub beside_one: Nanos,
}

/// A request of the class, from its arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    at: Nanos,
    /// [`LatencyControl::begun`] then.
    begun: u64,
    is_beside_others: bool,
}

/// Finds the limit of others for the class of one device.
#[derive(Debug)]
pub(crate) struct LatencyControl {
    target: Nanos,
    /// `None` is as many as the device is given.
    limit: Option<usize>,
    state: State,
    trial: Trial,
    /// The median under each limit since the last attempt began; no limit is `usize::MAX`.
    tried: BTreeMap<usize, Nanos>,
    rest: Nanos,
    unreachable: Option<Unreachable>,
    /// Requests of the class that have arrived and not ended.
    busy: usize,
    /// When the last of them arrived or ended, if any did.
    last_at: Option<Nanos>,
    /// Requests of others in service.
    others: usize,
    /// Requests of others that were ever begun.
    begun: u64,
    meter: Meter,
    recent: VecDeque<(Nanos, Nanos)>,
    requests_total: u64,
    over_share_total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The limit follows the latency.
    Steering,
    /// Nobody else is begun until then.
    Probing(Nanos),
    /// The target cannot be met; the next attempt is then.
    Resting(Nanos),
}

/// What was seen since the limit was set.
#[derive(Debug, Default)]
struct Trial {
    /// From when on those that arrive count: since no more of the others are in service than the limit allows.
    since: Option<Nanos>,
    latencies: Vec<Nanos>,
    slow: usize,
    not_fast: usize,
    others_max: usize,
    /// Requests of the class that had to wait for their job's share.
    over_share: usize,
    /// Others had to wait because of the limit.
    has_held: bool,
    work: Nanos,
    ended: u32,
    idle: u32,
}

/// Measures the work done with a limit that keeps others waiting, and without.
#[derive(Debug, Default)]
struct Meter {
    began_at: Option<Nanos>,
    work: Nanos,
    ended: u32,
    idle: u32,
    held: u32,
    free_rate: Option<f64>,
    held_rate: Option<f64>,
}

impl LatencyControl {
    pub(crate) fn new(target: Nanos) -> Self {
        Self {
            target,
            limit: None,
            state: State::Steering,
            trial: Trial { since: Some(Nanos::ZERO), ..Trial::default() },
            tried: BTreeMap::new(),
            rest: REST_MIN,
            unreachable: None,
            busy: 0,
            last_at: None,
            others: 0,
            begun: 0,
            meter: Meter::default(),
            recent: VecDeque::new(),
            requests_total: 0,
            over_share_total: 0,
        }
    }

    /// A request of the class has come.
    pub(crate) fn arrived(&mut self, now: Nanos) -> Arrival {
        self.advance(now);
        self.busy += 1;
        self.last_at = Some(now);
        Arrival { at: now, begun: self.begun, is_beside_others: self.others > 0 }
    }

    /// A request of the class was served, which did `work`. It came within its job's share, or had to wait for that.
    pub(crate) fn completed(&mut self, now: Nanos, arrival: &Arrival, work: Nanos, is_within_share: bool) {
        self.advance(now);
        self.left(now);
        self.requests_total += 1;
        self.trial.work += work;
        self.meter.work += work;
        if !is_within_share {
            self.over_share_total += 1;
            self.trial.over_share += 1;
            if self.trial.over_share >= FAST_SAMPLES && self.trial.latencies.len() < SLOW_SAMPLES {
                // What waits for its share does not wait for the others in service.
                self.raise(now);
            }
            return;
        }
        let latency = now.since(arrival.at);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, latency));
        let is_alone = !arrival.is_beside_others && self.begun == arrival.begun;
        let counts = self.trial.since.is_some_and(|since| arrival.at >= since);
        if counts && is_alone == matches!(self.state, State::Probing(_)) {
            self.trial.latencies.push(latency);
            self.trial.slow += usize::from(latency > self.target);
            self.trial.not_fast += usize::from(latency.0 > self.target.0 / 2);
            self.judge(now);
        }
    }

    /// A request of the class is gone without having been served, or is in no hurry any more.
    pub(crate) fn left(&mut self, now: Nanos) {
        self.busy -= 1;
        self.last_at = Some(now);
    }

    /// A request of others goes into service.
    pub(crate) fn other_began(&mut self, now: Nanos) {
        self.advance(now);
        self.others += 1;
        self.begun += 1;
        self.trial.others_max = self.trial.others_max.max(self.others);
    }

    /// A request of others has ended, which did `work`; more of them wait if `is_backlogged`.
    pub(crate) fn other_ended(&mut self, now: Nanos, work: Nanos, is_backlogged: bool) {
        self.advance(now);
        let is_held = is_backlogged && self.others_max(now).is_some_and(|max| self.others >= max);
        self.trial.work += work;
        self.trial.ended += 1;
        self.trial.idle += u32::from(!is_backlogged);
        self.meter.ended(now, work, is_backlogged, is_held);
        if matches!(self.state, State::Resting(_)) && self.meter.lost().is_some_and(|lost| lost > 1.0 - KEPT_MIN) {
            // It costs more than it did when it was tried.
            self.meter.held_rate = None;
            self.raise(now);
        }
        self.other_left(now);
    }

    /// A request of others is not in service any more, and was not served.
    pub(crate) fn other_left(&mut self, now: Nanos) {
        self.others -= 1;
        if self.trial.since.is_none() && self.others <= self.allowed() {
            self.trial.since = Some(now);
            self.trial.work = Nanos::ZERO;
            (self.trial.ended, self.trial.idle) = (0, 0);
        }
    }

    /// Requests of others that may be in service now; `None` if as many as the device is given.
    pub(crate) fn others_max(&self, now: Nanos) -> Option<usize> {
        let is_active = self.busy > 0 || self.last_at.is_some_and(|last| now < last + ACTIVE_FOR);
        Some(self.allowed()).filter(|&max| is_active && max != usize::MAX)
    }

    /// Whether a request of others has to wait; if so, until when at the latest, unless something arrives or ends.
    pub(crate) fn hold(&mut self, now: Nanos) -> Option<Nanos> {
        self.advance(now);
        if self.others < self.others_max(now)? {
            return None;
        }
        self.trial.has_held = true;
        let idle_from = if self.busy > 0 { now } else { self.last_at? };
        let until = idle_from + ACTIVE_FOR;
        Some(if let State::Probing(end) = self.state { until.min(end) } else { until })
    }

    /// What an operator hears.
    pub(crate) fn report(&self, now: Nanos) -> LatencyReport {
        let mut recent: Vec<Nanos> =
            self.recent.iter().filter(|(at, _)| now.since(*at) <= RECENT_FOR).map(|(_, latency)| *latency).collect();
        recent.sort_unstable();
        let others_max = self.others_max(now);
        LatencyReport {
            target: self.target,
            p99: (!recent.is_empty()).then(|| recent[(recent.len() * 99).div_ceil(100) - 1]),
            requests_total: self.requests_total,
            over_share_total: self.over_share_total,
            others_max,
            lost: if others_max.is_none() { Some(0.0) } else { self.meter.lost() },
            unreachable: self.unreachable,
        }
    }

    /// The limit while the class is active.
    fn allowed(&self) -> usize {
        match self.state {
            State::Probing(_) => 0,
            _ => self.limit.unwrap_or(usize::MAX),
        }
    }

    fn advance(&mut self, now: Nanos) {
        match self.state {
            State::Probing(until) if now >= until => self.end_probe(now),
            State::Resting(until) if now >= until => {
                self.tried.clear();
                self.begin(now, State::Steering, None);
            }
            _ => {}
        }
    }

    /// Sets the limit, and begins to count anew.
    fn begin(&mut self, now: Nanos, state: State, limit: Option<usize>) {
        self.state = state;
        self.limit = limit;
        let since = (self.others <= self.allowed()).then_some(now);
        self.trial = Trial { since, others_max: self.others, ..Trial::default() };
    }

    /// Lets twice as many of the others be in service.
    fn raise(&mut self, now: Nanos) {
        if !matches!(self.state, State::Probing(_)) {
            self.begin(now, self.state, self.limit.map(|limit| 2 * limit).filter(|limit| *limit <= LIMIT_MAX));
        }
    }

    fn judge(&mut self, now: Nanos) {
        let samples = self.trial.latencies.len();
        let is_slow = samples >= SLOW_SAMPLES && self.trial.slow >= 2 + samples / 100;
        match self.state {
            State::Probing(_) if samples >= PROBE_SAMPLES => self.end_probe(now),
            State::Probing(_) => {}
            State::Steering if is_slow => self.cut(now),
            State::Steering if samples >= FAST_SAMPLES => {
                if self.trial.slow <= samples / 100 {
                    (self.unreachable, self.rest) = (None, REST_MIN);
                }
                if self.trial.not_fast > samples / 100 {
                    if samples >= TRIAL_SAMPLES_MAX {
                        self.begin(now, State::Steering, self.limit);
                    }
                } else {
                    let grown = self.limit.map(|limit| limit + (limit / 4).max(1)).filter(|limit| *limit <= LIMIT_MAX);
                    self.begin(now, State::Steering, if self.trial.has_held { grown } else { self.limit });
                }
            }
            State::Resting(_) if samples >= FAST_SAMPLES => {
                // Whatever it was has passed.
                let state = if self.trial.slow <= samples / 100 { State::Steering } else { self.state };
                self.begin(now, state, self.limit);
            }
            State::Steering | State::Resting(_) => {}
        }
    }

    fn cut(&mut self, now: Nanos) {
        let median = median(&mut self.trial.latencies);
        self.tried.insert(self.limit.unwrap_or(usize::MAX), median);
        if self.limit.is_none() && self.meter.free_rate.is_none() {
            self.meter.free_rate = self.trial.rate(now);
        }
        if self.limit == Some(1) {
            let beside_one = median;
            self.unreachable = Some(Unreachable { alone: None, beside_one });
            let until = now + (PROBE_MAX + Nanos(4 * self.target.0)).min(PROBE_LONGEST);
            return self.begin(now, State::Probing(until), self.limit);
        }
        let from = self.limit.unwrap_or(usize::MAX).min(self.trial.others_max).max(1);
        let part = (self.target.0 as f64 / median.0.max(1) as f64).clamp(CUT_MAX, CUT_MIN);
        self.begin(now, State::Steering, Some(((from as f64 * part) as usize).max(1)));
    }

    fn end_probe(&mut self, now: Nanos) {
        let alone = self.trial.latencies.iter().max().copied();
        if let Some(unreachable) = &mut self.unreachable {
            unreachable.alone = alone.filter(|_| self.trial.latencies.len() >= PROBE_SAMPLES_MIN);
        }
        let limit = self.settle_for_less();
        self.begin(now, State::Resting(now + self.rest), limit);
        self.rest = Nanos(2 * self.rest.0).min(REST_MAX);
    }

    /// The limit for a target that cannot be met, out of those that were tried: the largest that does about as well as the
    /// best. `None` if none does better than the largest, for then one that was not tried may do as well.
    fn settle_for_less(&self) -> Option<usize> {
        let least = self.tried.values().min()?;
        let is_as_good = |median: &Nanos| median.0 as f64 <= GAIN_MIN * least.0 as f64;
        let (limit, _) = self.tried.iter().rev().find(|(_, median)| is_as_good(median))?;
        let (largest, _) = self.tried.last_key_value()?;
        (limit < largest).then_some(*limit)
    }
}

impl Trial {
    /// Work per time, if others waited all the while.
    fn rate(&self, now: Nanos) -> Option<f64> {
        let lasted = now.since(self.since?);
        let is_idle = f64::from(self.idle) > IDLE_MAX * f64::from(self.ended);
        (lasted > Nanos::ZERO && self.ended > 0 && !is_idle).then(|| self.work.0 as f64 / lasted.0 as f64)
    }
}

impl Meter {
    /// Part of the work that the limit costs, if both were measured.
    fn lost(&self) -> Option<f64> {
        self.free_rate.zip(self.held_rate).map(|(free, held)| (1.0 - held / free).max(0.0))
    }

    fn ended(&mut self, now: Nanos, work: Nanos, is_backlogged: bool, is_held: bool) {
        let Some(began_at) = self.began_at else {
            // The time of this request was outside.
            *self = Self { began_at: Some(now), work: Nanos::ZERO, ended: 0, idle: 0, held: 0, ..*self };
            return;
        };
        self.work += work;
        self.ended += 1;
        self.idle += u32::from(!is_backlogged);
        self.held += u32::from(is_held);
        let lasted = now.since(began_at);
        if lasted < WINDOW_MIN || self.ended < WINDOW_REQUESTS_MIN && lasted <= WINDOW_MAX {
            return;
        }
        let rate = self.work.0 as f64 / lasted.0 as f64;
        let is_busy = f64::from(self.idle) <= IDLE_MAX * f64::from(self.ended) && lasted <= WINDOW_MAX;
        let known = match self.held {
            _ if !is_busy => None,
            0 => Some(&mut self.free_rate),
            held if 2 * held > self.ended => Some(&mut self.held_rate),
            _ => None,
        };
        if let Some(known) = known {
            *known = Some(known.map_or(rate, |before| before + (rate - before) / 4.0));
        }
        *self = Self { began_at: Some(now), work: Nanos::ZERO, ended: 0, idle: 0, held: 0, ..*self };
    }
}

fn median(latencies: &mut [Nanos]) -> Nanos {
    latencies.sort_unstable();
    latencies.get(latencies.len() / 2).copied().unwrap_or(Nanos::ZERO)
}
