//! "Mapping and Scheduling HPC Applications for Optimizing I/O" (Carretero et al., ICS 2020).
//!
//! Its Table 1 and Figs. 5 to 8 compare orders of I/O phases, Figs. 10 to 15 ways of making packs. Figs. 1 and 9 were
//! measured on the authors' machine and are not computed here.

pub mod grid;
mod orders;
mod packs;
mod sensitivity;

use crate::run::{Paper, Study};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "ics20",
    title: "\"Mapping and Scheduling HPC Applications for Optimizing I/O\" (ICS 2020)",
    studies: &[
        Study {
            name: "table1",
            items: &["fig5", "fig6", "fig7", "fig8", "jitter"],
            about: "the eight orders of I/O phases on the applications of Table 1",
            run: orders::run,
        },
        Study {
            name: "packs",
            items: &["fig10", "fig11", "fig12", "fig13", "fig14", "fig15"],
            about: "packs against First-Fit on a grid of I/O loads",
            run: packs::run,
        },
        Study {
            name: "sensitivity",
            items: &["sensitivity"],
            about: "what Fig. 15 owes to the choices that the paper leaves open",
            run: sensitivity::run,
        },
    ],
};
