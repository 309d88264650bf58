//! Histories of sizes of phases as they are kept: read, or refused; whatever was read foretells, goes on, and is kept as it is.

#![no_main]

use isonomia_policy::{APPLICATIONS_KEPT, HISTORY_FORMAT, SizeHistory};
use libfuzzer_sys::fuzz_target;
use twox_hash::XxHash3_64;

fuzz_target!(|input: (&[u8], bool, Vec<(u8, u64)>)| {
    let (content, is_summed, phases) = input;
    let mut bytes = content.to_vec();
    if is_summed {
        bytes = [b"ISOSIZES", &HISTORY_FORMAT.to_le_bytes()[..], content].concat();
        bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
    }
    let mut history = SizeHistory::import(&bytes).unwrap_or_default();
    for (of, size) in phases {
        history.record(&of.to_string(), size);
    }
    assert!(history.len() <= APPLICATIONS_KEPT);
    let known = history.latest_before(u64::MAX, APPLICATIONS_KEPT);
    assert_eq!(known.len(), history.len());
    for known in &known {
        let expected = known.expected;
        assert!(expected.error.is_none_or(|error| error.is_finite() && error >= 1.0));
        assert_eq!(history.expect(&known.application), Some(expected));
        assert!(history.expect_class(&known.application).is_some_and(|class| class <= expected.size));
    }
    let kept = history.export();
    let again = SizeHistory::import(&kept).expect("what was exported is read");
    assert_eq!(again.latest_before(u64::MAX, APPLICATIONS_KEPT), known);
    assert_eq!(again.export(), kept);
});
