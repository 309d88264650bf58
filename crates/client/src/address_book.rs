//! Where servers listen, as far as this process knows: what it was given, and what servers said of one another. A server that
//! was started on another host listens elsewhere than before, and the others know where.

use crate::list::List;
use isonomia_transport::address::Address;
use isonomia_transport::line::Line;
use isonomia_units::ServerId;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Lists of addresses that are remembered: more than servers have, and some of them elsewhere later.
const LISTS_MAX: usize = 4_096;

/// See the module.
pub(crate) struct AddressBook {
    given: Box<[Address]>,
    learnt: List<Entry>,
    /// Which file system was found where the client was given, or 0.
    file_system: AtomicU64,
    /// The index of the given address at which it was found, from 1 on; 0 if at another.
    found_at: AtomicUsize,
}

struct Entry {
    server: ServerId,
    addresses: Box<[Address]>,
}

impl AddressBook {
    /// Those that the client was given, of any servers.
    pub fn new(given: &[Address]) -> Self {
        Self {
            given: given.into(),
            learnt: List::default(),
            file_system: AtomicU64::new(0),
            found_at: AtomicUsize::new(0),
        }
    }

    /// What the client was given.
    pub fn given(&self) -> &[Address] {
        &self.given
    }

    /// Where a server listens, as was said last; nothing if that was never said.
    pub fn of(&self, server: ServerId) -> &[Address] {
        self.learnt.iter().find(|entry| entry.server == server).map_or(&[], |entry| &entry.addresses)
    }

    /// Whether `line`, to this address, leads to a server of the file system that the client uses. A socket that was learnt may be another
    /// one's on this host, which has the same number, perhaps.
    pub fn leads_here(&self, line: &Line, address: &Address) -> bool {
        self.is_used(line.server(), line.file_system(), address)
    }

    fn is_used(&self, server: ServerId, found: u64, address: &Address) -> bool {
        let at = self.given.iter().position(|given| given == address).map_or(0, |at| at + 1);
        match self.file_system.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
            Err(known) if known != found => {
                // A server in no cluster which was emptied is another one than before; but what listens at another address was
                // always another one.
                let is_emptied = server == ServerId(0) && at > 0 && at == self.found_at.load(Ordering::Relaxed);
                if is_emptied {
                    self.file_system.store(found, Ordering::Relaxed);
                }
                is_emptied
            }
            Err(_) => true,
            Ok(_) => {
                self.found_at.store(at, Ordering::Relaxed);
                true
            }
        }
    }

    /// All that are known, of any servers, those that were given first. One may be there twice.
    pub fn all(&self) -> impl Iterator<Item = &Address> {
        self.given.iter().chain(self.learnt.iter().flat_map(|entry| &entry.addresses))
    }

    /// Takes in what another server says of where `server` listens.
    pub fn learn(&self, server: ServerId, addresses: Vec<Address>) {
        if self.of(server) != &addresses[..] && self.learnt.iter().count() < LISTS_MAX {
            self.learnt.add(Entry { server, addresses: addresses.into() }, |_| None);
        }
    }
}

/// What a server answers when it is asked for another one's addresses.
pub(crate) fn parse(reply: &[u8]) -> Option<Vec<Address>> {
    let lines = std::str::from_utf8(reply).ok()?.lines();
    let addresses: Vec<Address> = lines.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(addresses).filter(|addresses| !addresses.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_counts() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let book = AddressBook::new(&[address("tcp:a:1")]);
        assert_eq!((book.of(ServerId(2)), book.given()), (&[][..], &[address("tcp:a:1")][..]));
        for list in [["tcp:b:1"], ["tcp:c:1"], ["tcp:c:1"], ["tcp:b:1"]] {
            book.learn(ServerId(2), list.map(address).into());
            assert_eq!(book.of(ServerId(2)), list.map(address));
        }
        assert_eq!(book.all().count(), 4, "what is known is not learnt again");
    }

    #[test]
    fn one_file_system_is_used() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let (given, learnt) = (address("tcp:a:1"), address("unix:/s"));
        let book = AddressBook::new(std::slice::from_ref(&given));
        let is_used = |server, found, at| book.is_used(ServerId(server), found, at);
        assert_eq!([is_used(1, 7, &given), is_used(2, 7, &learnt), is_used(2, 8, &learnt)], [true, true, false]);
        assert!(!is_used(1, 8, &given), "a cluster does not become another one");
        let alone = AddressBook::new(std::slice::from_ref(&given));
        let is_used = |found, at| alone.is_used(ServerId(0), found, at);
        assert_eq!(
            [is_used(7, &given), is_used(8, &learnt), is_used(8, &given), is_used(7, &learnt)],
            [true, false, true, false]
        );
        let other = address("tcp:b:1");
        let several = AddressBook::new(&[given.clone(), other.clone()]);
        let is_used = |found, at| several.is_used(ServerId(0), found, at);
        assert_eq!(
            [is_used(7, &given), is_used(8, &other), is_used(7, &other), is_used(8, &given)],
            [true, false, true, true]
        );
    }

    #[test]
    fn replies_that_are_no_addresses_are_none() {
        assert_eq!(parse(b"tcp:a:1\nunix:/s").unwrap().len(), 2);
        for reply in [&b""[..], b"tcp:a:1\nudp:b:2", b"\xff"] {
            assert_eq!(parse(reply), None);
        }
    }
}
