//! Options of `isonomia policy`.

use super::WholeOptions;
use clap::{Args, Subcommand};
use isonomia_policy::{Draw, PolicySpec};

/// Show or set the sharing policy of a running server or cluster
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia policy get
  isonomia policy set size-fair
  isonomia policy set fifo --server io03")]
pub struct PolicyOptions {
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// A policy that has no say, or none.
#[derive(Clone, Debug)]
pub struct Shadow(pub Option<PolicySpec>);

fn shadow(text: &str) -> Result<Shadow, String> {
    if text == "off" {
        return Ok(Shadow(None));
    }
    text.parse().map(|spec| Shadow(Some(spec))).map_err(|error| format!("{error}; or off"))
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the policy, and in a cluster which server has which version of it
    #[command(
        visible_alias = "show",
        after_help = "\
Examples:
  isonomia policy get
  isonomia policy get --json
  isonomia policy get --server io03"
    )]
    Get {
        #[command(flatten)]
        whole: WholeOptions,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Set the policy at once; nothing that is queued is dropped
    ///
    /// A policy is fifo, or levels joined by -then- and ending in -fair: first group and user, in any order, then
    /// one of job, size (compute nodes), priority. Levels may carry weights. Or it is one of coflow (a part of each
    /// fair share guaranteed, the rest to one phase after the other), fair-finish (one phase after the other, none
    /// ended later than under fair sharing), tbf (rates), mclock (reservations, limits, weights), set10 (sets by
    /// the time between phases), exclusive (one application at a time has the targets), with settings in braces; docs/reference/policies.md has them all. Allowed to the
    /// server's user and to root.
    ///
    /// Asked of any server of a cluster it sets the policy of all of them: the root server gives it a version and records
    /// it, a server that is away takes it before it serves again, and which those are is told. With --server NAME it is that
    /// server's alone, until the cluster's policy is set the next time, or the server ends.
    #[command(after_help = "\
Examples:
  isonomia policy set fifo
  isonomia policy set user-then-size-fair
  isonomia policy set job-fair+strict
  isonomia policy set 'group{astro=3,bio=1}-then-job-fair'
  isonomia policy set 'coflow{guarantee=0.8,order=attained,tree=user-then-size-fair}'
  isonomia policy set 'tbf{user:ada=500MiB/s,job:backup=50MiB/s}'
  isonomia policy set 'exclusive{order=stretch,lease=60s}'
  isonomia policy set 'user-then-size-fair+latency{p99=2ms,job:viz,size<=16KiB}'
  isonomia policy set job-fair --draw lottery
  isonomia policy set fifo --server io03")]
    Set {
        #[command(flatten)]
        whole: WholeOptions,
        /// The policy
        #[arg(value_name = "SPEC")]
        policy: PolicySpec,
        /// How the next request is drawn: virtual-time or lottery [default: as it is]
        #[arg(long)]
        draw: Option<Draw>,
    },
    /// Show what is known of the I/O phases of applications that recur
    ///
    /// By it fair-finish expects how long the next phase of an application is. An application is known by its user and the
    /// title of its jobs (isonomia run --title, Slurm's job name), or their name, and each target has seen phases of its own; sizes
    /// are times that the target needs for them, and an error of 2 says that what was expected was off by a factor of 2 in the
    /// mean. Shown are those that ended a phase last. It is asked of every server that answers, and kept when servers end. Allowed to the
    /// server's user and to root.
    #[command(after_help = "\
Examples:
  isonomia policy history
  isonomia policy history --json
  isonomia policy history --server io03")]
    History {
        #[command(flatten)]
        whole: WholeOptions,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have another policy decide beside the one that is followed, without a say
    ///
    /// `isonomia status` and `isonomia top` then show what it would have given each job of the last seconds, beside what the job
    /// had. It sees how much each job has outstanding and how soon it asks again, and gives out what the targets give out; it does not know that
    /// a job that is served faster is done sooner. It is asked of every server that answers, each for itself, and is gone when
    /// the server ends.
    #[command(after_help = "\
Examples:
  isonomia policy shadow job-fair
  isonomia policy shadow 'coflow{guarantee=0.8}'
  isonomia policy shadow off")]
    Shadow {
        #[command(flatten)]
        whole: WholeOptions,
        /// The policy, or off
        #[arg(value_name = "SPEC|off", value_parser = shadow)]
        policy: Shadow,
    },
}
