//! "GIFT: A Coupon Based Throttle-and-Reward Mechanism for Fair and Efficient I/O Bandwidth Management on Parallel
//! Storage Systems" (Patel et al., FAST 2020).
//!
//! Everything is computed at fluid level with the population of [`isonomia_sim::fluid::population`], which names
//! what the paper leaves open. The real system of Figs. 7 to 9 is simulated too, at its size. Gains are over POFS
//! under the min-rate model, the paper's baseline; the banked model stands beside it, because the paper's text
//! leaves open which one its POFS has, and POFS and BSIP are the same under min-rate.
//!
//! Measures (§4): *I/O time* and *run time* are means over applications of the reduction of the application's mean;
//! *effective bandwidth* is [`isonomia_sim::fluid::Outcome::effective_bandwidth`]; *throughput* is jobs done.

mod beyond;
mod closed;
mod cost;
mod evaluation;
mod example;
mod fair_finish;
mod guarantee;
mod requests;
mod sweeps;
mod system;

use crate::run::{Paper, Study};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "gift",
    title: "\"GIFT: A Coupon Based Throttle-and-Reward Mechanism\" (FAST 2020)",
    studies: &[
        Study {
            name: "example",
            items: &["fig6"],
            about: "the worked example: throttling, coupons, and their redemption",
            run: example::run,
        },
        Study {
            name: "real",
            items: &["fig7", "fig8", "fig9"],
            about: "250 applications on 64 targets and 192 nodes: gains, regret, fairness",
            run: evaluation::real,
        },
        Study {
            name: "simulated",
            items: &["fig10"],
            about: "500 applications, 25 days: gains of all schemes",
            run: evaluation::simulated,
        },
        Study {
            name: "parameters",
            items: &["fig11", "fig12"],
            about: "the threshold, the bound of throttling, and the window; coupons and regret over time",
            run: sweeps::parameters,
        },
        Study {
            name: "conditions",
            items: &["fig13", "fig14"],
            about: "kinds of applications, and 100 to 1000 of them",
            run: sweeps::conditions,
        },
        Study {
            name: "cost",
            items: &["overhead", "messages", "silence"],
            about: "processor time of a decision, messages, and decisions of which some servers do not hear",
            run: cost::run,
        },
        Study {
            name: "beyond",
            items: &["sources", "coflow"],
            about: "where GIFT's gain comes from, and what coflow scheduling adds to it",
            run: beyond::run,
        },
        Study {
            name: "finish",
            items: &["fair-finish"],
            about: "fair finish at GIFT's scale",
            run: fair_finish::at_scale,
        },
        Study {
            name: "saturated",
            items: &["saturation"],
            about: "fair finish where half of all time is I/O",
            run: fair_finish::saturation,
        },
        Study {
            name: "nodes-for-all",
            items: &["closed"],
            about: "the same with nodes for everybody, and the clock of the closed system",
            run: closed::run,
        },
        Study {
            name: "choice",
            items: &["guarantee"],
            about: "which guarantee coflow scheduling should give, and whether choosing it by workload pays",
            run: guarantee::run,
        },
        Study {
            name: "live",
            items: &["requests"],
            about: "coflow scheduling request by request, with the arbiters of live servers",
            run: requests::run,
        },
    ],
};
