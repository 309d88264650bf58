//! Tables as CSV with a header line: every error names the line and the field, and says what is allowed.
//!
//! Columns may stand in any order. A column that is unknown is refused, since it is likelier a slip than a remark.

use isonomia_units::Nanos;
use std::fmt;

/// The most rows of a table.
pub const ROWS_MAX: usize = 1 << 20;
/// The longest time in a table, in seconds: 31 years.
pub const TIME_S_MAX: f64 = 1e9;
/// The longest text that an error repeats.
const SHOWN_LEN_MAX: usize = 40;

/// Why a file of jobs or applications cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// Line in the file, from 1.
    pub line: u64,
    /// The field that is wrong; `None` if it is the line as a whole.
    pub field: Option<String>,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl TableError {
    pub(crate) fn new(line: u64, field: Option<&str>, problem: String) -> Self {
        Self { line, field: field.map(str::to_owned), problem }
    }

    /// An error of `value`, with what would be allowed.
    pub(crate) fn value(line: u64, field: &str, value: &str, what: &str, allowed: &str) -> Self {
        Self::new(line, Some(field), format!("{} {what} (allowed: {allowed})", shown(value)))
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(field) = &self.field {
            write!(f, ", field {field}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for TableError {}

/// `value` in quotes, cut if it is long.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_LEN_MAX) {
        None => format!("{value:?}"),
        Some((end, _)) => format!("{:?}…", &value[..end]),
    }
}

/// A row with the names of its columns.
pub(crate) struct Row<'a> {
    pub line: u64,
    header: &'a csv::StringRecord,
    record: csv::StringRecord,
}

/// Reads every row of `text` by `read`.
pub(crate) fn read_rows<T>(
    text: &[u8],
    required: &[&str],
    optional: &[&str],
    mut read: impl FnMut(&Row) -> Result<T, TableError>,
) -> Result<Vec<T>, TableError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = reader.headers().map_err(|error| of_csv(text, &error))?.clone();
    check_header(&header, required, optional)?;
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| of_csv(text, &error))? {
        let line = record.position().map_or(1, |position| line_of(text, position));
        if rows.len() == ROWS_MAX {
            return Err(TableError::new(line, None, format!("more than {ROWS_MAX} rows, the most allowed")));
        }
        let row = Row { line, header: &header, record: std::mem::take(&mut record) };
        rows.push(read(&row)?);
        record = row.record;
    }
    if rows.is_empty() {
        return Err(TableError::new(1, None, "no row follows the header (allowed: at least one)".to_owned()));
    }
    Ok(rows)
}

/// The line on which a row begins: the reader's position is that of the blank lines before it.
fn line_of(text: &[u8], position: &csv::Position) -> u64 {
    let from = text.get(position.byte() as usize..).unwrap_or(&[]);
    let blank = from.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    position.line() + blank.filter(|byte| **byte == b'\n').count() as u64
}

fn check_header(header: &csv::StringRecord, required: &[&str], optional: &[&str]) -> Result<(), TableError> {
    let allowed = || {
        let note = if optional.is_empty() { String::new() } else { format!("; optional {}", optional.join(",")) };
        format!("(allowed: a first line with {}{note})", required.join(","))
    };
    let refuse = |field: &str, what: String| Err(TableError::new(1, Some(field), format!("{what} {}", allowed())));
    for (at, name) in header.iter().enumerate() {
        if !required.contains(&name) && !optional.contains(&name) {
            return refuse(name, format!("{} is no column", shown(name)));
        }
        if header.iter().take(at).any(|other| other == name) {
            return refuse(name, "the column comes twice".to_owned());
        }
    }
    match required.iter().find(|name| !header.iter().any(|other| other == **name)) {
        Some(missing) => refuse(missing, "the column is missing".to_owned()),
        None => Ok(()),
    }
}

fn of_csv(text: &[u8], error: &csv::Error) -> TableError {
    let line = error.position().map_or(1, |position| line_of(text, position));
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields (allowed: {expected_len}, as in the header)")
        }
        csv::ErrorKind::Utf8 { err, .. } => {
            let field = format!("number {}", err.field() + 1);
            return TableError::new(line, Some(&field), "not UTF-8".to_owned());
        }
        _ => error.to_string(),
    };
    TableError::new(line, None, problem)
}

impl Row<'_> {
    /// The field's text, if there is such a column and it is not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        let at = self.header.iter().position(|column| column == name)?;
        self.record.get(at).filter(|text| !text.is_empty())
    }

    /// A name, not empty.
    pub fn name(&self, name: &str) -> Result<&str, TableError> {
        let len_max = isonomia_units::NAME_LEN_MAX;
        let allowed = format!("1 to {len_max} bytes");
        match self.text(name) {
            Some(text) if text.len() <= len_max => Ok(text),
            Some(text) => Err(TableError::value(self.line, name, text, "is too long", &allowed)),
            None => Err(TableError::value(self.line, name, "", "is no name", &allowed)),
        }
    }

    /// A whole number from 1 on.
    pub fn count(&self, name: &str) -> Result<u32, TableError> {
        let text = self.text(name).unwrap_or("");
        text.parse().ok().filter(|count| *count >= 1).ok_or_else(|| {
            let allowed = format!("a whole number, 1 to {}", u32::MAX);
            TableError::value(self.line, name, text, "is not a count", &allowed)
        })
    }

    /// A finite number from 0 on.
    pub fn amount(&self, name: &str) -> Result<f64, TableError> {
        let text = self.text(name).unwrap_or("");
        text.parse()
            .ok()
            .filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)
            .ok_or_else(|| TableError::value(self.line, name, text, "is not an amount", "a finite number, 0 or more"))
    }

    /// A time in seconds from 0 on.
    pub fn seconds(&self, name: &str) -> Result<Nanos, TableError> {
        let text = self.text(name).unwrap_or("");
        text.parse().ok().and_then(nanos).ok_or_else(|| {
            let allowed = format!("seconds, 0 to {TIME_S_MAX}");
            TableError::value(self.line, name, text, "is not a time", &allowed)
        })
    }
}

/// `seconds` to the nearest nanosecond; `None` if negative, not a number, or longer than [`TIME_S_MAX`].
pub(crate) fn nanos(seconds: f64) -> Option<Nanos> {
    (0.0..=TIME_S_MAX).contains(&seconds).then(|| Nanos((seconds * 1e9).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<(String, Nanos, u32)>, TableError> {
        read_rows(text.as_bytes(), &["id", "io_s"], &["n"], |row| {
            let count = if row.text("n").is_some() { row.count("n")? } else { 1 };
            Ok((row.name("id")?.to_owned(), row.seconds("io_s")?, count))
        })
    }

    fn error(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn columns_come_in_any_order_and_blanks_do_not_matter() {
        let rows = vec![("a".to_owned(), Nanos(1_500_000_000), 1), ("b, c".to_owned(), Nanos::ZERO, 2)];
        assert_eq!(read("n, io_s ,id\n,1.5,a\n2,0,\"b, c\"\n"), Ok(rows));
    }

    #[test]
    fn errors_name_line_and_field_and_what_is_allowed() {
        for (text, expected) in [
            ("", "line 1, field id: the column is missing (allowed: a first line with id,io_s; optional n)"),
            ("id,io_s\n", "line 1: no row follows the header (allowed: at least one)"),
            ("id,io_s,x\n", "line 1, field x: \"x\" is no column (allowed: a first line with id,io_s; optional n)"),
            ("id,io_s,id\n", "line 1, field id: the column comes twice"),
            ("id,io_s\na,1\nb\n", "line 3: 1 fields (allowed: 2, as in the header)"),
            ("id,io_s\n\na,-1\n", "line 3, field io_s: \"-1\" is not a time (allowed: seconds, 0 to 1000000000)"),
            ("id,io_s\na,NaN\n", "line 2, field io_s: \"NaN\" is not a time"),
            ("id,io_s\na,inf\n", "line 2, field io_s: \"inf\" is not a time"),
            ("id,io_s\na,1s\n", "line 2, field io_s: \"1s\" is not a time"),
            ("id,io_s\na,\n", "line 2, field io_s: \"\" is not a time"),
            ("id,io_s\n,1\n", "line 2, field id: \"\" is no name (allowed: 1 to 255 bytes)"),
            ("id,io_s,n\na,1,0\n", "line 2, field n: \"0\" is not a count (allowed: a whole number, 1 to 4294967295)"),
            ("id,io_s,n\na,1,1.5\n", "line 2, field n: \"1.5\" is not a count"),
        ] {
            assert!(error(text).starts_with(expected), "{text:?}: {}", error(text));
        }
        let bytes = b"id,io_s\na,1\n\xff,1\n";
        let error = read_rows(bytes, &["id", "io_s"], &[], |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "line 3, field number 1: not UTF-8");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_rows(&text, &["id", "io_s"], &[], |row| row.seconds("io_s"));
        }

        #[test]
        fn whole_nanoseconds_are_kept(ns in 0u64..1 << 50) {
            prop_assert_eq!(nanos(ns as f64 / 1e9), Some(Nanos(ns)));
        }
    }
}
