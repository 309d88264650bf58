//! Closed loops of clients before devices of all kinds.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// How long a request takes that begins while so many are in service, itself among them.
type Service = fn(in_service: usize, random: f64) -> f64;

/// A closed loop: `clients` that always have a request each, at a device that serves `channels` at once.
struct Run {
    control: DepthControl,
    now: Nanos,
    done: u64,
    /// Sum of those in service when each request ended, itself among them.
    in_service_sum: u64,
    random: Pcg64,
    is_shared: bool,
    /// Each request is for one channel, as its address says (a RAID), and waits for that though others are free.
    is_addressed: bool,
    /// How long a request and its reply are under way together, when no channel has them.
    on_the_way: Nanos,
}

/// A request of the only job.
fn completion(is_backlogged: bool) -> Completion {
    Completion { job: JobId(0), work: Nanos::from_micros(2), attributed: None, in_service: 1, is_backlogged }
}

impl Run {
    fn new(depth: usize) -> Self {
        let random = Pcg64::seed_from_u64(1);
        Self {
            control: DepthControl::new(depth, 128),
            now: Nanos::ZERO,
            done: 0,
            in_service_sum: 0,
            random,
            is_shared: false,
            is_addressed: false,
            on_the_way: Nanos::ZERO,
        }
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
        self.serve((time, u64::MAX), clients, channels, service_ms)
    }

    /// Until so much time has passed, or so many requests are done.
    fn serve(&mut self, (time, most): (Nanos, u64), clients: usize, channels: usize, service_ms: Service) -> f64 {
        let end = self.now + time;
        let began = self.now;
        let before = self.done;
        let mut left = most;
        let mut in_device: BinaryHeap<Reverse<Nanos>> = BinaryHeap::new();
        let mut free = vec![self.now; channels];
        while self.now < end && left > 0 {
            let clients = clients.min(usize::try_from(left).unwrap_or(usize::MAX));
            while in_device.len() < self.control.limit().min(clients) {
                let channel = if self.is_addressed {
                    self.random.random_range(0..channels)
                } else {
                    (0..channels).min_by_key(|channel| free[*channel]).unwrap()
                };
                let takes = service_ms(in_device.len() + 1, self.random.random::<f64>());
                let there = self.now + Nanos(self.on_the_way.0 / 2);
                free[channel] = free[channel].max(there) + Nanos((takes * 1e6) as u64);
                let done = free[channel] + Nanos(self.on_the_way.0 / 2);
                if in_device.is_empty() {
                    self.control.begun(self.now, JobId(0));
                }
                in_device.push(Reverse(done));
            }
            self.now = in_device.pop().unwrap().0;
            self.done += 1;
            left -= 1;
            self.in_service_sum += in_device.len() as u64 + 1;
            let is_backlogged = clients > in_device.len() + 1;
            let in_service = in_device.len() + 1;
            // Of five requests one is the first job's.
            let job = JobId(u32::from(self.is_shared && !self.done.is_multiple_of(5)));
            let work = Nanos::from_micros(2);
            let attributed = None;
            self.control.completed(self.now, Completion { job, work, attributed, in_service, is_backlogged });
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

/// The members of a RAID are busy by chance: with as many requests as members a third of them is idle. One job alone has as many
/// as help at all; several have fewer, so that the rest waits where the policy decides.
#[test]
fn a_raid_is_given_more_than_it_has_members() {
    for members in [4, 8, 16] {
        for (run, least, depth_max) in [(Run::new(8), 0.93, 128), (Run::shared(8), 0.8, 8 * members)] {
            let mut run = Run { is_addressed: true, ..run };
            run.go(60, 256, members, |_, random| 4.0 + 8.0 * random);
            let rate = run.go(120, 256, members, |_, random| 4.0 + 8.0 * random);
            let (most, depth) = (members as f64 * 125.0, run.control.depth());
            assert!((members + 1..=depth_max).contains(&depth), "{members} members: depth {depth}");
            assert!(rate > least * most, "{members} members: {rate} of {most}, depth {depth}");
        }
    }
}

/// Servers behind a network, each of which has one request at a time for 0.5 ms or so, and the stripe says whose it is. What is under way keeps no
/// server busy: it takes far more requests than there are servers, and more the longer the way is.
#[test]
fn a_parallel_file_system_is_given_what_is_under_way_as_well() {
    for (servers, way_ms) in [(4, 1), (8, 1), (8, 4)] {
        for (run, least) in [(Run::new(8), 0.9), (Run::shared(8), 0.8)] {
            let mut run = Run { is_addressed: true, on_the_way: Nanos::from_millis(way_ms), ..run };
            run.go(20, 256, servers, |_, random| jittery(0.5, random));
            let rate = run.go(40, 256, servers, |_, random| jittery(0.5, random));
            let most = servers as f64 * 1000.0 / mean_of(|random| jittery(0.5, random));
            let (depth, busy) = (run.control.depth(), servers + 2 * servers * way_ms as usize);
            assert!(
                depth >= busy.min(128) / 2,
                "{servers} servers, {way_ms} ms away: depth {depth}, {busy} of them keep all busy"
            );
            assert!(rate > least * most, "{servers} servers, {way_ms} ms away: {rate} of {most}, depth {depth}");
        }
    }
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
fn jobs_that_share_a_disk_wait_where_the_policy_decides() {
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

/// Part of what it can do that a device of which nothing is known does in a burst of so many requests.
fn burst(run: &mut Run, requests: u64, clients: usize, channels: usize, service_ms: Service) -> f64 {
    let rate = run.serve((Nanos::from_secs(1000), requests), clients, channels, service_ms);
    rate * mean_of(|random| service_ms(clients, random)) / 1e3 / clients.min(channels) as f64
}

#[test]
fn a_burst_has_most_of_a_parallel_device() {
    // 24 MiB in requests of 64 KiB and of 256 KiB.
    for service in [(|_, _| 20.0) as Service, |_, random| 18.0 + 4.0 * random, |_, random| jittery(20.0, random)] {
        for (requests, least) in [(384, 0.9), (96, 0.8)] {
            let mut run = Run::new(8);
            let part = burst(&mut run, requests, 12, 1000, service);
            assert!(part > least, "{requests} requests: {part}");
        }
    }
    let part = burst(&mut Run::shared(8), 384, 12, 1000, |_, random| 18.0 + 4.0 * random);
    assert!(part > 0.85, "of several jobs: {part}");
    let part = burst(&mut Run::new(8), 4096, 128, 1000, |_, random| 4.5 + random);
    assert!(part > 0.85, "128 clients: {part}");
}

#[test]
fn a_second_burst_begins_where_the_first_ended() {
    let mut run = Run::new(8);
    burst(&mut run, 1024, 64, 1000, |_, _| 20.0);
    run.now += Nanos::from_secs(3600);
    let part = burst(&mut run, 128, 64, 1000, |_, _| 20.0);
    assert!(part > 0.99, "{part}");
    // More than ever came before.
    run.now += Nanos::from_secs(3600);
    let part = burst(&mut run, 2048, 128, 1000, |_, _| 20.0);
    assert!(part > 0.9, "{part}");
}

#[test]
fn a_disk_is_given_too_much_for_a_moment_only() {
    for service in [(|_, _| 10.0) as Service, |_, random| jittery(10.0, random)] {
        for clients in [5, 33] {
            let mut run = Run::shared(8);
            // Until one at a time is found, and then trials.
            burst(&mut run, 100, clients, 1, service);
            let depth = run.control.depth();
            assert!(depth <= 2, "{clients} clients: {depth}");
            let (before, sum) = (run.done, run.in_service_sum);
            run.go(60, clients, 1, service);
            let mean = (run.in_service_sum - sum) as f64 / (run.done - before) as f64;
            assert!(mean < 1.1, "{clients} clients: {mean} in service on average");
        }
    }
}

/// What two jobs get of a device that does so many requests of the one and of the other in a second at a depth. Each has half of its time if that
/// `is_even`, otherwise requests of both take as long. Gives the depth that is kept most of the time, and the rates of the one and of both.
fn few_against_many(
    control: &mut DepthControl,
    (from, seconds): (Nanos, u64),
    rates: impl Fn(usize) -> (f64, f64),
    is_even: bool,
) -> (usize, f64, f64) {
    let mut random = Pcg64::seed_from_u64(2);
    let end = from + Nanos::from_secs(seconds);
    let (mut now, mut all, mut of_one) = (from, 0_u32, 0_u32);
    let mut times: std::collections::BTreeMap<usize, u64> = std::collections::BTreeMap::new();
    while now < end {
        let depth = control.limit();
        let (one, other) = rates(depth);
        let took = 1e9 / (one + other);
        let is_one = random.random::<f64>() < one / (one + other);
        now += Nanos(took as u64);
        *times.entry(depth).or_default() += took as u64;
        (all, of_one) = (all + 1, of_one + u32::from(is_one));
        let half_each = 5e8 / if is_one { one } else { other };
        let attributed = Some(Nanos(if is_even { half_each } else { took } as u64));
        let (job, work) = (JobId(u32::from(!is_one)), Nanos::from_micros(2));
        control.completed(now, Completion { job, work, attributed, in_service: depth, is_backlogged: true });
    }
    let (depth, _) = times.into_iter().max_by_key(|(_, time)| *time).unwrap();
    (depth, f64::from(of_one) / seconds as f64, f64::from(all) / seconds as f64)
}

fn dividing(depth: usize) -> DepthControl {
    let mut control = DepthControl::new(depth, 128);
    control.set_divides_time(true);
    control
}

/// A disk on a machine of few processors, where the one has half with two in service, and less with more.
fn disk(depth: usize) -> (f64, f64) {
    let all = 40_000.0 * [0.5, 0.83, 0.92, 1.0][depth.min(4) - 1];
    let one = 0.5 * (2.0 / depth.max(2) as f64).powf(0.8) * all;
    (one, all - one)
}

#[test]
fn some_work_is_given_up_for_the_part_of_a_job_if_the_policy_divides_time() {
    let minute = (Nanos::ZERO, 60);
    let (depth, one, all) = few_against_many(&mut dividing(8), minute, disk, false);
    assert_eq!(depth, 2);
    assert!(one > 0.9 * 16_600.0 && all > 0.77 * 40_000.0, "{one} of {all}");
    let (depth, one, all) = few_against_many(&mut DepthControl::new(8, 128), minute, disk, false);
    assert!(depth >= 3, "{depth}");
    assert!(one < 0.85 * 16_600.0 && all > 0.87 * 40_000.0, "{one} of {all}");
}

#[test]
fn no_more_is_given_up_over_many_steps_than_in_one() {
    // Each step costs a part, and gives the one more.
    for half_at in [1.0, 2.0, 4.0, 8.0] {
        let rates = |depth: usize| {
            let all = 30_000.0 * depth as f64 / (depth as f64 + half_at);
            let one = 0.9 * all / (depth as f64).powf(1.5);
            (one, all - one)
        };
        let mut control = dividing(16);
        few_against_many(&mut control, (Nanos::ZERO, 10), rates, false);
        let (depth, _, all) = few_against_many(&mut control, (Nanos::from_secs(10), 200), rates, false);
        assert!(all > 0.62 * 30_000.0, "{half_at}: {all} at {depth}");
    }
}

#[test]
fn nothing_is_given_up_where_the_policy_decides_as_it_is() {
    // The one has more of the shallower depth, as his requests wait less in the device, but half of the time at either.
    let rates = |depth: usize| {
        let part = 2.0 / depth.max(2) as f64;
        (4_000.0 + 8_000.0 * part, 40_000.0 * [0.2, 0.4, 0.7, 1.0][depth.min(4) - 1])
    };
    let (depth, ..) = few_against_many(&mut dividing(8), (Nanos::ZERO, 60), rates, true);
    assert!(depth >= 3, "{depth}");
}

#[test]
fn who_is_left_alone_has_all_of_the_device_soon() {
    let mut control = dividing(8);
    few_against_many(&mut control, (Nanos::ZERO, 60), disk, false);
    let alone = |depth: usize| (0.0, disk(depth).0 + disk(depth).1);
    let (depth, _, all) = few_against_many(&mut control, (Nanos::from_secs(60), 2), alone, false);
    assert!(depth >= 4 && all > 0.9 * 40_000.0, "{all} at {depth}");
}

/// A device of sixteen channels is kept free for somebody most of the time, and does next to nothing then.
#[test]
fn what_is_done_while_more_than_a_slot_is_kept_free_says_nothing() {
    let mut control = DepthControl::new(8, 128);
    let mut now = Nanos::ZERO;
    let mut rights = 0;
    for count in 1..=50_000u64 {
        now += Nanos(400_000 / control.limit().min(16) as u64);
        control.completed(now, completion(true));
        if count % 100 == 0 {
            for _ in 0..10 {
                control.pause(now);
                now += Nanos::from_millis(3);
                control.completed(now, completion(false));
            }
            control.resume(now);
        }
        rights += u32::from((12..=20).contains(&control.depth()));
    }
    assert!(rights > 45_000, "{rights}");
}

/// Flushes per second of `clients` programs, each of which computes for so long if it has the processors to itself and flushes for so long if it
/// has the device to itself. Those who compute share the processors evenly, those who flush share the device evenly: who begins together ends together.
fn crowd(
    control: &mut DepthControl,
    clients: usize,
    (computes_ms, flushes_ms): (f64, f64),
    time_ms: Range<u32>,
) -> f64 {
    let mut computing = vec![computes_ms; clients];
    let (mut flushing, mut waiting): (Vec<f64>, usize) = (Vec::new(), 0);
    let [mut now_ms, end_ms] = [time_ms.start, time_ms.end].map(f64::from);
    let mut done = 0;
    while now_ms < end_ms {
        let now = Nanos((now_ms * 1e6) as u64);
        while waiting > 0 && flushing.len() < control.limit() {
            if flushing.is_empty() {
                control.begun(now, JobId(0));
            }
            flushing.push(flushes_ms);
            waiting -= 1;
        }
        let least = |left: &[f64]| left.iter().copied().fold(f64::INFINITY, f64::min) * left.len() as f64;
        let step_ms = [&computing, &flushing].into_iter().filter(|left| !left.is_empty());
        let step_ms = step_ms.map(|left| least(left)).fold(f64::INFINITY, f64::min);
        now_ms += step_ms;
        for station in [&mut computing, &mut flushing] {
            let each = step_ms / station.len() as f64;
            station.iter_mut().for_each(|left| *left -= each);
        }
        let (before, in_service) = (computing.len(), flushing.len());
        computing.retain(|left| *left > 1e-9);
        waiting += before - computing.len();
        flushing.retain(|left| *left > 1e-9);
        for ended in 0..in_service - flushing.len() {
            let now = Nanos((now_ms * 1e6) as u64);
            let in_service = in_service - ended;
            control.completed(now, Completion { in_service, ..completion(waiting > 0) });
            computing.push(computes_ms);
            done += 1;
        }
    }
    f64::from(done) * 1e3 / time_ms.len() as f64
}

#[test]
fn a_crowd_that_computes_and_waits_together_is_thinned_out() {
    for clients in [8, 16, 32, 100] {
        let [mut all, mut fewer] = [128, 128].map(|depth| DepthControl::new(depth, 128));
        fewer.set_may_be_crowded(true);
        let rates = [&mut all, &mut fewer].map(|control| crowd(control, clients, (0.35, 0.27), 0..10_000));
        let depth = fewer.depth();
        assert!(
            depth <= clients.div_ceil(2) && rates[1] > 1.2 * rates[0],
            "{clients}: {rates:?} at a depth of {depth}"
        );
    }
}

#[test]
fn a_crowd_at_a_device_that_serves_all_at_once_is_left_alone() {
    for clients in [8, 16, 100] {
        let mut run = Run::new(16);
        run.control.set_may_be_crowded(true);
        let rate = run.go(20, clients, 1000, |_, random| 4.5 + random);
        assert!(rate > 0.95 * clients as f64 / 0.005, "{clients}: {rate}");
    }
}

/// A crowd has come and gone, and a single program has been there for a while: what that one does tells nothing of a crowd.
#[test]
fn who_is_there_when_a_crowd_has_left_is_no_reason_for_a_lesser_depth() {
    for left_ms in (50..1000).step_by(50) {
        let mut control = DepthControl::new(64, 128);
        control.set_may_be_crowded(true);
        crowd(&mut control, 16, (0.35, 0.27), 0..left_ms);
        let depth = control.depth();
        crowd(&mut control, 1, (0.35, 0.27), left_ms..60_000);
        assert!(
            control.depth() >= depth.min(8),
            "{} after {depth} when the others left at {left_ms} ms",
            control.depth()
        );
    }
}

/// At first flushes bring little, and the greatest depth is best; then each brings much.
#[test]
fn what_was_found_of_other_requests_is_soon_tried_again() {
    let mut run = Run::new(16);
    run.go(60, 200, 1000, |_, _| 5.0);
    assert_eq!(run.control.depth(), 128);
    run.control.set_may_be_crowded(true);
    let rate = crowd(&mut run.control, 16, (0.35, 0.27), 60_000..65_000);
    assert!(rate > 2200.0, "{rate} at a depth of {}", run.control.depth());
}
