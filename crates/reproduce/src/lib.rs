//! The claims of published papers, computed anew by the code that decides live.
//!
//! A [`Paper`] has studies; each computes one or several items (a figure, a table) as a [`Finding`]: raw data, how it is
//! drawn, and for each claim the paper's value, ours, and a verdict by one rule ([`RULE`]). [`PAPERS`] is every paper there is,
//! and last what is checked of the [`laboratory`] itself.
//! What a paper leaves open is chosen once, and named with the code that needs it; nothing is tuned until a claim
//! holds.
//!
//! Everything is drawn from seeds that are named in the results, so a run can be had again. This crate reads no
//! clock; it writes files where it is told to, and uses all cores.

mod chart;
mod claims;
mod data;
pub mod gift;
mod gift_port;
pub mod ics20;
mod interval;
pub mod laboratory;
mod run;
mod runs;
mod simulate;
mod table;
pub mod tapp_io;
pub mod themisio;

pub use chart::{Chart, Scale};
pub use claims::{Claim, RULE, Range, Test, Verdict, tally};
pub use data::Data;
pub use gift_port::GiftPort;
pub use interval::{Interval, geometric_mean};
pub use run::{Context, Cost, Finding, Paper, ReproduceError, Reproduced, Stopped, Study};
pub use table::Table;

/// Every paper that can be reproduced, and the laboratory.
pub static PAPERS: [&Paper; 5] = [&ics20::PAPER, &gift::PAPER, &themisio::PAPER, &tapp_io::PAPER, &laboratory::PAPER];
