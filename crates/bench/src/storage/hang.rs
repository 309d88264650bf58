//! Two targets on a device each, one of which answers nothing for a while: what jobs on the other still get.

use crate::clock::now_ns;
use crate::harness::Harness;
use crate::report::Must;
use crate::server::{ServerOptions, ServerProcess};
use crate::storage::fio::{Access, Fio, Load, Sync};
use crate::storage::place::{Emulated, Place};
use crate::storage::pool::{Pool, forget};
use crate::storage::{Configuration, Figures, KIB, PATIENCE, THROUGH_US, targets};
use anyhow::{Context, Result, ensure};
use isonomia_proto::control::Status;
use isonomia_units::{Ino, Nanos};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

pub const NAME: &str = "hang";
const DEVICE: Emulated = Emulated { latency: "5ms", channels: 0, bandwidth: None, size: "1GiB" };
/// Of what they get before.
const LEAST: f64 = 0.95;
/// Processes of each job.
const PROCESSES: u32 = 4;
const FILES: usize = 16;
const FILE_BYTES: u64 = 24 << 20;
const POLL: Duration = Duration::from_millis(20);
/// A job on the device that hangs, and two on the other one.
const JOBS: [(&str, Access); 3] =
    [("hanging", Access::RandomRead), ("reader", Access::RandomRead), ("writer", Access::RandomWrite)];

pub fn run(session: &Harness, configuration: &Configuration, logs: &Path, figures: &mut Figures) -> Result<()> {
    for repeat in 1..=configuration.repeats {
        eprintln!("isonomia-bench: repeat {repeat} of {}, one of two targets hangs", configuration.repeats);
        let places = [Place::emulated(session, &DEVICE)?, Place::emulated(session, &DEVICE)?];
        let workers = configuration.server_workers;
        let options = ServerOptions { workers, targets: targets([&places[0], &places[1]]), ..ServerOptions::default() };
        let mut server = ServerProcess::start(session, "server-hang", &options, &logs.join("server-hang.log"))?;
        server.set_policy("job-fair")?;
        contest(session, configuration, &mut server, &places, figures)?;
    }
    Ok(())
}

fn contest(
    session: &Harness,
    configuration: &Configuration,
    server: &mut ServerProcess,
    places: &[Place; 2],
    figures: &mut Figures,
) -> Result<()> {
    let pool = Pool::new(&places[0], FILES, FILE_BYTES);
    let inodes = pool.fill_served(session, server)?;
    for place in places {
        forget(place.cached())?;
    }
    let on_first = objects(&places[0].dir().join("target"))?;
    let (slow, fast): (Vec<_>, Vec<_>) =
        pool.names().into_iter().zip(inodes).partition(|(_, inode)| on_first.contains(inode));
    let names = |files: Vec<(String, Ino)>| files.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (slow, fast) = (names(slow), names(fast));
    let half = fast.len() / 2;
    ensure!(slow.len() >= PROCESSES as usize && half >= PROCESSES as usize, "files are not on both targets");
    let (turn, hang) = (configuration.turn(), Nanos(configuration.hang_ns));
    let parts = [&slow[..], &fast[..half], &fast[half..]];
    let mut programs = Vec::new();
    for ((job, access), files) in JOBS.into_iter().zip(parts) {
        let sync = if access.is_write() { Sync::Every(1) } else { Sync::Never };
        // The looks take a little, and the programs begin one after the other.
        let runs_for = Some(Nanos(turn.0 + hang.0 + turn.0));
        let load = Load {
            access,
            block_bytes: 4 * KIB,
            processes: PROCESSES,
            sync,
            is_direct: false,
            runs_for,
            is_endless: false,
            bytes_max: None,
        };
        programs.push(Fio::start(session, job, &load, Some((&*server, job)), &pool, files)?);
    }
    let deadline_ns = now_ns() + PATIENCE.as_nanos() as u64;
    while !JOBS.iter().all(|(job, _)| bytes(&server.status().ok(), job) > 0) {
        ensure!(now_ns() < deadline_ns, "the jobs do not begin");
        session.nap(POLL)?;
    }
    let before = watch(session, server, turn.0 * 3 / 4)?;
    let hanging = places[0].device().context("an emulated device is one")?.hang()?;
    let during = watch(session, server, hang.0)?;
    drop(hanging);
    for ((job, access), (before, during)) in JOBS.into_iter().zip(before.into_iter().zip(during)) {
        let verb = if access.is_write() { "writing and flushing" } else { "reading" };
        let is_other = job != JOBS[0].0;
        let place = if is_other { "on the other target" } else { "on the target that hangs" };
        let name = format!("one of two targets hangs: {PROCESSES} processes {verb} 4 KiB {place}");
        figures.keep(format!("{name}, before"), THROUGH_US, "op/s", before / 4096.0, None, None);
        figures.keep(format!("{name}, meanwhile"), THROUGH_US, "op/s", during / 4096.0, None, None);
        let must = is_other.then(|| Must::at_least(LEAST));
        figures.keep(format!("{name}, meanwhile / before"), THROUGH_US, "x", during / before, None, must);
    }
    // Those on the device that hung go on, and nobody was told of an error.
    programs
        .into_iter()
        .try_for_each(|program| program.finish(session, PATIENCE + Duration::from_nanos(hang.0)).map(drop))
}

/// Bytes per second of each job for `ns` from now on.
fn watch(session: &Harness, server: &mut ServerProcess, ns: u64) -> Result<[f64; JOBS.len()]> {
    let (began, before) = (now_ns(), Some(server.status()?));
    while now_ns() < began + ns {
        session.nap(POLL)?;
    }
    let (ended, after) = (now_ns(), Some(server.status()?));
    let seconds = (ended - began) as f64 / 1e9;
    Ok(JOBS.map(|(job, _)| (bytes(&after, job) - bytes(&before, job)) as f64 / seconds))
}

fn bytes(status: &Option<Status>, job: &str) -> u64 {
    let found = status.iter().flat_map(|status| &status.jobs).find(|one| one.job == job);
    found.map_or(0, |one| one.read_bytes_total + one.written_bytes_total)
}

/// Numbers of the objects of a target, which are those of the files they belong to.
fn objects(target: &Path) -> Result<HashSet<Ino>> {
    let mut found = HashSet::new();
    for dir in std::fs::read_dir(target.join("objects"))? {
        for object in std::fs::read_dir(dir?.path())? {
            let name = object?.file_name();
            let number = name.to_str().and_then(|name| name.split('.').next());
            found.extend(number.and_then(|number| u64::from_str_radix(number, 16).ok()).map(Ino));
        }
    }
    Ok(found)
}
