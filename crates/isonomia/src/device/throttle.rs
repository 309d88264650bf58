//! What Linux itself keeps back of what is written from its page cache to a device, of which nobody above hears.
//!
//! While all reads take longer than a device is thought to need (`wbt_lat_usec`), fewer and fewer pages are on their way to it, down to one
//! request (`block/blk-wbt.c`). That is meant for a device that is given too much. One that is as slow by nature is held up so whenever
//! somebody reads.

use isonomia_policy::Access;
use isonomia_policy::device::profile::DeviceProfile;
use isonomia_units::Nanos;
use rustix::fs::{major, minor, stat};
use std::path::{Path, PathBuf};

/// Volumes of arrays of encrypted partitions, and so on: so many lie on each other at most.
const LAYERS_MAX: u32 = 8;

/// Where Linux is told of it for the device that a directory is on.
#[derive(Debug, PartialEq, Eq)]
pub struct Throttle {
    path: PathBuf,
    /// A read that takes longer says that the device is given too much.
    read_time_max: Nanos,
}

impl Throttle {
    /// That of the device of `dir`; `None` if that is no block device, or nothing is kept back there.
    pub fn of(dir: &Path) -> Option<Self> {
        let device = stat(dir).ok()?.st_dev;
        Self::below(Path::new("/sys/dev/block"), &format!("{}:{}", major(device), minor(device)))
    }

    fn below(devices: &Path, device: &str) -> Option<Self> {
        Self::at(&devices.join(device), LAYERS_MAX)
    }

    /// That of a device or the disk of a partition; or of the first that tells of those that it is made of.
    fn at(device: &Path, layers: u32) -> Option<Self> {
        let told = |queue: &str| {
            let path = device.join(queue).join("wbt_lat_usec");
            let us: u64 = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
            Some((path, us))
        };
        if let Some((path, us)) = told("queue").or_else(|| told("../queue")) {
            return (us > 0).then_some(Self { path, read_time_max: Nanos(us.saturating_mul(1_000)) });
        }
        let below = std::fs::read_dir(device.join("slaves")).ok().filter(|_| layers > 0)?;
        below.flatten().find_map(|device| Self::at(&device.path(), layers - 1))
    }

    /// What an operator is told, if a read of the device takes longer though it is alone.
    pub fn note(&self, profile: &DeviceProfile) -> Option<String> {
        let reads = profile.points.iter().filter(|point| point.access == Access::ReadRandom && point.depth == 1);
        let takes = reads.map(|point| point.p50).min().filter(|takes| *takes > self.read_time_max)?;
        Some(format!(
            "Linux thinks that this device is overloaded while reads take longer than {}, and one that is alone takes {takes}. So while \
             somebody reads, it may let what was written reach the device one request at a time. {} says so; 0 there means never.",
            self.read_time_max,
            self.path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_policy::device::profile::ProfilePoint;
    use isonomia_units::Bytes;

    /// A directory as that of the kernel, in which this is told of a disk.
    fn devices(told: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let disk = home.path().join("sda");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir(disk.join("sda1")).unwrap();
        std::fs::write(disk.join("queue/wbt_lat_usec"), told).unwrap();
        let volume = home.path().join("dm-0");
        std::fs::create_dir_all(volume.join("slaves")).unwrap();
        let links = [("8:0", "sda"), ("8:1", "sda/sda1"), ("253:0", "dm-0"), ("dm-0/slaves/sda1", "../../sda/sda1")];
        for (name, to) in links {
            std::os::unix::fs::symlink(to, home.path().join(name)).unwrap();
        }
        home
    }

    fn profile(p50: Nanos) -> DeviceProfile {
        let point = |depth, p50| ProfilePoint {
            access: Access::ReadRandom,
            bytes: Bytes::kib(4),
            depth,
            requests_per_s: 1.0,
            p50,
            p99: p50,
        };
        DeviceProfile::new("/d".into(), true, vec![point(1, p50), point(64, Nanos::from_secs(1))])
    }

    #[test]
    fn it_is_told_of_disks_partitions_and_volumes_where_a_lone_read_is_too_slow() {
        let home = devices("2000\n");
        for device in ["8:0", "8:1", "253:0"] {
            let throttle = Throttle::below(home.path(), device).expect(device);
            assert_eq!(throttle.read_time_max, Nanos::from_millis(2));
            assert_eq!(throttle.note(&profile(Nanos::from_millis(2))), None);
            let note = throttle.note(&profile(Nanos::from_micros(2_001))).unwrap();
            assert!(note.contains("longer than 2 ms") && note.contains("wbt_lat_usec"), "{note}");
        }
    }

    #[test]
    fn there_is_nothing_to_tell_where_nothing_is_kept_back() {
        for told in ["0", "", "-1", "what"] {
            assert_eq!(Throttle::below(devices(told).path(), "8:0"), None, "{told:?}");
        }
        assert_eq!(Throttle::below(devices("2000").path(), "9:0"), None);
        assert_eq!(Throttle::of(Path::new("/proc")), None);
        assert_eq!(Throttle::of(Path::new("/there/is/none")), None);
    }
}
