//! `isonomia link-flags`: what links the client into a static program.

use crate::run::beside_program;
use anyhow::Result;

/// Prints the flags on one line.
pub fn link_flags() -> Result<()> {
    let advice = "`make build` makes it";
    let flags = beside_program("libisonomia_wrap.flags", advice)?;
    let archive = beside_program("libisonomia_wrap.a", advice)?;
    println!("-Wl,@{} {}", flags.display(), archive.display());
    Ok(())
}
