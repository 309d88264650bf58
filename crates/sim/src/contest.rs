//! What programs get of a server with one device, which nobody has told it anything of: contests, from a
//! [profile](isonomia_policy::device::profile) of that device.
//!
//! A request of the device is not a call of a program. What is made of calls is what a live server makes of them. How long
//! chunks and pieces may take, and how large they are at least and at most, is as there ([`chunks`]); cut and counted they are more
//! simply:
//!
//! * a read of more than a client's largest request is as many requests, of which a process has some under way;
//! * who reads all of his files in no order, with nobody beside, finds as many neighbours of what he has read in memory as there
//!   ([`FileReads`](isonomia_policy::device::read_ahead::FileReads)); what was read ahead of him takes its time of the device;
//! * who reads one block behind the other while others use the device is read ahead for, in pieces of which each process has
//!   as many under way as a window has, so that all his reads are pieces;
//! * what is written goes to the host's memory, and from there to the device in chunks, of which a job has one at once, and
//!   one more while it is behind its share of the device's time. A program that flushes all the time is as fast as these.
//!
//! What processors take is simulated where it is known: all of it before the device is given a request.
//!
//! What is not simulated is said by [`Unpredicted`]. Not in it either: neighbours that a live server reads with short reads of
//! those who are not alone; and what a flush writes besides the bytes (the journal of a file system).

mod neighbours;

use crate::request::{Channels, Device, Job, Layout, Op, Outcome, Phase, Processors, Scenario, Target, run};
use isonomia_policy::device::chunks::{self, CHUNKS_MAX, PIECE_BYTES_MAX, SHARE_LEAST, SMALL_READ};
use isonomia_policy::device::read_ahead::short;
use isonomia_policy::{Access, DepthSpec};
use isonomia_units::{Bytes, JobInfo, Nanos};
use neighbours::Neighbours;
use std::ops::{ControlFlow, Range};

/// A client's largest request through shared memory, of which a longer call is several.
pub const TRANSFER_BYTES: u64 = 256 << 10;
/// Of which a process has so many under way.
pub const TRANSFERS: u64 = 4;
/// How often what is found in memory is computed anew from how much is read, at most: each time it is less.
const FIXED_POINT_ROUNDS: u32 = 16;

/// A job of processes that do the same, each one call after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// What its job is called.
    pub job: String,
    /// What its calls do. Those that write flush what they wrote again and again.
    pub access: Access,
    /// Bytes of each call, more than 0.
    pub call: Bytes,
    /// The length of the files, if it reads all of one after the other; what is read of longer ones has no neighbours.
    pub file: Option<Bytes>,
    /// Processes, at least 1.
    pub processes: u32,
    /// When it begins.
    pub start: Nanos,
}

/// What reads take of the processors that programs and server have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTimes {
    /// One that waits for the device.
    pub waiting: Processors,
    /// One that finds all of its bytes in memory; how many processors there are says the other.
    pub found: Processors,
}

/// What a program got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Calls in a second.
    pub calls_per_s: f64,
    /// Its part of the service of all.
    pub share: f64,
    /// What one of a hundred of the device's requests for it took longer than, from when the server had it.
    pub p99: Nanos,
}

/// Why nothing is said of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unpredicted {
    /// Nobody reads beside those who write.
    #[error(
        "what is written goes to the host's memory: how fast that is, what a flush costs beside the bytes, and how many flushes are \
         one, is of the host and its file system, and no profile of a device has it"
    )]
    WritesAlone,
    /// A stream with nobody beside.
    #[error(
        "a stream with nobody beside it is read ahead in windows of many requests, and no profile of a device has those"
    )]
    StreamAlone,
    /// Several blocks that lie apart go into one chunk.
    #[error(
        "a chunk of what is written has several ranges here, which are one request for the policy and many for the device: how \
         many depends on what lies in the host's memory"
    )]
    Scattered,
    /// The target has another device.
    #[error("the target's device is one whose speed the server was told")]
    Told,
}

/// What `programs` get of `target` between two times, under a policy that gives each job the same share, on a machine whose
/// processors take so long for a read, or no time.
///
/// # Errors
/// It is a contest of which nothing can be said.
pub fn simulate(
    target: &Target,
    reads: Option<ReadTimes>,
    programs: &[Program],
    span: Range<Nanos>,
) -> Result<Vec<Predicted>, Unpredicted> {
    let Device::Channels(device) = &target.device else { return Err(Unpredicted::Told) };
    if programs.len() == 1 && programs[0].access == Access::ReadSequential {
        return Err(Unpredicted::StreamAlone);
    }
    if programs.iter().all(|program| writes(program.access)) {
        return Err(Unpredicted::WritesAlone);
    }
    let [Program { access: Access::ReadRandom, file: Some(file), call, processes, start, .. }] = programs else {
        return simulate_with(Neighbours::NONE, target, device, reads, programs, &span);
    };
    // How much is found depends on how much of a file is read in the time, and that on how much is found.
    let mut calls = u64::MAX;
    let is_slow = Server::new(target, device, programs, 1).price(Access::ReadRandom, SMALL_READ) > short::SLOW;
    for _ in 0..FIXED_POINT_ROUNDS {
        let neighbours = Neighbours::of_file(*file, *call, calls, is_slow);
        let predicted = simulate_with(neighbours, target, device, reads, programs, &span)?;
        let seconds = span.end.since(*start).as_secs_f64();
        let made = (predicted[0].calls_per_s * seconds / f64::from(*processes)) as u64;
        if made >= (file.0 / call.0).min(calls - calls / 50) {
            return Ok(predicted);
        }
        calls = made.min(calls);
    }
    simulate_with(Neighbours::of_file(*file, *call, calls, is_slow), target, device, reads, programs, &span)
}

/// The same, with what is found in memory.
fn simulate_with(
    neighbours: Neighbours,
    target: &Target,
    device: &Channels,
    reads: Option<ReadTimes>,
    programs: &[Program],
    span: &Range<Nanos>,
) -> Result<Vec<Predicted>, Unpredicted> {
    // Whoever waits for the device has found the others in memory before, which took processors as well.
    let found = neighbours.waiting.recip() - 1.0;
    let processors = reads.map(|ReadTimes { waiting, found: one }| waiting.with(&one, found));
    let most = if programs.iter().any(|program| writes(program.access)) { CHUNKS_MAX as u32 } else { 1 };
    let due = 1.0 / programs.len() as f64;
    let mut at_once = 1;
    loop {
        let server = Server::new(target, device, programs, at_once);
        let requests = programs.iter().map(|program| server.requests(program)).collect::<Result<Vec<_>, _>>()?;
        let outcome = run_all(target, processors, programs, &requests, span);
        let is_behind =
            |(program, at): (&Program, usize)| writes(program.access) && outcome.jobs[at].share < SHARE_LEAST * due;
        if at_once >= most || !programs.iter().zip(0..).any(is_behind) {
            let seconds = span.end.since(span.start).as_secs_f64();
            let predicted = |(at, program): (usize, &Program)| {
                let job = &outcome.jobs[at];
                let waited_per_s = job.bytes as f64 / program.call.0 as f64 / seconds;
                Predicted {
                    calls_per_s: (waited_per_s / neighbours.waiting)
                        .min(neighbours.calls_per_s_max(device, program.call)),
                    share: job.share,
                    p99: Nanos(job.latency.p99_ns),
                }
            };
            return Ok(programs.iter().enumerate().map(predicted).collect());
        }
        at_once += 1;
    }
}

const fn writes(access: Access) -> bool {
    matches!(access, Access::WriteRandom | Access::WriteSequential)
}

/// Requests that a call of so many bytes has under way.
fn transfers(call: Bytes) -> u32 {
    call.0.div_ceil(TRANSFER_BYTES).min(TRANSFERS) as u32
}

/// What the server gives the device for a program.
struct Requests {
    bytes: Bytes,
    processes: u32,
    depth: u32,
}

/// How a server makes requests of calls.
struct Server<'a> {
    device: &'a Channels,
    /// How many requests are in service, between which the device's time is divided.
    in_service: u32,
    /// How long a chunk or a piece may take.
    time_max: Nanos,
    /// Chunks that a job that writes has at once.
    chunks: u32,
}

impl<'a> Server<'a> {
    fn new(target: &Target, device: &'a Channels, programs: &[Program], chunks: u32) -> Self {
        let under_way = |program: &Program| match program.access {
            access if writes(access) => chunks,
            Access::ReadRandom => program.processes.saturating_mul(transfers(program.call)),
            _ => program.processes,
        };
        let all = programs.iter().map(under_way).fold(0, u32::saturating_add);
        let all = match device.depth {
            DepthSpec::Fixed(depth) => all.min(u32::try_from(depth).unwrap_or(u32::MAX)),
            DepthSpec::Auto => all,
        };
        let in_service = device.count.map_or(all, |count| all.min(count.get())).max(1);
        let class = target.policy.latency().map(|class| class.target);
        let server = Self { device, in_service, time_max: Nanos::ZERO, chunks };
        Self { time_max: chunks::time_max(Some(server.price(Access::ReadRandom, SMALL_READ)), class), ..server }
    }

    /// How long a request takes among the others.
    fn among(&self, access: Access, bytes: Bytes) -> Nanos {
        self.device.time_among(access, bytes, self.in_service)
    }

    /// What it learns of a request: its part of the device's time.
    fn price(&self, access: Access, bytes: Bytes) -> Nanos {
        Nanos(self.among(access, bytes).0 / u64::from(self.in_service))
    }

    fn requests(&self, program: &Program) -> Result<Requests, Unpredicted> {
        let Program { access, call, processes, .. } = *program;
        let chunk = |bytes| Requests { bytes, processes: self.chunks, depth: 1 };
        Ok(match access {
            Access::ReadRandom => {
                Requests { bytes: Bytes(call.0.min(TRANSFER_BYTES)), processes, depth: transfers(call) }
            }
            Access::ReadSequential => {
                let bytes = chunks::piece_bytes(self.time_max, |bytes| self.price(access, bytes));
                Requests { bytes, processes, depth: (PIECE_BYTES_MAX / bytes.0) as u32 }
            }
            // How long a chunk takes it knows by the clock.
            Access::WriteSequential => chunk(chunks::bytes(self.time_max, |bytes| self.among(access, bytes))),
            Access::WriteRandom => {
                let range = chunks::bytes(self.time_max, |bytes| self.among(access, bytes)).min(call);
                if 2 * self.among(access, range).0 <= self.time_max.0 {
                    return Err(Unpredicted::Scattered);
                }
                chunk(range)
            }
        })
    }
}

fn run_all(
    target: &Target,
    processors: Option<Processors>,
    programs: &[Program],
    requests: &[Requests],
    span: &Range<Nanos>,
) -> Outcome {
    let job = |(program, requests): (&Program, &Requests)| Job {
        info: JobInfo::new(&program.job, &program.job, "contest"),
        processes: requests.processes,
        depth: requests.depth,
        targets: vec![0],
        layout: Layout::Striped,
        phases: vec![Phase {
            is_sequential: matches!(program.access, Access::ReadSequential | Access::WriteSequential),
            requests: None,
            ..Phase::back_to_back(if writes(program.access) { Op::Write } else { Op::Read }, requests.bytes, 1)
        }],
        iterations: None,
        start: program.start,
        stop: span.end,
    };
    let jobs = programs.iter().zip(requests).map(job).collect();
    let scenario = Scenario {
        measure_from: span.start,
        processors,
        ..Scenario::whole(span.end, vec!["server".to_owned()], vec![target.clone()], jobs)
    };
    run(&scenario, &mut |_| ControlFlow::Continue(()))
}
