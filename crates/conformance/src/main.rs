//! An actor in a process of its own: actions in, outcomes out, one JSON value a line.

use isonomia_conformance::clib::CLibrary;
use isonomia_conformance::{Action, Actor, Outcome};
use std::io::{BufRead, Error, Write};

fn main() -> Result<(), Error> {
    let mut actor = CLibrary::default();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let outcome = match serde_json::from_str(&line?)? {
            Action::Begin(root) => {
                actor.begin(&root);
                Outcome::Done
            }
            Action::Do(operation) => actor.act(&operation),
        };
        writeln!(output, "{}", serde_json::to_string(&outcome)?)?;
        output.flush()?;
    }
    Ok(())
}
