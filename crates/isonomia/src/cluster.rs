//! `isonomia cluster`: cluster files, who of their servers is there, and clusters for trials.

mod check;
pub mod members;
mod reload;
mod status;
pub mod trial;

use crate::arguments::{ClusterCommand, ClusterOptions};
use anyhow::Result;
use std::process::ExitCode;

pub fn cluster(options: &ClusterOptions) -> Result<ExitCode> {
    match &options.command {
        ClusterCommand::Check(options) => check::check(options),
        ClusterCommand::Status(options) => status::status(options),
        ClusterCommand::Reload(options) => reload::reload(options),
        ClusterCommand::Up(options) => trial::up(options),
        ClusterCommand::Down(options) => trial::down(options),
    }
}
