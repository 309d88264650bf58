//! Bytes that were exported, and bytes that nobody exported.

use super::*;
use proptest::prelude::*;

/// Bytes with these applications, right or wrong, and a checksum that is right.
fn bytes_of(format: u32, records: u64, entries: &[Entry<'_, Vec<u64>>]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&records.to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        bytes = postcard::to_extend(entry, bytes).unwrap();
    }
    summed(bytes)
}

fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn some() -> SizeHistory {
    let mut history = SizeHistory::default();
    [("ada\0x", 1_000), ("bob\0y", 7), ("ada\0x", 1_010)].iter().for_each(|(name, size)| history.record(name, *size));
    history
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let mut expected = b"ISOSIZES\x01\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0".to_vec();
    // 1,000 was expected to be followed by 1,010, and was: the logarithm of the error is 0.
    expected.extend_from_slice(b"\x05ada\0x\x03\x02\x01\0\0\0\0\0\0\0\0\x02\xe8\x07\xf2\x07");
    expected.extend_from_slice(b"\x05bob\0y\x02\x01\0\x01\x07");
    assert_eq!(some().export(), summed(expected), "other bytes are another format: raise its number");
    let nothing = SizeHistory::default().export();
    assert!(SizeHistory::import(&nothing).unwrap().is_empty());
}

#[test]
fn another_format_is_told_from_damage() {
    for other in [0, HISTORY_FORMAT + 1] {
        assert_eq!(SizeHistory::import(&bytes_of(other, 0, &[])).unwrap_err(), BadHistory::Format(other));
    }
    for foreign in [&b""[..], b"ISOSIZES", b"ISOSIZES\x01\0\0\0", b"something else altogether"] {
        assert_eq!(SizeHistory::import(foreign).unwrap_err(), BadHistory::Foreign, "{foreign:?}");
    }
    assert_eq!(SizeHistory::import(&vec![0; HISTORY_BYTES_MAX + 1]).unwrap_err(), BadHistory::TooLong);
}

#[test]
fn no_changed_bit_and_no_cut_goes_unnoticed() {
    let bytes = some().export();
    assert!(SizeHistory::import(&bytes).is_ok());
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(SizeHistory::import(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(SizeHistory::import(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn values_that_cannot_have_come_about_are_refused() {
    let import = |records, entries: &[_]| SizeHistory::import(&bytes_of(HISTORY_FORMAT, records, entries)).map(|_| ());
    let right: Entry<'_, _> = ("a", 3, 2, Some(0.5), vec![1, 2]);
    assert_eq!(import(3, std::slice::from_ref(&right)), Ok(()));
    let long = "x".repeat(APPLICATION_LEN_MAX + 1);
    let wrong: [(&str, u64, Entry<'_, _>); 9] = [
        ("the name", 3, (&long, 3, 2, None, vec![1, 2])),
        ("the number of sizes", 3, ("a", 3, 2, None, vec![])),
        ("the number of sizes", 99, ("a", 99, 99, None, vec![1; SIZES_KEPT + 1])),
        ("the number of phases", 3, ("a", 3, 1, None, vec![1, 2])),
        ("the number of phases", 3, ("a", 3, 4, None, vec![1, 2])),
        ("the latest phase", 3, ("a", 4, 2, None, vec![1, 2])),
        ("the error", 3, ("a", 3, 2, Some(-0.1), vec![1, 2])),
        ("the error", 3, ("a", 3, 2, Some(f64::NAN), vec![1, 2])),
        ("the error", 3, ("a", 3, 2, Some(f64::INFINITY), vec![1, 2])),
    ];
    for (what, records, entry) in wrong {
        assert_eq!(import(records, &[entry]), Err(BadHistory::OutOfRange { at: 0, what }));
    }
    let twice = [right.clone(), right.clone()];
    assert_eq!(import(3, &twice), Err(BadHistory::OutOfRange { at: 1, what: "the order" }));
    assert!(import(RECORDS_MAX + 1, &[]).is_err(), "there must be a next number");
    // More bytes than its applications have, and fewer.
    let bytes = bytes_of(HISTORY_FORMAT, 3, &[right]);
    let content = &bytes[..bytes.len() - CHECKSUM_LEN];
    assert_eq!(SizeHistory::import(&summed([content, b"x"].concat())).unwrap_err(), BadHistory::Malformed(1));
    let cut = &content[..content.len() - 1];
    assert_eq!(SizeHistory::import(&summed(cut.to_vec())).unwrap_err(), BadHistory::Malformed(0));
}

#[test]
fn of_too_many_applications_those_go_that_were_away_for_longest() {
    let count = APPLICATIONS_KEPT + 2;
    let names: Vec<String> = (0..count).map(|at| format!("{at:08}")).collect();
    // The last by name was the first to end a phase.
    let entry = |(at, name)| -> Entry<'_, Vec<u64>> { (name, (count - at) as u64, 1, None, vec![9]) };
    let entries: Vec<_> = names.iter().map(String::as_str).enumerate().map(entry).collect();
    let history = SizeHistory::import(&bytes_of(HISTORY_FORMAT, count as u64, &entries)).unwrap();
    assert_eq!((history.len(), history.latest.len()), (APPLICATIONS_KEPT, APPLICATIONS_KEPT));
    let is_known = |at: usize| history.expect(&names[at]).is_some();
    assert_eq!([0, count - 3, count - 2, count - 1].map(is_known), [true, true, false, false]);
}

#[test]
fn phases_may_end_between_the_portions_of_an_export() {
    let mut history = SizeHistory::default();
    let names: Vec<String> = (0..2 * PORTION + 1).map(|at| format!("{at:08}")).collect();
    names.iter().for_each(|name| history.record(name, 100));
    let mut export = HistoryExport::default();
    assert!(export.take(&history));
    // Of what is taken already, of what is not, of one that comes before all, and of one that comes after.
    for name in [&names[0], &names[2 * PORTION], "0", "9"] {
        history.record(name, 500);
    }
    assert!(export.take(&history));
    assert!(!export.take(&history));
    assert_eq!(export.records(), history.records());
    let again = SizeHistory::import(&export.finish()).unwrap();
    assert_eq!(again.len(), names.len() + 1);
    let size = |name: &str| again.expect(name).map(|expected| expected.size);
    assert_eq!([&names[0], &names[2 * PORTION], "0", "9"].map(size), [Some(101), Some(505), None, Some(505)]);
}

#[test]
fn a_history_that_is_full_fits() {
    let longest = "x".repeat(APPLICATION_LEN_MAX);
    let entry: Entry<'_, Vec<u64>> = (&longest, RECORDS_MAX, RECORDS_MAX, Some(1.0), vec![u64::MAX; SIZES_KEPT]);
    assert!(postcard::to_stdvec(&entry).unwrap().len() <= ENTRY_LEN_MAX);
    assert!(SizeHistory::import(&bytes_of(HISTORY_FORMAT, RECORDS_MAX, &[entry])).is_ok());
    let mut history = SizeHistory::default();
    history.record(&format!("{longest}x"), 1);
    history.record("short", 1);
    let again = SizeHistory::import(&history.export()).unwrap();
    assert_eq!(again.len(), 1, "a name that is too long is not exported");
}

proptest! {
    #[test]
    fn what_was_imported_goes_on_as_what_was_exported(
        phases in prop::collection::vec((0..5u8, prop_oneof![0..2_000u64, any::<u64>()]), 0..200),
        exported_after in 0..200usize,
    ) {
        let name = |of: u8| format!("user\0{of}");
        let mut history = SizeHistory::default();
        let (before, after) = phases.split_at(exported_after.min(phases.len()));
        before.iter().for_each(|(of, size)| history.record(&name(*of), *size));
        let mut again = SizeHistory::import(&history.export()).unwrap();
        let is_same = |history: &SizeHistory, again: &SizeHistory| {
            history.latest_before(u64::MAX, 9) == again.latest_before(u64::MAX, 9)
                && (0..5).all(|of| history.expect_class(&name(of)) == again.expect_class(&name(of)))
        };
        prop_assert!(is_same(&history, &again));
        for (of, size) in after {
            history.record(&name(*of), *size);
            again.record(&name(*of), *size);
            prop_assert!(is_same(&history, &again));
        }
        prop_assert_eq!(history.export(), again.export());
    }
}
