//! The specification of shares: ThemisIO §3, Eq. 1, word for word.
//!
//! Level *i* of a policy is a matrix Tⁱ with a row for each entity of the level outside it (the first has one
//! row: the target) and a column for each of its own entities. An entry is the entity's part of its local scope,
//! so each row sums to one and each column has one entry. The product of all of them is one row: the share of
//! each job. This is O(jobs × entities) and serves as the reference; arbiters keep a tree that is proved
//! equal to it by test.

use crate::spec::{PolicySpec, bounds_claims, proof_of};
use isonomia_units::{JobId, JobInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A matrix by rows.
pub type Matrix = Vec<Vec<f64>>;

/// An entity by the names on its path from the outside in; at the last level with its job.
type Path = (Vec<Arc<str>>, Option<JobId>);

/// The matrices T⁰ to Tᴺ⁻¹ of `spec` over `active` jobs. Entities stand in the order of their paths' names,
/// the columns of the last one in the order of (path, job). Empty for `fifo` and for no jobs. If jobs are only claimed and
/// the policy has no level for users, the last level is two: one among proofs and believed jobs, one inside each proof.
pub fn transition_matrices(spec: &PolicySpec, active: &BTreeMap<JobId, JobInfo>) -> Vec<Matrix> {
    if active.is_empty() {
        return Vec::new();
    }
    let mut rows: Vec<Path> = vec![(Vec::new(), None)];
    let mut matrices = Vec::new();
    for at in 0..depth(spec, active) {
        let columns = entities(spec, at, active);
        let matrix = rows.iter().map(|(names, job)| {
            let within = |path: &Path| if job.is_some() { path.1 == *job } else { path.0.starts_with(names) };
            let local: u128 = columns.iter().filter(|(path, _)| within(path)).map(|(_, weight)| weight).sum();
            columns
                .iter()
                .map(|(path, &weight)| if within(path) { weight as f64 / local as f64 } else { 0.0 })
                .collect()
        });
        matrices.push(matrix.collect());
        rows = columns.into_keys().collect();
    }
    matrices
}

/// The product of a chain of matrices, each with as many rows as the one before has columns; empty for none.
pub fn product(chain: &[Matrix]) -> Matrix {
    let Some((first, rest)) = chain.split_first() else { return Matrix::new() };
    rest.iter().fold(first.clone(), |left, right| {
        let columns = right.first().map_or(0, Vec::len);
        let cell = |row: &[f64], column: usize| row.iter().zip(right).map(|(a, b)| a * b[column]).sum();
        left.iter().map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect()
    })
}

/// The share due to each of the `active` jobs, ascending by job. Empty for `fifo` and for no jobs.
pub fn due(spec: &PolicySpec, active: &BTreeMap<JobId, JobInfo>) -> Vec<(JobId, f64)> {
    let Some(last) = depth(spec, active).checked_sub(1) else { return Vec::new() };
    let product = product(&transition_matrices(spec, active));
    let jobs = entities(spec, last, active).into_keys().filter_map(|(_, job)| job);
    let mut due: Vec<_> = jobs.zip(product.into_iter().flatten()).collect();
    due.sort_by_key(|(job, _)| *job);
    due
}

/// How many matrices there are.
fn depth(spec: &PolicySpec, active: &BTreeMap<JobId, JobInfo>) -> usize {
    let levels = spec.levels();
    let has_proofs = bounds_claims(levels) && active.values().any(|info| info.within.is_some());
    levels.len() + usize::from(has_proofs && !levels.is_empty())
}

/// The entities of matrix `at` with their weights in millionths.
fn entities(spec: &PolicySpec, at: usize, active: &BTreeMap<JobId, JobInfo>) -> BTreeMap<Path, u128> {
    let levels = spec.levels();
    let last = levels.len() - 1;
    let entity = |(&job, info): (&JobId, &JobInfo)| {
        let outer = &levels[..last.min(at + 1)];
        let mut names: Vec<_> = outer.iter().map(|level| Arc::clone(level.name_of(info))).collect();
        if at < last {
            return ((names, None), levels[at].weight_of(info));
        }
        let proof = proof_of(info).filter(|_| bounds_claims(levels));
        let is_proof = proof.is_some() && at == last;
        names.extend(proof);
        match is_proof {
            true => ((names, None), levels[last].weight_of_proof(info)),
            false => ((names, Some(job)), levels[last].weight_of(info)),
        }
    };
    active.iter().map(entity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(infos: &[(&str, &str, u32)]) -> BTreeMap<JobId, JobInfo> {
        let info =
            |(user, group, nodes): &(&str, &str, u32)| JobInfo { nodes: *nodes, ..JobInfo::new("", user, group) };
        infos.iter().enumerate().map(|(id, of)| (JobId(id as u32), info(of))).collect()
    }

    fn shares(policy: &str, infos: &[(&str, &str, u32)]) -> Vec<f64> {
        due(&policy.parse().unwrap(), &jobs(infos)).into_iter().map(|(_, share)| share).collect()
    }

    /// ThemisIO Figs. 2(b), 3(b), 4: two users, of two and of four jobs.
    #[test]
    fn user_then_job_fair_of_the_paper() {
        let infos = ["a", "a", "b", "b", "b", "b"].map(|user| (user, "", 1));
        let matrices = transition_matrices(&"user-then-job-fair".parse().unwrap(), &jobs(&infos));
        assert_eq!(matrices[0], [[0.5, 0.5]]);
        assert_eq!(matrices[1], [[0.5, 0.5, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.25, 0.25, 0.25, 0.25]]);
        assert_eq!(product(&matrices), [[0.25, 0.25, 0.125, 0.125, 0.125, 0.125]]);
        assert_eq!(shares("user-fair", &infos), [0.25, 0.25, 0.125, 0.125, 0.125, 0.125]);
    }

    /// ThemisIO Fig. 3(a).
    #[test]
    fn job_fair_of_the_paper() {
        assert_eq!(shares("job-fair", &[("a", "", 9), ("b", "", 1)]), [0.5, 0.5]);
    }

    /// ThemisIO Fig. 5: what each server sees, and what is right globally.
    #[test]
    fn size_fair_of_the_paper() {
        assert_eq!(shares("size-fair", &[("a", "", 16), ("b", "", 8)]), [2.0 / 3.0, 1.0 / 3.0]);
        assert_eq!(shares("size-fair", &[("a", "", 16), ("b", "", 8), ("c", "", 8)]), [0.5, 0.25, 0.25]);
    }

    /// ThemisIO Fig. 10: 2 : 3 : 2 within user 2, who has a third of group 2.
    #[test]
    fn group_user_size_fair_of_the_paper() {
        let infos =
            [("u1", "g1", 4), ("u2", "g2", 2), ("u2", "g2", 3), ("u2", "g2", 2), ("u3", "g2", 1), ("u4", "g2", 7)];
        let sixth = 1.0 / 2.0 / 3.0;
        let expected = [0.5, sixth * 2.0 / 7.0, sixth * 3.0 / 7.0, sixth * 2.0 / 7.0, sixth, sixth];
        for (share, expected) in shares("group-user-size-fair", &infos).into_iter().zip(expected) {
            assert!((share - expected).abs() < 1e-15, "{share} {expected}");
        }
    }

    #[test]
    fn weights_count_by_name_and_multiply_size() {
        let infos = [("ada", "astro", 1), ("ben", "astro", 1), ("cay", "bio", 1)];
        assert_eq!(shares("group-fair{astro=3,bio=1}-then-job-fair", &infos), [0.375, 0.375, 0.25]);
        assert_eq!(shares("user{ben=2}-size-fair", &infos), [0.25, 0.5, 0.25]);
        let mut named = jobs(&infos);
        named.insert(JobId(2), JobInfo { nodes: 3, ..JobInfo::new("urgent", "cay", "bio") });
        let due = due(&"size-fair{urgent=2}".parse().unwrap(), &named);
        assert_eq!(due, [(JobId(0), 0.125), (JobId(1), 0.125), (JobId(2), 0.75)]);
    }

    #[test]
    fn fifo_and_nobody_have_no_shares() {
        assert!(shares("fifo", &[("a", "", 1)]).is_empty());
        assert!(shares("job-fair", &[]).is_empty());
    }
}
