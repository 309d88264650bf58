//! How long what a server writes back or reads ahead for a job keeps a device at once, so that others do not wait for long: the
//! rules that servers follow, and by which contests with them are simulated.

use isonomia_units::{Bytes, Nanos};

/// While somebody waits for the device, a chunk of what is written back takes so many percent of a small read's time, …
const TIME_PERCENT: u64 = 200;
/// … but not less than this, …
const TIME_MIN: Nanos = Nanos::from_micros(250);
/// … and not more than this, or half of what a latency class is to reach.
const TIME_MAX: Nanos = Nanos::from_millis(3);
/// However long the device takes, a chunk has so many bytes if they follow each other.
pub const BYTES_MIN: u64 = 64 << 10;
/// The most in one chunk.
pub const BYTES_MAX: u64 = 8 << 20;
/// Chunks of one job that wait for their turn or are written at once, at most.
pub const CHUNKS_MAX: usize = 8;
/// A job that had less than this part of its share of the device's time has one chunk more at once.
pub const SHARE_LEAST: f64 = 0.92;
/// The smallest piece of what is read ahead.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;
/// The largest piece, and as far as is read ahead of a stream while others use the device.
pub const PIECE_BYTES_MAX: u64 = 512 << 10;
/// Chunks are of whole pages.
const PAGE_BYTES: u64 = 4096;

/// What a small read is: one whose time chunks go by.
pub const SMALL_READ: Bytes = Bytes(4096);

/// How long a chunk may take while somebody waits for the device: `read` is the time of a small read, as far as it is known, and
/// `class` what a latency class is to reach, if there is one.
pub fn time_max(read: Option<Nanos>, class: Option<Nanos>) -> Nanos {
    let time = Nanos(read.unwrap_or(TIME_MAX).0.saturating_mul(TIME_PERCENT) / 100);
    let most = class.map_or(TIME_MAX, |target| TIME_MAX.min(Nanos(target.0 / 2)));
    time.clamp(TIME_MIN.min(most), most)
}

/// The bytes of a chunk of what was written one behind the other, where requests take `time_of`.
pub fn bytes(time_max: Nanos, time_of: impl Fn(Bytes) -> Nanos) -> Bytes {
    let (mut fits, mut is_long) = (BYTES_MIN / PAGE_BYTES, BYTES_MAX / PAGE_BYTES + 1);
    while is_long - fits > 1 {
        let middle = fits + (is_long - fits) / 2;
        if time_of(Bytes(middle * PAGE_BYTES)) <= time_max { fits = middle } else { is_long = middle }
    }
    Bytes(fits * PAGE_BYTES)
}

/// The bytes of a piece of what is read ahead while others use the device, where such reads take `time_of`: it takes no longer
/// than a chunk, unless it is the smallest.
pub fn piece_bytes(time_max: Nanos, time_of: impl Fn(Bytes) -> Nanos) -> Bytes {
    let mut bytes = PIECE_BYTES_MAX;
    while bytes > PIECE_BYTES_MIN && time_of(Bytes(bytes)) > time_max {
        bytes /= 2;
    }
    Bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms and 200 MiB/s.
    fn serial(bytes: Bytes) -> Nanos {
        Nanos(1_000_000 + bytes.0 * 1_000_000_000 / (200 << 20))
    }

    #[test]
    fn a_chunk_takes_as_long_as_two_small_reads_and_a_piece_no_longer() {
        let time = time_max(Some(serial(SMALL_READ)), None);
        assert_eq!(time, Nanos(2 * 1_019_531));
        // 1.039 ms of 200 MiB/s.
        assert_eq!(bytes(time, serial), Bytes(53 * 4096));
        assert_eq!(piece_bytes(time, serial), Bytes(128 << 10));
        assert_eq!(time_max(Some(serial(SMALL_READ)), Some(Nanos::from_millis(2))), Nanos::from_millis(1));
    }

    #[test]
    fn times_and_lengths_stay_within_their_bounds() {
        assert_eq!(time_max(Some(Nanos(100)), None), TIME_MIN);
        assert_eq!(time_max(Some(Nanos::from_secs(1)), None), TIME_MAX);
        assert_eq!(time_max(None, None), TIME_MAX);
        assert_eq!(time_max(Some(Nanos(100)), Some(Nanos::from_micros(100))), Nanos::from_micros(50));
        for (takes, chunk, piece) in [(Nanos::MAX, BYTES_MIN, PIECE_BYTES_MIN), (Nanos(1), BYTES_MAX, PIECE_BYTES_MAX)]
        {
            assert_eq!(bytes(TIME_MAX, |_| takes), Bytes(chunk));
            assert_eq!(piece_bytes(TIME_MAX, |_| takes), Bytes(piece));
        }
    }
}
