//! The one client of this process. It connects at the first operation under the prefix.

use crate::environment;
use isonomia_client::{Address, Client, ClientConfig, Error, identity};
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::str::FromStr;
use std::sync::atomic::{AtomicPtr, Ordering};

static CLIENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());

/// The client, made when first asked for; EINVAL when its configuration cannot be understood.
#[inline]
pub fn client() -> Result<&'static Client, Error> {
    match existing() {
        Some(client) => Ok(client),
        None => create(),
    }
}

/// The client, if there was an operation.
pub fn existing() -> Option<&'static Client> {
    // SAFETY: the pointer comes from `Box::into_raw` and is never freed.
    unsafe { CLIENT.load(Ordering::Acquire).as_ref() }
}

#[cold]
fn create() -> Result<&'static Client, Error> {
    let address = match environment::server() {
        Some(text) => Address::from_str(&text).map_err(|reason| {
            environment::complain(&format!("ISONOMIA_SERVER={text}: {reason}"));
            Error::Argument(Errno::INVAL)
        })?,
        None => {
            let runtime_dir = environment::variable("XDG_RUNTIME_DIR");
            Address::default_for(rustix::process::getuid().as_raw(), runtime_dir.as_deref())
        }
    };
    let fresh = Box::into_raw(Box::new(Client::new(ClientConfig {
        address,
        timeout: Nanos::from_secs(environment::timeout_s()),
        claims: identity::from_environment(environment::variable),
        key_file: environment::key_file(),
    })));
    if CLIENT.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: nobody else has seen this box.
        drop(unsafe { Box::from_raw(fresh) });
    }
    existing().ok_or(Error::Argument(Errno::NOMEM))
}
