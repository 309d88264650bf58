//! What the simulator says of contests, from a profile of the device that was taken before.
//!
//! The profile is that of `isonomia device profile`, in the results beside the report. Contests are simulated by the
//! dispatcher, the arbiters, and the rules of the server: see [`contest`](isonomia_sim::contest). What of processors a request
//! takes is of the machine, and is measured through the server ([`calibration`](super::calibration)). Those of which a profile does
//! not tell enough are not: the report remarks upon them, with the reason.

use crate::harness::Harness;
use crate::report::Must;
use crate::storage::Bench;
use crate::storage::fio::{Access as Call, Load};
use anyhow::{Context, Result, bail, ensure};
use isonomia_policy::Access;
use isonomia_policy::device::chunks::SMALL_READ;
use isonomia_sim::contest::{Predicted, Program, ReadTimes, TRANSFER_BYTES, TRANSFERS, Unpredicted, simulate};
use isonomia_sim::request::{Device, Target};
use isonomia_sim::scenario::{Point, Scenario, parse};
use isonomia_transport::channel::Channel;
use isonomia_units::{Bytes, Nanos};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The way of rows that nobody measured.
const SIMULATED: &str = "simulated";
/// How far the simulator may be off.
const OFF_MAX: f64 = 0.1;

/// A device that was measured, and what of the machine its requests need.
pub struct Prediction {
    device: Target,
    reads: Option<ReadTimes>,
    /// The length of the files that are read.
    file: Bytes,
}

// What is simulated of clients is as it is.
const _: () = assert!(TRANSFER_BYTES == Channel::PAYLOAD_LEN_MAX as u64 && TRANSFERS == Channel::DEPTH as u64);

/// A figure that was measured, beside which the simulated one is put.
pub struct Measured<'a> {
    /// What the row says of it, with what parts it from the rest: ", " at its end, or nothing.
    pub what: &'a str,
    /// As it is.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The same of what is simulated.
    pub of: fn(&Predicted) -> f64,
}

impl Prediction {
    /// Measures what is behind `dir` for so long; the profile goes to `profile`. Programs read files of the length `file`.
    pub fn new(session: &Harness, dir: &Path, seconds: u64, profile: PathBuf, file: Bytes) -> Result<Self> {
        let mut command = Command::new(&session.programs.isonomia);
        command
            .args(["device", "profile"])
            .arg(dir)
            .args(["--seconds", &seconds.to_string()])
            .arg("--out")
            .arg(&profile);
        let output = command.output().context("cannot start isonomia")?;
        ensure!(output.status.success(), "no profile: {}", String::from_utf8_lossy(&output.stderr).trim());
        Self::of_profile(&profile.canonicalize()?, file)
    }

    /// What such a profile says.
    fn of_profile(profile: &Path, file: Bytes) -> Result<Self> {
        let text = format!(
            "duration = \"1s\"\nslowdown = false\n[[target]]\nname = \"device\"\nprofile = {profile:?}\n\
             [[job]]\nname = \"job\"\nop = \"read\"\nrequest = \"4KiB\"\n",
        );
        let points = parse(Path::new("contest.toml"), &text, None)?.points;
        let Some(Point { scenario: Scenario::Request { mut scenario, .. }, .. }) = points.into_iter().next() else {
            bail!("a contest is one scenario at request level");
        };
        Ok(Self { device: scenario.targets.swap_remove(0), reads: None, file })
    }

    /// From here on processors are simulated, of which reads take what `reads` say, and a small one that waits takes `alone`, from
    /// the program's call to its end, with nobody beside.
    ///
    /// What the profile has of a read contains its path through the kernel, and so does what it takes of a processor. How much
    /// the two have in common is what they come to together more than `alone`.
    pub fn calibrate(&mut self, reads: ReadTimes, alone: Nanos) {
        if let Device::Channels(device) = &mut self.device.device {
            let separate = reads.waiting.time(SMALL_READ) + device.time_alone(Access::ReadRandom, SMALL_READ);
            *device = device.less(separate.since(alone));
            self.reads = Some(reads);
        }
    }

    /// What jobs with these loads have of it under `policy`, each from its own time on, in the time `span`.
    fn of_contest(
        &self,
        policy: &str,
        jobs: &[(&str, &Load, Nanos)],
        span: Range<Nanos>,
    ) -> Result<Result<Vec<Predicted>, Unpredicted>> {
        let policy = policy.parse().with_context(|| format!("{policy} is no policy"))?;
        let target = Target { policy, ..self.device.clone() };
        let program = |(job, load, start): &(&str, &Load, Nanos)| Program {
            job: (*job).to_owned(),
            access: access(load.access),
            call: Bytes(load.block_bytes),
            file: Some(self.file),
            processes: load.processes,
            start: *start,
        };
        Ok(simulate(&target, self.reads, &jobs.iter().map(program).collect::<Vec<_>>(), span))
    }
}

fn access(call: Call) -> Access {
    match call {
        Call::RandomRead => Access::ReadRandom,
        Call::SequentialRead => Access::ReadSequential,
        Call::RandomWrite => Access::WriteRandom,
        Call::SequentialWrite => Access::WriteSequential,
    }
}

impl Bench<'_> {
    /// Puts what is simulated of a contest beside what was `measured` of it: something of each job, or of the first ones.
    pub fn keep_predicted(
        &mut self,
        name: &str,
        policy: &str,
        jobs: &[(&str, &Load, Nanos)],
        span: Range<Nanos>,
        measured: &[Measured<'_>],
    ) -> Result<()> {
        match self.prediction.of_contest(policy, jobs, span)? {
            Ok(predicted) => {
                for (one, Measured { what, value, unit, of }) in predicted.iter().zip(measured) {
                    let what = format!("{name}: {what}over what was measured");
                    self.keep(&what, SIMULATED, unit, of(one), Some(*value), Some(Must::ratio_near(OFF_MAX)));
                }
            }
            Err(reason) => self.pass_over(name, &reason),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::fio::Sync;
    use std::io::Write;

    /// 4 channels on which a request takes a millisecond, whatever its length.
    #[test]
    fn a_contest_is_simulated_from_a_profile() {
        let mut profile = tempfile::NamedTempFile::new().unwrap();
        let text = "dir = \"/d\"\nis_direct = true\n[costs.read-random]\nper_op = 250000\nbandwidth = 1000000000000\n\
                    error = 0.0\nparallel = 4\n";
        profile.write_all(text.as_bytes()).unwrap();
        let prediction = Prediction::of_profile(profile.path(), Bytes(1 << 40)).unwrap();
        let load = |access, processes| Load {
            access,
            block_bytes: 4096,
            processes,
            sync: Sync::Never,
            is_direct: false,
            runs_for: None,
            is_endless: true,
            bytes_max: None,
        };
        let span = Nanos::from_secs(1)..Nanos::from_secs(3);
        let rates = |loads: &[Load]| {
            let jobs: Vec<_> = loads.iter().map(|load| ("job", load, Nanos::ZERO)).collect();
            prediction.of_contest("job-fair", &jobs[..], span.clone()).unwrap()
        };
        let one = rates(&[load(Call::RandomRead, 1)]).unwrap()[0].calls_per_s;
        let many = rates(&[load(Call::RandomRead, 16)]).unwrap()[0].calls_per_s;
        assert!((one / 1e3 - 1.0).abs() < 0.01 && (many / 4e3 - 1.0).abs() < 0.01, "{one}, {many}");
        assert_eq!(rates(&[load(Call::RandomWrite, 4)]), Err(Unpredicted::WritesAlone));
        assert_eq!(rates(&[load(Call::SequentialRead, 4)]), Err(Unpredicted::StreamAlone));
    }
}
