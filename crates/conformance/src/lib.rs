//! What programs do to files, as data, and actors that do it: through the C library, which is a local file system, the
//! preload client, or the mount, depending on where the path leads; and through the client library.
//!
//! The test draws sequences of operations, has all actors do them, and compares every outcome, error numbers included.

pub mod clib;
pub mod library;
mod operation;

pub use operation::{Action, Attr, OpenHow, Operation, Outcome, RenameHow, Runs, SLOTS};

/// Somebody who does operations in a directory that is there.
pub trait Actor {
    /// Goes on in the directory `root`, an absolute path, with nothing open.
    fn begin(&mut self, root: &str);

    /// Does it.
    fn act(&mut self, operation: &Operation) -> Outcome;
}
