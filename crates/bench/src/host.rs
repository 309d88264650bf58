//! Where and of what a measurement was taken.

use crate::handover;
use isonomia_units::Nanos;
use serde::Serialize;
use std::process::Command;

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    cpu: String,
    cores: usize,
    kernel: String,
    memory_bytes: u64,
    /// Of the last minute, before the first measurement: what else was going on.
    load_average: f64,
    /// See [`crate::handover`]: before the first measurement.
    handover_ns: Option<f64>,
}

/// The state of the source tree that the program was run in; empty outside one.
#[derive(Clone, Debug, Serialize)]
pub struct Commit {
    hash: Option<String>,
    /// Whether files differ from the commit.
    is_dirty: Option<bool>,
}

impl Host {
    /// This machine, now. What cannot be read is empty or 0.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: memory_bytes("MemTotal"),
            load_average: load_average(),
            handover_ns: handover::round_trip_ns(),
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let Self { cpu, cores, kernel, load_average, handover_ns, .. } = self;
        let handover = handover_ns.map_or(String::new(), |ns| format!(", {ns:.0} ns from core to core and back"));
        format!("{cpu}, {cores} cores, {gib:.0} GiB, Linux {kernel}, load {load_average}{handover}")
    }
}

/// How many threads ran or wanted to in the last minute; 0 if that cannot be read.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// A line of `/proc/meminfo` in bytes; 0 if it is not there.
pub fn memory_bytes(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&text, name).and_then(|value| value.trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

impl Commit {
    /// The commit that is checked out here.
    pub fn here() -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        Self {
            hash: git(&["rev-parse", "HEAD"]),
            is_dirty: git(&["status", "--porcelain", "--untracked-files=no"]).map(|changes| !changes.is_empty()),
        }
    }

    /// In a word.
    pub fn word(&self) -> String {
        let hash = self.hash.as_deref().map_or("unknown", |hash| &hash[..hash.len().min(12)]);
        format!("{hash}{}", if self.is_dirty == Some(true) { "+changes" } else { "" })
    }
}

/// Processor time since the start, as the kernel counts it: all of it, and what the host of a virtual machine took
/// for others. A measurement during which the host took much says little.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessorTimes {
    total: u64,
    busy: u64,
    stolen: u64,
}

impl ProcessorTimes {
    /// The times now; zeros where the kernel does not tell.
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/stat").ok().as_deref().and_then(Self::parse).unwrap_or_default()
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests' times are counted among the first.
        let times: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let (total, stolen) = (times.iter().sum(), *times.get(7)?);
        let unused = times[3] + times[4] + stolen;
        Some(Self { total, busy: total - unused, stolen })
    }

    /// The processor time that this machine has used since `before`, of all processors together.
    pub fn busy_since(self, before: Self) -> Nanos {
        let ticks = self.busy.saturating_sub(before.busy);
        Nanos(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// The part of the processor time since `before` that the host took.
    pub fn stolen_since(self, before: Self) -> f64 {
        let total = self.total.saturating_sub(before.total).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotalX:  1 kB\nMemTotal:       24683520 kB\nmodel name\t: Some CPU: fast\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24683520 kB"));
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU: fast"));
        assert_eq!(field(text, "Mem"), None);
    }

    #[test]
    fn stolen_time_is_a_part_of_all_time() {
        let at = |text| ProcessorTimes::parse(text).unwrap();
        let before = at("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1 2 3\n");
        let after = at("cpu  20 0 20 140 0 0 0 20 5 0\n");
        assert_eq!(after.stolen_since(before), 0.2);
        assert_eq!(before.stolen_since(before), 0.0);
        assert_eq!(ProcessorTimes::parse("intr 1"), None);
    }
}
