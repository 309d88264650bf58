//! Which targets a new file lies on (TAPP-IO, "Automatic and Transparent Resource Contention Mitigation for Improving
//! Large-scale Parallel File System Performance").
//!
//! A job that writes many files, or one large file, is often its own worst neighbour: by chance several of its
//! streams meet at one target, one server, or one router, and the slowest stream is the job's speed. [`Balancer`]
//! chooses the path that was used least so far, by a weighted sum of the uses of its parts.
//!
//! * [`Topology`]: targets, the servers they are at, and the routers between clients and servers.
//! * [`Balancer`]: the balanced choice, for a file of each process and for one shared file (§III.A, Algorithm 1,
//!   Eq. 1), with [`Weights`].
//! * [`SharedLayout`]: stripe count and stripe size of a shared file (§III.A, Fig. 1, layout 1).
//! * [`random_targets`] and [`RoundRobin`]: what file systems do by default. A server's new files are placed by the latter
//!   ([`Step::File`]), and the paper's comparisons as well ([`Step::Stripe`]). [`hashed_targets`] needs no memory at all.
//! * [`Placer`]: all of these for the files of all jobs of a server, as [`Placement`](isonomia_units::Placement) names them.
//! * [`Room`]: what other jobs leave of a target, by its load and its free space.
//!
//! There is no clock, global, or hidden randomness in here: generators and where to begin are arguments, and
//! the same calls give the same placements.
//!
//! # Deviations from the paper, and choices where it is silent
//!
//! * *Other jobs.* What is used is what this job used; the load of other jobs is unknown to the paper's algorithm. Whoever
//!   tells a balancer of none ([`Balancer::tell_room`]) has the paper's.
//! * *Streams end.* The paper places all files of a job before it writes, once. A server places them one by one while others
//!   are closed; what was closed does not count any more ([`Balancer::release`]).
//! * *Ties.* The paper does not say which of several cheapest targets is taken. Here it is the first in the round
//!   ([`Topology::targets`]) at or after the position where the balancer was told to begin. A fixed first target would
//!   bring the small files of all jobs to the same few targets; the caller draws the beginning.
//! * *Weights* are whole numbers and stand for their part of the sum, so that costs are compared exactly and the
//!   weights always add up to one.
//! * *Routers.* A client reaches a server through exactly one router, its closest (fine-grained routing, §II). Where
//!   there are no routers, as on a flat network, that part of the cost is zero.
//! * *A shared file never has two stripes on one target.* A file system of the paper's time cannot make such a file,
//!   and with a cost function alone it could come to that. More stripes than there are targets are refused;
//!   [`SharedLayout`] asks for fewer then.
//! * *The cost counts uses, not bytes,* as the paper's does: streams of one placement are taken to be alike.
//!
//! ```
//! use isonomia_placement::{Balancer, Topology, Weights, Zone};
//! use isonomia_units::{ServerId, TargetId};
//! use std::sync::Arc;
//!
//! // Two servers with two targets each.
//! let at = |target, server| (TargetId(target), ServerId(server));
//! let topology = Topology::direct([at(0, 0), at(1, 0), at(2, 1), at(3, 1)])?;
//! let mut balancer = Balancer::new(Arc::new(topology), Weights::EQUAL, 0);
//! let mut place = || balancer.place_file(Zone(0)).map(|path| path.target.0);
//! // The second file goes to the other server, the third to the first one's other target.
//! assert_eq!([place()?, place()?, place()?, place()?], [0, 2, 1, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod balancer;
mod hashed;
mod layout;
mod placer;
mod room;
mod topology;
mod unbalanced;

pub use balancer::{Balancer, PlacementError, Weights};
pub use hashed::hashed_targets;
pub use layout::SharedLayout;
pub use placer::{FILES_MAX, JOBS_MAX, NewFile, Placer};
pub use room::Room;
pub use topology::{Path, RouterId, Topology, TopologyError, Zone};
pub use unbalanced::{RoundRobin, Step, random_targets, stripes_from};
