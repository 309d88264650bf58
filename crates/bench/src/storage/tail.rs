//! A job of small reads beside a bulk writer: what one of a hundred reads waits, through us under `job-fair`, and without
//! anybody between the programs and the device; and through us with the reader in a latency class, which has a target.

use crate::report::Must;
use crate::storage::fio::{Access, Done, Load, Sync};
use crate::storage::pool::Pool;
use crate::storage::prediction::Measured;
use crate::storage::{Bench, KIB, MIB, THROUGH_US, WITHOUT_US};
use anyhow::Result;
use isonomia_sim::contest::Predicted;
use isonomia_units::Nanos;
use std::time::Duration;

pub const NAME: &str = "tail";
/// So many times shorter.
const LEAST: f64 = 10.0;
const WRITERS: u32 = 4;
const JOBS: [&str; 2] = ["reader", "writer"];
/// A writer flushes each file before it goes on to the next: `fdatasync` is of one file.
fn writes(pool: &Pool) -> u32 {
    (pool.file_bytes / MIB) as u32
}

pub fn run(bench: &mut Bench, repeat: u32) -> Result<()> {
    let turn = bench.configuration.turn();
    // The writers begin before the reader and end after it.
    let around = Nanos(turn.0 / 4);
    let reader = Load {
        access: Access::RandomRead,
        block_bytes: 4 * KIB,
        processes: 1,
        sync: Sync::Never,
        is_direct: false,
        runs_for: Some(turn),
        is_endless: false,
        bytes_max: None,
    };
    let writer = Load {
        access: Access::SequentialWrite,
        block_bytes: MIB,
        processes: WRITERS,
        sync: Sync::Every(writes(&bench.pool)),
        runs_for: Some(Nanos(turn.0 + 3 * around.0)),
        is_endless: true,
        ..reader.clone()
    };
    let mut done = [None; 2];
    let lanes = if repeat.is_multiple_of(2) { [1, 0] } else { [0, 1] };
    for lane in lanes {
        let session = bench.session;
        let turn = || beside(bench, (lane == 1).then_some(JOBS), &reader, &writer, around);
        done[lane] = Some(session.undisturbed(turn)?);
    }
    let [Some(without), Some(through)] = done else { unreachable!("both lanes were measured") };
    let what = format!("4 KiB reads of 1 process beside {WRITERS} writing 1 MiB");
    for (way, (read, written)) in [(WITHOUT_US, without), (THROUGH_US, through)] {
        bench.keep(&format!("{what}: median"), way, "us", read.p50_us, None, None);
        bench.keep(&format!("{what}: 99th percentile"), way, "us", read.p99_us, None, None);
        bench.keep(&format!("{what}: the writers"), way, "MiB/s", written.mib_per_s, None, None);
    }
    predict(bench, &what, "job-fair", [&reader, &writer], around, through.0.p99_us)?;
    let better = without.0.p99_us / through.0.p99_us;
    bench.keep(
        &format!("{what}: 99th percentile, times shorter"),
        THROUGH_US,
        "x",
        better,
        None,
        Some(Must::at_least(LEAST)),
    );
    in_class(bench, &what, &reader, &writer, around)
}

/// The same with the reader in a latency class.
fn in_class(bench: &mut Bench, what: &str, reader: &Load, writer: &Load, around: Nanos) -> Result<()> {
    let target = bench.device.latency_target();
    let policy = format!("job-fair+latency{{p99={}us,job:reader}}", target.0 / 1_000);
    bench.server.set_policy(&policy)?;
    let session = bench.session;
    let done = session.undisturbed(|| beside(bench, Some(JOBS), reader, writer, around));
    bench.server.set_policy("job-fair")?;
    let (read, written) = done?;
    let what = format!("{what}, in a latency class");
    let most = Must::at_most(target.0 as f64 / 1e3);
    bench.keep(&format!("{what}: 99th percentile"), THROUGH_US, "us", read.p99_us, None, Some(most));
    bench.keep(&format!("{what}: the writers"), THROUGH_US, "MiB/s", written.mib_per_s, None, None);
    predict(bench, &what, &policy, [reader, writer], around, read.p99_us)
}

/// What the simulator says of the reader. How fast the writers write to memory and how often they flush is of the host.
fn predict(
    bench: &mut Bench,
    what: &str,
    policy: &str,
    [reader, writer]: [&Load; 2],
    around: Nanos,
    p99_us: f64,
) -> Result<()> {
    let jobs = [(JOBS[0], reader, around), (JOBS[1], writer, Nanos::ZERO)];
    let of: fn(&Predicted) -> f64 = |one| one.p99.0 as f64 / 1e3;
    let measured = Measured { what: "99th percentile, ", value: p99_us, unit: "us", of };
    bench.keep_predicted(what, policy, &jobs, around..around + bench.configuration.turn(), &[measured])
}

/// What the reader and the writers did.
fn beside(bench: &Bench, jobs: Option<[&str; 2]>, reader: &Load, writer: &Load, around: Nanos) -> Result<(Done, Done)> {
    bench.forget()?;
    let half = bench.pool.files / 2;
    let writing = bench.start("writer", writer, jobs.map(|jobs| jobs[1]), half)?;
    bench.session.nap(Duration::from_nanos(around.0))?;
    let reading = bench.start("reader", reader, jobs.map(|jobs| jobs[0]), 0)?;
    let read = reading.finish(bench.session, bench.patience())?;
    Ok((read, writing.finish(bench.session, bench.patience())?))
}
