//! Scenarios as TOML files, and sweeps over them.
//!
//! Unknown keys are refused, quantities carry their unit (`"2GiB/s"`, `"10ms"`), and every complaint names file,
//! line, and field. A `[sweep]` table contains lists of values by path: `policy = ["fifo", "job-fair"]`,
//! `"job.small.processes" = [1, 2, 4]`. Every combination is a [`Point`]; the last path varies fastest.

mod fluid;
mod quantity;
mod request;
mod swf;

use crate::source::{self, Document, SourceError};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The most points of one sweep.
pub const POINTS_MAX: usize = 10_000;

/// A scenario file, read and checked.
#[derive(Clone, Debug)]
pub struct Scenarios {
    /// Every combination of the sweep, or the one scenario of a file without.
    pub points: Vec<Point>,
}

/// One scenario with what the sweep set in it.
#[derive(Clone, Debug)]
pub struct Point {
    /// Path and value of each swept setting, as they are written.
    pub settings: Vec<(String, String)>,
    /// What is simulated.
    pub scenario: Scenario,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum Scenario {
    /// Request by request.
    Request {
        /// The machine and its jobs.
        scenario: crate::request::Scenario,
        /// Each job is also run alone, to tell how much the others slow it down.
        slowdown: bool,
    },
    /// Applications and rates.
    Fluid(crate::fluid::Scenario),
}

/// What a sweep sets: a path, where it is written, and its values with their texts.
type Axis<'i> = (String, Range<usize>, Vec<(Spanned<DeValue<'i>>, String)>);

/// Reads and checks the file at `path`; `seed` replaces the one in it.
///
/// # Errors
/// The file cannot be read, or something in it cannot be used.
pub fn load(path: &Path, seed: Option<u64>) -> Result<Scenarios, SourceError> {
    parse(path, &source::read(path)?, seed)
}

/// Reads and checks `text`, which came from `path`: files that it names are looked for beside it.
///
/// # Errors
/// As for [`load`].
pub fn parse(path: &Path, text: &str, seed: Option<u64>) -> Result<Scenarios, SourceError> {
    let mut document = Document::parse(path, text)?;
    let mut axes = Vec::new();
    if let Some(sweep) = document.take_table("sweep") {
        collect_axes(&document, text, &sweep, "", &mut axes)?;
    }
    let count = axes.iter().try_fold(1usize, |count, (_, _, values)| count.checked_mul(values.len()));
    let count = count.filter(|count| *count <= POINTS_MAX).ok_or_else(|| {
        document.error_at(&axes[0].1, "sweep", format!("has too many combinations (allowed: at most {POINTS_MAX})"))
    })?;
    let mut points = Vec::with_capacity(count);
    for index in 0..count {
        let mut point = Document::parse(path, text)?;
        point.take_table("sweep");
        let mut settings = Vec::new();
        let mut rest = index;
        for (name, _, values) in axes.iter().rev() {
            let (value, written) = &values[rest % values.len()];
            rest /= values.len();
            point = point.with(name, value)?;
            settings.push((name.clone(), written.clone()));
        }
        settings.reverse();
        points.push(Point { settings, scenario: read_point(path, &point, seed)? });
    }
    Ok(Scenarios { points })
}

fn read_point(path: &Path, document: &Document<'_>, seed: Option<u64>) -> Result<Scenario, SourceError> {
    match document.text("level") {
        None | Some("request") => {
            let (scenario, slowdown) = request::read(path, document, seed)?;
            Ok(Scenario::Request { scenario, slowdown })
        }
        Some("fluid") => fluid::read(path, document, seed).map(Scenario::Fluid),
        Some(level) => Err(document.error("level", format!("{level:?} is no level (allowed: request, fluid)"))),
    }
}

/// The paths below `table` that contain lists.
fn collect_axes<'i>(
    document: &Document<'i>,
    text: &str,
    table: &DeTable<'i>,
    prefix: &str,
    axes: &mut Vec<Axis<'i>>,
) -> Result<(), SourceError> {
    for (key, value) in table.iter() {
        let name = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(inner) => collect_axes(document, text, inner, &name, axes)?,
            DeValue::Array(values) if !values.is_empty() => {
                let written = |value: &Spanned<DeValue<'i>>| text[value.span()].trim_matches('"').to_owned();
                let values = values.iter().map(|value| (value.clone(), written(value))).collect();
                axes.push((name, key.span(), values));
            }
            _ => {
                return Err(document.error_at(&key.span(), &format!("sweep.{name}"), "is no list of values to try"));
            }
        }
    }
    Ok(())
}
