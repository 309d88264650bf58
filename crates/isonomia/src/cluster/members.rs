//! The servers of a cluster file, and who answers at their addresses.

use crate::arguments::MembersOptions;
use crate::control::Control;
use anyhow::{Context, Result};
use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_proto::control::Status;
use isonomia_transport::handshake::{Identity, Protection};
use isonomia_units::Nanos;
use std::sync::{Mutex, PoisonError};

/// One address has this long to answer.
const TIMEOUT: Nanos = Nanos::from_secs(5);
/// Servers that are asked at once.
const ASKED_MAX: usize = 32;

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

/// What `visit` makes of each server, in the order of their numbers; it is called for some at once.
pub fn each<'m, T: Send>(map: &'m Map, identity: &Identity, visit: impl Fn(&'m Server, Member) -> T + Sync) -> Vec<T> {
    let servers = Mutex::new(map.servers().iter());
    let visited = Mutex::new(Vec::with_capacity(map.servers().len()));
    std::thread::scope(|scope| {
        for _ in 0..map.servers().len().min(ASKED_MAX) {
            scope.spawn(|| {
                loop {
                    let next = servers.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(server) = next else { return };
                    let result = visit(server, find(map, server, identity));
                    visited.lock().unwrap_or_else(PoisonError::into_inner).push((server.number, result));
                }
            });
        }
    });
    let mut visited = visited.into_inner().unwrap_or_else(PoisonError::into_inner);
    visited.sort_by_key(|(number, _)| *number);
    visited.into_iter().map(|(_, result)| result).collect()
}

/// Asks at each address until the server itself answers: a Unix socket may be that of another host's server.
fn find(map: &Map, server: &Server, identity: &Identity) -> Member {
    let mut found = Member::Absent(String::new(), "it has no address".to_owned());
    for address in &server.listen {
        let shown = address.to_string();
        let answer = Control::open(address, identity, TIMEOUT).and_then(|mut control| {
            let status = control.status()?;
            Ok((control, status))
        });
        match answer {
            Ok((control, status)) => match stranger(map, server, &status) {
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

/// Who it is that answers, if not `server`.
fn stranger(map: &Map, server: &Server, status: &Status) -> Option<String> {
    let Some(cluster) = &status.cluster else {
        return Some(format!("server {} of no cluster answers there", status.server));
    };
    let is_it =
        (cluster.name.as_str(), cluster.server.as_str(), status.server) == (map.name(), &server.name, server.number.0);
    (!is_it).then(|| format!("{} (number {}) of {} answers there", cluster.server, status.server, cluster.name))
}
