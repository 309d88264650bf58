//! A thread that is started when there is first something for it to do, and ends with its owner.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// State that is shared with a thread of its own. Dropping it tells the thread to end.
pub struct Background<S> {
    shared: Arc<Shared<S>>,
    name: &'static str,
    run: fn(&Shared<S>),
}

/// The side of both: the state, behind a lock.
pub struct Shared<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

/// What is behind the lock.
pub struct State<S> {
    /// What the thread is for.
    pub work: S,
    has_thread: bool,
    is_over: bool,
}

impl<S: Default + Send + 'static> Background<S> {
    /// Without a thread yet, which will be called `name` and do `run`.
    pub fn new(name: &'static str, run: fn(&Shared<S>)) -> Self {
        let state = State { work: S::default(), has_thread: false, is_over: false };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }), name, run }
    }

    /// The state, and whether there is a thread to see to it: it is started if there is none.
    pub fn with_thread(&self) -> (MutexGuard<'_, State<S>>, bool) {
        let mut state = self.shared.state();
        if !state.has_thread {
            let (shared, run) = (self.shared.clone(), self.run);
            let started = std::thread::Builder::new().name(self.name.to_owned()).spawn(move || run(&shared));
            state.has_thread = started.is_ok();
        }
        let has_thread = state.has_thread;
        (state, has_thread)
    }

    /// The state.
    pub fn state(&self) -> MutexGuard<'_, State<S>> {
        self.shared.state()
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.shared.changed.notify_one();
    }
}

impl<S> Drop for Background<S> {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl<S> Shared<S> {
    /// The state.
    pub fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until it is woken.
    pub fn sleep<'a>(&self, state: MutexGuard<'a, State<S>>) -> MutexGuard<'a, State<S>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until it is woken or so long; `true` if it slept as long as that.
    pub fn sleep_for<'a>(&self, state: MutexGuard<'a, State<S>>, most: Duration) -> (MutexGuard<'a, State<S>>, bool) {
        let (state, timeout) = self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
        (state, timeout.timed_out())
    }
}

impl<S> State<S> {
    /// Whether the thread is to end.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}
