//! The client of this process. It connects at the first operation under the prefix.
//!
//! A server knows a process by who it was when it connected. After the process took another user or other groups
//! ([`crate::user`]), the next operation makes a client anew, which takes references of its own to the files that are
//! open; then the connections of the one before are ended, so that nobody acts with rights that the process gave up. Only
//! where bytes are locked they stay: such locks cannot change hands ([`crate::lock`]).
//!
//! Clients are never freed, because threads may be using them, but made anew: there are as many as were ever needed at
//! once, mostly one or two.

use crate::spin::Spin;
use crate::{environment, lock, table};
use isonomia_client::{
    Addresses, Claims, Client, ClientConfig, Error, Notice, Protection, default_address, identity, owner,
};
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::str::FromStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The client of operations: null before the first one, and after the user changed until the next one.
static CURRENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());

static CLIENTS: Spin<Clients> = Spin::new(Clients { all: Vec::new(), former: Vec::new() });

struct Clients {
    /// All that this process ever made, each with the user that it connects as.
    all: Vec<(&'static Client, u32)>,
    /// Clients of users that this process was before. They may still have references for it.
    former: Vec<&'static Client>,
}

/// The lock of the list, for [`crate::process`].
pub fn lock_before_fork() {
    CLIENTS.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    CLIENTS.release();
}

/// In the child of a fork: the connections are the parent's, and so are the references.
pub fn begin_as_child() {
    let mut clients = CLIENTS.lock();
    clients.former.clear();
    clients.all.iter().for_each(|(client, _)| client.after_fork_in_child());
}

/// The client, made when first asked for; EINVAL when its configuration cannot be understood.
#[inline]
pub fn client() -> Result<&'static Client, Error> {
    match existing() {
        Some(client) => Ok(client),
        None => create(),
    }
}

/// The client, if there was an operation as the present user.
#[inline]
fn existing() -> Option<&'static Client> {
    // SAFETY: the pointer comes from a leaked box.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Whether `client` is the one of operations now.
#[inline]
pub fn is_current(client: *const Client) -> bool {
    std::ptr::eq(CURRENT.load(Ordering::Relaxed), client)
}

/// Every client that may have references of this process's.
pub fn connected() -> Vec<&'static Client> {
    let former = CLIENTS.lock().former.clone();
    former.into_iter().chain(existing()).filter(|client| client.is_known()).collect()
}

/// The user of this process, or its groups, have changed.
pub fn user_changed() {
    let mut clients = CLIENTS.lock();
    // A client that has no connections yet can stay: it will connect as the new user.
    match existing() {
        Some(client) if client.is_known() => {
            clients.former.push(client);
            CURRENT.store(std::ptr::null_mut(), Ordering::Release);
        }
        Some(client) => clients.connects_as_present_user(client),
        None => {}
    }
}

/// The user that `client` connected as, or will.
pub fn user_of(client: &'static Client) -> Option<u32> {
    CLIENTS.lock().all.iter().find(|(other, _)| std::ptr::eq(*other, client)).map(|(_, uid)| *uid)
}

impl Clients {
    fn connects_as_present_user(&mut self, client: &'static Client) {
        let now = rustix::process::geteuid().as_raw();
        self.all.iter_mut().filter(|(other, _)| std::ptr::eq(*other, client)).for_each(|(_, uid)| *uid = now);
    }
}

/// Ends what `client` has and its connections, unless it is in use.
pub fn end(client: &'static Client) {
    if !is_current(client) && !CLIENTS.lock().former.iter().any(|other| std::ptr::eq(*other, client)) {
        client.begin_anew();
    }
}

#[cold]
fn create() -> Result<&'static Client, Error> {
    let config = configuration()?;
    let former = {
        let mut clients = CLIENTS.lock();
        if let Some(client) = existing() {
            return Ok(client);
        }
        let in_use = clients.former.iter().copied().chain(lock::keeper()).collect::<Vec<_>>();
        let is_free = |client: &&&'static Client| !in_use.iter().any(|other| std::ptr::eq(*other, **client));
        let free = clients.all.iter().map(|(client, _)| client).find(is_free).copied();
        let client = match free {
            Some(client) => client,
            None => {
                let client = Client::new(config).trusting(server_user()?).protected(protection()?).telling(notice);
                let client = client.sharing_locks(table::whole_locks);
                let client: &'static Client = Box::leak(Box::new(client));
                clients.all.push((client, 0));
                client
            }
        };
        clients.connects_as_present_user(client);
        CURRENT.store(std::ptr::from_ref(client).cast_mut(), Ordering::Release);
        clients.former.clone()
    };
    if !former.is_empty() {
        take_over(&former);
    }
    client()
}

/// The present client takes references to all open files that former clients have; then those are ended.
fn take_over(former: &[&'static Client]) {
    table::take_references();
    for client in former {
        CLIENTS.lock().former.retain(|other| !std::ptr::eq(*other, *client));
        if !lock::keeper().is_some_and(|keeper| std::ptr::eq(keeper, *client)) {
            end(client);
        }
    }
}

/// Who may run the server, besides this user and root.
fn server_user() -> Result<Option<u32>, Error> {
    let Some(text) = environment::server_user() else { return Ok(None) };
    owner::user(&text).map(Some).map_err(|reason| {
        environment::complain(&format!("ISONOMIA_SERVER_USER: {reason}"));
        Error::Argument(Errno::INVAL)
    })
}

/// How connections on TCP are protected.
fn protection() -> Result<Protection, Error> {
    Protection::from_environment(environment::variable).map_err(|reason| {
        environment::complain(&format!("ISONOMIA_INTEGRITY: {reason}"));
        Error::Argument(Errno::INVAL)
    })
}

/// One line for whoever waits, who would otherwise see a program that does nothing.
fn notice(notice: Notice) {
    if !environment::is_quiet() {
        environment::complain(notice.text());
    }
}

/// What the environment says when the first client is made; it applies to the others.
fn configuration() -> Result<ClientConfig, Error> {
    if let Some((client, _)) = CLIENTS.lock().all.first() {
        return Ok(client.config().clone());
    }
    let addresses = match environment::server() {
        Some(text) => Addresses::from_str(&text).map_err(|reason| {
            environment::complain(&format!("ISONOMIA_SERVER={text}: {reason}"));
            Error::Argument(Errno::INVAL)
        })?,
        None => {
            let runtime_dir = environment::variable("XDG_RUNTIME_DIR");
            default_address(rustix::process::geteuid().as_raw(), runtime_dir.as_deref()).into()
        }
    };
    Ok(ClientConfig {
        addresses: addresses.as_slice().to_vec(),
        timeout: Nanos::from_secs(environment::timeout_s()),
        claims: Claims {
            executable: identity::executable("self"),
            ..identity::from_environment(environment::variable)
        },
        key_file: environment::key_file(),
    })
}
