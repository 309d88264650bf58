//! What-if questions, answered as on the command line.

use crate::{json, refuse};
use isonomia_planning::{Machine, Mapping, Order};
use isonomia_whatif::{allocate as cases, plan, read, read_text};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::path::Path;

/// The text that was given, or else that of the file.
fn text_of<'a>(file: &str, text: Option<&'a str>) -> PyResult<Cow<'a, str>> {
    match text {
        Some(text) => Ok(Cow::Borrowed(text)),
        None => read_text(Path::new(file)).map(Cow::Owned).map_err(refuse),
    }
}

/// The same in bytes.
fn bytes_of<'a>(file: &str, text: Option<&'a str>) -> PyResult<Cow<'a, [u8]>> {
    match text {
        Some(text) => Ok(Cow::Borrowed(text.as_bytes())),
        None => read(Path::new(file)).map(Cow::Owned).map_err(refuse),
    }
}

/// A JSON object as TOML text.
#[pyfunction]
pub fn toml_of_json(text: &str) -> PyResult<String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(refuse)?;
    toml::to_string(&value).map_err(refuse)
}

/// What a scheme gives to the applications of a case: the text, or the file, in TOML.
#[pyfunction]
pub fn allocate(py: Python<'_>, file: &str, text: Option<&str>, scheme: &str) -> PyResult<String> {
    py.detach(|| {
        let scheme = scheme.parse().map_err(refuse)?;
        let report = cases::allocate(file, &text_of(file, text)?, scheme).map_err(refuse)?;
        json(&report)
    })
}

/// Applications on one exclusive I/O node: the table, or the file, in CSV.
#[pyfunction]
pub fn plan_schedule(py: Python<'_>, file: &str, text: Option<&str>, policy: &str) -> PyResult<String> {
    py.detach(|| {
        let policy: Order = policy.parse().map_err(refuse)?;
        json(&plan::schedule(file, &bytes_of(file, text)?, policy).map_err(refuse)?)
    })
}

/// Packs of jobs: the table, or the file, in CSV or, without a bandwidth, as a log in the Standard Workload Format.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are the command's options, named in Python")]
pub fn plan_pack(
    py: Python<'_>,
    file: &str,
    text: Option<&str>,
    bandwidth: Option<f64>,
    swf: (u32, u32, f64),
    nodes: u32,
    io_nodes: u32,
    sensibility: &str,
    policy: &str,
) -> PyResult<String> {
    py.detach(|| {
        let order: Order = policy.parse().map_err(refuse)?;
        let sensibility = plan::parse_sensibility(sensibility).map_err(refuse)?;
        let (processors_per_node, iterations, io_fraction) = swf;
        let mapping = Mapping { processors_per_node, iterations, io_fraction };
        let text = bytes_of(file, text)?;
        let source = match bandwidth {
            Some(bandwidth) => plan::JobSource::Csv(&text, bandwidth),
            None => plan::JobSource::Swf(&text, mapping),
        };
        json(&plan::pack(file, source, &Machine { nodes, io_nodes, sensibility, order }).map_err(refuse)?)
    })
}
