//! Where servers listen, as far as this process knows: what it was given, and what servers said of one another. A server that
//! was started on another host listens elsewhere than before, and the others know where.

use crate::list::List;
use isonomia_transport::address::Address;
use isonomia_units::ServerId;

/// Lists of addresses that are remembered: more than servers have, and some of them elsewhere later.
const LISTS_MAX: usize = 4_096;

/// See the module.
pub(crate) struct Places {
    given: Box<[Address]>,
    learnt: List<Place>,
}

struct Place {
    server: ServerId,
    addresses: Box<[Address]>,
}

impl Places {
    /// Those that the client was given, of any servers.
    pub fn new(given: &[Address]) -> Self {
        Self { given: given.into(), learnt: List::default() }
    }

    /// What the client was given.
    pub fn given(&self) -> &[Address] {
        &self.given
    }

    /// Where a server listens, as was said last; nothing if that was never said.
    pub fn of(&self, server: ServerId) -> &[Address] {
        self.learnt.iter().find(|place| place.server == server).map_or(&[], |place| &place.addresses)
    }

    /// All that are known, of any servers, those that were given first. One may be there twice.
    pub fn all(&self) -> impl Iterator<Item = &Address> {
        self.given.iter().chain(self.learnt.iter().flat_map(|place| &place.addresses))
    }

    /// Takes in what another server says of where `server` listens.
    pub fn learn(&self, server: ServerId, addresses: Vec<Address>) {
        if self.of(server) != &addresses[..] && self.learnt.iter().count() < LISTS_MAX {
            self.learnt.add(Place { server, addresses: addresses.into() }, |_| None);
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
        let places = Places::new(&[address("tcp:a:1")]);
        assert_eq!((places.of(ServerId(2)), places.given()), (&[][..], &[address("tcp:a:1")][..]));
        for list in [["tcp:b:1"], ["tcp:c:1"], ["tcp:c:1"], ["tcp:b:1"]] {
            places.learn(ServerId(2), list.map(address).into());
            assert_eq!(places.of(ServerId(2)), list.map(address));
        }
        assert_eq!(places.all().count(), 4, "what is known is not learnt again");
    }

    #[test]
    fn replies_that_are_no_addresses_are_none() {
        assert_eq!(parse(b"tcp:a:1\nunix:/s").unwrap().len(), 2);
        for reply in [&b""[..], b"tcp:a:1\nudp:b:2", b"\xff"] {
            assert_eq!(parse(reply), None);
        }
    }
}
