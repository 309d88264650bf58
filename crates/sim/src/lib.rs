//! The sharing policies in virtual time.
//!
//! A discrete-event simulation with integer nanoseconds, one virtual clock, and one seed. Who goes next is decided
//! by the arbiters of `isonomia-policy`, the ones the live server asks, or by
//! the schemes of `isonomia-allocation`; only clients, devices, and time are
//! simulated. The same scenario and seed give the same outcome, event for event.
//!
//! * [`request`]: processes that issue requests one after the other, targets that serve them, request by request.
//! * [`fluid`]: applications on nodes, I/O phases over several targets, rates from the schemes of
//!   `isonomia-allocation`.
//! * [`scenario`]: the same as a TOML file, and parameter sweeps over one.
//!
//! * [`contest`]: what programs get of a server with a real device, from its profile.
//! * [`predict`]: what a live server recorded, simulated by the same policy or another one.
//! * [`replay`]: the decisions that a live server recorded, decided again.
//! * [`study`]: running all points of a sweep.
//!
//! Nothing here reads a clock or draws from a hidden generator. Files are read by [`scenario`], [`predict`] and [`replay`] only, and only
//! [`study`] starts threads, each with runs of its own.

pub mod contest;
pub mod fluid;
pub mod io_profile;
pub mod predict;
pub mod replay;
pub mod request;
pub mod scenario;
pub mod source;
pub mod study;
