//! What the parent tells a worker process and what the worker answers, one JSON object a line:
//! a [`Task`], [`Answer::Ready`], a [`Go`], [`Answer::Done`]; then the next task, or the end of the input.

use serde::{Deserialize, Serialize};

/// Something to do for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// What.
    pub operation: Operation,
    /// For how long at most, from the worker's own start.
    pub duration_ns: u64,
    /// This worker begins so long after the common start.
    pub delay_ns: u64,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Reads or writes of one file of the worker's own.
    Transfer(Transfer),
    /// Creates and closes empty files in a directory of the worker's own, `files_max` at most.
    Create {
        /// The limit.
        files_max: u64,
    },
    /// Looks at the first `files` of them by path, one after the other; those beyond are removed beforehand.
    Stat {
        /// How many.
        files: u64,
    },
    /// Removes the first `files` of them.
    Unlink {
        /// How many.
        files: u64,
    },
    /// Computes and writes alternately.
    Phases(Phases),
    /// The same, and says where its phases begin and end.
    Iterations(Iterations),
}

/// Phases of computing, then writing in one call, of which the server is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iterations {
    /// In the root; made by the worker.
    pub file: String,
    /// Before each phase.
    pub compute_ns: Vec<u64>,
    /// How long a phase takes alone.
    pub io_ns: u64,
    /// Written in each phase.
    pub bytes: u64,
}

/// Phases of computing, then writing, in one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Made by the worker, all written in each phase, from the beginning.
    pub files: Vec<String>,
    /// Threads for each file.
    pub streams: u64,
    /// Each thread goes round all files, a block of each at a time; if not, it keeps to one.
    pub goes_round: bool,
    /// Before each phase.
    pub compute_ns: u64,
    /// Blocks that each thread writes in a phase.
    pub blocks: u64,
    /// Bytes of one call.
    pub block_bytes: u64,
    /// How many phases.
    pub iterations: u64,
}

/// A stream of blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Read or write.
    pub direction: Direction,
    /// Which block comes next.
    pub order: Order,
    /// Bytes of one call.
    pub block_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What the file is at the start.
    pub file: FileState,
    /// What is kept besides the totals.
    pub log: Log,
}

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// `pread`.
    Read,
    /// `pwrite`.
    Write,
}

/// Which block comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The following one.
    Sequential,
    /// Any; each once in a pass.
    Random,
}

/// What the file is at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// Empty; the task ends when the file is full.
    Fresh,
    /// Full; the task goes through it again and again.
    Filled,
    /// Not there: created by the task itself, as its first request to the server, and then written again and again.
    Absent,
}

/// What is kept besides the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Log {
    /// Nothing.
    Totals,
    /// The time of each call.
    Latency,
    /// Bytes completed in each slice of time from the common start.
    Slices {
        /// Length of a slice.
        slice_ns: u64,
    },
}

/// The common start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Go {
    /// `CLOCK_MONOTONIC`.
    pub at_ns: u64,
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Prepared for the task.
    Ready,
    /// The task was done.
    Done(Outcome),
    /// It was not, for this reason.
    Failed(String),
}

/// What came out of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls, or files.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// When the first call began.
    pub begin_ns: u64,
    /// When the last call ended.
    pub end_ns: u64,
    /// The longest call, or the longest few where the clock is not looked at after each.
    pub longest_ns: u64,
    /// With [`Log::Latency`].
    pub latency: Option<Latency>,
    /// With [`Log::Slices`]; empty otherwise.
    pub slices: Vec<u64>,
    /// Of [`Operation::Phases`]: from the first thread's first call to the last thread's last one, all phases together.
    #[serde(default)]
    pub io_ns: u64,
    /// Of [`Operation::Phases`]: when each began and ended.
    #[serde(default)]
    pub phases_ns: Vec<(u64, u64)>,
}

/// Times of single calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the calls took less.
    pub median_ns: u64,
    /// 99 of 100 took less.
    pub p99_ns: u64,
}
