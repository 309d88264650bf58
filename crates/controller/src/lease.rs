//! How long whoever decides has the lease that says so, where a coordinator gives it, and how soon another one has it after him.
//!
//! It ends within an interval after its holder is gone, and the others look for it several times in that. Whoever gets it begins a round at
//! once; if too few answer within a [time-out](crate::TIMEOUT), because those who are gone are asked too, he begins the next one
//! without those, and not an interval later. So there is a decision again within two intervals, where these are no shorter than
//! [`FLOOR`]. Leases are of whole seconds and no shorter than two: where intervals are shorter, it takes as long as it does at that.

use isonomia_units::Nanos;

/// The shortest lease: etcd gives none for less.
const TTL_MIN_S: u64 = 2;
/// The longest.
const TTL_MAX_S: u64 = 10;
/// It is looked for so often while it lasts.
const LOOKS: u64 = 8;

/// Within two intervals there is another controller's decision, if they are this long or longer; and within twice this time, if
/// they are shorter.
pub const FLOOR: Nanos = Nanos::from_secs(TTL_MIN_S);

/// How long a lease lasts that is not renewed, in whole seconds.
pub fn lease_s(interval: Nanos) -> u64 {
    (interval.0 / 1_000_000_000).clamp(TTL_MIN_S, TTL_MAX_S)
}

/// How often it is renewed, or looked for.
pub fn lease_looked_at_every(lease_s: u64) -> Nanos {
    Nanos::from_millis(lease_s * 1_000 / LOOKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_within_an_interval() {
        let lease = |ms| lease_s(Nanos::from_millis(ms));
        assert_eq!([lease(100), lease(2_000), lease(5_500), lease(10_000), lease(600_000)], [2, 2, 5, 10, 10]);
        assert_eq!(lease_looked_at_every(2), Nanos::from_millis(250));
    }
}
