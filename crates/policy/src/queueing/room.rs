//! What is kept free of a device for a job that is waited for: a slot, or all of it.
//!
//! A free slot is all that a job needs where requests do not hinder each other, as in flash of many channels or a parallel file
//! system. On a disk, and where processors are few, a request beside seven others takes several times as long as alone; a job of one
//! process then cannot have its part of the time, however promptly it is served. It falls behind until it is owed the most that a
//! job is owed ([`Tuning::lag_max`](crate::Tuning::lag_max)), and what it misses beyond that is lost.
//!
//! So a job that is behind by half of that has the device to itself, while it thinks and while its requests are in service, until it is behind
//! by a quarter. The time of its requests is charged to it, so that they take no more than its part: which is why only policies that
//! divide time do so. What it thinks is paid from the budget for holds. But two things have to hold, or the others lose what nobody gains:
//!
//! * the job does [`SPEEDUP_MIN`] times as much in the same time when it has the device to itself, and
//! * the device does [`WORK_MIN`] of the work then, counted by what requests cost on a device of which nothing is known.
//!
//! Both are found out by trial, at times when the job is so far behind that no policy makes it wait. A trial in vain
//! takes [`REQUESTS_MIN`] requests and [`SETTLING`], and the next one comes after a hundred times as long, so that looking takes one
//! percent of the time, but for the first trials. If it was nearly worth it, the next one comes after 25 times as long, and the one
//! after that, if it was so again, after 50: where a job finds more and more of its files in memory, it is worth it a moment later. O(1).
//!
//! BFQ (Linux, `block/bfq-iosched.c`, `bfq_better_to_idle`) idles a disk for one process, too, by what kind of device it
//! is and what weights there are.

use isonomia_units::Nanos;

/// See the module.
const SPEEDUP_MIN: f64 = 4.0 / 3.0;
/// See the module. Of two jobs with half of the time each, both together do 0.62 of the work then, if the one thinks little.
const WORK_MIN: f64 = 0.25;
/// What was found to be worth it once is given up for less than this part of both: what a job does differs from moment to moment.
const STILL: f64 = 2.0 / 3.0;
/// A trial that has found this part of both was nearly worth it.
const CLOSE: f64 = 0.8;
/// So many requests tell what a job does in a time …
const REQUESTS_MIN: u64 = 32;
/// … after the first ones with the device to itself, beside which what was in service before may still be.
const SETTLING: u64 = 8;
/// A trial that has not seen so many by then was in vain.
const TRIAL_MAX: Nanos = Nanos::from_secs(1);
/// After a trial in vain the next one waits so many times as long as [`REQUESTS_MIN`] requests took, …
const REST: u64 = 124;
/// … a quarter of that after one that was nearly worth it, and half of it after the second of those in a row.
const CLOSE_MAX: u32 = 2;
/// Of so many requests those that come later count more and more.
const REQUESTS_MAX: u64 = 4096;

/// What one job needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    needs_all: bool,
    /// A trial has found that it is worth it.
    is_found: bool,
    /// What the job does while a slot is kept for it, …
    with_slot: Pace,
    /// … and while the device is.
    with_all: Pace,
    /// Since when it is far behind, what had been dispatched of all jobs by then, …
    since: Option<(Nanos, Nanos)>,
    /// … how many requests of its own since it came last, and whether the device was kept free for it meanwhile.
    requests: u64,
    was_kept: bool,
    /// Requests of it since the trial began.
    settled: u64,
    /// The next trial comes no sooner.
    rested_at: Nanos,
    /// Trials in a row that were nearly worth it, [`CLOSE_MAX`] at most.
    close: u32,
}

/// What a job did in a time in which no policy made it wait.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    time_ns: u64,
    requests: u64,
    /// Of all jobs.
    work_ns: u64,
}

impl Room {
    /// Whether the whole device is kept free for the job, not only a slot.
    pub(crate) fn needs_all(&self) -> bool {
        self.needs_all
    }

    /// The job has come after a time in which it wanted nothing, which says nothing of what it can do.
    pub(crate) fn begins(&mut self) {
        self.since = None;
    }

    /// A request of the job went into service.
    pub(crate) fn dispatched(&mut self) {
        self.requests += 1;
    }

    /// All of the device is kept free for the job.
    pub(crate) fn kept(&mut self) {
        self.was_kept = true;
    }

    /// The job, which had nothing queued, has come, and is behind by so much of the `most` that it is owed; so much `work` was
    /// dispatched of all jobs since the arbiter was made.
    pub(crate) fn arrived(&mut self, now: Nanos, behind: u128, most: u128, work: Nanos) {
        let (requests, was_kept) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.was_kept));
        if let Some((since, before)) = self.since.filter(|_| was_kept == self.needs_all) {
            let span = Pace { time_ns: now.since(since).0, requests, work_ns: work.since(before).0 };
            if !self.needs_all {
                self.with_slot.add(&span);
            } else if self.settled >= SETTLING {
                self.with_all.add(&span);
            }
        }
        if self.needs_all {
            self.settled += requests;
        }
        let is_far_behind = behind > most / 4;
        self.since = is_far_behind.then_some((now, work));
        let gains = self.gains();
        if self.needs_all {
            let is_in_vain = gains.map_or(self.with_all.time_ns > TRIAL_MAX.0, |gains| !gains);
            if is_in_vain {
                let is_close = self.is_worth(CLOSE) == Some(true);
                let rest = if is_close { REST >> (CLOSE_MAX - self.close) } else { REST };
                self.close = if is_close { (self.close + 1).min(CLOSE_MAX) } else { 0 };
                self.rested_at = now + Nanos(self.with_all.trial_ns() * rest);
                (self.with_slot, self.with_all, self.settled) = Default::default();
            }
            self.is_found = gains == Some(true);
            self.close = if self.is_found { 0 } else { self.close };
            self.needs_all = is_far_behind && !is_in_vain;
        } else {
            self.needs_all = behind > most / 2 && now >= self.rested_at && self.with_slot.is_known();
        }
    }

    /// Whether it is worth it; `None` while that is not known.
    fn gains(&self) -> Option<bool> {
        self.is_worth(if self.is_found { STILL } else { 1.0 })
    }

    /// Whether this part of what makes it worth it is there.
    fn is_worth(&self, part: f64) -> Option<bool> {
        let (slot, all) = (&self.with_slot, &self.with_all);
        (slot.is_known() && all.is_known()).then(|| {
            let of_time = slot.time_ns as f64 / all.time_ns.max(1) as f64;
            let speedup = all.requests as f64 / slot.requests as f64 * of_time;
            let work = all.work_ns as f64 / slot.work_ns.max(1) as f64 * of_time;
            speedup >= part * SPEEDUP_MIN && work >= part * WORK_MIN
        })
    }
}

impl Pace {
    fn add(&mut self, more: &Self) {
        self.time_ns += more.time_ns;
        self.requests += more.requests;
        self.work_ns += more.work_ns;
        if self.requests > REQUESTS_MAX {
            for sum in [&mut self.time_ns, &mut self.requests, &mut self.work_ns] {
                *sum /= 2;
            }
        }
    }

    /// How long a trial takes.
    fn trial_ns(&self) -> u64 {
        let trial = if self.is_known() { self.time_ns / self.requests * REQUESTS_MIN } else { self.time_ns };
        trial.min(TRIAL_MAX.0)
    }

    fn is_known(&self) -> bool {
        self.requests >= REQUESTS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u128 = 1_000;

    /// A request of the job, and work that all jobs do in a microsecond.
    #[derive(Clone, Copy)]
    struct Speed {
        request_us: u64,
        work: u64,
    }

    /// A job that is behind by all that it is owed, and comes again and again; the part of the time in which it had all of the device.
    fn part_with_all(room: &mut Room, slot: Speed, all: Speed) -> f64 {
        let (mut now, mut work, mut with_all) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        while now < Nanos::from_secs(10) {
            let speed = if room.needs_all() { all } else { slot };
            let took = Nanos::from_micros(speed.request_us);
            room.dispatched();
            if room.needs_all() {
                room.kept();
            }
            (now, work) = (now + took, work + Nanos(speed.request_us * speed.work));
            with_all += if room.needs_all() { took } else { Nanos::ZERO };
            room.arrived(now, MOST, MOST, work);
        }
        with_all.0 as f64 / now.0 as f64
    }

    const SLOT: Speed = Speed { request_us: 100, work: 100 };

    #[test]
    fn who_does_more_alone_has_all_of_the_device_until_it_is_hardly_behind() {
        let mut room = Room::default();
        assert!(part_with_all(&mut room, SLOT, Speed { request_us: 50, work: 50 }) > 0.99);
        let mut at = |behind| {
            room.begins();
            room.arrived(Nanos::from_secs(11), behind, MOST, Nanos::from_secs(1));
            room.needs_all()
        };
        assert_eq!([1_000, 251, 250, 500, 501, 0].map(&mut at), [true, true, false, false, true, false]);
    }

    #[test]
    fn looking_takes_a_hundredth_of_the_time_where_it_is_in_vain() {
        for all in [Speed { request_us: 95, work: 95 }, Speed { request_us: 50, work: 19 }] {
            let part = part_with_all(&mut Room::default(), SLOT, all);
            assert!(part > 0.005 && part < 0.0105, "{part}");
        }
        // A request takes so long that a trial ends sooner.
        let slow = Speed { request_us: 100_000, work: 100 };
        let part = part_with_all(&mut Room::default(), SLOT, slow);
        assert!(part < 0.2, "{part}");
    }

    /// What was nearly worth it may be worth it a moment later.
    #[test]
    fn a_trial_that_was_nearly_worth_it_is_soon_followed_by_others() {
        let rests = |request_us: fn(usize) -> u64| {
            let (mut room, mut trials_us) = (Room::default(), Vec::new());
            let (mut now, mut work, mut had_all) = (Nanos::ZERO, Nanos::ZERO, false);
            while trials_us.len() < 6 {
                if room.needs_all() && !had_all {
                    trials_us.push(now.0 / 1_000);
                }
                let vain = Speed { request_us: request_us(trials_us.len()), work: 40 };
                let speed = if room.needs_all() { vain } else { SLOT };
                had_all = room.needs_all();
                room.dispatched();
                if had_all {
                    room.kept();
                }
                (now, work) = (now + Nanos::from_micros(speed.request_us), work + Nanos(speed.request_us * speed.work));
                room.arrived(now, MOST, MOST, work);
            }
            let rest = |(trial, pair): (usize, &[u64])| {
                (pair[1] - pair[0]) as f64 / (request_us(trial + 1) * REQUESTS_MIN) as f64
            };
            trials_us.windows(2).enumerate().map(rest).collect::<Vec<_>>()
        };
        // Beside the rest it is the trial's own requests, and one of either kind.
        let near =
            |rests: &[f64], wanted: &[f64]| rests.iter().zip(wanted).all(|(rest, wanted)| (rest - wanted).abs() < 3.0);
        let close = rests(|_| 80);
        assert!(near(&close, &[31.0, 62.0, 124.0, 124.0, 124.0]), "{close:?}");
        let clear = rests(|_| 100);
        assert!(near(&clear, &[124.0; 5]), "{clear:?}");
        let either = rests(|trial| if trial == 3 { 100 } else { 80 });
        assert!(near(&either, &[31.0, 62.0, 124.0, 31.0, 62.0]), "{either:?}");
    }

    /// A minute without I/O is no pace, and what the device did while it was not kept free is none with all of it.
    #[test]
    fn only_times_count_in_which_the_job_could_go_on() {
        let mut room = Room::default();
        room.arrived(Nanos::ZERO, MOST, MOST, Nanos::ZERO);
        room.dispatched();
        room.begins();
        room.arrived(Nanos::from_secs(60), MOST, MOST, Nanos::ZERO);
        assert_eq!((room.with_slot.requests, room.with_slot.time_ns), (0, 0));
        room.needs_all = true;
        room.dispatched();
        room.arrived(Nanos::from_secs(61), MOST, MOST, Nanos::ZERO);
        assert_eq!((room.with_slot.requests, room.with_all.requests), (0, 0));
    }

    #[test]
    fn what_was_worth_it_is_given_up_only_when_it_is_clearly_not() {
        let mut room = Room::default();
        assert!(part_with_all(&mut room, SLOT, Speed { request_us: 70, work: 35 }) > 0.99);
        assert!(
            part_with_all(&mut room, SLOT, Speed { request_us: 90, work: 25 }) > 0.99,
            "a little less is still worth it"
        );
        assert!(part_with_all(&mut room, SLOT, Speed { request_us: 130, work: 35 }) < 0.1);
        // Who changes all the time has it tried no more often.
        let part = part_with_all(&mut room, SLOT, Speed { request_us: 130, work: 35 });
        assert!(part < 0.015, "{part}");
    }
}
