//! How long what a server refuses for now is asked again.

use crate::{Client, Error};
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

/// Before what was refused for now is asked again.
const AGAIN_AFTER: Nanos = Nanos::from_millis(2);

impl Client {
    pub(crate) fn patience(&self) -> Patience {
        Patience { timeout: self.config().timeout, until: None }
    }
}

/// How long what is refused for now is asked again: the time-out from the first time on. What is done takes as long as it takes.
pub(crate) struct Patience {
    timeout: Nanos,
    until: Option<Deadline>,
}

impl Patience {
    /// Waits a moment, and says `errno` once the time is over.
    pub fn pause(&mut self, errno: Errno) -> Result<(), Error> {
        let until = *self.until.get_or_insert_with(|| Deadline::after(self.timeout));
        until.left().ok_or(Error::Server(errno))?;
        // An interrupted pause is a shorter one.
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: AGAIN_AFTER.0 as _ });
        Ok(())
    }
}
