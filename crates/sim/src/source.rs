//! Where a value was written: errors that name file, line, and field.

use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest scenario or profile that is read, in bytes.
pub const FILE_LEN_MAX: u64 = 64 << 20;

/// Something in an input file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{} {}{what}", file.display(), Line(*line), Prefix(field))]
pub struct SourceError {
    /// The file.
    pub file: PathBuf,
    /// Its line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// The field, such as `job[1].request`; empty if no field is to blame.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

/// What stands after a file's name and a colon; nothing of the file as a whole.
struct Line(usize);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, "{}:", self.0) }
    }
}

struct Prefix<'a>(&'a str);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

/// The text of `path`.
///
/// # Errors
/// It cannot be read, is not UTF-8, or is longer than [`FILE_LEN_MAX`].
pub fn read(path: &Path) -> Result<String, SourceError> {
    let fail = |what: String| SourceError { file: path.to_owned(), line: 0, field: String::new(), what };
    let length = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?.len();
    if length > FILE_LEN_MAX {
        return Err(fail(format!("{length} bytes long (allowed: at most {FILE_LEN_MAX})")));
    }
    std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))
}

/// A TOML document that remembers where each value stands.
pub struct Document<'i> {
    file: PathBuf,
    text: &'i str,
    root: Spanned<DeTable<'i>>,
}

/// A step on the way to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'i> Document<'i> {
    /// Reads `text`, which came from `file`.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(file: &Path, text: &'i str) -> Result<Self, SourceError> {
        let root = DeTable::parse(text).map_err(|error| SourceError {
            file: file.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            field: String::new(),
            what: error.message().to_owned(),
        })?;
        Ok(Self { file: file.to_owned(), text, root })
    }

    /// The table `key` of the document taken out of it; `None` if there is none.
    pub fn take_table(&mut self, key: &str) -> Option<DeTable<'i>> {
        match self.root.get_mut().remove(key).map(Spanned::into_inner) {
            Some(DeValue::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// A copy in which the value at `path` (`job[1].request`, or `job.NAME.request` for the entry of that name)
    /// is `value`.
    ///
    /// # Errors
    /// The path leads nowhere.
    pub fn with(&self, path: &str, value: &Spanned<DeValue<'i>>) -> Result<Self, SourceError> {
        let fail = |what: String| SourceError {
            file: self.file.clone(),
            line: line_of(self.text, value.span().start),
            field: path.to_owned(),
            what,
        };
        let mut root = self.root.clone();
        let steps = steps(path).ok_or_else(|| fail("is no path (allowed: words joined by dots, [N])".to_owned()))?;
        let Some((Step::Key(last), outer)) = steps.split_last() else {
            return Err(fail("does not end in a key".to_owned()));
        };
        let mut table = root.get_mut();
        let mut rest = outer;
        while let Some((step, behind)) = rest.split_first() {
            let Step::Key(key) = step else { return Err(fail("begins with an index".to_owned())) };
            let missing = || fail(format!("{key:?} is not in the scenario"));
            let inner = table.get_mut(*key).ok_or_else(missing)?.get_mut();
            (table, rest) = match inner {
                DeValue::Table(inner) => (inner, behind),
                DeValue::Array(entries) => {
                    let Some((choice, behind)) = behind.split_first() else {
                        return Err(fail(format!("{key:?} is a list: one of its entries has to be named")));
                    };
                    let at = match choice {
                        Step::Index(at) => Some(*at),
                        Step::Key(name) => entries.iter().position(|entry| has_name(entry.get_ref(), name)),
                    };
                    let entry = at.and_then(|at| entries.get_mut(at)).map(Spanned::get_mut);
                    let Some(DeValue::Table(inner)) = entry else {
                        return Err(fail(format!("{key:?} has no such entry")));
                    };
                    (inner, behind)
                }
                _ => return Err(fail(format!("{key:?} is no table"))),
            };
        }
        // Inserting keeps an old key, and with it an old position.
        table.remove(*last);
        table.insert(Spanned::new(value.span(), (*last).to_owned().into()), value.clone());
        Ok(Self { file: self.file.clone(), text: self.text, root })
    }

    /// The whole document as `T`.
    ///
    /// # Errors
    /// A key is unknown, missing, or has a value that does not fit.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, SourceError> {
        T::deserialize(toml::Deserializer::from(self.root.clone())).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let mut field = String::new();
            field_at(self.root.get_ref(), at, "", &mut field);
            let what = error.message().trim_end().replace('\n', " ");
            if let Some(missing) = what.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
                // The position given is that of the table around it, which for the document is its first byte.
                let is_table = self.value_of(&field).is_some_and(|(_, value)| value.get_ref().is_table());
                field = if is_table { format!("{field}.{missing}") } else { missing.to_owned() };
            }
            SourceError { file: self.file.clone(), line: line_of(self.text, at), field, what }
        })
    }

    /// The text at `key` of the document; `None` if it is absent or no text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.root.get_ref().get(key)?.get_ref().as_str()
    }

    /// An error about the value at `field`; if it is absent, about the innermost value around it.
    pub fn error(&self, field: &str, what: impl Into<String>) -> SourceError {
        let line = self.value_of(field).map_or(0, |(span, _)| line_of(self.text, span.start));
        SourceError { file: self.file.clone(), line, field: field.to_owned(), what: what.into() }
    }

    /// An error about the table `key` that was taken out, with its own position.
    pub fn error_at(&self, span: &Range<usize>, field: &str, what: impl Into<String>) -> SourceError {
        let line = line_of(self.text, span.start);
        SourceError { file: self.file.clone(), line, field: field.to_owned(), what: what.into() }
    }

    /// The position and the value of `field`, or of the innermost value around it.
    fn value_of(&self, field: &str) -> Option<(Range<usize>, &Spanned<DeValue<'i>>)> {
        let steps = steps(field)?;
        let (Step::Key(first), mut rest) = steps.split_first().map(|(first, rest)| (*first, rest))? else {
            return None;
        };
        let (key, mut value) = self.root.get_ref().get_key_value(first)?;
        let mut span = key.span();
        while let Some((step, behind)) = rest.split_first() {
            let inner = match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => table.get_key_value(*key).map(|(k, v)| (k.span(), v)),
                (Step::Index(at), DeValue::Array(entries)) => entries.get(*at).map(|entry| (entry.span(), entry)),
                _ => None,
            };
            let Some((inner_span, inner)) = inner else { break };
            (span, value, rest) = (inner_span, inner, behind);
        }
        Some((span, value))
    }
}

fn has_name(entry: &DeValue<'_>, name: &str) -> bool {
    let named = entry.as_table().and_then(|table| table.get("name"));
    named.and_then(|value| value.get_ref().as_str()) == Some(name)
}

/// `job[1].request` in steps; `None` if it cannot be read.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
        if key.is_empty() {
            return None;
        }
        steps.push(Step::Key(key));
        for index in indices.split_inclusive(']') {
            steps.push(Step::Index(index.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?));
        }
    }
    Some(steps)
}

/// Appends the path of the key or value that contains byte `at`; true if there is one below `table`.
fn field_at(table: &DeTable<'_>, at: usize, prefix: &str, field: &mut String) -> bool {
    for (key, value) in table.iter() {
        let path = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        if inside(value, at, &path, field) {
            return true;
        }
        if key.span().contains(&at) {
            *field = path;
            return true;
        }
    }
    false
}

fn inside(value: &Spanned<DeValue<'_>>, at: usize, path: &str, field: &mut String) -> bool {
    let found = match value.get_ref() {
        DeValue::Table(table) => field_at(table, at, path, field),
        DeValue::Array(entries) => {
            entries.iter().enumerate().any(|(index, entry)| inside(entry, at, &format!("{path}[{index}]"), field))
        }
        _ => false,
    };
    if !found && value.span().contains(&at) {
        path.clone_into(field);
        return true;
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    const TEXT: &str =
        "seed = 1\n[[job]]\nname = \"a\"\nnodes = 1\n[[job]]\nname = \"b\"\nnodes = 2\n[sweep]\nx = [7]\n";

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Root {
        seed: u32,
        job: Vec<Job>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Job {
        name: String,
        nodes: u32,
    }

    fn document(text: &str) -> Document<'_> {
        Document::parse(Path::new("s.toml"), text).unwrap()
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let mut document = document(TEXT);
        assert_eq!(document.deserialize::<Root>().unwrap_err().field, "sweep");
        document.take_table("sweep").unwrap();
        assert_eq!(document.deserialize::<Root>().unwrap().job[1].nodes, 2);
        assert_eq!(document.error("job[1].nodes", "is bad").to_string(), "s.toml:7: job[1].nodes: is bad");
        assert_eq!(document.error("job[1].absent", "is bad").line, 5, "the entry around it");
        let wrong = TEXT.replace("nodes = 2", "nodes = \"many\"").replace("[sweep]\nx = [7]\n", "");
        let error = self::document(&wrong).deserialize::<Root>().unwrap_err();
        assert_eq!((error.line, error.field.as_str()), (7, "job[1].nodes"));
        let unknown = "seed = 1\n[[job]]\nname = \"a\"\nnodes = 1\nnode = 2\n";
        let error = self::document(unknown).deserialize::<Root>().unwrap_err();
        assert_eq!((error.line, error.field.as_str()), (5, "job[0].node"));
        assert!(error.what.contains("unknown field"), "{error}");
        let broken = Document::parse(Path::new("s.toml"), "a = 1\nb = [").err().unwrap();
        assert_eq!(broken.line, 2);
    }

    #[test]
    fn a_value_is_replaced_by_index_or_name() {
        let mut document = document(TEXT);
        let sweep = document.take_table("sweep").unwrap();
        let value = &sweep.get("x").unwrap().get_ref().as_array().unwrap()[0];
        for path in ["job[1].nodes", "job.b.nodes"] {
            assert_eq!(document.with(path, value).unwrap().deserialize::<Root>().unwrap().job[1].nodes, 7, "{path}");
        }
        assert_eq!(document.with("seed", value).unwrap().deserialize::<Root>().unwrap().seed, 7);
        for bad in ["job.c.nodes", "job[2].nodes", "job.nodes", "seed.x", "", "job[x].nodes"] {
            assert_eq!(document.with(bad, value).err().map(|error| error.line), Some(9), "{bad}");
        }
    }
}
