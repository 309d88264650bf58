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
//! Both are compared at times when the job is so far behind that no policy makes it wait, and of what the device has served: memory serves some
//! requests of any job, now many and then none, and whether it does says nothing of the device.
//!
//! *What was found is tried anew, again and again*, by going the other way for [`REQUESTS_MIN`] requests: what jobs do changes, and with what is
//! kept free also what the others have in service and how many the device is given at once, so that a pace of some time ago, or of the moments
//! in between, says little. The first try comes once it is known what a slot gives. After one with the same result as before the next comes
//! [`REST`] times as long later as this one took, so that looking takes a hundredth of the time; after one with another result sooner,
//! [`REST_CHANGED`] times as long. O(1).
//!
//! Under a policy of strict shares ([`PolicySpec::is_strict`](crate::PolicySpec::is_strict)) nothing is tried: who is behind has the device.
//!
//! BFQ (Linux, `block/bfq-iosched.c`, `bfq_better_to_idle`) idles a disk for one process, too, by what kind of device it
//! is and what weights there are.

use isonomia_units::Nanos;

/// See the module.
const SPEEDUP_MIN: f64 = 4.0 / 3.0;
/// See the module. Of two jobs with half of the time each, both together do 0.56 of the work then, if the one thinks little.
const WORK_MIN: f64 = 0.125;
/// What was found to be worth it is given up for less than this part of both.
const STILL: f64 = 0.85;
/// So many requests tell what a job does in a time, …
const REQUESTS_MIN: u64 = 32;
/// … after the first ones with the device to itself, beside which what was in service before may still be, …
const SETTLING_ALL: u64 = 8;
/// … or without, until as many are in service, and as the device is given as many, as without any job that has it to itself.
const SETTLING_SLOT: u64 = 32;
/// A try ends after so long, and the first ones are those of the first half of it, …
const TRY_MAX: Nanos = Nanos::from_secs(1);
/// … and if there were fewer of the others, nothing is known.
const REQUESTS_FEW: u64 = 8;
/// More requests than this between two times at which nothing of the job was queued are those of many processes, which wait for each other.
const AT_ONCE_MAX: u64 = 8;
/// See the module.
const REST: u64 = 128;
/// See the module.
const REST_CHANGED: u64 = 32;
/// Of so many requests those that come later count more and more.
const REQUESTS_MAX: u64 = 512;

/// What one job needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    needs_all: bool,
    /// What was found last: it is worth it.
    is_found: bool,
    /// The other way is tried.
    is_trying: bool,
    /// What the job does while a slot is kept for it, …
    with_slot: Pace,
    /// … and while the device is.
    with_all: Pace,
    /// Since when it is far behind, the work that the device had done for all jobs by then, …
    since: Option<(Nanos, Nanos)>,
    /// … how many requests of its own since it came last, and whether the device was kept free for it meanwhile.
    served: u64,
    was_kept: bool,
    /// When the present try began, …
    tries_since: Nanos,
    /// … what the job does in it, and how many requests it had before that counts.
    tried: Pace,
    settled: u64,
    /// The next try comes no sooner.
    rested_at: Nanos,
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

    /// The device has served a request of the job.
    pub(crate) fn served(&mut self) {
        self.served += 1;
    }

    /// All of the device is kept free for the job.
    pub(crate) fn kept(&mut self) {
        self.was_kept = true;
    }

    /// The job, which had nothing queued, has come, and is behind by so much of the `most` that it is owed; the device has done so much `work`
    /// for all jobs since the arbiter was made.
    pub(crate) fn arrived(&mut self, now: Nanos, behind: u128, most: u128, work: Nanos) {
        let (requests, was_kept) = (std::mem::take(&mut self.served), std::mem::take(&mut self.was_kept));
        // A time in which the device has served nothing of the job is one that it was thinking in, or that memory served.
        let is_of_few = (1..=AT_ONCE_MAX).contains(&requests);
        if let Some((since, before)) = self.since.filter(|_| is_of_few && was_kept == self.needs_all) {
            let span = Pace { time_ns: now.since(since).0, requests, work_ns: work.since(before).0 };
            self.count(now, &span);
        }
        let is_far_behind = behind > most / 4;
        self.since = is_far_behind.then_some((now, work));
        if self.is_trying {
            self.conclude(now);
        } else if now >= self.rested_at && self.pace(self.is_found).is_known() && behind > most / 2 {
            (self.is_trying, self.tries_since, self.tried, self.settled) = (true, now, Pace::default(), 0);
        }
        if self.is_going_all() {
            self.follow(behind, most);
        } else {
            self.needs_all = false;
        }
    }

    /// All of the device is kept free for the job while it is so much behind of the `most` that it is owed, whether that is worth it or not.
    pub(crate) fn follow(&mut self, behind: u128, most: u128) {
        self.needs_all = behind > if self.needs_all { most / 4 } else { most / 2 };
    }

    /// Whether all of the device is what it has now when it is far behind.
    fn is_going_all(&self) -> bool {
        self.is_found != self.is_trying
    }

    fn pace(&mut self, all: bool) -> &mut Pace {
        if all { &mut self.with_all } else { &mut self.with_slot }
    }

    fn count(&mut self, now: Nanos, span: &Pace) {
        let all = self.is_going_all();
        if all != self.needs_all {
            // It has nearly caught up, and others have come in between.
            return;
        }
        let settling = if all { SETTLING_ALL } else { SETTLING_SLOT };
        let is_settled = self.settled >= settling || 2 * now.since(self.tries_since).0 > TRY_MAX.0;
        if !self.is_trying {
            self.pace(all).add(span);
        } else if is_settled {
            self.tried.add(span);
        } else {
            self.settled += span.requests;
        }
    }

    /// Ends a try that has seen enough, or goes on for too long.
    fn conclude(&mut self, now: Nanos) {
        let (tried, took) = (self.tried, now.since(self.tries_since));
        if tried.requests < REQUESTS_MIN && took < TRY_MAX {
            return;
        }
        let mut is_worth = self.is_found;
        if tried.requests >= REQUESTS_FEW {
            let pace = self.pace(!self.is_found);
            pace.fade(tried.requests);
            pace.add(&tried);
            is_worth = self.is_worth();
        }
        let rest = if is_worth == self.is_found { REST } else { REST_CHANGED };
        if is_worth != self.is_found {
            // What is to be tried from now on was measured before, when others may have come or the depth was not found.
            *self.pace(self.is_found) = Pace::default();
        }
        self.rested_at = now + Nanos(took.min(TRY_MAX).0.saturating_mul(rest));
        (self.is_found, self.is_trying) = (is_worth, false);
    }

    /// Whether it is, by what was measured of both ways.
    fn is_worth(&self) -> bool {
        let (slot, all) = (&self.with_slot, &self.with_all);
        let part = if self.is_found { STILL } else { 1.0 };
        let of_time = slot.time_ns as f64 / all.time_ns.max(1) as f64;
        let speedup = all.requests as f64 / slot.requests.max(1) as f64 * of_time;
        let work = all.work_ns as f64 / slot.work_ns.max(1) as f64 * of_time;
        speedup >= part * SPEEDUP_MIN && work >= part * WORK_MIN
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

    /// What was measured until now counts no more than so many requests.
    fn fade(&mut self, requests: u64) {
        if self.requests > requests {
            let before = self.requests;
            for sum in [&mut self.time_ns, &mut self.requests, &mut self.work_ns] {
                *sum = *sum / before * requests;
            }
        }
    }

    /// Whether it is a pace to compare a try with.
    fn is_known(&self) -> bool {
        self.requests >= REQUESTS_MIN || self.requests > 0 && self.time_ns >= TRY_MAX.0
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

    const SLOT: Speed = Speed { request_us: 100, work: 100 };

    /// A job that is behind by all that it is owed, and comes again and again, ten seconds long.
    struct Course {
        room: Room,
        slot: Speed,
        now: Nanos,
        work: Nanos,
    }

    impl Course {
        fn new() -> Self {
            Self { room: Room::default(), slot: SLOT, now: Nanos::ZERO, work: Nanos::ZERO }
        }

        fn step(&mut self, all: Speed) {
            let speed = if self.room.needs_all() { all } else { self.slot };
            self.room.served();
            if self.room.needs_all() {
                self.room.kept();
            }
            self.now += Nanos::from_micros(speed.request_us);
            self.work += Nanos(speed.request_us * speed.work);
            self.room.arrived(self.now, MOST, MOST, self.work);
        }

        /// The part of ten seconds in which it has all of the device.
        fn part_with_all(&mut self, all: Speed) -> f64 {
            let (began, mut with_all) = (self.now, Nanos::ZERO);
            while self.now < began + Nanos::from_secs(10) {
                let (before, has_all) = (self.now, self.room.needs_all());
                self.step(all);
                with_all += if has_all { self.now.since(before) } else { Nanos::ZERO };
            }
            with_all.as_secs_f64() / self.now.since(began).as_secs_f64()
        }
    }

    #[test]
    fn who_does_more_alone_has_all_of_the_device_until_it_is_hardly_behind() {
        let mut course = Course::new();
        let part = course.part_with_all(Speed { request_us: 50, work: 50 });
        assert!(part > 0.98, "{part}");
        let mut at = |behind| {
            course.room.begins();
            course.room.arrived(Nanos::from_secs(10), behind, MOST, Nanos::from_secs(1));
            course.room.needs_all()
        };
        assert_eq!([1_000, 251, 250, 500, 501, 0].map(&mut at), [true, true, false, false, true, false]);
    }

    #[test]
    fn looking_takes_a_hundredth_of_the_time_where_it_is_in_vain() {
        for all in [Speed { request_us: 80, work: 80 }, Speed { request_us: 50, work: 12 }] {
            let part = Course::new().part_with_all(all);
            assert!(part > 0.005 && part < 0.0125, "{part}");
        }
        // A request takes so long that a try ends sooner.
        let part = Course::new().part_with_all(Speed { request_us: 100_000, work: 100 });
        assert!(part < 0.12, "{part}");
    }

    /// Between the end of one try of the whole device and the next one, in tries.
    fn rests(course: &mut Course, tries: usize, all: impl Fn(usize) -> Speed) -> Vec<f64> {
        let (mut rests, mut ended, mut began) = (Vec::new(), course.now, course.now);
        let mut took = Nanos::from_millis(4);
        while rests.len() < tries {
            let had_all = course.room.needs_all();
            course.step(all(rests.len()));
            match (had_all, course.room.needs_all()) {
                (false, true) => {
                    rests.push(course.now.since(ended).as_secs_f64() / took.as_secs_f64());
                    began = course.now;
                }
                (true, false) => (ended, took) = (course.now, course.now.since(began)),
                _ => {}
            }
        }
        rests
    }

    #[test]
    fn tries_with_the_same_result_are_rare() {
        let rests = rests(&mut Course::new(), 4, |_| SLOT);
        // The first comes as soon as it is known what a slot gives.
        let wanted = [0.8, 128.0, 128.0, 128.0];
        assert!(rests.iter().zip(wanted).all(|(rest, wanted)| (rest - wanted).abs() < 0.3), "{rests:?}");
    }

    /// A job of which the device serves one request in a hundred: neither is a try endless, nor are tries half of all time.
    #[test]
    fn a_job_that_memory_serves_is_tried_no_longer_and_no_more_often() {
        let (mut room, mut now, mut with_all) = (Room::default(), Nanos::ZERO, 0u32);
        for call in 0..2_000_000u32 {
            if call.is_multiple_of(100) {
                room.served();
            }
            if room.needs_all() {
                room.kept();
                with_all += 1;
            }
            now += Nanos::from_micros(100);
            room.arrived(now, MOST, MOST, now);
        }
        let part = f64::from(with_all) / 2_000_000.0;
        assert!(part > 0.003 && part < 0.02, "{part}");
    }

    /// What memory serves comes in no time, now and then; it is no pace of the device, and what is done beside it no work for it.
    #[test]
    fn only_times_count_in_which_the_device_serves_the_job_and_it_is_far_behind() {
        let mut room = Room::default();
        let mut after = |at_ms, behind, is_served: bool| {
            (0..u32::from(is_served)).for_each(|_| room.served());
            room.arrived(Nanos::from_millis(at_ms), behind, MOST, Nanos::from_millis(at_ms));
            room.with_slot.requests
        };
        assert_eq!([after(0, MOST, true), after(1, MOST, false), after(2, MOST, true)], [0, 0, 1]);
        assert_eq!([after(3, MOST / 4, true), after(4, MOST, true), after(5, MOST, true)], [2, 2, 3]);
        room.begins();
        room.served();
        room.arrived(Nanos::from_secs(60), MOST, MOST, Nanos::from_secs(60));
        let Pace { requests, time_ns, work_ns } = room.with_slot;
        assert_eq!((requests, time_ns, work_ns), (3, 3_000_000, 3_000_000));
        // What the device did while it was not kept free is no pace with all of it.
        (room.is_found, room.needs_all) = (true, true);
        for (at, is_kept, counted) in [(61, false, 0), (62, true, 1)] {
            room.served();
            if is_kept {
                room.kept();
            }
            room.arrived(Nanos::from_secs(at), MOST, MOST, Nanos::from_secs(at));
            assert_eq!(room.with_all.requests, counted);
        }
    }

    /// Its first requests with a slot were slow, as when the depth was not found yet.
    #[test]
    fn what_a_slot_gave_before_the_device_was_kept_free_is_not_believed_afterwards() {
        let mut course = Course::new();
        course.slot = Speed { request_us: 200, work: 100 };
        while !course.room.is_found {
            course.step(SLOT);
        }
        let found_at = course.now;
        course.slot = SLOT;
        while course.room.is_found {
            course.step(SLOT);
            assert!(course.now < found_at + Nanos::from_secs(1), "kept for nothing after the first try");
        }
    }

    #[test]
    fn what_was_worth_it_is_given_up_when_it_is_clearly_not() {
        let mut course = Course::new();
        assert!(course.part_with_all(Speed { request_us: 70, work: 35 }) > 0.97);
        let part = course.part_with_all(Speed { request_us: 85, work: 25 });
        assert!(part > 0.97, "a little less is still worth it: {part}");
        assert!(course.part_with_all(Speed { request_us: 130, work: 35 }) < 0.5);
        assert!(course.part_with_all(Speed { request_us: 130, work: 35 }) < 0.02);
        // And it is taken up again, which is found at the next try.
        assert!(course.part_with_all(Speed { request_us: 50, work: 50 }) > 0.9);
    }
}
