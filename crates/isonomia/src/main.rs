//! The program `isonomia`: what users and operators run.
//!
//! Every subcommand is one file here; [`arguments`] is the one definition of every option. Data go to standard
//! output, logs and progress to standard error. The exit code is 0 when it was done, 1 when it was not, 2 when
//! the command line is wrong; `isonomia run` hands on the command's own.

mod allocate;
mod arguments;
mod backup;
mod cluster;
mod control;
mod coupons;
mod demo;
mod device;
mod fsck;
mod link_flags;
mod log;
mod metrics;
mod mount;
mod placement;
mod plan;
mod policy;
mod program;
mod ready;
mod record;
mod reproduce;
mod rule;
mod run;
mod scrape;
mod serve;
mod sim;
mod status;
mod stripe;
mod table;
mod top;
mod turns;
mod volume;
mod whole;

use anyhow::Result;
use arguments::{Arguments, Command, HelperArguments};
use clap::Parser;
use std::io::ErrorKind;
use std::process::ExitCode;

/// A server allocates and frees a dozen small things for each file that it creates, from threads that the system's allocator
/// gives heaps that grow by a page at a time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = if mount::is_helper() {
        let arguments = HelperArguments::parse();
        log::to_stderr();
        keep_to_small_pages();
        mount::help(&arguments).map(|()| ExitCode::SUCCESS)
    } else {
        let arguments = Arguments::parse();
        log::to_stderr();
        dispatch(arguments.command)
    };
    match outcome {
        Ok(code) => code,
        // Whoever read our output has seen enough, as in `isonomia status | head -1`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            log::say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(options) => {
            keep_to_small_pages();
            serve::serve(&options)?;
        }
        Command::Run(options) => return run::run(&options),
        Command::LinkFlags(_) => link_flags::link_flags()?,
        Command::Mount(options) => {
            keep_to_small_pages();
            mount::mount(&options)?;
        }
        Command::Guard(options) => mount::guard(&options)?,
        Command::Unmount(options) => isonomia_mount::unmount(&options.dir, options.lazy)?,
        Command::Fsck(options) => return Ok(fsck::fsck(&options)),
        Command::Backup(options) => backup::backup(&options)?,
        Command::Status(options) => status::status(&options)?,
        Command::Top(options) => top::top(&options)?,
        Command::Policy(options) => policy::policy(&options)?,
        Command::Rule(options) => rule::rule(&options)?,
        Command::Coupons(options) => coupons::coupons(&options)?,
        Command::Regret(options) => coupons::regret(&options)?,
        Command::Cluster(options) => return cluster::cluster(&options),
        Command::Volume(options) => volume::volume(&options)?,
        Command::Stripe(options) => stripe::stripe(&options)?,
        Command::Placement(options) => placement::placement(&options)?,
        Command::Reproduce(options) => reproduce::reproduce(&options)?,
        Command::Plan(options) => plan::plan(&options)?,
        Command::Demo(options) => demo::demo(&options)?,
        Command::Device(options) => device::device(&options)?,
        Command::Record(options) => record::record(&options)?,
        Command::Sim(options) => sim::sim(&options)?,
        Command::Allocate(options) => allocate::allocate(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the kernel for memory in pages of 4 KiB. The allocator takes memory in small pieces here and there, and with transparent
/// huge pages the first touch of each has 2 MiB cleared: a seventh of a server's time where files are created. Only for what
/// stays ours: programs that this one starts would inherit it.
fn keep_to_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!("huge pages stay as the system has them: {error}");
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe))
}
