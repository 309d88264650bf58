//! Journals of the database: whole batches are read, however a disk or a user's values look; where they stop to make sense
//! is found, and what is before that stays the same without the rest.

#![no_main]

use isonomia_store::journal::{Part, parse};
use libfuzzer_sys::fuzz_target;

/// Items of each batch, with the key and the value cut from the bytes; changes of bytes; what stands at the end.
type Input<'b> = (Vec<Vec<(&'b [u8], &'b [u8])>>, Vec<(u16, u8)>, &'b [u8]);

fuzz_target!(|input: Input<'_>| {
    let (batches, changes, tail) = input;
    let mut bytes: Vec<u8> = (0..).zip(&batches).flat_map(|(number, items)| batch(number, items)).collect();
    let whole = bytes.len();
    let mut seen = Vec::new();
    let found = parse(&bytes, &mut |part, key, value| seen.push((part, key.to_vec(), value.to_vec())));
    assert_eq!(found, (whole, None));
    let expected = batches.iter().flatten().map(|(key, value)| (Part::Whole, key.to_vec(), value.to_vec()));
    assert!(expected.eq(seen));
    for (at, value) in changes {
        let at = usize::from(at);
        if at < whole {
            bytes[at] = value;
        }
    }
    bytes.extend(tail);
    let (end, resumes_at) = parse(&bytes, &mut |_, _, _| ());
    assert!(end <= bytes.len() && resumes_at.is_none_or(|at| at > end && at < bytes.len()));
    assert_eq!(parse(&bytes[..end], &mut |_, _, _| ()), (end, None));
});

/// A batch as the database writes it.
fn batch(number: u64, items: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in items {
        body.extend([2, 0, 0]);
        body.extend([0; 8]);
        body.extend((key.len() as u16).to_le_bytes());
        for _ in 0..2 {
            body.extend((value.len() as u32).to_le_bytes());
        }
        body.extend(*key);
        body.extend(*value);
    }
    let sum = twox_hash::XxHash3_64::oneshot(&body).to_le_bytes();
    [&[1][..], &(items.len() as u32).to_le_bytes(), &number.to_le_bytes(), &body, &[3], &sum, b"FJL\x03"].concat()
}
