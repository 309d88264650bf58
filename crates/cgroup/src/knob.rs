//! The kernel's files: what they are called, what is read from them, and what is written to them.

use std::fmt;
use std::str::FromStr;

/// Which kind of hierarchy a group is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// cgroup v1, controller `blkio`.
    V1,
    /// cgroup v2, controller `io`.
    V2,
}

/// Which requests are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// One number that the kernel has for each group and device: bytes a second in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Knob {
    /// The hierarchy.
    pub layout: Layout,
    /// Of reads or writes.
    pub direction: Direction,
}

/// A block device, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no device (allowed: MAJOR:MINOR, such as 259:0)")]
pub struct BadDevice(String);

impl Knob {
    /// The file in the group's directory.
    pub fn file(self) -> &'static str {
        match (self.layout, self.direction) {
            (Layout::V1, Direction::Read) => "blkio.throttle.read_bps_device",
            (Layout::V1, Direction::Write) => "blkio.throttle.write_bps_device",
            (Layout::V2, _) => "io.max",
        }
    }

    /// The limit in bytes a second that `text`, read from the file, has for `device`; nothing if there is none.
    pub fn value_in(self, text: &str, device: Device) -> Option<u64> {
        let name = device.to_string();
        let rest = text.lines().find_map(|line| line.strip_prefix(name.as_str())?.strip_prefix(' '))?;
        match self.layout {
            Layout::V1 => rest.trim().parse().ok(),
            Layout::V2 => {
                rest.split(' ').find_map(|part| part.strip_prefix(self.key())?.strip_prefix('=')?.parse().ok())
            }
        }
    }

    /// What is to be written to the file for a limit of so many bytes a second, or for none. Under v2, what the line does not name
    /// stays as it is.
    pub fn line(self, device: Device, value: Option<u64>) -> String {
        match (self.layout, value) {
            (Layout::V1, value) => format!("{device} {}\n", value.unwrap_or(0)),
            (Layout::V2, Some(value)) => format!("{device} {}={value}\n", self.key()),
            (Layout::V2, None) => format!("{device} {}=max\n", self.key()),
        }
    }

    fn key(self) -> &'static str {
        match self.direction {
            Direction::Read => "rbps",
            Direction::Write => "wbps",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Device {
    type Err = BadDevice;

    fn from_str(text: &str) -> Result<Self, BadDevice> {
        let bad = || BadDevice(text.to_owned());
        let (major, minor) = text.split_once(':').ok_or_else(bad)?;
        let number = |part: &str| part.parse().map_err(|_| bad());
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Device = Device { major: 8, minor: 0 };

    /// Bytes as kernels have them.
    #[test]
    fn files_are_read_and_written_as_the_kernel_has_them() {
        let knob = |layout, direction| Knob { layout, direction };
        let v1 = knob(Layout::V1, Direction::Write);
        let v2 = knob(Layout::V2, Direction::Read);
        assert_eq!(v1.value_in("8:16 5\n8:0 1048576\n", DISK), Some(1_048_576));
        assert_eq!(v1.value_in("8:16 5\n18:0 7\n", DISK), None);
        let text = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:0 rbps=4096 wbps=max riops=max wiops=max\n";
        assert_eq!(v2.value_in(text, DISK), Some(4_096));
        assert_eq!(knob(Layout::V2, Direction::Write).value_in(text, DISK), None, "max is no limit");
        assert_eq!(v2.value_in("", DISK), None);
        let lines = [v1, v2].map(|knob| [knob.line(DISK, Some(4_096)), knob.line(DISK, None)]);
        assert_eq!(lines, [["8:0 4096\n", "8:0 0\n"], ["8:0 rbps=4096\n", "8:0 rbps=max\n"]]);
        assert_eq!([v1.file(), v2.file()], ["blkio.throttle.write_bps_device", "io.max"]);
    }

    #[test]
    fn devices_have_two_numbers() {
        assert_eq!("8:0".parse(), Ok(DISK));
        for bad in ["", "8", "8:", "sda", "8:0:1", "-8:0"] {
            let error = bad.parse::<Device>().unwrap_err().to_string();
            assert_eq!(error, format!("{bad:?} names no device (allowed: MAJOR:MINOR, such as 259:0)"));
        }
    }
}
