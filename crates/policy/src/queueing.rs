//! Arbiters that divide a target's service by shares, and what they are made of.
//!
//! [`virtual_time`], [`lottery`], [`io_sets`], and [`fifo`] are arbiters. [`roster`] keeps the jobs and their queues,
//! [`tree`] and [`shares`] compute what is due to them, [`activity`] and [`holds`] decide for how long a job that has
//! nothing queued keeps its share, [`tag_heap`] is the ordered set of jobs, [`surplus`] orders the phases of coflow, and
//! [`fair_clock`] tells how fair sharing would serve them, which [`fair_finish`], an arbiter, goes by; [`phases`] are the jobs' phases
//! in it. [`fair_beside`] keeps such a clock beside any other arbiter.
//! [`urgent`] is an arbiter around any other one, for policies with a latency class.

pub(crate) mod activity;
pub(crate) mod exclusive;
pub(crate) mod fair_beside;
pub(crate) mod fair_clock;
pub(crate) mod fair_finish;
pub(crate) mod fifo;
pub(crate) mod forecast;
pub(crate) mod holds;
pub(crate) mod io_sets;
pub(crate) mod lottery;
pub(crate) mod phases;
pub(crate) mod room;
pub(crate) mod roster;
pub mod shares;
mod slots;
pub(crate) mod surplus;
pub(crate) mod tag_heap;
pub(crate) mod tree;
pub(crate) mod urgent;
pub(crate) mod virtual_time;
