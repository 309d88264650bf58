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
//! * *The default placement*: targets round-robin, of which files of other jobs take as many in between, in random order
//!   (`shared turns`). It is what claims are judged over. The two ends of what Lustre does, uniformly random and
//!   round-robin without interruption, stand beside it.
//! * *Nodes*: the scheduler tends to give nodes that lie together (§IV.A.4), on a torus that others use too: fragments of
//!   1 to 512 nodes, log-uniform, each anywhere.
//! * *Other jobs*: bursts, because what petascale file systems see is bursts (Kim et al., PDSW 2010, find both the bandwidth used and
//!   the time between requests Pareto distributed on Spider), of 1 to 1024 writers, log-uniform, onto targets
//!   alternately, each writer with a Pareto distributed volume (shape 1.5, 2 s of a target on average), at any time.
//!   They use a tenth of the bandwidth on average: the paper says that at large scale contention is mostly
//!   the job's own (§I). No placement knows of them.
//! * *Many writers*: a target of disks loses throughput by streams that interleave. It has 1/(1 + 0.05 (n - 1)) of it with n
//!   streams, and at least a half.
//! * *Weights* are a third each.
//! * *Balance over time*: a job's balancer remembers its earlier repetitions and checkpoints.
//! * *Checkpoints* are written by one aggregator on each node, into a file of its own.
//!
//! All of this was chosen before the first run of this model; `sensitivity` shows what hangs on it. Not modelled are
//! the links of the torus, what a node or a stream can do at most, metadata, locks of shared files, caches, and what
//! tells POSIX, MPI-IO and HDF5 apart.

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
            items: &["fig4", "fig5", "fig6", "fig7"],
            about: "a file for each of 8 to 4096 nodes: gain run by run, bandwidth, mean gain and deviation, time",
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
            about: "the gain by what the paper leaves open: default placement, other jobs, loss, nodes, weights, routers, streams",
            run: sensitivity::run,
        },
    ],
};
