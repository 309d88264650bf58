//! A database of sqlite's is not put into WAL mode where its users cannot share memory.
//!
//! sqlite notes the mode in the database's header, and asks for the memory that the mode needs only afterwards. If it gets none
//! then ([`crate::mapping`]: ENODEV over TCP), nobody can read the database any more, nor bring it back. So the write that would
//! note it is refused, with the same errno: sqlite takes that transaction back by its journal, says `disk I/O error`, and the
//! database stays as it was, for this connection and all others.
//!
//! It is sqlite that writes, and no copy of a database, if the process has locked the byte that sqlite locks before it writes. A
//! process that uses the mode without shared memory (`PRAGMA locking_mode=EXCLUSIVE`) looks the same from here; it is let through
//! with `ISONOMIA_SQLITE_WAL` set. One that locks nothing byte by byte (sqlite's VFS `unix-excl`) is let through as it is. What is
//! in WAL mode already is never refused: its users are served or fail before they write.

use crate::environment;
use isonomia_client::{Client, Error, Ino, OpenFile};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_LEN: usize = 100;
/// Where the header says which version of the file format readers must know.
const READ_VERSION_AT: usize = 19;
/// The version that has a log.
const WITH_LOG: u8 = 2;
/// The byte that a process locks which is going to write.
const RESERVED_BYTE: u64 = 0x4000_0001;

static HAS_TOLD: AtomicBool = AtomicBool::new(false);

/// Refuses to write `data` to the beginning of a file where that would put a database into a mode in which nobody could use it.
#[inline]
pub fn check(client: &Client, file: &OpenFile, data: &[u8]) -> Result<(), Error> {
    if is_with_log(data) { check_switch(client, file) } else { Ok(()) }
}

fn is_with_log(data: &[u8]) -> bool {
    data.len() >= HEADER_LEN && data[READ_VERSION_AT] == WITH_LOG && data.starts_with(MAGIC)
}

#[cold]
fn check_switch(client: &Client, file: &OpenFile) -> Result<(), Error> {
    let is_of_sqlite = client.has_locked_byte(Ino(file.capability.ino), RESERVED_BYTE);
    if !is_of_sqlite || client.may_share_memory(file)? || environment::may_use_sqlite_log() {
        return Ok(());
    }
    let mut now = [0; HEADER_LEN];
    // sqlite opens what it writes for reading as well.
    if client.read_at(file, 0, &mut now)? == HEADER_LEN && is_with_log(&now) {
        return Ok(());
    }
    if !environment::is_quiet() && !HAS_TOLD.swap(true, Ordering::Relaxed) {
        environment::complain(
            "a database of sqlite's stays in its journal mode: WAL needs memory that is shared with the server, on its host and \
             through its Unix socket (or PRAGMA locking_mode=EXCLUSIVE, and ISONOMIA_SQLITE_WAL=exclusive)",
        );
    }
    Err(Error::Argument(Errno::NODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_a_log_is_known_from_others() {
        let mut header = [0; HEADER_LEN];
        header[..16].copy_from_slice(MAGIC);
        assert!(!is_with_log(&header));
        header[READ_VERSION_AT] = WITH_LOG;
        assert!(is_with_log(&header) && !is_with_log(&header[..99]));
        header[0] = b's';
        assert!(!is_with_log(&header));
    }
}
