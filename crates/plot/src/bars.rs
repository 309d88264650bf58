//! Bars in groups, one of each series in each group.

use crate::{COLORS, FONT, GRID, PlotError, SIZE, register_fonts};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Bars of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// By group; 0 or more.
    pub heights: Vec<f64>,
}

/// Groups of bars from 0 upwards, each with its height above it.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What it shows.
    pub caption: String,
    /// What heights are, with their unit.
    pub y: &'static str,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// In the order of the legend.
    pub series: Vec<Series>,
    /// A height that all are compared with: a dashed line.
    pub reference: Option<f64>,
}

/// Between two groups, in widths of a group.
const SPACE: f64 = 0.2;

impl Bars {
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

    fn draw_on<'a, B: DrawingBackend + 'a>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let heights = self.series.iter().flat_map(|series| &series.heights).copied();
        let highest = heights.fold(self.reference.unwrap_or(0.0), f64::max).max(f64::MIN_POSITIVE);
        let groups = self.groups.len() as f64;
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, (FONT, 24))
            .margin(14)
            .x_label_area_size(34)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..groups, 0.0..crate::headroom(self.series.len()) * highest)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(self.y)
            .axis_desc_style((FONT, 18))
            .label_style((FONT, 16))
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let width = (1.0 - SPACE) / self.series.len().max(1) as f64;
        let text = |size: i32, vertical| (FONT, size).into_font().color(&BLACK).pos(Pos::new(HPos::Center, vertical));
        for (at, (series, color)) in self.series.iter().zip(COLORS.iter().cycle()).enumerate() {
            let left = |group: usize| group as f64 + SPACE / 2.0 + at as f64 * width;
            let bars = series.heights.iter().enumerate().map(|(group, height)| {
                Rectangle::new([(left(group), 0.0), (left(group) + width, *height)], color.filled())
            });
            chart
                .draw_series(bars)?
                .label(&series.label)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 24, y + 5)], color.filled()));
            let above = series.heights.iter().enumerate().map(|(group, height)| {
                Text::new(format!("{height:.2}"), (left(group) + width / 2.0, *height), text(14, VPos::Bottom))
            });
            chart.draw_series(above)?;
        }
        if let Some(height) = self.reference {
            chart.draw_series(DashedLineSeries::new([(0.0, height), (groups, height)], 6, 6, BLACK.stroke_width(1)))?;
        }
        let names = self.groups.iter().enumerate().map(|(group, name)| {
            EmptyElement::at((group as f64 + 0.5, 0.0)) + Text::new(name.clone(), (0, 8), text(17, VPos::Top))
        });
        chart.draw_series(names)?;
        crate::draw_legend(&mut chart)?;
        area.present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_saved_with_their_names_and_heights() {
        let dir = tempfile::tempdir().unwrap();
        let (png, svg) = (dir.path().join("b.png"), dir.path().join("b.svg"));
        let series = |label: &str, heights: &[f64]| Series { label: label.to_owned(), heights: heights.to_vec() };
        let bars = Bars {
            caption: "slowdown".to_owned(),
            y: "times",
            groups: vec!["one program".to_owned(), "another".to_owned()],
            series: vec![series("fifo", &[7.25, 2.0]), series("fair", &[1.06, 1.0])],
            reference: Some(1.0),
        };
        bars.save(&png, &svg).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for word in ["slowdown", "times", "one program", "another", "fifo", "fair", "7.25", "1.06"] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(std::fs::read(png).unwrap()[1..4], *b"PNG");
        assert!(bars.save(&dir.path().join("none/b.png"), &dir.path().join("none/b.svg")).is_err());
    }
}
