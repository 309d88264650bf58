//! What programs do to files, as data, and actors that do it: through the C library, which is a local file system, the
//! preload client, or the mount, depending on where the path leads; through the client library; and in a model that says
//! what must come of it.
//!
//! The test draws sequences of operations, has all actors do them, and compares every outcome, error numbers included,
//! with the model's.

pub mod clib;
pub mod library;
pub mod model;
mod operation;

pub use operation::{Action, Attr, OpenHow, Operation, Outcome, RenameHow, Runs, SLOTS, XattrHow};

/// Somebody who does operations in a directory that is there.
pub trait Actor {
    /// Goes on in the directory `root`, an absolute path, with nothing open.
    fn begin(&mut self, root: &str);

    /// Does it.
    fn act(&mut self, operation: &Operation) -> Outcome;
}
