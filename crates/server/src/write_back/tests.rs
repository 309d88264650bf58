//! Tests of paced write-back, in a file of their own for its length.

use super::writer::{LOOKS_MIN, TRY_ONE_OF};
use super::*;
use crate::jobs::{Job, Jobs};
use crate::requests::{Charged, Served};
use crate::testing;
use isonomia_policy::RequestId;
use isonomia_proto::request::ReplyHeader;
use isonomia_units::{Ino, JobInfo};
use std::sync::Arc;

const MEMORY: u64 = 16 << 30;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const A: JobId = JobId(1);
const B: JobId = JobId(2);
/// Whole windows, whatever the device takes for them.
const LONG: Manner = Manner { time_max: Nanos::MAX, chunks_max: Some(CHUNKS_MAX), is_counted: false };
/// At the rate that a device is taken to have at first, 128 KiB.
const SHORT: Manner = Manner { time_max: Nanos(1_000_000_000 / 512), chunks_max: Some(1), is_counted: true };

fn file(number: u64) -> PagesOf {
    PagesOf::File(Ino(number))
}

/// Writes `bytes` to the end of a file in requests of 256 KiB; whether the last reply was to be delayed.
fn write(pages: &WriteBack, now: Nanos, job: JobId, ino: u64, from: u64, bytes: u64) -> bool {
    (0..bytes / (256 * KIB)).fold(false, |_, i| {
        let at = from + i * 256 * KIB;
        pages.wrote(now, job, file(ino), at..at + 256 * KIB, Nanos(1), true).is_ahead
    })
}

/// Has everything that is due of these jobs written, each chunk in so much time.
fn drain(pages: &WriteBack, mut now: Nanos, each: Nanos) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    while let Some(chunk) = [A, B].into_iter().find_map(|job| pages.next(job, LONG)) {
        pages.begun(now);
        now += each;
        assert!(pages.finished(now, &chunk, Some((each, each))).paid.is_empty());
        chunks.push(chunk);
    }
    chunks
}

#[test]
fn a_stream_is_written_back_window_by_window() {
    let pages = WriteBack::new(MEMORY, true);
    let wrote = |now, range| pages.wrote(Nanos(now), A, file(5), range, Nanos(1), true);
    assert!(!wrote(1, 0..WINDOW_BYTES - 4096).is_due && pages.next(A, LONG).is_none());
    assert!(wrote(2, WINDOW_BYTES - 4096..WINDOW_BYTES).is_due);
    let chunk = pages.next(A, LONG).unwrap();
    assert_eq!((chunk.ranges.len(), chunk.ranges[0].start, chunk.ranges[0].end), (1, 0, WINDOW_BYTES));
    assert_eq!((chunk.bytes, chunk.is_large), (Bytes(WINDOW_BYTES), false));
    // What comes meanwhile is another window.
    assert!(!wrote(3, WINDOW_BYTES..WINDOW_BYTES + 7).is_due);
    pages.begun(Nanos(3));
    pages.finished(Nanos(4), &chunk, Some((Nanos(1), Nanos(1))));
    assert_eq!((pages.next(A, LONG), pages.dirty().0), (None, Bytes(4096)));
    // What nobody goes on with is written back after a while.
    assert_eq!(pages.look(Nanos(3) + AGE_MAX, &[], &HashMap::new()).0, [A]);
    assert_eq!(drain(&pages, Nanos(9), Nanos(1)).len(), 1);
    assert_eq!(pages.dirty().0, Bytes(0));
}

#[test]
fn a_file_that_was_synced_after_some_writes_is_going_to_be_again_after_as_many() {
    let pages = WriteBack::new(MEMORY, true);
    let wrote = |at: u64, bytes: u64| pages.wrote(Nanos(1), A, file(5), at..at + bytes, Nanos(1), true).is_synced_soon;
    let round = |count: u64| -> Vec<bool> {
        let round = (0..count).map(|piece| wrote(piece * 256 * KIB, 256 * KIB)).collect();
        let taken = pages.take(file(5));
        pages.synced(file(5), &taken);
        round
    };
    assert_eq!(round(4), [false; 4], "it never was");
    assert_eq!(round(4), [true, true, true, false]);
    assert_eq!(round(1), [true], "fewer this time");
    assert_eq!(round(6), [false; 6], "and more");
    assert_eq!(round(40), [[true; 5].as_slice(), &[false; 35]].concat());
    assert_eq!(round(4), [false; 4], "after so many nobody waits for the first of them");
    // A sync that finds nothing changes nothing.
    round(0);
    assert_eq!(round(4), [true, true, true, false]);
    // Another job's writes to it are another matter, as is another file.
    let others = |job, ino| pages.wrote(Nanos(1), job, file(ino), 0..4096, Nanos(1), true).is_synced_soon;
    assert!(wrote(0, 4096) && !others(B, 5) && !others(A, 6));
    // What finds its pages written because they were begun says nothing of the host or the device.
    for at in 0..2 * u64::from(VAIN_MAX) {
        write(&pages, Nanos(1), A, 5, at * WINDOW_BYTES, WINDOW_BYTES);
        pages.note_begun(file(5), A);
        let chunk = pages.next(A, LONG).unwrap();
        assert!(chunk.is_begun);
        pages.begun(Nanos(2));
        pages.finished(Nanos(3), &chunk, None);
    }
    round(0);
    round(4);
    assert!(wrote(0, 4096));
    round(4);
    // Nothing is begun where the host has nothing to write.
    for _ in 0..VAIN_MAX {
        write(&pages, Nanos(1), A, 6, 0, WINDOW_BYTES);
        let chunk = pages.next(A, LONG).unwrap();
        pages.begun(Nanos(2));
        pages.finished(Nanos(3), &chunk, None);
    }
    assert!(!wrote(0, 4096));
}

#[test]
fn what_lies_between_the_ranges_of_a_chunk_is_its_own_jobs_unless_somebody_else_wrote_the_file() {
    let pages = WriteBack::new(MEMORY, true);
    let write_both = |ino| {
        write(&pages, Nanos(1), A, ino, 0, WINDOW_BYTES);
        write(&pages, Nanos(1), B, ino, WINDOW_BYTES, WINDOW_BYTES);
    };
    let next = |job| pages.next(job, LONG).unwrap();
    let written = |chunk: &Chunk| {
        pages.begun(Nanos(2));
        pages.finished(Nanos(3), chunk, Some((Nanos(1), Nanos(1))));
    };
    write(&pages, Nanos(1), A, 5, 0, WINDOW_BYTES);
    assert!(next(A).is_only_writer);
    write_both(6);
    let (of_a, of_b) = (next(A), next(B));
    assert_eq!((of_a.of, of_a.is_only_writer, of_b.is_only_writer), (file(6), false, false));
    written(&of_a);
    // Those of B are not written yet.
    write(&pages, Nanos(4), A, 6, 0, WINDOW_BYTES);
    let again = next(A);
    assert!(!again.is_only_writer);
    written(&again);
    written(&of_b);
    write(&pages, Nanos(5), A, 6, 0, WINDOW_BYTES);
    assert!(next(A).is_only_writer);
}

#[test]
fn scattered_pages_are_waited_for_until_they_are_few_ranges_or_old() {
    let pages = WriteBack::new(MEMORY, true);
    let every_other = |ino, from| {
        let wrote = |at| pages.wrote(Nanos(1), A, file(ino), at..at + 4096, Nanos(1), true).is_due;
        (0..WINDOW_BYTES / 4096).filter(|page| wrote(page * 8192 + from)).count() > 0
    };
    assert!(!every_other(5, 0) && pages.next(A, LONG).is_none());
    assert!(every_other(5, 4096), "nothing is missing in between any more");
    let chunk = pages.next(A, LONG).unwrap();
    assert_eq!((chunk.ranges.len(), chunk.of), (1, file(5)));
    drain(&pages, Nanos(2), Nanos(1));
    assert!(!every_other(6, 0));
    pages.look(Nanos(1) + AGE_MAX, &[], &HashMap::new());
    assert!(drain(&pages, Nanos(9), Nanos(1)).iter().any(|chunk| chunk.of == file(6)));
}

#[test]
fn a_chunk_takes_as_long_as_it_may_and_no_more_of_them_wait_than_are_wanted() {
    let pages = WriteBack::new(MEMORY, true);
    write(&pages, Nanos(1), A, 5, 0, WINDOW_BYTES);
    let first = pages.next(A, SHORT).unwrap();
    assert_eq!((first.bytes, first.predicted), (Bytes(128 * KIB), SHORT.time_max));
    assert!(first.is_counted && pages.next(A, SHORT).is_none(), "one at a time");
    // The device turns out to take a millisecond for the operation, and for 200 KiB.
    let takes = |bytes: u64| Nanos(1_000_000 + bytes * 5);
    let (mut now, mut chunk) = (Nanos(5), first);
    for number in 0..40 {
        pages.begun(now);
        let took = takes(chunk.bytes.0);
        now += took;
        pages.finished(now, &chunk, Some((took, took)));
        let manner = if number % 2 == 0 { Manner { time_max: Nanos::from_millis(3), ..SHORT } } else { SHORT };
        write(&pages, now, A, 5, (number + 2) * WINDOW_BYTES, WINDOW_BYTES);
        chunk = pages.next(A, manner).unwrap();
    }
    let least = |time: Nanos| takes(chunk.bytes.0).0.abs_diff(time.0) < time.0 / 20;
    assert!(least(SHORT.time_max), "{} bytes", chunk.bytes);
    // However slow it is, a chunk is not nothing.
    pages.abandoned(&chunk);
    assert_eq!(pages.next(A, Manner { time_max: Nanos(1), ..SHORT }).unwrap().bytes, Bytes(chunks::BYTES_MIN));
}

#[test]
fn each_job_has_pages_of_its_own() {
    let pages = WriteBack::new(MEMORY, true);
    for i in 0..WINDOW_BYTES / (64 * KIB) {
        let range = i * 64 * KIB..(i + 1) * 64 * KIB;
        pages.wrote(Nanos(1), if i % 2 == 0 { A } else { B }, file(5), range, Nanos(1), true);
    }
    // Neither has a whole window.
    assert!(pages.next(A, LONG).is_none() && pages.next(B, LONG).is_none());
    pages.look(Nanos(1) + AGE_MAX, &[], &HashMap::new());
    let chunks = drain(&pages, Nanos(2), Nanos(1));
    let starts = |job| {
        let of_job = chunks.iter().filter(|chunk| chunk.job == job);
        of_job.flat_map(|chunk| chunk.ranges.clone()).map(|range| range.start / (64 * KIB)).collect::<Vec<_>>()
    };
    assert!(starts(A).iter().all(|start| start % 2 == 0) && starts(B).iter().all(|start| start % 2 == 1));
    assert_eq!(starts(A).len() + starts(B).len(), 128);
}

#[test]
fn bytes_are_charged_once() {
    let pages = WriteBack::new(MEMORY, true);
    let wrote = |range, is_unpaid| pages.wrote(Nanos(1), A, file(5), range, Nanos(100), is_unpaid).unpaid;
    assert_eq!(wrote(0..8192, true), Nanos(100), "all of it is left to its chunk");
    assert_eq!(wrote(0..8192, true), Nanos(0), "and what is written again is not");
    assert_eq!(wrote(4096..12_288, true), Nanos(50));
    assert_eq!(wrote(1 << 20..(1 << 20) + 8192, false), Nanos(0), "who waited for the device has paid");
    pages.look(Nanos(1) + AGE_MAX, &[], &HashMap::new());
    let chunks = drain(&pages, Nanos(2), Nanos(1));
    assert_eq!(chunks.iter().map(|chunk| chunk.unpaid.0).sum::<u64>(), 150);
    assert_eq!(chunks.iter().map(|chunk| chunk.bytes.0).sum::<u64>(), 5 * 4096);
}

#[test]
fn who_writes_many_files_takes_no_room_of_others() {
    let pages = WriteBack::new(MEMORY, true);
    let wrote = |job, ino, at| _ = pages.wrote(Nanos(at), job, file(ino), 0..1, Nanos(1), true);
    (0..FILES_MAX as u64 + 9).for_each(|file| wrote(A, file, 1));
    (0..9).for_each(|file| wrote(B, 1 << 30 | file, 2));
    wrote(A, 1 << 29, 2);
    let state = pages.state();
    assert_eq!((state.writers[&A].files.len(), state.writers[&B].files.len()), (FILES_MAX - 9, 9));
    assert_eq!((state.files.len(), state.dirty_bytes), (FILES_MAX, FILES_MAX as u64 * 4096));
    assert_eq!(state.writers[&A].dirty_bytes + state.writers[&B].dirty_bytes, state.dirty_bytes);
}

#[test]
fn a_sync_takes_what_is_waiting() {
    let pages = WriteBack::new(MEMORY, true);
    pages.wrote(Nanos(1), A, file(5), 100..200, Nanos(1), true);
    let taken = pages.take(file(5));
    assert_eq!((&taken[..], pages.dirty().0, pages.take(file(5))), (&[(A, Bytes(4096))][..], Bytes(4096), vec![]));
    pages.synced(file(5), &taken);
    assert_eq!((pages.dirty().0, pages.take(file(6))), (Bytes(0), vec![]));
}

#[test]
fn a_sync_waits_for_what_was_written_before_it_and_goes_before_what_nobody_waits_for() {
    let pages = WriteBack::new(MEMORY, true);
    let job = Jobs::new(8, 8).join(JobInfo::new("j", "u", "g")).unwrap().job;
    let sync = || Box::new(Work { pending: testing::write(&job), id: RequestId(0), finish_at: None });
    write(&pages, Nanos(1), A, 5, 0, 256 * KIB);
    let all_at_once = Manner { time_max: Nanos::from_secs(1), ..SHORT };
    assert!(pages.sync_later(file(5), all_at_once, sync()).is_err(), "it is not much");
    assert!(pages.sync_later(file(6), SHORT, sync()).is_err(), "nothing is");
    write(&pages, Nanos(1), A, 7, 0, WINDOW_BYTES);
    write(&pages, Nanos(1), B, 5, MIB, 256 * KIB);
    assert_eq!(pages.sync_later(file(5), SHORT, sync()).unwrap(), [A, B]);
    let write_one = |job| {
        let chunk = pages.next(job, SHORT).unwrap();
        pages.begun(Nanos(2));
        // What is written meanwhile is for the next one.
        write(&pages, Nanos(2), A, 5, 8 * MIB, 256 * KIB);
        (chunk.of.ino().0, pages.finished(Nanos(3), &chunk, None).syncs.len())
    };
    assert_eq!([A, A, B, B, A].map(write_one), [(5, 0), (5, 0), (5, 0), (5, 1), (7, 0)]);
    write(&pages, Nanos(4), A, 5, 0, MIB);
    assert!(pages.sync_later(file(5), SHORT, sync()).is_ok());
    assert_eq!(pages.stop().syncs.len(), 1);
    assert!(pages.sync_later(file(5), SHORT, sync()).is_err(), "nothing is kept while the server stops");
}

#[test]
fn only_who_is_ahead_by_more_than_his_part_waits() {
    let pages = WriteBack::new(MEMORY, true);
    let bound = pages.dirty().1.0;
    assert!(!write(&pages, Nanos(1), A, 5, 0, bound));
    assert!(write(&pages, Nanos(1), A, 5, bound, MIB), "beyond the bound");
    assert!(!write(&pages, Nanos(1), B, 6, 0, bound / 4), "less than a half");
    assert!(write(&pages, Nanos(1), B, 6, bound / 4, bound / 2));
    // With one part of four it is.
    pages.look(Nanos(2) + AGE_MAX, &[(A, 0.75), (B, 0.25)], &HashMap::new());
    drain(&pages, Nanos(3), Nanos::from_secs(9));
    assert_eq!(pages.dirty().0, Bytes(0));
    let bound = pages.dirty().1.0;
    write(&pages, Nanos(4), A, 5, 0, bound);
    pages.look(Nanos(4), &[(A, 0.75), (B, 0.25)], &HashMap::new());
    write(&pages, Nanos(4), B, 6, 0, 256 * KIB);
    pages.look(Nanos(4), &[(A, 0.75), (B, 0.25)], &HashMap::new());
    assert!(write(&pages, Nanos(4), B, 6, 256 * KIB, bound / 2));
}

#[test]
fn where_there_is_never_anything_to_write_chunks_are_few() {
    let pages = WriteBack::new(MEMORY, true);
    write(&pages, Nanos(1), A, 5, 0, WINDOW_BYTES);
    let cut = |device| {
        let chunk = pages.next(A, SHORT).unwrap();
        pages.begun(Nanos(1));
        pages.finished(Nanos(1), &chunk, device);
        (chunk.bytes.0, chunk.predicted)
    };
    assert!((0..VAIN_MAX).all(|_| cut(None) == (128 * KIB, SHORT.time_max)));
    // As long as it takes at the rate that is known.
    let took = Nanos(48 * SHORT.time_max.0);
    let (bytes, predicted) = cut(Some((took, took)));
    assert!(bytes > 4 * MIB && predicted == SHORT.time_max, "it is likely to find nothing either");
    write(&pages, Nanos(1), A, 6, 0, WINDOW_BYTES);
    let (bytes, predicted) = cut(None);
    assert!(bytes < 4 * MIB && predicted > Nanos::ZERO, "there was something");
}

#[test]
fn where_there_is_never_anything_to_write_it_is_tried_once_in_a_while() {
    let pages = WriteBack::new(MEMORY, true);
    let mut number = 0;
    let mut are_to_be_written = |job, count: u32, had_nothing| {
        let mut written = 0;
        for _ in 0..count {
            number += 1;
            write(&pages, Nanos(1), job, number, 0, WINDOW_BYTES);
            let chunk = pages.next(job, LONG).unwrap();
            pages.begun(Nanos(1));
            if chunk.is_to_be_written() {
                pages.looked(job, had_nothing);
                written += 1;
            }
            pages.finished(Nanos(1), &chunk, None);
        }
        written
    };
    assert_eq!(are_to_be_written(A, VAIN_MAX, true), VAIN_MAX);
    assert_eq!(are_to_be_written(A, 8 * TRY_ONE_OF, true), 8);
    // Whose files never come to the device says nothing of others'.
    assert_eq!(are_to_be_written(B, 2 * TRY_ONE_OF, false), 2 * TRY_ONE_OF);
    assert_eq!(are_to_be_written(A, 2 * TRY_ONE_OF, false), 1 + TRY_ONE_OF, "once there was something all are");
}

#[test]
fn only_what_takes_no_longer_than_a_look_was_clean() {
    let pages = WriteBack::new(MEMORY, true);
    write(&pages, Nanos(1), A, 5, 0, WINDOW_BYTES);
    let chunk = pages.next(A, LONG).unwrap();
    assert!(chunk.was_clean(Nanos::from_micros(5)));
    // A device that would write more than 100 GiB/s.
    assert!(!chunk.was_clean(Nanos::from_micros(80)));
}

#[test]
fn a_job_has_as_many_chunks_at_once_as_its_share_takes() {
    let pages = WriteBack::new(MEMORY, true);
    write(&pages, Nanos(1), A, 5, 0, 8 * WINDOW_BYTES);
    pages.look(Nanos(1) + AGE_MAX, &[], &HashMap::new());
    let manner = Manner { chunks_max: None, ..SHORT };
    let mut now = Nanos::ZERO;
    // Each of four chunks at once would have an eighth of the device.
    let mut pass = |count: usize| {
        let chunks: Vec<Chunk> = std::iter::from_fn(|| pages.next(A, manner)).collect();
        assert_eq!(chunks.len(), count);
        now += Nanos(8 * SHORT.time_max.0);
        for chunk in &chunks {
            pages.begun(now);
            pages.finished(now, chunk, Some((SHORT.time_max, SHORT.time_max)));
        }
        let had = Nanos(count as u64 * SHORT.time_max.0);
        let others = Nanos(8 * SHORT.time_max.0 - had.0);
        pages.look(now, &[(A, 0.5), (B, 0.5)], &[(A, had), (B, others)].into());
    };
    for count in [1, 2, 3, 4, 4, 4] {
        (0..LOOKS_MIN).for_each(|_| pass(count));
    }
    assert_eq!(pages.state().writers[&A].chunks_needed, 4);
}

#[test]
fn a_job_for_which_the_device_is_kept_free_has_one_chunk_more_at_once() {
    let pages = WriteBack::new(MEMORY, true);
    write(&pages, Nanos(1), A, 5, 0, 8 * WINDOW_BYTES);
    let manner = Manner { chunks_max: None, ..SHORT };
    let chunks = || std::iter::from_fn(|| pages.next(A, manner)).collect::<Vec<Chunk>>();
    // Nothing had anything of the device, and nobody is behind.
    let look = || drop(pages.look(Nanos(2), &[(A, 0.5)], &HashMap::new()));
    assert!(!pages.needs_more(B, manner), "it wrote nothing");
    assert!(
        !pages.needs_more(A, manner),
        "none of its chunks is at the device yet, where one may have all that it takes"
    );
    let mut at_device = chunks();
    assert!(!pages.needs_more(A, LONG), "nobody reads, and it has as many as there may be");
    for count in 2..=CHUNKS_MAX {
        assert!(pages.needs_more(A, manner));
        at_device.extend(chunks());
        assert_eq!(at_device.len(), count);
        assert!(!pages.needs_more(A, manner), "it had one more since the last look");
        look();
    }
    assert!(!pages.needs_more(A, manner), "these are as many as it may have");
    for chunk in &at_device[1..] {
        pages.abandoned(chunk);
    }
    // All that was due is cut.
    pages.take(file(5));
    assert!(chunks().is_empty() && !pages.needs_more(A, manner));
}

#[test]
fn a_moment_above_its_share_is_no_reason_for_fewer_chunks() {
    let mut writer = Writer::new();
    writer.share = 0.5;
    writer.due.push_back(file(5));
    let mut looks = |count, had| {
        (0..count).for_each(|_| writer.adapt(had, 100));
        writer.chunks_needed
    };
    assert_eq!(looks(2 * LOOKS_MIN, 20), 3);
    // It catches up with what it is owed, and is behind again.
    assert_eq!((looks(LOOKS_MIN - 1, 60), looks(1, 40), looks(LOOKS_MIN - 1, 60)), (3, 3, 3));
    assert_eq!(looks(1, 60), 2);
    // A look at which it had just its share says nothing about those before.
    assert_eq!((looks(LOOKS_MIN - 1, 60), looks(5, 50), looks(1, 60)), (2, 2, 1));
    // Whoever comes beside and does little finds few of them soon.
    assert_eq!(looks(7 * LOOKS_MIN, 20), CHUNKS_MAX);
    assert_eq!(looks(CHUNKS_MAX as u32 - 1, 90), 1);
}

/// The reply of a write of a job.
fn paid(job: &Arc<Job>) -> Paid {
    let reply = ReplyHeader::ok(0, 1, 0);
    let served = Served { pending: testing::write(job), id: RequestId(0), reply, payload: Vec::new() };
    Paid { served, charged: Charged { service: Nanos(1), is_by_time: false } }
}

#[test]
fn a_reply_is_delayed_until_the_device_has_caught_up() {
    let pages = WriteBack::new(MEMORY, true);
    let job = Jobs::new(8, 8).join(JobInfo::new("j", "u", "g")).unwrap().job;
    assert!(pages.delay(paid(&job)).is_some(), "nobody is ahead");
    let bound = pages.dirty().1.0;
    assert!(write(&pages, Nanos(1), job.id, 5, 0, bound + WINDOW_BYTES));
    assert!(pages.delay(paid(&job)).is_none());
    // One window is enough, or a little time; and the next one is delayed again.
    let chunk = pages.next(job.id, LONG).unwrap();
    pages.begun(Nanos(2));
    let took = Nanos(WINDOW_BYTES * AHEAD.0 / bound);
    assert_eq!(pages.finished(Nanos(2) + took, &chunk, Some((took, took))).paid.len(), 1);
    let bound = pages.dirty().1.0;
    write(&pages, Nanos(3), job.id, 5, 0, bound + 2 * WINDOW_BYTES);
    assert!(pages.delay(paid(&job)).is_none());
    assert_eq!(pages.stop().paid.len(), 1);
    assert!(pages.delay(paid(&job)).is_some(), "nothing is delayed while the server stops");
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
        let chunks: Vec<Chunk> = std::iter::from_fn(|| pages.next(A, LONG)).collect();
        assert_eq!(chunks.len(), 4);
        chunks.iter().for_each(|_| pages.begun(now));
        // 40 MiB/s.
        let took = Nanos::from_millis(800);
        now += took;
        chunks.iter().for_each(|chunk| _ = pages.finished(now, chunk, Some((took, took))));
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
    for number in 0..2 * FILES_MAX as u64 {
        pages.wrote(Nanos(5), A, file(number), 0..1, Nanos(1), true);
    }
    assert!(pages.state().files.len() <= FILES_MAX);
    pages.look(Nanos(5) + AGE_MAX, &[], &HashMap::new());
    drain(&pages, Nanos(6) + AGE_MAX, Nanos(1));
    pages.look(Nanos(5) + FORGET_AFTER, &[], &HashMap::new());
    assert!(pages.state().files.is_empty());
    assert!(pages.state().writers.is_empty());
}
