//! One job, through us and without us.

use crate::report::Must;
use crate::storage::fio::{Access, Load, Sync};
use crate::storage::prediction::Measured;
use crate::storage::{Bench, Configuration, Device, HANDED_OVER, KIB, MIB, THROUGH_US, WITHOUT_US, bare};
use anyhow::Result;
use isonomia_units::Nanos;

pub const NAME: &str = "throughput";
/// What is asked of the throughput through us.
const LEAST: f64 = 0.90;
/// Bytes that all processes write between them where what counts is their last flush.
const BULK_BYTES: u64 = 512 * MIB;

/// Whether a row on `device` is called like `text`.
pub fn has_row(configuration: &Configuration, device: Device, text: &str) -> bool {
    rows(configuration, device).iter().any(|(name, _)| name.contains(text))
}

pub fn run(bench: &mut Bench, repeat: u32) -> Result<()> {
    let wanted = bench.configuration.rows.as_deref().unwrap_or_default();
    for (what, load) in rows(bench.configuration, bench.device) {
        if !what.contains(wanted) {
            continue;
        }
        let mut done = [None; 2];
        let lanes = if repeat.is_multiple_of(2) { [1, 0] } else { [0, 1] };
        for lane in lanes {
            done[lane] = Some(bench.alone(&load, (lane == 1).then_some("speed"))?);
        }
        let [Some(without), Some(through)] = done else { unreachable!("both lanes were measured") };
        let (unit, of) = if load.block_bytes < 64 * KIB { ("op/s", 0) } else { ("MiB/s", 1) };
        let value = |done: super::fio::Done| [done.iops, done.mib_per_s][of];
        bench.keep(&what, WITHOUT_US, unit, value(without), None, None);
        handed_over(bench, &what, &load, (unit, value(without)))?;
        bench.keep(&what, THROUGH_US, unit, value(through), Some(value(without)), Some(Must::ratio(LEAST)));
        let span = Nanos::ZERO..Nanos((through.seconds * 1e9) as u64);
        let measured = Measured { what: "", value: through.iops, unit: "op/s", of: |one| one.calls_per_s };
        bench.keep_predicted(&what, "job-fair", &[("speed", &load, Nanos::ZERO)], span, &[measured])?;
    }
    Ok(())
}

/// What there is of `load` where its calls are handed over and nothing else is done, beside what there is without us.
fn handed_over(bench: &mut Bench, what: &str, load: &Load, (unit, without): (&'static str, f64)) -> Result<()> {
    bench.forget()?;
    match bench.session.undisturbed(|| Ok(bare::calls_per_s(load, &bench.pool))) {
        Ok(Ok(calls)) => {
            let value = if unit == "op/s" { calls } else { calls * load.block_bytes as f64 / MIB as f64 };
            bench.keep(what, HANDED_OVER, unit, value, Some(without), None);
        }
        Ok(Err(error)) => eprintln!("isonomia-bench: {what}: not handed over: {error:#}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The loads, with their rows' names.
fn rows(configuration: &Configuration, device: Device) -> Vec<(String, Load)> {
    let processes: &[u32] = match device {
        _ if configuration.is_quick => &[4],
        Device::Parallel => &[16, 128],
        Device::Glusterfs | Device::GlusterfsDelayed => &[1, 16],
        _ => &[1, 8, 32],
    };
    let named = |processes: &u32| {
        let processes = *processes;
        let loads = loads(configuration, device, processes).into_iter();
        loads.map(move |(name, load)| (format!("{name}, {processes} processes"), load))
    };
    processes.iter().flat_map(named).collect()
}

fn loads(configuration: &Configuration, device: Device, processes: u32) -> Vec<(String, Load)> {
    // What the disk itself does is told with O_DIRECT; elsewhere the programs that read are as most are.
    let is_direct = device == Device::Disk;
    let large = if is_direct { MIB } else { 256 * KIB };
    let mut loads = Vec::new();
    for (size, block_bytes) in [("4 KiB", 4 * KIB), (if is_direct { "1 MiB" } else { "256 KiB" }, large)] {
        let (read, write) = match (is_direct, block_bytes) {
            (true, MIB) => (Access::SequentialRead, Access::SequentialWrite),
            _ => (Access::RandomRead, Access::RandomWrite),
        };
        let order = if read == Access::SequentialRead { "sequential" } else { "random" };
        let runs_for = Some(configuration.turn());
        let load = Load {
            access: read,
            block_bytes,
            processes,
            sync: Sync::Never,
            is_direct,
            runs_for,
            is_endless: false,
            bytes_max: None,
        };
        loads.push((format!("read {size} {order}"), load.clone()));
        let each = Load { access: write, sync: Sync::Every(1), is_direct: false, ..load };
        loads.push((format!("write {size} {order}, fdatasync after each"), each.clone()));
        // Without us that is what the device itself does, as each call waits for it. The last flush, whose time counts, has
        // both bring the same to the device.
        let direct = Load { sync: Sync::AtEnd, is_direct: true, ..each.clone() };
        loads.push((format!("write {size} {order}, direct"), direct));
        let bytes_max = Some(BULK_BYTES / u64::from(processes) / block_bytes * block_bytes);
        let bulk = Load { sync: Sync::AtEnd, runs_for: None, bytes_max, ..each };
        loads.push((format!("write {size} {order}, fsync at the end"), bulk));
    }
    loads
}
