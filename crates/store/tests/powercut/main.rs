//! The power of a store is cut, on a disk that remembers every write ([`disk`]).
//!
//! A [workload](workload) from a seed runs on a store on an ext4 file system on that disk ([`run`]). Then the disk is made
//! to hold what it held at some moment, or could have held, with the writes since the last flush in any order or torn
//! ([`cut`], [`image`]); the kernel mounts it, the store is opened, and what it holds is compared with what it promised
//! ([`verdict`], [`model`]).
//!
//! A broken promise is printed with the command that shows it again. `make powercut` does many more than `make test`.
//! Needs root, `/dev/fuse`, loop devices and ext4; otherwise it is skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod cut;
mod disk;
mod image;
mod model;
mod objects;
mod pattern;
mod run;
mod verdict;
mod workload;

use bench::Bench;
use cut::Cut;
use isonomia_testbed::skip;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use run::Run;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use verdict::Violation;

/// A saved run and a cut of it, `DIRECTORY:CUT`, to do once more.
const REPLAY_VARIABLE: &str = "ISONOMIA_POWERCUT_REPLAY";
/// How many cuts `soak` makes.
const POINTS_VARIABLE: &str = "ISONOMIA_POWERCUT_POINTS";
/// The first seed of `soak`.
const SEED_VARIABLE: &str = "ISONOMIA_POWERCUT_SEED";
/// Operations of one run, about.
const STEPS: usize = 300;
/// Cuts of one run.
const POINTS: usize = 150;
/// Broken promises that are printed in full.
const SHOWN_MAX: usize = 12;
/// Those of one kind.
const SHOWN_OF_KIND: usize = 3;
/// Operations that are printed around a cut.
const CONTEXT: usize = 14;

/// A place with a disk, or `None` where there cannot be one, and the test is skipped.
fn bench() -> Option<Bench> {
    Bench::new().inspect_err(|reason| skip(reason)).ok()
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Cuts the power and says what is wrong afterwards.
fn cut_and_judge(bench: &mut Bench, run: &Run, cut: Cut) -> Vec<Violation> {
    bench.disk.cut(cut.position, cut.order);
    let unmountable = |error: String| vec![Violation { kind: "mount", detail: error }];
    if let Some((permille, order)) = cut.again {
        if let Err(error) = bench.mount() {
            return unmountable(error);
        }
        // Whatever it says: the promises are checked after the second cut.
        drop(isonomia_store::Store::open(&bench.config()));
        bench.unmount();
        bench.disk.cut_again(permille, order);
    }
    if let Err(error) = bench.mount() {
        return unmountable(error);
    }
    let violations = verdict::judge(bench, run, cut.position);
    bench.unmount();
    violations
}

/// Where a run with broken promises is kept.
fn kept_run(seed: u64) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("powercut-{seed}"))
}

fn save(bench: &mut Bench, run: &Run) {
    let dir = kept_run(run.seed);
    std::fs::create_dir_all(&dir).unwrap();
    bench.disk.save(&dir.join("disk"));
    std::fs::write(dir.join("run"), postcard::to_stdvec(run).unwrap()).unwrap();
}

fn show(run: &Run, cut: Cut, violation: &Violation) {
    eprintln!("\nseed {}, cut {cut}: {}: {}", run.seed, violation.kind, violation.detail);
    let again = "cargo test -p isonomia-store --test powercut replay -- --ignored --nocapture";
    eprintln!("    again: {REPLAY_VARIABLE}={}:{cut} {again}", kept_run(run.seed).display());
}

/// Makes `points` cuts of the run of `seed`, and counts broken promises by their kinds.
fn cut_often(bench: &mut Bench, seed: u64, points: usize) -> BTreeMap<&'static str, usize> {
    let run = Run::record(bench, seed, STEPS);
    let mut chance = Pcg64::seed_from_u64(seed ^ 0xc0ff_ee00);
    let mut kinds = BTreeMap::new();
    let mut shown = 0;
    for _ in 0..points {
        let cut = Cut::choose(&run, &mut chance);
        for violation in cut_and_judge(bench, &run, cut) {
            if kinds.is_empty() {
                save(bench, &run);
            }
            let count = kinds.entry(violation.kind).or_default();
            *count += 1;
            if *count <= SHOWN_OF_KIND && shown < SHOWN_MAX {
                shown += 1;
                show(&run, cut, &violation);
            }
        }
    }
    kinds
}

fn power_cuts_of(seed: u64) {
    let Some(mut bench) = bench() else { return };
    let kinds = cut_often(&mut bench, seed, POINTS);
    assert!(kinds.is_empty(), "promises broken at {POINTS} power cuts of seed {seed}: {kinds:?}");
}

#[test]
fn power_cuts_break_no_promise() {
    power_cuts_of(1);
}

#[test]
fn power_cuts_of_another_run_break_no_promise() {
    power_cuts_of(2);
}

/// As many cuts as asked for, [`POINTS`] for each seed.
#[test]
#[ignore = "run by make powercut"]
fn soak() {
    let points = number_from(POINTS_VARIABLE).unwrap_or_else(|| panic!("{POINTS_VARIABLE} is the number of cuts"));
    let first = number_from(SEED_VARIABLE).unwrap_or(1000);
    let Some(mut bench) = bench() else { return };
    let mut all = BTreeMap::new();
    for seed in first..first + points.div_ceil(POINTS as u64) {
        let kinds = cut_often(&mut bench, seed, POINTS);
        eprintln!("seed {seed}: {kinds:?}");
        kinds.into_iter().for_each(|(kind, count)| *all.entry(kind).or_insert(0) += count);
        bench = Bench::new().unwrap();
    }
    assert!(all.is_empty(), "promises broken at {points} power cuts: {all:?}");
}

/// One cut of a run that was kept, with what led to it.
#[test]
#[ignore = "run by hand, for one broken promise"]
fn replay() {
    let what = std::env::var(REPLAY_VARIABLE).unwrap_or_else(|_| panic!("{REPLAY_VARIABLE} is a directory and a cut"));
    let (dir, cut) = what.rsplit_once(':').expect("a directory, a colon, and a cut");
    let cut: Cut = cut.parse().expect("a cut, such as 1234, 1234r77, or 1234+500r77");
    let Some(mut bench) = bench() else { return };
    let dir = Path::new(dir);
    let run: Run = postcard::from_bytes(&std::fs::read(dir.join("run")).unwrap()).unwrap();
    bench.disk.load(&dir.join("disk"));
    let (done, begun) = (run.done_at(cut.position), run.begun_at(cut.position));
    eprintln!("{} operations of seed {} had returned, {begun} had begun:", done, run.seed);
    for (step, done) in run.done.iter().enumerate().take(begun).skip(done.saturating_sub(CONTEXT)) {
        eprintln!("{step:4} [{} to {}] {:?}", done.begun, done.ended, done.operation);
    }
    let violations = cut_and_judge(&mut bench, &run, cut);
    violations.iter().for_each(|violation| show(&run, cut, violation));
    assert!(violations.is_empty(), "{} promises broken", violations.len());
}
