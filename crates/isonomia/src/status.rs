//! `isonomia status`.

use crate::arguments::StatusOptions;
use crate::control::Control;
use crate::table;
use anyhow::Result;
use std::io::Write;

pub fn status(options: &StatusOptions) -> Result<()> {
    let status = Control::connect(&options.server)?.status()?;
    let mut out = std::io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &status).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(table::status(&status).as_bytes())?;
    }
    Ok(())
}
