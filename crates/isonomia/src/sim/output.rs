//! What a simulation leaves: a table, CSV and JSON files, and a plot.

mod fluid;
mod request;

use crate::table;
use anyhow::{Context, Result};
use isonomia_plot::Plot;
use isonomia_sim::study::{Outcome, PointResult};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The lines of one point, behind what was set in it.
struct Rows {
    header: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

/// The table for people; all points are at one level, that of their file.
pub fn table(results: &BTreeMap<usize, PointResult>) -> String {
    let rows_of = |result: &PointResult| match &result.outcome {
        Outcome::Request(outcome) => request::shown(outcome),
        Outcome::Fluid(outcome) => fluid::shown(outcome),
    };
    let Some(first) = results.values().next() else { return "nothing was run to its end".to_owned() };
    let settings = first.settings.iter().map(|(name, _)| name.as_str());
    let header: Vec<&str> = settings.chain(rows_of(first).header.iter().copied()).collect();
    let texts = match &first.outcome {
        Outcome::Request(_) => request::TEXT_COLUMNS,
        Outcome::Fluid(_) => 0,
    };
    let left: Vec<usize> = (0..first.settings.len() + texts).collect();
    let mut table = table::plain(&header, &left);
    for result in results.values() {
        for row in rows_of(result).rows {
            table.add_row(result.settings.iter().map(|(_, value)| value.clone()).chain(row));
        }
    }
    table::lines(&table)
}

/// Saves one run; gives what was written.
pub fn save_run(dir: &Path, scenario: &Path, result: &PointResult) -> Result<Vec<PathBuf>> {
    let mut files = vec![dir.join("sim.json")];
    let whole = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "scenario": scenario.display().to_string(),
        "fingerprint": result.fingerprint,
        "outcome": result.outcome,
    });
    save_atomically(&files[0], &serde_json::to_vec_pretty(&whole)?)?;
    let (tables, name, plot): (Vec<(&str, Vec<u8>)>, &str, Plot) = match &result.outcome {
        Outcome::Request(outcome) => {
            let tables = vec![("jobs.csv", csv([result])?), ("slices.csv", request::slices_csv(outcome)?)];
            (tables, "throughput", request::plot(outcome))
        }
        Outcome::Fluid(outcome) => {
            let tables = vec![("summary.csv", csv([result])?), ("applications.csv", fluid::applications_csv(outcome)?)];
            (tables, "slowdown", fluid::plot(outcome))
        }
    };
    for (name, bytes) in tables {
        files.push(dir.join(name));
        save_atomically(&dir.join(name), &bytes)?;
    }
    let (png, svg) = (dir.join(format!("{name}.png")), dir.join(format!("{name}.svg")));
    plot.save(&png, &svg)?;
    files.extend([png, svg]);
    Ok(files)
}

/// Saves the table of all points that are there; gives what was written.
pub fn save_sweep(dir: &Path, results: &BTreeMap<usize, PointResult>) -> Result<Vec<PathBuf>> {
    let path = dir.join("sweep.csv");
    save_atomically(&path, &csv(results.values())?)?;
    Ok(vec![path])
}

/// Nobody ever sees half of a file, whichever of several tasks writes it.
pub fn save_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    std::fs::write(&partial, bytes).with_context(|| format!("cannot write {}", partial.display()))?;
    std::fs::rename(&partial, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Every point with its settings.
fn csv<'a>(results: impl IntoIterator<Item = &'a PointResult>) -> Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for (at, result) in results.into_iter().enumerate() {
        let rows = match &result.outcome {
            Outcome::Request(outcome) => request::saved(outcome),
            Outcome::Fluid(outcome) => fluid::saved(outcome),
        };
        let settings = || result.settings.iter();
        if at == 0 {
            let names = settings().map(|(name, _)| name.as_str());
            csv.write_record(["point"].into_iter().chain(names).chain(rows.header.iter().copied()))?;
        }
        for row in rows.rows {
            let values = settings().map(|(_, value)| value.clone());
            csv.write_record([result.point.to_string()].into_iter().chain(values).chain(row))?;
        }
    }
    Ok(csv.into_inner()?)
}
