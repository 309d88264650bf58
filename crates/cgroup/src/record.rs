//! The record of limits that may be set, for whoever comes after a process that was killed.
//!
//! A text: the line `isonomia limits 1`, and then a line for each limit, with the hierarchy (`v1`, `v2`), the direction (`read`,
//! `write`), the device, the values that are ours with commas between them, and the directory of the group, which ends with the
//! line (a group's name has no line breaks).

use crate::knob::{Device, Direction, Knob, Layout};
use crate::step::Own;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HEADER: &str = "isonomia limits 1";

/// Where a limit is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    pub(crate) group: PathBuf,
    pub(crate) knob: Knob,
    pub(crate) device: Device,
}

impl Setting {
    pub(crate) fn file(&self) -> PathBuf {
        self.group.join(self.knob.file())
    }
}

/// A record that this program does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the record of limits cannot be read: {text:?}")]
pub struct BadRecord {
    line: usize,
    text: String,
}

/// The text that says this.
pub(crate) fn write(own: &BTreeMap<Setting, Own>) -> String {
    let mut text = format!("{HEADER}\n");
    for (Setting { group, knob, device }, Own { values }) in own {
        let layout = match knob.layout {
            Layout::V1 => "v1",
            Layout::V2 => "v2",
        };
        let direction = match knob.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let values = values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{layout} {direction} {device} {values} {}", group.display());
    }
    text
}

/// What a text says.
pub(crate) fn read(text: &str) -> Result<BTreeMap<Setting, Own>, BadRecord> {
    let bad = |(at, line): (usize, &str)| BadRecord { line: at + 1, text: line.to_owned() };
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, HEADER)) => {}
        first => return Err(bad(first.unwrap_or((0, "")))),
    }
    lines.map(|line| entry(line.1).ok_or_else(|| bad(line))).collect()
}

fn entry(line: &str) -> Option<(Setting, Own)> {
    let mut parts = line.splitn(5, ' ');
    let layout = match parts.next()? {
        "v1" => Layout::V1,
        "v2" => Layout::V2,
        _ => return None,
    };
    let direction = match parts.next()? {
        "read" => Direction::Read,
        "write" => Direction::Write,
        _ => return None,
    };
    let device = parts.next()?.parse().ok()?;
    let values = parts.next()?.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    let group = Path::new(parts.next()?);
    let setting = Setting { group: group.to_owned(), knob: Knob { layout, direction }, device };
    group.is_absolute().then_some((setting, Own { values }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let setting = |group: &str, layout, direction| Setting {
            group: group.into(),
            knob: Knob { layout, direction },
            device: Device { major: 259, minor: 3 },
        };
        let own = BTreeMap::from([
            (setting("/sys/fs/cgroup/a job", Layout::V2, Direction::Read), Own { values: vec![1, 20] }),
            (setting("/sys/fs/cgroup/blkio/b", Layout::V1, Direction::Write), Own { values: vec![300] }),
        ]);
        let text = write(&own);
        assert_eq!(
            text,
            "isonomia limits 1\nv2 read 259:3 1,20 /sys/fs/cgroup/a job\nv1 write 259:3 300 /sys/fs/cgroup/blkio/b\n"
        );
        assert_eq!(read(&text), Ok(own));
        assert_eq!(read("isonomia limits 1\n"), Ok(BTreeMap::new()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_line() {
        for (text, line) in [
            ("", 1),
            ("isonomia limits 2\n", 1),
            ("isonomia limits 1\nv3 read 8:0 1 /a\n", 2),
            ("isonomia limits 1\nv2 read 8:0 1 /a\nv2 write 8:0 one /a\n", 3),
            ("isonomia limits 1\nv2 read 8:0 1 a\n", 2),
            ("isonomia limits 1\nv2 read 8:0\n", 2),
        ] {
            assert_eq!(read(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
