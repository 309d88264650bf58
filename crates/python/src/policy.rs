//! Who is due what under a sharing policy.

use crate::refuse;
use isonomia_policy::{PolicySpec, shares as policy_shares};
use isonomia_units::{JobId, JobInfo};
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// The share due to each of the jobs (name, user, group, nodes, priority) in their order; nothing under `fifo`.
#[pyfunction]
pub fn shares(spec: &str, jobs: Vec<(String, String, String, u32, u32)>) -> PyResult<Vec<f64>> {
    let spec: PolicySpec = spec.parse().map_err(refuse)?;
    let active: BTreeMap<JobId, JobInfo> = (0..)
        .map(JobId)
        .zip(jobs)
        .map(|(id, (name, user, group, nodes, priority))| {
            (id, JobInfo { nodes, priority, ..JobInfo::new(&name, &user, &group) })
        })
        .collect();
    Ok(policy_shares::due(&spec, &active).into_iter().map(|(_, share)| share).collect())
}
