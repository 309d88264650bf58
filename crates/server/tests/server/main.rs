//! Servers in this process and their clients.
//!
//! One program: to link one for each of these takes a minute. Those that look at their whole process have one of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod charges;
mod cluster;
mod controller;
mod crowds;
mod early_writes;
mod exchange;
mod faults;
mod files;
mod histories;
mod liars;
mod locks;
mod mappings;
mod mount_locks;
mod munge;
mod page_cache;
mod phases;
mod placing;
mod rights;
mod rules;
mod running;
mod scrub;
mod segments;
mod short_reads;
mod sizes;
mod stripes;
mod syncs;
mod tampering;
mod verifier;
mod writers;
