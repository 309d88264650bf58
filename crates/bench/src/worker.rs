//! One client process: prepares a task, waits for the common start, does it, and tells what came out.

use crate::access::{Access, File, Opening};
use crate::arguments::WorkerOptions;
use crate::clock::{now_ns, wait_until};
use crate::offsets::Offsets;
use crate::slices::Slices;
use crate::statistics::percentile;
use crate::task::{
    Answer, Direction, FileState, Go, Iterations, Latency, Log, Operation, Outcome, Phases, Task, Transfer,
};
use anyhow::{Context, Result, ensure};
use isonomia_client::{Claims, Client, ClientConfig, Protection};
use isonomia_units::Nanos;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{BufRead, Write};
use std::sync::Barrier;
use std::time::Duration;

/// How long the client library waits for the server.
const TIMEOUT: Nanos = Nanos(30_000_000_000);
/// Files are filled by blocks of this size.
const FILL_BYTES: u64 = 1 << 20;
/// Calls of at least this size are told from the clock one by one.
const LARGE_BYTES: u64 = 64 << 10;
/// Calls between two looks at the clock when they are short and not logged.
const SHORT_CALLS: u64 = 8;
/// Times that are kept; further ones are left out.
const LATENCIES_MAX: usize = 4 << 20;

/// Answers tasks until the parent closes the pipe.
pub fn run(options: &WorkerOptions) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut worker = Worker { access: access(options)?, number: options.number, files: 0 };
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let task: Task = serde_json::from_str(&line?)?;
        let mut go = || -> Result<u64> {
            answer(&Answer::Ready)?;
            let line = lines.next().context("the parent is gone")??;
            Ok(serde_json::from_str::<Go>(&line)?.at_ns)
        };
        match worker.work(&task, &mut go) {
            Ok(outcome) => answer(&Answer::Done(outcome))?,
            Err(error) => {
                answer(&Answer::Failed(format!("{error:#}")))?;
                return Err(error);
            }
        }
    }
    Ok(())
}

fn access(options: &WorkerOptions) -> Result<Access> {
    if let Some(dir) = &options.path {
        return Ok(Access::Path(dir.clone()));
    }
    let claims = Claims {
        job: options.job.clone(),
        user: options.user.clone(),
        group: options.group.clone(),
        nodes: options.nodes,
        ..Claims::default()
    };
    let address = options.server.clone().context("neither a path nor a server is given")?;
    let key_file = options.key_file.clone();
    let protection = Protection::from_environment(|name| std::env::var(name).ok())?;
    let client = Client::new(ClientConfig { addresses: vec![address], timeout: TIMEOUT, claims, key_file });
    Ok(Access::Library(Box::new(client.protected(protection))))
}

fn answer(answer: &Answer) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}

struct Worker {
    access: Access,
    number: u32,
    /// Files in the directory of this worker: numbers below this.
    files: u64,
}

impl Worker {
    /// Prepares `task`; `go` says that, and returns the time of the common start.
    fn work(&mut self, task: &Task, go: &mut impl FnMut() -> Result<u64>) -> Result<Outcome> {
        match &task.operation {
            Operation::Transfer(transfer) => self.transfer(task, transfer, go),
            Operation::Create { files_max } => {
                self.access.create_dir(&self.dir()).context("mkdir")?;
                let outcome = self.count(task, *files_max, false, go, |access, name| {
                    access.open(name, Opening::CreateNew).and_then(|file| access.close(file))
                })?;
                self.files = outcome.operations;
                Ok(outcome)
            }
            Operation::Stat { files } => {
                while self.files > *files {
                    self.files -= 1;
                    self.access.unlink(&self.name(self.files))?;
                }
                self.count(task, *files, true, go, Access::stat)
            }
            Operation::Phases(phases) => self.phases(task, phases, go),
            Operation::Iterations(iterations) => self.iterations(task, iterations, go),
            Operation::Unlink { files } => {
                ensure!(*files <= self.files, "{files} files are to be removed of {}", self.files);
                self.count(task, *files, false, go, Access::unlink)
            }
        }
    }

    fn dir(&self) -> String {
        format!("dir-{}", self.number)
    }

    fn name(&self, file: u64) -> String {
        format!("dir-{}/file-{file}", self.number)
    }

    /// Does `call` for the files from 0 on until the time is over; after `files` of them it begins anew or stops.
    fn count(
        &self,
        task: &Task,
        files: u64,
        begins_anew: bool,
        go: &mut impl FnMut() -> Result<u64>,
        call: impl Fn(&Access, &str) -> std::io::Result<()>,
    ) -> Result<Outcome> {
        ensure!(files > 0, "there is no file");
        wait_until(go()? + task.delay_ns);
        let begin_ns = now_ns();
        let mut outcome = Outcome { begin_ns, end_ns: begin_ns, ..Outcome::default() };
        while (begins_anew || outcome.operations < files) && outcome.end_ns - begin_ns < task.duration_ns {
            let name = self.name(outcome.operations % files);
            call(&self.access, &name).with_context(|| name)?;
            outcome.operations += 1;
            let now = now_ns();
            outcome.longest_ns = outcome.longest_ns.max(now - outcome.end_ns);
            outcome.end_ns = now;
        }
        Ok(outcome)
    }

    fn transfer(&self, task: &Task, transfer: &Transfer, go: &mut impl FnMut() -> Result<u64>) -> Result<Outcome> {
        ensure!(transfer.block_bytes > 0 && transfer.block_bytes <= transfer.file_bytes, "bad sizes: {transfer:?}");
        let name = format!("data-{}", self.number);
        let mut block = vec![0x5a; transfer.block_bytes as usize];
        let open = || self.access.open(&name, Opening::Empty).context("open");
        let file = match transfer.file {
            FileState::Fresh => Some(open()?),
            FileState::Filled => {
                let file = open()?;
                self.fill(&file, transfer, &mut block)?;
                Some(file)
            }
            FileState::Absent => None,
        };
        let mut keeper = Keeper::new(transfer, task.delay_ns + task.duration_ns);
        let origin_ns = go()?;
        keeper.start(origin_ns);
        wait_until(origin_ns + task.delay_ns);
        let begin_ns = now_ns();
        let file = match file {
            Some(file) => file,
            None => open()?,
        };
        let mut outcome = self.blocks(&file, transfer, task.duration_ns, &mut block, &mut keeper)?;
        outcome.begin_ns = begin_ns;
        keeper.give(&mut outcome);
        self.access.close(file)?;
        self.access.unlink(&name).context("unlink")?;
        Ok(outcome)
    }

    /// Threads go through all phases together; so many are there for each file.
    fn phases(&self, task: &Task, phases: &Phases, go: &mut impl FnMut() -> Result<u64>) -> Result<Outcome> {
        ensure!(!phases.files.is_empty() && phases.streams > 0, "nobody is there to write: {phases:?}");
        let open = |name: &String| self.access.open(name, Opening::Empty).with_context(|| name.clone());
        let files: Vec<File> = phases.files.iter().map(open).collect::<Result<_>>()?;
        let (count, threads) = (files.len() as u64, files.len() as u64 * phases.streams);
        let barrier = &Barrier::new(threads as usize);
        let begin_ns = go()? + task.delay_ns;
        let stream = |thread: u64| -> Result<Vec<(u64, u64)>> {
            let block = vec![0x5a; phases.block_bytes as usize];
            // Which file its n-th block is of, and where; no two threads have the same.
            let position = |n: u64| {
                let (file, at) = if phases.goes_round { (thread + n, n) } else { (thread / phases.streams, n) };
                let lane = if phases.goes_round { thread } else { thread % phases.streams };
                let lanes = if phases.goes_round { threads } else { phases.streams };
                (&files[(file % count) as usize], (at % phases.blocks * lanes + lane) * phases.block_bytes)
            };
            // So that the connections of this thread are there before anything is measured.
            for n in 0..if phases.goes_round { count } else { 1 } {
                let (file, offset) = position(n);
                self.access.write_at(file, offset, &block)?;
            }
            barrier.wait();
            wait_until(begin_ns);
            let mut times = Vec::new();
            for iteration in 0..phases.iterations {
                if thread == 0 {
                    std::thread::sleep(Duration::from_nanos(phases.compute_ns));
                }
                barrier.wait();
                let from_ns = now_ns();
                for at in 0..phases.blocks {
                    let (file, offset) = position(iteration * phases.blocks + at);
                    self.access.write_at(file, offset, &block)?;
                }
                barrier.wait();
                times.push((from_ns, now_ns()));
            }
            Ok(times)
        };
        let stream = &stream;
        let phases_ns = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || stream(thread))).collect();
            let times: Result<Vec<_>> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            times.map(|times| times.into_iter().next().unwrap_or_default())
        })?;
        let operations = phases.iterations * phases.blocks * threads;
        files.into_iter().try_for_each(|file| self.access.close(file))?;
        let bytes = operations * phases.block_bytes;
        let io_ns = phases_ns.iter().map(|(begin, end)| end - begin).sum();
        Ok(Outcome { operations, bytes, begin_ns, end_ns: now_ns(), io_ns, phases_ns, ..Outcome::default() })
    }

    /// Says where each phase begins and ends, and how much is left.
    fn iterations(
        &self,
        task: &Task,
        iterations: &Iterations,
        go: &mut impl FnMut() -> Result<u64>,
    ) -> Result<Outcome> {
        let file = self.access.open(&iterations.file, Opening::Empty).with_context(|| iterations.file.clone())?;
        let block = vec![0x5a; iterations.bytes as usize];
        // So that connections are there, and memory, before anything is measured.
        self.access.write_at(&file, 0, &block)?;
        let begin_ns = go()? + task.delay_ns;
        wait_until(begin_ns);
        let mut io_ns = 0;
        for (at, compute_ns) in iterations.compute_ns.iter().enumerate() {
            std::thread::sleep(Duration::from_nanos(*compute_ns));
            let later: u64 = iterations.compute_ns[at + 1..].iter().sum();
            let phases_left = (iterations.compute_ns.len() - at) as u64;
            let from_ns = now_ns();
            self.access.begin_phase(iterations.bytes, Nanos(later + iterations.io_ns * phases_left))?;
            self.access.write_at(&file, 0, &block)?;
            self.access.end_phase()?;
            io_ns += now_ns() - from_ns;
        }
        let end_ns = now_ns();
        self.access.close(file)?;
        let operations = iterations.compute_ns.len() as u64;
        Ok(Outcome { operations, bytes: operations * iterations.bytes, begin_ns, end_ns, io_ns, ..Outcome::default() })
    }

    /// The timed part.
    fn blocks(
        &self,
        file: &File,
        transfer: &Transfer,
        duration_ns: u64,
        block: &mut [u8],
        keeper: &mut Keeper,
    ) -> Result<Outcome> {
        let mut offsets = Offsets::new(transfer.order, transfer.block_bytes, transfer.file_bytes);
        let is_short = transfer.block_bytes < LARGE_BYTES && transfer.log == Log::Totals;
        let calls_max = if transfer.file == FileState::Fresh { offsets.blocks() } else { u64::MAX };
        let begin_ns = now_ns();
        let (mut calls, mut end_ns, mut longest_ns) = (0, begin_ns, 0);
        while calls < calls_max && end_ns - begin_ns < duration_ns {
            for _ in 0..(if is_short { SHORT_CALLS } else { 1 }).min(calls_max - calls) {
                let offset = offsets.next();
                match transfer.direction {
                    Direction::Write => self.access.write_at(file, offset, block)?,
                    Direction::Read => self.access.read_at(file, offset, block)?,
                }
                calls += 1;
            }
            let now = now_ns();
            longest_ns = longest_ns.max(now - end_ns);
            keeper.keep(now, now - end_ns, transfer.block_bytes);
            end_ns = now;
        }
        let bytes = calls * transfer.block_bytes;
        Ok(Outcome { operations: calls, bytes, begin_ns, end_ns, longest_ns, ..Outcome::default() })
    }

    /// Fills the file, and makes sure that what comes back is what was written.
    fn fill(&self, file: &File, transfer: &Transfer, block: &mut [u8]) -> Result<()> {
        let chunk: Vec<u8> = (0..FILL_BYTES).map(|i| (i % 251) as u8).collect();
        for start in (0..transfer.file_bytes).step_by(FILL_BYTES as usize) {
            let len = FILL_BYTES.min(transfer.file_bytes - start);
            self.access.write_at(file, start, &chunk[..len as usize])?;
        }
        self.access.read_at(file, 0, block)?;
        let is_same = block.iter().zip(chunk.iter().cycle()).all(|(read, written)| read == written);
        ensure!(is_same || transfer.block_bytes > FILL_BYTES, "what was read is not what was written");
        Ok(())
    }
}

/// What is kept of single calls. Room is made beforehand.
enum Keeper {
    Totals,
    Latency(Vec<u64>),
    Slices { slice_ns: u64, span_ns: u64, slices: Slices },
}

impl Keeper {
    fn new(transfer: &Transfer, span_ns: u64) -> Self {
        match transfer.log {
            Log::Totals => Self::Totals,
            Log::Latency => Self::Latency(Vec::with_capacity(LATENCIES_MAX)),
            Log::Slices { slice_ns } => Self::Slices { slice_ns, span_ns, slices: Slices::new(0, slice_ns, span_ns) },
        }
    }

    fn start(&mut self, origin_ns: u64) {
        if let Self::Slices { slice_ns, span_ns, slices } = self {
            *slices = Slices::new(origin_ns, *slice_ns, *span_ns);
        }
    }

    #[inline]
    fn keep(&mut self, end_ns: u64, took_ns: u64, bytes: u64) {
        match self {
            Self::Totals => {}
            Self::Latency(all) => {
                if all.len() < LATENCIES_MAX {
                    all.push(took_ns);
                }
            }
            Self::Slices { slices, .. } => slices.count(end_ns, bytes),
        }
    }

    fn give(self, outcome: &mut Outcome) {
        match self {
            Self::Totals => {}
            Self::Latency(mut all) => {
                let median_ns = percentile(&mut all, 50);
                let p99_ns = percentile(&mut all, 99);
                outcome.latency = median_ns.zip(p99_ns).map(|(median_ns, p99_ns)| Latency { median_ns, p99_ns });
            }
            Self::Slices { slices, .. } => outcome.slices = slices.into_bytes(),
        }
    }
}
