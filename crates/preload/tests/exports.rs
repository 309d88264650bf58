//! Every function of the C library is classified: `docs/reference/calls.md` names those that take a path or a descriptor
//! and says what becomes of them, `without_files.txt` names all others, and the client exports what the page calls served
//! or refused, no less and no more.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, ReadCache};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

type Names = BTreeSet<String>;

/// The functions of the client's own: what other libraries tell it of files, and programs of their phases.
const OWN: [&str; 4] = ["isonomia_hint", "isonomia_serves", "isonomia_phase_begin", "isonomia_phase_end"];

/// The functions that a shared object exports. Those of glibc's private version are for its own libraries only.
fn exported(path: &Path) -> Names {
    let data = ReadCache::new(std::fs::File::open(path).unwrap());
    let header = FileHeader64::<Endianness>::parse(&data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &data).unwrap();
    let symbols = sections.symbols(endian, &data, object::elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, &data).unwrap();
    let mut names = Names::new();
    for (index, symbol) in symbols.enumerate() {
        let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
        if symbol.is_undefined(endian) || !is_function {
            continue;
        }
        let version = versions.as_ref().and_then(|table| {
            let index = table.version_index(endian, index);
            table.version(index.into()).ok()?.map(|version| version.name().to_vec())
        });
        if version.is_none_or(|version| version != b"GLIBC_PRIVATE") {
            names.insert(String::from_utf8(symbol.name(endian, symbols.strings()).unwrap().to_vec()).unwrap());
        }
    }
    names
}

/// The C library that this very program runs with.
fn c_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    PathBuf::from(paths.find(|path| path.ends_with("/libc.so.6")).expect("a C library is mapped"))
}

/// The names in the second column of a section's table.
fn section(page: &str, title: &str) -> Names {
    let rest = page.split_once(&format!("\n## {title}\n")).expect("the section").1;
    let table = rest.split("\n## ").next().unwrap_or(rest);
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn list(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(" ")
}

fn expect_none<'a>(what: &str, names: impl Iterator<Item = &'a String>) {
    let names = list(names);
    assert!(names.is_empty(), "{what}: {names}");
}

#[test]
fn every_function_is_classified_and_what_is_promised_is_exported() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(crate_dir.join("../../docs/reference/calls.md")).unwrap();
    let [served, refused, passed] = ["Served", "Refused", "Passed through"].map(|title| section(&page, title));
    let without = std::fs::read_to_string(crate_dir.join("tests/without_files.txt")).unwrap();
    let without: Names = without.lines().skip(1).flat_map(str::split_whitespace).map(str::to_owned).collect();
    let sets = [&served, &refused, &passed, &without];
    for (index, set) in sets.iter().enumerate() {
        assert!(!set.is_empty());
        for other in &sets[index + 1..] {
            expect_none("classified twice", set.intersection(other));
        }
    }
    let classified: Names = sets.into_iter().flatten().cloned().collect();
    let library = exported(&c_library());
    assert!(library.contains("openat") && library.contains("fts_read"), "the C library's functions are seen");
    expect_none("not classified: docs/reference/calls.md or without_files.txt", library.difference(&classified));

    let client = exported(&isonomia_testbed::library());
    let promised: Names = served.union(&refused).cloned().collect();
    expect_none("promised, but not exported by the client", promised.difference(&client));
    let is_rusts = |name: &&String| name.starts_with("_R") || name.starts_with("_ZN") || name.starts_with("rust_");
    expect_none(
        "exported by the client, but not on the page",
        client.difference(&promised).filter(|name| !is_rusts(name) && !OWN.contains(&name.as_str())),
    );
}
