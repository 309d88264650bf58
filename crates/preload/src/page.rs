//! The page `docs/reference/calls.md`, made from the table of [`crate::calls`], and what applies to its rows.

use crate::calls::TABLE;
use std::ffi::{CString, c_void};

/// A row of a function with a hook.
pub struct Row {
    pub names: &'static [&'static str],
    /// The function that does the call, or the errno with which it fails.
    pub what: &'static str,
}

impl Row {
    /// The errno of a row that is refused on every descriptor.
    fn errno(&self) -> Option<&str> {
        (!self.what.contains(':')).then_some(self.what)
    }
}

/// Rows that go together on the page.
pub struct Family {
    pub title: &'static str,
    pub rows: &'static [Row],
}

pub struct Table {
    pub served: &'static [Family],
    pub refused: &'static [Family],
    /// Why, and which.
    pub passed: &'static [(&'static str, &'static [&'static str])],
}

const INTRODUCTION: &str = "\
# Functions of the C library that take a path or a descriptor

What the preload client does with each of them. The page is made from `crates/preload/src/calls.rs`, which has their
signatures as well, and a test compares it with what the C library and the client export: a function that glibc gains and
this page does not have fails it. What *served* means for each family, with all limits, is in
[What programs can rely on](../SEMANTICS.md). Every other function of glibc takes neither a path nor a descriptor; streams
(`FILE *`) and directory streams count as neither, because all of them go through the functions here.
";

const REFUSED: &str = "\
With the errno that a regular file gives, or that makes programs take another way. Other descriptors and paths pass through.

";

fn section(
    title: &str,
    text: &str,
    column: &str,
    lines: impl Iterator<Item = (&'static str, Vec<&'static str>)>,
) -> String {
    let mut section = format!("\n## {title}\n\n{text}| {column} | functions |\n|---|---|\n");
    for (title, names) in lines {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        section += &format!("| {title} | {names} |\n");
    }
    section
}

fn page() -> String {
    let lines = |families: &'static [Family]| {
        families.iter().map(|family| (family.title, family.rows.iter().flat_map(|row| row.names).copied().collect()))
    };
    INTRODUCTION.to_owned()
        + &section("Served", "", "family", lines(TABLE.served))
        + &section("Refused", REFUSED, "errno", lines(TABLE.refused))
        + &section("Passed through", "", "why", TABLE.passed.iter().map(|(why, names)| (*why, names.to_vec())))
}

/// `UPDATE_REFERENCE=1 cargo test -p isonomia-preload` writes the page anew.
#[test]
fn the_reference_page_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/calls.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), page());
}

#[test]
fn refusals_say_their_errno() {
    for family in TABLE.refused {
        for errno in family.rows.iter().filter_map(Row::errno) {
            assert!(family.title.starts_with(&format!("E{errno}")), "{errno} under {}", family.title);
        }
    }
    let served = TABLE.served.iter().flat_map(|family| family.rows);
    assert_eq!(served.filter_map(Row::errno).next(), None, "a call that always fails is not served");
}

/// The names of a row go on to the real function of the first. (The C library tells of `llseek` only to programs that
/// were linked against an older one.)
#[test]
fn the_names_of_a_row_are_one_function() {
    let address = |name: &str| -> *const c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is NUL-terminated.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    };
    let mut compared = 0;
    for row in TABLE.served.iter().chain(TABLE.refused).flat_map(|family| family.rows) {
        let (first, others) = row.names.split_first().unwrap();
        for other in others.iter().filter(|other| **other != "llseek") {
            assert_eq!(address(other), address(first), "{other} and {first}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}
