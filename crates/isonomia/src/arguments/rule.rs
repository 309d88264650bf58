//! Options of `isonomia rule`.

use super::WholeOptions;
use clap::{Args, Subcommand};
use isonomia_policy::{PolicySpec, Spare};

/// Give rates to jobs, users, groups, operations and directories
///
/// Rules are those of the policy tbf: token buckets, as in Lustre. A rate applies to the whole system: each target of each server
/// has a part of it, which follows where the demand is. The first rule that selects a request decides. In a cluster rules are those
/// of all servers; docs/reference/policies.md has what they can say. Changing them is allowed to the server's user and to root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia rule start backups user:backup 200MiB/s
  isonomia rule start adas-writes 'user:ada&op:write' 500MiB/s --realtime
  isonomia rule start creates 'group:astro&op:metadata' 2000ops/s
  isonomia rule start scratch path:/scratch/shared 1GiB/s --last
  isonomia rule start admins group:admin exempt
  isonomia rule list")]
pub struct RuleOptions {
    #[command(subcommand)]
    pub command: RuleCommand,
}

#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Add a rule
    ///
    /// Refused if its name is taken, if another rule is for the same requests, or if one of the rules would never be
    /// reached then.
    #[command(after_help = "\
Examples:
  isonomia rule start backups user:backup 200MiB/s
  isonomia rule start adas-writes 'user:ada&op:write' 500MiB/s --before backups")]
    Start {
        #[command(flatten)]
        whole: WholeOptions,
        /// By which it is known: letters, digits, and any of - _ .
        name: String,
        /// What it is for: job:NAME, user:NAME, group:NAME (each with * for each one by itself), op:OPERATION (read, write, metadata,
        /// or several joined by +), path:/DIR, or several of these joined by &
        #[arg(value_name = "FOR")]
        scope: String,
        /// A rate, such as 100MiB/s (bytes read and written) or 200ops/s (operations); or exempt
        rate: String,
        /// What was missed is made up for: Lustre's hard token compensation (HTC)
        #[arg(long)]
        realtime: bool,
        /// Put it before the rule of this name [default: before all others]
        #[arg(long, value_name = "NAME", conflicts_with = "last")]
        before: Option<String>,
        /// Put it behind all others
        #[arg(long)]
        last: bool,
        /// Replace a policy that has no rules: jobs that no rule selects are then served as they come
        #[arg(long)]
        replace: bool,
    },
    /// Have a rule allow something else
    #[command(after_help = "\
Examples:
  isonomia rule change backups 400MiB/s")]
    Change {
        #[command(flatten)]
        whole: WholeOptions,
        /// The rule; one that has no name is called by what it is for
        name: String,
        /// A rate, or exempt
        rate: String,
        /// What was missed is made up for
        #[arg(long)]
        realtime: bool,
    },
    /// End a rule
    #[command(after_help = "\
Examples:
  isonomia rule stop backups
  isonomia rule stop adas-writes --then user-then-size-fair")]
    Stop {
        #[command(flatten)]
        whole: WholeOptions,
        /// The rule; one that has no name is called by what it is for
        name: String,
        /// The policy that comes after the last rule
        #[arg(long, value_name = "POLICY")]
        then: Option<PolicySpec>,
    },
    /// Say what becomes of bandwidth that no rule gives to anybody: unused (rates are limits) or proportional (shared in
    /// proportion to the rates: Lustre's PSSB)
    #[command(after_help = "\
Examples:
  isonomia rule spare proportional")]
    Spare {
        #[command(flatten)]
        whole: WholeOptions,
        /// unused or proportional
        #[arg(value_parser = spare)]
        spare: Spare,
    },
    /// Show the rules, what each gives to whom, and who was held by it for how long
    #[command(after_help = "\
Examples:
  isonomia rule list
  isonomia rule list --json")]
    List {
        #[command(flatten)]
        whole: WholeOptions,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

fn spare(text: &str) -> Result<Spare, String> {
    let known = Spare::ALL.into_iter().find(|spare| spare.word() == text);
    known.ok_or_else(|| "not one of unused, proportional".to_owned())
}
