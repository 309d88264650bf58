//! How many requests a device has in service at once: as few as give it all but a little of what it can do.
//!
//! The rest of the queue belongs in the arbiter, where the policy decides: what the device has been given it serves in an
//! order of its own. Nobody says how parallel a device is, and it changes: a disk, flash with channels of its own, an
//! array, a parallel file system behind a network, somebody else on any of them. So the depth is found by trial. Windows of
//! time with the present depth and with another one, twice it, half, or three quarters, alternate; the deeper is taken if it
//! does more work, the shallower if it does about as much ([`Tolerance`]). Where neither is, the next trial waits, longer
//! each time, or comes after a second if the work done changes by itself, and at once if a job comes to share the device or is left alone. It begins with a small depth and a
//! quick search (`ramp`), which takes a round of requests for each doubling, and to which it goes back when a trial
//! finds that twice as many do much more.
//!
//! A trial says something only while requests wait for the shallower depth of the two, unless they may crowd (see below): a window in
//! which the device was not given what it could take does not count.
//!
//! **Work is counted at the prices of the device** (`tally`). Another depth is another mix: the deeper the device's
//! own queue, the more of it belongs to whoever brings more or larger requests. Counted in bytes or operations such a depth
//! would do more, though the device does as much as before, only for somebody else; and each trial would lead deeper.
//!
//! **Sharing is worth something.** A device that is given exactly as many as it has channels idles from when a request ends
//! until the next one is there. One more hides that, but waits in the device, where no policy decides, and so does the only
//! request of a job of one process: with twice as many as there are channels it takes twice as long, and the job has half
//! of what is due to it. So while several jobs share the device, more work is given up for a shallower depth
//! ([`SHARED`]) than for a job alone ([`ALONE`]).
//!
//! Even so a job of few processes may have less than the policy says, where half of the depth would do less work by more than that. If the policy
//! divides the device's time, and a job has clearly more of it at the shallower depth ([`TAKEN`]), up to a fifth of the work is given up for that
//! ([`FAIRER`]): see `docs/decisions/0037`. Where the parts of the jobs stay the same the policy decides already, and nothing is given up.
//!
//! Where nobody waits the depth may still be too large: five processes at a disk are all in service, the disk serves them
//! one after the other, and a job of four has four times what a job of one has, whatever the policy says. So if requests of several
//! jobs are in service and none waits, half as many as there are is tried. A device that is parallel does half the work
//! then, which a pair of windows shows, and the next such trial waits longer; one that is not does as much, and from then
//! on the others wait in the arbiter. One job alone has nobody to share with, and is left alone, unless its requests may crowd
//! ([`DepthControl::set_may_be_crowded`]). A device that divides its bandwidth among all that it has is done with all of them at about the
//! same time. Then all programs compute while it idles, and all wait for it while the processors idle. If it has fewer at once, some are done sooner.
//!
//! While more than a slot is kept free for somebody who is waited for, nothing is learnt ([`DepthControl::pause`]): the device
//! then does what that one asks for.
//!
//! Only requests are counted. No request moves more than a client's slot has room for, 256 KiB, so that bounds the bytes in service, too.
//!
//! Kyber (Linux, `block/kyber-iosched.c`) sets depths by target latencies, which somebody has to know; Vegas and BBR (TCP)
//! by the least round trip, which says little of a disk whose seeks differ and which orders what it is given. The throughput
//! is what users have bought. No clock and no I/O here.

mod ramp;
mod tally;

use isonomia_units::{JobId, Nanos};
use ramp::Ramp;
use tally::{GainMin, JOBS, Tally};

/// What another depth has to do, as a part of the work that the present one does.
#[derive(Clone, Copy, Debug)]
struct Tolerance {
    /// A deeper one.
    gain_min: f64,
    /// A shallower one. The product of both is more than one, so that no two depths are each better than the other.
    loss_max: f64,
}

/// While one job has the device.
const ALONE: Tolerance = Tolerance { gain_min: 1.05, loss_max: 0.98 };
/// While several do.
const SHARED: Tolerance = Tolerance { gain_min: 1.1, loss_max: 0.93 };
/// While a policy divides time between several, for a depth that gives one of them clearly more than a deeper one. What a job
/// gains there need not be given to it by keeping the whole device free for it (`queueing::room`), which costs more.
const FAIRER: Tolerance = Tolerance { gain_min: 1.3, loss_max: 0.8 };
/// What the one has to gain by the shallower depth for that to be taken, in each pair of windows and in all of them …
const TAKEN: GainMin = GainMin { ratio: 1.15, of_part: 1.1, deviations: 3.0 };
/// … and to be kept, in all pairs but one: less, or two depths would each be given up for the other by chance.
const KEPT: GainMin = GainMin { ratio: 1.05, of_part: 1.03, deviations: 1.0 };
/// After one window with less than this part of the work a shallower one will hardly be such a depth.
const POSSIBLE_MIN: f64 = 0.5;
/// So much more of one window than of another is no accident: no further ones are needed. Of half and twice the depth …
const GAIN_CLEAR: f64 = 1.5;
/// … and of three quarters.
const GAIN_CLEAR_NEAR: f64 = 1.2;
/// After one window of a deeper one with less than this part of the gain that it has to bring, further ones will hardly bring it.
const VAIN_MAX: f64 = 0.25;
/// Windows of either depth in one trial.
const PAIRS: u32 = 3;
/// A window lasts this long at least.
const WINDOW_MIN: Nanos = Nanos::from_millis(20);
/// And until this many requests have ended, and [`ROUNDS_MIN`] times as many as are in service.
const REQUESTS_MIN: usize = 32;
/// Requests that are begun together end together: so many times that the ends of a window matter little.
const ROUNDS_MIN: usize = 8;
/// Part of the requests of a window that may find nobody waiting.
const IDLE_MAX: f64 = 0.2;
/// So many windows in a row with more of them end a trial, or begin one of fewer than there are. A single one may be the
/// processor's fault.
const IDLE_WINDOWS: u32 = 4;
/// Fewer requests than this at once are no crowd.
const CROWD_MIN: usize = 8;
/// After a longer pause the device was not just waiting for a crowd that computes: the window begins anew.
const CROWD_PAUSE_MIN: Nanos = Nanos::from_millis(100);
/// Between two trials that changed nothing, at first and at last.
const REST_MIN: Nanos = Nanos::from_secs(1);
/// See [`REST_MIN`].
const REST_MAX: Nanos = Nanos::from_secs(16);
/// Work done that differs this much from what it was is reason to try again.
const CHANGE_MIN: f64 = 1.25;
/// Windows in which it has to.
const CHANGED_WINDOWS: u32 = 3;

/// Finds the depth of one device.
#[derive(Clone, Debug)]
pub struct DepthControl {
    depth_max: usize,
    /// What was found so far.
    depth: usize,
    /// What applies now: `depth`, or what is tried.
    limit: usize,
    /// Requests that end before the window begins: those that the device was given under another limit.
    settling: usize,
    window: Option<Window>,
    state: State,
    rest: Nanos,
    /// Part of what deeper depths do that `depth` does, as far as it was seen: several depths in a row, each of which does
    /// about as much as the one before, must not do much less together.
    kept: f64,
    idle_windows: u32,
    /// Whether several jobs had requests in service in the latest window.
    is_shared: bool,
    /// Whether the policy gives each of several jobs a part of the device's time.
    divides_time: bool,
    /// Whether fewer may do more work even where nobody waits.
    may_be_crowded: bool,
    /// When a request last ended, and whether others waited then.
    last: (Nanos, bool),
    /// Since when more than a slot of the device is kept free.
    paused_at: Option<Nanos>,
}

/// A request that the device has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose it was.
    pub job: JobId,
    /// What it is worth, whatever the device makes of it.
    pub work: Nanos,
    /// What it was attributed of the device's time, if that is known.
    pub attributed: Option<Nanos>,
    /// How many were in service, itself among them.
    pub in_service: usize,
    /// Whether others wait because enough are in service.
    pub is_backlogged: bool,
}

#[derive(Clone, Debug)]
struct Window {
    began_at: Nanos,
    work: Nanos,
    done: Tally,
    requests: usize,
    idle: usize,
    /// The most that were in service at once.
    most: usize,
    /// The job of the request before, and whether there were several.
    job: JobId,
    is_shared: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// The quick search.
    Ramping(Ramp),
    /// Windows of `depth` and of `other` in the order a b b a a b, so that a drift counts for neither.
    Trying(Box<Trial>),
    /// Until then, or [`REST_MIN`] if the rate differs from what it was; at once when jobs come to share the device, or one is left
    /// alone. The first window tells a rate that is not known.
    Resting { since: Nanos, until: Nanos, rate: Option<f64>, was_shared: bool, changed: u32 },
}

#[derive(Clone, Debug)]
struct Trial {
    other: usize,
    windows: u32,
    /// Of the present depth, and of the other one.
    done: Tally,
    other_done: Tally,
    /// The first window of a pair.
    first: Option<Tally>,
    /// By job: in so many pairs of windows the shallower of the two depths gave it more.
    gaining: [u32; JOBS],
    /// Windows in which several jobs had requests in service.
    shared: u32,
    /// Of nominal work.
    rate: f64,
    other_rate: f64,
    /// What is tried if this is not better.
    then: Then,
}

/// What a trial that changes nothing is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Half the depth.
    Half,
    /// This one, not far below, if the device is shared.
    Near(usize),
    /// Nothing.
    Rest,
}

impl DepthControl {
    /// Begins with `depth`; never more than `depth_max`, never less than 1.
    pub fn new(depth: usize, depth_max: usize) -> Self {
        let depth_max = depth_max.max(1);
        let depth = depth.clamp(1, depth_max);
        Self {
            depth_max,
            depth,
            limit: depth,
            settling: 0,
            window: None,
            state: State::Ramping(Ramp::up(depth, None)),
            rest: REST_MIN,
            kept: 1.0,
            idle_windows: 0,
            is_shared: false,
            divides_time: false,
            may_be_crowded: false,
            last: (Nanos::ZERO, true),
            paused_at: None,
        }
    }

    /// Whether the policy gives each of several jobs a part of the device's time: then a job's part is worth some of the work. False at
    /// first.
    pub fn set_divides_time(&mut self, divides_time: bool) {
        self.divides_time = divides_time;
    }

    /// See [`Self::set_divides_time`].
    pub fn divides_time(&self) -> bool {
        self.divides_time
    }

    /// Whether fewer requests may do more work even where nobody waits and one job is alone: then fewer are tried. False at first.
    pub fn set_may_be_crowded(&mut self, may_be_crowded: bool) {
        if may_be_crowded == self.may_be_crowded {
            return;
        }
        self.may_be_crowded = may_be_crowded;
        // What was found, and what a trial has seen, is of other requests.
        self.rest = REST_MIN;
        match &mut self.state {
            State::Trying(_) => self.rest_now(self.last.0, None),
            State::Resting { since, until, .. } => *until = (*since + REST_MIN).min(*until),
            State::Ramping(_) => {}
        }
    }

    /// See [`Self::set_may_be_crowded`].
    pub fn may_be_crowded(&self) -> bool {
        self.may_be_crowded
    }

    /// Requests that the device may be given at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What was found so far: [`Self::limit`] apart from trials.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The device had nothing to do until now, when it is given a request of `job`.
    pub fn begun(&mut self, now: Nanos, job: JobId) {
        let (last_at, was_backlogged) = self.last;
        // Nobody wanted anything for a while: that says nothing of the device. All programs of a crowd may compute at the same time: a short pause belongs to
        // its round.
        let pause_min = if self.may_be_crowded { CROWD_PAUSE_MIN } else { self.window_min() };
        let was_idle = !was_backlogged && now.since(last_at) > pause_min;
        if self.settling == 0 && (was_idle || self.window.is_none()) {
            self.window = Some(Window::new(now, job));
        }
    }

    /// From now on the policy keeps more than a slot free for somebody who is waited for: what the device does until [`Self::resume`] says
    /// nothing of its depth.
    pub fn pause(&mut self, now: Nanos) {
        self.paused_at.get_or_insert(now);
    }

    /// The device is given a request again.
    pub fn resume(&mut self, now: Nanos) {
        if let Some(paused_at) = self.paused_at.take()
            && let Some(window) = &mut self.window
        {
            window.began_at += now.since(paused_at.max(window.began_at));
        }
    }

    /// The device has done a request.
    pub fn completed(&mut self, now: Nanos, done: Completion) {
        let Completion { job, work, attributed, in_service, is_backlogged } = done;
        self.last = (now, is_backlogged);
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        if self.paused_at.is_some() {
            return;
        }
        let Some(window) = &mut self.window else {
            // The time of this request was outside.
            self.window = Some(Window::new(now, job));
            return;
        };
        window.work += work;
        window.done.add(job, work, attributed.unwrap_or(work));
        window.requests += 1;
        window.idle += usize::from(!is_backlogged);
        window.most = window.most.max(in_service);
        window.is_shared |= job != std::mem::replace(&mut window.job, job);
        let at_once = window.most.min(self.limit);
        let requests_min = match &self.state {
            State::Ramping(ramp) => ramp.requests_min(at_once),
            State::Trying(_) | State::Resting { .. } => REQUESTS_MIN.max(ROUNDS_MIN * at_once),
        };
        let is_short = window.requests < requests_min;
        let lasted = now.since(window.began_at);
        if is_short || lasted < self.window_min() {
            return;
        }
        let Some(mut window) = self.window.take() else { return };
        window.done.lasted = lasted;
        // Where the deeper of two leaves nobody waiting, it does all there is to do. The shallower of a crowd, if there were so many, may do more.
        let is_crowded = self.may_be_crowded && window.most >= self.limit;
        let is_counted = matches!(&self.state, State::Trying(trial)
            if is_crowded || self.limit == trial.other.max(self.depth));
        let is_idle = !is_counted && window.idle as f64 > window.requests as f64 * IDLE_MAX;
        self.idle_windows = if is_idle { self.idle_windows + 1 } else { 0 };
        self.is_shared = window.is_shared;
        if is_idle && let State::Ramping(ramp) = &mut self.state {
            ramp.nobody_waited(&window.done, self.limit);
            self.depth = ramp.found();
        }
        if !is_idle {
            self.learn(now, &window);
        } else if self.idle_windows >= IDLE_WINDOWS {
            self.idle_windows = 0;
            self.nobody_waits(now, &window);
        }
    }

    fn window_min(&self) -> Nanos {
        if matches!(self.state, State::Ramping(_)) { ramp::WINDOW_MIN } else { WINDOW_MIN }
    }

    /// Nothing can be learnt at the present depth, which is more than are in service.
    fn nobody_waits(&mut self, now: Nanos, window: &Window) {
        let most = window.most;
        let is_crowd = self.may_be_crowded && most >= CROWD_MIN;
        match &self.state {
            State::Ramping(_) if self.is_shared && most > 1 => {
                self.state = State::Ramping(Ramp::down(self.depth, most, window.done.clone()));
                self.set_limit(most.div_ceil(2));
            }
            // Not by the quick search: its windows are one or two rounds, and programs that were just started do not come together yet.
            State::Ramping(_) if is_crowd => self.begin_trial(now, most.div_ceil(2), Then::Rest),
            State::Ramping(_) => {}
            State::Trying(_) => self.rest_now(now, None),
            State::Resting { until, was_shared, .. } => {
                let is_due = now >= *until || self.is_shared && !was_shared;
                if is_due && (self.is_shared && most > 1 || is_crowd) {
                    self.begin_trial(now, most.div_ceil(2), Then::Near(near(most)));
                }
            }
        }
    }

    fn set_limit(&mut self, limit: usize) {
        if limit != self.limit {
            self.settling = limit.max(self.limit);
            self.limit = limit;
        }
    }

    /// The next window begins now: what was begun before ends beside what is begun then, and as many as there are in a round.
    fn set_limit_at_once(&mut self, now: Nanos, limit: usize, job: JobId) {
        self.limit = limit;
        self.window = Some(Window::new(now, job));
    }

    /// Of the quick search, in which twice the depth did `gain` times the work, if that was seen, half of the `most` that were in
    /// service did clearly less, and the depth does about `kept` of what was done where it began to go down.
    fn end_ramp(&mut self, now: Nanos, most: usize, gain: Option<f64>, kept: f64) {
        let of_twice = gain.map_or(1.0, |gain| (1.0 / gain).min(1.0));
        // Where work may be given up for somebody's part, what was given up on the way counts.
        let kept = if self.divides_time { kept } else { 1.0 };
        if of_twice < self.tolerance().loss_max {
            (self.depth, self.kept) = (self.deeper(), (kept / of_twice).min(1.0));
            return self.try_half(now);
        }
        self.kept = of_twice.min(kept);
        if self.is_shared {
            self.begin_trial(now, near(most), Then::Rest);
        } else {
            self.rest_now(now, None);
        }
    }

    fn tolerance(&self) -> Tolerance {
        if self.is_shared { SHARED } else { ALONE }
    }

    fn learn(&mut self, now: Nanos, window: &Window) {
        let measured = window.work.0 as f64 / window.done.lasted.0.max(1) as f64;
        let gain_min = self.tolerance().gain_min;
        match &mut self.state {
            State::Ramping(ramp) => {
                let tried = ramp.learn(&window.done, self.limit, self.depth_max);
                let (most, gain, kept) = (ramp.most(), ramp.gain(), ramp.kept());
                self.depth = ramp.found();
                match tried {
                    Some(deeper) if deeper > self.limit => self.set_limit_at_once(now, deeper, window.job),
                    Some(shallower) => self.set_limit(shallower),
                    None => self.end_ramp(now, most, gain, kept),
                }
            }
            State::Resting { since, until, rate, was_shared, changed } => {
                let rate = rate.get_or_insert(measured);
                let is_newly_shared = window.is_shared && !*was_shared;
                // Whoever is alone has no use for what was given up for somebody else.
                let is_newly_alone = !window.is_shared && *was_shared && self.kept < ALONE.loss_max;
                let is_at_once = is_newly_shared || is_newly_alone;
                let is_other = measured > *rate * CHANGE_MIN || measured * CHANGE_MIN < *rate || is_at_once;
                *changed = if is_other { *changed + 1 } else { 0 };
                if *changed >= CHANGED_WINDOWS {
                    self.rest = REST_MIN;
                    *until = if is_at_once { now } else { *since + REST_MIN }.min(*until);
                }
                if now < *until {
                    return;
                }
                if is_newly_shared && self.depth > 1 || self.depth == self.depth_max {
                    self.try_half(now);
                } else {
                    self.begin_trial(now, self.deeper(), Then::Half);
                }
            }
            State::Trying(trial) => {
                let is_other = self.limit == trial.other;
                trial.windows += 1;
                trial.shared += u32::from(window.is_shared);
                trial.pair(is_other == (trial.other > self.depth), &window.done);
                if is_other {
                    trial.other_rate += measured;
                    trial.other_done.merge(&window.done);
                } else {
                    trial.rate += measured;
                    trial.done.merge(&window.done);
                }
                if trial.windows % 2 == 1 {
                    let limit = if is_other { self.depth } else { trial.other };
                    return self.set_limit(limit);
                }
                let ratio = trial.done.ratio(&trial.other_done);
                let is_near = 2 * trial.other > self.depth && trial.other < 2 * self.depth;
                let clear = if is_near { GAIN_CLEAR_NEAR } else { GAIN_CLEAR };
                let is_vain = trial.other > self.depth && ratio < 1.0 + (gain_min - 1.0) * VAIN_MAX;
                // Whether somebody has more of the shallower one is not clear so soon.
                let is_possible = trial.other > self.depth || self.kept * ratio >= POSSIBLE_MIN;
                let is_open = self.divides_time && is_possible && trial.gaining.iter().any(|pairs| *pairs > 0);
                let is_far = !is_open && !(1.0 / clear..=clear).contains(&ratio);
                let is_clear = trial.windows == 2 && (is_vain || is_far);
                if is_clear || trial.windows == 2 * PAIRS {
                    self.decide(now, ratio, window.job);
                }
            }
        }
    }

    /// Of a trial in which the other depth did `ratio` times the work.
    fn decide(&mut self, now: Nanos, ratio: f64, job: JobId) {
        let rested = State::Resting { since: now, until: now, rate: None, was_shared: self.is_shared, changed: 0 };
        let State::Trying(trial) = std::mem::replace(&mut self.state, rested) else { return };
        // A window in which all but one of the jobs found their bytes in memory says nothing of who is there.
        self.is_shared = 2 * trial.shared > trial.windows;
        let is_deeper = trial.other > self.depth;
        let is_fairer = self.divides_time && self.is_shared && trial.is_shallower_fairer(is_deeper);
        let Tolerance { gain_min, loss_max } = if is_fairer { FAIRER } else { self.tolerance() };
        let pairs = f64::from(trial.windows / 2);
        if if is_deeper { ratio >= gain_min } else { self.kept * ratio >= loss_max } {
            self.kept = if is_deeper { 1.0 } else { (self.kept * ratio).min(1.0) };
            self.depth = trial.other;
            self.rest = REST_MIN;
            if !is_deeper {
                self.try_half(now);
            } else if ratio >= GAIN_CLEAR && self.depth < self.depth_max {
                let tried = self.deeper();
                self.state = State::Ramping(Ramp::up(self.depth, Some(trial.other_done)));
                self.set_limit_at_once(now, tried, job);
            } else if self.depth < self.depth_max {
                self.begin_trial(now, self.deeper(), Then::Near(near(self.depth)));
            } else {
                self.rest_now(now, Some(trial.other_rate / pairs));
            }
            return;
        }
        if is_deeper {
            // What was given up before for a job's part is given up still.
            let before = if is_fairer { self.kept } else { 1.0 };
            self.kept = (1.0 / ratio).min(before);
        }
        match trial.then {
            Then::Half => self.try_half(now),
            Then::Near(other) if self.is_shared && other < self.depth => self.begin_trial(now, other, Then::Rest),
            Then::Near(_) | Then::Rest => self.rest_now(now, Some(trial.rate / pairs)),
        }
    }

    fn rest_now(&mut self, now: Nanos, rate: Option<f64>) {
        self.set_limit(self.depth);
        self.state =
            State::Resting { since: now, until: now + self.rest, rate, was_shared: self.is_shared, changed: 0 };
        self.rest = Nanos(self.rest.0.saturating_mul(2)).min(REST_MAX);
    }

    fn try_half(&mut self, now: Nanos) {
        self.begin_trial(now, self.depth.div_ceil(2), Then::Near(near(self.depth)));
    }

    fn begin_trial(&mut self, now: Nanos, other: usize, then: Then) {
        if other == self.depth {
            return self.rest_now(now, None);
        }
        self.set_limit(self.depth);
        self.state = State::Trying(Box::new(Trial {
            other,
            windows: 0,
            done: Tally::default(),
            other_done: Tally::default(),
            first: None,
            gaining: [0; JOBS],
            shared: 0,
            rate: 0.0,
            other_rate: 0.0,
            then,
        }));
    }

    fn deeper(&self) -> usize {
        (2 * self.depth).min(self.depth_max)
    }
}

impl Trial {
    /// A window of the deeper or of the shallower of the two depths has ended, in which this was `done`.
    fn pair(&mut self, is_deeper: bool, done: &Tally) {
        let Some(first) = self.first.take() else {
            self.first = Some(done.clone());
            return;
        };
        let gains = if is_deeper { done.gains(&first) } else { first.gains(done) };
        for (gaining, gain) in self.gaining.iter_mut().zip(gains) {
            *gaining += u32::from(gain.is_one());
        }
    }

    /// Whether a job has clearly more at the shallower depth, where the policy decides more and the device less.
    fn is_shallower_fairer(&self, is_deeper: bool) -> bool {
        let (shallower, deeper) =
            if is_deeper { (&self.done, &self.other_done) } else { (&self.other_done, &self.done) };
        let pairs = self.windows / 2;
        let (least, pairs_min) = if is_deeper { (KEPT, pairs.saturating_sub(1).max(1)) } else { (TAKEN, pairs) };
        let gains = deeper.gains(shallower);
        gains.iter().zip(self.gaining).any(|(gain, gaining)| gaining >= pairs_min && gain.is(&least))
    }
}

impl Window {
    fn new(now: Nanos, job: JobId) -> Self {
        let done = Tally::default();
        Self { began_at: now, work: Nanos::ZERO, done, requests: 0, idle: 0, most: 0, job, is_shared: false }
    }
}

/// Three quarters of a depth, rounded up.
fn near(depth: usize) -> usize {
    depth - depth / 4
}

#[cfg(test)]
mod tests;
