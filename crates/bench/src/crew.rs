//! The client processes of one job or one row: they prepare, begin at the same instant, and are waited for.

use crate::clock::now_ns;
use crate::harness::{Harness, start};
use crate::task::{Answer, Go, Outcome, Task};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// A worker that takes longer than its task by this much is stuck.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Between two looks for an interruption.
const POLL: Duration = Duration::from_millis(50);
/// From the message to the common start: every worker has read it by then.
const LEAD_NS: u64 = 20_000_000;

/// Worker processes, ended when dropped.
pub struct Crew {
    what: String,
    workers: Vec<Worker>,
}

struct Worker {
    child: Child,
    tasks: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Crew {
    /// Starts one worker for each command; `what` names them in errors.
    pub fn start(what: &str, commands: impl IntoIterator<Item = Command>) -> Result<Self> {
        let mut crew = Self { what: what.to_owned(), workers: Vec::new() };
        for mut command in commands {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = start(&mut command, Signal::KILL)?;
            let (tasks, stdout) = (child.stdin.take(), child.stdout.take());
            let (sender, lines) = mpsc::channel();
            crew.workers.push(Worker { child, tasks, lines });
            let stdout = stdout.context("a worker has no standard output")?;
            // Ends with the worker at the latest, for then the pipe is closed.
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(crew)
    }

    /// Gives every worker its task and waits until all are prepared.
    pub fn prepare(&mut self, harness: &Harness, task: &Task) -> Result<()> {
        self.tell_all(task)?;
        for index in 0..self.workers.len() {
            match self.answer(harness, index, PATIENCE_NS)? {
                Answer::Ready => {}
                other => bail!("worker {index} of {} answers {other:?} to a task", self.what),
            }
        }
        Ok(())
    }

    /// Lets the workers begin at `at_ns`.
    pub fn go(&mut self, at_ns: u64) -> Result<()> {
        self.tell_all(&Go { at_ns })
    }

    /// Waits until all have done `task`.
    pub fn collect(&mut self, harness: &Harness, task: &Task) -> Result<Vec<Outcome>> {
        let patience_ns = task.delay_ns + task.duration_ns + PATIENCE_NS;
        (0..self.workers.len())
            .map(|index| match self.answer(harness, index, patience_ns)? {
                Answer::Done(outcome) => Ok(outcome),
                other => bail!("worker {index} of {} answers {other:?} to the start", self.what),
            })
            .collect()
    }

    /// All of it.
    pub fn run(&mut self, harness: &Harness, task: &Task) -> Result<Vec<Outcome>> {
        self.prepare(harness, task)?;
        self.go(start_ns())?;
        self.collect(harness, task)
    }

    fn tell_all(&mut self, message: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(message)? + "\n";
        for worker in &mut self.workers {
            let tasks = worker.tasks.as_mut().context("a worker has no standard input")?;
            tasks.write_all(line.as_bytes()).with_context(|| format!("a worker of {} is gone", self.what))?;
        }
        Ok(())
    }

    fn answer(&mut self, harness: &Harness, index: usize, patience_ns: u64) -> Result<Answer> {
        let worker = &mut self.workers[index];
        let deadline_ns = now_ns() + patience_ns;
        loop {
            harness.check()?;
            match worker.lines.recv_timeout(POLL) {
                Ok(line) => match serde_json::from_str(&line)? {
                    Answer::Failed(reason) => bail!("worker {index} of {} failed: {reason}", self.what),
                    answer => return Ok(answer),
                },
                Err(RecvTimeoutError::Timeout) if now_ns() < deadline_ns => {}
                Err(RecvTimeoutError::Timeout) => {
                    let s = patience_ns / 1_000_000_000;
                    bail!("worker {index} of {} (pid {}) is stuck for {s} s", self.what, worker.child.id())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = worker.child.wait()?;
                    bail!("worker {index} of {} ended: {status}", self.what)
                }
            }
        }
    }
}

/// A common start soon.
pub fn start_ns() -> u64 {
    now_ns() + LEAD_NS
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // An idle worker ends by itself at the end of its input; a busy one is not waited for.
            worker.tasks = None;
            let _ = worker.child.kill();
        }
        for worker in &mut self.workers {
            if let Err(error) = worker.child.wait() {
                eprintln!("isonomia-bench: cannot wait for a worker of {}: {error}", self.what);
            }
        }
    }
}
