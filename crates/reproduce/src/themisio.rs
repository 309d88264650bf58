//! "Fine-grained Policy-driven I/O Sharing for Burst Buffers" (Karrels et al., SC 2023).
//!
//! Computed at request level with the arbiters of the live server, by the paper's statistical tokens (`lottery`) and
//! by virtual time, which is this project's default. A server is a device of 21.8 GB/s that serves 1 MB requests; the
//! network, the servers' processors, and client start-up are not modelled, so what the paper loses to these does
//! not show. The applications of Fig. 13 are not available: they are modelled from what is known of them.

mod applications;
mod exchange;
mod peers;
mod scaling;
mod server;
mod sharing;

use crate::run::{Paper, Study};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "themisio",
    title: "\"Fine-grained Policy-driven I/O Sharing for Burst Buffers\" (SC 2023)",
    studies: &[
        Study { name: "scaling", items: &["fig7"], about: "throughput of 1 to 128 servers", run: scaling::run },
        Study {
            name: "sharing",
            items: &["fig8", "fig9", "fig10"],
            about: "what jobs get under primitive and composite policies (fig10 holds Fig. 11 too)",
            run: sharing::policies,
        },
        Study {
            name: "peers",
            items: &["fig12"],
            about: "throughput and its deviation against GIFT and token buckets",
            run: peers::run,
        },
        Study {
            name: "applications",
            items: &["fig13", "writers", "pause"],
            about: "slowdown by a background job, first-in-first-out and size-fair",
            run: applications::run,
        },
        Study {
            name: "delay",
            items: &["fig14"],
            about: "global fairness after an exchange of jobs",
            run: exchange::run,
        },
    ],
};
