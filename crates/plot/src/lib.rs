//! Lines over an axis, and bars in groups, as PNG and SVG. The font comes with the program: no system has to have one.

mod bars;

pub use bars::{Bars, Series};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use std::path::Path;
use std::sync::Once;

const FONT: &str = "sans-serif";
const SIZE: (u32, u32) = (960, 480);
/// Okabe and Ito's colours: told apart with every kind of colour vision.
const COLORS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(128, 128, 128),
];
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Why there is no plot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw the plot {caption:?}: {reason}")]
pub struct PlotError {
    caption: String,
    reason: String,
}

/// A line and its name.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// What it is compared with, dashed in the same colour: begin, end, height.
    pub reference: Option<(f64, f64, f64)>,
}

/// A plot from the origin upwards.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub caption: String,
    /// What the x axis is, with its unit.
    pub x: &'static str,
    /// What the y axis is, with its unit.
    pub y: &'static str,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// How much higher than its highest point a plot is, so that a legend of so many lines fits above.
fn headroom(lines: usize) -> f64 {
    1.1 + 0.075 * lines as f64
}

fn register_fonts() {
    static FONTS: Once = Once::new();
    // The bytes are a font: it is the crate's purpose. Without it drawing text reports the error.
    FONTS.call_once(|| drop(register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)));
}

impl Plot {
    /// Draws into both files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, png: &Path, svg: &Path) -> Result<(), PlotError> {
        register_fonts();
        let failed = |reason| PlotError { caption: self.caption.clone(), reason };
        self.draw_on(&BitMapBackend::new(png, SIZE).into_drawing_area()).map_err(|e| failed(e.to_string()))?;
        self.draw_on(&SVGBackend::new(svg, SIZE).into_drawing_area()).map_err(|e| failed(e.to_string()))
    }

    /// Draws into one file: as SVG if its name ends so, otherwise as PNG.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_as(&self, path: &Path) -> Result<(), PlotError> {
        register_fonts();
        let drawn = if path.extension().is_some_and(|ending| ending == "svg") {
            self.draw_on(&SVGBackend::new(path, SIZE).into_drawing_area()).map_err(|e| e.to_string())
        } else {
            self.draw_on(&BitMapBackend::new(path, SIZE).into_drawing_area()).map_err(|e| e.to_string())
        };
        drawn.map_err(|reason| PlotError { caption: self.caption.clone(), reason })
    }

    fn draw_on<'a, B: DrawingBackend + 'a>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let end = points().map(|point| point.0).fold(0.0, f64::max);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        let or_one = |value: f64| if value > 0.0 { value } else { 1.0 };
        let (end, highest) = (or_one(end), or_one(highest) * headroom(self.lines.len()));
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
        draw_legend(&mut chart)?;
        area.present()
    }
}

/// The names of the series, in the upper right corner.
fn draw_legend<'a, B: DrawingBackend + 'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, B, C>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.85)).border_style(GRID);
    legend.label_font((FONT, 17)).draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_saved_with_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let (png, svg) = (dir.path().join("b.png"), dir.path().join("b.svg"));
        let line = |label: &str, height| Line {
            label: label.to_owned(),
            points: vec![(0.0, 0.0), (1.0, height)],
            reference: None,
        };
        let lines = vec![line("first", 1.0), line("second", 0.5)];
        let plot = Plot { caption: "throughput".to_owned(), x: "time", y: "share", lines };
        plot.save(&png, &svg).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for word in ["throughput", "first", "second", "time", "share"] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(std::fs::read(png).unwrap()[1..4], *b"PNG");
        let error = plot.save(&dir.path().join("none/b.png"), &dir.path().join("none/b.svg")).unwrap_err();
        assert!(error.to_string().contains("throughput"), "{error}");
    }
}
