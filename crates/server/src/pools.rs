//! Slots for connections that are not served yet, or that only ask operators' questions. Each kind of peer has a number of them,
//! and each origin a part of that, so that nobody can take the slots of others.
//!
//! Whoever comes gets a slot. If that is one too many, the longest unused slot is taken away: of the same origin if it
//! has more than its share, else of the origin that has the most, and of those that have as many, the longest unused of
//! all. So a flood of connections from one origin displaces its own. A flood from ever new origins displaces those that have been
//! there for longest: a client still gets in if it says hello before as many others have come as there are slots.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Whose connection it is, as far as that is known without believing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Root or the server's own user, by the kernel's word; in control connections also by munge's.
    Operator,
    /// A user of this host, by the kernel's word; in control connections also of another one, by munge's.
    User(u32),
    /// An address on the network that has not proved anything; of IPv6, the 64 bits that its network has.
    Address(u64),
    /// Somebody who proved the key.
    Keyed,
}

/// What has slots of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Operators,
    Users,
    Addresses,
    Keyed,
}

/// How many slots there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// For operators of this host.
    pub operators: usize,
    /// For all other users of this host.
    pub users: usize,
    /// For one of them.
    pub per_user: usize,
    /// For all addresses on the network.
    pub addresses: usize,
    /// For one of them.
    pub per_address: usize,
    /// For all who proved the key.
    pub keyed: usize,
}

impl Slots {
    /// All of them.
    pub fn total(&self) -> usize {
        self.operators + self.users + self.addresses + self.keyed
    }

    /// Slots of a kind, and of them for one origin.
    fn of(&self, kind: Kind) -> (usize, usize) {
        match kind {
            Kind::Operators => (self.operators, self.operators),
            Kind::Users => (self.users, self.per_user),
            Kind::Addresses => (self.addresses, self.per_address),
            Kind::Keyed => (self.keyed, self.keyed),
        }
    }
}

impl Origin {
    /// The origin of a connection from `address`.
    pub fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::Address(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self::Address((v6.to_bits() >> 64) as u64),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Operator => Kind::Operators,
            Self::User(_) => Kind::Users,
            Self::Address(_) => Kind::Addresses,
            Self::Keyed => Kind::Keyed,
        }
    }
}

/// See the module. Connections go by number.
#[derive(Debug)]
pub struct Pools {
    slots: Slots,
    /// Where each connection is, and when it last used its slot, in counts of such uses.
    taken: HashMap<u64, (Origin, u64)>,
    /// The connections of each origin that has any, the longest unused first.
    origins: HashMap<Origin, BTreeSet<(u64, u64)>>,
    uses: u64,
}

impl Pools {
    /// Nobody is there.
    pub fn new(slots: Slots) -> Self {
        Self { slots, taken: HashMap::new(), origins: HashMap::new(), uses: 0 }
    }

    /// Gives connection `id` a slot, and names the one that has to go for it.
    pub fn enter(&mut self, id: u64, origin: Origin) -> Option<u64> {
        let kind = origin.kind();
        let (of_kind, of_origin) = self.slots.of(kind);
        let own = self.origins.get(&origin).map_or(0, BTreeSet::len);
        let all: usize = self.origins.iter().filter(|(o, _)| o.kind() == kind).map(|(_, set)| set.len()).sum();
        let loser = if own >= of_origin.max(1) {
            Some(origin)
        } else if all >= of_kind.max(1) {
            let of_kind = self.origins.iter().filter(|(o, _)| o.kind() == kind);
            // Uses are counted, so no two are the same.
            of_kind.max_by_key(|(_, set)| (set.len(), Reverse(set.first().copied()))).map(|(o, _)| *o)
        } else {
            None
        };
        let gone = loser.and_then(|loser| self.origins.get(&loser)?.first().map(|(_, id)| *id));
        gone.into_iter().for_each(|gone| self.leave(gone));
        self.uses += 1;
        self.taken.insert(id, (origin, self.uses));
        self.origins.entry(origin).or_default().insert((self.uses, id));
        gone
    }

    /// Connection `id` used its slot.
    pub fn touch(&mut self, id: u64) {
        let Some((origin, used)) = self.taken.get_mut(&id) else { return };
        let Some(set) = self.origins.get_mut(origin) else { return };
        set.remove(&(*used, id));
        self.uses += 1;
        *used = self.uses;
        set.insert((self.uses, id));
    }

    /// Whether connection `id` has a slot.
    pub fn has(&self, id: u64) -> bool {
        self.taken.contains_key(&id)
    }

    /// Connection `id` needs its slot no more.
    pub fn leave(&mut self, id: u64) {
        let Some((origin, used)) = self.taken.remove(&id) else { return };
        let Some(set) = self.origins.get_mut(&origin) else { return };
        set.remove(&(used, id));
        if set.is_empty() {
            self.origins.remove(&origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOTS: Slots = Slots { operators: 2, users: 6, per_user: 3, addresses: 4, per_address: 2, keyed: 1 };

    #[test]
    fn a_flood_throws_out_its_own_connections() {
        let mut pools = Pools::new(SLOTS);
        assert_eq!(pools.enter(1, Origin::Operator), None);
        assert_eq!(pools.enter(2, Origin::User(7)), None);
        let mut gone = (100..200).filter_map(|id| pools.enter(id, Origin::User(8)));
        assert_eq!(gone.next(), Some(100), "the oldest of its own");
        assert_eq!(gone.count(), 96);
        assert_eq!(pools.enter(3, Origin::User(7)), None);
    }

    #[test]
    fn many_origins_lose_the_oldest_of_whoever_has_most() {
        let mut pools = Pools::new(SLOTS);
        for (id, user) in [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 4)] {
            assert_eq!(pools.enter(id, Origin::User(user)), None);
        }
        assert_eq!(pools.enter(7, Origin::User(5)), Some(2));
        // Strangers on the network do not count against users of the host, nor these against operators.
        assert_eq!(pools.enter(8, Origin::Address(1)), None);
        assert_eq!(pools.enter(9, Origin::Operator), None);
        assert_eq!(pools.enter(10, Origin::Keyed), None);
    }

    #[test]
    fn ever_new_origins_keep_none_out_whatever_its_address() {
        for (honest, hostile) in [(Origin::Address(u64::MAX), 0), (Origin::Address(0), 1 << 32)] {
            let mut pools = Pools::new(SLOTS);
            let flood = |pools: &mut Pools, from: u64| pools.enter(from, Origin::Address(hostile + from));
            assert_eq!((1..=10).filter_map(|from| flood(&mut pools, from)).last(), Some(6));
            assert_eq!(pools.enter(100, honest), Some(7), "the longest unused");
            let gone: Vec<_> = (11..=13).map(|from| flood(&mut pools, from)).collect();
            assert_eq!(gone, [Some(8), Some(9), Some(10)]);
            assert!(pools.has(100), "others were there before");
            assert_eq!(flood(&mut pools, 14), Some(100));
        }
    }

    #[test]
    fn whoever_uses_its_slot_keeps_it() {
        let mut pools = Pools::new(SLOTS);
        (1..=3).for_each(|id| assert_eq!(pools.enter(id, Origin::User(7)), None));
        pools.touch(1);
        assert_eq!(pools.enter(4, Origin::User(7)), Some(2));
        pools.leave(3);
        assert_eq!(pools.enter(5, Origin::User(7)), None);
        assert_eq!(pools.enter(6, Origin::User(7)), Some(1));
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin() {
        let origin = |text: &str| Origin::from_address(text.parse().unwrap());
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::2:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
    }

    proptest! {
        #[test]
        fn no_pool_is_ever_fuller_than_it_may_be(steps in proptest::collection::vec((0u8..3, 0u64..40, 0u32..8), 0..300)) {
            let mut pools = Pools::new(SLOTS);
            let mut next = 0;
            for (step, id, who) in steps {
                let origin = match who {
                    0 => Origin::Operator,
                    1 => Origin::Keyed,
                    2..5 => Origin::Address(u64::from(who)),
                    _ => Origin::User(who),
                };
                match step {
                    0 => { next += 1; pools.enter(next, origin); }
                    1 => pools.touch(id),
                    _ => pools.leave(id),
                }
                for kind in [Kind::Operators, Kind::Users, Kind::Addresses, Kind::Keyed] {
                    let of_kind = || pools.origins.iter().filter(|(o, _)| o.kind() == kind);
                    let (max, each) = SLOTS.of(kind);
                    prop_assert!(of_kind().map(|(_, set)| set.len()).sum::<usize>() <= max);
                    prop_assert!(of_kind().all(|(_, set)| set.len() <= each));
                }
                prop_assert_eq!(pools.taken.len(), pools.origins.values().map(BTreeSet::len).sum::<usize>());
            }
        }
    }
}
