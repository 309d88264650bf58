//! The style of this repository, as far as a program can check it.
//!
//! Each rule is a function from a path (relative to the repository, with `/`) and a text to what is wrong with them.
//! `tests/repository.rs` applies all rules to all files; the tests in here show that each rule can fail. The rules
//! themselves are explained in `CONTRIBUTING.md`.

pub mod circles;
pub mod layers;
pub mod links;
pub mod text;
pub mod tree;

/// Something that breaks a rule: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the repository.
    pub path: String,
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}
