//! The quantities and identities every other layer speaks in.
//!
//! * [`Bytes`], [`Nanos`], [`Rate`]: integer quantities with their unit in the type; [`text`] reads and prints
//!   them the way operators write them (`"2GiB/s"`, `"20us"`).
//! * [`JobId`], [`UserId`], [`GroupId`], [`TargetId`], [`ServerId`], [`VolumeId`], [`Ino`]: identities that cannot be
//!   mixed up. [`JobInfo`] says who a job is and how large.
//! * [`Edition`]: which of a server's messages is the latest.
//! * [`Placement`]: how the targets of new files are chosen, as a word.
//!
//! Nothing here reads a clock or does I/O. Arithmetic that could overflow saturates; each method says so.

pub mod address;
mod edition;
mod identity;
mod placement;
mod quantity;
pub mod text;

pub use address::{Address, Addresses, BadAddress};
pub use edition::{Edition, Editions, FORGOTTEN_AFTER, OldEdition};
pub use identity::{GroupId, Ino, JobId, JobInfo, NAME_LEN_MAX, ServerId, TargetId, UserId, VolumeId};
pub use placement::{BadPlacement, Placement};
pub use quantity::{Bytes, Nanos, Rate};
pub use text::ParseQuantityError;
