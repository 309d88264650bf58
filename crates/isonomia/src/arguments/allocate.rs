//! The options of `isonomia allocate`.

use clap::{Args, ValueEnum};
use isonomia_whatif::allocate as whatif;
use std::path::PathBuf;

/// Show what a bandwidth allocation scheme gives each application of a case, for one decision
///
/// The case is a TOML file with an `[[app]]` for each application: `name`, `targets`, and if wanted `weight`, `nodes` (for adaptbf
/// and calciom), `throttle_friendly`, `owed` (coupons in shares of one target), `remaining` (bytes by target), `runs` (for tmf),
/// `rate` in shares of one target and `hard` (for tbf), `attained` bytes and `slowdown` (for coflow). At the top there
/// may be `targets` (then others are refused), `b_thres` [default: 0.1], `guarantee` [default: 0.5; 0.2 with fair-finish], `order`
/// (bottleneck, attained, slowdown, bssf) [default: bottleneck if all of `remaining` is known, else attained],
/// `strategy` of calciom (serialize, interrupt, interfere, dynamic) [default: dynamic if all of `remaining` is known, else
/// serialize], `progress` of pofs, tbf, adaptbf and calciom (min-rate, banked) [default: min-rate], `seed` of rnd [default: 0].
///
/// A share is an application's part of each of its targets under synchronous progress, the fair share what it has
/// under bsip. Bandwidth and coupons are counted in targets. Under fair-finish a `remaining` that is not known is taken for
/// 1 GB at first, as it is told anew when it turns out to be more.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia allocate case.toml --scheme gift
  isonomia allocate case.toml --scheme coflow --json | jq '.apps[] | {name, share}'
  printf '[[app]]\\nname=\"A\"\\ntargets=[\"t1\"]\\n' | isonomia allocate /dev/stdin --scheme bsip")]
pub struct AllocateOptions {
    /// The case (TOML)
    #[arg(value_name = "CASE")]
    pub case: PathBuf,
    /// The scheme
    #[arg(long, value_enum, value_name = "SCHEME")]
    pub scheme: Scheme,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Bandwidth allocation schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// Per-OST fair share: each target for itself
    Pofs,
    /// Basic synchronous I/O progress: the fair share of the most contended target
    Bsip,
    /// Minimum bandwidth wastage: the greatest effective bandwidth
    Mbw,
    /// Throttle small applications
    Tsa,
    /// Expand small applications
    Esa,
    /// Throttle the most frequent applications
    Tmf,
    /// Throttle randomly
    Rnd,
    /// Throttle and reward, with coupons
    Gift,
    /// Token buckets with spare bandwidth shared
    Tbf,
    /// Token buckets by nodes, of which nothing has been lent yet
    #[value(name = "adaptbf")]
    AdapTbf,
    /// One phase at a time, or all of them, for phases that begin now
    Calciom,
    /// A guaranteed part of the fair share, the rest in an order
    Coflow,
    /// One after the other, as fair sharing would finish phases that begin now
    FairFinish,
}

impl From<Scheme> for whatif::Scheme {
    fn from(scheme: Scheme) -> Self {
        match scheme {
            Scheme::Pofs => Self::Pofs,
            Scheme::Bsip => Self::Bsip,
            Scheme::Mbw => Self::Mbw,
            Scheme::Tsa => Self::Tsa,
            Scheme::Esa => Self::Esa,
            Scheme::Tmf => Self::Tmf,
            Scheme::Rnd => Self::Rnd,
            Scheme::Gift => Self::Gift,
            Scheme::Tbf => Self::Tbf,
            Scheme::AdapTbf => Self::AdapTbf,
            Scheme::Calciom => Self::Calciom,
            Scheme::Coflow => Self::Coflow,
            Scheme::FairFinish => Self::FairFinish,
        }
    }
}
