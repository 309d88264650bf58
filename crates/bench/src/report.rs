//! Results: every repeat as JSON and CSV in a directory of its own, and a table for people.

use crate::arguments::CommonOptions;
use crate::host::{Commit, Host};
use crate::statistics::Summary;
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Everything that came out of one run.
#[derive(Debug, Serialize)]
pub struct Report<C: Serialize> {
    /// The subcommand.
    pub bench: &'static str,
    started: String,
    host: Host,
    commit: Commit,
    /// What was asked for.
    pub configuration: C,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What happened that no row shows.
    pub remarks: Vec<String>,
    /// Why the run ended early, if it did.
    pub error: Option<String>,
    #[serde(skip)]
    dir: PathBuf,
}

/// One figure, measured several times.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// How the clients reached their files.
    pub way: String,
    /// Client processes, where that is what is varied.
    pub processes: Option<u32>,
    /// Of `values`.
    pub unit: &'static str,
    /// One for each repeat.
    pub values: Vec<f64>,
    /// To the value of the baseline of the same repeat, which is tmpfs, or the same program without us; empty where there is
    /// none.
    pub ratios: Vec<f64>,
    /// What is asked for.
    pub must: Option<Must>,
    /// Of `values`.
    pub summary: Option<Summary>,
    /// Of `ratios`.
    pub ratio_summary: Option<Summary>,
}

/// A target.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Must {
    /// Whether it is the ratio to the baseline that is asked for.
    pub is_ratio: bool,
    /// At least.
    pub least: f64,
    /// At most.
    pub most: f64,
}

impl Must {
    /// A value of at least `least`.
    pub fn at_least(least: f64) -> Self {
        Self { is_ratio: false, least, most: f64::INFINITY }
    }

    /// A value of at most `most`.
    pub fn at_most(most: f64) -> Self {
        Self { is_ratio: false, least: f64::NEG_INFINITY, most }
    }

    /// A value of `middle` ± `by`.
    pub fn near(middle: f64, by: f64) -> Self {
        Self { is_ratio: false, least: middle - by, most: middle + by }
    }

    /// A ratio to the baseline of at least `least`.
    pub fn ratio(least: f64) -> Self {
        Self { is_ratio: true, ..Self::at_least(least) }
    }

    /// A ratio to the baseline of at most `most`.
    pub fn ratio_at_most(most: f64) -> Self {
        Self { is_ratio: true, ..Self::at_most(most) }
    }

    /// A ratio to the baseline of 1 ± `by`.
    pub fn ratio_near(by: f64) -> Self {
        Self { is_ratio: true, ..Self::near(1.0, by) }
    }

    fn text(&self) -> String {
        let number = if self.is_ratio { |x: f64| format!("{x:.2} x") } else { number };
        match (self.least.is_finite(), self.most.is_finite()) {
            (true, true) => format!("{} - {}", number(self.least), number(self.most)),
            (true, false) => format!(">= {}", number(self.least)),
            _ => format!("<= {}", number(self.most)),
        }
    }
}

impl Row {
    /// A row that nothing is asked of.
    pub fn new(name: impl Into<String>, way: impl ToString, unit: &'static str, values: Vec<f64>) -> Self {
        let summary = Summary::of(&values);
        Self {
            name: name.into(),
            way: way.to_string(),
            processes: None,
            unit,
            values,
            ratios: Vec::new(),
            must: None,
            summary,
            ratio_summary: None,
        }
    }

    /// With the values of the baseline in the same repeats beside it.
    pub fn beside(mut self, baseline: &[f64]) -> Self {
        self.ratios = self.values.iter().zip(baseline).map(|(value, baseline)| value / baseline).collect();
        self.ratio_summary = Summary::of(&self.ratios);
        self
    }

    /// Whether the median is what is asked for; None if nothing is, or nothing was measured.
    pub fn is_met(&self) -> Option<bool> {
        let must = self.must?;
        let median = if must.is_ratio { self.ratio_summary } else { self.summary }?.median;
        Some((must.least..=must.most).contains(&median))
    }
}

/// Adds what one more repeat gave to the row of the same name and way.
pub fn keep(rows: &mut Vec<Row>, one: Row) {
    let Some(row) = rows.iter_mut().find(|row| row.name == one.name && row.way == one.way) else {
        rows.push(one);
        return;
    };
    row.values.extend(one.values);
    row.ratios.extend(one.ratios);
    row.summary = Summary::of(&row.values);
    row.ratio_summary = Summary::of(&row.ratios);
}

impl<C: Serialize> Report<C> {
    /// An empty report with a directory of its own below the one that was asked for.
    pub fn new(bench: &'static str, options: &CommonOptions, configuration: C) -> Result<Self> {
        let started = jiff::Timestamp::now();
        let dir = options.out.join(started.strftime("%Y%m%dT%H%M%SZ").to_string());
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self::begun(bench, started, dir, configuration))
    }

    /// One that goes on in the directory of an earlier one, and replaces it.
    pub fn resumed(bench: &'static str, dir: &Path, configuration: C) -> Result<Self> {
        let dir = dir.canonicalize().with_context(|| format!("cannot go on in {}", dir.display()))?;
        Ok(Self::begun(bench, jiff::Timestamp::now(), dir, configuration))
    }

    fn begun(bench: &'static str, started: jiff::Timestamp, dir: PathBuf, configuration: C) -> Self {
        Self {
            bench,
            started: started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            host: Host::here(),
            commit: Commit::here(),
            configuration,
            rows: Vec::new(),
            remarks: Vec::new(),
            error: None,
            dir,
        }
    }

    /// Where results and logs go.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the files, and the table (or, with `json`, the JSON) on standard output.
    pub fn publish(&self, json: bool) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let path = |suffix: &str| self.dir.join(format!("{}.{suffix}", self.bench));
        std::fs::write(path("json"), &text).with_context(|| format!("cannot write to {}", self.dir.display()))?;
        self.write_csv(File::create(path("csv"))?)?;
        let shown = if json { text } else { self.table() };
        writeln!(std::io::stdout(), "{shown}").context("cannot write to standard output")?;
        eprintln!("isonomia-bench: results are in {}", self.dir.display());
        Ok(())
    }

    fn write_csv(&self, to: impl Write) -> Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        csv.write_record(["bench", "row", "way", "processes", "unit", "repeat", "value", "ratio"])?;
        for row in &self.rows {
            for (repeat, value) in row.values.iter().enumerate() {
                csv.write_record([
                    self.bench,
                    &row.name,
                    &row.way,
                    &row.processes.map_or(String::new(), |n| n.to_string()),
                    row.unit,
                    &repeat.to_string(),
                    &value.to_string(),
                    &row.ratios.get(repeat).map_or(String::new(), f64::to_string),
                ])?;
            }
        }
        Ok(csv.flush()?)
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["row", "way", "procs", "median", "min .. max", "unit", "x base", "must", ""]);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if [2, 3, 4, 6, 7].contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for row in &self.rows {
            let text = |summary: Option<Summary>, show: &dyn Fn(Summary) -> String| {
                summary.map_or_else(|| "-".to_owned(), show)
            };
            let ratio = text(row.ratio_summary, &|summary| format!("{:.3}", summary.median));
            table.add_row([
                row.name.clone(),
                row.way.clone(),
                row.processes.map_or_else(String::new, |n| n.to_string()),
                text(row.summary, &|summary| number(summary.median)),
                text(row.summary, &|summary| format!("{} .. {}", number(summary.min), number(summary.max))),
                row.unit.to_owned(),
                if row.ratio_summary.is_none() { String::new() } else { ratio },
                row.must.map_or_else(String::new, |must| must.text()),
                row.is_met().map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
            ]);
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let remarks: String = self.remarks.iter().map(|remark| format!("\nremark: {remark}")).collect();
        let unfinished = self.error.as_ref().map_or_else(String::new, |error| format!("\n\nUNFINISHED: {error}"));
        format!(
            "{} of {} at {}\n{}\n\n{}\n{remarks}{unfinished}",
            self.bench,
            self.commit.word(),
            self.started,
            self.host.line(),
            lines.join("\n")
        )
    }
}

/// Four digits or so.
fn number(x: f64) -> String {
    match x.abs() {
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 100.0 => format!("{x:.1}"),
        a if a >= 1.0 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_compared_with_what_is_asked_for() {
        let row = |values: &[f64], must| Row { must: Some(must), ..Row::new("r", "w", "u", values.to_vec()) };
        assert_eq!(row(&[48.5, 60.0, 49.0], Must::near(50.0, 2.0)).is_met(), Some(true));
        assert_eq!(row(&[47.9], Must::near(50.0, 2.0)).is_met(), Some(false));
        assert_eq!(row(&[16.0], Must::at_most(15.0)).is_met(), Some(false));
        assert_eq!(row(&[], Must::at_least(1.0)).is_met(), None);
        let beside = |tmpfs| Row { must: Some(Must::ratio(0.4)), ..Row::new("r", "w", "u", vec![5.0]) }.beside(tmpfs);
        assert_eq!(beside(&[10.0]).is_met(), Some(true));
        assert_eq!(beside(&[20.0]).is_met(), Some(false));
        assert_eq!(beside(&[]).is_met(), None);
    }

    #[test]
    fn targets_are_shown_as_they_are_meant() {
        assert_eq!(Must::near(4.0, 0.1).text(), "3.90 - 4.10");
        assert_eq!(Must::at_least(40_000.0).text(), ">= 40000");
        assert_eq!(Must::at_most(2.0).text(), "<= 2.00");
        assert_eq!(Must::ratio(0.1).text(), ">= 0.10 x");
    }
}
