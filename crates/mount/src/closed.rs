//! References to files that programs have closed, given back to the server many at a time.
//!
//! The kernel does not wait for the end of a file that was closed. So this is the one thing that can be put off, and a
//! program that opens and closes many files spares a fourth of its round trips to the server.

use crate::sessions::errno;
use isonomia_client::{Client, Ino, RELEASE_MAX};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a reference is kept at most: so long does the space of an unlinked file stay taken.
const KEPT_FOR: Duration = Duration::from_millis(5);
/// References of one session that are given back at once, at most. The server does nothing else for a job meanwhile.
const BATCH: usize = 64;
const _: () = assert!(BATCH <= RELEASE_MAX);

/// See the module. Dropping it leaves what is left to the end of the sessions.
#[derive(Default)]
pub struct Closed {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the address of the session.
    references: HashMap<usize, (Arc<Client>, Vec<Ino>)>,
    has_thread: bool,
    is_over: bool,
}

impl Closed {
    /// One more reference of `client`.
    pub fn add(&self, client: &Arc<Client>, ino: Ino) {
        let mut state = self.shared.state();
        if !state.has_thread {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name("closed".to_owned()).spawn(move || run(&shared));
            state.has_thread = started.is_ok();
        }
        let is_first = state.references.is_empty();
        let key = Arc::as_ptr(client).addr();
        let (_, inos) = state.references.entry(key).or_insert_with(|| (client.clone(), Vec::with_capacity(BATCH)));
        inos.push(ino);
        if inos.len() < BATCH && state.has_thread {
            drop(state);
            if is_first {
                self.shared.changed.notify_one();
            }
            return;
        }
        let full = state.references.remove(&key);
        drop(state);
        full.into_iter().for_each(|(client, inos)| give_back(&client, &inos));
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(shared: &Shared) {
    let mut state = shared.state();
    while !state.is_over {
        if state.references.is_empty() {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (waited, timeout) = shared.changed.wait_timeout(state, KEPT_FOR).unwrap_or_else(PoisonError::into_inner);
        state = waited;
        if timeout.timed_out() {
            let due = std::mem::take(&mut state.references);
            drop(state);
            due.into_values().for_each(|(client, inos)| give_back(&client, &inos));
            state = shared.state();
        }
    }
}

/// A failure is told in the log; the server gives up what is left when the session ends.
fn give_back(client: &Client, inos: &[Ino]) {
    if let Err(error) = client.release_many(inos) {
        errno(&error);
    }
}
