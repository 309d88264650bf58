//! What is found in a cluster file, or between two of them.

use std::fmt;

/// More findings than these are counted only.
const FINDINGS_MAX: usize = 100;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Note,
    /// It is done, and may not be what was meant.
    Warning,
    /// The file is refused.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Something about a cluster file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The line, counted from 1, if it is on one line of a file.
    pub line: Option<usize>,
    /// What it is, what is allowed, or what follows.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// A cluster that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("; "))]
pub struct BadMap {
    findings: Vec<Finding>,
}

impl BadMap {
    /// Of what was found when a file was read, the errors.
    pub fn new(mut findings: Vec<Finding>) -> Self {
        findings.retain(|finding| finding.severity == Severity::Error);
        Self { findings }
    }

    /// All errors, in the order of their lines.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// Findings, a bounded number of them.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Vec<Finding>,
    more: usize,
    errors: usize,
}

impl Findings {
    pub(super) fn error(&mut self, line: Option<usize>, what: impl Into<String>) {
        self.errors += 1;
        self.add(Severity::Error, line, what.into());
    }

    pub(super) fn warning(&mut self, line: Option<usize>, what: impl Into<String>) {
        self.add(Severity::Warning, line, what.into());
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.add(Severity::Note, None, what.into());
    }

    fn add(&mut self, severity: Severity, line: Option<usize>, what: String) {
        if self.kept.len() < FINDINGS_MAX {
            self.kept.push(Finding { severity, line, what });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// What is of no line first, then in the order of lines, and for one line as they were found.
    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.kept.sort_by_key(|finding| finding.line.unwrap_or(0));
        if self.more > 0 {
            let severity = if self.errors > 0 { Severity::Error } else { Severity::Note };
            self.kept.push(Finding { severity, line: None, what: format!("and {} more", self.more) });
        }
        self.kept
    }
}
