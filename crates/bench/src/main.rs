//! The program `isonomia-bench`: speed beside tmpfs, fairness between jobs, and the price of the preload library for
//! others' calls, measured through real processes.
//!
//! * [`speed`], [`fairness`], [`cluster`], [`exchange`], [`overhead`], [`applications`], [`peers`], [`placement`], [`programs`], and
//!   [`storage`] say what is measured; [`report`] writes what came out.
//! * A [`crew`] of [`worker`] processes does one [`task`] at a time, all starting at the same instant. The same
//!   program text runs on tmpfs, under the preload library, and over the client library ([`access`]).
//! * [`device`] emulates a disk whose requests take their time.
//! * [`server`] is the server under test, a process of its own.
//!
//! A number that misses its target is shown, and is no failure: the exit code is 0 when everything was measured,
//! 1 when something was not, 2 when the command line is wrong.

mod access;
mod applications;
mod arguments;
mod clock;
mod cluster;
mod contest;
mod crew;
mod device;
mod exchange;
mod exclusive;
mod fairness;
mod handover;
mod harness;
mod host;
mod offsets;
mod overhead;
mod peers;
mod phases;
mod placement;
mod programs;
mod report;
mod server;
mod slices;
mod speed;
mod statistics;
mod storage;
mod task;
mod way;
mod worker;

use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut commands = Arguments::parse().commands().into_iter();
    let done = commands.try_for_each(|command| match command {
        Command::Speed(options) => speed::run(&options),
        Command::Fairness(options) => fairness::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Storage(options) => storage::run(&options),
        Command::Device(options) => device::run(&options),
        Command::Overhead(options) => overhead::run(&options),
        Command::Applications(options) => applications::run(&options),
        Command::Exchange(options) => exchange::run(&options),
        Command::Programs(options) => programs::run(&options),
        Command::Exclusive(options) => exclusive::run(&options),
        Command::Placement(options) => placement::run(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Calls(options) => overhead::make_calls(&options),
        Command::Worker(options) => worker::run(&options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isonomia-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
