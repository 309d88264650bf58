//! Progressive filling: raise everybody together until something is full.

use crate::program::Matrix;

/// Raises `values`, one for each column of `matrix`, to the lexicographic max-min of value over weight under
/// `matrix · values ≤ limits`, none below where it was (Bertsekas and Gallager, Data Networks, §6.5.2).
///
/// `room` is what the limits leave; afterwards, what they still leave. O((n + m) m + entries) for n columns and m
/// rows. Every column must have a row.
pub(crate) fn fill(matrix: &Matrix, room: &mut [f64], weights: &[f64], values: &mut [f64]) {
    let mut waiting: Vec<usize> = (0..values.len()).collect();
    let start = |at: usize| values[at] / weights[at];
    waiting.sort_by(|&a, &b| start(b).total_cmp(&start(a)).then(b.cmp(&a)));
    let starts: Vec<f64> = (0..values.len()).map(start).collect();
    let mut is_rising = vec![false; values.len()];
    let mut is_full: Vec<bool> = room.iter().map(|&room| room <= FULL).collect();
    // How fast each row fills with the level, and by how many columns: without one, rounding would leave it a speed.
    let mut speed = vec![0.0; room.len()];
    let mut risers = vec![0_u32; room.len()];
    let mut level = waiting.last().map_or(0.0, |&at| starts[at]);
    loop {
        while let Some(&next) = waiting.last().filter(|&&next| starts[next] <= level) {
            waiting.pop();
            if matrix.column(next).all(|(row, _)| !is_full[row]) {
                is_rising[next] = true;
                for (row, coefficient) in matrix.column(next) {
                    speed[row] += weights[next] * coefficient;
                    risers[row] += 1;
                }
            }
        }
        let mut step = waiting.last().map_or(f64::INFINITY, |&next| starts[next] - level);
        let mut fullest = None;
        for row in 0..room.len() {
            // A product is faster than a quotient, and leaves few rows for that.
            let may_be_first = speed[row] > 0.0 && !is_full[row] && room[row] <= step * speed[row] * (1.0 + 1e-9);
            if may_be_first && room[row] / speed[row] < step {
                step = room[row] / speed[row];
                fullest = Some(row);
            }
        }
        if step.is_infinite() {
            return;
        }
        level += step;
        for (room, speed) in room.iter_mut().zip(&speed) {
            *room -= step * speed;
        }
        for row in 0..room.len() {
            if is_full[row] || (room[row] > FULL && Some(row) != fullest) {
                continue;
            }
            is_full[row] = true;
            for (column, _) in matrix.row(row) {
                if std::mem::take(&mut is_rising[column]) {
                    values[column] = level * weights[column];
                    for (row, coefficient) in matrix.column(column) {
                        risers[row] -= 1;
                        speed[row] = if risers[row] == 0 { 0.0 } else { speed[row] - weights[column] * coefficient };
                    }
                }
            }
        }
    }
}

/// A row with this little room, in targets, is full.
pub(crate) const FULL: f64 = 1e-10;
