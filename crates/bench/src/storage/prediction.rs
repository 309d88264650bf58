//! What the simulator says of contests, from a profile of the device that was taken before.
//!
//! The profile is that of `isonomia device profile`, in the results beside the report. Simulated are jobs that read at random;
//! what the page cache does for those that write, and what is read ahead of a stream, is not. A request of more than the
//! client's largest piece is as many pieces, of which it has some under way.

use crate::session::Session;
use crate::storage::fio::{Access, Load};
use anyhow::{Context, Result, bail, ensure};
use isonomia_sim::request::run;
use isonomia_sim::scenario::{Point, Scenario, parse};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The client's largest piece of a request through shared memory.
const PIECE_BYTES: u64 = 256 << 10;
/// Of which a process has so many under way.
const PIECES: u64 = 4;

/// A device that was measured.
pub struct Prediction {
    profile: PathBuf,
}

impl Prediction {
    /// Measures what is behind `dir` for so long; the profile goes to `profile`.
    pub fn new(session: &Session, dir: &Path, seconds: u64, profile: PathBuf) -> Result<Self> {
        let mut command = Command::new(&session.programs.isonomia);
        command
            .args(["device", "profile"])
            .arg(dir)
            .args(["--seconds", &seconds.to_string()])
            .arg("--out")
            .arg(&profile);
        let output = command.output().context("cannot start isonomia")?;
        ensure!(output.status.success(), "no profile: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Self { profile: profile.canonicalize()? })
    }

    /// Requests per second of each load, all of them jobs under `policy` that begin at once, between two seconds after that;
    /// `None` if one of them does something else than reading at random.
    pub fn rates(&self, policy: &str, loads: &[&Load], (from, to): (f64, f64)) -> Result<Option<Vec<f64>>> {
        if loads.iter().any(|load| load.access != Access::RandomRead) {
            return Ok(None);
        }
        let mut text = format!(
            "duration = \"{to}s\"\nmeasure_from = \"{from}s\"\nslowdown = false\npolicy = \"{policy}\"\n\
             [[target]]\nname = \"device\"\nprofile = {:?}\naccess = \"read-random\"\n",
            self.profile
        );
        let pieces = |load: &Load| load.block_bytes.div_ceil(PIECE_BYTES);
        for (number, load) in loads.iter().enumerate() {
            let bytes = load.block_bytes.min(PIECE_BYTES);
            writeln!(
                text,
                "[[job]]\nname = \"{number}\"\nprocesses = {}\ndepth = {}\nop = \"read\"\nrequest = \"{bytes}B\"",
                load.processes,
                pieces(load).min(PIECES),
            )?;
        }
        let points = parse(Path::new("contest.toml"), &text, None)?.points;
        let [Point { scenario: Scenario::Request { scenario, .. }, .. }] = &points[..] else {
            bail!("a contest is one scenario at request level");
        };
        let outcome = run(scenario, &mut |_| ControlFlow::Continue(()));
        let rate = |(job, load): (usize, &&Load)| outcome.jobs[job].requests as f64 / pieces(load) as f64 / (to - from);
        Ok(Some(loads.iter().enumerate().map(rate).collect()))
    }
}
