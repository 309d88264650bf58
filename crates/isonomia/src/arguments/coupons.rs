//! Options of `isonomia coupons` and `isonomia regret`.

use super::WholeOptions;
use clap::Args;

/// Show who was throttled under the policy gift, and what of it was given back
///
/// A coupon is a millionth of one target for one decision interval. They are redeemed with bandwidth in later I/O phases and
/// later runs of the same application; what is left at the end of a regret period is paid in node-hours: see isonomia regret.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia coupons
  isonomia coupons --json")]
pub struct CouponsOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what node-hours are owed to jobs whose coupons were not redeemed, by regret period
///
/// Prints what is to be credited at the end of each period that is over, one line each: the number of the period, its end in
/// seconds since 1970, user, account, and whole node-seconds, parted by |, as Slurm's own programs do with --parsable2. It is
/// never more than the policy's budget.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia regret
  isonomia regret --period 12
  isonomia regret --json")]
pub struct RegretOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// This period alone
    #[arg(long, value_name = "NUMBER")]
    pub period: Option<u64>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
