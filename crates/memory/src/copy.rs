//! Copying to and from memory that another process may change meanwhile.
//!
//! By an instruction that the compiler does not see into, or, where there is none, with one volatile access for each
//! word. 256 KiB take 2 to 3 µs by the instruction, as long as `memcpy` does, and 5 µs by words; writing them to a file
//! in memory takes 20 µs.

#[cfg(any(test, not(target_arch = "x86_64")))]
const WORD_LEN: usize = size_of::<u64>();

/// Copies `count` bytes without telling the compiler what is read or written: to it this is what another process does.
///
/// # Safety
/// `from` may be read and `to` written, and the two do not overlap.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy_unseen(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's promise; the direction flag is clear, as it always is between calls.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The same on other processors.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn copy_unseen(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_words(from, to, count) }
}

/// Copies word by word, and byte by byte where the two sides are not aligned alike.
///
/// # Safety
/// As for [`copy_unseen`].
#[cfg(any(test, not(target_arch = "x86_64")))]
unsafe fn copy_words(from: *const u8, to: *mut u8, count: usize) {
    let lead = (WORD_LEN - from.addr() % WORD_LEN) % WORD_LEN;
    let is_alike = from.addr() % WORD_LEN == to.addr() % WORD_LEN;
    let (lead, words) = match is_alike {
        true if lead < count => (lead, (count - lead) / WORD_LEN),
        _ => (count, 0),
    };
    let bytes = |range: std::ops::Range<usize>| {
        // SAFETY: within `count` bytes of both sides.
        range.for_each(|at| unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) });
    };
    bytes(0..lead);
    for word in 0..words {
        let at = lead + word * WORD_LEN;
        // SAFETY: within `count` bytes of both sides, and aligned on both.
        unsafe { to.add(at).cast::<u64>().write_volatile(from.add(at).cast::<u64>().read_volatile()) };
    }
    bytes(lead + words * WORD_LEN..count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_copy_all_and_no_more(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            from_skip in 0usize..9,
            to_skip in 0usize..9,
        ) {
            let from_skip = from_skip.min(bytes.len());
            let count = bytes.len() - from_skip;
            for copy in [copy_unseen, copy_words] {
                let mut to = vec![0xa5; count + 20];
                // SAFETY: `count` bytes are there on both sides, which are two vectors.
                unsafe { copy(bytes.as_ptr().add(from_skip), to.as_mut_ptr().add(to_skip), count) };
                prop_assert_eq!(&to[to_skip..to_skip + count], &bytes[from_skip..]);
                prop_assert!(to[..to_skip].iter().chain(&to[to_skip + count..]).all(|byte| *byte == 0xa5));
            }
        }
    }
}
