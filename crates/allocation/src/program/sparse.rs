//! A sparse matrix, by columns and by rows.

/// The constraints' coefficients. Entries of a column come in the order they were pushed; no position is pushed twice.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    columns: Lines,
    rows: Lines,
}

#[derive(Clone, Debug)]
struct Lines {
    start: Vec<u32>,
    index: Vec<u32>,
    value: Vec<f64>,
}

impl Lines {
    fn line(&self, at: usize) -> impl Iterator<Item = (usize, f64)> + Clone {
        let range = self.start[at] as usize..self.start[at + 1] as usize;
        self.index[range.clone()].iter().map(|&index| index as usize).zip(self.value[range].iter().copied())
    }
}

impl Matrix {
    /// The matrix of `rows` rows with these columns. O(entries).
    pub(crate) fn new<C: IntoIterator<Item = (u32, f64)>>(rows: usize, columns: impl IntoIterator<Item = C>) -> Self {
        let mut by_column = Lines { start: vec![0], index: Vec::new(), value: Vec::new() };
        let mut row_start = vec![0_u32; rows + 1];
        for column in columns {
            for (row, value) in column {
                by_column.index.push(row);
                by_column.value.push(value);
                row_start[row as usize + 1] += 1;
            }
            by_column.start.push(by_column.index.len() as u32);
        }
        for row in 0..rows {
            row_start[row + 1] += row_start[row];
        }
        let mut next = row_start.clone();
        let entries = by_column.index.len();
        let mut by_row = Lines { start: row_start, index: vec![0; entries], value: vec![0.0; entries] };
        for column in 0..by_column.start.len() - 1 {
            for (row, value) in by_column.line(column) {
                let position = next[row] as usize;
                by_row.index[position] = column as u32;
                by_row.value[position] = value;
                next[row] += 1;
            }
        }
        Self { columns: by_column, rows: by_row }
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.start.len() - 1
    }

    pub(crate) fn column_count(&self) -> usize {
        self.columns.start.len() - 1
    }

    /// The rows and coefficients of `column`.
    pub(crate) fn column(&self, column: usize) -> impl Iterator<Item = (usize, f64)> + Clone {
        self.columns.line(column)
    }

    /// The columns and coefficients of `row`.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> + Clone {
        self.rows.line(row)
    }
}
