//! What is begun to be written to a disk before it is synced.

use crate::running::page_counts::{longest_file, page_counts};
use crate::running::{create, eventually, start};
use isonomia_client::Ino;
use isonomia_server::TargetConfig;
use isonomia_testbed::skip;
use std::fs::File;

const PIECE: usize = 256 << 10;
const PIECES: u64 = 4;
const LEN: usize = PIECE * PIECES as usize;

#[test]
fn who_syncs_after_some_writes_and_is_alone_has_the_first_of_them_begun_at_once() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = disk.path().to_owned();
    let running = start(|config| config.targets = vec![TargetConfig { dir: Some(dir), ..TargetConfig::default() }]);
    let [one, other] = ["one", "other"].map(|job| running.client_of_job(job));
    let file = one.open(Ino::ROOT, b"file", &create()).unwrap();
    let write = |piece: u64| {
        assert_eq!(one.write_at(&file, piece * PIECE as u64, &[1; PIECE]).unwrap(), PIECE);
    };
    (0..PIECES).for_each(write);
    let object = File::open(longest_file(disk.path())).unwrap();
    let dirty = || page_counts(&object, LEN).map_or(0, |counts| counts.dirty);
    // Nobody knows yet that it is going to be synced. On some file systems nothing is ever dirty.
    if dirty() == 0 {
        return skip("the host does not tell what it has to write, or has nothing");
    }
    one.sync(&file, true).unwrap();
    // What each of the writes between two syncs leaves.
    let round = |before_each: &dyn Fn()| {
        let left: Vec<bool> = (0..PIECES)
            .map(|piece| {
                before_each();
                write(piece);
                dirty() > 0
            })
            .collect();
        one.sync(&file, true).unwrap();
        left
    };
    // Had it been begun only when it was wanted, or when it is old, there would be more to write each time. A disk that has much to do may keep
    // the server from some of them.
    eventually("writes are begun", || round(&|| ())[..PIECES as usize - 1].contains(&false));
    let small = other.open(Ino::ROOT, b"small", &create()).unwrap();
    let use_too = || assert_eq!(other.write_at(&small, 0, &[1]).unwrap(), 1);
    eventually("they are not while another job uses the target", || round(&use_too) == [true; PIECES as usize]);
}
