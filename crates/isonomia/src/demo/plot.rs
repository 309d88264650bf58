//! A scene as a plot: throughput over time, with what is due.

use super::figures;
use super::output::Scene;
use super::{JOBS, LARGE, SMALL, Servers};
use isonomia_plot::{Line, Plot, PlotError};
use std::path::Path;

const MIB: f64 = 1024.0 * 1024.0;

/// Draws `scene` into both files.
pub fn draw(scene: &Scene, servers: Servers, png: &Path, svg: &Path) -> Result<(), PlotError> {
    let slices = figures::slices(&scene.samples);
    let end_s = slices.last().map_or(1.0, |slice| slice.time_s);
    let start_s = scene.samples.first().map_or(0.0, |first| first.time_s);
    let total: f64 = scene.figures.iter().map(|figures| figures.throughput_bytes_per_s).sum();
    let line = |job: usize| {
        let due_mib = scene.figures[job].share_due * total / MIB;
        Line {
            label: JOBS[job].description(),
            points: slices.iter().map(|slice| (slice.time_s, slice.throughput_bytes_per_s[job] / MIB)).collect(),
            reference: (due_mib > 0.0).then_some((scene.joined_s - start_s, end_s, due_mib)),
        }
    };
    let is_anything_due = scene.figures.iter().any(|figures| figures.share_due > 0.0);
    let note = if is_anything_due { " (dashed: due)" } else { "" };
    let shared = match servers.count() {
        1 => "a server".to_owned(),
        count => format!("{count} servers"),
    };
    Plot {
        caption: format!("{}: throughput of two jobs that share {shared}{note}", scene.policy),
        x: "time in seconds",
        y: "throughput in MiB/s",
        lines: [LARGE, SMALL].map(line).into(),
    }
    .save(png, svg)
}
