//! Circles of modules: modules of one crate that use each other, directly or by way of others.
//!
//! Whoever reads a module of a circle has to read all of it. What counts is whose names a module uses in its code, by paths from
//! `crate`, `super` or `self` or through its own children; where a name is only handed on (`pub use`), whose it is in the
//! end. Tests do not count, nor does the crate's root, which names all its modules. A method that is called says nothing of
//! where it is defined, so it is not seen: what a module imports is.

use crate::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// Modules in one circle at most, of each crate that is looked at.
const MODULES_MAX: [(&str, usize); 4] = [("client", 7), ("server", 2), ("store", 4), ("transport", 1)];

/// Checks the modules of all crates among `texts`, paths of files with what is in them.
pub fn check(texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, most) in MODULES_MAX {
        let dir = format!("crates/{name}/src/");
        let files = texts.iter().filter_map(|(path, text)| Some((module_of(path.strip_prefix(&dir)?)?, code_of(text))));
        for circle in circles(&without_tests(files.collect())) {
            if circle.len() > most {
                let what = format!(
                    "{} modules use each other in a circle, {most} at most: move what one of them takes from another to \
                     where it belongs: {}",
                    circle.len(),
                    circle.join(", ")
                );
                findings.push(Finding { path: dir.clone(), line: 0, what });
            }
        }
    }
    findings
}

/// The path of a module by its file's below `src`; nothing for tests and what is not Rust. The root's is empty.
fn module_of(file: &str) -> Option<Vec<String>> {
    let path = file.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    match parts.last().map(String::as_str) {
        Some("tests") => None,
        Some("lib" | "main") if parts.len() == 1 => Some(Vec::new()),
        _ => Some(parts),
    }
}

/// What is in a file without comments, texts, and tests at its end.
fn code_of(text: &str) -> String {
    // Some are seen by tests of other modules, too.
    let is_tests = |begin: &&str| ["mod tests {", "pub(super) mod tests {"].iter().any(|mark| begin.starts_with(mark));
    let mark = "\n#[cfg(test)]\n";
    let end = text.match_indices(mark).map(|(at, _)| at).find(|at| is_tests(&&text[at + mark.len()..]));
    let text = &text[..end.unwrap_or(text.len())];
    let mut code = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '"' => {
                while let Some(inside) = chars.next() {
                    match inside {
                        '\\' => _ = chars.next(),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            // The character `"`, which begins no text.
            '\'' if chars.peek() == Some(&'"') => _ = chars.next(),
            c => code.push(c),
        }
    }
    code
}

type Path = Vec<String>;

/// Without modules that are there for tests alone.
fn without_tests(mut files: BTreeMap<Path, String>) -> BTreeMap<Path, String> {
    let mut of_tests = Vec::new();
    for (module, code) in &files {
        for after in code.split("#[cfg(test)]").skip(1) {
            let declared = after.trim_start().split(';').next().and_then(|line| line.rsplit_once("mod "));
            if let Some((_, name)) = declared.filter(|(before, _)| before.is_empty() || before.starts_with("pub")) {
                of_tests.push([module.clone(), vec![name.to_owned()]].concat());
            }
        }
    }
    of_tests.iter().for_each(|module| _ = files.remove(module));
    files
}

/// Every circle of more than one module, the largest first.
fn circles(files: &BTreeMap<Path, String>) -> Vec<Vec<String>> {
    let handed_on = handed_on(files);
    let mut uses: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for (module, code) in files {
        for path in paths_in(code, module, files) {
            let (mut used, rest) = owner_of(&path, files);
            if let Some(name) = rest.first()
                && let Some(whose) = handed_on.get(&(used.clone(), name.clone()))
            {
                used = whose;
            }
            if !used.is_empty() && !module.is_empty() && used != module {
                uses.entry(module).or_default().insert(used);
            }
        }
    }
    let reached: BTreeMap<&Path, BTreeSet<&Path>> =
        uses.keys().map(|from| (*from, reached_from(from, &uses))).collect();
    let mut left: BTreeSet<&Path> = uses.keys().copied().collect();
    let mut circles = Vec::new();
    while let Some(first) = left.pop_first() {
        let is_mutual = |other: &&&Path| reached[first].contains(**other) && reached[**other].contains(first);
        let others: Vec<&Path> = left.iter().filter(is_mutual).copied().collect();
        if !others.is_empty() {
            others.iter().for_each(|other| _ = left.remove(other));
            circles.push(std::iter::once(first).chain(others).map(|module| module.join("::")).collect::<Vec<_>>());
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reached_from<'a>(from: &'a Path, uses: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> BTreeSet<&'a Path> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(next) = left.pop() {
        for used in uses.get(next).into_iter().flatten() {
            if reached.insert(*used) {
                left.push(used);
            }
        }
    }
    reached
}

/// Which module a path leads to, and what is left of it.
fn owner_of<'a, 'p>(path: &'p [String], files: &'a BTreeMap<Path, String>) -> (&'a Path, &'p [String]) {
    let longest = (0..=path.len()).rev().find_map(|len| Some((files.get_key_value(&path[..len])?.0, &path[len..])));
    longest.expect("every crate has a root")
}

/// Whose the names are that modules hand on.
fn handed_on(files: &BTreeMap<Path, String>) -> BTreeMap<(Path, String), &Path> {
    let mut found = BTreeMap::new();
    for (module, code) in files {
        for line in code.split(';') {
            let Some((before, tail)) = line.rsplit_once("use ") else { continue };
            if !before.trim_end().ends_with("pub") && !before.trim_end().ends_with(')') {
                continue;
            }
            for path in tree(tail.trim_start(), &[]) {
                let path = absolute(path, module);
                if let Some(name) = path.last() {
                    found.insert((module.clone(), name.clone()), owner_of(&path, files).0);
                }
            }
        }
    }
    found
}

/// All paths in `code` that lead into its crate.
fn paths_in(code: &str, module: &Path, files: &BTreeMap<Path, String>) -> Vec<Path> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let start = code[..at].rfind(|c: char| !is_of_word(c)).map_or(0, |before| before + 1);
        let first = &code[start..at];
        let is_inner = code[..start].ends_with(':');
        let is_child = || files.contains_key(&[module.clone(), vec![first.to_owned()]].concat());
        if is_inner || first.is_empty() || !(matches!(first, "crate" | "super" | "self") || is_child()) {
            continue;
        }
        let tail = code[start..].split(';').next().unwrap_or("");
        found.extend(tree(tail, &[]).into_iter().map(|path| absolute(path, module)));
    }
    found
}

/// A path from the crate's root.
fn absolute(path: Path, module: &Path) -> Path {
    let mut base = module.clone();
    let mut rest = path.as_slice();
    if rest.first().is_some_and(|first| first == "crate") {
        return rest[1..].to_vec();
    }
    while let Some(first) = rest.first() {
        match first.as_str() {
            "super" => _ = base.pop(),
            "self" => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    base
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths that `text` begins with: one, or several in braces.
fn tree(text: &str, before: &[String]) -> Vec<Path> {
    let len = text.find(|c| !is_of_word(c)).unwrap_or(text.len());
    let mut path = before.to_vec();
    if len > 0 && &text[..len] != "self" || path.is_empty() {
        path.push(text[..len].to_owned());
    }
    let rest = text[len..].trim_start();
    let Some(rest) = rest.strip_prefix("::") else { return vec![path] };
    let Some(inside) = rest.trim_start().strip_prefix('{') else { return tree(rest.trim_start(), &path) };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let part = inside[start..at].trim();
                if !part.is_empty() {
                    found.extend(tree(part, &path));
                }
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        circles(&without_tests(
            files.iter().filter_map(|(file, text)| Some((module_of(file)?, code_of(text)))).collect(),
        ))
    }

    #[test]
    fn modules_that_use_each_other_are_found_however_that_is_written() {
        let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n");
        let ab = [("a.rs", "use crate::{b::{B, self}, c};\n"), ("b.rs", "fn f() -> crate::a::A { todo() }\n")];
        assert_eq!(circles_of(&[lib, ab[0], ab[1], ("c.rs", "")]), [["a", "b"]]);
        let by_super = [("a.rs", "use super::b::B;\n"), ("b.rs", "use super::c::C;\n"), ("c.rs", "use super::a::A;\n")];
        assert_eq!(circles_of(&[lib, by_super[0], by_super[1], by_super[2]]), [["a", "b", "c"]]);
        let child = [("a.rs", "mod d;\nfn f() { d::g() }\n"), ("a/d.rs", "use super::A;\n")];
        assert_eq!(circles_of(&[lib, child[0], child[1]]), [["a", "a::d"]]);
    }

    #[test]
    fn comments_texts_tests_and_the_root_are_in_no_circle() {
        let lib = ("lib.rs", "mod a;\nmod b;\nuse a::A;\n");
        let a =
            ("a.rs", "use crate::b::B;\n// crate::a\nconst T: &str = \"crate::b\";\n#[cfg(test)]\nmod simulated;\n");
        let simulated = ("a/simulated.rs", "use super::B;\n");
        for b in [
            "//! [`crate::a::A`]\n",
            "const T: &str = \"use crate::a::A;\";\n",
            "use crate::Unknown;\n",
            "struct S;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            "#[cfg(test)]\nmod fixture;\n#[cfg(test)]\npub(super) mod tests {\n    use crate::a::A;\n}\n",
        ] {
            assert_eq!(
                circles_of(&[lib, a, simulated, ("b.rs", b), ("b/tests.rs", "use crate::a::A;\n")]),
                [[""; 0]; 0],
                "{b}"
            );
        }
    }

    #[test]
    fn a_name_that_is_handed_on_is_whose_it_is() {
        let files = |user| {
            [("lib.rs", ""), ("a.rs", "mod d;\npub use d::{D, E};\nuse crate::b::B;\n"), ("a/d.rs", ""), ("b.rs", user)]
        };
        assert_eq!(circles_of(&files("use crate::a::D;\n")), [[""; 0]; 0]);
        assert_eq!(circles_of(&files("use crate::a::F;\n")), [["a", "b"]]);
    }

    #[test]
    fn a_circle_that_is_too_large_is_reported() {
        let file = |name: &str, text: &str| (format!("crates/server/src/{name}.rs"), text.to_owned());
        let ring = [
            file("lib", ""),
            file("a", "use crate::b::B;"),
            file("b", "use crate::c::C;"),
            file("c", "use crate::a::A;"),
        ];
        assert_eq!(check(&ring).len(), 1);
        assert_eq!(check(&ring[..3]), []);
    }
}
