//! A target of stated bandwidth, emulated: one request in service at a time on an ideal timeline.
//!
//! The caller starts a request, is told when it ends, and sleeps until then. Sleeps end late; if each late
//! wake-up were charged to the device, a capped target would run slower than stated. So a request that starts
//! at most [`LATE_MAX`] after the previous one ended is placed right behind it. A device idle for longer starts
//! at `now`: idle time is never saved up, so it cannot be spent in a burst above the cap of more than
//! [`LATE_MAX`].

use isonomia_units::Nanos;

/// The longest gap between two requests that is taken for a late wake-up rather than idleness.
pub const LATE_MAX: Nanos = Nanos::from_millis(2);

/// The timeline of one capped target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CappedDevice {
    free_at: Nanos,
}

impl CappedDevice {
    /// A device that is free from the clock's origin.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a request that takes `cost`, `backlogged` if it was waiting when the previous one ended: only then
    /// is a gap the fault of a late wake-up. Returns the time at which it ends.
    pub fn start(&mut self, now: Nanos, cost: Nanos, backlogged: bool) -> Nanos {
        let late = now.since(self.free_at);
        let begin = if now <= self.free_at || (backlogged && late <= LATE_MAX) { self.free_at } else { now };
        self.free_at = begin + cost;
        self.free_at
    }

    /// When the last request started ends or ended; the origin if there was none.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Nanos = Nanos::from_micros(100);

    #[test]
    fn late_wake_ups_do_not_slow_a_backlogged_device() {
        let mut device = CappedDevice::new();
        let mut now = device.start(Nanos::from_secs(1), COST, false);
        for _ in 0..999 {
            now = device.start(now + Nanos::from_micros(70), COST, true);
        }
        assert_eq!(device.free_at(), Nanos::from_millis(1_100));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut device = CappedDevice::new();
        assert_eq!(device.start(Nanos::ZERO, COST, true), COST);
        let gap = Nanos::from_micros(50);
        assert_eq!(device.start(COST + gap, COST, false), COST + gap + COST);
        let late = device.free_at() + LATE_MAX + Nanos(1);
        assert_eq!(device.start(late, COST, true), late + COST);
    }

    #[test]
    fn requests_given_early_queue_up() {
        let mut device = CappedDevice::new();
        device.start(Nanos::ZERO, COST, false);
        assert_eq!(device.start(Nanos(1), COST, false), COST + COST);
    }
}
