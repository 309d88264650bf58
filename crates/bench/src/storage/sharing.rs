//! Two jobs under `job-fair`, few processes against many also under strict shares, and one job alone under `job-fair` and under `fifo`.
//!
//! What a job can take is bounded by its processes, each of which has one request under way: where the device serves many
//! at once, one process cannot take half of it. So what is due to it is half of the service, or as many calls as it gets alone,
//! whichever it is nearer to. Calls are told beside it as well, of half of both jobs' or of those alone: where calls of the one take more
//! of the device's time than those of the other, half of the service is fewer of them. Under strict shares half of the service is due, whatever
//! that costs.

use crate::clock::now_ns;
use crate::report::Must;
use crate::statistics::share;
use crate::storage::fio::{Access, Load, Sync};
use crate::storage::pool::Cached;
use crate::storage::prediction::Measured;
use crate::storage::{Bench, KIB, MIB, THROUGH_US};
use anyhow::{Context, Result, ensure};
use isonomia_proto::control::{JobStatus, Status};
use isonomia_units::Nanos;
use std::ops::Range;
use std::time::{Duration, SystemTime};

const POLL: Duration = Duration::from_millis(20);
pub const NAME: &str = "sharing";
/// Jobs that are not at work by then never will be.
const START_NS_MAX: u64 = 60_000_000_000;
/// Of the service, in percent.
const OFF_MAX: f64 = 1.5;
/// Of what is due.
const LEAST: f64 = 0.97;
/// A contest is looked at in so many turns.
const TURNS: u64 = 2;
/// How often the kernel is made to forget what was read: jobs go through their files again and again.
const FORGET_NS: u64 = 400_000_000;
/// And after so many bytes, if a job's blocks are [`LARGE_BYTES`] or more: it could read all of its files within [`FORGET_NS`], and from then
/// on be served from memory.
const FORGET_BYTES: u64 = 64 * MIB;
/// How often the server is asked how many those are.
const ASK_NS: u64 = 100_000_000;
/// See [`FORGET_BYTES`].
const LARGE_BYTES: u64 = 64 * KIB;
/// When the jobs are looked at, in parts of the turns.
const LOOKS: [(u64, u64); 2] = [(2, 5), (4, 5)];
/// What is looked at later than this part of a turn may be the end of the jobs.
const LATE_PART: u64 = 2;
const FAIR: &str = "job-fair";
const STRICT: &str = "job-fair+strict";
const JOBS: [&str; 2] = ["first", "second"];

/// What a job received between two looks.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// Of data targets.
    service_ns: u64,
    bytes: u64,
    /// Of metadata as well.
    operations: u64,
    seconds: f64,
}

fn load(access: Access, block_bytes: u64, processes: u32, turn: Nanos) -> Load {
    let sync = if access.is_write() { Sync::Every(16) } else { Sync::Never };
    Load {
        access,
        block_bytes,
        processes,
        sync,
        is_direct: false,
        runs_for: Some(turn),
        is_endless: false,
        bytes_max: None,
    }
}

pub fn run(bench: &mut Bench, _repeat: u32) -> Result<()> {
    let turn = bench.configuration.turn();
    let of = |access, block_bytes, processes| load(access, block_bytes, processes, turn);
    let many = if bench.configuration.is_quick { 8 } else { 32 };
    let small = |processes| of(Access::RandomRead, 4 * KIB, processes);
    for processes in [4, many] {
        let name = format!("1 : {processes} processes reading 4 KiB");
        few_against_many(bench, &name, &small(1), &small(processes))?;
        bench.server.set_policy(STRICT)?;
        let kept = strictly(bench, &format!("{name}, {STRICT}"), &small(1), &small(processes));
        bench.server.set_policy(FAIR)?;
        kept?;
    }
    let medium = of(Access::RandomRead, 64 * KIB, 8);
    let large = of(Access::RandomRead, MIB, 8);
    even(bench, "8 processes each, reading 4 KiB : 1 MiB", &of(Access::RandomRead, 4 * KIB, 8), &large)?;
    even(bench, "8 processes each, reading : writing 64 KiB", &medium, &of(Access::RandomWrite, 64 * KIB, 8))?;
    even(
        bench,
        "8 processes each, reading 64 KiB sequentially : at random",
        &of(Access::SequentialRead, 64 * KIB, 8),
        &medium,
    )?;
    lone(bench, "8 processes reading 4 KiB", &of(Access::RandomRead, 4 * KIB, 8))?;
    lone(bench, "4 processes reading 256 KiB", &of(Access::RandomRead, 256 * KIB, 4))
}

fn lone(bench: &mut Bench, name: &str, load: &Load) -> Result<()> {
    bench.server.set_policy("fifo")?;
    let fifo = bench.alone(load, Some("lone"));
    bench.server.set_policy(FAIR)?;
    let (fifo, fair) = (fifo?.iops, bench.alone(load, Some("lone"))?.iops);
    let span = Nanos::ZERO..bench.configuration.turn();
    predict(bench, &format!("{name} alone"), FAIR, &[load], &[fair], span)?;
    bench.keep(
        &format!("{name} alone: job-fair / fifo"),
        THROUGH_US,
        "x",
        fair / fifo,
        None,
        Some(Must::at_least(LEAST)),
    );
    Ok(())
}

/// What is read is forgotten by the kernel again and again, so that little is read from memory.
struct Forgetting {
    cached: Cached,
    began: SystemTime,
    last_ns: u64,
    last_bytes: u64,
    asked_ns: u64,
}

impl Forgetting {
    /// Nothing of the files is in memory. So much was read before.
    fn begin(bench: &Bench, bytes: u64) -> Result<Self> {
        bench.forget()?;
        let now_ns = now_ns();
        let (began, last_ns, last_bytes, asked_ns) = (SystemTime::now(), now_ns, bytes, now_ns);
        Ok(Self { cached: bench.cached()?, began, last_ns, last_bytes, asked_ns })
    }

    /// To be called often. `read` gives the bytes that have been read, if they matter.
    fn go_on(&mut self, read: impl FnOnce() -> Result<Option<u64>>) -> Result<()> {
        let mut bytes = self.last_bytes;
        if now_ns() > self.asked_ns + ASK_NS {
            bytes = read()?.unwrap_or(bytes);
            self.asked_ns = now_ns();
        }
        if bytes > self.last_bytes + FORGET_BYTES || now_ns() > self.last_ns + FORGET_NS {
            self.cached.forget_unchanged(self.began)?;
            self.last_ns = now_ns();
            self.last_bytes = bytes;
        }
        Ok(())
    }
}

/// Calls per second of a job alone that reads little at a time, and of whose files the kernel forgets what was read as often as of those of two jobs.
fn alone(bench: &Bench, load: &Load) -> Result<f64> {
    bench.session.undisturbed(|| {
        let mut forgetting = Forgetting::begin(bench, 0)?;
        let mut program = bench.start("alone", load, Some(JOBS[0]), 0)?;
        while program.is_running()? {
            bench.session.nap(POLL)?;
            forgetting.go_on(|| Ok(None))?;
        }
        Ok(program.finish(bench.session, bench.patience())?.iops)
    })
}

fn few_against_many(bench: &mut Bench, name: &str, few: &Load, many: &Load) -> Result<()> {
    let alone = alone(bench, few)?;
    let received = together(bench, name, few, many)?;
    let rates = received.map(|one| one.operations as f64 / one.seconds);
    let calls = rates[0] / alone.min((rates[0] + rates[1]) / 2.0);
    keep(bench, name, received, None);
    predict_both(bench, name, FAIR, [few, many], rates)?;
    bench.keep(&format!("{name}: calls of the one, of half or alone"), THROUGH_US, "x", calls, None, None);
    let part = of_due(share_of_service(received), rates[0] / alone);
    let what = format!("{name}: what the one gets of what is due");
    bench.keep(&what, THROUGH_US, "x", part, None, Some(Must::near(1.0, 1.0 - LEAST)));
    Ok(())
}

/// The same under strict shares.
fn strictly(bench: &mut Bench, name: &str, few: &Load, many: &Load) -> Result<()> {
    let received = together(bench, name, few, many)?;
    keep(bench, name, received, Some(Must::near(50.0, OFF_MAX)));
    predict_both(bench, name, STRICT, [few, many], received.map(|one| one.operations as f64 / one.seconds))
}

/// What a job gets of what is due to it, with this percentage of the service and so many times the calls that it gets alone: more than
/// half of the service is too much, however few calls that is.
fn of_due(service_percent: f64, calls_of_alone: f64) -> f64 {
    (service_percent / 50.0).max(calls_of_alone.min(1.0))
}

/// Of the first job, in percent.
fn share_of_service([first, second]: [Received; 2]) -> f64 {
    100.0 * share(first.service_ns, first.service_ns + second.service_ns)
}

fn even(bench: &mut Bench, name: &str, one: &Load, other: &Load) -> Result<()> {
    let received = together(bench, name, one, other)?;
    keep(bench, name, received, Some(Must::near(50.0, OFF_MAX)));
    let loads = [one, other];
    // A call is several requests where it is long, and some have nothing to do with it: flushes.
    let rates = [0, 1].map(|at| received[at].bytes as f64 / loads[at].block_bytes as f64 / received[at].seconds);
    predict_both(bench, name, FAIR, loads, rates)
}

/// What the simulator says of two jobs in the span that is looked at.
fn predict_both(bench: &mut Bench, name: &str, policy: &str, loads: [&Load; 2], measured: [f64; 2]) -> Result<()> {
    let turn_ns = TURNS * bench.configuration.turn_ns;
    let [from, to] = LOOKS.map(|(part, parts)| Nanos(turn_ns * part / parts));
    predict(bench, name, policy, &loads, &measured, from..to)
}

fn predict(
    bench: &mut Bench,
    name: &str,
    policy: &str,
    loads: &[&Load],
    measured: &[f64],
    span: Range<Nanos>,
) -> Result<()> {
    let jobs: Vec<_> = JOBS.into_iter().zip(loads).map(|(job, load)| (job, *load, Nanos::ZERO)).collect();
    let rate =
        |(what, value): (&'static str, &f64)| Measured { what, value: *value, unit: "op/s", of: |one| one.calls_per_s };
    let measured: Vec<_> = ["the first, ", "the second, "].into_iter().zip(measured).map(rate).collect();
    bench.keep_predicted(name, policy, &jobs, span, &measured)
}

fn keep(bench: &mut Bench, name: &str, received: [Received; 2], must: Option<Must>) {
    let bytes = 100.0 * share(received[0].bytes, received[0].bytes + received[1].bytes);
    bench.keep(&format!("{name}: share of service"), THROUGH_US, "%", share_of_service(received), None, must);
    bench.keep(&format!("{name}: share of the bytes"), THROUGH_US, "%", bytes, None, None);
    let device = bench.device.emulated().map(|device| received.map(|one| device.time_ns(one.operations, one.bytes)));
    if let Some([first, second]) = device {
        let share = 100.0 * share(first, first + second);
        bench.keep(&format!("{name}: share of the device's time"), THROUGH_US, "%", share, None, None);
    }
    for (which, one) in ["the first", "the second"].into_iter().zip(received) {
        let rate = one.operations as f64 / one.seconds;
        bench.keep(&format!("{name}: {which}"), THROUGH_US, "op/s", rate, None, None);
    }
}

/// Two jobs at once in a turn that nobody disturbed.
fn together(bench: &mut Bench, name: &str, one: &Load, other: &Load) -> Result<[Received; 2]> {
    // As long as it takes until the depth of the target is found, and to look at what comes of it.
    // One turn more than is looked at: on a slow device the second job begins later than the first.
    let runs_for = Some(Nanos((TURNS + 1) * bench.configuration.turn_ns));
    let [one, other] = [one, other].map(|load| Load { runs_for, is_endless: true, ..load.clone() });
    let session = bench.session;
    let (received, depth) = session.undisturbed(|| compete(bench, &one, &other))?;
    if let Some(depth) = depth {
        bench.keep(&format!("{name}: requests in service at most"), THROUGH_US, "", depth as f64, None, None);
    }
    Ok(received)
}

/// Two jobs at once, on files of their own; what each received in the steady part, and the depth of the target at its end.
fn compete(bench: &mut Bench, one: &Load, other: &Load) -> Result<([Received; 2], Option<u64>)> {
    let before = bench.server.status()?;
    let mut forgetting = Forgetting::begin(bench, read_bytes(&before))?;
    let half = bench.pool.files / 2;
    let mut programs =
        [bench.start(JOBS[0], one, Some(JOBS[0]), 0)?, bench.start(JOBS[1], other, Some(JOBS[1]), half)?];
    let deadline_ns = now_ns() + START_NS_MAX;
    // Each has moved something: not only opened its files.
    let moves = |status: &Status| JOBS.iter().all(|job| bytes(status, job) > bytes(&before, job));
    while !moves(&bench.server.status()?) {
        ensure!(now_ns() < deadline_ns, "the jobs do not begin");
        bench.session.nap(POLL)?;
    }
    let is_large = [one, other].iter().any(|load| load.block_bytes >= LARGE_BYTES);
    let turn_ns = TURNS * bench.configuration.turn_ns;
    let looks = LOOKS.map(|(part, parts)| now_ns() + turn_ns * part / parts);
    let (mut statuses, mut times) = (Vec::new(), Vec::new());
    for at in looks {
        while now_ns() < at {
            bench.session.nap(POLL.min(Duration::from_nanos(at.saturating_sub(now_ns()))))?;
            let server = &mut bench.server;
            forgetting.go_on(|| is_large.then(|| Ok(read_bytes(&server.status()?))).transpose())?;
        }
        ensure!(now_ns() < at + bench.configuration.turn_ns / LATE_PART, "the machine is too busy to look in time");
        statuses.push(bench.server.status()?);
        times.push(now_ns());
    }
    for program in &mut programs {
        ensure!(program.is_running()?, "a job ended before it was looked at");
    }
    for program in programs {
        program.finish(bench.session, bench.patience())?;
    }
    let seconds = (times[1] - times[0]) as f64 / 1e9;
    let [first, second] = JOBS.map(|job| -> Result<Received> {
        let [before, after] = [0, 1].map(|at: usize| status_of(&statuses[at], job));
        let (before, after) = (before.context("a job is not known")?, after.context("a job is not known")?);
        Ok(Received {
            service_ns: after.data_service_ns_total - before.data_service_ns_total,
            bytes: moved(after) - moved(before),
            operations: after.requests_total - before.requests_total,
            seconds,
        })
    });
    let depth = statuses[1].targets.iter().filter(|target| target.target != "metadata").find_map(|target| target.depth);
    Ok(([first?, second?], depth))
}

fn status_of<'a>(status: &'a Status, job: &str) -> Option<&'a JobStatus> {
    status.jobs.iter().find(|one| one.job == job)
}

fn moved(job: &JobStatus) -> u64 {
    job.read_bytes_total + job.written_bytes_total
}

/// What both jobs have read since the server was started.
fn read_bytes(status: &Status) -> u64 {
    JOBS.iter().filter_map(|job| status_of(status, job)).map(|job| job.read_bytes_total).sum()
}

fn bytes(status: &Status, job: &str) -> u64 {
    status_of(status, job).map_or(0, moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_service_is_due_or_as_many_calls_as_a_job_gets_alone() {
        assert_eq!(of_due(50.0, 0.5), 1.0, "it could take more than half");
        assert_eq!(of_due(20.0, 1.05), 1.0, "it cannot take more than it does");
        assert_eq!(of_due(20.0, 0.9), 0.9);
        assert_eq!(of_due(48.0, 0.5), 0.96);
        assert_eq!(of_due(60.0, 1.0), 1.2, "the other one has too little");
    }
}
