//! A store that changes hands.

use super::*;
use crate::{Caller, OpenHow, Store, StoreConfig, TargetDir};
use isonomia_proto::fs::Timestamp;
use isonomia_units::{Ino, ServerId, TargetId};

const NOW: Timestamp = Timestamp::new(7, 0).unwrap();
const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, groups: &[] };

fn config(dir: &Path, take_over: bool) -> StoreConfig {
    let target = TargetDir { id: TargetId(0), dir: dir.join("target") };
    let mut config = StoreConfig::new(dir.join("metadata"), ServerId(1), vec![target]);
    config.ownership = Some(Ownership { wait: Nanos(1), ..Ownership::new("io1".to_owned(), 3, take_over) });
    config
}

fn open(store: &Store, name: &str) -> Ino {
    let how = OpenHow { access: 2, create: true, mode: 0o600, ..OpenHow::default() };
    store.open_file(&ROOT, Ino::ROOT, name.as_bytes(), &how, NOW).unwrap().ino
}

/// The record is changed as if it were another host's.
fn move_elsewhere(dir: &Path, host: &str) {
    let path = dir.join("metadata").join(NAME);
    let record = Record::read(&dir.join("metadata")).unwrap().unwrap();
    fs::write(path, Record { boot: "another".to_owned(), host: host.to_owned(), ..record }.text()).unwrap();
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Record::read(dir.path()).unwrap(), None);
    let record = Record {
        server: "io1".to_owned(),
        epoch: 4,
        instance: 7,
        token: 0xfeed,
        past: vec![(1, 0xfee), (6, 0xbee)],
        all_below: 1,
        host: "h".to_owned(),
        boot: "b".to_owned(),
        pid: 9,
        state: State::Open,
    };
    for record in
        [Record { state: State::Closed, ..record.clone() }, Record { state: State::Claiming, ..record.clone() }, record]
    {
        fs::write(dir.path().join(NAME), record.text()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(record));
    }
    for text in ["", "instance 3\n", "instance x\ntoken 7\n"] {
        fs::write(dir.path().join(NAME), text).unwrap();
        assert!(Record::read(dir.path()).is_err(), "{text:?}");
    }
}

#[test]
fn who_takes_over_is_the_only_one_to_change_anything() {
    let dir = tempfile::tempdir().unwrap();
    let before = config(dir.path(), false);
    let old = Store::open(&before).unwrap();
    let (kept, more) = (open(&old, "kept"), open(&old, "more"));
    old.write(kept, 0, &[1; 10_000], NOW).unwrap();
    old.write(more, 0, &[1; 10_000], NOW).unwrap();
    old.fsync(kept, false).unwrap();
    old.fsync(more, false).unwrap();
    // The old process lives, and has the locks.
    assert!(matches!(Store::open(&config(dir.path(), false)), Err(OpenError::InUse { .. })));
    let fence = old.fence().clone();
    let new = Store::open(&config(dir.path(), true)).unwrap();
    assert_eq!((fence.instance(), new.fence().instance()), (Some(1), Some(2)));
    fence.renew();
    assert!(!fence.is_valid() && new.fence().is_valid());
    assert_eq!(fence.wait_for_end(), Some(crate::Loss::Replaced(2)));
    assert_eq!(new.write(kept, 0, &[2; 10_000], NOW).unwrap(), 10_000);
    let refused = [
        old.write(more, 0, &[3; 4096], NOW).map(drop),
        old.set_size(kept, 5, NOW).map(drop),
        old.mkdir(&ROOT, Ino::ROOT, b"dir", 0o755, NOW).map(drop),
        old.unlink(&ROOT, Ino::ROOT, b"more", NOW),
        old.rename(&ROOT, Ino::ROOT, b"more", Ino::ROOT, b"kept", crate::RenameHow::Replace, NOW),
        old.namespace().keep_cluster_records([(&b"k"[..], Some(&b"v"[..]))]),
        old.close(),
    ];
    for (number, outcome) in refused.into_iter().enumerate() {
        assert_eq!(outcome.map_err(|error| error.errno()), Err(5), "change {number}");
    }
    drop(old);
    let content = |store: &Store, ino| {
        let mut bytes = vec![0; 20_000];
        let len = store.read(ino, 0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    };
    new.fsync(kept, false).unwrap();
    new.close().unwrap();
    drop(new);
    // It was given up: nobody is asked, and nobody waits.
    let last = Store::open(&config(dir.path(), false)).unwrap();
    assert_eq!((content(&last, kept), content(&last, more)), (vec![2; 10_000], vec![1; 10_000]));
    assert_eq!(database_dir(&dir.path().join("metadata")).file_name().unwrap(), "db.2");
    assert_eq!(last.fence().instance(), Some(3));
}

#[test]
fn who_comes_after_a_take_over_that_was_interrupted_goes_on_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&config(dir.path(), false)).unwrap();
    let kept = open(&store, "kept");
    store.write(kept, 0, &[1; 10_000], NOW).unwrap();
    store.fsync(kept, false).unwrap();
    drop(store);
    // Of this kernel, and ended while it waited, or before all of the database was out of reach.
    let metadata = dir.path().join("metadata");
    let record = Record::read(&metadata).unwrap().unwrap();
    fs::write(metadata.join(NAME), Record { state: State::Claiming, ..record }.text()).unwrap();
    let store = Store::open(&config(dir.path(), true)).unwrap();
    assert_eq!(database_dir(&metadata).file_name().unwrap(), "db.2");
    let mut bytes = vec![0; 10_000];
    assert_eq!((store.read(kept, 0, &mut bytes).unwrap(), bytes), (10_000, vec![1; 10_000]));
    assert_eq!(Record::read(&metadata).unwrap().unwrap().state, State::Open);
}

#[test]
fn what_another_host_has_is_not_taken_unasked() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(&config(dir.path(), false)).unwrap());
    // A process of this kernel that is gone is gone.
    drop(Store::open(&config(dir.path(), false)).unwrap());
    move_elsewhere(dir.path(), "elsewhere");
    let error = Store::open(&config(dir.path(), false)).err().unwrap().to_string();
    assert!(error.contains("on host elsewhere") && error.contains("--take-over"), "{error}");
}

#[test]
fn a_lease_that_was_not_renewed_in_time_is_renewed_when_nobody_took_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&config(dir.path(), false)).unwrap();
    let fence = store.fence();
    fence.lapse();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| store.mkdir(&ROOT, Ino::ROOT, b"dir", 0o755, NOW));
        while !fence.is_waited_for() {
            std::thread::yield_now();
        }
        fence.renew();
        writing.join().unwrap().unwrap();
    });
    fs::remove_file(dir.path().join("metadata").join(NAME)).unwrap();
    fence.lapse();
    fence.renew();
    assert!(!fence.is_valid(), "without the record nobody knows");
}

/// Starts on the directory, and ends as said: the line of that process.
fn line_of(dir: &Path, end: impl FnOnce(&Store)) -> Line {
    let store = Store::open(&config(dir, false)).unwrap();
    end(&store);
    store.fence().line().unwrap()
}

#[test]
fn a_directory_lists_who_had_it_and_a_refused_start_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let close = |store: &Store| store.close().unwrap();
    let first = line_of(dir.path(), close);
    assert_eq!((first.own.0, &first.past[..]), (1, &[][..]));
    // One that was killed.
    let second = line_of(dir.path(), |_| {});
    assert_eq!((second.own.0, &second.past[..]), (2, &[first.own][..]));
    for _ in 0..3 {
        let refused = line_of(dir.path(), |store| {
            store.fence().refuse(9);
            assert_eq!(store.fence().wait_for_end(), Some(crate::Loss::Misplaced));
        });
        assert_eq!((refused.own.0, &refused.past[..]), (3, &[first.own, second.own][..]));
    }
    let third = line_of(dir.path(), close);
    assert_eq!((third.own.0, &third.past[..]), (3, &[first.own, second.own][..]));
    assert_ne!(third.own.1, second.own.1);
}

#[test]
fn an_operator_has_a_directory_start_over_once() {
    let dir = tempfile::tempdir().unwrap();
    let close = |store: &Store| store.close().unwrap();
    line_of(dir.path(), close);
    let file = dir.path().join("metadata").join(START_OVER);
    fs::write(&file, "").unwrap();
    let over = line_of(dir.path(), close);
    assert!(over.own.0 > 1 << 40 && over.all_below == over.own.0 && over.past.is_empty(), "{over:?}");
    assert!(!file.exists());
    let next = line_of(dir.path(), close);
    assert_eq!(next, Line { own: (over.own.0 + 1, next.own.1), past: vec![over.own], all_below: over.own.0 });
}

#[test]
fn of_many_processes_the_last_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let past: Vec<_> = (1..=PAST_MAX as u64).map(|number| (number, number)).collect();
    let (instance, token) = (PAST_MAX as u64 + 1, 7);
    let before = Record { instance, token, past, state: State::Closed, ..Record::default() };
    assert!(before.text().len() < RECORD_LEN_MAX as usize / 2);
    let next = next_line(dir.path(), Some(&before), false).unwrap();
    assert_eq!((next.own.0, next.past.len(), next.all_below), (instance + 1, PAST_MAX, 2));
    assert_eq!((next.past[0], next.past[PAST_MAX - 1]), ((2, 2), (instance, token)));
}
