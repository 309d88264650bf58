//! Several servers as one file system: who they are, which of them has what, and what they say to each other.
//!
//! There is no clock, thread, socket, file, or hidden randomness in here: time and what peers say are passed in, and what is
//! to be stored or sent comes out.
//!
//! * [`hosts`] reads lists of names as Slurm writes them.
//! * [`map`] is the cluster file: its servers, its contradictions, and what a newer one changes.
//! * [`hash`] chooses the server of a new volume.

pub mod hash;
pub mod hosts;
pub mod map;

pub use map::{Epoch, Map};
