//! `isonomia policy get` and `isonomia policy set`.

use crate::arguments::{PolicyCommand, PolicyOptions};
use crate::control::Control;
use anyhow::Result;
use std::io::Write;

pub fn policy(options: &PolicyOptions) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match &options.command {
        PolicyCommand::Get { server, json } => {
            let status = Control::connect(server)?.status()?;
            if *json {
                writeln!(out, "{}", serde_json::json!({ "policy": status.policy, "draw": status.draw }))?;
            } else {
                writeln!(out, "{} ({})", status.policy, status.draw)?;
            }
        }
        PolicyCommand::Set { server, policy, draw } => {
            let (policy, draw) = Control::connect(server)?.set_policy(policy, *draw)?;
            writeln!(out, "{policy} ({draw})")?;
        }
    }
    Ok(())
}
