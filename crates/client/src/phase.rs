//! Where a program says that an I/O phase begins and ends.

use crate::{Client, Error};
use isonomia_proto::phase::PhaseCall;
use isonomia_units::Nanos;
use std::sync::atomic::Ordering;

impl Client {
    /// Says that an I/O phase of the job begins, which is going to read and write so many `bytes` (0: not known), when the program
    /// would take `remaining` in all, this phase included, if nobody disturbed it. It returns at once: what waits is I/O.
    ///
    /// Phases of one process may be within each other: the outermost counts. All servers are told that the process has a
    /// session with, the home at least; others find the phase by its requests. A server that starts again has forgotten it.
    ///
    /// # Errors
    /// The home cannot be told. Then no phase has begun.
    pub fn begin_phase(&self, bytes: u64, remaining: Option<Nanos>) -> Result<(), Error> {
        if self.phases.fetch_add(1, Ordering::AcqRel) > 0 {
            return Ok(());
        }
        self.tell_of_phase(PhaseCall::Begin { bytes, remaining }).inspect_err(|_| {
            self.phases.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Says that the phase is over that the last [`Self::begin_phase`] began. Nothing happens if none has begun.
    ///
    /// # Errors
    /// The home cannot be told. The servers notice by themselves, though later.
    pub fn end_phase(&self) -> Result<(), Error> {
        let fewer = |depth: u32| depth.checked_sub(1);
        match self.phases.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer) {
            Ok(1) => self.tell_of_phase(PhaseCall::End),
            _ => Ok(()),
        }
    }

    fn tell_of_phase(&self, call: PhaseCall) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (at, session) in self.sessions().enumerate() {
            let is_home = at == 0;
            if is_home || (session.is_known() && !session.is_away()) {
                let told = session.transact(call.request(), [b"", b""], &mut []).map(drop);
                // The others notice a phase by its requests.
                outcome = if is_home { told } else { outcome };
            }
        }
        outcome
    }
}
