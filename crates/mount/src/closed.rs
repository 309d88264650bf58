//! References to files that programs have closed, given back to the server many at a time.
//!
//! The kernel does not wait for the end of a file that was closed. So this is the one thing that can be put off, and a
//! program that opens and closes many files spares a fourth of its round trips to the server.

use crate::background::{Background, Shared};
use crate::clients::errno;
use isonomia_client::{Client, Ino, RELEASE_MAX};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a reference is kept at most: so long does the space of an unlinked file stay taken.
const KEPT_FOR: Duration = Duration::from_millis(5);
/// References of one client that are given back at once, at most. The server does nothing else for a job meanwhile.
const BATCH: usize = 64;
const _: () = assert!(BATCH <= RELEASE_MAX);

/// See the module. Dropping it leaves what is left to the end of the sessions.
pub struct Closed {
    background: Background<References>,
}

/// By the address of the client.
type References = HashMap<usize, (Arc<Client>, Vec<Ino>)>;

impl Default for Closed {
    fn default() -> Self {
        Self { background: Background::new("closed", run) }
    }
}

impl Closed {
    /// One more reference of `client`.
    pub fn add(&self, client: &Arc<Client>, ino: Ino) {
        let (mut state, has_thread) = self.background.with_thread();
        let is_first = state.work.is_empty();
        let key = Arc::as_ptr(client).addr();
        let (_, inos) = state.work.entry(key).or_insert_with(|| (client.clone(), Vec::with_capacity(BATCH)));
        inos.push(ino);
        if inos.len() < BATCH && has_thread {
            drop(state);
            if is_first {
                self.background.wake();
            }
            return;
        }
        let full = state.work.remove(&key);
        drop(state);
        full.into_iter().for_each(|(client, inos)| give_back(&client, &inos));
    }
}

fn run(shared: &Shared<References>) {
    let mut state = shared.state();
    while !state.is_over() {
        if state.work.is_empty() {
            state = shared.sleep(state);
            continue;
        }
        let (slept, is_due) = shared.sleep_for(state, KEPT_FOR);
        state = slept;
        if is_due {
            let due = std::mem::take(&mut state.work);
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
