//! How the data of an item is drawn: which columns on which axes, and what the paper has.
//!
//! A chart is a description and no picture. It stands in the item's JSON file, and `python3 -m isonomia.figures` draws it
//! from the item's CSV: means over seeds with 95 % intervals, rows of one seed averaged before.

use serde::Serialize;
use serde_json::Value;

/// What a chart looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Lines,
    Bars,
}

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm, with a mark at each power of two.
    Log2,
    /// By their logarithm, with a mark at each power of ten.
    Log10,
    /// The same, but evenly from -1 to 1, so that zero and losses can be shown.
    Symlog,
}

/// One axis.
#[derive(Clone, Debug, Serialize)]
struct Axis {
    column: &'static str,
    label: String,
    scale: Scale,
}

/// A value of the paper, or one that is marked like it.
#[derive(Clone, Debug, Serialize)]
struct Mark {
    /// Where on the x axis; all along it if there is none.
    x: Option<Value>,
    y: f64,
    /// Whose it is: a value of [`Chart::by`], or of the whole chart's.
    of: Option<Value>,
    /// What it is, if it is not the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<&'static str>,
}

/// A drawing of an item's data.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    name: &'static str,
    title: String,
    kind: Kind,
    x: Axis,
    y: Axis,
    /// A line, or a bar in each group, for each value of this column.
    by: Option<&'static str>,
    /// Only rows that have one of these values in this column.
    only: Vec<(&'static str, Vec<Value>)>,
    /// Width of bins on the x axis, and the last of them.
    bins: Option<(f64, f64)>,
    /// One that is drawn thin behind the others, such as what is due.
    paper: Vec<Mark>,
}

impl Chart {
    fn new(kind: Kind, title: String, x: (&'static str, &str), y: (&'static str, &str)) -> Self {
        let axis =
            |(column, label): (&'static str, &str)| Axis { column, label: label.to_owned(), scale: Scale::Linear };
        Self {
            name: "",
            title,
            kind,
            x: axis(x),
            y: axis(y),
            by: None,
            only: Vec::new(),
            bins: None,
            paper: Vec::new(),
        }
    }

    /// Lines: column and label of each axis.
    pub fn lines(title: impl Into<String>, x: (&'static str, &str), y: (&'static str, &str)) -> Self {
        Self::new(Kind::Lines, title.into(), x, y)
    }

    /// Bars, side by side.
    pub fn bars(title: impl Into<String>, x: (&'static str, &str), y: (&'static str, &str)) -> Self {
        Self::new(Kind::Bars, title.into(), x, y)
    }

    /// A line, or a bar in each group, for each value of this column.
    #[must_use]
    pub fn by(self, column: &'static str) -> Self {
        Self { by: Some(column), ..self }
    }

    /// With a word of its own after the item's; an item has one chart without.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Only rows that have one of these values in this column.
    #[must_use]
    pub fn only<V: Into<Value>>(mut self, column: &'static str, values: impl IntoIterator<Item = V>) -> Self {
        self.only.push((column, values.into_iter().map(Into::into).collect()));
        self
    }

    /// With this scale of the x axis.
    #[must_use]
    pub fn x_scale(mut self, scale: Scale) -> Self {
        self.x.scale = scale;
        self
    }

    /// With this scale of the y axis.
    #[must_use]
    pub fn y_scale(mut self, scale: Scale) -> Self {
        self.y.scale = scale;
        self
    }

    /// With the x axis in bins of this width, up to `last`.
    #[must_use]
    pub fn bins(self, width: f64, last: f64) -> Self {
        Self { bins: Some((width, last)), ..self }
    }

    /// The paper has `y` at `x`, or all along the x axis.
    #[must_use]
    pub fn paper<V: Into<Value>>(mut self, x: Option<V>, y: f64) -> Self {
        self.paper.push(Mark { x: x.map(Into::into), y, of: None, what: None });
        self
    }

    /// The same for the line or bar `of`.
    #[must_use]
    pub fn paper_of<V: Into<Value>>(mut self, of: impl Into<Value>, x: Option<V>, y: f64) -> Self {
        self.paper.push(Mark { x: x.map(Into::into), y, of: Some(of.into()), what: None });
        self
    }

    /// A line at `y` all along the x axis that is no value of the paper's: `what` is its word in the legend.
    #[must_use]
    pub fn line(mut self, what: &'static str, y: f64) -> Self {
        self.paper.push(Mark { x: None, y, of: None, what: Some(what) });
        self
    }

    /// Columns of the data that it draws.
    pub fn columns(&self) -> impl Iterator<Item = &'static str> {
        [self.x.column, self.y.column].into_iter().chain(self.by).chain(self.only.iter().map(|(column, _)| *column))
    }

    /// Its word after the item's.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_says_all_that_drawing_it_takes() {
        let chart = Chart::lines("gain", ("nodes", "nodes"), ("gain_percent", "gain [%]"))
            .by("default")
            .only("choice", ["as chosen"])
            .x_scale(Scale::Log2)
            .paper(Some(2_048), 40.0)
            .paper_of("fifo", None::<f64>, 3.0);
        let json = serde_json::to_value(&chart).unwrap();
        assert_eq!(json["x"], serde_json::json!({ "column": "nodes", "label": "nodes", "scale": "log2" }));
        assert_eq!(json["only"], serde_json::json!([["choice", ["as chosen"]]]));
        assert_eq!(json["paper"][0], serde_json::json!({ "x": 2048, "y": 40.0, "of": null }));
        assert_eq!(json["paper"][1]["of"], "fifo");
        assert_eq!(chart.columns().collect::<Vec<_>>(), ["nodes", "gain_percent", "default", "choice"]);
    }
}
