//! What a client may do with inodes that it did not come to, and with proofs that are another user's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use isonomia_client::{Change, Ino, LockKind, LockOwner, LockRange, OpenHow, RenameHow, access};
use running::{ALICE, MALLORY, Running, can_be_others, create, start};
use rustix::io::Errno;

fn root_writable(running: &Running) {
    let all = Change { mode: Some(0o1777), ..Change::default() };
    running.clients()[0].set_attr(Ino::ROOT, b"", true, &all).unwrap();
}

#[test]
fn nobody_starts_at_an_inode_that_he_did_not_come_to() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    root_writable(&running);
    let (alice, mallory) = (running.client_of(ALICE), running.client_of(MALLORY));
    let dir = Ino(alice.mkdir(Ino::ROOT, b"private", 0o700).unwrap().ino);
    let file = alice.open(dir, b"shown", &create()).unwrap();
    alice.write_at(&file, 0, b"secret").unwrap();
    let file = Ino(file.attr.ino);
    let read = OpenHow { access: access::READ, ..OpenHow::default() };
    println!(
        "read {:?}",
        mallory.open(file, b"", &read).map(|f| {
            let mut b = [0; 6];
            mallory.read_at(&f, 0, &mut b).unwrap();
            b
        })
    );
    println!("getattr {:?}", mallory.get_attr(file, b"", true).is_ok());
    println!("pathof {:?}", mallory.path_of(dir));
    println!("link {:?}", mallory.link(file, b"", false, Ino::ROOT, b"mine").map(|a| a.ino));
    alice.set_attr(dir, b"", true, &Change { mode: Some(0o700), ..Change::default() }).unwrap();
    let open_dir = Ino(alice.mkdir(dir, b"open", 0o777).unwrap().ino);
    println!("list {:?}", mallory.read_dir(open_dir, 0).is_ok());
    println!("plant {:?}", mallory.open(open_dir, b"planted", &create()).is_ok());
    println!("rename {:?}", mallory.rename(open_dir, b"planted", Ino::ROOT, b"stolen", RenameHow::Replace));
    let secret = alice.open(Ino::ROOT, b"secret", &OpenHow { mode: 0o600, ..create() }).unwrap();
    println!("leaked {:?}", mallory.read_at(&secret, 0, &mut [0; 6]));
    let path = OpenHow { path_only: true, ..OpenHow::default() };
    let named = mallory.open(Ino::ROOT, b"secret", &path).unwrap();
    let range = LockRange::Bytes { start: 0, len: 0 };
    println!("lock {:?}", mallory.lock(&named.capability, LockOwner::Process(0), range, LockKind::Exclusive, false));
    println!("fsync {:?}", mallory.sync(&named, false));
    let _ = mallory.unlock(&named.capability, LockOwner::Process(0), range);
    let mut n = 0u64;
    while n < 20_000
        && mallory
            .lock(
                &named.capability,
                LockOwner::Process(0),
                LockRange::Bytes { start: 2 * n, len: 1 },
                LockKind::Exclusive,
                false,
            )
            .is_ok()
    {
        n += 1;
    }
    println!(
        "locks {n}; owner: {:?}",
        alice.lock(
            &secret.capability,
            LockOwner::Process(0),
            LockRange::Bytes { start: 1_000_000, len: 1 },
            LockKind::Exclusive,
            false
        )
    );
    let _ = Errno::ACCESS;
}
