//! The files of the repository.

use std::io;
use std::path::{Path, PathBuf};

/// What is written by people lies here; the rest is made by programs.
const ROOTS: [&str; 12] = [
    "crates",
    "docs",
    "examples",
    "fuzz",
    "python",
    "scripts",
    "tests",
    ".ci",
    "pyproject.toml",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
];
const GENERATED: [&str; 5] = ["target", "corpus", "artifacts", "out", "__pycache__"];

/// The repository that this crate is part of.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file below `root`, relative to it and in order, with its content.
pub fn texts(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    let mut left: Vec<PathBuf> = ROOTS.iter().map(|name| root.join(name)).filter(|path| path.exists()).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in path.read_dir()? {
                let entry = entry?;
                if !GENERATED.iter().any(|name| entry.file_name() == *name) {
                    left.push(entry.path());
                }
            }
        } else if let Ok(text) = String::from_utf8(std::fs::read(&path)?) {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            texts.push((relative.to_string_lossy().into_owned(), text));
        }
    }
    texts.sort();
    Ok(texts)
}
