//! Lines over an axis, as PNG and SVG. The font comes with the program: no system has to have one.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use std::path::Path;
use std::sync::Once;

const FONT: &str = "sans-serif";
const SIZE: (u32, u32) = (960, 480);
/// Okabe and Ito's colours: told apart with every kind of colour vision.
const COLORS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Space above the highest point, for the legend.
const HEADROOM: f64 = 1.25;

/// A line and its name.
#[derive(Debug)]
pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
    /// What it is compared with, dashed in the same colour: begin, end, height.
    pub reference: Option<(f64, f64, f64)>,
}

/// A plot from the origin upwards.
#[derive(Debug)]
pub struct Plot {
    pub caption: String,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: Vec<Line>,
}

impl Plot {
    /// Draws into both files.
    pub fn save(&self, png: &Path, svg: &Path) -> Result<()> {
        static FONTS: Once = Once::new();
        // The bytes are a font: it is the crate's purpose. Without it drawing text reports the error.
        FONTS.call_once(|| drop(register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)));
        self.draw_on(BitMapBackend::new(png, SIZE).into_drawing_area())?;
        self.draw_on(SVGBackend::new(svg, SIZE).into_drawing_area())
    }

    fn draw_on<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<()> {
        self.try_draw_on(&area).map_err(|error| anyhow!("cannot draw the plot {:?}: {error}", self.caption))
    }

    fn try_draw_on<'a, B: DrawingBackend + 'a>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let end = points().map(|point| point.0).fold(0.0, f64::max);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        let or_one = |value: f64| if value > 0.0 { value } else { 1.0 };
        let (end, highest) = (or_one(end), or_one(highest) * HEADROOM);
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, (FONT, 24))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..highest)?;
        let digits = |range: f64| {
            if range >= 5.0 {
                0
            } else if range >= 0.5 {
                1
            } else {
                3
            }
        };
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .axis_desc_style((FONT, 18))
            .label_style((FONT, 16))
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| format!("{x:.*}", digits(end)))
            .y_label_formatter(&|y| format!("{y:.*}", digits(highest)))
            .draw()?;
        for (line, color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
                .label(&line.label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(3)));
            if let Some((from, to, height)) = line.reference {
                let dashed = [(from, height), (to, height)];
                chart.draw_series(DashedLineSeries::new(dashed, 6, 6, color.stroke_width(1)))?;
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
}
