//! Raw data: named columns of numbers and words, as CSV and JSON.

use serde_json::Value;

/// A table that keeps every digit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Data {
    /// A table without rows.
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// It has not one value for each column.
    pub fn push<const N: usize>(&mut self, row: [Value; N]) {
        assert_eq!(N, self.columns.len(), "a value for each of {:?}", self.columns);
        self.rows.push(row.into());
    }

    /// Names of the columns.
    pub fn columns(&self) -> &[&'static str] {
        &self.columns
    }

    /// The rows, in the order in which they came.
    pub fn rows(&self) -> &[Vec<Value>] {
        &self.rows
    }

    /// The table with a header line.
    pub fn csv(&self) -> String {
        let mut lines = csv::Writer::from_writer(Vec::new());
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // The rows are written here and not inside the assertion, which a release build leaves out.
        let mut is_good = lines.write_record(&self.columns).is_ok();
        for row in &self.rows {
            is_good &= lines.write_record(row.iter().map(text)).is_ok();
        }
        debug_assert!(is_good, "writing to memory cannot fail, and every row is as long as the header");
        lines.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_written_as_they_are() {
        let mut data = Data::new(&["policy", "stretch", "batch"]);
        data.push(["a, b".into(), 1.25.into(), 64.into()]);
        assert_eq!(data.csv(), "policy,stretch,batch\n\"a, b\",1.25,64\n");
    }
}
