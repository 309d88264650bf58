//! Every rule on every file of the repository.

use isonomia_tidy::{Finding, circles, layers, links, text, tree};

fn expect_none(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn files_keep_to_the_style() {
    let texts = tree::texts(&tree::root()).unwrap();
    assert!(texts.iter().any(|(path, _)| path == "crates/tidy/tests/repository.rs"), "the files are looked at");
    expect_none(texts.iter().flat_map(|(path, content)| text::check(path, content)).collect());
}

#[test]
fn no_more_modules_use_each_other_in_circles() {
    expect_none(circles::check(&tree::texts(&tree::root()).unwrap()));
}

#[test]
fn links_lead_somewhere() {
    let root = tree::root();
    let texts = tree::texts(&root).unwrap();
    expect_none(texts.iter().flat_map(|(path, content)| links::check(&root, path, content)).collect());
}

#[test]
fn dependencies_point_down() {
    let mut findings = Vec::new();
    for entry in tree::root().join("crates").read_dir().unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        if let Ok(manifest) = std::fs::read_to_string(dir.join("Cargo.toml")) {
            findings.extend(layers::check(&name, &manifest));
        }
    }
    expect_none(findings);
}
