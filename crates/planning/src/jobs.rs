//! Jobs as a table: `id,nodes,iterations,compute_s,volume`.

use crate::ids;
use crate::packs::Job;
use crate::schedule::App;
use crate::table::{TIME_S_MAX, TableError, nanos, read_rows};
use isonomia_units::Nanos;

const COLUMNS: [&str; 5] = ["id", "nodes", "iterations", "compute_s", "volume"];

/// A job and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedJob {
    /// Unique in its table.
    pub id: String,
    /// What it needs and does.
    pub job: Job,
}

/// Reads a table of jobs for partitions of `nodes` compute nodes. `volume` is what one iteration moves, in a unit
/// of which `bandwidth`, greater than 0, passes in a second. They come ascending by id, as
/// [`read_apps`](crate::read_apps) has it.
///
/// # Errors
/// The first line and field that cannot be used.
pub fn read_jobs(csv: &[u8], nodes: u32, bandwidth: f64) -> Result<Vec<NamedJob>, TableError> {
    let rows = read_rows(csv, &COLUMNS, &[], |row| {
        let volume = row.amount("volume")?;
        let io = nanos(volume / bandwidth).ok_or_else(|| {
            let allowed = format!("at most {TIME_S_MAX} s of I/O");
            let what = format!("is too much for a bandwidth of {bandwidth}");
            TableError::value(row.line, "volume", row.text("volume").unwrap_or(""), &what, &allowed)
        })?;
        let app =
            App { compute: row.seconds("compute_s")?, io, iterations: row.count("iterations")?, release: Nanos::ZERO };
        let needed = row.count("nodes")?;
        if needed > nodes {
            let allowed = format!("1 to {nodes}, the compute nodes of an I/O node");
            return Err(TableError::value(row.line, "nodes", &needed.to_string(), "is too large", &allowed));
        }
        if app.alone() == Nanos::ZERO {
            let what = "and compute_s are both 0 (allowed: one of them greater than 0)";
            return Err(TableError::new(row.line, Some("volume"), what.to_owned()));
        }
        Ok((row.line, NamedJob { id: row.name("id")?.to_owned(), job: Job { nodes: needed, app } }))
    })?;
    ids::sorted(rows, |named| &named.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &str) -> Result<Vec<NamedJob>, TableError> {
        read_jobs(format!("id,nodes,iterations,compute_s,volume\n{rows}\n").as_bytes(), 64, 4.0)
    }

    #[test]
    fn volume_takes_its_time_at_the_bandwidth() {
        let app =
            App { compute: Nanos::from_secs(10), io: Nanos::from_millis(500), iterations: 3, release: Nanos::ZERO };
        assert_eq!(read("j,64,3,10,2"), Ok(vec![NamedJob { id: "j".to_owned(), job: Job { nodes: 64, app } }]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (rows, expected) in [
            ("a,65,1,1,1", "line 2, field nodes: \"65\" is too large (allowed: 1 to 64"),
            ("a,0,1,1,1", "line 2, field nodes: \"0\" is not a count"),
            ("a,1,0,1,1", "line 2, field iterations: \"0\" is not a count"),
            ("a,1,1,-2,1", "line 2, field compute_s: \"-2\" is not a time"),
            ("a,1,1,1,-1", "line 2, field volume: \"-1\" is not an amount"),
            ("a,1,1,1,1e300", "line 2, field volume: \"1e300\" is too much for a bandwidth of 4"),
            ("a,1,1,0,0", "line 2, field volume: and compute_s are both 0"),
            ("a,1,1,1,1\na,1,1,1,1", "line 3, field id: \"a\" is in line 2 already"),
        ] {
            let error = read(rows).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{rows}: {error}");
        }
    }
}
