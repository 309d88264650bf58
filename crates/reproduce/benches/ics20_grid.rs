//! Time of the whole ICS'20 grid: loads from 0.5 to 10 in steps of 0.25, 10 workloads each, First-Fit, S = 1 and
//! S = α, on 1, 3 and 5 I/O nodes, on all cores.
//!
//! Prints a JSON line with the seconds of every repeat; each repeat has a seed of its own.

use isonomia_reproduce::{Context, ics20::grid};
use std::hint::black_box;
use std::time::Instant;

const REPEATS: u64 = 5;

fn main() {
    let grid = grid::Grid::paper(false);
    let schemes = [grid::FIRST_FIT, grid::ONE, grid::ALPHA];
    let mut cells = 0;
    let mut seconds: Vec<f64> = (0..REPEATS)
        .map(|seed| {
            let begin = Instant::now();
            cells = black_box(grid.run(seed, &schemes, &Context::quiet()).expect("nobody stops it")).len();
            begin.elapsed().as_secs_f64()
        })
        .collect();
    let raw = seconds.clone();
    seconds.sort_by(f64::total_cmp);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{{\"bench\":\"ics20_grid\",\"cells\":{cells},\"cores\":{cores},\"seconds_median\":{:.3},\"seconds\":{raw:.3?}}}",
        seconds[seconds.len() / 2]
    );
}
