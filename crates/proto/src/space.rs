//! The space below a part of a file: what a client asks of it, and what it seeks there.

/// A change of the space below a part of a file: the modes of `fallocate(2)` that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceChange {
    /// Room is made for what will be written there. The file grows to the end of the part unless the size is kept.
    Allocate {
        /// The file does not grow.
        keep_size: bool,
    },
    /// The part becomes a hole, as far as it lies within the file.
    PunchHole,
    /// The part becomes zeros for which there is room.
    ZeroRange {
        /// The file does not grow.
        keep_size: bool,
    },
}

/// What a file system gives out at a time, as nearly all do.
const PAGE_BYTES: u64 = 4096;

/// Blocks of 512 bytes that are given out for `len` bytes at `offset`, at most.
pub const fn blocks_touched(offset: u64, len: u64) -> u64 {
    if len == 0 {
        return 0;
    }
    (offset.saturating_add(len).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES) * (PAGE_BYTES / 512)
}

/// What is sought from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that were written.
    Data,
    /// Bytes that were not; behind the last byte of a file there is a hole.
    Hole,
}

impl SpaceChange {
    /// `FALLOC_FL_KEEP_SIZE` of Linux's `include/uapi/linux/falloc.h`, as the two that follow.
    const KEEP_SIZE: u32 = 0x01;
    const PUNCH_HOLE: u32 = 0x02;
    const ZERO_RANGE: u32 = 0x10;

    /// The change that a mode of `fallocate(2)` asks for; `None` if it is not served, or none of Linux's.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        let keep_size = mode & Self::KEEP_SIZE != 0;
        match mode & !Self::KEEP_SIZE {
            0 => Some(Self::Allocate { keep_size }),
            Self::PUNCH_HOLE if keep_size => Some(Self::PunchHole),
            Self::ZERO_RANGE => Some(Self::ZeroRange { keep_size }),
            _ => None,
        }
    }

    /// Whether the file grows to the end of the part.
    pub const fn grows(self) -> bool {
        matches!(self, Self::Allocate { keep_size: false } | Self::ZeroRange { keep_size: false })
    }

    /// Its mode, as in `fallocate(2)`.
    pub const fn mode(self) -> u32 {
        // The lowest bit is that of the size.
        match self {
            Self::Allocate { keep_size } => keep_size as u32,
            Self::PunchHole => Self::PUNCH_HOLE | Self::KEEP_SIZE,
            Self::ZeroRange { keep_size } => Self::ZERO_RANGE | keep_size as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_given_out_eight_at_a_time() {
        assert_eq!(
            [(0, 0), (4095, 1), (4095, 2), (0, 4096), (1, 4096)].map(|(at, len)| blocks_touched(at, len)),
            [0, 8, 16, 8, 16]
        );
        assert_eq!(blocks_touched(u64::MAX, u64::MAX), 8);
    }

    #[test]
    fn every_mode_that_is_served_comes_back_and_no_other_is() {
        let served: Vec<u32> = (0..1 << 10).filter(|mode| SpaceChange::from_mode(*mode).is_some()).collect();
        assert_eq!(served, [0, 1, 3, 16, 17]);
        assert!(served.iter().all(|mode| SpaceChange::from_mode(*mode).unwrap().mode() == *mode));
        assert_eq!(SpaceChange::from_mode(3), Some(SpaceChange::PunchHole));
        assert_eq!(SpaceChange::from_mode(16), Some(SpaceChange::ZeroRange { keep_size: false }));
    }
}
