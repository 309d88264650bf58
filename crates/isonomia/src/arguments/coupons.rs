//! Options of `isonomia coupons` and `isonomia regret`.

use super::WholeOptions;
use super::number::number;
use clap::Args;

/// Show who was throttled under the policy gift, and what of it was given back
///
/// A coupon is a millionth of one target for one decision interval. They are redeemed with bandwidth in later I/O phases and
/// later runs of the same application; what is left at the end of a regret period is paid in node-hours: see isonomia regret.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia coupons
  isonomia coupons --slurm | column -t -s '|'   what each user's coupons would cost now
  isonomia coupons --json")]
pub struct CouponsOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// Print a line for each user and account of Slurm, as its own programs do with --parsable2: user, account, coupons
    /// outstanding, and the whole node-seconds that would be owed for them if the period ended now. Nothing of it is due
    /// yet: what is, isonomia regret says
    #[arg(long, conflicts_with = "json")]
    pub slurm: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what node-hours are owed to jobs whose coupons were not redeemed, by regret period
///
/// Prints what is to be credited at the end of each period that is over, one line each: the number of the period, its end in
/// seconds since 1970, user, account, and whole node-seconds, parted by |, as Slurm's own programs do with --parsable2. It is
/// never more than the policy's budget. A | in a name is written as %7C.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia regret
  isonomia regret --period 12
  isonomia regret --period 12 --slurm > credits.sh   to be read, and then run by an administrator of Slurm
  isonomia regret --json")]
pub struct RegretOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// This period alone
    #[arg(long, value_name = "NUMBER", value_parser = number::<u64>(0..=u64::MAX))]
    pub period: Option<u64>,
    /// Print the period as a script for the shell, with a command for each user and account: whole node-minutes are added to the
    /// limit GrpTRESMins=node=… of the user's association in Slurm, if it has one. Nothing is run here. To be saved in a file and run
    /// there: it notes beside itself what it has credited, and credits nothing twice
    #[arg(long, conflicts_with = "json", requires = "period")]
    pub slurm: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
