//! The order of ids, which breaks ties: numbers by their value, then other text.

use crate::table::TableError;

/// `rows`, each with its line, ascending by id.
///
/// # Errors
/// An id comes twice.
pub(crate) fn sorted<T>(mut rows: Vec<(u64, T)>, id: impl Fn(&T) -> &str) -> Result<Vec<T>, TableError> {
    rows.sort_by(|(_, a), (_, b)| rank(id(a)).cmp(&rank(id(b))));
    match rows.windows(2).find(|pair| id(&pair[0].1) == id(&pair[1].1)) {
        // The sort is stable, so the first of two comes first.
        Some([(first, _), (line, again)]) => {
            let what = format!("is in line {first} already");
            Err(TableError::value(*line, "id", id(again), &what, "each id once"))
        }
        _ => Ok(rows.into_iter().map(|(_, row)| row).collect()),
    }
}

fn rank(id: &str) -> (u64, &str) {
    (id.parse().unwrap_or(u64::MAX), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_numbers_and_come_first() {
        let rows = ["b", "10", "a", "9", "09"].map(|id| (0, id.to_owned())).to_vec();
        assert_eq!(sorted(rows, |id| id).unwrap(), ["09", "9", "10", "a", "b"]);
    }
}
