//! File operations on an Isonomia server, from inside any process.
//!
//! [`Client`] is what every way into the file system stands on: the preload library, the mount, and language
//! bindings. It connects at the first operation, not before, and to further servers when
//! it is referred to them; it may be shared by all threads; after a `fork`
//! the child calls [`Client::after_fork_in_child`] and goes on.
//!
//! It runs *inside* other people's programs, under their interposed C library. Therefore: system calls are
//! made directly (never `std::fs`, `std::net`, `std::io`), no thread is started, nothing panics, every wait is
//! bounded by the configured time-out, and the process is never ended.
//!
//! Data are not cached: a read sees every write that was acknowledged before it, from any client.

mod address_book;
mod client;
mod error;
pub mod expected;
mod files;
pub mod identity;
mod lanes;
mod list;
mod lock;
mod lock_keeper;
mod mapping;
mod own_locks;
mod phase;
mod routes;
mod session;
mod stripes;
mod sync;
mod transfer;
mod unsynced;
mod xattr;

pub use client::{Client, ClientConfig};
pub use error::Error;
pub use files::{Change, OpenFile, OpenHow, RELEASE_MAX, TimeChange};
pub use isonomia_proto::fs::{
    Attr, Capability, DirEntry, FileKind, FsStat, Layout, Node, RenameHow, Timestamp, access,
};
pub use isonomia_proto::hint::OpenHint;
pub use isonomia_proto::mapping::LeaseEvents;
pub use isonomia_proto::setup::{Claims, Integrity, PRINCIPAL_GROUPS_MAX, Principal, SchedulerJob};
pub use isonomia_proto::space::{Extent, SpaceChange};
pub use isonomia_transport::address::{Address, Addresses, default_address};
pub use isonomia_transport::channel::Manner;
pub use isonomia_transport::control_group::Process;
pub use isonomia_transport::descriptor::{Parked, is_parked as owns_descriptor};
pub use isonomia_transport::handshake::Protection;
pub use isonomia_transport::owner;
pub use isonomia_units::Ino;
pub use lock::{LockHolder, LockKind, LockOwner, LockRange};
pub use lock_keeper::LockKeeper;
pub use own_locks::Shared;
pub use session::Notice;
pub use stripes::Stripes;
pub use unsynced::{MARKS_MAX, Unsynced};
pub use xattr::XattrHow;
