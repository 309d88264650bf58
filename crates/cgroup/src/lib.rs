//! Limits of control groups on a block device: for programs that write to a local device outside of Isonomia.
//!
//! Who wants limits says which groups get how much of one device ([`Limits::set`]), and the kernel enforces it: cgroup v2 by
//! `io.max`, v1 by `blkio.throttle.read_bps_device` and its like ([`Knob`]). What is to be written is decided without I/O ([`step()`]).
//!
//! What it guarantees:
//!
//! * **A limit that was set is removed again**: when it is no longer wanted, when [`Limits`] goes, and when the next one is opened, or
//!   [`remove`] is called, after a process that was killed. A record of what may be set is in a file before anything is set; it
//!   survives the process, and the groups do not survive the host.
//! * **A limit of somebody else is not touched**: not if it was there before, and not if he changed one of ours. Ours is what has
//!   exactly the value that the record has.
//!
//! What it does not do: the kernel counts what goes to the device, so under v1 only reads and direct writes count for the group that
//! makes them; what is written back from the page cache counts for no group. A limit leaves a device idle that nobody else
//! uses.
//!
//! Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst (`io.max`) and cgroup-v1/blkio-controller.rst.

mod knob;
mod limits;
mod record;
mod step;

pub use knob::{BadDevice, Device, Direction, Knob, Layout};
pub use limits::{GROUPS_MAX, Group, Limit, Limits, LimitsError, Removed, remove};
pub use record::BadRecord;
pub use step::{Own, Step, step};
