//! The backup thread: writes copies of the metadata that operators ask for, one at a time, while everything goes on.
//!
//! A copy may take longer than a question may wait for its answer. So whoever wants one asks again and again in the same
//! words, and is told at once whether the copy is done.

use isonomia_proto::control::ControlReply;
use isonomia_store::Store;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// So often it looks whether the server stops, at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is asked for, and what became of it.
#[derive(Debug, Default)]
pub struct Backups {
    state: Mutex<State>,
    thread: OnceLock<Thread>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Wanted(Wish),
    UnderWay(Wish),
    /// Until whoever wanted it asks once more, or somebody wants another.
    Done(Wish, Result<u64, String>),
}

/// Where to, and which of the wishes for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub dir: PathBuf,
    pub id: u64,
}

impl Backups {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a copy written, and tells how far it is.
    pub fn ask(&self, wish: Wish) -> ControlReply {
        if !wish.dir.is_absolute() {
            return ControlReply::Error(format!("{} is not an absolute path", wish.dir.display()));
        }
        let mut state = self.state();
        match &*state {
            State::Wanted(other) | State::UnderWay(other) if *other != wish => {
                return ControlReply::Error(format!(
                    "a copy is being written to {}: ask again later",
                    other.dir.display()
                ));
            }
            State::Wanted(_) | State::UnderWay(_) => return ControlReply::Backup { syncs: None },
            State::Done(done, outcome) if *done == wish => {
                let reply = match outcome {
                    Ok(syncs) => ControlReply::Backup { syncs: Some(*syncs) },
                    Err(error) => ControlReply::Error(error.clone()),
                };
                *state = State::Idle;
                return reply;
            }
            State::Idle | State::Done(..) => *state = State::Wanted(wish),
        }
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        ControlReply::Backup { syncs: None }
    }

    fn take_wanted(&self) -> Option<Wish> {
        let mut state = self.state();
        let State::Wanted(wish) = &*state else { return None };
        let wish = wish.clone();
        *state = State::UnderWay(wish.clone());
        Some(wish)
    }
}

/// What the thread does until the server stops.
pub fn run(backups: &Backups, store: &Store, is_stopping: &AtomicBool) {
    // Nobody else sets it.
    let _ = backups.thread.set(std::thread::current());
    while !is_stopping.load(Ordering::Relaxed) {
        let Some(wish) = backups.take_wanted() else {
            std::thread::park_timeout(LOOK_EVERY);
            continue;
        };
        let outcome = store.backup(&wish.dir, is_stopping);
        match &outcome {
            Ok(syncs) => tracing::info!(dir = %wish.dir.display(), syncs, "the metadata were copied"),
            Err(error) => tracing::warn!(dir = %wish.dir.display(), %error, "the metadata cannot be copied"),
        }
        *backups.state() = State::Done(wish, outcome.map_err(|error| error.to_string()));
    }
}
