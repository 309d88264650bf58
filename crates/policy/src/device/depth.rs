//! How many requests a device has in service at once: as few as give it all but a little of what it can do.
//!
//! The rest of the queue belongs in the arbiter, where the policy holds: what the device has been given it serves in an
//! order of its own. Nobody says how parallel a device is, and it changes: a disk, flash with channels of its own, an
//! array, a parallel file system behind a network, somebody else on any of them. So the depth is found by trial. Windows of
//! time with the present depth and with another one, twice it or half, alternate; the deeper is taken if it does
//! [`GAIN_MIN`] more work, the shallower if it does as much within [`LOSS_MAX`]. Where neither is, the next trial waits,
//! longer each time, unless the work done changes by itself.
//!
//! A trial says something only while requests wait for the shallower depth of the two: a window in which the device was
//! not given what it could take does not count. Work is measured as the policy charges it.
//!
//! Where nobody waits the depth may still be too large: five processes at a disk are all in service, the disk serves them
//! in turn, and a job of four has four times what a job of one has, whatever the policy says. So if requests of several
//! jobs are in service and none waits, half as many as there are is tried. A device that is parallel does half the work
//! then, which a pair of windows shows, and the next such trial waits longer; one that is not does as much, and from then
//! on the others wait in the arbiter. One job alone has nobody to share with, and is left alone.
//!
//! Kyber (Linux, `block/kyber-iosched.c`) sets depths by target latencies, which somebody has to know; Vegas and BBR (TCP)
//! by the least round trip, which says little of a disk whose seeks differ and which orders what it is given. The throughput
//! is what users have bought. No clock and no I/O here.

use isonomia_units::{JobId, Nanos};

/// Twice the depth is worth it from this much more work.
const GAIN_MIN: f64 = 1.05;
/// Half the depth does from this much of the work.
const LOSS_MAX: f64 = 0.98;
/// So much more of one window than of another is no accident: no further ones are needed.
const GAIN_CLEAR: f64 = 1.5;
/// Windows of either depth in one trial.
const PAIRS: u32 = 3;
/// A window lasts this long at least.
const WINDOW_MIN: Nanos = Nanos::from_millis(20);
/// And until this many requests have ended, and [`ROUNDS_MIN`] times as many as the depth is.
const REQUESTS_MIN: usize = 32;
/// Requests that are begun together end together: so many times that the ends of a window matter little.
const ROUNDS_MIN: usize = 8;
/// Part of the requests of a window that may find nobody waiting.
const IDLE_MAX: f64 = 0.2;
/// So many windows in a row with more of them end a trial, or begin one of fewer than there are. A single one may be the
/// processor's fault.
const IDLE_WINDOWS: u32 = 4;
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
    /// What holds now: `depth`, or what is tried.
    limit: usize,
    /// Requests that end before the window begins: those that the device was given under another limit.
    settling: usize,
    window: Option<Window>,
    state: State,
    rest: Nanos,
    idle_windows: u32,
    /// When a request last ended, and whether others waited then.
    last: (Nanos, bool),
}

/// A request that the device has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose it was.
    pub job: JobId,
    /// What it is worth.
    pub work: Nanos,
    /// How many were in service, itself among them.
    pub in_service: usize,
    /// Whether others wait because enough are in service.
    pub is_backlogged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began_at: Nanos,
    work: Nanos,
    requests: usize,
    idle: usize,
    /// The most that were in service at once.
    most: usize,
    /// The job of the request before, and whether there were several.
    job: JobId,
    is_shared: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Windows of `depth` and of `other` in the order a b b a a b, so that a drift counts for neither.
    Trying { other: usize, windows: u32, rate: f64, other_rate: f64, is_second: bool },
    /// Until then, unless the rate differs from what it was.
    Resting { until: Nanos, rate: f64, changed: u32 },
}

impl DepthControl {
    /// Begins with `depth`; never more than `depth_max`, never less than 1.
    pub fn new(depth: usize, depth_max: usize) -> Self {
        let depth_max = depth_max.max(1);
        let depth = depth.clamp(1, depth_max);
        let state = State::Resting { until: Nanos::ZERO, rate: 0.0, changed: 0 };
        Self {
            depth_max,
            depth,
            limit: depth,
            settling: depth,
            window: None,
            state,
            rest: REST_MIN,
            idle_windows: 0,
            last: (Nanos::ZERO, true),
        }
    }

    /// Requests that the device may be given at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What was found so far: [`Self::limit`] apart from trials.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The device has done a request.
    pub fn completed(&mut self, now: Nanos, done: Completion) {
        let Completion { job, work, in_service, is_backlogged } = done;
        let (last_at, was_backlogged) = std::mem::replace(&mut self.last, (now, is_backlogged));
        if !was_backlogged && now.since(last_at) > WINDOW_MIN {
            // Nobody wanted anything for a while: that says nothing of the device.
            self.window = None;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        let limit = self.limit;
        let Some(window) = &mut self.window else {
            // The time of this request was outside.
            let (work, most) = (Nanos::ZERO, 0);
            self.window = Some(Window { began_at: now, work, requests: 0, idle: 0, most, job, is_shared: false });
            return;
        };
        window.work += work;
        window.requests += 1;
        window.idle += usize::from(!is_backlogged);
        window.most = window.most.max(in_service);
        window.is_shared |= job != std::mem::replace(&mut window.job, job);
        let lasted = now.since(window.began_at);
        if lasted < WINDOW_MIN || window.requests < REQUESTS_MIN.max(ROUNDS_MIN * limit) {
            return;
        }
        // Where the deeper of two leaves nobody waiting, it does all there is to do.
        let is_deeper = matches!(self.state, State::Trying { other, .. } if limit == other.max(self.depth));
        let is_idle = !is_deeper && window.idle as f64 > window.requests as f64 * IDLE_MAX;
        let rate = window.work.0 as f64 / lasted.0 as f64;
        let fewer = Some(window.most.div_ceil(2)).filter(|fewer| window.is_shared && *fewer < window.most);
        self.window = None;
        self.idle_windows = if is_idle { self.idle_windows + 1 } else { 0 };
        if !is_idle {
            self.learn(now, rate);
        } else if self.idle_windows >= IDLE_WINDOWS {
            self.idle_windows = 0;
            self.nobody_waits(now, fewer);
        }
    }

    /// Nothing can be learnt at the present depth. `fewer` is half of what is in service, if several jobs share that.
    fn nobody_waits(&mut self, now: Nanos, fewer: Option<usize>) {
        match (self.state, fewer) {
            (State::Trying { .. }, _) => {
                self.set_limit(self.depth);
                self.state = State::Resting { until: now, rate: 0.0, changed: 0 };
            }
            (State::Resting { until, .. }, Some(fewer)) if now >= until => self.begin_trial(now, fewer),
            (State::Resting { .. }, _) => {}
        }
    }

    fn set_limit(&mut self, limit: usize) {
        if limit != self.limit {
            self.settling = limit.max(self.limit);
            self.limit = limit;
        }
    }

    fn learn(&mut self, now: Nanos, measured: f64) {
        match &mut self.state {
            State::Resting { until, rate, changed } => {
                let is_other = measured > *rate * CHANGE_MIN || measured * CHANGE_MIN < *rate;
                *changed = if is_other { *changed + 1 } else { 0 };
                if *changed >= CHANGED_WINDOWS {
                    self.rest = REST_MIN;
                } else if now < *until {
                    return;
                }
                let other = if self.depth < self.depth_max { self.deeper() } else { self.shallower() };
                self.begin_trial(now, other);
            }
            State::Trying { other, windows, rate, other_rate, .. } => {
                let is_other = self.limit == *other;
                *windows += 1;
                *(if is_other { &mut *other_rate } else { &mut *rate }) += measured;
                let (other, windows, ratio) = (*other, *windows, *other_rate / *rate);
                if windows == 2 * PAIRS || windows == 2 && !(1.0 / GAIN_CLEAR..=GAIN_CLEAR).contains(&ratio) {
                    let rate = *rate / f64::from(windows / 2);
                    self.decide(now, other, rate, ratio);
                } else if windows % 2 == 1 {
                    self.set_limit(if is_other { self.depth } else { other });
                }
            }
        }
    }

    /// Of `other`, which does `ratio` times the work that `depth` does at `rate`.
    fn decide(&mut self, now: Nanos, other: usize, rate: f64, ratio: f64) {
        let State::Trying { is_second, .. } = self.state else { return };
        let is_better = if other > self.depth { ratio >= GAIN_MIN } else { ratio >= LOSS_MAX };
        if is_better {
            let is_deeper = other > self.depth;
            self.depth = other;
            self.rest = REST_MIN;
            let next = if is_deeper { self.deeper() } else { self.shallower() };
            return if next == other { self.rest_now(now, rate * ratio) } else { self.begin_trial(now, next) };
        }
        let shallower = self.shallower();
        if other > self.depth && !is_second && shallower != self.depth {
            self.begin_trial(now, shallower);
            if let State::Trying { is_second, .. } = &mut self.state {
                *is_second = true;
            }
        } else {
            self.rest_now(now, rate);
        }
    }

    fn rest_now(&mut self, now: Nanos, rate: f64) {
        self.set_limit(self.depth);
        self.state = State::Resting { until: now + self.rest, rate, changed: 0 };
        self.rest = Nanos(self.rest.0.saturating_mul(2)).min(REST_MAX);
    }

    fn begin_trial(&mut self, now: Nanos, other: usize) {
        if other == self.depth {
            return self.rest_now(now, 0.0);
        }
        self.set_limit(self.depth);
        self.state = State::Trying { other, windows: 0, rate: 0.0, other_rate: 0.0, is_second: false };
    }

    fn deeper(&self) -> usize {
        (2 * self.depth).min(self.depth_max)
    }

    fn shallower(&self) -> usize {
        self.depth.div_ceil(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// How long a request takes that begins while so many are in service, itself among them.
    type Service = fn(in_service: usize, random: f64) -> f64;

    /// A closed loop: `clients` that always have a request each, at a device that serves `channels` at once.
    struct Run {
        control: DepthControl,
        now: Nanos,
        done: u64,
        random: Pcg64,
        is_shared: bool,
    }

    /// A request of the only job.
    fn completion(is_backlogged: bool) -> Completion {
        Completion { job: JobId(0), work: Nanos::from_micros(2), in_service: 1, is_backlogged }
    }

    impl Run {
        fn new(depth: usize) -> Self {
            let random = Pcg64::seed_from_u64(1);
            Self { control: DepthControl::new(depth, 128), now: Nanos::ZERO, done: 0, random, is_shared: false }
        }

        /// Of two jobs.
        fn shared(depth: usize) -> Self {
            Self { is_shared: true, ..Self::new(depth) }
        }

        /// Requests per second over `seconds`.
        fn go(&mut self, seconds: u64, clients: usize, channels: usize, service_ms: Service) -> f64 {
            self.go_for(Nanos::from_secs(seconds), clients, channels, service_ms)
        }

        fn go_for(&mut self, time: Nanos, clients: usize, channels: usize, service_ms: Service) -> f64 {
            let end = self.now + time;
            let began = self.now;
            let before = self.done;
            let mut in_device: BinaryHeap<Reverse<Nanos>> = BinaryHeap::new();
            let mut free: BinaryHeap<Reverse<Nanos>> = (0..channels).map(|_| Reverse(self.now)).collect();
            while self.now < end {
                while in_device.len() < self.control.limit().min(clients) {
                    let Reverse(channel) = free.pop().unwrap();
                    let takes = service_ms(in_device.len() + 1, self.random.random::<f64>());
                    let done = channel.max(self.now) + Nanos((takes * 1e6) as u64);
                    free.push(Reverse(done));
                    in_device.push(Reverse(done));
                }
                self.now = in_device.pop().unwrap().0;
                self.done += 1;
                let is_backlogged = clients > in_device.len() + 1;
                let in_service = in_device.len() + 1;
                // Of five requests one is the first job's.
                let job = JobId(u32::from(self.is_shared && !self.done.is_multiple_of(5)));
                let work = Nanos::from_micros(2);
                self.control.completed(self.now, Completion { job, work, in_service, is_backlogged });
            }
            (self.done - before) as f64 / self.now.since(began).as_secs_f64()
        }
    }

    /// Like those of flash: a tenth of them take three times as long.
    fn jittery(mean_ms: f64, random: f64) -> f64 {
        mean_ms * if random < 0.1 { 2.5 } else { 0.5 + random / 1.5 }
    }

    #[test]
    fn an_array_of_any_latency_gets_as_many_as_there_are() {
        let mut run = Run::new(8);
        let first = run.go(3, 200, 1000, |_, random| 4.5 + random);
        assert!(run.control.depth() == 128, "{}", run.control.depth());
        let rate = run.go(60, 200, 1000, |_, random| 4.5 + random);
        assert!(rate > 0.97 * 128.0 / 0.005, "{rate}");
        assert!(first > 0.6 * rate, "and soon: {first} of {rate}");
    }

    #[test]
    fn as_many_as_come_are_let_in() {
        let mut run = Run::new(8);
        run.go(3, 16, 1000, |_, random| 4.5 + random);
        assert_eq!(run.control.depth(), 16);
        let rate = run.go(60, 16, 1000, |_, random| 4.5 + random);
        assert!(rate > 0.97 * 16.0 / 0.005, "{rate}");
    }

    #[test]
    fn channels_are_kept_busy_and_no_more() {
        for channels in [1, 2, 4, 8, 32] {
            let mut run = Run::new(8);
            run.go(20, 256, channels, |_, random| jittery(1.0, random));
            let rate = run.go(60, 256, channels, |_, random| jittery(1.0, random));
            let depth = run.control.depth();
            assert!(depth >= channels && depth <= 4 * channels, "{channels} channels: {depth}");
            let most = channels as f64 * 1000.0 / mean_of(|random| jittery(1.0, random));
            assert!(rate > 0.93 * most, "{channels} channels: {rate} of {most}");
        }
    }

    fn mean_of(of: impl Fn(f64) -> f64) -> f64 {
        (0..10_000).map(|i| of(f64::from(i) / 10_000.0)).sum::<f64>() / 10_000.0
    }

    #[test]
    fn a_disk_that_orders_its_queue_is_given_one() {
        // One arm, whose seeks are shorter the more it can choose from.
        let seek: Service = |in_service, _| 2.0 + 8.0 / (in_service as f64).sqrt();
        let mut run = Run::new(8);
        run.go(60, 200, 1, seek);
        let rate = run.go(60, 200, 1, seek);
        let most = 1000.0 / seek(128, 0.0);
        assert!(rate > 0.85 * most, "{rate} of {most}, depth {}", run.control.depth());
    }

    #[test]
    fn a_device_that_changes_is_followed() {
        let mut run = Run::new(8);
        run.go(30, 256, 64, |_, _| 1.0);
        assert!((64..=128).contains(&run.control.depth()), "{}", run.control.depth());
        // An array that has lost most of its members, and has them back.
        run.go(60, 256, 4, |_, _| 1.0);
        assert!((4..=16).contains(&run.control.depth()), "{}", run.control.depth());
        run.go(60, 256, 64, |_, _| 1.0);
        assert!((64..=128).contains(&run.control.depth()), "{}", run.control.depth());
    }

    #[test]
    fn where_nobody_waits_nothing_changes() {
        let mut run = Run::new(8);
        run.go(20, 4, 1000, |_, _| 1.0);
        assert_eq!((run.control.depth(), run.control.limit()), (8, 8));
    }

    #[test]
    fn jobs_that_share_a_disk_wait_where_the_policy_holds() {
        // Five processes of two jobs: none would ever wait at the depth that there is at first.
        for service in [(|_, _| 1.0) as Service, |_, random| jittery(1.0, random)] {
            let mut run = Run::shared(8);
            run.go(4, 5, 1, service);
            assert!(run.control.depth() <= 2, "{}", run.control.depth());
        }
    }

    #[test]
    fn jobs_that_share_a_parallel_device_lose_little_by_trials() {
        for (clients, channels) in [(5, 1000), (16, 1000), (8, 8)] {
            let mut run = Run::shared(16);
            let rate = run.go(60, clients, channels, |_, random| 4.5 + random);
            let most = clients as f64 / 0.005;
            assert!(rate > 0.97 * most, "{clients} clients: {rate} of {most}");
            assert!(run.control.depth() >= clients, "{}", run.control.depth());
        }
    }

    #[test]
    fn who_comes_later_to_a_parallel_device_is_let_in() {
        let mut run = Run::shared(8);
        run.go(20, 5, 1000, |_, random| 4.5 + random);
        run.go(3, 64, 1000, |_, random| 4.5 + random);
        let rate = run.go(20, 64, 1000, |_, random| 4.5 + random);
        assert!(rate > 0.95 * 64.0 / 0.005, "{rate}");
    }

    #[test]
    fn pauses_of_the_programs_do_not_lead_astray() {
        let mut run = Run::new(8);
        for _ in 0..400 {
            run.go_for(Nanos::from_millis(170), 256, 32, |_, random| jittery(1.0, random));
            for _ in 0..32 {
                run.control.completed(run.now, completion(false));
            }
            run.now += Nanos::from_secs(10);
        }
        assert!((32..=128).contains(&run.control.depth()), "{}", run.control.depth());
    }

    #[test]
    fn pauses_of_the_device_do_not_lead_astray() {
        // Garbage is collected: every hundredth request takes 20 ms.
        let flash: Service = |_, random| if random < 0.01 { 20.0 } else { 0.2 };
        let mut run = Run::new(8);
        run.go(20, 256, 16, flash);
        let rate = run.go(60, 256, 16, flash);
        let most = 16.0 * 1000.0 / mean_of(|random| flash(0, random));
        assert!(rate > 0.85 * most, "{rate} of {most}, depth {}", run.control.depth());
    }

    #[test]
    fn the_range_is_kept() {
        for (depth, max) in [(0, 0), (1, 1), (200, 3)] {
            let mut control = DepthControl::new(depth, max);
            for i in 0..100_000 {
                control.completed(Nanos::from_micros(i * 50), completion(true));
                assert!((1..=max.max(1)).contains(&control.limit()));
            }
        }
    }
}
