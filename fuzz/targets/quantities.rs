//! Quantities with units, and addresses: what parses prints as a text that parses to the same, to three digits.

#![no_main]

use isonomia_transport::address::Address;
use isonomia_units::{Bytes, Nanos, Rate};
use libfuzzer_sys::fuzz_target;

/// Beyond this the nearest text of three digits may be too large for the type.
const NUMBER_MAX: u64 = 1 << 60;

fuzz_target!(|text: &str| {
    if let Ok(Bytes(number)) = text.parse() {
        expect_near(number, |number| Bytes(number).to_string().parse().map(|Bytes(n)| n).ok());
    }
    if let Ok(Nanos(number)) = text.parse() {
        expect_near(number, |number| Nanos(number).to_string().parse().map(|Nanos(n)| n).ok());
    }
    if let Ok(rate) = text.parse::<Rate>() {
        expect_near(rate.bytes_per_s(), |_| rate.to_string().parse().map(Rate::bytes_per_s).ok());
    }
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});

fn expect_near(number: u64, printed_and_read: impl Fn(u64) -> Option<u64>) {
    if number > NUMBER_MAX {
        return;
    }
    let again = printed_and_read(number).expect("what is printed parses");
    assert!(again.abs_diff(number) <= number / 100 + 1, "{number} came back as {again}");
}
