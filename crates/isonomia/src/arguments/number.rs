//! Whole numbers on the command line.

use std::ops::RangeInclusive;

/// Reads a whole number of this range; whatever else is given is refused with what is allowed.
pub fn number<T: TryFrom<u64> + 'static>(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            format!("not such a number (allowed: whole numbers from {} to {})", allowed.start(), allowed.end())
        })
    }
}

/// The same of any number that fits in 32 bits, but for those below `least`.
pub fn number_from(least: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    number(u64::from(least)..=u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_the_range_is_refused_with_what_is_allowed() {
        let targets = number::<u16>(1..=256);
        assert_eq!(["1", "256"].map(&targets), [Ok(1), Ok(256)]);
        for text in ["four", "", "0", "257", "-1", "1.5", "0x10", "99999999999999999999"] {
            assert_eq!(
                targets(text).unwrap_err(),
                "not such a number (allowed: whole numbers from 1 to 256)",
                "{text}"
            );
        }
        assert_eq!(number_from(1)("4294967295"), Ok(u32::MAX));
        assert!(number_from(1)("4294967296").unwrap_err().ends_with("from 1 to 4294967295)"));
    }
}
