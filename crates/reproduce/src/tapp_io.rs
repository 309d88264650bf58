//! "Automatic and Transparent Resource Contention Mitigation for Improving Large-scale Parallel File System
//! Performance" (Neuwirth et al., ICPADS 2017): TAPP-IO.
//!
//! The placement of `isonomia-placement` on a model of the paper's machine: streams share routers, servers and targets
//! by max-min fairness, and a phase ends with its last stream, as IOR counts it.
//!
//! What the paper says: 18,688 nodes; a file system of 1,008 targets at 144 servers (§II); nodes of a job tend to lie
//! together (§IV.A.4); one writer on each node and a file without stripes for each (IOR), or a shared file of four
//! 1 MB stripes or of a stripe for each writer (§IV.A.1); 16 processes of 8 MB on each node, ten checkpoints, ten runs
//! (Genarray, §IV.C); more than thirty runs of three repetitions, in production (§IV.A.4); a gain is the ratio of
//! bandwidths less one (Eq. 2).
//!
//! What it does not say, and what is taken here:
//!
//! * *Bandwidths.* Both file systems of Spider II have 1 TB/s together (the title of the paper's reference 8): a target
//!   has 1/2016 of that, a server what its seven targets have.
//! * *Routers.* 432, twelve at each of 36 leaf switches of four servers, in twelve sections of the machine; a node uses
//!   the closest of a leaf's routers (its reference 10, Ezell et al., CUG 2014, as far as we know it). Together they
//!   carry 1 TB/s.
//! * *The default placement*: uniformly random, and in turn from a random start. Both are computed. They are the two
//!   ends of what Lustre does, and a claim counts as reproduced only if it holds over both.
//! * *Production noise*: on average one stream of other jobs at each target, each at a random target and from a random
//!   section, drawn anew for each repetition, for as long as it lasts. No placement knows of them.
//! * *Weights* are a third each.
//! * *Balance over time*: a job's balancer remembers its earlier repetitions and checkpoints.
//! * *Checkpoints* are written by one aggregator on each node, into a file of its own.
//!
//! All of this was chosen before the first run; `sensitivity` shows what hangs on it. Not modelled are the torus, what
//! a node or a stream can do at most, metadata, locks of shared files, caches, and what tells POSIX, MPI-IO and HDF5
//! apart. Times are in proportion to volumes, so the sizes of files that the paper varies make no difference to a gain.

mod checkpoint;
mod file_per_process;
mod gains;
mod job;
mod machine;
mod phase;
mod sensitivity;
mod shared_file;

use crate::run::{Paper, Study};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "tapp-io",
    title: "\"Automatic and Transparent Resource Contention Mitigation\" (TAPP-IO, ICPADS 2017)",
    studies: &[
        Study {
            name: "file-per-process",
            items: &["fig4", "fig5", "fig6"],
            about: "a file for each of 8 to 4096 nodes: gain run by run, bandwidth, mean gain and deviation",
            run: file_per_process::run,
        },
        Study {
            name: "shared-file",
            items: &["fig8"],
            about: "one file of 8 to 1024 nodes: four stripes, or one for each writer, by default or balanced",
            run: shared_file::run,
        },
        Study {
            name: "checkpoint",
            items: &["fig9"],
            about: "ten checkpoints of 128 to 4096 nodes, as S3D writes them",
            run: checkpoint::run,
        },
        Study {
            name: "open",
            items: &["sensitivity"],
            about: "the gain by what the paper leaves open: default placement, other jobs, weights, routers, streams",
            run: sensitivity::run,
        },
    ],
};
