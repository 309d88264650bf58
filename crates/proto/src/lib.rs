//! What clients and servers say to each other.
//!
//! * [`fs`]: the file model both sides share: attributes, layouts, capabilities, directory entries.
//! * [`request`]: the fixed headers of requests and replies, the same on shared memory and on TCP.
//! * [`hint`]: what programs know of files that they are about to create.
//! * [`mapping`]: what a session is told of the files that it has mapped.
//! * [`object`]: objects of files whose bytes several servers have.
//! * [`striping`]: how new files are striped, as text.
//! * [`space`]: changes of the space below files, and what is sought there.
//! * [`setup`]: the few frames that open a connection: challenge, hello, welcome.
//! * [`control`]: what operators ask and set, as JSON.
//!
//! Everything that arrives from a peer is decoded here and nowhere else; decoding is total (an error or a
//! value, never a panic) and allocates no more than the named limits. Integers are little-endian, the byte
//! order of every machine this runs on (checked at compile time).

#[cfg(not(target_endian = "little"))]
compile_error!("the wire format is the memory format of little-endian machines");

pub mod control;
pub mod fs;
pub mod hint;
pub mod ledger;
pub mod mapping;
pub mod object;
pub mod phase;
pub mod request;
pub mod setup;
pub mod space;
pub mod striping;
pub mod syncing;
pub mod writing;

/// The protocol spoken here; a peer with another number is refused at set-up.
pub const PROTOCOL_VERSION: u16 = 18;
/// The longest file name, as on every local file system.
pub const NAME_LEN_MAX: usize = 255;
/// The longest path, with its terminating NUL, as in `PATH_MAX`.
pub const PATH_LEN_MAX: usize = 4096;
/// The longest name of an extended attribute, with its namespace, as in `XATTR_NAME_MAX`.
pub const XATTR_NAME_LEN_MAX: usize = 255;
/// The longest value of an extended attribute, as in `XATTR_SIZE_MAX`.
pub const XATTR_VALUE_LEN_MAX: usize = 64 << 10;
/// The longest list of the names of an inode's extended attributes, as in `XATTR_LIST_MAX`.
pub const XATTR_LIST_LEN_MAX: usize = 64 << 10;
/// The largest payload of one request or reply; clients split longer transfers.
pub const PAYLOAD_LEN_MAX: usize = 1 << 20;
