//! What is to be done with one limit.

/// A limit that may be ours: the values, in bytes a second, of which the kernel has one if nobody else has changed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// One, or two while it is changed from the first to the second.
    pub values: Vec<u64>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// The kernel gets this value.
    Set(u64),
    /// The kernel gets no limit.
    Remove,
    /// It is somebody else's by now: it is not ours to remove.
    LetGo,
}

/// What is to be done with a limit that may be ours (`own`), where the kernel has `found`, if `wanted` is to be set.
pub fn step(own: Option<&Own>, found: Option<u64>, wanted: Option<u64>) -> Step {
    let is_ours = match (own, found) {
        (Some(own), Some(found)) => own.values.contains(&found),
        _ => false,
    };
    match (is_ours, found, wanted) {
        (true, found, wanted) if found == wanted => Step::Leave,
        (true, _, Some(wanted)) | (false, None, Some(wanted)) => Step::Set(wanted),
        (true, _, None) => Step::Remove,
        (false, _, _) if own.is_some() => Step::LetGo,
        (false, ..) => Step::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_case_has_its_step() {
        let own = Own { values: vec![5, 7] };
        for (own, found, wanted, expected) in [
            (None, None, None, Step::Leave),
            (None, None, Some(9), Step::Set(9)),
            (None, Some(3), Some(9), Step::Leave),
            (None, Some(3), None, Step::Leave),
            (Some(&own), Some(5), Some(5), Step::Leave),
            (Some(&own), Some(5), Some(9), Step::Set(9)),
            (Some(&own), Some(7), None, Step::Remove),
            (Some(&own), Some(3), Some(9), Step::LetGo),
            (Some(&own), Some(3), None, Step::LetGo),
            (Some(&own), None, None, Step::LetGo),
            (Some(&own), None, Some(9), Step::Set(9)),
        ] {
            assert_eq!(step(own, found, wanted), expected, "{own:?} {found:?} {wanted:?}");
        }
    }

    proptest! {
        /// Whatever is wanted one after the other, and whatever somebody else writes meanwhile: what he wrote last stays unless it was
        /// nothing, and what we wrote goes when nothing is wanted any more.
        #[test]
        fn what_others_set_stays_and_what_is_ours_goes(
            steps in proptest::collection::vec((proptest::option::of(10..13_u64), proptest::option::of(proptest::option::of(1..4_u64))), 0..12),
        ) {
            let (mut found, mut own, mut of_others): (Option<u64>, Option<Own>, Option<u64>) = (None, None, None);
            for (wanted, other) in steps.into_iter().chain([(None, None)]) {
                if let Some(other) = other {
                    (found, of_others) = (other, other);
                }
                match step(own.as_ref(), found, wanted) {
                    Step::Leave => {}
                    Step::Set(value) => (found, own) = (Some(value), Some(Own { values: vec![value] })),
                    Step::Remove => (found, own) = (None, None),
                    Step::LetGo => own = None,
                }
                if of_others.is_some() {
                    prop_assert_eq!(found, of_others);
                } else {
                    prop_assert!(found.is_none() || found == wanted);
                }
            }
            prop_assert_eq!(found, of_others);
        }
    }
}
