//! Throughput over time, as PNG and SVG. The font comes with the program: no system has to have one.

use super::figures::{self, Slice};
use super::output::Scene;
use super::{JOBS, LARGE, SMALL};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use std::path::Path;
use std::sync::Once;

const FONT: &str = "sans-serif";
const SIZE: (u32, u32) = (960, 480);
/// Okabe and Ito's blue and vermilion: told apart with every kind of colour vision.
const COLORS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
const GRID: RGBColor = RGBColor(225, 225, 225);
const MIB: f64 = 1024.0 * 1024.0;
/// Space above the highest point, for the legend.
const HEADROOM: f64 = 1.25;

/// Draws `scene` into both files.
pub fn draw(scene: &Scene, png: &Path, svg: &Path) -> Result<()> {
    static FONTS: Once = Once::new();
    // The bytes are a font: it is the crate's purpose. Without it drawing text reports the error.
    FONTS.call_once(|| drop(register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)));
    let slices = figures::slices(&scene.samples);
    draw_on(BitMapBackend::new(png, SIZE).into_drawing_area(), scene, &slices)?;
    draw_on(SVGBackend::new(svg, SIZE).into_drawing_area(), scene, &slices)
}

fn draw_on<B: DrawingBackend>(area: DrawingArea<B, Shift>, scene: &Scene, slices: &[Slice]) -> Result<()> {
    try_draw_on(&area, scene, slices).map_err(|error| anyhow!("cannot draw the plot of {}: {error}", scene.policy))
}

fn try_draw_on<'a, B: DrawingBackend + 'a>(
    area: &DrawingArea<B, Shift>,
    scene: &Scene,
    slices: &[Slice],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let end_s = slices.last().map_or(1.0, |slice| slice.time_s);
    let start_s = scene.samples.first().map_or(0.0, |first| first.time_s);
    let highest = slices.iter().flat_map(|slice| slice.throughput_bytes_per_s).fold(1.0, f64::max);
    let is_anything_due = scene.figures.iter().any(|figures| figures.share_due > 0.0);
    let note = if is_anything_due { " (dashed: due)" } else { "" };
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: throughput of two jobs that share a server{note}", scene.policy), (FONT, 24))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end_s, 0.0..highest / MIB * HEADROOM)?;
    chart
        .configure_mesh()
        .x_desc("time in seconds")
        .y_desc("throughput in MiB/s")
        .axis_desc_style((FONT, 18))
        .label_style((FONT, 16))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|s| format!("{s:.0}"))
        .y_label_formatter(&|mib| format!("{mib:.0}"))
        .draw()?;
    let total: f64 = scene.figures.iter().map(|figures| figures.throughput_bytes_per_s).sum();
    for job in [LARGE, SMALL] {
        let color = COLORS[job];
        let points = slices.iter().map(|slice| (slice.time_s, slice.throughput_bytes_per_s[job] / MIB));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(JOBS[job].description())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(3)));
        let due_mib = scene.figures[job].share_due * total / MIB;
        if due_mib > 0.0 {
            let due = [(scene.joined_s - start_s, due_mib), (end_s, due_mib)];
            chart.draw_series(DashedLineSeries::new(due, 6, 6, color.stroke_width(1)))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font((FONT, 17))
        .draw()?;
    area.present()
}
