//! Several servers as one file system: who they are, which of them has what, and what they say to each other.
//!
//! There is no clock, thread, socket, file, or hidden randomness in here: time and what peers say are passed in, and what is
//! to be stored or sent comes out.
//!
//! * [`hosts`] reads lists of names as Slurm writes them.
//! * [`map`] is the cluster file: its servers, its contradictions, and what a newer one changes.
//! * [`hash`] chooses the server of a new volume, by its weight and its [`load`].
//! * [`node`]: what one server does: the one function where inputs come in and effects come out.
//! * [`volumes`]: the directories below the root, which of them each server has, and how they come and go.
//! * [`objects`]: what volume servers have data servers do with the bytes of files. [`counting`]: what these take.
//! * [`policy`]: the sharing policy of the cluster and its version.
//! * [`lineage`]: which process has a server's own directory.
//! * [`peer`]: messages between servers. [`request`]: what clients ask. [`records`]: what is kept on stable storage.

pub mod counting;
pub mod hash;
pub mod hosts;
pub mod lineage;
pub mod load;
pub mod map;
pub mod node;
pub mod objects;
pub mod peer;
pub mod policy;
pub mod records;
pub mod request;
pub mod volumes;

pub use map::{Epoch, Map};
