//! Tests of paced write-back, in a file of their own for its length.

use super::*;
use crate::connection::Connection;
use crate::jobs::{Job, Jobs};
use crate::limits::{Limits, LimitsConfig};
use crate::sessions::Sessions;
use crate::target::Pending;
use crate::usage::Usage;
use isonomia_policy::{Access, CostModel, RequestId, Worth};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_units::{JobInfo, Rate};
use std::sync::Arc;

const MEMORY: u64 = 16 << 30;
const A: JobId = JobId(1);
const B: JobId = JobId(2);

/// Writes `bytes` to the end of a file in requests of 256 KiB; whether the last reply was to be held.
fn write(pages: &WriteBack, now: Nanos, job: JobId, ino: u64, from: u64, bytes: u64) -> bool {
    (0..bytes / (256 << 10)).fold(false, |_, i| {
        let at = from + i * (256 << 10);
        pages.wrote(now, job, Ino(ino), at..at + (256 << 10)).1
    })
}

/// Has everything that is due written, each range in so much time.
fn drain(pages: &WriteBack, mut now: Nanos, each: Nanos) -> Vec<Window> {
    let mut windows = Vec::new();
    while pages.state().threads > 0 {
        let Some(window) = pages.next(now) else { continue };
        now += each;
        assert!(pages.finished(now, &window).0.is_empty());
        windows.push(window);
    }
    windows
}

#[test]
fn a_stream_is_written_back_window_by_window() {
    let pages = WriteBack::new(MEMORY, true);
    assert_eq!(pages.wrote(Nanos(1), A, Ino(5), 0..WINDOW_BYTES - 1), (false, false));
    assert_eq!(pages.wrote(Nanos(2), A, Ino(5), WINDOW_BYTES - 1..WINDOW_BYTES), (true, false));
    let window = pages.next(Nanos(1)).unwrap();
    assert_eq!((window.range.clone(), window.bytes, window.is_large), (0..WINDOW_BYTES, Bytes(WINDOW_BYTES), false));
    // What comes meanwhile is another window.
    assert_eq!(pages.wrote(Nanos(3), A, Ino(5), WINDOW_BYTES..WINDOW_BYTES + 7), (false, false));
    pages.finished(Nanos(4), &window);
    assert_eq!((pages.next(Nanos(1)), pages.dirty().0), (None, Bytes(7)));
    // What nobody goes on with is written back after a while.
    assert_eq!(pages.look(Nanos(3) + AGE_MAX, &[]).0, 1);
    assert_eq!(drain(&pages, Nanos(9), Nanos(1)).len(), 1);
    assert_eq!(pages.dirty().0, Bytes(0));
}

#[test]
fn the_device_s_time_is_owed_at_what_it_is_worth() {
    let mut worth = Worth::default();
    worth.note(Nanos::from_micros(1), Nanos::from_millis(1));
    let model = CostModel { per_op: Nanos(1), bandwidth: Rate::new(1 << 30).unwrap() };
    let prices = Prices::new([model; 4]);
    let owed = |window: &Window, took| window.owed(&prices, took).next().unwrap().1;
    let mut window = Window { ino: Ino(5), range: 0..8, bytes: Bytes(8), is_large: false, writers: vec![(A, 8)] };
    assert_eq!(owed(&window, Nanos::from_millis(1)), Nanos::from_millis(1), "nothing is known yet");
    prices.learn(Nanos(1), Access::ReadRandom, Bytes(4096), Nanos::from_millis(1), worth);
    assert_eq!(owed(&window, Nanos::from_millis(100)), Nanos::from_micros(100));
    assert_eq!(owed(&window, Nanos::from_secs(60)), Nanos::from_millis(1), "a device that hung");
    (window.bytes, window.writers) = (Bytes(2 * WINDOW_BYTES), vec![(A, 2 * WINDOW_BYTES)]);
    assert_eq!(owed(&window, Nanos::from_secs(60)), Nanos::from_millis(2));
}

#[test]
fn bytes_count_for_who_wrote_them() {
    let pages = WriteBack::new(MEMORY, true);
    let bound = pages.dirty().1.0;
    pages.wrote(Nanos(1), A, Ino(5), 0..1);
    assert!(write(&pages, Nanos(1), B, 5, 0, bound + (1 << 20)));
    assert!(!write(&pages, Nanos(1), A, 6, 0, 1 << 20), "one byte is not much");
    assert_eq!(pages.next(Nanos(2)).unwrap().writers, [(A, 1), (B, bound + (1 << 20))]);
}

#[test]
fn who_writes_many_files_takes_no_room_of_others() {
    let pages = WriteBack::new(MEMORY, true);
    (0..FILES_MAX as u64 + 9).for_each(|file| _ = pages.wrote(Nanos(1), A, Ino(file), 0..1));
    (0..9).for_each(|file| _ = pages.wrote(Nanos(2), B, Ino(1 << 30 | file), 0..1));
    pages.wrote(Nanos(2), A, Ino(1 << 29), 0..1);
    let state = pages.state();
    assert_eq!((state.firsts[&A].len(), state.firsts[&B].len()), (FILES_MAX - 9, 9));
    assert_eq!((state.files.len(), state.dirty_bytes), (FILES_MAX, FILES_MAX as u64));
    assert_eq!(state.jobs[&A].dirty_bytes + state.jobs[&B].dirty_bytes, state.dirty_bytes);
}

#[test]
fn a_sync_takes_what_is_waiting() {
    let pages = WriteBack::new(MEMORY, true);
    pages.wrote(Nanos(1), A, Ino(5), 100..200);
    let window = pages.take(Ino(5)).unwrap();
    assert_eq!((window.bytes, pages.dirty().0, pages.take(Ino(5))), (Bytes(100), Bytes(100), None));
    pages.synced(&window);
    assert_eq!((pages.dirty().0, pages.take(Ino(6))), (Bytes(0), None));
}

#[test]
fn only_who_is_ahead_by_more_than_his_part_waits() {
    let pages = WriteBack::new(MEMORY, true);
    let bound = pages.dirty().1.0;
    assert!(!write(&pages, Nanos(1), A, 5, 0, bound));
    assert!(write(&pages, Nanos(1), A, 5, bound, 1 << 20), "beyond the bound");
    assert!(!write(&pages, Nanos(1), B, 6, 0, bound / 4), "less than a half");
    assert!(write(&pages, Nanos(1), B, 6, bound / 4, bound / 2));
    // With one part of four it is.
    pages.look(Nanos(2), &[(A, 0.75), (B, 0.25)]);
    drain(&pages, Nanos(3), Nanos::from_secs(9));
    assert_eq!(pages.dirty().0, Bytes(0));
    let bound = pages.dirty().1.0;
    write(&pages, Nanos(4), A, 5, 0, bound);
    pages.look(Nanos(4), &[(A, 0.75), (B, 0.25)]);
    write(&pages, Nanos(4), B, 6, 0, 256 << 10);
    pages.look(Nanos(4), &[(A, 0.75), (B, 0.25)]);
    assert!(write(&pages, Nanos(4), B, 6, 0, bound / 2));
}

/// The reply of a write of a job.
fn paid(job: &Arc<Job>) -> Paid {
    let usage = Arc::new(Usage::new(Limits::settle(&LimitsConfig::default(), 20_000, 0, 8 << 30).unwrap()));
    let (key, place) = ((0, 7), usage.take(0, false, 0).unwrap());
    let connection = Connection::of_root(job.clone(), Sessions::default().join(key), key, place);
    let pending = Pending {
        connection: Arc::new(connection),
        slot: 0,
        header: RequestHeader::new(Op::Write, Ino::ROOT),
        op: Op::Write,
        names: Vec::new(),
        arrived: Nanos::ZERO,
        cost: Nanos(1),
        owed: Nanos::ZERO,
        work: Nanos(1),
        access: Access::WriteSequential,
        took: Nanos::ZERO,
        is_for_device: false,
    };
    let served = Served { pending, id: RequestId(0), reply: ReplyHeader::ok(0, 1, 0), payload: Vec::new() };
    Paid { served, charged: Charged { service: Nanos(1), is_by_time: false } }
}

#[test]
fn a_reply_is_held_until_the_device_has_caught_up() {
    let pages = WriteBack::new(MEMORY, true);
    let job = Jobs::new(8, 8).join(JobInfo::new("j", "u", "g")).unwrap().job;
    assert!(pages.hold(paid(&job)).is_some(), "nobody is ahead");
    let bound = pages.dirty().1.0;
    assert!(write(&pages, Nanos(1), job.id, 5, 0, bound + WINDOW_BYTES));
    assert!(pages.hold(paid(&job)).is_none());
    // One range is enough, or a little time; and the next one is held again.
    let window = pages.next(Nanos(2)).unwrap();
    let (released, took) = pages.finished(Nanos(2) + Nanos::from_secs(1), &window);
    assert_eq!((released.len(), took), (1, Nanos::from_secs(1)));
    let bound = pages.dirty().1.0;
    write(&pages, Nanos(3), job.id, 5, 0, bound + WINDOW_BYTES);
    assert!(pages.hold(paid(&job)).is_none());
    assert_eq!(pages.stop().len(), 1);
    assert!(pages.hold(paid(&job)).is_some(), "nothing is held while the server stops");
}

#[test]
fn the_bound_follows_the_device() {
    let pages = WriteBack::new(MEMORY, true);
    let mut now = Nanos(0);
    let mut run = |per_window: Nanos| {
        for i in 0..100 {
            write(&pages, now, A, 5, i * WINDOW_BYTES, WINDOW_BYTES);
            drain(&pages, now, per_window);
            now += per_window;
        }
        pages.dirty().1.0
    };
    let of_slow = run(Nanos::from_millis(800));
    assert_eq!(of_slow, DIRTY_BYTES_MIN);
    let of_middling = run(Nanos::from_millis(80));
    assert!((190 << 20..=220 << 20).contains(&of_middling), "2 s of 100 MiB/s: {of_middling}");
    assert_eq!(run(Nanos(1)), MEMORY / DIRTY_PART);
}

#[test]
fn ranges_that_end_together_are_no_faster_device() {
    let pages = WriteBack::new(MEMORY, true);
    let mut now = Nanos(0);
    for i in 0..50 {
        (0..4).for_each(|file| _ = write(&pages, now, A, file, i * WINDOW_BYTES, WINDOW_BYTES));
        let windows: Vec<Window> = std::iter::from_fn(|| pages.next(now)).collect();
        // 40 MiB/s.
        now += Nanos::from_millis(800);
        windows.iter().for_each(|window| _ = pages.finished(now, window));
        drain(&pages, now, Nanos(1));
    }
    let bound = pages.dirty().1.0;
    assert!((64 << 20..=110 << 20).contains(&bound), "2 s of 40 MiB/s, about: {bound}");
}

#[test]
fn what_is_large_is_dropped_and_many_files_take_a_bounded_room() {
    let pages = WriteBack::new(64 << 20, true);
    write(&pages, Nanos(1), A, 5, 0, WINDOW_BYTES);
    assert!(!drain(&pages, Nanos(2), Nanos(1))[0].is_large);
    write(&pages, Nanos(3), A, 5, WINDOW_BYTES, WINDOW_BYTES);
    assert!(drain(&pages, Nanos(4), Nanos(1))[0].is_large);
    for file in 0..2 * FILES_MAX as u64 {
        pages.wrote(Nanos(5), A, Ino(file), 0..1);
    }
    assert!(pages.state().files.len() <= FILES_MAX);
    assert_eq!(pages.look(Nanos(5) + AGE_MAX, &[]).0, THREADS_MAX);
    drain(&pages, Nanos(6) + AGE_MAX, Nanos(1));
    pages.look(Nanos(5) + FORGET_AFTER, &[]);
    assert!(pages.state().files.is_empty());
}
