//! Applications of one I/O node as a table: `id,compute_s,io_s,iterations` and, optional, `release_s`.

use crate::ids;
use crate::schedule::App;
use crate::table::{TableError, read_rows};
use isonomia_units::Nanos;

const REQUIRED: [&str; 4] = ["id", "compute_s", "io_s", "iterations"];
const OPTIONAL: [&str; 1] = ["release_s"];

/// An application and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedApp {
    /// Unique in its table.
    pub id: String,
    /// What it does.
    pub app: App,
}

/// Reads a table of applications. They come ascending by id, which is how ties between them are broken; numbers
/// count as numbers and come before other text.
///
/// # Errors
/// The first line and field that cannot be used.
pub fn read_apps(csv: &[u8]) -> Result<Vec<NamedApp>, TableError> {
    let rows = read_rows(csv, &REQUIRED, &OPTIONAL, |row| {
        let release = if row.text("release_s").is_some() { row.seconds("release_s")? } else { Nanos::ZERO };
        let app = App {
            compute: row.seconds("compute_s")?,
            io: row.seconds("io_s")?,
            iterations: row.count("iterations")?,
            release,
        };
        let id = row.name("id")?.to_owned();
        if app.alone() == Nanos::ZERO {
            let what = "and compute_s are both 0 (allowed: one of them greater than 0)";
            return Err(TableError::new(row.line, Some("io_s"), what.to_owned()));
        }
        Ok((row.line, NamedApp { id, app }))
    })?;
    ids::sorted(rows, |named| &named.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_in_the_order_of_ids() {
        let apps = read_apps(b"id,compute_s,io_s,iterations,release_s\n10,1,2,3,\n9,0.5,0,1,7\n").unwrap();
        let app = |compute, io, iterations, release| App {
            compute: Nanos::from_millis(compute),
            io: Nanos::from_millis(io),
            iterations,
            release: Nanos::from_millis(release),
        };
        let named = |id: &str, app| NamedApp { id: id.to_owned(), app };
        assert_eq!(apps, [named("9", app(500, 0, 1, 7000)), named("10", app(1000, 2000, 3, 0))]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (rows, expected) in [
            ("a,0,0,1", "line 2, field io_s: and compute_s are both 0"),
            ("a,1,1,0", "line 2, field iterations: \"0\" is not a count"),
            ("a,1,-1,1", "line 2, field io_s: \"-1\" is not a time"),
            ("a,nan,1,1", "line 2, field compute_s: \"nan\" is not a time"),
            ("a,1,1,1\nb,1,1,1\na,2,2,2", "line 4, field id: \"a\" is in line 2 already (allowed: each id once)"),
        ] {
            let error = read_apps(format!("id,compute_s,io_s,iterations\n{rows}\n").as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{rows}: {error}");
        }
    }
}
