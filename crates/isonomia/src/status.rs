//! `isonomia status`.

use crate::arguments::StatusOptions;
use crate::whole::{self, Meant};
use crate::{table, whole::report};
use anyhow::Result;
use std::io::Write;

pub fn status(options: &StatusOptions) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match whole::meant(&options.whole)? {
        Meant::One(_, status) if options.json => writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?,
        Meant::One(_, status) => out.write_all(table::status(&status).as_bytes())?,
        Meant::All(mut all) => {
            let seen = all.look();
            let report = report(&all.members, &seen);
            if options.json {
                writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
            } else {
                out.write_all(whole::text(&report).as_bytes())?;
            }
        }
    }
    Ok(())
}
