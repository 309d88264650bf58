//! Arbiters that give classes of jobs rates: token buckets, and reservations with limits.

mod classes;
pub(crate) mod mclock;
pub(crate) mod token_bucket;
