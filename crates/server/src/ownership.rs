//! The thread `owner`: it reads every second whether the server's directory is still this process's ([`Fence`]).
//!
//! It may wait for the storage as long as that takes: then the lease runs out, and nobody is answered until the record could
//! be read.

use isonomia_store::{Fence, Ownership};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The thread; dropping this gives the directory up.
pub struct Owner {
    fence: Arc<Fence>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    /// Keeps what `ownership` is going to give this process.
    pub fn start(ownership: &Ownership) -> io::Result<Self> {
        let fence = ownership.fence.clone();
        let keeping = fence.clone();
        let keep = move || {
            while !keeping.is_over_soon() {
                keeping.renew();
            }
        };
        let thread = std::thread::Builder::new().name("owner".to_owned()).spawn(keep)?;
        Ok(Self { fence, thread: Some(thread) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.fence.end(None);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread of the server panicked");
        }
    }
}
