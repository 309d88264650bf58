//! A profile for people: tables, and a plot.

use super::measure::{DEPTH_MAX, Way};
use crate::table;
use isonomia_plot::{Line, Plot};
use isonomia_policy::Access;
use isonomia_policy::device::profile::{DeviceProfile, FittedCost, ProfilePoint};
use isonomia_units::Bytes;
use std::collections::BTreeSet;

/// Requests of this length are drawn.
const DRAWN: Bytes = Bytes::kib(4);

/// The tables.
pub fn text(profile: &DeviceProfile, way: Way) -> String {
    let way = match way {
        Way::Direct => "direct I/O",
        Way::PageCache => "no direct I/O here: reads may come from memory",
        Way::Memory => "in memory",
    };
    let text = format!("{} ({way})\n\n{}\n\n{}", profile.dir, measured(profile), costs(profile));
    // Where time ran out, and not where more are never tried.
    let is_cut_short = |access: &Access| profile.deepest(*access).is_some_and(|deepest| deepest < DEPTH_MAX);
    if profile.costs.iter().any(|(access, cost)| cost.parallel_is_minimum && is_cut_short(access)) {
        format!(
            "{text}\n\nat least: the most in service that there was time for did more than fewer; a longer time (--seconds) would tell"
        )
    } else {
        text
    }
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
            cost.bandwidth.map_or("-".to_owned(), |rate| rate.to_string()),
            table::percent(cost.error),
            at_once(cost),
        ]);
    }
    table::lines(&table)
}

fn at_once(cost: &FittedCost) -> String {
    if cost.parallel_is_minimum { format!("at least {}", cost.parallel) } else { cost.parallel.to_string() }
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
    fn bytes_that_take_no_time_have_no_bandwidth() {
        let point = |bytes, depth| ProfilePoint {
            access: Access::ReadRandom,
            bytes,
            depth,
            requests_per_s: 200.0,
            p50: Nanos::from_millis(5),
            p99: Nanos::from_millis(5),
        };
        let points = [Bytes::kib(4), Bytes::mib(1)].into_iter().flat_map(|bytes| [point(bytes, 1), point(bytes, 2)]);
        let text = text(&DeviceProfile::new("/scratch".into(), true, points.collect()), Way::Direct);
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["read-random", "5", "ms", "-", "0.0", "%", "1"], "{text}");
    }

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
        let mut profile = DeviceProfile::new("/scratch".into(), true, points);
        let text = text(&profile, Way::Direct);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "/scratch (direct I/O)");
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(3), "read-random 4 KiB 8 90000 352 MiB/s 80 us 200 us 11250 80 us 200 us", "{text}");
        assert!(words(6).starts_with("read-random ") && words(6).ends_with(" at least 8"), "{text}");
        assert!(lines[8].starts_with("at least: ") && lines[8].contains("--seconds"), "{text}");
        // A longer time would not try more either.
        profile.points[1].depth = DEPTH_MAX;
        assert_eq!(super::text(&profile, Way::Memory).lines().count(), 7);
        assert!(super::text(&profile, Way::Memory).starts_with("/scratch (in memory)\n"));
    }
}
