//! Progressive filling: raise everybody together until something is full.

use crate::program::Matrix;

/// Raises `values`, one for each column of `matrix`, to the lexicographic max-min of value over weight under
/// `matrix · values ≤ limits`, none below where it was (Bertsekas and Gallager, Data Networks, §6.5.2).
///
/// `room` is what the limits leave; afterwards, what they still leave. O(n log n + m² + entries) for n columns and m
/// rows. Every column must have a row.
pub(crate) fn fill(matrix: &Matrix, room: &mut [f64], weights: &[f64], values: &mut [f64]) {
    let mut waiting: Vec<usize> = (0..values.len()).collect();
    let starts: Vec<f64> = values.iter().zip(weights).map(|(value, weight)| value / weight).collect();
    waiting.sort_by(|&a, &b| starts[b].total_cmp(&starts[a]).then(b.cmp(&a)));
    let mut level = waiting.last().map_or(0.0, |&at| starts[at]);
    let mut is_rising = vec![false; values.len()];
    let mut rows: Vec<Row> = room.iter().map(|&room| Row { is_full: room <= FULL, ..Row::at(level, room) }).collect();
    // The level at which the first row is full.
    let mut first = f64::INFINITY;
    loop {
        while let Some(&next) = waiting.last().filter(|&&next| starts[next] < first) {
            waiting.pop();
            level = starts[next].max(level);
            if matrix.column(next).all(|(row, _)| !rows[row].is_full) {
                is_rising[next] = true;
                for (row, coefficient) in matrix.column(next) {
                    rows[row].rise(level, weights[next] * coefficient);
                    first = first.min(rows[row].full_at);
                }
            }
        }
        if first.is_infinite() {
            break;
        }
        level = first.max(level);
        for row in 0..rows.len() {
            if rows[row].is_full || (rows[row].full_at > first && rows[row].room_at(level) > FULL) {
                continue;
            }
            rows[row].is_full = true;
            for (column, _) in matrix.row(row) {
                if std::mem::take(&mut is_rising[column]) {
                    values[column] = level * weights[column];
                    for (row, coefficient) in matrix.column(column) {
                        rows[row].rest(level, weights[column] * coefficient);
                    }
                }
            }
        }
        first = rows.iter().map(|row| row.full_at).fold(f64::INFINITY, f64::min);
    }
    room.iter_mut().zip(rows).for_each(|(room, row)| *room = row.room);
}

/// A row that fills as the level rises.
struct Row {
    /// What was left at level `since`.
    room: f64,
    since: f64,
    /// What it loses with each unit of the level, and by how many columns: without one, rounding would leave it a speed.
    speed: f64,
    risers: u32,
    /// The level at which nothing is left, as things are.
    full_at: f64,
    is_full: bool,
}

impl Row {
    fn at(level: f64, room: f64) -> Self {
        Self { room, since: level, speed: 0.0, risers: 0, full_at: f64::INFINITY, is_full: false }
    }

    fn room_at(&self, level: f64) -> f64 {
        self.room - (level - self.since) * self.speed
    }

    /// One more column rises by `speed` from `level` on.
    fn rise(&mut self, level: f64, speed: f64) {
        (self.room, self.since) = (self.room_at(level), level);
        self.speed += speed;
        self.risers += 1;
        self.full_at = level + self.room / self.speed;
    }

    /// One of these columns rises no more.
    fn rest(&mut self, level: f64, speed: f64) {
        (self.room, self.since) = (self.room_at(level), level);
        self.risers -= 1;
        self.speed = if self.risers == 0 { 0.0 } else { self.speed - speed };
        self.full_at = if self.risers == 0 { f64::INFINITY } else { level + self.room / self.speed };
    }
}

/// A row with this little room, in targets, is full.
pub(crate) const FULL: f64 = 1e-10;
