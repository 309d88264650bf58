//! The servers of a cluster file, and who answers at their addresses.

use crate::arguments::MembersOptions;
use crate::control::Control;
use anyhow::{Context, Result};
use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_proto::control::Status;
use isonomia_transport::address::Address;
use isonomia_transport::handshake::{Identity, Protection};
use isonomia_units::Nanos;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// One address has this long to answer.
const TIMEOUT: Nanos = Nanos::from_secs(5);
/// Servers that are asked at once.
const ASKED_MAX: usize = 256;

/// Who answers for a server.
pub enum Member {
    /// It itself, at this address.
    Present(Control, Box<Status>, String),
    /// Somebody else, at this address: who.
    Other(String, String),
    /// Nobody: the address that was asked last, and why not.
    Absent(String, String),
}

/// As whom servers are asked.
pub fn identity(options: &MembersOptions) -> Result<Identity> {
    let key_file = options.key_file.as_deref();
    let key_file =
        key_file.map(|path| path.to_str().with_context(|| format!("the path of key file {path:?} is not UTF-8")));
    Ok(Identity {
        key_file: key_file.transpose()?.map(str::to_owned),
        server_user: options.server_user,
        protection: Protection { server_name: None, ..Protection::from_environment(|name| std::env::var(name).ok())? },
        ..Identity::default()
    })
}

/// Who is looked for: a server of a cluster.
pub struct Sought<'s> {
    /// Name of the cluster.
    pub cluster: &'s str,
    /// Name of the server.
    pub name: &'s str,
    /// Its number.
    pub number: u16,
}

/// What `visit` makes of each server, in the order of their numbers; it is called for some at once.
pub fn each<'m, T: Send>(map: &'m Map, identity: &Identity, visit: impl Fn(&'m Server, Member) -> T + Sync) -> Vec<T> {
    let servers: Vec<&Server> = map.servers().iter().collect();
    at_once(&servers, |server| {
        let sought = Sought { cluster: map.name(), name: &server.name, number: server.number.0 };
        visit(server, find(&sought, &server.listen, identity, || Some(TIMEOUT)))
    })
}

/// What `visit` makes of each of `items`, in their order; it is called for [`ASKED_MAX`] at once.
pub fn at_once<I: Sync, T: Send>(items: &[I], visit: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let visited = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..items.len().min(ASKED_MAX) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = visit(item);
                    visited.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut visited = visited.into_inner().unwrap_or_else(PoisonError::into_inner);
    visited.sort_by_key(|(at, _)| *at);
    visited.into_iter().map(|(_, result)| result).collect()
}

/// Asks at each address until the server itself answers: a Unix socket may be that of another host's server. `left` is how
/// long the next one may take; with nothing left no other is asked.
pub fn find(
    sought: &Sought<'_>,
    addresses: &[Address],
    identity: &Identity,
    left: impl Fn() -> Option<Nanos>,
) -> Member {
    let mut found = Member::Absent(String::new(), "it has no address".to_owned());
    for address in addresses {
        let shown = address.to_string();
        let Some(patience) = left() else { return found };
        let answer = Control::open(address, identity, patience).and_then(|mut control| {
            control.answer_within(left().unwrap_or(Nanos(1)));
            let status = control.status()?;
            Ok((control, status))
        });
        match answer {
            Ok((control, status)) => match stranger(sought, &status) {
                None => return Member::Present(control, Box::new(status), shown),
                Some(who) => found = Member::Other(shown, who),
            },
            // Who else answers says more than that nobody does.
            Err(_) if matches!(found, Member::Other(..)) => {}
            Err(error) => found = Member::Absent(shown, format!("{error:#}")),
        }
    }
    found
}

/// Who it is that answers, if not the one who is sought.
fn stranger(sought: &Sought<'_>, status: &Status) -> Option<String> {
    let Some(cluster) = &status.cluster else {
        return Some(format!("server {} of no cluster answers there", status.server));
    };
    let is_it =
        (cluster.name.as_str(), cluster.server.as_str(), status.server) == (sought.cluster, sought.name, sought.number);
    (!is_it).then(|| format!("{} (number {}) of {} answers there", cluster.server, status.server, cluster.name))
}
