//! Tables for people, in Markdown.

use std::fmt;

/// A table of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// One with these columns.
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    /// A row, with a cell for each column.
    pub fn push<const N: usize>(&mut self, row: [String; N]) {
        debug_assert_eq!(N, self.header.len());
        self.rows.push(row.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
            writeln!(f, "| {} |", cells.join(" | "))
        };
        line(f, &self.header)?;
        writeln!(f, "|{}", "---|".repeat(self.header.len()))?;
        self.rows.iter().try_for_each(|row| line(f, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(&["a", "b"]);
        table.push(["x|y".to_owned(), "1 %".to_owned()]);
        assert_eq!(table.to_string(), "| a | b |\n|---|---|\n| x\\|y | 1 % |\n");
    }
}
