//! Who is the controller, where etcd decides that: a thread, `lease`, of every server asks etcd, and becomes the controller when
//! nobody is.
//!
//! The lease is counted by this host's own clock, from before etcd was asked: so this server believes that it has it for no
//! longer than etcd does. If etcd is away, the controller goes on until its lease ends, and is none then. Who has the lease and
//! cannot decide gives it up, and does not take it for a while, so that another server does.

use super::etcd::{Etcd, EtcdError, Holder};
use crate::clock;
use isonomia_controller::{lease_looked_at_every, lease_s};
use isonomia_units::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// This much of a lease is not used, for the difference of two clocks' paces.
const MARGIN: Nanos = Nanos::from_millis(200);
/// Who gave the lease up takes it again no sooner than this. The others ask several times in it whether anybody has it.
const GIVEN_UP_FOR: Nanos = Nanos::from_secs(30);

/// What is known of the lease.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Who has it, as etcd last said.
    pub holder: Option<Holder>,
    /// It is this server's until then.
    pub own_until: Option<Nanos>,
    /// It is not to be this server's before.
    pub given_up_until: Option<Nanos>,
}

/// See the module. The thread ends with the last other copy of it.
pub struct Lease {
    known: Mutex<Known>,
}

impl Lease {
    /// The thread that looks after it, and ends when the server is stopping.
    pub fn start(
        is_stopping: impl Fn() -> bool + Send + 'static,
        etcd: Etcd,
        own: String,
        interval: Nanos,
    ) -> std::io::Result<Arc<Self>> {
        let lease = Arc::new(Self { known: Mutex::default() });
        let shared = lease.clone();
        let run = move || shared.run(&is_stopping, &etcd, &own, lease_s(interval));
        std::thread::Builder::new().name("lease".to_owned()).spawn(run)?;
        Ok(lease)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The term of this server, if it is the controller at `now`.
    pub fn own_term(&self, now: Nanos) -> Option<u64> {
        let known = self.known();
        known.own_until.filter(|until| now < *until)?;
        known.holder.as_ref().map(|holder| holder.term)
    }

    /// Gives it up: another server is to decide.
    pub fn give_up(&self, now: Nanos) {
        let mut known = self.known();
        (known.own_until, known.given_up_until) = (None, Some(now + GIVEN_UP_FOR));
    }

    /// Who has it, by name.
    pub fn holder(&self) -> Option<String> {
        self.known().holder.as_ref().map(|holder| holder.server.clone())
    }

    fn run(self: &Arc<Self>, is_stopping: &dyn Fn() -> bool, etcd: &Etcd, own: &str, ttl_s: u64) {
        let (ttl, pause) = (Nanos::from_secs(ttl_s), Duration::from_nanos(lease_looked_at_every(ttl_s).0));
        let mut granted: Option<u64> = None;
        let mut is_told = false;
        let is_over = || is_stopping() || Arc::strong_count(self) == 1;
        while !is_over() {
            let asked_at = clock::now();
            let may_have_it = self.known().given_up_until.is_none_or(|until| until <= asked_at);
            match step(etcd, may_have_it.then_some((own, ttl_s)), &mut granted) {
                Ok(holder) => {
                    is_told = false;
                    let mut known = self.known();
                    let may_have_it = known.given_up_until.is_none_or(|until| until <= asked_at);
                    let is_own = may_have_it && holder.as_ref().is_some_and(|holder| granted == Some(holder.lease));
                    known.own_until = is_own.then(|| asked_at + ttl.since(MARGIN));
                    known.holder = holder;
                }
                Err(error) if !std::mem::replace(&mut is_told, true) => {
                    tracing::warn!(%error, "who decides for the cluster cannot be told: what is decided is followed until it ends");
                }
                Err(_) => {}
            }
            let until = std::time::Instant::now() + pause;
            // What was given up meanwhile is ended at once.
            let is_given_up = || may_have_it && self.known().given_up_until.is_some_and(|until| clock::now() < until);
            while std::time::Instant::now() < until && !is_over() && !is_given_up() {
                std::thread::park_timeout(Duration::from_millis(50));
            }
        }
        if let Some(lease) = granted {
            // The next one need not wait until it ends.
            let _ = etcd.revoke(lease);
        }
    }
}

/// Prolongs the lease if it is ours, or takes the key if nobody has it; or ends it if this server, `own` by name with its lease's
/// length, may not have it. Who has it now.
fn step(etcd: &Etcd, own: Option<(&str, u64)>, granted: &mut Option<u64>) -> Result<Option<Holder>, EtcdError> {
    let Some((own, ttl_s)) = own else {
        if let Some(lease) = *granted {
            etcd.revoke(lease)?;
            *granted = None;
        }
        return etcd.holder();
    };
    if let Some(lease) = *granted {
        if etcd.keep_alive(lease)? {
            let holder = etcd.holder()?;
            if holder.is_some() {
                return Ok(holder);
            }
            return etcd.claim(own, lease);
        }
        *granted = None;
    }
    let holder = etcd.holder()?;
    if holder.is_some() {
        return Ok(holder);
    }
    let lease = etcd.grant(ttl_s)?;
    *granted = Some(lease);
    etcd.claim(own, lease)
}
