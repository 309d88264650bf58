//! The files of an Isonomia server as a file system of the kernel's, through FUSE: for programs that the preload
//! library does not reach, such as static ones, and for whole hosts.
//!
//! A thin skin over `isonomia-client`. Each request of the kernel's becomes one or two operations on the server, made
//! *for the user and the job that called*: see [`clients`]. Data are never cached here or in the kernel's page cache
//! (but for what programs map), so a read sees every write acknowledged before it, from any client. Names and
//! attributes are kept by the kernel for as long as [`Options::entry_timeout`] and [`Options::attr_timeout`] say, by
//! default not at all. Locks are the server's.

mod affinity;
mod attr;
mod background;
mod caller;
mod clients;
mod closed;
mod created;
mod data;
mod directory;
mod filesystem;
mod guard;
mod handle;
mod lease;
mod lock;
mod mapping;
mod mapping_table;
mod mappings;
mod mount_point;
mod mounted;
mod names;
mod nodes;
mod options;
mod poller;
mod space;
mod waiting;
mod xattr;

pub use guard::{Guard, stand_guard};
pub use mount_point::{MountPointError, remount, unmount};
pub use mounted::{MountError, Mounted, Unmounter, mount};
pub use options::{OptionError, Options};
