//! A profile for people: tables, and a plot.

use crate::table;
use isonomia_plot::{Line, Plot};
use isonomia_policy::Access;
use isonomia_policy::device::profile::{DeviceProfile, ProfilePoint};
use isonomia_units::Bytes;
use std::collections::BTreeSet;

/// Requests of this length are drawn.
const DRAWN: Bytes = Bytes::kib(4);

/// The tables.
pub fn text(profile: &DeviceProfile) -> String {
    let way = if profile.is_direct { "direct I/O" } else { "no direct I/O here: reads may come from memory" };
    format!("{} ({way})\n\n{}\n\n{}", profile.dir, measured(profile), costs(profile))
}

/// Each access and size: as many in service as it takes, beside one at a time.
fn measured(profile: &DeviceProfile) -> String {
    let header =
        ["access", "size", "in service", "req/s", "throughput", "p50", "p99", "one at a time: req/s", "p50", "p99"];
    let mut table = table::plain(&header, &[0]);
    let kinds: BTreeSet<(Access, Bytes)> = profile.points.iter().map(|point| (point.access, point.bytes)).collect();
    for (access, bytes) in kinds {
        let Some(most) = profile.saturated(access, bytes) else { continue };
        let is_alone = |point: &&ProfilePoint| (point.access, point.bytes, point.depth) == (access, bytes, 1);
        let alone = profile.points.iter().find(is_alone);
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            access.name().to_owned(),
            bytes.to_string(),
            most.depth.to_string(),
            format!("{:.0}", most.requests_per_s),
            table::throughput(most.bytes_per_s()),
            most.p50.to_string(),
            most.p99.to_string(),
            or_nothing(alone.map(|point| format!("{:.0}", point.requests_per_s))),
            or_nothing(alone.map(|point| point.p50.to_string())),
            or_nothing(alone.map(|point| point.p99.to_string())),
        ]);
    }
    table::lines(&table)
}

/// What was made of it.
fn costs(profile: &DeviceProfile) -> String {
    let header = ["access", "device time per op", "bytes at", "fit off by", "serves at once"];
    let mut table = table::plain(&header, &[0]);
    for (access, cost) in &profile.costs {
        table.add_row([
            access.name().to_owned(),
            cost.per_op.to_string(),
            cost.bandwidth.to_string(),
            table::percent(cost.error),
            cost.parallel.to_string(),
        ]);
    }
    table::lines(&table)
}

/// Small requests over how many are in service.
pub fn plot(profile: &DeviceProfile) -> Plot {
    let line = |access: Access| {
        let drawn = profile.points.iter().filter(|point| point.access == access && point.bytes == DRAWN);
        let points: Vec<(f64, f64)> = drawn.map(|point| (f64::from(point.depth), point.requests_per_s / 1e3)).collect();
        Line { label: access.name().to_owned(), points, reference: None }
    };
    Plot {
        caption: format!("Requests of {DRAWN} in {}", profile.dir),
        x: "requests in service",
        y: "thousands of requests per second",
        lines: Access::ALL.map(line).into_iter().filter(|line| !line.points.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Nanos;

    #[test]
    fn tables_read_like_this() {
        let point = |bytes, depth, requests_per_s| ProfilePoint {
            access: Access::ReadRandom,
            bytes,
            depth,
            requests_per_s,
            p50: Nanos::from_micros(80),
            p99: Nanos::from_micros(200),
        };
        let points = vec![point(Bytes::kib(4), 1, 11_250.0), point(Bytes::kib(4), 8, 90_000.0)];
        let text = text(&DeviceProfile::new("/scratch".into(), true, points));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "/scratch (direct I/O)");
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(3), "read-random 4 KiB 8 90000 352 MiB/s 80 us 200 us 11250 80 us 200 us", "{text}");
        assert!(words(6).starts_with("read-random ") && words(6).ends_with(" 8"), "{text}");
    }
}
