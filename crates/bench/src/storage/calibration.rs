//! What reads through us take of this machine's processors, which no profile of a device has: measured before the contests.
//!
//! All of it counts, the program's, the server's, the kernel's, and that of an emulated device, for they share the processors.
//!
//! A short read that finds its bytes in memory takes a part of what one takes that waits, and how many do depends on how much of a file
//! was read before. So those that wait are measured where hardly any is found, with some reads of each file, and those that are found
//! where all are. Of long reads the mean of both is measured.

use crate::host::ProcessorTimes;
use crate::storage::fio::{Access, Load, Sync};
use crate::storage::{Bench, KIB, THROUGH_US};
use anyhow::Result;
use isonomia_sim::contest::ReadTimes;
use isonomia_sim::request::Processors;
use isonomia_units::{Nanos, Rate};
use std::num::NonZeroU32;

const SMALL: u64 = 4 * KIB;
/// The largest request of a client.
const LARGE: u64 = 256 * KIB;
/// Enough to keep processors busy, or what a slow device leaves of them.
const PROCESSES: u32 = 16;
/// Of so many bytes of a file one is read: next to nothing of a file of which a twelfth is read is found in memory.
const SAMPLE: u64 = 12;
/// This part of what was read is read again.
const AGAIN: f64 = 0.8;

/// Measures it, keeps it beside the contests' figures, and simulates them with it from here on.
pub fn run(bench: &mut Bench) -> Result<()> {
    eprintln!("isonomia-bench: measuring what reads from {} take of the processors", bench.device.name());
    let sample = |processes| {
        Some(bench.pool.files as u64 / u64::from(processes) * bench.pool.file_bytes / SAMPLE / SMALL * SMALL)
    };
    let (small_ns, calls) = used(bench, SMALL, sample(PROCESSES), Memory::Empty)?;
    // Blocks of these again, as fio draws the same numbers each time; fewer, as not each process has made as many calls.
    let again = Some((calls * AGAIN / f64::from(PROCESSES)).max(1.0) as u64 * SMALL);
    let (found_ns, _) = used(bench, SMALL, again, Memory::AsItIs)?;
    let (large_ns, _) = used(bench, LARGE, None, Memory::Empty)?;
    let alone = bench.alone(&reading(bench, SMALL, 1, sample(1)), Some("calibration"))?;
    let reads = ReadTimes { waiting: processors(small_ns, large_ns), found: processors(found_ns, large_ns) };
    bench.prediction.calibrate(reads, Nanos((1e9 / alone.iops) as u64));
    for (what, ns) in [("4 KiB", small_ns), ("4 KiB that was read before", found_ns), ("256 KiB", large_ns)] {
        bench.keep(&format!("a read of {what}: processor time"), THROUGH_US, "us", ns / 1e3, None, None);
    }
    Ok(())
}

/// Whether the kernel forgets the files before they are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Empty,
    AsItIs,
}

/// What such a read takes of processors, in nanoseconds: what many, of so many bytes a process at most, take more than those with which
/// programs begin. And how many those were.
fn used(bench: &Bench, bytes: u64, bytes_max: Option<u64>, memory: Memory) -> Result<(f64, f64)> {
    let busy = |bytes_max| -> Result<(f64, f64)> {
        let load = reading(bench, bytes, PROCESSES, bytes_max);
        let before = ProcessorTimes::now();
        let done = match memory {
            Memory::Empty => bench.alone(&load, Some("calibration"))?,
            Memory::AsItIs => bench.again(&load, "calibration")?,
        };
        Ok((ProcessorTimes::now().busy_since(before).0 as f64, done.iops * done.seconds))
    };
    let (first, many) = (busy(Some(bytes))?, busy(bytes_max)?);
    Ok(((many.0 - first.0).max(0.0) / (many.1 - first.1).max(1.0), many.1))
}

/// Reads at random, as those of contests.
fn reading(bench: &Bench, block_bytes: u64, processes: u32, bytes_max: Option<u64>) -> Load {
    Load {
        access: Access::RandomRead,
        block_bytes,
        processes,
        sync: Sync::Never,
        is_direct: false,
        runs_for: Some(bench.configuration.turn()),
        is_endless: false,
        bytes_max,
    }
}

/// The time of an operation, and the bandwidth, of which two sizes take so long.
fn processors(small_ns: f64, large_ns: f64) -> Processors {
    let count = std::thread::available_parallelism().map_or(NonZeroU32::MIN, |count| {
        u32::try_from(count.get()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
    });
    let bytes_per_ns = (LARGE - SMALL) as f64 / (large_ns - small_ns).max(0.0);
    let bandwidth = Rate::new((bytes_per_ns * 1e9).min(u64::MAX as f64) as u64).filter(|_| bytes_per_ns.is_finite());
    let copying_ns = SMALL as f64 / bytes_per_ns;
    Processors { count, per_request: Nanos((small_ns - copying_ns).max(0.0) as u64), bandwidth }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Bytes;

    #[test]
    fn both_sizes_take_what_they_took() {
        let found = processors(30_000.0, 150_000.0);
        for (bytes, ns) in [(SMALL, 30_000.0), (LARGE, 150_000.0)] {
            let time = found.time(Bytes(bytes)).0 as f64;
            assert!((time / ns - 1.0).abs() < 0.001, "{bytes}: {time}");
        }
    }

    #[test]
    fn bytes_take_no_time_where_large_reads_took_no_more() {
        for large_ns in [30_000.0, 20_000.0] {
            let found = processors(30_000.0, large_ns);
            assert_eq!((found.per_request, found.bandwidth), (Nanos(30_000), None));
        }
    }
}
