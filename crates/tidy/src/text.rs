//! Rules about one file: its name, its length, and words that it must not contain.

use crate::Finding;

/// A longer source file has more than one idea.
pub const LINES_MAX: usize = 600;

/// Names that say nothing about what is inside, and so invite anything.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "stuff"];

/// Notes to oneself, spelled so that this file passes its own rule.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("HA", "CK:")];

/// Paths that exist on one machine only, spelled as above.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// What makes a decision depend on anything but its arguments.
const HIDDEN_INPUTS: [&str; 12] = [
    "Instant",
    "SystemTime",
    "std::thread",
    "thread_local!",
    "std::net",
    "std::fs",
    "std::env",
    "rand::rng",
    "rand::random",
    "HashMap",
    "HashSet",
    "tracing",
];

/// The crates whose decisions the server and a simulation must share.
const SANS_IO: [&str; 6] = [
    "crates/allocation/src/",
    "crates/cluster/src/",
    "crates/planning/src/",
    "crates/policy/src/",
    "crates/placement/src/",
    "crates/units/src/",
];

/// Names that the field has other words for (`docs/glossary.md`), in crates whose names have been changed to those: types and
/// modules, not variables, where `told` and `gone` are as good as any.
const OTHER_WORDS: [(&str, &str); 9] = [
    ("Gate", "startup queue"),
    ("gate", "startup queue"),
    ("Guest", "pending connection"),
    ("guest", "pending connection"),
    ("Told", "message, delivery, or table"),
    ("Gone", "reclaim list"),
    ("Departed", "release queue"),
    ("departed", "release queue"),
    ("has_news", "has_changed"),
];
const WITH_THE_FIELDS_WORDS: [&str; 5] =
    ["crates/client/", "crates/planning/", "crates/server/", "crates/store/", "crates/transport/"];

const SOURCES: [&str; 3] = [".rs", ".py", ".sh"];

/// Every rule of this module.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line, what| findings.push(Finding { path: path.to_owned(), line, what });
    if let Some(name) = empty_name(path) {
        report(0, format!("`{name}` says nothing: name the file after its one idea"));
    }
    let is_source = SOURCES.iter().any(|ending| path.ends_with(ending));
    let lines = text.lines().count();
    if is_source && lines > LINES_MAX {
        report(0, format!("{lines} lines, {LINES_MAX} at most: split it by ideas"));
    }
    if path.ends_with(".rs") && path.contains("/src/") && !text.starts_with("//!") {
        report(1, "a module opens with what it is (`//!`)".to_owned());
    }
    if path.ends_with(".rs") {
        for line in doubled_causes(text) {
            report(line, "this message says what the error's source says: leave one of the two out".to_owned());
        }
    }
    for (index, line) in text.lines().enumerate() {
        for word in NOTES.iter().filter(|word| line.contains(**word)) {
            report(index + 1, format!("`{word}`: do it, or leave it to the tracker"));
        }
        for place in MACHINE_PATHS.iter().filter(|place| line.contains(**place)) {
            report(index + 1, format!("`{place}…` is a place on somebody's machine"));
        }
        if path.ends_with(".rs") && WITH_THE_FIELDS_WORDS.iter().any(|dir| path.starts_with(dir)) {
            for (word, instead) in OTHER_WORDS.iter().filter(|(word, _)| names(line, word)) {
                report(index + 1, format!("`{word}`: the field calls it {instead}, and so does the glossary"));
            }
        }
        if SANS_IO.iter().any(|dir| path.starts_with(dir)) {
            for input in HIDDEN_INPUTS.iter().filter(|input| names(line, input)) {
                report(index + 1, format!("`{input}`: time, chance, and order are passed in here"));
            }
        }
    }
    findings
}

/// Lines of messages of errors that say what the error's source says as well: whoever prints both says it twice.
fn doubled_causes(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut message: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("#[error(") {
            message = Some((index + 1, String::new()));
        }
        let Some((begin, so_far)) = &mut message else { continue };
        if so_far.ends_with(")]") {
            // The variant itself, if it has one field without a name.
            if line.contains("#[from]") || line.contains("#[source]") {
                found.extend(so_far.contains("{0").then_some(*begin));
            }
            message = None;
            continue;
        }
        so_far.push_str(line);
        if so_far.ends_with(")]") && so_far.contains(concat!("{", "source")) {
            found.push(*begin);
            message = None;
        }
    }
    found
}

/// The part of a path's last two names that says nothing, if there is one.
fn empty_name(path: &str) -> Option<&str> {
    let words = path.rsplit('/').take(2).flat_map(|name| name.split(['_', '-', '.']));
    words.filter(|word| EMPTY_NAMES.contains(word)).last()
}

/// Whether code in `line` names `input`; comments may.
fn names(line: &str, input: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    code.match_indices(input).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + input.len()..].chars().next();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_word(before) && !is_word(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_cause_is_said_once() {
        let enum_of = |body: &str| format!("//! X.\n#[derive(thiserror::Error)]\nenum E {{\n{body}\n}}\n");
        let bad = [
            ("#[error(\"{0}\")]\nA(#[from] B),", 4),
            ("#[error(\"a\")]\nZ,\n#[error(\n\"so long: {0}\"\n)]\nA(#[source] B),", 6),
            (concat!("#[error(\"a: {", "source}\")]\nA {\nsource: B,\n},"), 4),
        ];
        for (body, line) in bad {
            assert_eq!(doubled_causes(&enum_of(body)), [line], "{body}");
        }
        let good = [
            "#[error(transparent)]\nA(#[from] B),",
            "#[error(\"{0}\")]\nA(B),",
            "#[error(\"a: {error}\")]\nA {\nerror: B,\n},",
            "#[error(\"malformed\")]\nA(#[from] B),",
        ];
        for body in good {
            assert!(doubled_causes(&enum_of(body)).is_empty(), "{body}");
        }
    }

    #[test]
    fn names_that_say_nothing_are_found_in_files_and_directories() {
        for bad in ["crates/a/src/utils.rs", "crates/a/src/file_helper.rs", "crates/common/x.md", "scripts/misc.sh"] {
            assert_eq!(lines(bad, "//! x\n"), [0], "{bad}");
        }
        assert_eq!(lines("crates/a/src/utility_model.rs", "//! x\n"), []);
    }

    #[test]
    fn sources_are_short_and_say_what_they_are() {
        let long = "x\n".repeat(LINES_MAX + 1);
        assert_eq!(lines("docs/long.md", &long), []);
        assert_eq!(lines("tests/long.py", &long), [0]);
        assert_eq!(lines("tests/long.py", &"x\n".repeat(LINES_MAX)), []);
        assert_eq!(lines("crates/a/src/b.rs", "use x;\n"), [1]);
    }

    #[test]
    fn notes_and_machine_paths_are_found_anywhere() {
        let text = format!("a\nb {} c\n{}x\n", NOTES[0], MACHINE_PATHS[1]);
        assert_eq!(lines("docs/a.md", &text), [2, 3]);
    }

    #[test]
    fn what_the_field_has_a_word_for_is_called_by_that() {
        let text = "//! x\nstruct Gate;\n// The gate is a word.\nfn told(gone: Vec<u8>) {}\nmod departed;\nlet x = node.has_news();\n";
        assert_eq!(lines("crates/server/src/a.rs", text), [2, 5, 6]);
        assert_eq!(lines("crates/policy/src/a.rs", text), []);
    }

    #[test]
    fn decisions_have_no_hidden_inputs() {
        let text = "//! x\nuse std::time::Instant;\n// Instant is a word.\nstruct InstantCoffee;\n";
        assert_eq!(lines("crates/policy/src/a.rs", text), [2]);
        assert_eq!(lines("crates/server/src/a.rs", text), []);
    }
}
