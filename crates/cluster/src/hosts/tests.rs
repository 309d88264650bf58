//! Host lists: worked examples, refusals, and any text.

use super::*;
use proptest::prelude::*;

fn expanded(text: &str) -> String {
    expand(text).unwrap().join(" ")
}

#[test]
fn lists_are_read_as_slurm_reads_them() {
    for (text, names) in [
        ("", ""),
        ("io1", "io1"),
        ("a,b,,c,", "a b c"),
        ("a, b\tc\nd", "a b c d"),
        ("io[01-03]", "io01 io02 io03"),
        ("io[1-03]", "io1 io2 io3"),
        ("io[9-11]", "io9 io10 io11"),
        ("io[09-11]", "io09 io10 io11"),
        ("io[099-101]", "io099 io100 io101"),
        ("io[1,3,5-6],login", "io1 io3 io5 io6 login"),
        ("io[2,1,1]", "io2 io1 io1"),
        ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
        ("[1-3]", "1 2 3"),
        ("io[1-2][3-4]", "io13 io14 io23 io24"),
        ("io[00-1]", "io00 io01"),
        ("io[7]-ib.cluster", "io7-ib.cluster"),
    ] {
        assert_eq!(expanded(text), names, "{text}");
    }
}

#[test]
fn the_rest_is_refused_with_the_reason() {
    let long = format!("{}[1-2]", "x".repeat(HOST_LEN_MAX));
    for (text, reason) in [
        ("io[3-1]", "backwards"),
        ("io[]", "neither a number"),
        ("io[1,,2]", "neither a number"),
        ("io[1-]", "neither a number"),
        ("io[-1]", "neither a number"),
        ("io[a-b]", "neither a number"),
        ("io[ 1-2]", "neither a number"),
        ("io[1-2-3]", "neither a number"),
        ("io[+1-2]", "neither a number"),
        ("io[1-1234567890123456789]", "18 digits"),
        ("io[1-2", "never closed"),
        ("io1-2]", "not opened"),
        ("io[[1-2]]", "within another"),
        (&long, "256 bytes"),
    ] {
        let error = expand(text).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("allowed: names such as"), "{text}: {error}");
        assert!(error.len() < 400, "{error}");
    }
}

#[test]
fn the_number_of_names_is_bounded_before_they_are_made() {
    assert_eq!(expand("io[1-65535]").unwrap().len(), HOSTS_MAX);
    let deep = "[0-999999999999999999]".repeat(40);
    for text in ["io[0-65535]", "a[1-256]b[1-256]", "io[1-65535],x", "io[0-999999999999999999]", &deep] {
        let error = expand(text).unwrap_err().to_string();
        assert!(error.contains("more than 65535 names"), "{error}");
    }
}

#[test]
fn neighbours_are_joined() {
    for (names, text) in [
        ("", ""),
        ("login", "login"),
        ("io01 io02 io03", "io[01-03]"),
        ("io9 io10 io11", "io[9-11]"),
        ("io1 io3 io4 x io5", "io[1,3-4],x,io5"),
        ("io09 io10 io100", "io[09-10,100]"),
        ("io1 io01", "io[1,01]"),
        ("io3 io2", "io[3,2]"),
        ("n1-ib n2-ib", "n[1-2]-ib"),
        ("1 2", "[1-2]"),
    ] {
        assert_eq!(compress(names.split_whitespace()), text);
    }
}

/// Lists as people write them, and as they do not.
fn any_list() -> impl Strategy<Value = String> {
    let range = (0u32..120, 0u32..4, 1usize..4).prop_map(|(first, more, width)| {
        let last = first + more;
        if more == 0 { format!("{first:0width$}") } else { format!("{first:0width$}-{last:0width$}") }
    });
    let numbers = prop::collection::vec(range, 1..4).prop_map(|ranges| format!("[{}]", ranges.join(",")));
    let item = (prop::collection::vec(("[a-z.-]{1,3}[0-9]{0,3}", numbers), 0..3), "[a-z0-9_.-]{1,4}").prop_map(
        |(pieces, end)| pieces.iter().map(|(text, numbers)| format!("{text}{numbers}")).collect::<String>() + &end,
    );
    prop::collection::vec(item, 0..4).prop_map(|items| items.join(","))
}

proptest! {
    #[test]
    fn what_is_compressed_expands_to_the_same(text in any_list()) {
        let names = expand(&text).unwrap();
        let short = compress(names.iter().map(String::as_str));
        prop_assert_eq!(expand(&short).unwrap(), names, "by {}", short);
    }

    #[test]
    fn any_names_survive(names in prop::collection::vec("[^\\[\\], \t\r\n]{1,12}|(io|io0|r1n|é)[0-9]{1,20}", 0..20)) {
        let short = compress(names.iter().map(String::as_str));
        prop_assert_eq!(expand(&short).unwrap(), names, "by {}", short);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-c0-9\\[\\],\\- é]{0,40}|\\PC{0,60}") {
        if let Ok(names) = expand(&text) {
            prop_assert!(names.len() <= HOSTS_MAX);
            prop_assert!(names.iter().all(|name| name.len() <= HOST_LEN_MAX));
        }
    }
}
