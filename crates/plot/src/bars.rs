//! Stacked bars.

use crate::{COLORS, FONT, GRID, PlotError, SIZE, headroom, register_fonts};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Pixels between two bars, on each side of a bar.
const GAP: u32 = 40;

/// Bars of the same parts.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What they show.
    pub caption: String,
    /// What the y axis is, with its unit.
    pub y: &'static str,
    /// Names of the parts, from below.
    pub parts: Vec<&'static str>,
    /// Each bar's name and the height of each of its parts.
    pub bars: Vec<(String, Vec<f64>)>,
}

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
        let highest = self.bars.iter().map(|(_, parts)| parts.iter().sum()).fold(0.0, f64::max);
        let top = if highest > 0.0 { highest * headroom(self.parts.len()) } else { 1.0 };
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, (FONT, 24))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((0..self.bars.len().saturating_sub(1)).into_segmented(), 0.0..top)?;
        let name = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(at) => self.bars.get(*at).map_or(String::new(), |bar| bar.0.clone()),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc(self.y)
            .axis_desc_style((FONT, 18))
            .label_style((FONT, 16))
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&name)
            .y_label_formatter(&|y| format!("{y:.1}"))
            .draw()?;
        for (part, (name, color)) in self.parts.iter().zip(COLORS.iter().cycle()).enumerate() {
            let rectangles = self.bars.iter().enumerate().map(|(at, (_, parts))| {
                let below: f64 = parts.iter().take(part).sum();
                let height = parts.get(part).copied().unwrap_or(0.0);
                let corners = [(SegmentValue::Exact(at), below), (SegmentValue::Exact(at + 1), below + height)];
                let mut rectangle = Rectangle::new(corners, color.filled());
                rectangle.set_margin(0, 0, GAP, GAP);
                rectangle
            });
            chart
                .draw_series(rectangles)?
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 24, y + 5)], color.filled()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_saved_with_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let (png, svg) = (dir.path().join("b.png"), dir.path().join("b.svg"));
        let bars = vec![("first".to_owned(), vec![1.0, 2.0]), ("second".to_owned(), vec![0.5, 0.0])];
        let bars = Bars { caption: "node time".to_owned(), y: "share", parts: vec!["useful", "idle"], bars };
        bars.save(&png, &svg).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for word in ["node time", "first", "second", "useful", "idle", "share"] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(std::fs::read(png).unwrap()[1..4], *b"PNG");
        let error = bars.save(Path::new("/nonexistent/b.png"), Path::new("/nonexistent/b.svg")).unwrap_err();
        assert!(error.to_string().contains("node time"), "{error}");
    }
}
