//! What a program says of its I/O phases by itself: see `include/isonomia.h`.

use crate::connection::client;
use crate::hook::{errno_number, set_errno_number};
use isonomia_client::{Client, Error};
use isonomia_units::Nanos;
use std::ffi::c_int;

/// An I/O phase of the job begins, which is going to read and write `bytes` (0: not known); alone, the program would still take
/// `remaining_s` seconds (0, less, or no number: not known). 0, or -1 with `errno`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub extern "C" fn isonomia_phase_begin(bytes: u64, remaining_s: f64) -> c_int {
    tell(|client| client.begin_phase(bytes, remaining(remaining_s)))
}

/// The phase is over that was begun last. 0, or -1 with `errno`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub extern "C" fn isonomia_phase_end() -> c_int {
    tell(Client::end_phase)
}

fn tell(say: impl FnOnce(&Client) -> Result<(), Error>) -> c_int {
    let errno = errno_number();
    match client().and_then(say) {
        Ok(()) => {
            set_errno_number(errno);
            0
        }
        Err(error) => {
            set_errno_number(error.errno().raw_os_error());
            -1
        }
    }
}

/// A conversion to a whole number saturates, and makes 0 of what is no number.
fn remaining(seconds: f64) -> Option<Nanos> {
    Some(Nanos((seconds * 1e9) as u64)).filter(|time| time.0 > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_not_known() {
        for (seconds, expected) in [
            (0.0, None),
            (-1.0, None),
            (f64::NAN, None),
            (f64::NEG_INFINITY, None),
            (1.5, Some(Nanos(1_500_000_000))),
            (f64::INFINITY, Some(Nanos::MAX)),
        ] {
            assert_eq!(remaining(seconds), expected, "{seconds}");
        }
    }
}
