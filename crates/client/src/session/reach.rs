//! How a session comes to a connection: which addresses are tried, for how long, and what is done while none of them leads to the
//! server.
//!
//! A server that is away may come back where it was, or elsewhere: it may have been started on another host. So all
//! addresses that are known of it are tried, and now and then the other servers are asked where it is.

use super::{Notice, SERVER_UNKNOWN, Session};
use crate::Error;
use crate::address_book;
use crate::lock_keeper::LockKeeper;
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_transport::address::Address;
use isonomia_transport::handshake::{HandshakeError, Identity};
use isonomia_transport::line::Line;
use isonomia_transport::monotonic_now;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_units::{Ino, Nanos, ServerId};
use rustix::io::Errno;
use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::Ordering;

/// After this long without a server it is said that one is waited for.
const NOTICE_AFTER: Nanos = Nanos::from_secs(1);
/// Between attempts to reach a server that is away.
const RECONNECT_PAUSE: Nanos = Nanos::from_millis(20);
/// One of several addresses has this long to answer, then the next one is tried.
const ADDRESS_PATIENCE: Nanos = Nanos::from_secs(2);
/// When others are asked first where a server is that cannot be reached; each time later it is twice as long.
const ASK_AFTER: Nanos = Nanos::from_millis(500);

impl Session {
    fn identity(&self) -> Result<Identity, Error> {
        Ok(Identity {
            client: self.number().map_err(Error::Argument)?,
            continues: self.claimed_in(),
            mount: self.keeper().map_or(0, LockKeeper::number),
            claims: self.config.claims.clone(),
            key_file: self.config.key_file.clone(),
            server_user: self.conduct.server_user,
            protection: self.conduct.protection.clone(),
        })
    }

    /// Which server answers at `address` within `patience`.
    pub fn who_answers(&self, address: &Address, patience: Nanos) -> Option<ServerId> {
        let line = Line::open(address, &self.identity().ok()?, Deadline::after(patience));
        line.ok().filter(|line| self.book.leads_here(line, address)).map(|line| line.server())
    }

    pub(super) fn connect(&self, deadline: Deadline) -> Result<Line, Error> {
        (self.conduct.manner.before_sleep)();
        let identity = self.identity()?;
        let start = monotonic_now();
        let mut ask_after = ASK_AFTER;
        loop {
            let trouble = match self.connect_once(&identity, deadline) {
                Ok(line) => {
                    self.note_answer();
                    return Ok(line);
                }
                Err(trouble) => trouble,
            };
            // A refusal that stays is told as soon as every address has one. It says nothing of an address that is down: another server
            // of the file system may be there, with another version, other limits or another clock, or the same server reached in
            // another way, by which it is another thing that proves who asks (a user id at a socket, a key or a credential on TCP). While a server
            // starts anew, or servers are replaced one after the other, whoever gave up would fail where there is only something
            // to wait for. So the rest is waited for as a server that is away always is, the time-out at most; what each address said is told after
            // a second, so that nobody has to wait for the end to find out that a key is missing.
            if !trouble.may_pass {
                let error = Error::Refused { address: self.all_addresses(), reason: trouble.text };
                self.notice(Notice::Refused(&error.to_string()));
                return Err(error);
            }
            let waited = monotonic_now().since(start);
            if waited >= NOTICE_AFTER {
                let (addresses, seconds) = (self.all_addresses(), self.config.timeout.0.div_ceil(1_000_000_000));
                let text = format!("waiting for a server at {addresses}, {seconds} s at most: {}", trouble.text);
                self.notice(Notice::Warning(&text));
            }
            if waited >= ask_after {
                self.ask_others(&identity, deadline);
                ask_after = ask_after + ask_after;
            }
            let Some(left) = deadline.left() else { return Err(self.timed_out()) };
            let pause = left.min(RECONNECT_PAUSE);
            // An interrupted pause is a shorter one.
            let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: pause.0 as _ });
        }
    }

    /// Where the server may listen, the address that answered last first. What was given comes in its order; of what servers say, a
    /// Unix socket first wherever it stands, because who is on its host has shared memory there. Elsewhere it leads to nobody, to
    /// another server or to another file system's, and the next address is tried. (For an address on TCP that was given see [`Self::in_memory`].)
    fn addresses(&self) -> Vec<&Address> {
        let given = if self.is_home { self.book.given() } else { &[] };
        let learnt = self.server().map_or(&[][..], |server| self.book.of(server));
        let mut more: Vec<&Address> = learnt.iter().filter(|address| !given.contains(address)).collect();
        more.sort_by_key(|address| matches!(address, Address::Tcp(_)));
        let mut addresses: Vec<&Address> = given.iter().chain(more).collect();
        let chosen = self.chosen.load(Ordering::Relaxed);
        addresses.sort_by_key(|address| mark_of(address) != chosen);
        addresses
    }

    /// Tries one address after the other.
    fn connect_once(&self, identity: &Identity, deadline: Deadline) -> Result<Line, Trouble> {
        let addresses = self.addresses();
        let mut trouble = Trouble { may_pass: false, text: String::new() };
        for address in &addresses {
            // A host that is gone does not even refuse.
            let patience = if addresses.len() > 1 { deadline.min(Deadline::after(ADDRESS_PATIENCE)) } else { deadline };
            let (may_pass, reason) = match Line::open(address, identity, patience).map(|line| self.known(line, address))
            {
                Ok(Ok(mut line)) => match self.in_memory(&mut line, address, identity, patience) {
                    Ok(address) => {
                        line.outwait(address);
                        self.chosen.store(mark_of(address), Ordering::Relaxed);
                        return Ok(line);
                    }
                    Err(reason) => (true, reason.to_string()),
                },
                // Others know where the right one is by now.
                Ok(Err(reason)) => (true, reason),
                Err(error) => (is_worth_waiting(&error), error.to_string()),
            };
            trouble.may_pass |= may_pass;
            let end = if trouble.text.is_empty() { "" } else { "; " };
            trouble.text += end;
            trouble.text += &if addresses.len() == 1 { reason } else { format!("{address}: {reason}") };
        }
        Err(trouble)
    }

    /// Puts a line through shared memory instead of this new one on TCP to `address`, if the server is on this host: who gives several
    /// addresses, the same ones on every host perhaps, leaves it to the client how to reach which server. Who gives one says how. Where
    /// the line leads.
    ///
    /// # Errors
    /// The server did not answer. The line is to be given up: a late answer would be taken for that of the next request.
    // Lines are large, and threads of programs have small stacks.
    #[inline(never)]
    fn in_memory<'a>(
        &'a self,
        line: &mut Line,
        address: &'a Address,
        identity: &Identity,
        deadline: Deadline,
    ) -> Result<&'a Address, SocketError> {
        let is_to_be_found = self.is_home && self.book.given().len() > 1 && matches!(line, Line::Tcp(_));
        let unknown = self.server().filter(|server| is_to_be_found && self.book.of(*server).is_empty());
        let Some(server) = unknown else { return Ok(address) };
        let patience = deadline.min(Deadline::after(ADDRESS_PATIENCE));
        if let Some(found) = self.asked_for(server, line, patience)? {
            self.book.learn(server, found);
        }
        for local in self.book.of(server).iter().filter(|address| matches!(address, Address::Unix(_))) {
            let Ok(found) = Line::open(local, identity, patience) else { continue };
            // Another cluster's server on this host may have the same number.
            if found.server() == server
                && found.file_system() == line.file_system()
                && found.verifier() == line.verifier()
            {
                *line = found;
                return Ok(local);
            }
        }
        Ok(address)
    }

    /// Where `server` listens, as whoever is at the other end of `line` knows; nothing if he does not.
    ///
    /// # Errors
    /// He did not answer, and may do so later: the line is of no use any more.
    fn asked_for(
        &self,
        server: ServerId,
        line: &mut Line,
        deadline: Deadline,
    ) -> Result<Option<Vec<Address>>, SocketError> {
        let request = RequestHeader { offset: u64::from(server.0), ..RequestHeader::new(Op::FindServer, Ino::ROOT) };
        let mut reply = vec![0; PATH_LEN_MAX];
        let left = deadline.left().ok_or(SocketError::TimedOut)?;
        let (header, _) = line.exchange(&request, [b"", b""], &mut reply, left, self.conduct.manner)?;
        let told = reply.get(..header.payload_len as usize).filter(|_| header.errno == 0);
        Ok(told.and_then(address_book::parse))
    }

    /// Asks the other servers where this one is: it may have been started on another host.
    fn ask_others(&self, identity: &Identity, deadline: Deadline) {
        let Some(server) = self.server() else { return };
        let mut identity = identity.clone();
        // Of the server that was named, and of no other.
        identity.protection.server_name = None;
        let chosen = self.chosen.load(Ordering::Relaxed);
        let mut others: Vec<&Address> = self.book.all().filter(|address| mark_of(address) != chosen).collect();
        others.dedup();
        for address in others {
            let patience = deadline.min(Deadline::after(ADDRESS_PATIENCE));
            if patience.left().is_none() {
                return;
            }
            let Ok(mut line) = Line::open(address, &identity, patience) else { continue };
            if !self.book.leads_here(&line, address) {
                continue;
            }
            if let Ok(Some(found)) = self.asked_for(server, &mut line, patience) {
                return self.book.learn(server, found);
            }
        }
    }

    /// The line, to this address, if it leads to the server that it is to lead to; else where it leads.
    fn known(&self, line: Line, address: &Address) -> Result<Line, String> {
        let found = line.server();
        if !self.book.leads_here(&line, address) {
            return Err(format!("it is server {found} of another file system"));
        }
        let number = u32::from(found.0);
        match self.server.compare_exchange(SERVER_UNKNOWN, number, Ordering::Relaxed, Ordering::Relaxed) {
            Err(expected) if expected != number => Err(format!("it is server {found}, not server {expected}")),
            _ => Ok(line),
        }
    }

    /// The address of a server that is connected, or all that are tried.
    pub(super) fn address(&self) -> String {
        match self.addresses().first() {
            Some(first) if self.has_lines() => first.to_string(),
            _ => self.all_addresses(),
        }
    }

    fn all_addresses(&self) -> String {
        self.addresses().iter().map(|address| address.to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Why no address leads to the server.
struct Trouble {
    /// It may be over in a moment.
    may_pass: bool,
    text: String,
}

/// Tells an address from others, and from none, which is 0.
fn mark_of(address: &Address) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish() | 1
}

/// Whether connecting may succeed a moment later. While a server restarts, its socket is missing or nobody accepts on it;
/// all other errors stay.
fn is_worth_waiting(error: &HandshakeError) -> bool {
    match error {
        HandshakeError::Socket(SocketError::System(errno)) => matches!(
            *errno,
            Errno::CONNREFUSED
                | Errno::NOENT
                | Errno::AGAIN
                | Errno::CONNRESET
                | Errno::PIPE
                | Errno::TIMEDOUT
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::INTR
        ),
        HandshakeError::Socket(_) => true,
        _ => false,
    }
}
