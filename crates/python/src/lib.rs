//! The native part of the Python package `isonomia`: `isonomia._native`.
//!
//! Functions here take text and give JSON text; `python/isonomia` makes Python's own data of both. So a result from
//! Python is, field by field, what the command line prints with `--json`, and an error has the same words.
//!
//! Python can go on in other threads meanwhile. Simulations and reproductions end soon after Ctrl-C; the other functions finish first,
//! which takes them well under a second but for the largest plans. The classes of [`files`] are calls, not questions: they
//! raise `OSError`.

mod answers;
mod files;
mod policy;
mod program;
mod reproduction;
mod scheme;
mod simulation;
mod stepping;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;
use std::fmt::Display;

create_exception!(
    isonomia,
    Error,
    PyValueError,
    "Something that was given cannot be used; the message says what, where, and what is allowed."
);

/// `error` in Python.
fn refuse(error: impl Display) -> PyErr {
    Error::new_err(error.to_string())
}

/// `value` as JSON text.
fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(refuse)
}

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use super::Error;
    #[pymodule_export]
    use super::answers::{allocate, plan_pack, plan_schedule, toml_of_json};
    #[pymodule_export]
    use super::files::{File, Files};
    #[pymodule_export]
    use super::policy::shares;
    #[pymodule_export]
    use super::program::solve_packing;
    #[pymodule_export]
    use super::reproduction::{papers, reproduce};
    #[pymodule_export]
    use super::scheme::simulate_scheme;
    #[pymodule_export]
    use super::simulation::{scenario_points, simulate};
    #[pymodule_export]
    use super::stepping::Stepping;
}
