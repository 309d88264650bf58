//! What others leave of a target: the load and the free space that the paper's cost does not know.

/// How much of a target a job may expect for a stream of its own, from almost nothing to all of it.
///
/// A use of a part with half of its room left costs twice as much as one of a part with all of it, so that streams end
/// up on targets in proportion to what these can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room(u16);

/// Free space that differs by less than this part is alike (Lustre's `qos_threshold_rr`).
const ALIKE: f64 = 0.17;

impl Room {
    /// All of it is left.
    pub const ALL: Self = Self(Self::WHOLE);
    /// Nothing is to be placed there while there are others: its server is silent, or it is full.
    pub const NONE: Self = Self(0);
    const WHOLE: u16 = 256;
    /// What is left of the busiest target, so that a price stays a small number: some other load may end any time.
    const LEAST: u16 = Self::WHOLE / 16;

    /// Of a target of which others leave `left` (0 to 1) to a newcomer, and that has `free_bytes` where the emptiest one has
    /// `free_bytes_max`. Room counts in full, as it does for new volumes, unless it is alike.
    pub fn new(left: f64, free_bytes: u64, free_bytes_max: u64) -> Self {
        if free_bytes == 0 {
            return Self::NONE;
        }
        let free = (free_bytes as f64 / free_bytes_max.max(free_bytes) as f64).clamp(0.0, 1.0);
        let free = if free >= 1.0 - ALIKE { 1.0 } else { free };
        // A number that is none becomes 0.
        let whole = f64::from(Self::WHOLE);
        Self(((left.clamp(0.0, 1.0) * free * whole).round() as u16).max(Self::LEAST))
    }

    /// Nothing can be placed there but in need.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What a use of all of `rooms` together costs: 256 if they are empty, up to 4096.
    pub(crate) fn price(rooms: impl IntoIterator<Item = Self>) -> u32 {
        let (sum, count) = rooms.into_iter().fold((0_u32, 0_u32), |(sum, count), room| {
            (sum.saturating_add(u32::from(room.0.max(Self::LEAST))), count + 1)
        });
        let whole = u64::from(Self::WHOLE);
        u32::try_from(whole * whole * u64::from(count) / u64::from(sum.max(1))).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_what_is_left_inverted() {
        let room = |left| Room::new(left, 1, 1);
        let price = |left| Room::price([room(left)]);
        assert_eq!([1.0, 0.5, 0.25, 0.0, f64::NAN, 7.0].map(price), [256, 512, 1024, 4096, 4096, 256]);
        assert_eq!(Room::price([room(1.0), room(0.5)]), 341, "three quarters of both");
        assert_eq!(room(1.0), Room::ALL);
    }

    #[test]
    fn free_space_counts_once_it_differs() {
        assert_eq!(Room::new(1.0, 84, 100), Room::ALL);
        assert_eq!(Room::new(1.0, 50, 100), Room::new(0.5, 100, 100));
        assert!(Room::new(1.0, 0, 100).is_none() && Room::new(1.0, 0, 0).is_none());
        assert!(!Room::new(0.0, 1, 1 << 40).is_none(), "it can be used");
    }
}
