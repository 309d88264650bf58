//! The store from outside, as the server uses it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod damage;
mod detached;
mod direct;
mod files;
mod kernel;
mod kill;
mod known_damage;
mod model;
mod operation;
mod premises;
mod scratch;
mod shortened;
mod space;
mod sparse;
mod spread;
mod spread_blocks;
mod starts;
mod xattrs;
