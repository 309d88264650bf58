//! Descriptors of this library's own, which programs that close or replace descriptors by number must not touch.
//!
//! To programs they are closed: closing one gives EBADF, and a range is closed around them.

use crate::{cwd, library};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint};

/// Numbers below this are looked at one by one for what the client library keeps; it parks nothing above.
const PARKED_BELOW: c_uint = 65_536;

/// EBADF for a descriptor of this library's.
#[inline]
pub fn guard(fd: c_int) -> Result<(), Errno> {
    if is_kept(fd) || library::owns_descriptor(fd) { Err(Errno::BADF) } else { Ok(()) }
}

fn is_kept(fd: c_int) -> bool {
    isonomia_client::owns_descriptor(fd) || cwd::descriptor() == Some(fd)
}

/// The ranges from `first` to `last` that contain none of them. O(65,536) once, for a call that programs make rarely.
pub fn around(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
    let is_kept = |fd: &c_uint| c_int::try_from(*fd).is_ok_and(is_kept);
    let libraries = library::descriptors().into_iter().filter_map(|fd| c_uint::try_from(fd).ok());
    split(first, last, (first..=last.min(PARKED_BELOW)).filter(is_kept).chain(libraries).collect())
}

fn split(mut first: c_uint, last: c_uint, mut kept: Vec<c_uint>) -> Vec<(c_uint, c_uint)> {
    kept.retain(|fd| (first..=last).contains(fd));
    kept.sort_unstable();
    let mut ranges = Vec::with_capacity(kept.len() + 1);
    for kept in kept {
        if kept > first {
            ranges.push((first, kept - 1));
        }
        first = kept + 1;
    }
    if first <= last {
        ranges.push((first, last));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn ranges_leave_out_what_is_kept() {
        assert_eq!(split(3, 9, vec![]), [(3, 9)]);
        assert_eq!(split(3, 9, vec![5, 20, 1]), [(3, 4), (6, 9)]);
        assert_eq!(split(3, 9, vec![9, 3, 4]), [(5, 8)]);
        assert_eq!(split(3, 3, vec![3]), []);
        assert_eq!(split(9, 3, vec![5]), []);
    }
}
